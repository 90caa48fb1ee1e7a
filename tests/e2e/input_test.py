#!/usr/bin/python3 -B
"""The launcher's standard input reaches rank 0, all ranks, or no rank."""

import hashlib
import signal as signals

from harness import *
from terminal import Terminal

COUNT = "import hashlib, os, sys; data = sys.stdin.buffer.read(); print(len(data), hashlib.sha256(data).hexdigest())"


def read_by(data, *flags, hosts="a:1,b:1"):
    """Returns size and digest of the input that each rank read."""
    done = run_to_end(
        [LAUNCHER, "-np", "2", "-H", hosts, *flags, PYTHON, "-c", COUNT],
        input=data,
        env=clean_environment(),
        cwd=ROOT,
        text=False,
    )
    expect(done.returncode == 0, done)
    return dict(re.fullmatch(r"\[(\d)\]<stdout>:(.*)", line).groups() for line in done.stdout.decode().splitlines())


def said_of(data):
    return f"{len(data)} {hashlib.sha256(data).hexdigest()}"


@world()
def test_rank_0_reads_it_and_others_read_nothing():
    data = os.urandom(20 << 20)
    expect(read_by(data) == {"0": said_of(data), "1": said_of(b"")}, "not what was written")


@world()
def test_a_local_rank_reads_it():
    data = b"one\ntwo"
    expect(read_by(data, hosts="localhost:1,b:1") == {"0": said_of(data), "1": said_of(b"")}, "not what was written")


@world()
def test_all_ranks_read_it():
    data = os.urandom(3 << 20)
    expect(read_by(data, "--stdin", "all") == {"0": said_of(data), "1": said_of(data)}, "not what was written")


@world()
def test_nobody_reads_it():
    expect(read_by(b"x\n", "--stdin", "none") == {"0": said_of(b""), "1": said_of(b"")}, "somebody read it")


@world()
def test_a_file_is_read_and_the_lines_that_a_loop_reads_are_left_alone():
    path = pathlib.Path("/tmp/e2e-list")
    path.write_text("first\nsecond\n")
    loop = (
        f"while read -r line; do {LAUNCHER} --stdin none -np 1 -H b:1 echo $line; done < {path};"
        f" {LAUNCHER} -np 1 -H b:1 cat < {path}"
    )
    done = run_to_end(["/bin/sh", "-c", loop], env=clean_environment(), cwd=ROOT)
    expect(
        [line.partition(":")[2] for line in done.stdout.splitlines()] == ["first", "second", "first", "second"], done
    )


@world()
def test_a_rank_that_reads_nothing_holds_up_nobody():
    job = run_to_end(
        [LAUNCHER, "-np", "2", "-H", "a:1,b:1", "sleep", "1"],
        input=bytes(50 << 20),
        env=clean_environment(),
        cwd=ROOT,
        text=False,
    )
    expect(job.returncode == 0, job)


@world()
def test_an_open_input_ends_with_the_job():
    read_end, write_end = os.pipe()
    process = subprocess.Popen(
        [LAUNCHER, "-np", "1", "-H", "b:1", "true"], stdin=read_end, env=clean_environment(), cwd=ROOT
    )
    expect(process.wait(LONG) == 0, "it failed")
    os.close(write_end)


@world()
def test_lines_typed_at_a_terminal_and_its_end():
    terminal = Terminal(LAUNCHER, "-np", "1", "-H", "b:1", "sh", "-c", "read a; echo got $a; cat >/dev/null; echo over")
    terminal.type("hello\n")
    terminal.shows("got hello")
    terminal.type("\x04")
    terminal.shows("over")
    expect(terminal.end() == 0, terminal.text)


ASKS = """
import os, sys, time
rank, go = os.environ["HOROVOD_RANK"], sys.argv[1]
def wait_for(name):
    while not os.path.exists(go + name): time.sleep(0.02)
if rank == "0":
    name = input("name? ")
    print("hello", name, flush=True)
    sys.stdout.write("half")
    sys.stdout.flush()
    wait_for("2")
    print(" and half")
else:
    wait_for("1")
    print("other", flush=True)
    wait_for("2")
"""


@world()
def test_a_question_is_seen_before_its_answer():
    folder = scratch()
    terminal = Terminal(
        LAUNCHER, "-np", "2", "-H", "a:1,b:1", "--output-filename", folder / "out", PYTHON, "-c", ASKS, folder / "go"
    )
    terminal.shows(r"\[0\]<stdout>:name\? $")
    (folder / "go1").touch()
    terminal.shows(r"\[0\]<stdout>:name\? \r\n\[1\]<stdout>:other\r\n$")
    terminal.type("Bob\n")
    terminal.shows(r"\n\[0\]<stdout>:hello Bob\r\n\[0\]<stdout>:half$")
    (folder / "go2").touch()
    terminal.shows(r"\[0\]<stdout>:half and half\r\n$")
    expect(terminal.end() == 0, terminal.text)
    said = (folder / "out/rank.0/stdout").read_text()
    expect(said == "[0]<stdout>:name? hello Bob\n[0]<stdout>:half and half\n", said)


@world()
def test_a_pipe_gets_whole_lines_alone():
    code = (
        "import os, sys, time\nrank = os.environ['HOROVOD_RANK']\n"
        "print('half', end='', flush=True)\ntime.sleep(1 + int(rank))\nprint(' and half')"
    )
    job = Job("-np", 2, "-H", "a:1,b:1", PYTHON, "-c", code)
    job.ends_with(0)
    expect(sorted(job.out.splitlines()) == [f"[{rank}]<stdout>:half and half" for rank in range(2)], job.describe())


@world()
def test_ranks_hear_of_a_hangup():
    code = (
        "import signal, time\nsignal.signal(signal.SIGTERM, lambda *_: None)\n"
        "signal.signal(signal.SIGHUP, lambda *_: print('HUP', flush=True))\n"
        "print('ready', flush=True)\nwhile True: time.sleep(0.02)"
    )
    job = Job("-np", 2, "-H", "a:1,b:1", PYTHON, "-c", code)
    job.wait_for("ready", 2)
    job.signal(signals.SIGHUP)
    job.ends_with(129)
    expect(job.out.count("HUP") == 2, job.describe())


if __name__ == "__main__":
    main()
