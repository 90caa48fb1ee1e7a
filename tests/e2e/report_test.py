#!/usr/bin/python3 -B
"""The launcher's messages about a job that fails or takes too long."""

import json

from harness import *
from terminal import Terminal

MEMORY = pathlib.Path("/sys/fs/cgroup/memory")
HUNGRY = (
    "import os, time\nif os.environ['HOROVOD_RANK'] == '1': "
    "data = bytearray(os.urandom(1)) * (400 << 20)\n"
    "time.sleep(600)"
)


def in_a_small_cgroup(*arguments):
    """Runs a job whose local ranks may use 128 MiB."""
    group = MEMORY / f"e2e-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(128 << 20))
    except OSError as error:
        raise Skip(f"no memory cgroup can be made: {error}") from error
    script = f'echo $$ > {group}/cgroup.procs && exec "$@"'
    job = Job("-c", script, "sh", LAUNCHER, *arguments, program="/bin/sh")
    return job, group


def test_the_kernels_out_of_memory_killer_is_named():
    job, group = in_a_small_cgroup("-np", 2, PYTHON, "-c", HUNGRY)
    try:
        job.ends_with(137)
        one_sentence(job, "rank 1 on host localhost was killed by the kernel's out-of-memory killer")
    finally:
        job.leaves_nothing()
        wait_until(lambda: not (group / "cgroup.procs").read_text(), 60, "an empty cgroup")
        group.rmdir()


def test_a_limit_of_processor_time_is_named():
    busy = ("-np", 1, PYTHON, "-c", "while True: pass")
    for job in (
        Job("-c", 'ulimit -t 2; exec "$@"', "sh", LAUNCHER, *busy, program="/bin/sh"),
        Job("--remote-init", "ulimit -t 2", *busy),
    ):
        job.ends_with(137)
        said = r"rank 0 on host localhost was killed by signal 9 \(SIGKILL\); it has used up the 2 s of processor time"
        one_sentence(job, said)


def test_a_kill_by_hand_is_no_lack_of_memory():
    job = Job("-np", 2, "--kill-grace", 60, "sh", "-c", "[ $HOROVOD_RANK = 0 ] || kill -9 $$; sleep 600")
    job.ends_with(137)
    one_sentence(job, r"rank 1 on host localhost was killed by signal 9 \(SIGKILL\)$")


LOST = """
import time
import horovod.numpy as hvd
hvd.init()
def somewhere_deep():
    print("ready", flush=True)
    time.sleep(600)
somewhere_deep()
"""


@world()
def test_a_job_that_takes_too_long_shows_where_its_ranks_are():
    job = Job("-np", 2, "-H", "a:1,b:1", "--timeout", 15, PYTHON, "-c", LOST)
    job.ends_with(124)
    expect(job.out.count("ready") == 2, job.describe())
    expect(job.err.count("in somewhere_deep") == 2, job.describe())
    for rank, name in enumerate("ab"):
        expect(f"where the ranks of host {name} are:\nrank {rank}\n  pid " in job.err, job.describe())
    expect("the job was ended after 15 s" in job.said()[-1], job.describe())


# The failing call is below torch's backward, which calls the package.
IN_A_COLLECTIVE = """
import torch
import horovod.torch as hvd
hvd.init()
def train_one_batch():
    hvd.allreduce(torch.ones(2, requires_grad=True), op=hvd.Max).sum().backward()
train_one_batch()
"""


def report_of(job):
    """The launcher's last message."""
    return job.err.rpartition("horovodrun: ")[2]


def test_a_failure_inside_a_collective_shows_the_user_s_own_line_first():
    folder = scratch()
    script = folder / "train.py"
    script.write_text(IN_A_COLLECTIVE)
    job = Job("-np", 2, "--output-filename", folder / "out", PYTHON, script)
    job.ends_with(1)
    shown = report_of(job).partition("its last lines on standard error:\n")[2].splitlines()
    expect(
        f'File "{script}"' in shown[0]
        and "in train_one_batch" in shown[0]
        and ".sum().backward()" in shown[1]
        and "NotImplementedError" in shown[-1],
        job.describe(),
    )
    expect("/horovod/" not in "".join(shown), job.describe())
    files = [(folder / "out" / f"rank.{rank}" / "stderr").read_text() for rank in range(2)]
    expect(all("/horovod/torch/" in each for each in files), f"the files have the whole traceback: {files}")
    job.leaves_nothing()


CAUSE = """
import os, signal, sys
import numpy
import horovod.numpy as hvd
hvd.init()
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # each rank prints its traceback
hvd.allreduce(numpy.ones(1))
if hvd.rank() == 1:
    print("a warning", file=sys.stderr, flush=True)
    if sys.argv[1] == "raise": raise ValueError("sample 7 is empty")
    os.kill(os.getpid(), 9)
hvd.allreduce(numpy.ones(1))
"""


