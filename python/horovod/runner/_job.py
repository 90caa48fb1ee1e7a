"""One job of `horovod.run`: a launcher as a child process, with its store over an inherited socket."""

from __future__ import annotations

import fcntl
import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from typing import Any, Dict, Iterator, List, Optional, Tuple

from horovod.runner import _calls, _program
from horovod.runner._descriptors import keep_from_children
from horovod.runner._store import Store, StoreError

_SENTENCE = b"horovodrun: "
_BEGINS = re.compile(r"generation (\d+): \d+ ranks")
# The maximum number of output lines that belong to a sentence of the launcher that ends with a colon.
_QUOTED_LINES = 20
# The time limit for the launcher's end after its store has refused a request.
_REFUSED_SECONDS = 5.0


class RemoteError(RuntimeError):
    """The function raised on a rank, or its result cannot be pickled: `rank`, `trace` (its traceback), and the
    exception itself as `__cause__`."""

    def __init__(self, rank: int, trace: str) -> None:
        super().__init__(f"The call failed on rank {rank}:\n{trace.rstrip()}")
        self.rank = rank
        self.trace = trace

    def __reduce__(self) -> Tuple[Any, ...]:
        # By default, pickle would create the exception from its message alone.
        return type(self), (self.rank, self.trace)


class _Launcher:
    """The child process horovodrun, whose messages go to this process's standard error."""

    def __init__(self, flags: List[str], python: str) -> None:
        ours, its = (keep_from_children(_above_standard(end)) for end in socket.socketpair(socket.AF_UNIX))
        for stream in (sys.stdout, sys.stderr):
            _flush(stream)  # show the program's own output before the ranks' output
        with its:
            self._process = subprocess.Popen(
                [_program.find(), *flags, "--store-fd", str(its.fileno()), python, "-m", "horovod.runner.run_task"],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[its.fileno()],
                env=_environment(),
            )
        keep_from_children(self._process.stderr)
        self.socket = ours
        self.messages: List[str] = []
        self._relay = threading.Thread(target=self._pass_on, daemon=True)
        self._relay.start()

    def _pass_on(self) -> None:
        assert self._process.stderr is not None
        quoted = 0
        for line in self._process.stderr:
            text = line.decode(errors="replace")
            if line.startswith(_SENTENCE):
                self.messages.append(text[len(_SENTENCE) :].strip())
                quoted = _QUOTED_LINES if self.messages[-1].endswith(":") else 0
            elif quoted:
                self.messages[-1] += "\n" + text.rstrip()
                quoted -= 1
            _show(text)

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
            raise RuntimeError(
                f"horovod.run: {_program.find()} is a horovodrun of another version than "
                "this package; install both from one build."
            )
        return job, results

    def wait(self) -> int:
        """Waits for the launcher's end and its last message. Returns its exit code."""
        code = self._process.wait()
        self._relay.join()
        if self._process.stderr is not None:
            self._process.stderr.close()
        return code

    def has_ended(self, seconds: float) -> bool:
        """Waits at most this long for the end of the launcher; returns whether it has ended."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def generation(self) -> int:
        """Returns the last generation that has begun, according to the messages of an elastic job."""
        begun = filter(None, map(_BEGINS.match, self.messages))
        return max((int(found.group(1)) for found in begun), default=0)

    def end(self) -> None:
        """Ends the job, if it has not ended."""
        self.socket.close()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.send_signal(signal.SIGCONT)  # a stopped process does not handle the signal that ends it
        self.wait()


def _above_standard(end: socket.socket) -> socket.socket:
    """Returns the socket with a number above those of the standard streams: the program may have closed one of them,
    and still write to its number."""
    if end.fileno() > 2:
        return end
    with end:
        return socket.socket(fileno=fcntl.fcntl(end.fileno(), fcntl.F_DUPFD_CLOEXEC, 3))


def _show(text: str) -> None:
    """Writes to standard error if the program has a working stream. The job must not depend on the stream, and must not
    wait for a reader of its output."""
    try:
        try:
            sys.stderr.write(text)
        except UnicodeError:
            sys.stderr.write(text.encode("ascii", "backslashreplace").decode())
        sys.stderr.flush()
    except Exception:
        pass


def _flush(stream: Any) -> None:
    try:
        stream.flush()
    except Exception:
        pass  # the stream is closed, or None


def _environment() -> Dict[str, str]:
    """Returns this process's environment, in which the ranks' Python finds this package."""
    environment = dict(os.environ)
    place = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    known = environment.get("PYTHONPATH", "").split(os.pathsep)
    if os.path.basename(place) not in ("site-packages", "dist-packages") and place not in known:
        environment["PYTHONPATH"] = os.pathsep.join([place, *filter(None, known)])
    return environment


def call_on_all(call: bytes, ranks: int, flags: List[str], python: str, is_elastic: bool = False) -> List[Any]:
    """Starts a job whose ranks make the call, and returns the result of each rank, by rank. `is_elastic`: the number of
    ranks may change, and `ranks` is the least number of results; only the last generation's results are returned."""
    launcher = _Launcher(flags, python)
    try:
        outcomes = _collect(launcher, call, None if is_elastic else ranks)
        code = launcher.wait()
    except BaseException:
        launcher.end()
        raise
    launcher.socket.close()
    if is_elastic:
        last = max([launcher.generation(), *(outcome.generation for outcome in outcomes.values())])
        _show_survived(outcomes, last + 1 if code == 0 else last)
        outcomes = (
            _of_last_generation(outcomes)
            if code == 0
            else {process: outcome for process, outcome in outcomes.items() if outcome.generation == last}
        )
    errors = [
        RemoteError(outcome.rank_of(process), outcome.trace) for process, outcome in outcomes.items() if outcome.error
    ]
    causes = [outcome.error for outcome in outcomes.values() if outcome.error]
    if is_elastic:  # the last failure ended the job
        errors, causes = errors[::-1], causes[::-1]
    if errors:
        first = errors[0]
        for trace in {error.trace: error for error in errors if error.trace != first.trace}.values():
            _show(f"{trace}\n")
        raise first from causes[0]
    complete = list(itertools.takewhile(outcomes.__contains__, itertools.count()))
    if code or len(complete) < (max(ranks, len(outcomes)) if is_elastic else ranks):
        words = launcher.messages[-1] if launcher.messages else "it said nothing"
        if not is_elastic and not code:
            missing = sorted(set(range(ranks)) - set(outcomes))
            words = (
                f"{'rank' if len(missing) == 1 else 'ranks'} {', '.join(map(str, missing))} exited with code 0 "
                "before the function had returned there"
            )
        if is_elastic and not code:
            least = max([ranks, *(rank + 1 for rank in outcomes)])
            words = (
                f"ranks {sorted(outcomes)} of its last generation have returned a result, and ranks 0 to "
                f"{least - 1} must (min_num_proc={ranks})"
            )
        raise RuntimeError(f"The job of horovod.run ended with exit code {code}: {words}")
    return [outcomes[rank].value for rank in complete]


