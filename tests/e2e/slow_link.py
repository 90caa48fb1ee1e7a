"""A link with a delay: packets to a host wait in a TUN device of the launcher's machine."""

import collections
import fcntl
import os
import pathlib
import select
import struct
import subprocess
import threading
import time

import faults
import host
import network

SET_INTERFACE, TUN_WITHOUT_HEADER = 0x400454CA, 0x1001
DEVICE, TABLE = "slow0", 101


def ip(*words, pid=None):
    enter = ["nsenter", "--target", str(pid), "--net"] if pid else []
    subprocess.run([*enter, "ip", *words], check=True)


class SlowLink:
    """Delays all packets to a host, from the launcher and from other hosts, until the end of the block. Packets from
    the host are not delayed, so that a round trip takes the delay once."""

    def __init__(self, name, seconds):
        self.name, self.seconds = name, seconds
        self.device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.ioctl(self.device, SET_INTERFACE, struct.pack("16sH22x", DEVICE.encode(), TUN_WITHOUT_HEADER))
        self.end, self.ender = os.pipe()
        self.thread = threading.Thread(target=self.pass_on, daemon=True)

    def __enter__(self):
        settings = pathlib.Path("/proc/sys/net/ipv4")
        (settings / "ip_forward").write_text("1")
        for device in ("all", DEVICE, network.BRIDGE):
            for setting, value in (("rp_filter", "0"), ("accept_local", "1"), ("send_redirects", "0")):
                (settings / "conf" / device / setting).write_text(value)
        address = faults.address_of(self.name)
        ip("link", "set", DEVICE, "up", "txqueuelen", "10000")
        ip("route", "replace", "default", "dev", DEVICE, "table", str(TABLE))
        ip("rule", "add", "priority", "10", "iif", DEVICE, "lookup", "main")
        ip("rule", "add", "priority", "20", "to", address, "lookup", str(TABLE))
        here = pathlib.Path(f"/sys/class/net/{network.BRIDGE}/address").read_text().strip()
        for other in host.spec()["names"]:
            if other != self.name:
                ip(
                    "neigh",
                    "replace",
                    address,
                    "lladdr",
                    here,
                    "nud",
                    "permanent",
                    "dev",
                    "eth0",
                    pid=faults.running(other),
                )
        self.thread.start()
        return self

    def __exit__(self, *_):
        os.close(self.ender)
        self.thread.join()
        os.close(self.device)  # closing also removes the device and its route

    def pass_on(self):
        waiting = collections.deque()
        while True:
            left = max(0, waiting[0][0] - time.monotonic()) if waiting else None
            readable, _, _ = select.select([self.device, self.end], [], [], left)
            if self.end in readable:
                return
            if self.device in readable:
                waiting.append((time.monotonic() + self.seconds, os.read(self.device, 1 << 16)))
            while waiting and waiting[0][0] <= time.monotonic():
                os.write(self.device, waiting.popleft()[1])