def test_the_tracebacks_that_another_rank_has_caused_are_one_line():
    folder = scratch()
    job = Job("-np", 8, "--no-omp-default", "--output-filename", folder, PYTHON, "-c", CAUSE, "raise")
    job.ends_with(1)
    expect("ranks 0, 2-7 stopped because of rank 1 (--verbose prints all tracebacks)" in job.said(), job.describe())
    shown = [line for line in job.err.splitlines() if re.match(r"\[\d\]<stderr>:", line)]
    expect(all(line.startswith("[1]") for line in shown) and len(job.err.splitlines()) < 16, job.describe())
    for rank in range(8):
        lines = (folder / f"rank.{rank}" / "stderr").read_text()
        expect(("_fail" in lines and "HorovodInternalError" in lines) == (rank != 1), f"{rank}: {lines}")
    job = Job("-np", 3, "--verbose", PYTHON, "-c", CAUSE, "raise")
    job.ends_with(1)
    expect(job.err.count("HorovodInternalError: ") == 2 and "stopped because" not in job.err, job.describe())
    # Rank 1 prints no reason.
    job = Job("-np", 4, "--kill-grace", 30, PYTHON, "-c", CAUSE, "kill")
    job.ends_with(137)
    expect(
        job.err.count("HorovodInternalError: ") == 1
        and "[1]<stderr>:a warning" in job.err
        and "_ops.py" not in job.err
        and "stopped because of rank 1 " in job.err,
        job.describe(),
    )


def test_a_python_without_the_package_gets_that_of_the_launcher():
    code = "import horovod, os; print('imports', horovod.__file__, 'by', os.environ['PYTHONPATH'])"
    for more, path in (("", f"{BUILD}/python"), ("/tmp/more", f"/tmp/more:{BUILD}/python")):
        job = Job("-np", 2, "python3", "-c", code, environment=clean_environment(PYTHONPATH=more))
        job.ends_with(0)
        expect(job.out.count(f"imports {BUILD}/python/horovod/__init__.py by {path}\n") == 2, job.describe())


def test_a_package_that_the_ranks_python_lacks_is_named_with_the_flag_that_gives_it():
    command = ("sh", "-c", "python3 -c 'import horovod'")
    environment = clean_environment(PYTHONPATH="")
    for flags in (("-np", 2), ("-np", 1), ("-np", 2, "--log-format", "json")):
        job = Job(*flags, *command, environment=environment)
        job.ends_with(1)
        expect(
            "; its Python has no module 'horovod': --ship gives the ranks that of this horovodrun" in job.err,
            job.describe(),
        )
    job = Job("-np", 2, "--ship", *command, environment=environment)
    job.ends_with(0)


@world()
def test_a_module_that_is_missing_is_reported_with_the_interpreter_s_path():
    script = scratch() / "train"
    script.write_text("#!/usr/bin/env python3\nimport no_such_torch\n")
    script.chmod(0o755)
    for command in (("python3", script), (script,)):
        job = Job("-np", 2, "-H", "a:1,b:1", *command)
        job.ends_with(1)
        one_sentence(job, "; /usr/bin/python3 has no module 'no_such_torch': install it there")


READS_A_LINE = """
import os, time
if os.environ["HOROVOD_RANK"] == "1": input("name? ")
time.sleep(600)
"""


def test_an_error_about_closed_standard_input_names_the_flag():
    job = Job("-np", 2, PYTHON, "-c", READS_A_LINE)
    job.ends_with(1)
    one_sentence(job, "; standard input goes to rank 0 only: --stdin all gives it to every rank;")
    job = Job("-np", 2, "--stdin", "all", PYTHON, "-c", READS_A_LINE)
    job.ends_with(1)
    expect("EOFError" in job.err and "--stdin" not in job.err, job.describe())


def states_of(job):
    """Returns the states of the job's hosts and ranks from `horovodrun ps --json`."""
    lines = ask("ps", "--json", job.process.pid).stdout.splitlines()
    expect(len(lines) == 1, lines)
    seen = json.loads(lines[0])
    expect(seen["pid"] == job.process.pid and seen["command"][0] == PYTHON, seen)
    return [(host["host"], host["state"], [rank["state"] for rank in host["ranks"]]) for host in seen["hosts"]]


