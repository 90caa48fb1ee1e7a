#!/usr/bin/python3 -B
"""Hosts without horovod get the launcher's package; no incomplete, changed or foreign copy is ever used."""

from harness import *

from elastic_jobs import RANK
import network
import slurm

TRAIN = """import numpy, horovod.numpy as hvd
hvd.init()
print("sum", hvd.allreduce(numpy.ones(4), op=hvd.Sum)[0], hvd.__file__, flush=True)
"""
LACKS = "have no horovod for this program: their ranks use this horovodrun's horovod "
CACHE = "/root/.cache/horovod"


def project(code=TRAIN):
    """Makes a script that only the launcher's machine has."""
    folder = scratch()
    (folder / "train.py").write_text(code)
    return folder


def alone(**more):
    """Returns the environment of a user without settings for this build."""
    environment = clean_environment()
    del environment["PYTHONPATH"]
    return {**environment, **more}


def start(folder, *flags, hosts="a:1,b:1", command=("python3", "train.py"), environment=None):
    slots = sum(map(int, re.findall(r":(\d+)", hosts)))
    return Job(
        "-np", slots, "-H", hosts, "--stage", ".", *flags, *command, cwd=folder, environment=environment or alone()
    )


def on(name, script):
    done = run_to_end([HOSTS, "exec", name, "sh", "-c", script], cwd="/")
    expect(done.returncode == 0, f"{name}: {script}: {done.stdout}{done.stderr}")
    return done.stdout.strip()


def copies(name, folder=CACHE):
    return on(name, f"ls {folder} | grep -v horovod-agent || true").split()


def trains(job, size, copy=CACHE):
    job.ends_with(0)
    found = re.findall(r"sum (\S+) (\S+)/python/horovod/numpy/__init__.py", job.out)
    expect(
        len(found) == size
        and all(float(total) == size and place.startswith(f"{copy}/horovod-package-") for total, place in found),
        job.describe(),
    )


@world("a b", "--bare")
def test_hosts_without_horovod_train_from_the_launcher_alone():
    folder = project()
    job = start(folder)
    trains(job, 2)
    one_sentence(
        job,
        f"^hosts a, b {LACKS}[0-9.]+ \\(/\\S+ here\\), sent there now \\([0-9.]+ MB\\); --no-ship refuses such hosts$",
    )
    job.leaves_nothing()
    expect(len(copies("a")) == 1 and copies("a") == copies("b"), f"{copies('a')} {copies('b')}")
    # The next job sends nothing, whichever method reaches the hosts.
    for flags in ((), ("--launch-agent", "ssh -q {host}")):
        job = start(folder, *flags)
        trains(job, 2)
        one_sentence(job, f"^hosts a, b {LACKS}[0-9.]+ \\(/\\S+ here\\), which an earlier job has sent there; ")
    # On this machine the package of the launcher itself is used.
    job = start(folder, hosts="localhost:2")
    job.ends_with(0)
    expect(job.out.count(f"{BUILD}/python/horovod/numpy/__init__.py") == 2 and not job.said(), job.describe())
    # A program that does not name horovod gets no package.
    job = start(project("print('plain')"), "--independent")
    job.ends_with(0)
    expect(job.out.count("plain") == 2 and not job.said(), job.describe())


