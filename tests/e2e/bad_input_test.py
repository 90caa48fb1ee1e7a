#!/usr/bin/python3 -B
"""Bad input gets an error of one sentence and exit code 2, and no process starts on any host."""

from harness import *

STARTED = pathlib.Path("/tmp/e2e-started")


def refused(arguments, *patterns, seconds=10, environment=None, sentences=1, lines=None):
    """The command ends with exit code 2 and one sentence that matches all patterns."""
    STARTED.unlink(missing_ok=True)
    job = Job(*arguments, environment=environment)
    job.ends_with(2, seconds)
    expect(job.out == "", f"nothing on stdout was expected\n{job.describe()}")
    expect(len(job.said()) == sentences, f"{sentences} sentences expected\n{job.describe()}")
    expect(job.err.count("\n") == (lines or sentences), f"lines of no sentence\n{job.describe()}")
    for pattern in patterns:
        expect(re.search(pattern, job.err), f"{pattern!r} is not said\n{job.describe()}")
    expect(not STARTED.exists(), f"a rank was started\n{job.describe()}")
    job.leaves_nothing()


TOUCH = ["touch", STARTED]


def test_bad_lists_of_hosts():
    for hosts, *patterns in (
        ("a:x", "'a:x'", "number of slots"),
        ("a:2,b:x", "'b:x'"),
        ("a:0", "a:0"),
        (" , ,", "empty"),
        ("a:-1", "a:-1"),
        ("a :2", ":2"),
        ("no-such-host.invalid:1,localhost:1", r"no-such-host\.invalid"),
    ):
        refused(["-np", 2, "-H", hosts, *TOUCH], *patterns)
    refused(
        ["-H", "x1.invalid,localhost,x2.invalid", *TOUCH], r": host x1\.invalid:.*\n.*: host x2\.invalid:", sentences=2
    )
    refused(["-hostfile", "/nowhere/hosts", *TOUCH], "/nowhere/hosts", "No such file or directory")
    with tempfile.NamedTemporaryFile("w", suffix=".hosts") as file:
        file.write("# ours\na slots=2\n\nb slots=two\n")
        file.flush()
        refused(["-np", 2, "-hostfile", file.name, *TOUCH], f"{re.escape(file.name)}, line 4", "two")
    refused(["-np", 1, "-i", "/no/such/key", *TOUCH], "/no/such/key")
    refused(
        ["-np", 9, "-H", "localhost:4,b:4", *TOUCH],
        r"9 ranks are more than the 8 slots there are; .*\n *host +slots\n *localhost +4\n *b +4\n$",
        lines=4,
    )
    discovery = ["-np", 2, "--elastic-timeout", 1, "--host-discovery-script"]
    refused([*discovery, "exit 3", *TOUCH], "host discovery script 'exit 3': ended with exit code 3")
    refused([*discovery, "echo a", *TOUCH], r"named 1 of 2 slots within 1 s \(--elastic-timeout\)")


def test_a_line_of_an_env_file_is_not_shown():
    with tempfile.NamedTemporaryFile("w", suffix=".env") as file:
        file.write("A=1\nAWS SECRET=hunter2\n")
        file.flush()
        refused(["-np", 1, "--env-file", file.name, *TOUCH], "line 2", "NAME=VALUE", "(?s)^(?!.*hunter2)")


def test_a_fifo_that_nobody_writes_is_named():
    with tempfile.TemporaryDirectory() as folder:
        fifo = pathlib.Path(folder, "hosts")
        os.mkfifo(fifo)
        job = Job("-np", 1, "--hostfile", fifo, "echo", "started")
        wait_until(lambda: f"waiting for hostfile from {fifo}" in job.err, 60, job.describe)
        fifo.write_text("localhost\n")
        job.ends_with(0)
        expect(job.out == "[0]<stdout>:started\n", job.describe())


def test_a_file_of_packages_that_is_missing():
    job = Job("-np", 1, "--stage-env", "/nowhere/uv.lock", "true")
    job.ends_with(2)
    one_sentence(job, "^--stage-env: cannot read /nowhere/uv.lock: No such file or directory")


def test_more_than_one_message_carries():
    refused(["-np", 70000, *TOUCH], "-np 70000", "65536", "-H")
    refused(["-np", 60000, *TOUCH], r"orders for host localhost take \d+ MiB, more than the 16 MiB", seconds=60)


