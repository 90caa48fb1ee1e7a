"""A rendezvous server with the behaviour that Horovod's workers expect: HTTP/1.0, a connection for each request, no
signatures, and values of a planned scope that are removed when all its ranks have left. Written from its known protocol
only, including its bug in DELETE."""

import http.server
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    timeout = 3

    def answer(self, status, body=b""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def parts(self):
        words = self.path.split("/")
        if len(words) < 3:
            self.answer(400)
            return None
        if len(words) > 3:
            raise ValueError("too many segments")
        return words[1], words[2]

    def do_GET(self):
        if not (where := self.parts()):
            return
        with self.server.lock:
            self.server.requests.append(("GET", self.path))
            value = self.server.values.get(where[0], {}).get(where[1])
        self.answer(404 if value is None else 200, value or b"")

    def do_PUT(self):
        if not (where := self.parts()):
            return
        try:
            value = self.rfile.read(int(self.headers["Content-Length"]))
        except TimeoutError:
            self.answer(408)
            return
        with self.server.lock:
            self.server.requests.append(("PUT", self.path))
            self.server.values.setdefault(where[0], {})[where[1]] = value
        self.answer(200)

    def do_DELETE(self):
        if not (where := self.parts()):
            return
        scope, key = where
        server = self.server
        with server.lock:
            server.requests.append(("DELETE", self.path))
            if scope in server.sizes:
                left = server.finished.setdefault(scope, [])
                left.append(key)
                if len(left) == server.sizes[scope]:
                    server.values.pop(scope, None)
                    server.finished.clear()
            elif scope in server.values:
                server.values[scope].pop(key, None)
                if not server.values[scope]:
                    del server.values[scope]
        self.answer(200)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    handler = Handler
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, sizes):
        self.lock = threading.Lock()
        self.sizes, self.values, self.finished, self.requests = sizes, {}, {}, []
        super().__init__(("127.0.0.1", 0), self.handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def port(self):
        return self.server_address[1]