@world("a b", "--bare")
def test_the_user_decides_which_hosts_get_the_package():
    folder = project()
    job = start(folder, "--no-ship", hosts="a:1")
    job.ends_with(2)
    one_sentence(
        job,
        "^host a: prepare: /usr/bin/python3 has no horovod, and --no-ship keeps this horovodrun from "
        "giving it its own: leave out --no-ship, or install horovod there$",
    )
    job = start(folder, hosts="a:1", command=("python3", "-I", "train.py"))
    job.ends_with(2)
    one_sentence(job, "^host a: prepare: /usr/bin/python3 has no horovod, and with -I it ignores PYTHONPATH, ")
    script = folder / "isolated.py"
    script.write_text(f"#!/usr/bin/python3 -E\n{TRAIN}")
    script.chmod(0o755)
    job = start(folder, hosts="a:1", command=("./isolated.py",))
    job.ends_with(2)
    one_sentence(job, "^host a: prepare: /usr/bin/python3 has no horovod, and with -E it ignores PYTHONPATH, ")
    # A program for which the package is optional runs without it.
    (folder / "plain.py").write_text("try:\n    import horovod\nexcept ImportError:\n    print('without')\n")
    job = start(folder, "--no-ship", "--independent", hosts="a:1", command=("python3", "plain.py"))
    job.ends_with(0)
    expect("without" in job.out, job.describe())
    expect(not copies("a"), f"{copies('a')}")
    # Without the package, groups would silently use gloo.
    (folder / "torch-1.12.0.dist-info").mkdir()
    (folder / "torch-1.12.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 1.12.0\n")
    job = start(folder, "--torch-backend", "horovod", "--independent", hosts="a:1", command=("python3", "plain.py"))
    job.ends_with(2)
    one_sentence(
        job,
        "^host a: prepare: torch 1.12.0 does not load the backend horovod by itself: import "
        "horovod.torch.distributed in the program, or install torch 2.5 or newer$",
    )
    shutil.rmtree(folder / "torch-1.12.0.dist-info")
    # Host b has another build, which stays in use, unless --ship replaces it on all hosts.
    site = "/tmp/site/horovod"
    on("b", f"mkdir -p {site}; echo 'x = 1' >{site}/__init__.py; echo '__version__ = \"0.80.0\"' >{site}/_version.py")
    (folder / "train.py").write_text("import horovod\nprint(horovod.__file__, flush=True)\n")
    environment = alone(PYTHONPATH="/tmp/site")
    job = start(folder, "--independent", environment=environment)
    job.ends_with(0)
    expect(f"{site}/__init__.py" in job.out and "horovod-package-" in job.out, job.describe())
    expect(
        any(
            re.match(r"host a has no horovod for this program: its ranks use .*, sent there now", line)
            for line in job.said()
        )
        and any("has horovod 0.80.0 for this program" in line for line in job.said()),
        job.describe(),
    )
    for command in (("python3", "train.py"), ("sh", "-c", "python3 train.py")):
        job = start(folder, "--independent", "--ship", environment=environment, command=command)
        job.ends_with(0)
        expect(job.out.count("horovod-package-") == 2, job.describe())
        expect(
            [line for line in job.said() if "horovod" in line][0].startswith("the ranks on hosts a, b use "),
            job.describe(),
        )


@world("a", "--bare")
def test_a_copy_that_was_changed_is_replaced_and_a_foreign_one_is_not_used():
    folder = project()
    trains(start(folder, hosts="a:1"), 1)
    [copy] = copies("a")
    for damage in (
        f"echo 'raise SystemExit(9)' >{CACHE}/{copy}/python/horovod/__init__.py",
        f"rm {CACHE}/{copy}/lib/libhorovod.so.1",
        f"echo 'raise SystemExit(9)' >{CACHE}/{copy}/python/numpy.py",
        f"chmod 777 {CACHE}/{copy}/python/horovod",
        f"chown -R 12345 {CACHE}/{copy}",
    ):
        on("a", damage)
        job = start(folder, hosts="a:1")
        trains(job, 1)
        one_sentence(job, "sent there now")
        expect(copies("a") == [copy], f"{damage}: {copies('a')}")
    # The user's chosen folder belongs to another user: the next folder is used.
    on("a", f"mkdir /tmp/other; cp -a {CACHE}/{copy} /tmp/other; chown -R 12345 /tmp/other; rm -r {CACHE}/{copy}")
    job = start(folder, hosts="a:1", environment=alone(HOROVOD_AGENT_DIR="/tmp/other"))
    trains(job, 1)
    one_sentence(job, "sent there now")
    # A running job holds a lock that other jobs respect when they clean up.
    (folder / "train.py").write_text(TRAIN + "import time; time.sleep(600)\n")
    job = start(folder, hosts="a:1")
    job.wait_for("sum")
    locked = on("a", f"flock --exclusive --nonblock {CACHE}/{copy} true && echo free || echo in use")
    expect(locked == "in use", locked)
    job.signal(signal.SIGTERM)
    job.wait()
    expect(on("a", f"flock --exclusive --nonblock {CACHE}/{copy} echo free") == "free", "the lock stays")


