#!/usr/bin/python3 -B
"""The status line below the output of a job on a terminal, the progress bars of ranks above it, and colors."""

import shlex
import signal as signals

from harness import *
from terminal import Screen

TRAINS = """
import numpy, os, time
import horovod.numpy as hvd
hvd.init()
began = 0
for step in range(STEPS):
    if step % 40 == 0 and hvd.rank() == 0: print("step", step, flush=True)
    began = began or time.monotonic()
    time.sleep(0.02)
    hvd.allreduce(numpy.ones(25, "f4"), name="gradient")
if hvd.rank() == 0: open(os.environ["RATE"], "w").write(str(STEPS / (time.monotonic() - began)))
"""
BARS = """
import os, sys, time
rank = int(os.environ["HOROVOD_RANK"])
for percent in range(0, 101, 10):
    sys.stderr.write(f"\\r{percent}% of {rank}")
    sys.stderr.flush()
    if percent == 50 and rank == 1: print("between", flush=True)
    time.sleep(0.3)
sys.stderr.write("\\n")
"""
ENDS_OF_BARS = """
import os, sys, time
def out(text, until=None):
    sys.stderr.write(text)
    sys.stderr.flush()
    time.sleep(0.3)
    while until and not os.path.exists(os.path.join(sys.argv[1], until)): time.sleep(0.02)
out("10%")
out("\\r20%")
out("\\r30%\\r")
out("\\n")
out("\\r40%")
out("\\r   \\r")
out("50%\\r", "fifty")
out("\\x1b[?2004hname? ")
print("hello", sys.stdin.readline().strip(), flush=True)
out("", "answered")
out("\\n60%\\r", "sixty")
out("\\r\\x1b[K")
"""
COUNTS = """
import sys, time
for i in range(300):
    print(f"\\r{i} of 300", end="", flush=True, file=sys.stderr)
    time.sleep(0.1)
"""
LINE = r"^2/2 ranks · .*00:00:\d\d$"


def status_lines(rows):
    return [row for row in rows if re.search(r"^\d/\d ranks? · |^ranks started|^hosts ready", row)]


@world()
def test_one_line_follows_the_job_below_its_output():
    for size in ((80, 24), (200, 60)):
        rate = scratch() / "rate"
        words = (LAUNCHER, "-np", 2, "-H", "a:1,b:1", PYTHON, "-c", TRAINS.replace("STEPS", "200"))
        job = Screen(*words, size=size, RATE=rate)
        rows = job.sees(r"^2/2 ranks · \d+\.\d steps/s · \d.* k?B/s · 00:\d\d:\d\d$")
        expect(len(status_lines(rows)) == 1 and rows[-1] == status_lines(rows)[0], rows)
        expect(rows[0] == "[0]<stdout>:step 0", rows)
        expect(job.end() == 0, job.text)
        expect(job.past() == [f"[0]<stdout>:step {step}" for step in range(0, 200, 40)], job.past())
        shown = [float(each) for each in re.findall(r"ranks · ([\d.]+) steps/s", job.text)]
        mean = float(rate.read_text())
        expect(any(0.7 * mean < each < 1.4 * mean for each in shown), f"{shown}, but {mean} steps/s")
        seconds = max(int(each) for each in re.findall(r"00:00:(\d\d)", job.text))
        drawn = len(re.findall(r"ranks · ", job.text))
        expect(2 <= drawn <= 15 + seconds, f"the line was drawn {drawn} times in {seconds} s")


@world()
def test_a_program_without_horovod_and_no_terminal_and_flags():
    go = scratch() / "go"
    job = Screen(LAUNCHER, "-np", 2, "-H", "a:1,b:1", "sh", "-c", f"echo up; until [ -e {go} ]; do sleep 0.05; done")
    job.sees(LINE)
    go.touch()
    expect(job.end() == 0 and sorted(job.past()) == ["[0]<stdout>:up", "[1]<stdout>:up"], job.past())
    words = ("-np", 2, "-H", "a:1,b:1", "sh", "-c", "echo up; sleep 2.5")
    for command in (
        (LAUNCHER, "--no-progress", *words),
        ("/bin/sh", "-c", f"{LAUNCHER} -np 2 -H a:1,b:1 sh -c 'echo up; sleep 2.5' | cat"),
    ):
        plain = Screen(*command)
        expect(plain.end() == 0 and "ranks" not in plain.text and "\x1b" not in plain.text, plain.text)
    dumb = Screen(LAUNCHER, *words, TERM="dumb")
    expect(dumb.end() == 0 and "ranks" not in dumb.text, dumb.text)
    colored = Screen(LAUNCHER, "--color", "always", *words)
    expect(colored.end() == 0 and "\x1b[36m[0]<stdout>:\x1b[0mup" in colored.text, colored.text)


