"""Runs a program on its own pseudoterminal, and types into it like a user."""

import fcntl
import pty
import struct
import termios

from harness import *


class Terminal:
    size = None  # (columns, rows) of the terminal

    def __init__(self, *command, **environment):
        variables = clean_environment(**{"TERM": "dumb", **environment})
        self.before = Inventory()
        self.text = ""
        ready, go = os.pipe()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.read(ready, 1)
            if self.size:
                resize(0, *self.size)
            os.execve(command[0], [*map(str, command)], variables)
        self.initial_attributes = self.attributes()  # read before the program may change them
        os.write(go, b"g")
        os.close(ready)
        os.close(go)
        os.set_blocking(self.fd, False)

    def attributes(self):
        """Returns flags, control characters and echo of the terminal."""
        return termios.tcgetattr(self.fd)

    def type(self, text):
        os.write(self.fd, text.encode())

    def read(self):
        """Returns the output since the last call; "" if there is none, and at the end."""
        try:
            more = os.read(self.fd, 65536).decode(errors="replace")
        except OSError:
            return ""
        self.text += more
        return more

    def shows(self, pattern, count=1, seconds=LONG):
        def look():
            self.read()
            return len(re.findall(pattern, self.text)) >= count

        wait_until(look, seconds, lambda: f"{pattern!r} on the terminal:\n{self.text}")

    def end(self):
        """Reads the rest of the output, and returns the exit status of the program."""
        os.set_blocking(self.fd, True)
        while self.read():
            pass
        return os.waitpid(self.pid, 0)[1]

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def resize(fd, columns, rows):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class Screen(Terminal):
    """A terminal; pyte renders the user's view."""

    def __init__(self, *command, size=(80, 24), **environment):
        try:
            import pyte
        except ImportError as error:
            raise Skip("python3-pyte is not there") from error
        self.size = size
        self.screen = pyte.HistoryScreen(*size, history=10000)
        self.stream = pyte.Stream(self.screen)
        super().__init__(*command, **{"TERM": "xterm-256color", "LANG": "C.UTF-8", **environment})

    def resize(self, columns, rows):
        self.screen.resize(rows, columns)
        resize(self.fd, columns, rows)

    def read(self):
        more = super().read()
        self.stream.feed(more)
        return more

    def rows(self):
        """Returns the lines on the screen without empty lines at its end."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip().split("\n")

    def past(self):
        """Returns the lines scrolled off the screen's top, and the lines on it."""
        top = ["".join(line[x].data for x in range(self.screen.columns)).rstrip() for line in self.screen.history.top]
        return [*top, *self.rows()]

    def sees(self, pattern, seconds=LONG):
        """Waits until the screen shows this, and returns its rows."""

        def look():
            self.read()
            return re.search(pattern, "\n".join(self.rows()), re.M) and self.rows()

        return wait_until(look, seconds, lambda: f"{pattern!r} on the screen:\n" + "\n".join(self.rows()))
