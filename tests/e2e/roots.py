"""Root folders with only Debian's packages, to install this project's packages or run another Debian's programs."""

import hashlib
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

from harness import BUILD, LONG, ROOT, Skip, expect

WEEK = 7 * 24 * 3600


def call(*command, seconds, **more):
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=max(seconds, LONG),
        **more,
    )
    return done.returncode, done.stdout + done.stderr


def mirrors(suite="bookworm"):
    """Returns this machine's mirror of Debian, and the proxy for it."""
    _, words = call(
        "apt-get",
        "indextargets",
        "--format",
        "deb $(REPO_URI) $(RELEASE) $(COMPONENT)",
        "Identifier: Packages",
        "Origin: Debian",
        seconds=60,
    )
    lines = sorted(
        {
            line.replace("bookworm", suite)
            for line in words.splitlines()
            if re.fullmatch(r"deb \S+ bookworm\S* main" if suite != "sid" else r"deb \S+ bookworm main", line)
        }
    )
    _, words = call("apt-config", "dump", seconds=60)
    proxies = re.findall(r"(?m)^Acquire::https?::Proxy.*;$", words)
    if suite == "sid":
        proxies.append('Acquire::Check-Valid-Until "false";')  # a mirror may be older than a week
    return [*(f"--aptopt={line}" for line in proxies)], lines or [f"deb http://deb.debian.org/debian {suite} main"]


def download(*command):
    """Runs a command that takes packages from a mirror; skips the test if that needs more than 15 minutes."""
    try:
        # Runs in a new namespace: at the time limit, all its processes and mounts end with it.
        return call("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", *command, seconds=900)
    except subprocess.TimeoutExpired:
        raise Skip(f"{pathlib.Path(command[0]).name} took more than 900 s with {' '.join(mirrors()[1])}") from None


def make_root(path, packages, is_kept=False, suite="bookworm", hooks=()):
    """Makes a root with only Debian's packages. All network access happens here, and skips the test if it fails.

    A cached root is made once for the same packages, and again after a week, since Debian updates packages. `hooks`:
    shell commands before the packages are installed; the root is their $1.
    """
    options, lines = mirrors(suite)
    included = ",".join(sorted(packages))
    kept = BUILD / "roots" / f"{hashlib.sha256(' '.join([included, *lines]).encode()).hexdigest()[:16]}.tar"
    if is_kept and kept.exists() and time.time() - kept.stat().st_mtime < WEEK:
        unpack_root(kept, path)
        return
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="root-") as made:
        target = pathlib.Path(made) / "root.tar" if is_kept else path
        code, words = download(
            "mmdebstrap",
            "--quiet",
            "--variant=minbase",
            "--mode=root",
            f"--format={'tar' if is_kept else 'directory'}",
            *options,
            *(f"--essential-hook={command}" for command in hooks),
            f"--include={included}",
            suite,
            target,
            *lines,
        )
        if code != 0:
            raise Skip(f"mmdebstrap: {' '.join((words.strip() or 'failed').splitlines()[-3:])}")
        if is_kept:
            kept.parent.mkdir(exist_ok=True)
            target.rename(kept)
            unpack_root(kept, path)


def unpack_root(archive, path):
    path.mkdir()
    # The devices of a root are those of this machine.
    code, words = call("tar", "--numeric-owner", "--exclude=./dev/*", "-xpf", archive, "-C", path, seconds=300)
    expect(code == 0, words)


# Commands in its mount namespace reach the root as /, as nsenter needs it, without chroot.
ENTER = """set -e
root=$1; shift
mount --bind "$root" "$root"
for path in "$@"; do
  [ "$path" != -- ] || break
  mkdir -p "$root$path"
  mount --rbind "$path" "$root$path"
  shift
done
shift
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t tmpfs tmpfs "$root/tmp"
mkdir -p "$root/outside"
cd "$root"
pivot_root . outside
cd /
umount -l /outside
exec "$@"
"""


def run_on_another_debian(root, *command, seconds, mounts=None):
    """Runs a command with this root as /. The folders `mounts`, by default the build and its tests, keep their paths.
    Returns the exit code and the output."""
    return call(
        *"unshare --mount --pid --fork --kill-child bash".split(),
        "-c",
        ENTER,
        "enter",
        root,
        *({ROOT, BUILD.resolve()} if mounts is None else mounts),
        "--",
        *command,
        seconds=seconds,
        cwd="/",
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8", "HVD_BUILD": str(BUILD)},
    )


def bring_libraries(root, *programs):
    """Copies the libraries of these programs that this root lacks, or has only in another version."""
    _, words = call("ldd", *programs, seconds=30)
    for path in sorted(set(re.findall(r"=> (/\S+)", words))):
        name = pathlib.Path(path).name
        if not any((root / "usr/lib").rglob(name)):
            shutil.copy(path, root / "usr/local/lib" / name)
    expect(call("chroot", root, "ldconfig", seconds=60)[0] == 0, "ldconfig fails")
