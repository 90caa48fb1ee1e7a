"""RendezvousServer, under the name that scripts import."""

from __future__ import annotations

import os
import secrets
import subprocess
from typing import Any, List, Optional

from horovod.runner import _program
from horovod.runner._descriptors import keep_from_children


class RendezvousServer:
    """A rendezvous server for workers with the original's variables, HOROVOD_GLOO_RENDEZVOUS_ADDR and
    HOROVOD_GLOO_RENDEZVOUS_PORT: the program horovod-rendezvous as a child, which ends with this process.

    Requests need no signature: the server accepts every client from other hosts that reaches its port, and on this host
    only this user and root. `horovodrun` and `horovod.run` need no such server.
    """

    def __init__(self, verbose: int = 0, *, address: str = "", port_range: Optional[str] = None) -> None:
        """`address`: where to listen; empty for all addresses of this host. `port_range`: such as
        "29400-29499"; by default HOROVOD_PORT_RANGE, else any free port."""
        self._verbose = verbose
        self._address = f"[{address}]" if ":" in address else address
        self._port_range = os.environ.get("HOROVOD_PORT_RANGE", "") if port_range is None else port_range
        self._child: Optional[subprocess.Popen] = None
        self._lifetime: Any = None
        self._port = 0
        self._has_plan = False

    def start(self, handler_cls: Any = None) -> int:
        """Starts the server and returns its port. `handler_cls` has no effect. Raises RuntimeError if it already runs
        or cannot listen; horovod-rendezvous prints the cause to standard error."""
        if self._child is not None:
            raise RuntimeError("The rendezvous server runs already; stop() ends it.")
        self._start(["--port-range", self._port_range] if self._port_range else [], 0)
        return self._port

    def init(self, host_alloc_plan: Any) -> None:
        """Prepares the server for a job's ranks, the slots of `get_host_assignments`. Each further call removes all
        stored values."""
        if self._child is None:
            raise RuntimeError("The rendezvous server does not run; start() starts it.")
        if self._has_plan:
            self._end()
            self._start([], self._port)
        self._has_plan = True

    def stop(self) -> None:
        """Ends the server. Does nothing when it does not run."""
        self._end()
        self._has_plan = False

    def _start(self, flags: List[str], port: int) -> None:
        token, token_end = os.pipe()
        lifetime, kept = os.pipe()
        lifetime_end = keep_from_children(os.fdopen(kept, "wb", 0))
        try:
            child = subprocess.Popen(
                [
                    _program.find("horovod-rendezvous"),
                    "--insecure-compat",
                    "--listen",
                    f"{self._address}:{port}",
                    "--token-fd",
                    str(token),
                    "--lifetime-fd",
                    str(lifetime),
                    *flags,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                pass_fds=[token, lifetime],
                text=True,
            )
            os.write(token_end, secrets.token_hex(32).encode())
        except BaseException:
            lifetime_end.close()
            raise
        finally:
            for end in (token, token_end, lifetime):
                os.close(end)
        self._child, self._lifetime = child, lifetime_end
        assert child.stdout is not None
        line = child.stdout.readline()
        if not line:
            self._end()
            raise RuntimeError("The rendezvous server does not start; the message of horovod-rendezvous says why.")
        self._port = int(line.rpartition(":")[2])

    def _end(self) -> None:
        if self._child is None:
            return
        self._lifetime.close()
        self._child.terminate()
        self._child.communicate()
        self._child = None
