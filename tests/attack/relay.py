"""An attacker on the path of a link: forwards connections, records their bytes, alters and injects bytes."""
import socket
import threading


class Direction:
    """One direction of the current connection."""

    def __init__(self):
        self.recorded = bytearray()
        self.alter = None
        self.sink = None
        self.lock = threading.Lock()

    def flip_a_bit(self, where=-1):
        """Flips a bit in the next piece that comes: in its last byte, or in the byte `where`."""
        def flip(piece):
            piece = bytearray(piece)
            piece[where] ^= 1
            return bytes(piece)
        self.alter = flip

    def inject(self, piece):
        """Sends bytes of the attacker between those that pass."""
        with self.lock:
            self.sink.sendall(piece)

    def pump(self, source, sink):
        self.sink = sink
        try:
            while piece := source.recv(65536):
                self.recorded += piece
                alter, self.alter = self.alter, None
                with self.lock:
                    sink.sendall(alter(piece) if alter else piece)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            for end in source, sink:
                end.close()


class Relay:
    """Listens at a free port, and forwards each connection to the target, one after the other.

    `up` is the direction from the client, which dials, to the target; `down` is the opposite.
    """

    def __init__(self, target, host="127.0.0.1"):
        self.target = target
        self.up, self.down = Direction(), Direction()
        self.listener = socket.create_server((host, 0))
        self.address = f"{host}:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.run, daemon=True).start()

    @property
    def recorded(self):
        return bytes(self.up.recorded + self.down.recorded)

    def run(self):
        while True:
            client = self.listener.accept()[0]
            try:
                server = socket.create_connection(self.target)
            except OSError:
                client.close()
                continue
            answers = threading.Thread(target=self.down.pump, args=(server, client), daemon=True)
            answers.start()
            self.up.pump(client, server)
            answers.join()
