"""Counts in a loop, and rank 0 serves the metrics of all ranks at http://127.0.0.1:PORT/metrics for Prometheus.

horovodrun -np 4 python3 serve_metrics.py --port 9400
"""

import argparse
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy

import horovod.numpy as hvd

options = argparse.ArgumentParser()
options.add_argument("--port", type=int, default=9400)
options.add_argument("--seconds", type=float, default=3600)
options = options.parse_args()


class Metrics(BaseHTTPRequestHandler):
    def do_GET(self):
        text = hvd.metrics("job").encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *words):
        pass


hvd.init()
if hvd.rank() == 0:
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Metrics)
    threading.Thread(target=server.serve_forever, daemon=True).start()

end = time.monotonic() + options.seconds
ends = False
while not ends:
    hvd.grouped_allreduce([numpy.ones(10000), numpy.ones(10)], name="gradients")
    # All ranks must take the same number of steps, so rank 0 decides.
    ends = bool(hvd.broadcast(numpy.array(time.monotonic() >= end), root_rank=0, name="ends"))
    time.sleep(0.01)
