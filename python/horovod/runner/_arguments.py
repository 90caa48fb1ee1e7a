"""The arguments of horovodrun that scripts of the original Horovod set, as attributes of one object."""

from __future__ import annotations

import argparse
import shlex
from typing import Any, List, NamedTuple, Optional, Sequence

from horovod._version import __version__


class _Flag(NamedTuple):
    attribute: str
    names: str  # separated by spaces; the last name is passed to horovodrun
    type: Any = str  # bool: a flag without a value
    off: str = ""  # the flag for False
    number: int = 1


_FLAGS = [
    _Flag("check_build", "-cb --check-build", bool),
    _Flag("num_proc", "-np --num-proc", int),
    _Flag("disable_cache", "--disable-cache", bool),
    _Flag("start_timeout", "--start-timeout", int),
    _Flag("nics", "--network-interface --network-interfaces"),
    _Flag("output_filename", "--output-filename"),
    _Flag("verbose", "--verbose", bool),
    _Flag("config_file", "--config-file"),
    _Flag("ssh_port", "-p --ssh-port", int),
    _Flag("ssh_identity_file", "-i --ssh-identity-file"),
    _Flag("fusion_threshold_mb", "--fusion-threshold-mb", int),
    _Flag("cycle_time_ms", "--cycle-time-ms", float),
    _Flag("cache_capacity", "--cache-capacity", int),
    _Flag("hierarchical_allreduce", "--hierarchical-allreduce", bool, "--no-hierarchical-allreduce"),
    _Flag("hierarchical_allgather", "--hierarchical-allgather", bool, "--no-hierarchical-allgather"),
    _Flag("torus_allreduce", "--torus-allreduce", bool, "--no-torus-allreduce"),
    _Flag("autotune", "--autotune", bool, "--no-autotune"),
    _Flag("autotune_log_file", "--autotune-log-file"),
    _Flag("autotune_warmup_samples", "--autotune-warmup-samples", int),
    _Flag("autotune_steps_per_sample", "--autotune-steps-per-sample", int),
    _Flag("autotune_bayes_opt_max_samples", "--autotune-bayes-opt-max-samples", int),
    _Flag("autotune_gaussian_process_noise", "--autotune-gaussian-process-noise", float),
    _Flag("min_num_proc", "--min-np --min-num-proc", int),
    _Flag("max_num_proc", "--max-np --max-num-proc", int),
    _Flag("slots", "--slots-per-host", int),
    _Flag("elastic_timeout", "--elastic-timeout", int),
    _Flag("reset_limit", "--reset-limit", int),
    _Flag("cooldown_range", "--blacklist-cooldown-range", int, "", 2),
    _Flag("timeline_filename", "--timeline-filename"),
    _Flag("timeline_mark_cycles", "--timeline-mark-cycles", bool, "--no-timeline-mark-cycles"),
    _Flag("no_stall_check", "--no-stall-check", bool, "--stall-check"),
    _Flag("stall_check_warning_time_seconds", "--stall-check-warning-time-seconds", int),
    _Flag("stall_check_shutdown_time_seconds", "--stall-check-shutdown-time-seconds", int),
    _Flag("mpi_threads_disable", "--mpi-threads-disable", bool, "--no-mpi-threads-disable"),
    _Flag("mpi_args", "--mpi-args"),
    _Flag("tcp_flag", "--tcp", bool),
    _Flag("binding_args", "--binding-args"),
    _Flag("num_nccl_streams", "--num-nccl-streams", int),
    _Flag("thread_affinity", "--thread-affinity"),
    _Flag("gloo_timeout_seconds", "--gloo-timeout-seconds", int),
    _Flag("log_level", "--log-level"),
    _Flag("log_with_timestamp", "--log-with-timestamp", bool, "--log-without-timestamp"),
    _Flag("prefix_output_with_timestamp", "-prefix-timestamp --prefix-output-with-timestamp", bool),
    _Flag("hosts", "-H --hosts"),
    _Flag("hostfile", "-hostfile --hostfile"),
    _Flag("host_discovery_script", "--host-discovery-script"),
    _Flag("use_gloo", "--gloo", bool),
    _Flag("use_mpi", "--mpi", bool),
    _Flag("use_jsrun", "--jsrun", bool),
]


class _Union(argparse.Action):
    """Adds the names of a comma-separated list to a set."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        known = getattr(namespace, self.dest) or set()
        setattr(namespace, self.dest, known | set(values.split(",")))


class HorovodArgs(argparse.Namespace):
    """A job for `horovod.runner.launch._run`: its ranks run `command`, or call `run_func` without
    arguments by the Python `executable`. The other attributes are flags of horovodrun; None omits one."""

    def __init__(self, **attributes: Any) -> None:
        for flag in _FLAGS:
            setattr(self, flag.attribute, None)
        self.num_proc: Optional[int] = 1
        self.command: Any = None
        self.run_func: Any = None
        self.executable: Optional[str] = None
        super().__init__(**attributes)


def flags_of(arguments: Any) -> List[str]:
    """Returns the flags of horovodrun for the attributes that are set."""
    flags = []
    for flag in _FLAGS:
        value = getattr(arguments, flag.attribute, None)
        name = flag.names.split(" ")[-1]
        if value is None:
            continue
        if flag.type is bool:
            flags += [name] if value else [flag.off] if flag.off else []
        elif flag.number > 1:
            flags += [name, *map(str, value)]
        elif isinstance(value, (list, tuple, set)):
            flags.append(f"{name}={','.join(sorted(map(str, value)))}")
        else:
            flags.append(f"{name}={value}")
    return flags


def command_of(arguments: Any) -> List[str]:
    """Returns the words of the command. Raises ValueError without a command."""
    command = shlex.split(arguments.command) if isinstance(arguments.command, str) else arguments.command
    if not command:
        raise ValueError("horovod.runner.launch._run: set run_func or command.")
    return list(map(str, command))


def parse(words: Optional[Sequence[str]]) -> HorovodArgs:
    """Returns the arguments of a command line, by default this process's. Raises SystemExit(2) for arguments that
    Horovod's parser would reject."""
    parser = argparse.ArgumentParser(description="Horovod Runner")
    for flag in _FLAGS:
        names = flag.names.split(" ")
        if flag.type is bool:
            parser.add_argument(*names, dest=flag.attribute, action="store_const", const=True)
            if flag.off:
                parser.add_argument(flag.off, dest=flag.attribute, action="store_const", const=False)
        elif flag.number > 1:
            parser.add_argument(*names, dest=flag.attribute, type=flag.type, nargs=flag.number)
        elif flag.attribute == "nics":
            parser.add_argument(*names, dest=flag.attribute, action=_Union)
        else:
            parser.add_argument(*names, dest=flag.attribute, type=flag.type)
    for name, value in (("--log-hide-timestamp", False), ("--no-log-hide-timestamp", True)):
        parser.add_argument(name, dest="log_with_timestamp", action="store_const", const=value)
    parser.add_argument("-v", "--version", action="version", version=__version__)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    found = HorovodArgs(num_proc=None)
    parser.parse_args(words, found)
    return found
