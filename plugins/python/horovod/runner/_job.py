"""One job of `horovod.run`: a launcher as a child process, with its store over an inherited socket."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from typing import Any, Dict, List, Tuple

from horovod.runner import _calls, _program
from horovod.runner._store import Store, StoreError

_SENTENCE = b"horovodrun: "


class RemoteError(RuntimeError):
    """The function raised on a rank: `rank`, `trace` (its traceback there), and the exception itself as
    `__cause__`."""

    def __init__(self, rank: int, trace: str) -> None:
        super().__init__(f"The function raised on rank {rank}:\n{trace.rstrip()}")
        self.rank = rank
        self.trace = trace


class _Launcher:
    """The child process. Its messages go to this process's standard error."""

    def __init__(self, flags: List[str], python: str) -> None:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with its:
            self._process = subprocess.Popen(
                [_program.find(), *flags, "--store-fd", str(its.fileno()), python, "-m",
                 "horovod.runner.run_task"],
                stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, pass_fds=[its.fileno()],
                env=_environment())
        self.socket = ours
        self.said: List[str] = []
        self._relay = threading.Thread(target=self._pass_on, daemon=True)
        self._relay.start()

    def _pass_on(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if line.startswith(_SENTENCE):
                self.said.append(line[len(_SENTENCE):].decode(errors="replace").strip())
            sys.stderr.write(line.decode(errors="replace"))
            sys.stderr.flush()

    def secrets(self) -> Tuple[str, str]:
        """Returns the secrets of the job and of the ranks' results once the job has started; empty if the
        job fails to start."""
        line = b""
        while not line.endswith(b"\n"):
            more = self.socket.recv(1)
            if not more:
                return "", ""
            line += more
        job, _, results = line.decode().strip().partition(" ")
        if not results:
            raise RuntimeError(f"horovod.run: {_program.find()} is a horovodrun of another version than "
                               "this package; install both from one build.")
        return job, results

    def wait(self) -> int:
        """Waits for the launcher's last message; returns its exit code."""
        code = self._process.wait()
        self._relay.join()
        if self._process.stderr is not None:
            self._process.stderr.close()
        return code

    def end(self) -> None:
        """Ends the job, if it has not ended."""
        self.socket.close()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self.wait()


def _environment() -> Dict[str, str]:
    """Returns this process's environment, with which the ranks' Python finds this package."""
    environment = dict(os.environ)
    place = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    known = environment.get("PYTHONPATH", "").split(os.pathsep)
    if os.path.basename(place) not in ("site-packages", "dist-packages") and place not in known:
        environment["PYTHONPATH"] = os.pathsep.join([place, *filter(None, known)])
    return environment


def call_on_all(call: bytes, ranks: int, flags: List[str], python: str) -> List[Any]:
    """Starts a job whose ranks make the call, and returns the result of each rank."""
    launcher = _Launcher(flags, python)
    try:
        outcomes = _collect(launcher, call, ranks)
        code = launcher.wait()
    except BaseException:
        launcher.end()
        raise
    launcher.socket.close()
    errors = [RemoteError(rank, outcome.trace) for rank, outcome in outcomes.items() if outcome.error]
    if errors:
        first = errors[0]
        for trace in {error.trace: error for error in errors if error.trace != first.trace}.values():
            sys.stderr.write(f"{trace}\n")
        raise first from outcomes[first.rank].error
    if code or len(outcomes) < ranks:
        words = launcher.said[-1] if launcher.said else "it said nothing"
        raise RuntimeError(f"The job of horovod.run ended with exit code {code}: {words}")
    return [outcomes[rank].value for rank in range(ranks)]


def _collect(launcher: _Launcher, call: bytes, ranks: int) -> Dict[int, _calls.Outcome]:
    """Waits until every rank has stored its outcome or the job ends. Returns the outcomes by rank, in
    order of arrival. Raises RuntimeError for an outcome that its rank did not sign."""
    outcomes: Dict[int, _calls.Outcome] = {}
    secret, results = launcher.secrets()
    if not secret:
        return outcomes
    store = Store(lambda: launcher.socket, secret, False)
    try:
        revision = store.revision()
        store.put(_calls.FUNCTION, call)
        while len(outcomes) < ranks:
            revision, keys = store.changes(_calls.RESULTS, revision)
            for key in keys:
                name = key[len(_calls.RESULTS):]
                if "/" in name or name in map(str, outcomes):
                    continue  # a part of a value, or a repetition
                outcome = _calls.unpack(store.get(key), _calls.signing_key(bytes.fromhex(results), name))
                if outcome is None:
                    raise RuntimeError(
                        f"horovod.run: the result at {key!r} in the job's store is not signed by the rank "
                        "of that number, so it is not unpickled and the job ends; find the rank that "
                        "writes there.")
                outcomes[int(name)] = outcome
                store.put(_calls.taken_key(int(name)), b"")
    except (OSError, StoreError):
        pass  # the launcher has ended; its exit code and its sentence say why
    return outcomes
