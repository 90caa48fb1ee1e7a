"""A listener on the wire between the hosts of a test: records every packet that the launcher's machine sees."""
import select
import socket
import threading


class Capture:
    """Context manager. `recorded` holds the payloads, in the order in which they passed."""

    ALL_PROTOCOLS = 3
    RECEIVE_BUFFER = 33  # SO_RCVBUFFORCE

    def __init__(self, interface="hosts0"):
        self.interface = interface
        self.recorded = bytearray()
        self._packets = None
        self._ends, self._end = socket.socketpair()
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self):
        self._packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(self.ALL_PROTOCOLS))
        self._packets.setsockopt(socket.SOL_SOCKET, self.RECEIVE_BUFFER, 64 << 20)
        self._packets.bind((self.interface, 0))
        self._reader.start()
        return self

    def __exit__(self, *_):
        self._end.close()
        self._reader.join()
        self._packets.close()
        self._ends.close()

    def _read(self):
        while True:
            ready, _, _ = select.select([self._packets, self._ends], [], [])
            if self._packets not in ready:
                return
            self.recorded += self._packets.recv(1 << 17)
