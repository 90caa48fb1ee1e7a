"""Exports metrics of a job of another launcher to Prometheus: rank 0 writes a file (HOROVOD_METRICS_FILE), serves a
port (HOROVOD_METRICS_PORT), or both. Under horovodrun the launcher does this, without asking a rank."""

from __future__ import annotations

import http.server
import ipaddress
import os
import socket
import socketserver
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Tuple

from horovod import __version__, _identity, _observation

_SECONDS = 15  # between two versions of the file
_CLIENT_SECONDS = 10
_CONNECTIONS = 64
_JOB_IDS = ("HOROVOD_JOB_ID", "SLURM_JOB_ID", "PBS_JOBID", "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE")
# Values of which the largest is exported, not the sum: each rank counts all steps of the job.
_LARGEST = ("horovod_steps_total",)
# Not exported: a job may have any number of groups, with any names, and each would be a new series.
_OF_GROUPS = "horovod_group_calls_total"


def start(after_shutdown: Callable[[Callable[[], None]], None]) -> None:
    """Starts the exports that the variables request, and registers their ends with `after_shutdown`. Prints one
    sentence about an export that fails to start; the job continues without it."""
    file, port = os.environ.get("HOROVOD_METRICS_FILE", ""), os.environ.get("HOROVOD_METRICS_PORT", "")
    if not (file or port) or _identity.rank() != 0 or os.environ.get("HOROVOD_METRICS_PAGE"):
        return
    ends: List[Callable[[], None]] = []
    if file and os.path.lexists(file) and (os.path.islink(file) or not os.path.isfile(file)):
        _say(f"metrics are not written: HOROVOD_METRICS_FILE={file!r} is no regular file, which can be replaced")
    elif file:
        try:
            ends.append(_File(os.path.abspath(file)).end)
        except (OSError, RuntimeError) as failure:
            _say(f"metrics are not written to HOROVOD_METRICS_FILE={file!r}: {failure}")
    if port:
        try:
            ends.append(_serve(*_address(port)))
        except (OSError, RuntimeError, ValueError) as failure:
            _say(f"metrics are not served at HOROVOD_METRICS_PORT={port!r}: {failure}")
    owner = os.getpid()

    def end() -> None:
        if os.getpid() == owner:
            for function in ends:
                function()

    after_shutdown(end)


def _say(sentence: str) -> None:
    print(f"horovod: {sentence}; the job goes on without it", file=sys.stderr, flush=True)


def text() -> str:
    """Returns sums over all ranks as text in Prometheus's format. Omits ranks that do not respond within a second."""
    label = f'job_id="{_escaped(_job_id())}"'
    lines = [
        "# HELP horovod_job_info The job, as labels.",
        "# TYPE horovod_job_info gauge",
        f'horovod_job_info{{{label},version="{__version__}"}} 1',
    ]
    sums: Dict[str, float] = {}
    for line in _observation.metrics("job").splitlines():
        if _OF_GROUPS in line:
            continue
        if line.startswith("#"):
            _put(lines, sums)
            line = line.replace("Whether the rank has", "Ranks that have")
            lines.append(line.replace("horovod_rank_up", "horovod_ranks_up"))
            continue
        name, value = _without_rank(line, label)
        known = sums.get(name, 0.0)
        is_largest = name.startswith(_LARGEST)
        sums[name] = max(known, value) if is_largest else known + value
    _put(lines, sums)
    return "\n".join(lines) + "\n"


def _put(lines: List[str], sums: Dict[str, float]) -> None:
    lines += [f"{name} {int(value) if value == int(value) else value!r}" for name, value in sums.items()]
    sums.clear()


def _without_rank(line: str, label: str) -> Tuple[str, float]:
    """Returns the name and labels of a sample, with `label` instead of rank and host, and its value."""
    name, _, rest = line.partition("{")
    labels, _, value = rest.rpartition("} ")
    # Only the labels `operation` and `le` are copied, because the other labels name the rank and the host.
    kept = [one for one in labels.split(",") if one.startswith(("operation=", "le="))]
    name = "horovod_ranks_up" if name == "horovod_rank_up" else name
    return f"{name}{{{','.join([label, *kept])}}}", float(value)


