"""An attacker on the path of a link: forwards connections, records their bytes, alters, injects and cuts."""
import contextlib
import ctypes
import socket
import threading


def reset(end):
    """Resets a connection at once, also while another thread waits for its bytes: a connect to no address."""
    with contextlib.suppress(OSError):
        ctypes.CDLL(None).connect(end.fileno(), bytes(16), 16)


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
        self.is_cut = False
        self.connections = 0
        self.ends = ()
        self.listener = socket.create_server((host, 0))
        self.address = f"{host}:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.run, daemon=True).start()

    @property
    def recorded(self):
        return bytes(self.up.recorded + self.down.recorded)

    def cut(self):
        """Resets the current connection, and those that follow until heal()."""
        self.is_cut = True
        for end in self.ends:
            reset(end)

    def heal(self):
        self.is_cut = False

    def run(self):
        while True:
            client = self.listener.accept()[0]
            if self.is_cut:
                reset(client)
                client.close()
                continue
            try:
                server = socket.create_connection(self.target)
            except OSError:
                client.close()
                continue
            self.connections += 1
            self.ends = (client, server)
            answers = threading.Thread(target=self.down.pump, args=(server, client), daemon=True)
            answers.start()
            self.up.pump(client, server)
            answers.join()