def test_unknown_flags_and_commands():
    elastic = ["-np", 2, "--min-np", 1]
    joined = [*elastic, "--listen", ":0", "--token-file", "x"]
    of_hosts = "lets hosts join an elastic job by themselves, and {} names them"
    for words, *patterns in (
        (["-np", 2, "--no-such-flag"], "--no-such-flag"),
        (["-np", 2, "--hots", "a:2"], "--hosts"),
        (["-np", 2, "--verbsoe"], r"did you mean --verbose\?"),
        (["--nnodes", "1:2"], "--nnodes: '1:2' is the range of an elastic job of torchrun; write --min-np"),
        (["-np", 2, "--max-np", 4], "--max-np is for elastic jobs; add "),
        (["-np", 2, "--min-np", 4], "--min-np 4 is greater than -np 2"),
        ([*elastic[:2], "--host-discovery-script", "echo a", "-H", "a:2"], "-script and -H both name the hosts"),
        ([*joined, "-H", "a:2"], of_hosts.format("-H")),
        ([*joined, "--host-discovery-script", "echo a"], of_hosts.format("--host-discovery-script")),
        ([*joined, "--restart-ranks"], "--restart-ranks cannot be combined with --token-file"),
    ):
        refused([*words, *TOUCH], *patterns)
    refused(["--check-build", "/nowhere/python3"], "--check-build: program '/nowhere/python3'")
    refused(["sotp"], r"no command 'sotp'; did you mean horovodrun stop\?")
    refused(["kill", "job"], r"no command 'kill'; did you mean horovodrun stop\?", "-np N before it runs the program")


def test_bad_values():
    for words, *patterns in (
        (["-np", "two"], "-np", "two"),
        (["-np", 0], "-np 0 is out of range"),
        (["--min-np", 1], "-np N"),
        (["-np", 1, "--end-signal", "KILL"], r"--end-signal KILL is not one of: TERM, INT\n$"),
        (["-np", 2, "--min-np", 1, "--blacklist-cooldown-range", 9, 2], "'9 2' is out of range"),
        (["-np", 1, "--output-filename", "/proc/no"], "/proc/no"),
    ):
        refused([*words, *TOUCH], *patterns)
    for name in ("a b", "a\x1b[31m", "4711", "-x", "b:7", "x" * 65):
        refused(["-np", 2, f"--name={name}", *TOUCH], "--name: '", "letters, digits and")
    refused(["-np", 2, *TOUCH], "HOROVOD_LEASE", "soon", environment=clean_environment(HOROVOD_LEASE="soon"))


NUMBERS = [
    ("HOROVOD_FUSION_THRESHOLD", "-1", "0 and 1099511627776", "134217728"),
    ("HOROVOD_FUSION_THRESHOLD", "1e18", "0 and 1099511627776", "134217728"),
    ("HOROVOD_CACHE_CAPACITY", "-5", "0 and 1048576", "1024"),
    ("HOROVOD_CYCLE_TIME", "nan", "0 and 1000000", "1"),
    ("HOROVOD_ALLREDUCE_RING_FROM", "-2", "-1 and 1099511627776", "0"),
    ("HOROVOD_STALL_CHECK_TIME_SECONDS", "inf", "0 and 100000000", "60"),
]


def test_numbers_out_of_their_range_in_the_launcher():
    for name, value, limits, default in NUMBERS:
        words = [name, value, f"it lies between {limits}", f"unset it for the default {default}"]
        refused(["-np", 2, *TOUCH], *words, environment=clean_environment(**{name: value}))
        refused(["-np", 2, "-x", f"{name}={value}", *TOUCH], *words)
    refused(["-np", 2, "--cycle-time-ms", "nan", *TOUCH], "--cycle-time-ms nan", "between 0 and 1000000")
    config = scratch() / "config.yaml"
    config.write_text("params:\n  cache_capacity: -5\n")
    refused(["-np", 2, "--config-file", config, *TOUCH], "-5", "between 0 and 1048576")


def test_numbers_out_of_their_range_without_a_launcher():
    program = "import horovod.numpy as hvd\nhvd.init()\n"
    for name, value, limits, default in NUMBERS:
        done = run_to_end([PYTHON, "-c", program], env=clean_environment(**{name: value}))
        last = done.stderr.strip().splitlines()[-1]
        expect(done.returncode == 1 and "Disagreement" not in last, done)
        expect(
            re.search(
                f"HorovodArgumentError: {name}.*{value}.*it lies between {limits}.*unset it for the default {default}$",
                last,
            ),
            done,
        )


def test_programs_that_cannot_start():
    script = scratch() / "train.py"
    script.write_bytes(f"#!{PYTHON}\r\nprint(1)\r\n".encode())
    script.chmod(0o755)
    (no_program := script.with_name("no_program")).touch()
    accelerate = ["env", "HF_HOME=/nonexistent", "accelerate", "launch", "--num_processes=2", "t.py"]
    for words, *patterns in (
        ([], "the command is missing"),
        (["no-such-program"], "no-such-program", "localhost"),
        (["./no/such/program"], "no/such/program"),
        ([no_program], str(no_program)),
        (["OMP_NUM_THREADS=1", *TOUCH], "write -x OMP_NUM_THREADS=1 before the command"),
        ([f"{PYTHON} train.py"], "remove the quotes", f"'{PYTHON}' is the program"),
        ([script], "carriage return", rf"sed -i 's/\\r\$//' {script}"),
        (accelerate, "leave accelerate out: horovodrun -np 4 env HF_HOME=/nonexistent python3 t.py; "),
    ):
        refused(["-np", 2, *words], *patterns)


