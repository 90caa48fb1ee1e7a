#!/usr/bin/python3 -B
"""`horovodrun stack` under Yama, whose scopes restrict which process may read another: in a virtual machine with
Debian's kernel, since the kernel of a container or of a small virtual machine may lack Yama."""

import tempfile

from harness import *
from roots import call

PY_SPY = BUILD / "venv-py-spy/bin/py-spy"
STDLIB = pathlib.Path("/usr/lib/python3.11")
BEGIN, END = "== begin ==", "== end =="

# The first process of the virtual machine. It runs a job for each scope, as an unprivileged user.
INIT = r"""#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp /run /home/me
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mkdir -p /dev/shm /dev/pts
/bin/busybox mount -t tmpfs tmp /dev/shm
/bin/busybox mount -t tmpfs tmp /tmp
/bin/busybox mount -t devpts pts /dev/pts
/bin/busybox chmod 1777 /tmp /dev/shm
/bin/busybox ifconfig lo 127.0.0.1 up
/bin/busybox chown 1000:1000 /home/me
/usr/bin/python3 /proof.py
/bin/busybox poweroff -f
"""

PROOF = r"""
import os, subprocess, time
MINE = {"PATH": "/opt/bin:/usr/bin:/bin", "HOME": "/home/me", "USER": "me", "LANG": "C.UTF-8"}
def become():
    os.setgid(1000); os.setuid(1000)
def run(*words, **more):
    return subprocess.Popen(words, env=MINE, cwd="/home/me", preexec_fn=become, stdin=subprocess.DEVNULL, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
with open("/home/me/stuck.py", "w") as file:
    file.write("import time\ndef read_shard():\n    print('ready', flush=True)\n    time.sleep(600)\nread_shard()\n")
def stacks(*command):
    job = run("horovodrun", "-np", "1", *command)
    text = job.stdout.readline()
    while text and "ready" not in text:
        text = job.stdout.readline()
    answer = run("horovodrun", "stack").communicate(timeout=LONG)[0]
    job.terminate()
    return answer + job.communicate(timeout=LONG)[0]
print("== begin ==", flush=True)
for scope in "0123":
    with open("/proc/sys/kernel/yama/ptrace_scope", "w") as file:
        file.write(scope)
    print("scope", scope, stacks("python3", "stuck.py"), flush=True)
    if scope == "1":
        print("scope shell", stacks("sh", "-c", "python3 stuck.py; true"), flush=True)
print("== end ==", flush=True)
"""


def kernel(folder):
    """Extracts Debian's kernel for virtual machines from its package."""
    if not (shutil.which("qemu-system-x86_64") and shutil.which("busybox")):
        raise Skip("qemu-system-x86_64 or busybox is missing: packaging/packages-*.txt name the packages")
    words = run_to_end(["apt-cache", "depends", "linux-image-cloud-amd64"], check=True).stdout
    package = re.search(r"Depends: (linux-image-\S+)", words).group(1)
    subprocess.run(["apt-get", "download", "-qq", package], cwd=folder, check=True, stderr=subprocess.DEVNULL)
    subprocess.run(["dpkg", "-x", *folder.glob("*.deb"), folder / "kernel"], check=True)
    return next((folder / "kernel/boot").glob("vmlinuz-*"))


def copy_program(path, root, target=None):
    """Copies a program and the libraries that it loads."""
    target = root / str(target or path).lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, target)
    libraries = run_to_end(["ldd", path]).stdout
    for library in re.findall(r"(?:=> )?(/\S+) \(0x", libraries):
        (root / library.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, root / library.lstrip("/"))


def initial_files(folder):
    """Returns the file system of the virtual machine in the format that the kernel unpacks."""
    root = folder / "root"
    copy_program("/bin/busybox", root)
    for name in ("sh", "uname", "cat", "mkdir", "chmod", "id", "mv", "rm", "env", "ls", "head"):
        (root / "bin" / name).symlink_to("busybox")
    copy_program("/usr/bin/python3.11", root, "/usr/bin/python3")
    shutil.copytree(
        STDLIB, root / "usr/lib/python3.11", ignore=shutil.ignore_patterns("test", "__pycache__", "config-*")
    )
    for program in (BUILD / "bin").iterdir():
        copy_program(program, root, f"/opt/bin/{program.name}")
    copy_program(PY_SPY, root, "/opt/bin/py-spy")
    (root / "etc").mkdir()
    (root / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\nme:x:1000:1000::/home/me:/bin/sh\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
    (root / "init").write_text(INIT)
    (root / "init").chmod(0o755)
    (root / "proof.py").write_text(PROOF)
    archive = folder / "initial.cpio"
    with open(archive, "wb") as output:
        names = run_to_end(["find", "."], cwd=root, check=True, text=False).stdout
        subprocess.run(["busybox", "cpio", "-o", "-H", "newc"], input=names, stdout=output, cwd=root, check=True)
    return archive


def test_the_stacks_of_ranks_under_each_scope_of_yama():
    if not PY_SPY.exists():
        raise Skip(f"{PY_SPY} is missing: pip install py-spy")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = pathlib.Path(name)
        code, words = call(
            *("qemu-system-x86_64", "-m", "1024", "-smp", "2", "-nographic", "-no-reboot", "-nic", "none"),
            *("-kernel", kernel(folder), "-initrd", initial_files(folder), "-append", "console=ttyS0 quiet panic=-1"),
            seconds=900,
        )
    words = words.replace("\r", "")
    expect(code == 0 and BEGIN in words and END in words, words)
    found = {part.split()[0]: part for part in words.partition(BEGIN)[2].split("\nscope ")[1:]}
    for scope in "01":
        expect('File "/home/me/stuck.py", line 4 in read_shard' in found[scope], words)
    expect("only the first process of a rank admits the agent" in found["shell"], words)
    for scope in "23":
        expect(f"kernel.yama.ptrace_scope is {scope} on this host" in found[scope], words)
    print("\n".join(found.values()))


if __name__ == "__main__":
    main()
