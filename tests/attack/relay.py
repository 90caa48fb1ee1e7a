"""An attacker on the path of a link: forwards connections, records their bytes, and delays, alters, reorders, injects
or cuts them."""

import contextlib
import ctypes
import select
import socket
import threading

import faults
import network


def reset(end):
    """Resets a connection at once by connecting it to AF_UNSPEC, even while another thread reads from it."""
    with contextlib.suppress(OSError):
        ctypes.CDLL(None).connect(end.fileno(), bytes(16), 16)


class Direction:
    """One direction of all connections of a relay. `sink` is the newest connection's target."""

    def __init__(self):
        self.recorded = bytearray()
        self.sink = None
        self.lock = threading.Lock()
        self.attack = None
        self.passes = threading.Event()
        self.passes.set()

    def alter(self, change, holds=b"", skip=0):
        """Replaces one piece by change(piece): the next piece that contains `holds`, after `skip` such pieces."""
        self.attack = (change, holds, skip)

    def flip_a_bit(self, where=-1, **which):
        """Flips a bit of a piece: in its last byte, or in the byte `where`."""

        def flip(piece):
            at = where % len(piece)
            return piece[:at] + bytes([piece[at] ^ 1]) + piece[at + 1 :]

        self.alter(flip, **which)

    def reorder(self, **which):
        """Sends the second half of a piece before the first half."""
        self.alter(lambda piece: piece[len(piece) // 2 :] + piece[: len(piece) // 2], **which)

    def inject(self, piece):
        """Sends bytes of the attacker between forwarded pieces."""
        with self.lock:
            self.sink.sendall(piece)

    @property
    def attacked(self):
        """Returns whether the alteration has happened."""
        return self.attack is None

    def altered(self, piece):
        if self.attack is None:
            return piece
        change, holds, skip = self.attack
        if holds not in piece:
            return piece
        self.attack = (change, holds, skip - 1) if skip else None
        return piece if skip else change(piece)

    def pump(self, source, sink, record):
        self.sink = sink
        try:
            while piece := source.recv(65536):
                self.recorded += piece
                record += piece
                self.passes.wait()
                with self.lock:
                    sink.sendall(self.altered(piece))
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            for end in source, sink:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)


class Connection:
    """A connection from a client, and the connection to the target; the bytes of each direction."""

    def __init__(self, client, server):
        self.client, self.server, self.target = client, server, server.getpeername()
        self.up, self.down = bytearray(), bytearray()


class Relay:
    """Listens at a free port, and forwards each connection to the target.

    `up` is the direction from the client, which connects, to the target; `down` is the opposite.
    """

    def __init__(self, target, host="127.0.0.1"):
        self.target = target
        self.start([socket.create_server((host, 0))])
        self.address = f"{host}:{self.listeners[0].getsockname()[1]}"

    def start(self, listeners):
        self.listeners = listeners
        self.up, self.down = Direction(), Direction()
        self.links = []
        self.is_cut = False
        threading.Thread(target=self.run, daemon=True).start()

    @property
    def recorded(self):
        return bytes(self.up.recorded + self.down.recorded)

    def dial(self, _client):
        """Returns the connection to which a client's connection is forwarded."""
        return socket.create_connection(self.target)

    @property
    def connections(self):
        return len(self.links)

    def cut(self):
        """Resets all connections, and new connections until heal()."""
        self.is_cut = True
        for link in self.links:
            reset(link.client)
            reset(link.server)

    def heal(self):
        self.is_cut = False

    def run(self):
        while True:
            for listener in select.select(self.listeners, [], [])[0]:
                client = listener.accept()[0]
                if self.is_cut:
                    reset(client)
                    client.close()
                    continue
                try:
                    found = Connection(client, self.dial(client))
                except OSError:
                    client.close()
                    continue
                self.links.append(found)
                if self.is_cut:  # cut() may have missed a connection opened since the check above
                    reset(found.client)
                    reset(found.server)
                for arguments in ((found.client, found.server, found.up), (found.server, found.client, found.down)):
                    pump = (self.up if arguments[0] is client else self.down).pump
                    threading.Thread(target=pump, args=arguments, daemon=True).start()


class PathRelay(Relay):
    """A relay between two hosts of a world, for connections to these ports in both directions. Each host sees only the
    address of its peer."""

    IP_TRANSPARENT = 19

    def __init__(self, one, other, ports):
        network.divert([(faults.address_of(name), faults.running(name)) for name in (one, other)])
        listeners = []
        for port in ports:
            listeners.append(self.transparent())
            listeners[-1].bind(("0.0.0.0", port))
            listeners[-1].listen()
        self.start(listeners)

    def transparent(self):
        found = socket.socket()
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.setsockopt(socket.SOL_IP, self.IP_TRANSPARENT, 1)
        return found

    def dial(self, client):
        server = self.transparent()
        server.bind((client.getpeername()[0], 0))
        server.connect(client.getsockname())
        return server