@world()
def test_a_running_job_is_looked_into_from_another_terminal():
    none = ask("ps")
    expect(none.returncode != 0 and "no horovodrun of yours" in none.stderr, none)
    job = Job("-np", 3, "-H", "a:2,b:1", PYTHON, "-c", LOST)
    job.wait_for("ready", 3)
    seen = ask("ps")
    expect(seen.returncode == 0 and f"horovodrun, pid {job.process.pid}, 3 ranks: " in seen.stdout, seen)
    rows = [row.split() for row in seen.stdout.splitlines()[1:]]
    expect(rows[0] == "RANK HOST PID STATE ELAPSED CPU MEMORY WAITS FOR".split(), seen)
    expect([row[:2] for row in rows[1:]] == [["0", "a"], ["1", "a"], ["2", "b"]], seen)
    expect(all(row[2].isdigit() and re.fullmatch("00:00:[0-5][0-9]", row[4]) for row in rows[1:]), seen)
    expected = [("a", "running", ["in_job", "in_job"]), ("b", "running", ["in_job"])]
    wait_until(lambda: states_of(job) == expected, 30, lambda: f"the states of hosts and ranks: {ask('ps', '--json')}")
    for words in (("stack",), ("stack", str(job.process.pid))):
        seen = ask(*words)
        expect(seen.returncode == 0 and seen.stdout.count("in somewhere_deep") == 3, seen)
    expect("several" not in ask("stack").stderr, "there is one job")
    beside = ask("exec", "--rank", "1-2", "sh", "-c", "echo on $(hostname) as $HOROVOD_RANK; exit $HOROVOD_RANK")
    lines = sorted(beside.stdout.splitlines())
    expect(beside.returncode == 1 and lines == ["[1]<stdout>:on a as 1", "[2]<stdout>:on b as 2"], beside)
    lines = sorted(ask("exec", "hostname").stdout.splitlines())
    expect(lines == ["[0]<stdout>:a", "[2]<stdout>:b"], lines)
    expect(ask("exec", "--rank=2", "--", "hostname").stdout == "b\n", "alone")
    for words, said in (
        (("exec",), "COMMAND"),
        (("exec", "--rank", "9", "true"), "--rank"),
        (("exec", "no-such-program"), "no-such-program"),
    ):
        wrong = ask(*words)
        expect(wrong.returncode in (2, 127) and said in wrong.stderr, wrong)
    wrong = ask("stack", "1")
    expect(wrong.returncode == 2 and "pid 1" in wrong.stderr, wrong)
    job.signal(signal.SIGKILL)
    job.wait()
    expect(ask("ps").returncode != 0, "a killed launcher is still listed")
    job.leaves_nothing()


def runs(words):
    """Returns whether a process with these words runs on any host."""
    return run_to_end(["pgrep", "-f", words]).returncode == 0


@world()
def test_a_command_beside_ranks_speaks_at_once_and_goes_with_its_caller():
    job = Job("-np", 2, "-H", "a:1,b:1", "sh", "-c", "echo ready; sleep 600")
    job.wait_for("ready", 2)
    for number, way in enumerate((signal.SIGINT, signal.SIGKILL)):
        mark = f"sleep {7100 + number}.{os.getpid()}"
        caller = subprocess.Popen(  # pylint: disable=consider-using-with
            [LAUNCHER, "exec", "sh", "-c", f"echo first; {mark}; true"],
            env=clean_environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        lines = sorted(caller.stdout.readline() for _ in range(2))
        expect(lines == ["[0]<stdout>:first\n", "[1]<stdout>:first\n"], lines)
        expect(caller.poll() is None, "it waits for its command")
        caller.send_signal(way)
        expect(caller.wait(LONG) == -way, "a caller ends by its signal")
        wait_until(lambda mark=mark: not runs(mark), 60, "its command ends")
    much = ask("exec", "--rank", "1", "sh", "-c", "head -c 3000000 /dev/zero; echo end >&2; exit 7")
    expect(
        len(much.stdout) == 3000000 and much.stderr == "end\n" and much.returncode == 7,
        (len(much.stdout), much.stderr, much.returncode),
    )
    expect(job.process.poll() is None, "the job goes on")
    job.signal(signal.SIGTERM)
    job.wait()
    job.leaves_nothing()


@world()
def test_a_program_that_is_no_python_shows_what_the_kernel_knows():
    job = Job("-np", 1, "-H", "b:1", "--timeout", 8, "sh", "-c", "sleep 470; true")
    job.ends_with(124)
    expect(re.search(r"  pid \d+, sleeping.*: sleep 470\n", job.err), job.describe())


@world()
def test_a_terminal_shows_which_host_is_slow_and_forgets_it():
    faults.freeze("b")
    terminal = Terminal(LAUNCHER, "-np", "2", "-H", "a:1,b:1", "--start-timeout", "120", "true", TERM="xterm")
    terminal.shows("hosts ready 1/2; b: connect ")
    rows = ask("ps").stdout.splitlines()
    expect([row.split()[3] for row in rows[2:4]] == ["planned"] * 2, rows)
    expect(re.fullmatch(r"hosts ready 1/2; b: connect \d+ s", rows[4]), rows)
    states = [(host["state"], host.get("stage")) for host in json.loads(ask("ps", "--json").stdout)["hosts"]]
    expect(states == [("held", None), ("connecting", "connect")], states)
    early = ask("exec", "true")
    expect(early.returncode == 1 and early.stderr.count("the rank has not started\n") == 2, early)
    faults.thaw("b")
    expect(terminal.end() == 0 and terminal.text.endswith("\r\x1b[J"), terminal.text)


if __name__ == "__main__":
    main()