def _job_id() -> str:
    return next((os.environ[name] for name in _JOB_IDS if os.environ.get(name)), str(os.getpid()))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class _File:
    """Replaces the file by a complete new version every 15 s, on its own thread, and removes the file at the end."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._new = f"{path}.{socket.gethostname()}.{os.getpid()}"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hvd-metrics", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        has_failed = False
        while not self._ended.is_set():
            try:
                with open(self._new, "w", encoding="utf-8") as file:
                    file.write(text())
                if not self._ended.is_set():
                    os.replace(self._new, self._path)
            except OSError as failure:
                if not has_failed:
                    _say(f"cannot write {self._path!r} (HOROVOD_METRICS_FILE): {failure.strerror}")
                has_failed = True
            except Exception:  # the job has ended or failed, and the ranks report the reason
                pass
            self._ended.wait(_SECONDS)

    def end(self) -> None:
        self._ended.set()
        self._thread.join(1)  # a file system may hang
        for path in (self._new, self._path):
            try:
                os.unlink(path)
            except OSError:
                pass


def _address(value: str) -> Tuple[str, int]:
    """Returns host and port of "9400", "HOST:9400" or "[IPv6]:9400". Raises ValueError."""
    host, _, port = value.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    host = "127.0.0.1" if host == "localhost" else host
    if not port.isdigit() or int(port) > 65535:
        raise ValueError("it is no port and no address such as 9400, 0.0.0.0:9400 or [::]:9400")
    if not _is_loopback(host) and os.environ.get("HOROVOD_METRICS_INSECURE", "") not in ("1", "true", "yes", "on"):
        raise ValueError(
            "other machines can reach it; give the port alone, which is for this machine, or set "
            "HOROVOD_METRICS_INSECURE=1"
        )
    return host, int(port)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Recent:
    """Caches the text for one second, so that any number of clients cause one request to the ranks per second."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._text = ""
        self._until = 0.0

    def text(self) -> str:
        with self._lock:
            if time.monotonic() >= self._until:
                self._text = text()
                self._until = time.monotonic() + 1
            return self._text


class _Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True

    def __init__(self, family: int, address: Tuple[str, int]) -> None:
        self.address_family = family
        self.recent = _Recent()
        self.is_local = _is_loopback(address[0])
        self._room = threading.Semaphore(_CONNECTIONS)
        self._ended = threading.Event()
        super().__init__(address, _Handler)
        try:
            threading.Thread(target=self._run, name="hvd-metrics-port", daemon=True).start()
        except RuntimeError:
            self.server_close()
            raise

    def _run(self) -> None:
        while not self._ended.is_set():
            self.handle_request()  # blocks without polling: serve_forever polls twice a second

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # the method of http.server would look up the name of the address

    def get_request(self) -> Any:
        try:
            return super().get_request()
        except OSError:
            self._ended.wait(0.1)  # accepting fails, for example, while the process has no free descriptor
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # thread creation failed
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # the client has disconnected

    def end(self) -> None:
        self._ended.set()
        try:
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        except OSError:
            pass
        self.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    timeout = _CLIENT_SECONDS

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        status, answer = 404, "this port has /metrics and /healthz\n"
        if not self._is_for_this_port():
            status, answer = 421, "this port is asked for by localhost or 127.0.0.1\n"
        elif path == "/healthz":
            status, answer = 200, "ok\n"
        elif path == "/metrics":
            try:
                status, answer = 200, self.server.recent.text()  # type: ignore[attr-defined]
            except Exception as failure:
                status, answer = 503, f"{failure}\n"
        kind = "text/plain; version=0.0.4; charset=utf-8" if path == "/metrics" else "text/plain; charset=utf-8"
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(answer.encode())))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.encode())

    do_HEAD = do_GET

    def _is_for_this_port(self) -> bool:
        """Returns whether the request names this host. A web page in a local browser can reach a local port by the
        page's own host name (DNS rebinding)."""
        host = self.headers.get("Host", "").lower()
        name = (host if host.endswith("]") else host.rpartition(":")[0] or host).strip("[]")
        is_local: bool = self.server.is_local  # type: ignore[attr-defined]
        return not is_local or name in ("", "localhost") or _is_loopback(name)

    def log_message(self, *words: Any) -> None:
        pass


def _serve(host: str, port: int) -> Callable[[], None]:
    """Returns a function that ends the server."""
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
    return _Server(family, (host, port)).end