@world("a")
def test_a_question_has_the_last_line_and_ctrl_z_gives_the_terminal_back():
    asks = "import time; time.sleep(1.5); print('hello', input('name? ')); time.sleep(600)"
    shell = Screen("/bin/bash", "--norc", "--noprofile", "-i", PS1="$ ")
    shell.type(f'{LAUNCHER} -np 1 -H a:1 {PYTHON} -uc "{asks}"\n')
    shell.sees(r"^(1/1 rank · |ranks started)")
    rows = shell.sees(r"^\[0\]<stdout>:name\?$")
    time.sleep(2.5)
    shell.read()
    expect(shell.rows() == rows and not status_lines(rows), shell.rows())
    shell.type("you\n")
    rows = shell.sees(r"^1/1 rank · ")
    expect(rows[-3:-1] == ["[0]<stdout>:name? you", "[0]<stdout>:hello you"], rows)
    shell.type("\x1a")
    rows = shell.sees("Stopped")
    expect(not status_lines(rows), rows)
    shell.type("bg\n")
    time.sleep(2.5)
    shell.read()
    expect(not status_lines(shell.rows()), shell.rows())
    shell.type("fg\n")
    shell.sees(r"^1/1 rank · ")
    shell.type("\x03")
    rows = shell.sees(r"^\$ $|^\$$")
    shell.type("echo over\n")
    rows = shell.sees("^over")
    expect(not status_lines(rows), rows)
    shell.close()


@world("a")
def test_a_job_in_the_background_stops_at_a_terminal_that_it_may_not_write_to():
    shell = Screen("/bin/bash", "--norc", "--noprofile", "-i", PS1="$ ")
    shell.type("stty tostop\n")
    shell.type(f"{LAUNCHER} -np 1 -H a:1 sh -c 'for i in 1 2 3; do echo line $i; done' &\n")

    shell.shows(r"\[1\] \d+\r")
    stat = pathlib.Path("/proc", re.search(r"\[1\] (\d+)", shell.text)[1], "stat")
    # Types nothing meanwhile: the shell's own output makes a write of the launcher fail before it raises the signal.
    wait_until(lambda: ") T " in stat.read_text(), 30, stat.read_text)
    shell.read()
    expect("<stdout>:line 1" not in shell.text, shell.text)
    shell.type("fg\n")
    shell.sees(r"line 1\n.*line 2\n.*line 3\n\$ ?$")
    shell.close()


@world()
def test_bars_of_ranks_become_lines_above_it_and_stay_once():
    job = Screen(LAUNCHER, "-np", 6, "-H", "a:3,b:3", PYTHON, "-c", BARS)
    rows = job.sees(r"^and 2 more\n.*rank.*00:00:\d\d$")
    bars = [row for row in rows if "% of" in row]
    expect(
        [re.sub(r"\d+%", "N%", row) for row in bars] == [f"[{rank}]<stderr>:N% of {rank}" for rank in range(4)], rows
    )
    rows = job.sees("between")
    expect(rows[0] == "[1]<stdout>:between", rows)
    expect(job.end() == 0, job.text)
    expect(
        sorted(job.past()) == sorted(["[1]<stdout>:between"] + [f"[{r}]<stderr>:100% of {r}" for r in range(6)]),
        job.past(),
    )


@world("a")
def test_bars_pass_while_the_launcher_is_in_the_background():
    program = scratch() / "counts.py"
    program.write_text(COUNTS)
    shell = Screen("/bin/bash", "--norc", "--noprofile", "-i", PS1="$ ")
    shell.type(f"{LAUNCHER} -np 1 -H a:1 {PYTHON} {program} &\n")
    shell.shows(r"<stderr>:\d+ of 300\r")
    shell.type("fg\n")
    shell.sees(r"of 300\n1/1 rank · ")
    shell.type("\x1a")
    shell.sees("Stopped")
    shell.type("bg\n")
    seen = len(shell.text)

    def passes():
        shell.read()
        return re.search(r"of 300\r.*of 300\r", shell.text[seen:], re.S)

    wait_until(passes, 20, lambda: shell.text)
    shell.type("fg\n")
    shell.sees(r"of 300\n1/1 rank · ")
    shell.type("\x03")
    shell.sees(r"^\$ $|^\$$")
    shell.close()


