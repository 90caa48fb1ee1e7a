"""One host: its namespaces, its first process, its sshd.

start() runs in the launcher's namespaces and returns when all hosts' sshds listen; main() is the host itself. The
kernel kills all processes of a host when its first process ends.
"""

import json
import os
import pathlib
import pwd
import signal
import subprocess
import sys

import namespaces as ns
import network

STATE = pathlib.Path("/run/hosts")
ROOT = str(pathlib.Path(__file__).resolve().parents[2])

SSHD_CONFIG = """\
Port 22
HostKey {folder}/host_key
PidFile {folder}/sshd.pid
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PrintMotd no
AcceptEnv LANG LC_*
Subsystem sftp internal-sftp
"""


def spec():
    return json.loads((STATE / "spec.json").read_text())


def pid_of(name):
    """Returns the PID of the host's first process in the launcher's namespace, or None if the host is down."""
    try:
        pid, started = (STATE / name / "pid").read_text().split()
    except OSError:
        return None
    return int(pid) if ns.start_time(pid) == int(started) else None


def start(names):
    """Starts these hosts, all at once."""
    order = spec()["names"]
    children = []
    for name in names:
        with open(STATE / name / "log", "ab") as log:
            children.append(
                subprocess.Popen(
                    [sys.executable, "-B", __file__, name],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                    text=True,
                )
            )
    pids = [child.stdout.readline().strip() for child in children]
    for name, pid in zip(names, pids):
        if not pid:
            raise OSError(f"host {name}: {last_words(name)}")
        (STATE / name / "pid").write_text(f"{pid} {ns.start_time(pid)}\n")
    network.plug_in([(order.index(name), pid) for name, pid in zip(names, pids)], spec()["decoys"])
    for child in children:
        child.stdin.write("go\n")
        child.stdin.close()
    for name, child in zip(names, children):
        if child.stdout.readline().strip() != "up":
            raise OSError(f"host {name}: {last_words(name)}")
        child.stdout.close()
        child.wait()


def last_words(name):
    lines = (STATE / name / "log").read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it did not start"


def main(name):
    ns.unshare(ns.NEWNS | ns.NEWUTS | ns.NEWIPC | ns.NEWPID | ns.NEWNET)
    if (pid := os.fork()) != 0:
        print(pid, flush=True)
        os._exit(0)  # the first process is now a child of the launcher's first process
    sys.stdin.readline()  # the network is ready
    settings = spec()
    folder = STATE / name
    subprocess.run(["hostname", name], check=True)
    ns.make_private()
    ns.mount("proc", "/proc", "proc")
    ns.renew_sys()
    ns.cover("/dev/shm", mode=0o1777)
    if settings["private_tmp"]:
        ns.cover("/tmp", settings["keep"], mode=0o1777)
    if settings["bare"]:
        user = pwd.getpwnam(settings["user"])
        ns.cover(user.pw_dir, [f"{user.pw_dir}/.ssh"], owner=(user.pw_uid, user.pw_gid))
        ns.cover(ROOT)
        ns.cover("/var/tmp", mode=0o1777)
    own_hosts = folder / "etc-hosts"
    own_hosts.write_text(hosts_file(settings["names"], name))
    ns.bind(own_hosts, "/etc/hosts")
    # Each host has its own /run, as on a real machine; the files from which hosts are made stay visible.
    ns.cover("/run", [str(STATE)])
    os.mkdir("/run/sshd", 0o755)
    sshd = subprocess.Popen(
        ["/usr/sbin/sshd", "-D", "-e", "-f", folder / "sshd_config"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    wait_for_sshd(sshd)
    print("up", flush=True)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        try:
            os.wait()  # the first process reaps the host's orphans
        except ChildProcessError:
            signal.pause()


def wait_for_sshd(sshd):
    """sshd does not report when it listens, so read the kernel's socket table."""
    import time

    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        with open("/proc/net/tcp", encoding="ascii") as table:
            if any(row.split()[1:4:2] == ["00000000:0016", "0A"] for row in table):
                return
        if sshd.poll() is not None:
            sys.exit(1)  # sshd has printed the reason
        time.sleep(0.01)
    sys.exit("sshd does not listen")


def hosts_file(names, own):
    """Writes /etc/hosts like Debian's installer: the host's own name is a loopback address."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost", f"127.0.1.1 {own}"]
    everyone = [(network.LAUNCHER, network.LAUNCHER_ADDRESS)]
    everyone += [(name, network.address(index)) for index, name in enumerate(names)]
    lines += [f"{address} {name}" for name, address in everyone if name != own]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(str(error))
