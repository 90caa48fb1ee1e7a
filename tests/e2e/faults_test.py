#!/usr/bin/python3 -B
"""Hosts with faults: each start succeeds despite the fault, or fails with a line that names the host, the place, the
cause and the remedy. Nothing remains."""

import contextlib
import random
import socket
import time

from harness import *
from rounds import RUN, repeat, run_in_worlds
import namespaces as ns

HOME = pathlib.Path.home()
# Each rank starts a process in a new session.
HIDING = ["sh", "-c", "echo up; setsid sleep 1000 & exec sleep 1000"]
# Seconds for the jobs with random faults, and the number of worlds that run them in parallel.
SECONDS = 40
WORLDS = 12


def inside(name, *command):
    """Runs a command in a host's namespaces, without its sshd."""
    return run_to_end([HOSTS, "exec", name, *map(str, command)], check=True)


def small_disk(name, size, *folders, flags=0):
    """Mounts a small file system at each folder that may hold an agent. A clone of the project below such a folder
    stays visible."""
    cover = (
        f"import os, sys; sys.path.insert(0, {str(HOSTS.parent)!r}); import namespaces\n"
        "os.makedirs(sys.argv[1], exist_ok=True)\n"
        f"namespaces.cover(sys.argv[1], sys.argv[2:], 0o1777, flags={flags}, options=',size={size}')"
    )
    for folder in folders or ("/tmp", HOME / ".cache", "/var/tmp", "/dev/shm"):
        inside(name, PYTHON, "-c", cover, folder, *sorted({ROOT, BUILD.resolve()}))
    inside(name, "mkdir", "-p", "-m", "700", "/tmp/horovod-0", "/dev/shm/horovod-0")  # the launcher keeps agents there


def bashrc(text):
    for name in (".bashrc", ".profile"):
        (HOME / name).write_text(text)


def runs(*flags, said=(), seconds=60):
    """Expects that a job on both hosts succeeds, prints only these messages and leaves nothing."""
    job = Job("-np", 2, "-H", "a:1,b:1", *flags, "hostname")
    job.ends_with(0, seconds)
    expect(sorted(job.out.split()) == ["[0]<stdout>:a", "[1]<stdout>:b"], job.describe())
    expect(job.said() == list(said), job.describe())
    job.leaves_nothing()


def refused(*patterns, flags=(), seconds=60):
    job = Job("-np", 2, "-H", "a:1,b:1", *flags, "touch", "/tmp/e2e-started")
    job.ends_with(2, seconds)
    one_sentence(job, "host b", *patterns)
    expect(not os.path.exists("/tmp/e2e-started"), "a rank was started")
    job.leaves_nothing()


@world("a b", "--private-tmp")
def test_a_noexec_tmp_is_gone_around():
    small_disk("b", "64m", "/tmp", flags=ns.MS_NOEXEC)
    runs()


@world("a b", "--private-tmp")
def test_a_noexec_tmp_and_home_are_gone_around():
    small_disk("b", "64m", "/tmp", HOME / ".cache", flags=ns.MS_NOEXEC)
    small_disk("b", "64m", "/var/tmp")  # the machine's own folder does not change
    runs()
    inside("b", "umount", "--lazy", "/var/tmp")
    small_disk("b", "64m", "/var/tmp", flags=ns.MS_NOEXEC)
    inside("b", "mkdir", "-p", "-m", "700", "/dev/shm/horovod-0")  # the launcher keeps agents there
    runs()


@world("a b", "--private-tmp")
def test_a_host_where_nothing_may_be_executed_is_refused():
    small_disk("b", "64m", flags=ns.MS_NOEXEC)
    refused("no directory there can keep the agent", "noexec", "HOROVOD_AGENT_DIR")


@world("a b", "--private-tmp")
def test_a_full_disk_is_refused_and_another_is_taken():
    small_disk("b", "64k")
    refused("no directory there can keep the agent", "No space left", "HOROVOD_AGENT_DIR")
    inside("b", "umount", "--lazy", "/tmp")  # unmounts all mounts below /tmp, too
    inside("b", "mkdir", "-p", "-m", "700", "/tmp/horovod-0")
    small = "host b: /dev/shm has 64K free; remove files there, or mount it larger (docker run --shm-size 8g)"
    runs(said=[small])


@world()
def test_another_architecture_is_refused():
    fake = pathlib.Path("/tmp/e2e-uname")
    fake.write_text("#!/bin/sh\necho aarch64\n")
    fake.chmod(0o755)
    inside("b", "mount", "--bind", fake, os.path.realpath("/usr/bin/uname"))
    refused("its architecture is aarch64", "x86_64")


@world()
def test_start_up_files_that_are_slow_and_talk():
    bashrc("echo 'Welcome to this cluster!'; echo 'Maintenance on Monday' >&2; [ $(hostname) = a ] || sleep 3\n")
    runs()


@world()
def test_start_up_files_that_take_longer_than_a_start_may_are_named():
    bashrc("[ $(hostname) = a ] || sleep 20\n")
    refused("send agent|start agent", "--start-timeout", flags=("--start-timeout", 8))


@world()
def test_start_up_files_that_print_without_end_are_named():
    bashrc("[ $(hostname) = a ] || while :; do echo all work and no play; done\n")
    refused("start-up files print", "all work and no play")


