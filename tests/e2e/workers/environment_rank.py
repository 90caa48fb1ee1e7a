#!/usr/bin/python3
"""A script like those for DeepSpeed's launcher: it reads only a few variables, and rank 0 binds MASTER_PORT without
special options. It sums the ranks and sends the sum to all of them."""

import os
import socket
import sys
import time

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
time.sleep(float(sys.argv[1]) if sys.argv[1:] else 0)
if rank == 0:
    listener = socket.socket()
    listener.bind(("0.0.0.0", where[1]))
    listener.listen(size)
    others = [listener.accept()[0] for _ in range(size - 1)]
    total = sum(int(other.recv(64)) for other in others)
    for other in others:
        other.sendall(str(total).encode())
else:
    deadline = time.monotonic() + 200
    while True:
        try:
            connection = socket.create_connection(where, 5)
            break
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)  # such scripts poll, since rank 0 does not announce when it listens
    connection.sendall(str(rank).encode())
    total = int(connection.recv(64))
print(f"rank {rank} of {size}: {total} by {where[0]}", flush=True)
