#!/usr/bin/python3 -B
"""SIGTERM at the end of a job reaches the process of a rank that saves, whatever program started it, but neither the
shells above it nor the workers below it."""

from harness import *

WORKER = WORKERS / "saving_rank.py"
FORMS = ("python", "script", "commands", "timeout", "wrapper")
WITH_WORKERS = [f"{form}-{'spawn' if form in ('script', 'wrapper') else 'fork'}" for form in FORMS]


def saves(forms, *more, python=PYTHON, flags=(), number=signal.SIGTERM, code=143):
    job = Job(
        "-np",
        len(forms),
        "--kill-grace",
        60,
        *flags,
        python,
        WORKER,
        ",".join(forms),
        *more,
        environment=clean_environment(SAVING_FOLDER=str(scratch()), OMP_NUM_THREADS="1"),
    )
    job.wait_for("ready", len(forms), 120)
    if number:
        job.signal(number)
    job.ends_with(code)
    for rank, form in enumerate(forms):
        lines = re.findall(rf"\[{rank}\]<stdout>:(.*)", job.out)
        more = {
            "script": ["after with 0"],
            "commands": ["after with 0"],
            "wrapper": ["after with 0"],
            "supervisor": ["after with 0"],
            "parent": ["child ends"],
        }
        expect(
            lines == ["ready", "saved", *more.get(form.partition("-")[0], [])],
            f"rank {rank}, {form}: {lines}\n{job.describe()}",
        )
    return job


def test_any_form_of_a_rank_saves_and_the_shell_above_it_goes_on():
    saves((*FORMS, "parent"))
    saves((*FORMS, "supervisor", "parent"), "init", number=signal.SIGINT, code=130)


def test_a_time_limit_is_such_an_end():
    saves(("script", "python"), flags=("--timeout", 8), number=None, code=124)


def test_a_rank_that_leaves_an_elastic_job_is_ended_below_its_shell():
    job = Job(
        *"-np 2 --min-np 1 --kill-grace 60".split(),
        "sh",
        "-c",
        f"{PYTHON} {WORKERS / 'elastic_rank.py'} 1000; echo after with $?",
    )
    job.wait_for("begins 0 ", 2)
    answer = ask("resize", job.process.pid, 1)
    expect(answer.returncode == 0, f"{answer}\n{job.describe()}")
    job.wait_for(r"\[1\]<stdout>:after with 143")
    job.signal(signal.SIGTERM)
    job.ends_with(143)
    expect(job.out.count("after with 143") == 2, job.describe())


def test_the_workers_of_a_dataloader_do_not_end_before_the_process_that_saves():
    saves(WITH_WORKERS)
    saves(WITH_WORKERS[:2], "init")


def test_the_workers_of_the_newest_pytorch_do_not_end_before_the_process_that_saves():
    newest = interpreters("HVD_TEST_PYTHONS")[-1]
    saves(WITH_WORKERS, python=newest)
    saves(WITH_WORKERS, "init", python=newest)


if __name__ == "__main__":
    main()
