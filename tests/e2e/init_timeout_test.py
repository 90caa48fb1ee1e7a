#!/usr/bin/python3 -B
"""Ranks that call hvd.init() late: the limit, the messages meanwhile, and the status line."""

from harness import *
from terminal import Terminal

LATE = (
    "import os, time\nimport horovod.numpy as hvd\nif os.environ['HOROVOD_RANK'] == '1':\n    SLOW\nhvd.init()\n"
    "print(hvd.rank(), 'is there', flush=True)"
)
SLEEP = LATE.replace("SLOW", "time.sleep(SECONDS)")
BUSY = LATE.replace("SLOW", "end = time.monotonic() + SECONDS\n    while time.monotonic() < end: pass")


@world()
def test_the_start_timeout_does_not_limit_a_rank_that_imports():
    job = Job("-np", 2, "-H", "a:1,b:1", "--start-timeout", 3, PYTHON, "-c", SLEEP.replace("SECONDS", "4.5"))
    job.ends_with(0)
    expect(job.out.count("is there") == 2, job.describe())
    expect(job.said() == [], job.describe())


@world()
def test_a_rank_that_never_calls_init_is_named_after_the_init_timeout():
    for flags, variables in ((("--init-timeout", 2), {}), ((), {"HOROVOD_INIT_TIMEOUT": "2"})):
        job = Job(
            *"-np 2 -H a:1,b:1".split(),
            *flags,
            PYTHON,
            "-c",
            SLEEP.replace("SECONDS", "600"),
            environment=clean_environment(**variables),
        )
        job.ends_with(1, 20)
        job.leaves_nothing()
        one_sentence(job, r"^rank 0 on host a exited with code 1 while rank 1 on b had not called hvd.init\(\)")
        expect(
            re.search(
                r"rank 1 has not called hvd.init\(\) within 2 s; every rank of the job must, and "
                r"--init-timeout \(HOROVOD_INIT_TIMEOUT\) may be raised",
                job.err,
            ),
            job.describe(),
        )


@world()
def test_on_a_terminal_a_line_shows_the_start_and_a_sentence_names_a_late_rank():
    py_spy = BUILD / "venv-py-spy/bin"
    path = f"{clean_environment()['PATH']}:{py_spy}"
    words = ("-np", "2", "-H", "a:1,b:1", PYTHON, "-c", BUSY.replace("SECONDS", "13"))
    terminal = Terminal(LAUNCHER, *words, PATH=path, TERM="xterm")
    terminal.shows(r"ranks started 2; importing 1 \(rank 1 on b\); in hvd.init 1; \d+ s")
    terminal.shows(
        r"horovodrun: rank 1 on b has not called hvd.init\(\) for 10 s: running.* \(\S*python3\S* -c .*\), "
        r"\d+ % of a core" + (r", at <string>:5" if (py_spy / "py-spy").exists() else "") + "; rank 0 waits for it"
    )
    terminal.shows("is there", 2)
    expect(terminal.end() == 0, terminal.text)


@world()
def test_a_job_without_horovod_hears_nothing_of_it():
    words = ("-np", "2", "-H", "a:1,b:1", "--independent", "sh", "-c", "sleep 12; echo done")
    terminal = Terminal(LAUNCHER, *words, NO_COLOR="", TERM="xterm")
    terminal.shows(r"ranks started 2; \d+ s")
    for color, rank in ((36, 0), (33, 1)):
        terminal.shows(rf"\x1b\[{color}m\[{rank}\]<stdout>:\x1b\[0mdone")
    expect(terminal.end() == 0, terminal.text)
    expect("hvd.init" not in terminal.text, terminal.text)


if __name__ == "__main__":
    main()
