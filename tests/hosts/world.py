"""The world of the hosts and the launcher: one set of namespaces that ends with its command.

The machine outside stays unchanged: the bridge, the names, the keys and the files in home, /etc, /run and /tmp exist in
these namespaces only. Several worlds can run at the same time, and none leaves anything behind, however it ends.
"""

import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess
import sys

import host
import namespaces as ns
import network

# The exit code if hosts cannot be made.
NO_WORLD = 125
ROOT = str(pathlib.Path(__file__).resolve().parents[2])


def run(settings, command):
    """Makes the world, runs the command in it as the launcher's machine, returns its exit code."""
    ns.unshare(ns.NEWNS | ns.NEWUTS | ns.NEWIPC | ns.NEWPID | ns.NEWNET)
    child = os.fork()
    if child == 0:
        ns.die_with_parent()
        try:
            code = be_first_process(settings, command)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"hosts: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
            code = NO_WORLD
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    def end(number, _frame):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os._exit(128 + number)

    # A terminal sends signals to the whole process group; the command handles them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGHUP, end)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def be_first_process(settings, command):
    user = pwd.getpwnam(settings["user"])
    here = os.getcwd()
    keep = sorted({ROOT, here, *settings["keep"]} - {"/"})
    settings["keep"] = keep = [path for path in keep if path not in ("/tmp", user.pw_dir)]
    if ns.is_below(user.pw_dir, ROOT):
        raise OSError(f"the home of {user.pw_name} lies in the source tree {ROOT}: move the tree")
    ns.make_private()
    ns.mount("proc", "/proc", "proc")
    ns.renew_sys()
    subprocess.run(["hostname", network.LAUNCHER], check=True)
    ns.cover("/run", keep)
    ns.cover("/tmp", keep, mode=0o1777)
    ns.cover("/dev/shm", mode=0o1777)
    ns.cover(user.pw_dir, keep, owner=(user.pw_uid, user.pw_gid))
    os.chdir(here if os.path.isdir(here) else "/")
    host.STATE.mkdir()
    (host.STATE / "spec.json").write_text(json.dumps(settings))
    replace_etc(settings["names"])
    make_keys(settings["names"], user)
    network.make_bridge()
    host.start(settings["names"])
    try:
        child = subprocess.Popen(command, env=environment(user), preexec_fn=lambda: become(user))
    except OSError as error:
        print(f"hosts: cannot run {command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    return wait_for(child)


def replace_etc(names):
    """Makes a private /etc: names resolve by a file, without a network; no account is locked."""
    copy = host.STATE / "etc"
    subprocess.run(["cp", "-a", "/etc", copy], check=True)
    ns.bind(copy, "/etc")

    def write(path, text):
        path = copy / path
        if path.is_symlink():
            path.unlink()
        path.write_text(text)

    write("hosts", host.hosts_file(names, network.LAUNCHER))
    write("resolv.conf", "")
    switch = copy / "nsswitch.conf"
    lines = switch.read_text() if switch.exists() else "hosts: files\n"
    write("nsswitch.conf", re.sub(r"(?m)^hosts:.*$", "hosts: files", lines))
    write("shadow", re.sub(r"(?m)^([^:]+):[^:]*:", r"\1:*:", (copy / "shadow").read_text()))
    shutil.rmtree(copy / "ssh/ssh_config.d", ignore_errors=True)


def make_keys(names, user):
    """Puts keys where ssh searches: one user key opens all hosts, and known_hosts has the hosts' keys."""

    def make_key(path, comment):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path], check=True)

    ssh = pathlib.Path(user.pw_dir) / ".ssh"
    ssh.mkdir(0o700)
    make_key(ssh / "id_ed25519", "hosts")
    shutil.copy(ssh / "id_ed25519.pub", ssh / "authorized_keys")
    known = []
    for index, name in enumerate(names):
        folder = host.STATE / name
        folder.mkdir()
        make_key(folder / "host_key", name)
        kind, key = (folder / "host_key.pub").read_text().split()[:2]
        known.append(f"{name},{network.address(index)} {kind} {key}\n")
        (folder / "sshd_config").write_text(host.SSHD_CONFIG.format(folder=folder))
    (ssh / "known_hosts").write_text("".join(known))
    for path in [ssh, *ssh.iterdir()]:
        os.chown(path, user.pw_uid, user.pw_gid)


def environment(user):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SSH_", "SUDO_", "XDG_"))}
    return {
        **kept,
        "HOME": user.pw_dir,
        "USER": user.pw_name,
        "LOGNAME": user.pw_name,
        "HVD_HOSTS": " ".join(host.spec()["names"]),
    }


def become(user):
    if user.pw_uid != os.getuid():
        os.initgroups(user.pw_name, user.pw_gid)
        os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
        os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)


def wait_for(child):
    """Waits for one child and reaps every orphan meanwhile, as a first process must."""
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    while True:
        pid, status = os.wait()
        if pid == child.pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
