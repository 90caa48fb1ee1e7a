#!/usr/bin/python3 -B
"""`horovodrun ps` and `horovodrun top`: a running job from the user's view, and the terminal afterwards."""

import json
import signal as signals

from harness import *
from terminal import Screen

TRAINS = """
import os, signal, sys, time
import numpy
import horovod.numpy as hvd
hvd.init()
print("ready", flush=True)
while True:
    if hvd.rank() == 2: time.sleep(0.05)
    hvd.allreduce(numpy.ones(25, "f4"), name="gradient")
"""
WAITS = """
import os, time
import numpy
import horovod.numpy as hvd
hvd.init()
for _ in range(5): hvd.allreduce(numpy.ones(25, "f4"), name="gradient")
pair = hvd.add_process_set([0, 1])
for _ in range(3 if hvd.rank() < 2 else 0): hvd.allreduce(numpy.ones(25, "f4"), name="pair", process_set=pair)
print("ready", flush=True)
if hvd.rank() == 1: time.sleep(600)
hvd.allreduce(numpy.ones(25, "f4"), name="gradient")
"""


def table(text):
    return [row.split() for row in text.splitlines()]


def ended(job):
    job.signal(signals.SIGTERM)
    job.wait()
    job.leaves_nothing()


def cpu_ticks(pid):
    """Returns the processor ticks that a process and its threads have used."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@world()
def test_ps_names_the_rank_that_the_others_wait_for():
    job = Job("-np", 3, "-H", "a:2,b:1", PYTHON, "-c", WAITS)
    job.wait_for("ready", 3)

    def waits():
        rows = table(ask("ps").stdout)[2:]
        return [" ".join(row[7:]) for row in rows] == ["rank 1", "", "rank 1"] and rows

    rows = wait_until(waits, 20, lambda: ask("ps"))
    expect([row[:2] + [row[3]] for row in rows] == [[*"0a", "in_job"], [*"1a", "in_job"], [*"2b", "in_job"]], rows)
    expect(all(row[2].isdigit() and row[5].endswith("%") and row[6].endswith("M") for row in rows), rows)
    seen = json.loads(ask("ps", "--json").stdout)
    ranks = [rank for host in seen["hosts"] for rank in host["ranks"]]
    expect([rank.get("waits_for") for rank in ranks] == ["rank 1", None, "rank 1"], seen)
    expect(all(rank["pid"] > 0 and rank["memory"] > 1 << 20 and rank["cpu_seconds"] > 0 for rank in ranks), seen)
    ask("exec", "--rank", "1", "sh", "-c", f"kill -STOP {ranks[1]['pid']}")
    wait_until(lambda: table(ask("ps").stdout)[3][3] == "stopped", 20, lambda: ask("ps"))
    for words in (("-w", "--json", job.process.pid), ("--json", "-w", job.process.pid)):
        expect(json.loads(ask("ps", *words).stdout)["pid"] == job.process.pid, words)
    for words in (("-x",), ("one", "two"), ("-a", "one")):
        wrong = ask("ps", *words)
        expect(wrong.returncode == 2 and wrong.stderr.count("\n") == 1, wrong)
    ended(job)


@world()
def test_a_program_without_horovod_has_a_row_with_what_it_uses():
    job = Job("-np", 2, "-H", "a:1,b:1", "sh", "-c", "echo ready; while :; do :; done")
    job.wait_for("ready", 2)
    rows = table(ask("ps").stdout)[2:]
    expect([row[:2] + [row[3]] for row in rows] == [[*"0a", "running"], [*"1b", "running"]], rows)
    once = ask("top", "--once")
    lines = once.stdout.splitlines()
    expect(once.returncode == 0 and re.fullmatch(r"2/2 ranks \W 00:00:\d\d", lines[1]), once)
    expect(lines[2] == "2 hosts: 2 running" and "\x1b" not in once.stdout, once)
    expect(all(re.fullmatch(r"[1-9]\d?%|1\d\d%", row[7]) for row in table(once.stdout)[4:]), once)
    expect(ask("top").stdout.splitlines()[2:4] == lines[2:4], "an output that is no terminal is not that of --once")
    os.kill(job.process.pid, signals.SIGSTOP)
    stopped = ask("ps")
    row = f"horovodrun, pid {job.process.pid}: no answer; it may be stopped"
    expect(stopped.returncode == 0 and stopped.stdout.startswith(row), stopped)
    silent = ask("top", "--once")
    expect(silent.returncode == 2 and f"pid {job.process.pid} does not answer; it may be" in silent.stderr, silent)
    words = [LAUNCHER, "exec", str(job.process.pid), "echo", "goes on"]
    waits = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment())
    expect(f"pid {job.process.pid} does not answer; it may be" in waits.stderr.readline(), "exec")
    os.kill(job.process.pid, signals.SIGCONT)
    out, errors = waits.communicate(timeout=LONG)
    expect(sorted(out.splitlines()) == ["[0]<stdout>:goes on", "[1]<stdout>:goes on"] and not errors, out + errors)
    ended(job)
    none = ask("top")
    expect(none.returncode == 2 and "no horovodrun of yours" in none.stderr, none)


@world()
def test_top_follows_a_job_on_a_terminal_and_gives_it_back():
    job = Job("-np", 4, "-H", "a:2,b:2", PYTHON, "-c", TRAINS)
    job.wait_for("ready", 4)
    for size in ((80, 24), (200, 60)):
        top = Screen(LAUNCHER, "top", size=size)
        before = top.initial_attributes
        rows = top.sees(r"^4/4 ranks · \d+\.\d steps/s · \d.* kB/s( · slowest .*)? · 00:0\d:\d\d$")
        # Rank 2 sleeps 50 ms in each step; an answer may take a part of the second between two queries.
        expect(float(rows[1].split()[3]) < 30, rows)
        expect(rows[0].startswith(f"pid {job.process.pid}: {PYTHON} -c "), rows)
        expect(rows[3].split()[:4] == ["RANK", "HOST", "PID", "STATE"], rows)
        expect([row.split()[:2] for row in rows[4:8]] == [[*"0a"], [*"1a"], [*"2b"], [*"3b"]], rows)
        expect(rows[-1].startswith("q quit") and len(rows) == size[1], rows)
        expect(top.attributes() != before, "keys need Enter")
        top.type("h")
        top.sees("^q +quit; the job goes on$")
        top.resize(60, 12)
        os.kill(top.pid, signals.SIGWINCH)
        top.type("h/3\r")
        rows = top.sees("filter: 3")
        expect(rows[4].split()[:2] == ["3", "b"] and rows[5] == "" and len(rows) == 12, rows)
        top.type("q")
        expect(top.end() == 0, top.text)
        expect(top.attributes() == before, "the terminal is not as it was")
        expect(top.text.endswith("\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"), top.text[-200:])
        expect(not job.process.poll(), job.describe())
    ended(job)


@world("a")
def test_the_terminal_is_restored_at_each_end_of_top():
    job = Job("-np", 1, "-H", "a:1", "sh", "-c", "echo ready; exec sleep 600")
    job.wait_for("ready")
    for number in (signals.SIGINT, signals.SIGTERM, signals.SIGHUP, signals.SIGSEGV):
        top = Screen(LAUNCHER, "top")
        before = top.initial_attributes
        top.sees("^1/1 rank")
        os.kill(top.pid, number)
        status = top.end()
        code = 0 if number == signals.SIGINT else number
        expect(status in (code, code | 0x80), (number, status))
        expect(top.attributes() == before and "\x1b[?1049l" in top.text, f"signal {number} left the terminal changed")
    shell = Screen("/bin/bash", "--norc", "--noprofile", "-i", PS1="$ ")
    shell.type(f"{LAUNCHER} top\n")
    shell.sees("^1/1 rank")
    changed = shell.attributes()
    shell.type("\x1a")
    shell.sees("Stopped")
    expect(shell.attributes() != changed, "the shell has the keys of top")
    shell.type("fg\n")
    shell.sees("^1/1 rank")
    job.signal(signals.SIGKILL)
    job.wait()
    shell.shows(r"horovodrun: the job of horovodrun with pid \d+ has ended")
    shell.close()
    dumb = Screen(LAUNCHER, "top", TERM="dumb")
    expect(os.waitstatus_to_exitcode(dumb.end()) == 2 and "\x1b" not in dumb.text, dumb.text)


@world("a")
def test_512_ranks_are_folded_and_cost_little():
    job = Job("-np", 512, "-H", "a:512", "--independent", "sleep", "600")
    wait_until(lambda: ask("ps").stdout.count(" running ") == 512, 60, lambda: ask("ps"))
    top = Screen(LAUNCHER, "top")
    rows = top.sees("^512/512 ranks")
    expect("512 running" in rows[4] and len(rows) == 24, rows)
    top.type("f")
    top.sees("^1-19 of 512")
    top.type("\x1b[F")
    rows = top.sees("^494-512 of 512")
    expect(rows[22].split()[0] == "511", rows)
    began, before = time.monotonic(), cpu_ticks(job.process.pid)
    end = time.monotonic() + 5
    while time.monotonic() < end:
        top.read()
        time.sleep(0.1)
    used = (cpu_ticks(job.process.pid) - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - began)
    print(f"the launcher used {used * 100:.1f} % of a core")
    top.type("q")
    expect(top.end() == 0, top.text)
    ended(job)


if __name__ == "__main__":
    main()
