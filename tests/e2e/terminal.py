"""Runs a program on its own pseudoterminal, and types into it like a user."""

import pty

from harness import *


class Terminal:
    def __init__(self, *command, **environment):
        self.before = Inventory()
        self.text = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(command[0], [*map(str, command)], clean_environment(**environment))
        os.set_blocking(self.fd, False)

    def type(self, text):
        os.write(self.fd, text.encode())

    def read(self):
        """Output since the last call; "" if there is none, and at the end."""
        try:
            more = os.read(self.fd, 65536).decode(errors="replace")
        except OSError:
            return ""
        self.text += more
        return more

    def shows(self, pattern, count=1, seconds=60):
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