@world("a b", "--bare")
def test_a_copy_that_does_not_arrive_is_one_sentence_and_leaves_nothing():
    folder = project()
    # Space for the agent only.
    for place in ("/root/.cache", "/tmp", "/var/tmp", "/dev/shm"):
        on("a", f"mkdir -p {place}; mount -t tmpfs -o size=12m,mode=1777 none {place}")
    job = start(folder, hosts="a:1")
    job.ends_with(2)
    one_sentence(
        job,
        r"^host a: prepare: no directory there can keep this horovodrun's package \(.*has \d+ MiB free "
        r"of the \d+ MiB that it needs.*\): name one by HOROVOD_AGENT_DIR, or install horovod there$",
    )
    # The network breaks while the launcher packs: gzip waits here until the link is cut.
    programs = scratch()
    (programs / "gzip").write_text(f"#!/bin/sh\n: >{programs}/packs; exec sleep 600\n")
    (programs / "gzip").chmod(0o755)
    search = f"{programs}:{clean_environment()['PATH']}"
    job = start(folder, "--start-timeout", 6, hosts="b:1", environment=alone(PATH=search))
    wait_until((programs / "packs").exists, 30, job.describe)
    faults.cut("b", "launcher")
    job.ends_with(2)
    one_sentence(job, "^host b: prepare: not done after 6 s: .*the network is slow; --start-timeout allows more$")
    faults.heal("b", "launcher")
    wait_until(lambda: not agents("b")["agent"], PROMPT, "the agent ends")
    expect(not copies("b"), f"{copies('b')}")
    trains(start(folder, hosts="b:1"), 1)


@world("a b", "--bare")
def test_hosts_that_join_an_elastic_job_get_the_package_too():
    token = scratch() / "token"
    token.write_text("f" * 64)
    token.chmod(0o600)
    programs = [BUILD / "bin" / "horovod-agent", BUILD / "bin" / "horovod-agent-tls", RANK, token]
    for name in ("a", "b"):
        for path in programs:
            with open(path, "rb") as file:
                subprocess.run(
                    [HOSTS, "exec", name, "sh", "-c", f"umask 077; cat >/tmp/{path.name}; chmod 700 /tmp/{path.name}"],
                    stdin=file,
                    check=True,
                    cwd="/",
                )
    job = Job(
        "--listen",
        f"{network.LAUNCHER_ADDRESS}:0",
        "--token-file",
        token,
        *"-np 1 --min-np 1 --wdir /tmp python3".split(),
        f"/tmp/{RANK.name}",
        100,
        environment=alone(),
    )
    wait_until(lambda: re.search(r" at tcp:[0-9.]+:(\d+) for ", job.err), 30, job.describe)
    port = re.search(r" at tcp:[0-9.]+:(\d+) for ", job.err)[1]
    agents = []
    for generation, name in enumerate(("a", "b")):
        agents.append(
            subprocess.Popen(
                [
                    HOSTS,
                    "exec",
                    name,
                    "/tmp/horovod-agent",
                    "--join",
                    f"{network.LAUNCHER_ADDRESS}:{port}",
                    "--token-file",
                    "/tmp/token",
                    "--name",
                    name,
                    "--slots",
                    "1",
                ],
                cwd="/",
            )
        )
        job.wait_for(rf"\d+ begins \d+ \d+/{generation + 1} ", generation + 1)
    job.ends_with(0)
    for name in ("a", "b"):
        expect(
            any(
                re.match(f"host {name} has no horovod for this program: its ranks use .*, sent there now", line)
                for line in job.said()
            ),
            job.describe(),
        )
    for agent in agents:
        agent.wait(LONG)


@world("a b", "--bare", "--no-decoys")
def test_steps_of_slurm_get_the_package_too():
    try:
        cluster = slurm.Cluster(["a", "b"])
    except slurm.Missing as missing:
        raise Skip(str(missing)) from None
    with cluster:
        job = Job(
            "-N2",
            "--ntasks-per-node=1",
            LAUNCHER,
            *"--stage . python3 train.py".split(),
            cwd=project(),
            program="/usr/bin/salloc",
            environment=alone(**cluster.environment),
        )
        trains(job, 2)
        expect(any(re.match(f"hosts a, b {LACKS}", line) for line in job.said()), job.describe())


if __name__ == "__main__":
    main()
