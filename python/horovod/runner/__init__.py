"""Jobs started by a Python program: `run` calls a function on all ranks of a new job.

Imports no framework and opens no library: the calling process is not a rank.
"""

from __future__ import annotations

import operator
import sys
import warnings
from typing import Any, Callable, Dict, List, Optional, Tuple

from horovod._version import __version__
from horovod.runner import _arguments, _calls, _program
from horovod.runner._job import RemoteError, call_on_all

__all__ = ["RemoteError", "__version__", "run"]

# For existing scripts, which set its attributes and pass it to `horovod.runner.launch._run`.
_HorovodArgs = _arguments.HorovodArgs


def run(
    func: Callable[..., Any],
    args: Tuple[Any, ...] = (),
    kwargs: Optional[Dict[str, Any]] = None,
    num_proc: int = 1,
    min_num_proc: Optional[int] = None,
    max_num_proc: Optional[int] = None,
    slots: Optional[int] = None,
    reset_limit: Optional[int] = None,
    cooldown_range: Optional[Tuple[int, int]] = None,
    hosts: Optional[str] = None,
    hostfile: Optional[str] = None,
    host_discovery_script: Optional[str] = None,
    start_timeout: Optional[int] = None,
    ssh_port: Optional[int] = None,
    ssh_identity_file: Optional[str] = None,
    disable_cache: Optional[bool] = None,
    output_filename: Optional[str] = None,
    verbose: Optional[bool] = None,
    use_gloo: Optional[bool] = None,
    use_mpi: Optional[bool] = None,
    mpi_args: Optional[str] = None,
    network_interface: Optional[str] = None,
    network_interfaces: Optional[str] = None,
    executable: Optional[str] = None,
    np: Optional[int] = None,
    min_np: Optional[int] = None,
    max_np: Optional[int] = None,
) -> List[Any]:
    """Starts a job, calls `func(*args, **kwargs)` on each of its ranks, and returns their results.

    The function, its arguments and its results are pickled and stored in the job's store. Every message of the store is
    signed with the job's secret, and each result with its rank's key. Other hosts must have the same Python, and the
    modules that the function uses, at the same paths. The function itself calls `hvd.init()` if it needs Horovod. The
    calling process prints the output of the ranks, like `horovodrun`.

    Args:
      func: called once on each rank; may be a lambda, or defined in the main file.
      num_proc: the number of ranks (`np` is the deprecated name).
      hosts: hosts and slots, such as "a:2,b:2"; `hostfile` names a file with them. Without either
        the ranks run on this host, or on the hosts of a scheduler's allocation.
      start_timeout: the time limit in seconds for hosts to start, and for ranks to connect once all are in
        `hvd.init`.
      executable: the Python of the ranks; by default the running one.
      min_num_proc, max_num_proc, host_discovery_script, reset_limit, cooldown_range, slots: as the flags of
        `horovodrun` of these names, for an elastic job: `min_num_proc` or `host_discovery_script` makes one. The
        function uses `hvd.elastic`. A failure that the job survives is no error here.
      ssh_port, ssh_identity_file, output_filename, network_interfaces, verbose, disable_cache, mpi_args: as the
        flags of `horovodrun` of these names.

    Returns the list of the results, in the order of ranks; for an elastic job, the results of the last generation,
    which has at least `min_num_proc` ranks.

    Raises RemoteError, a RuntimeError, when the function raised on a rank. The message contains the rank's traceback,
    its cause is the exception, and the launcher has ended the other ranks. Raises RuntimeError with the launcher's
    message when the job could not start or a rank died, and ValueError for arguments that contradict each other.
    """
    for name, value in (("np", np), ("min_np", min_np), ("max_np", max_np), ("network_interface", network_interface)):
        if value is not None:
            replaced = {"network_interface": "network_interfaces"}.get(name, name.replace("np", "num_proc"))
            warnings.warn(
                f"The argument {name} of horovod.run is deprecated; use {replaced}.", DeprecationWarning, stacklevel=2
            )
    if hosts is not None and hostfile is not None:
        raise ValueError("horovod.run: give either hosts or hostfile, not both.")
    if use_gloo and use_mpi:
        raise ValueError("horovod.run: give either use_gloo or use_mpi, not both.")
    ranks = num_proc if np is None else np
    if isinstance(ranks, bool) or not hasattr(ranks, "__index__") or operator.index(ranks) < 1:
        raise ValueError(f"horovod.run: num_proc is {ranks!r}; it must be a whole number, 1 or more.")
    ranks = operator.index(ranks)  # also accepts numpy integers
    flags = _program.flags(
        ranks,
        {
            "min_num_proc": min_num_proc if min_np is None else min_np,
            "max_num_proc": max_num_proc if max_np is None else max_np,
            "slots": slots,
            "reset_limit": reset_limit,
            "cooldown_range": cooldown_range,
            "hosts": hosts,
            "hostfile": hostfile,
            "host_discovery_script": host_discovery_script,
            "start_timeout": start_timeout,
            "ssh_port": ssh_port,
            "ssh_identity_file": ssh_identity_file,
            "disable_cache": disable_cache,
            "output_filename": output_filename,
            "verbose": verbose,
            "use_gloo": use_gloo,
            "use_mpi": use_mpi,
            "mpi_args": mpi_args,
            "network_interfaces": network_interfaces or network_interface,
        },
    )
    call = _calls.pack_call(sys.path, func, tuple(args), dict(kwargs or {}))
    least = min_num_proc if min_np is None else min_np
    is_elastic = least is not None or host_discovery_script is not None
    return call_on_all(call, ranks if least is None else least, flags, executable or sys.executable, is_elastic)
