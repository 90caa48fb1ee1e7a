"""Captures all packets between the hosts of a test on the launcher's machine."""

import select
import socket
import threading


class Capture:
    """Context manager. `packets` and `recorded` hold the packets in the order of their capture."""

    ALL_PROTOCOLS = 3
    RECEIVE_BUFFER = 33  # SO_RCVBUFFORCE

    def __init__(self, interface="hosts0"):
        self.interface = interface
        self.packets = []
        self._socket = None
        self._ends, self._end = socket.socketpair()
        self._reader = threading.Thread(target=self._read, daemon=True)

    @property
    def recorded(self):
        return b"".join(self.packets)

    def __enter__(self):
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(self.ALL_PROTOCOLS))
        self._socket.setsockopt(socket.SOL_SOCKET, self.RECEIVE_BUFFER, 64 << 20)
        self._socket.bind((self.interface, 0))
        self._reader.start()
        return self

    def __exit__(self, *_):
        self._end.close()
        self._reader.join()
        self._socket.close()
        self._ends.close()

    def _read(self):
        while True:
            ready, _, _ = select.select([self._socket, self._ends], [], [])
            if self._socket not in ready:
                return
            self.packets.append(self._socket.recv(1 << 17))
