#!/usr/bin/python3
"""Two ranks: rank 0 is busy in some ways that are not hangs, for --seconds each, while rank 1 waits in a
collective of --library. Then rank 0 prints "hangs" and hangs. --port: of a server that sends slowly."""

import argparse
import hashlib
import http.server
import importlib
import os
import pathlib
import pdb
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from collective_libraries import LIBRARIES, RANK

DEBUG_CLIENT = pathlib.Path(__file__).with_name("debug_client.py")
# Modules of a package on a slow disk.
MODULE = '"""' + "x" * 4000 + '"""\nimport time\ntime.sleep(0.25)\n'


def load_shard():
    print("hangs", flush=True)
    time.sleep(600)


def repeat(function):
    end = time.monotonic() + options.seconds
    while time.monotonic() < end:
        function()


def compile_in_a_child():
    subprocess.run(["timeout", str(options.seconds), "sh", "-c", "while :; do :; done"])


def compile_with_xla():
    import jax

    def compile_it():
        def chain(x):
            for step in range(300):
                x = jax.numpy.sin(x @ x) + step
            return x

        jax.jit(chain).lower(jax.numpy.ones((50, 50))).compile()

    repeat(compile_it)


def save():
    import torch

    with tempfile.TemporaryDirectory() as folder:

        def save_it():
            torch.save(torch.ones(100000), f"{folder}/checkpoint")
            time.sleep(0.01)

        repeat(save_it)


def download():
    with socket.create_connection(("127.0.0.1", options.port)) as server:
        while server.recv(4096):
            pass


def evaluate():
    import torch

    repeat(lambda: torch.ones(200, 200) @ torch.ones(200, 200))


def call_c():
    hashlib.pbkdf2_hmac("sha256", b"x", b"y", int(2.5e6 * options.seconds))


def typed_after(text):
    master, slave = os.openpty()
    return subprocess.Popen(["sh", "-c", "sleep %s; echo %s" % (options.seconds, text)], stdout=master), slave


def read_a_terminal():
    writer, slave = typed_after("typed")
    os.read(slave, 100)
    writer.wait()


def debug():
    writer, slave = typed_after("continue")
    pdb.Pdb(stdin=open(slave, closefd=False), stdout=sys.stderr).set_trace()
    writer.wait()


def debug_in_an_editor():
    import debugpy

    global debugger
    if debugger is None:
        debugger = debugpy.listen(("127.0.0.1", 0))[1]
    client = subprocess.Popen([sys.executable, DEBUG_CLIENT, str(debugger), str(options.seconds)])
    debugpy.wait_for_client()
    debugpy.breakpoint()
    client.wait()


def be_stopped():
    waker = subprocess.Popen(["sh", "-c", "sleep %s; kill -CONT %d" % (options.seconds, os.getpid())])
    os.kill(os.getpid(), signal.SIGSTOP)
    waker.wait()


def serve():
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    threading.Timer(options.seconds, server.shutdown).start()
    server.serve_forever()


def sleep():
    time.sleep(options.seconds)


def import_slowly():
    with tempfile.TemporaryDirectory() as folder:
        sys.path.append(folder)
        for number in range(int(4 * options.seconds)):
            name = f"slow_{os.path.basename(folder)}_{number}"
            pathlib.Path(folder, name + ".py").write_text(MODULE)
            importlib.import_module(name)
        sys.path.remove(folder)


def log():
    for _ in range(int(2 * options.seconds)):
        print("epoch", flush=True)
        time.sleep(0.5)


def fork():
    repeat(lambda: subprocess.run(["sleep", "0.2"]))


parser = argparse.ArgumentParser()
parser.add_argument("--library", required=True, choices=LIBRARIES)
parser.add_argument("--seconds", type=float, required=True)
parser.add_argument("--port", type=int)
parser.add_argument("kinds", nargs="+")
options = parser.parse_args()
debugger = None
library = LIBRARIES[options.library]()
for kind in options.kinds:
    library.reduce()
    if RANK == 0:
        print(kind, flush=True)
    # While all ranks sleep, none is in a collective.
    if RANK == 0 or kind == "sleep":
        globals()[kind]()
if RANK == 0:
    load_shard()
library.reduce()