@world("a")
def test_each_end_of_a_bar_of_the_rank_that_may_ask():
    folder = scratch()
    job = Screen(LAUNCHER, "-np", 1, "-H", "a:1", PYTHON, "-c", ENDS_OF_BARS, folder)
    job.sees(r"50%\n1/1 rank · ")
    (folder / "fifty").touch()
    rows = job.sees(r"name\?$")
    kept = [f"[0]<stderr>:{text}" for text in ("30%", "50%", "name?")]
    expect(rows == kept, rows)
    job.type("you\n")
    kept = [*kept[:2], kept[2] + " you", "[0]<stdout>:hello you"]
    rows = job.sees(r"hello you\n1/1 rank · ")
    expect(rows[:-1] == kept, rows)
    (folder / "answered").touch()
    job.sees(r"60%\n1/1 rank · ")
    (folder / "sixty").touch()
    expect(job.end() == 0 and job.past() == kept, job.past())


@world("a")
def test_colors_end_where_the_rank_ends_them():
    for program, line in (
        ("printf '\\033[31mbad\\n'; sleep 1.2; printf '\\033[0m'", "bad"),
        ("printf '\\033[31m50%%\\r'; sleep 1.2; printf '\\033[0m'", "50%"),
        ("printf '\\033[31m50%%\\r'; sleep 1.2; printf '\\033[0m\\r'", "50%"),
    ):
        job = Screen(LAUNCHER, "-np", 1, "-H", "a:1", "sh", "-c", program)
        expect(job.end() == 0 and job.past() == [f"[0]<stdout>:{line}"], job.past())
        expect(job.screen.cursor.attrs.fg == "default", f"the terminal stays {job.screen.cursor.attrs.fg}: {program}")


@world("a")
def test_only_a_terminal_shows_the_name_before_an_error_in_red():
    state_folder()  # create the folder before Screen forks and makes another
    folder = scratch() / "out"
    fails = ("--no-progress", "--name", "fails", "-np", 1, "-H", "a:1", "sh", "-c", "echo up; echo bad >&2; exit 3")
    for words, code in (
        (("-np", 2, "-H", "a:1", "true"), 2),
        (fails, 3),
        (("--output-filename", folder, *fails), 3),
    ):
        words = [str(word) for word in (LAUNCHER, *words)]
        job = Screen(*words, NO_COLOR="")
        expect(os.waitstatus_to_exitcode(job.end()) == code, repr(job.text))
        expect(job.text.count("horovodrun:") == job.text.count("\x1b[1;31mhorovodrun:\x1b[0m ") == 1, repr(job.text))
        if "--name" in words:
            log = ask("logs", "fails")
            expect("exited with code 3" in log.stderr and "up" in log.stdout, log)
            expect("\x1b" not in log.stdout + log.stderr, log)
        for command, more in (
            (words, {"NO_COLOR": "1"}),
            ([words[0], "--color", "never", *words[1:]], {"NO_COLOR": ""}),
            (["/bin/sh", "-c", f"{shlex.join(words)} 2>&1 | cat"], {"NO_COLOR": ""}),
        ):
            plain = Screen(*command, **more)
            plain.end()
            expect("horovodrun: " in plain.text and "\x1b" not in plain.text, repr(plain.text))
    refused = Screen(LAUNCHER, "--color", "never", "--no-such-flag", "true", NO_COLOR="")
    refused.end()
    expect("--no-such-flag" in refused.text and "\x1b" not in refused.text, repr(refused.text))
    files = {path.name: path.read_text() for path in folder.glob("rank.0/*")}
    expect(files == {"stdout": "[0]<stdout>:up\n", "stderr": "[0]<stderr>:bad\n"}, files)


@world("a")
def test_bars_that_move_the_cursor_pass_as_they_are():
    moves = "printf '\\033[2K\\r10%%\\r'; sleep 2; printf '\\033[A20%%\\r'; sleep 1; echo; echo done"
    job = Screen(LAUNCHER, "-np", 1, "-H", "a:1", "sh", "-c", moves)
    job.sees("done")
    expect(job.end() == 0 and "\x1b[A20%\r" in job.text, job.text)


@world("a")
def test_the_line_ends_with_the_job_however_it_ends():
    for number in (signals.SIGTERM, signals.SIGINT, signals.SIGHUP):
        job = Screen(LAUNCHER, "-np", 1, "-H", "a:1", "sh", "-c", "echo up; exec sleep 600")
        before = job.initial_attributes
        job.sees("^1/1 rank · ")
        os.kill(job.pid, number)
        expect(os.waitstatus_to_exitcode(job.end()) == 128 + number, job.text)
        expect(not status_lines(job.rows()) and job.attributes() == before, job.rows())
    go = scratch() / "go"
    fails = f"echo up; until [ -e {go} ]; do sleep 0.05; done; exit 3"
    job = Screen(LAUNCHER, "-np", 1, "-H", "a:1", "sh", "-c", fails)
    job.sees("^1/1 rank · ")
    go.touch()
    expect(os.waitstatus_to_exitcode(job.end()) == 3 and not status_lines(job.rows()), job.rows())


if __name__ == "__main__":
    main()