def test_the_command_that_joins_a_host_names_no_pipe_of_this_shell():
    command = [LAUNCHER, "-np", "1", "--listen", "127.0.0.1:0", "--start-timeout", "1"]
    ended = run_to_end(
        ["/bin/bash", "-c", '"$@" --token-file <(printf ab%.0s {1..32}) /bin/true', "-", *command],
        env=clean_environment(),
    )
    expect(ended.returncode == 2 and " --token-file FILE; or allow" in ended.stderr, ended)


@world()
def test_a_program_that_is_missing_on_a_host():
    only_a = pathlib.Path("/run/only")
    only_a.mkdir()
    script = "#!/bin/sh\ntouch /tmp/e2e-started\n"
    on_a = pathlib.Path(f"/proc/{host.pid_of('a')}/root/run/only")
    for folder in (only_a, on_a):
        folder.mkdir(exist_ok=True)
        (folder / "program").write_text(script)
        (folder / "program").chmod(0o755)
    refused(["-np", 2, "-H", "a:1,b:1", "/run/only/program"], "host b", "/run/only/program")


@world()
def test_python_is_missing_where_python3_exists():
    refused(
        ["-np", 2, "-H", "a:1,b:1", "python", "train.py"],
        "host [ab]",
        "python3",
        environment=clean_environment(PATH=folder_with_python3_only()),
        sentences=2,
    )


def folder_with_python3_only():
    folder = pathlib.Path("/tmp/e2e-python3")
    folder.mkdir()
    for program in ("python3", "sh", "mkdir", "cat", "chmod", "mv", "uname"):
        for origin in ("/usr/bin", "/bin"):
            if os.path.exists(f"{origin}/{program}"):
                (folder / program).symlink_to(f"{origin}/{program}")
                break
    return str(folder)


@world()
def test_a_working_directory_that_a_host_lacks():
    here = pathlib.Path("/run/only-here")
    here.mkdir()
    job = Job("-np", 2, "-H", "a:1,localhost:1", *TOUCH, cwd=here)
    job.ends_with(2)
    one_sentence(job, "host a", "'/run/only-here' does not exist on this host", r"--stage \.$")
    expect(not STARTED.exists(), "a rank was started")
    Job("-np", 2, "-H", "a:1,localhost:1", "--stage", ".", *TOUCH, cwd=here).ends_with(0)


@world()
def test_a_name_that_does_not_resolve():
    refused(["-np", 2, "-H", "a:1,nosuchhost:1", *TOUCH], "nosuchhost", "resolve")


@world()
def test_a_refused_key():
    ssh = pathlib.Path.home() / ".ssh"
    for name in ("id_ed25519", "id_ed25519.pub"):
        (ssh / name).unlink()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", ssh / "id_ed25519"], check=True)
    refused(["-np", 1, "-H", "b:1", *TOUCH], "host b", "authentication|refused", "id_ed25519")


@world()
def test_a_changed_host_key():
    known = pathlib.Path.home() / ".ssh/known_hosts"
    lines = dict(line.split(" ", 1) for line in known.read_text().splitlines())
    (name_a, key_a), (name_b, _) = sorted(lines.items())
    known.write_text(f"{name_a} {key_a}\n{name_b} {key_a}\n")
    refused(["-np", 2, "-H", "a:1,b:1", *TOUCH], "host b", "key", "changed|not the one|differs")


@world()
def test_an_unknown_host_key_where_the_user_wants_none():
    ssh = pathlib.Path.home() / ".ssh"
    known = ssh / "known_hosts"
    known.write_text(known.read_text().splitlines()[0] + "\n")
    (ssh / "config").write_text("Host *\n  StrictHostKeyChecking yes\n")
    refused(["-np", 2, "-H", "a:1,b:1", *TOUCH], "host b", "key", "StrictHostKeyChecking")


@world()
def test_a_closed_port():
    faults.end("b")
    host.start(["b"])
    refused(["-np", 2, "-H", "a:1,b:1", "-p", 23, *TOUCH], "host [ab]", "23", sentences=2)


@world()
def test_a_host_that_is_silent():
    faults.cut("b", "launcher")
    refused(["-np", 2, "-H", "a:1,b:1", "--start-timeout", 3, *TOUCH], "host b", "connect", "firewall", seconds=6)


@world()
def test_a_host_that_is_frozen():
    faults.freeze("b")
    refused(["-np", 2, "-H", "a:1,b:1", "--start-timeout", 3, *TOUCH], "host b", seconds=6)


if __name__ == "__main__":
    main()