@world()
def test_an_sshd_that_takes_no_more_connections():
    config = host.STATE / "b" / "sshd_config"
    config.write_text(config.read_text() + "MaxStartups 1:100:1\n")
    faults.end("b")
    host.start(["b"])
    with socket.create_connection(("10.77.0.2", 22)):  # a connection that never logs in
        refused("connect", "MaxStartups")
    wait_until(
        lambda: sum(faults.said_of(pid, "comm") == "sshd\n" for pid in faults.processes("b")) == 1,
        60,
        "an sshd that serves nobody",
    )
    runs()


@world("a b", "--private-tmp")
def test_an_ordinary_user_with_a_home_of_its_own_on_each_host():
    """Without root: each host has its own home and /tmp, and the path of the home differs from root's."""
    subprocess.run(["useradd", "-M", "-d", "/run/tester", "-s", "/bin/sh", "tester"], check=True)
    subprocess.run(["usermod", "-p", "*", "tester"], check=True)
    prepare = "mkdir -p /run/tester/.ssh && chown -R tester /run/tester && chmod 700 /run/tester/.ssh"
    key = (HOME / ".ssh/id_ed25519.pub").read_text().strip()
    for name in "ab":
        inside(name, "sh", "-c", f"{prepare}; echo '{key}' > /run/tester/.ssh/authorized_keys")
    subprocess.run(
        ["sh", "-c", f"{prepare}; cp {HOME}/.ssh/* /run/tester/.ssh; chown -R tester /run/tester"], check=True
    )
    as_user = clean_environment(HOME="/run/tester", USER="tester", LOGNAME="tester")
    job = Job(
        "-u",
        "tester",
        "--",
        LAUNCHER,
        *"-np 4 -H a:2,b:2 --wdir /".split(),
        "sh",
        "-c",
        "echo $(id -un) $HOME $(hostname)",
        environment=as_user,
        program="/usr/sbin/runuser",
        cwd="/",
    )
    job.ends_with(0)
    expect(
        sorted(job.out.splitlines()) == [f"[{r}]<stdout>:tester /run/tester {'ab'[r // 2]}" for r in range(4)],
        job.describe(),
    )
    job.leaves_nothing()


def kill_launcher(job):
    job.process.kill()


def kill(pids):
    """Kills these processes and returns their description."""
    hit = [f"{faults.said_of(pid, 'comm').strip()} {pid}" for pid in pids]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return f", which hit {' and '.join(hit) or 'nobody'}"


def kill_agent(_):
    return kill(agents("b")["agent"])


def kill_guardian(_):
    return kill(agents("b")["guardian"])


def sleepers():
    return [pid for pid in faults.processes("b") if "sleep" in faults.said_of(pid, "cmdline")]


def kill_a_rank(_):
    ranks = sleepers()
    return kill([random.choice(ranks)] if ranks else [])


def hears(pid, number):
    """Returns whether a process has installed its handler for this signal."""
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)", faults.said_of(pid, "status"), re.M)
    return caught is not None and int(caught[1], 16) >> (number - 1) & 1


def end_by(job, number):
    wait_until(
        lambda: job.process.poll() is not None or hears(job.process.pid, number), 60, "a launcher that hears signals"
    )
    if job.process.poll() is None:
        job.signal(number)


def interrupt(job):
    end_by(job, signal.SIGINT)


def cut(_):
    faults.cut("b", "launcher")


def freeze(_):
    faults.freeze("b")


HARMS = [kill_launcher, kill_agent, kill_guardian, kill_a_rank, interrupt, cut, freeze]


def harmed(chance):
    """Runs one job and injects a fault at a random moment between its start and its work."""
    harm, delay = chance.choice(HARMS), chance.uniform(0, 1.2)
    job = Job("-np", 4, "-H", "a:2,b:2", "--lease", 4, "--start-timeout", 60 if harm == cut else 4, *HIDING)
    if harm == cut:  # an agent gets its lease together with the job, and waits longer for the job
        job.wait_for("up", seconds=60)
    time.sleep(delay)  # the moment is the test's parameter
    what = harm.__name__
    try:
        what += f" {job.before.age():.2f} s after the job began{harm(job) or ''}"
        if harm in (kill_agent, kill_guardian, kill_a_rank) and job.process.poll() is None:
            time.sleep(0.3)
            if not job.said():  # the fault preceded the start of the target process
                end_by(job, signal.SIGTERM)
        code = job.wait(45)  # less time than a default lease
        expect(code != 0, f"all went well\n{job.describe()}")
        expect(harm == kill_launcher or job.said(), f"no word on it\n{job.describe()}")
        if harm == freeze:
            faults.thaw("b")
        job.leaves_nothing()
    except Failure as failure:
        raise Failure(f"{what}: {failure}") from None
    finally:
        faults.heal("b", "launcher")
        faults.thaw("b")


def test_harm_at_any_moment_leaves_nothing():
    run_in_worlds("a b", WORLDS, SECONDS)


if __name__ == "__main__":
    if sys.argv[1:2] == [RUN]:
        repeat(lambda chance, _: harmed(chance))
    else:
        main()