def _show_survived(outcomes: Dict[int, _calls.Outcome], end: int) -> None:
    """Prints the exceptions in generations before `end`, which the job has survived."""
    shown = {
        outcome.trace: (outcome.rank_of(process), outcome.generation)
        for process, outcome in outcomes.items()
        if outcome.error and outcome.generation < end
    }
    for trace, (rank, generation) in shown.items():
        _show(
            f"horovod.run: the function raised on rank {rank} of generation {generation}, and the job "
            f"went on:\n{trace.rstrip()}\n"
        )


def _of_last_generation(outcomes: Dict[int, _calls.Outcome]) -> Dict[int, _calls.Outcome]:
    """Returns the outcomes of the ranks that returned in the last generation, by rank."""
    done = [outcome for outcome in outcomes.values() if not outcome.error]
    last = max((outcome.generation for outcome in done), default=0)
    return {outcome.rank: outcome for outcome in done if outcome.generation == last}


def _collect(launcher: _Launcher, call: bytes, ranks: Optional[int]) -> Dict[int, _calls.Outcome]:
    """Waits until this number of ranks have stored their outcomes or the job ends. Returns the outcomes by the
    rank at the start of each process, in order of arrival. Raises RuntimeError for an outcome that its rank did not
    sign, or that cannot be unpickled here."""
    outcomes: Dict[int, _calls.Outcome] = {}
    secret, results = launcher.secrets()
    if not secret:
        return outcomes
    for name, message in _messages(launcher, Store(lambda: launcher.socket, secret, False, False), call):
        try:
            outcome = _calls.unpack(message, _calls.signing_key(bytes.fromhex(results), name))
        except Exception as error:
            raise RuntimeError(
                f"horovod.run: the result of rank {name} cannot be unpickled in the calling process: "
                f"{type(error).__name__}: {error}"
            ) from error
        if outcome is None:
            raise RuntimeError(
                f"horovod.run: the result at {_calls.RESULTS + name!r} in the job's store is not signed by the rank "
                "of that number, so it is not unpickled and the job ends; find the rank that "
                "writes there."
            )
        outcomes[int(name)] = outcome
        if len(outcomes) == ranks:
            break
    return outcomes


def _messages(launcher: _Launcher, store: Store, call: bytes) -> Iterator[Tuple[str, bytes]]:
    """Sends the call to the ranks. Yields the number and the message of each rank once, until the launcher ends. Its
    exit code and messages then give the reason. Raises StoreError for a request that the store refuses."""
    known = set()
    try:
        revision = store.revision()
        store.put(_calls.FUNCTION, call)
        while True:
            revision, keys = store.changes(_calls.RESULTS, revision)
            for key in keys:
                name = key[len(_calls.RESULTS) :]
                if "/" in name or name in known:
                    continue  # part of a value, or a repetition
                known.add(name)
                message = store.get(key)
                store.put(f"{_calls.TAKEN}{name}", b"")
                yield name, message
    except OSError:
        pass
    except StoreError:
        if not launcher.has_ended(_REFUSED_SECONDS):
            raise
