"""Settings of jobs, under the name that scripts import."""

from __future__ import annotations

from typing import Any


class BaseSettings:
    """A collection of a job's settings, as attributes. Keyword arguments set them, including attributes of other
    names."""

    num_proc: Any = None
    verbose: Any = 0
    ssh_port: Any = None
    ssh_identity_file: Any = None
    extra_mpi_args: Any = None
    tcp_flag: Any = None
    binding_args: Any = None
    key: Any = None
    start_timeout: Any = None
    output_filename: Any = None
    run_func_mode: Any = None
    nics: Any = None
    elastic: Any = False
    prefix_output_with_timestamp: Any = False

    def __init__(self, **kwargs: Any) -> None:
        self.__dict__.update(kwargs)


class Settings(BaseSettings):
    """The settings with the job's hosts, such as "a:2,b:2"."""

    hosts: Any = None
