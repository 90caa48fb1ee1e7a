"""Finds the launcher's programs, and makes its command line from the arguments of `horovod.run`."""

from __future__ import annotations

import os
import shutil
from typing import Any, List

# The arguments of `run` and their flags.
_VALUES = {
    "min_num_proc": "--min-num-proc",
    "max_num_proc": "--max-num-proc",
    "slots": "--slots-per-host",
    "reset_limit": "--reset-limit",
    "hosts": "-H",
    "hostfile": "--hostfile",
    "host_discovery_script": "--host-discovery-script",
    "start_timeout": "--start-timeout",
    "ssh_port": "-p",
    "ssh_identity_file": "-i",
    "output_filename": "--output-filename",
    "mpi_args": "--mpi-args",
    "network_interfaces": "--network-interfaces",
}
_SWITCHES = {"disable_cache": "--disable-cache", "verbose": "--verbose", "use_gloo": "--gloo", "use_mpi": "--mpi"}


def find(name: str = "horovodrun") -> str:
    """Returns the path of a program: the copy beside this package, else the one on PATH.

    Raises FileNotFoundError with one sentence if both are missing.
    """
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    places = [
        # A build: build/python/horovod and build/bin. A wheel: horovodrun/site/horovod and horovodrun/bin.
        os.path.normpath(os.path.join(package, "..", "..", "bin", name)),
        # An installation: <prefix>/lib/python3/dist-packages/horovod and <prefix>/bin.
        os.path.normpath(os.path.join(package, "..", "..", "..", "..", "bin", name)),
    ]
    on_path = shutil.which(name)
    for place in places + ([on_path] if on_path else []):
        if os.access(place, os.X_OK):
            return place
    raise FileNotFoundError(
        f"{name} is neither at {' or '.join(places)} nor on PATH; install Horovod, for example "
        "with 'pip install .' in its sources."
    )


def flags(num_proc: int, given: dict) -> List[str]:
    """Returns the flags for `num_proc` and for the arguments that are not None."""
    made = ["-np", str(num_proc)]
    for name, value in given.items():
        if value is None or value is False:
            continue
        if name in _SWITCHES:
            made += [_SWITCHES[name]] if value else []  # verbose may be 0
        elif name == "cooldown_range":
            made += ["--blacklist-cooldown-range", *map(str, value)]
        else:
            made += [_VALUES[name], _text(value)]
    return made


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
