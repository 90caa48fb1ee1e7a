#!/usr/bin/python3 -B
"""A peer whose host falls silent. No rank has sent it data, and no acknowledgement is missing. A rank that
waits for this peer still gets an error, also without a launcher that watches the ranks."""
from harness import *

import network

PROGRAM = """
import os, sys, time
import numpy
import horovod.numpy as hvd
hvd.init()
hvd.allreduce(numpy.ones(4), name="first")
print("met", flush=True)
if hvd.rank() == 1:
    time.sleep(600)
try:
    hvd.allreduce(numpy.ones(4), name="second")
except hvd.HorovodInternalError as error:
    print(error, flush=True)
    os._exit(7)
"""


@world()
def test_a_rank_that_only_waits_hears_of_a_host_that_is_gone():
    token = pathlib.Path("/tmp/token")
    token.write_text("5a" * 32)
    token.chmod(0o600)
    server = subprocess.Popen(
        [BUILD / "bin" / "horovod-rendezvous", "--listen", ":29400", "--token-file", token],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    ranks = []
    try:
        expect(server.stdout.readline(), "the server says nothing")
        for rank, name in enumerate("ab"):
            ranks.append(subprocess.Popen(
                ["nsenter", "-t", str(host.pid_of(name)), "-m", "-u", "-i", "-n", "-p",
                 PYTHON, "-c", PROGRAM],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, env=clean_environment(
                    HOROVOD_RANK=str(rank), HOROVOD_SIZE="2",
                    HOROVOD_STORE=f"tcp:{network.LAUNCHER_ADDRESS}:29400",
                    HOROVOD_JOB_SECRET=token.read_text())))
        for rank in ranks:
            said = rank.stdout.readline()
            expect(said == "met\n", said)
        faults.crash("b")
        code = ranks[0].wait(60)
        said = ranks[0].stdout.read()
        expect(code == 7, f"{code}\n{said}")
        expect("rank 1 on host b was lost" in said, said)
    finally:
        for process in (server, *ranks):
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
