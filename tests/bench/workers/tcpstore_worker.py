"""A client of PyTorch's TCPStore, for the rendezvous bench; rank 0's process also holds the server.

tcpstore_worker.py SOCKET RANK FOLDER

gets SECONDS    gets per second, while all other ranks do the same
"""

import datetime
import os
import socket
import sys
import time

from torch.distributed import TCPStore

TIMEOUT = datetime.timedelta(seconds=60)


def master(folder):
    """Runs the server in its own process, which ends with this process."""
    ready, port = os.pipe()
    if os.fork() == 0:
        os.close(ready)
        store = TCPStore("127.0.0.1", 0, 1, True, TIMEOUT, wait_for_workers=False)
        store.set("key", "12345678")
        os.write(port, str(store.port).encode())
        os.close(port)
        parent = os.getppid()
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(0)
    os.close(port)
    text = os.read(ready, 16).decode()
    with open(f"{folder}/new", "w", encoding="utf-8") as file:
        file.write(text)
    os.rename(f"{folder}/new", f"{folder}/port")


def main():
    path, rank, folder = sys.argv[1:4]
    if rank == "0":
        master(folder)
    while not os.path.exists(f"{folder}/port"):
        time.sleep(0.01)
    with open(f"{folder}/port", encoding="utf-8") as file:
        store = TCPStore("127.0.0.1", int(file.read()), 1, False, TIMEOUT, wait_for_workers=False)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    connection.sendall(f"hello {rank}\n".encode())
    for line in connection.makefile(encoding="utf-8"):
        words = line.split()
        if not words or words[0] == "quit":
            break
        count, start = 0, time.perf_counter()
        end = start + float(words[1])
        while time.perf_counter() < end:
            for _ in range(20):
                store.get("key")
            count += 20
        connection.sendall(f"ok {count / (time.perf_counter() - start)}\n".encode())


main()
