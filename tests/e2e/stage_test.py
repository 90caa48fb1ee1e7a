#!/usr/bin/python3 -B
"""--stage copies the user's code to hosts that do not have it, and removes it after the job."""

from harness import *

PROGRAM = """import os, sys, lib.answer
print("answer", lib.answer.VALUE, os.path.basename(os.getcwd()), flush=True)
if len(sys.argv) > 1:
    import time; time.sleep(600)
"""


def project():
    """Makes a project in /tmp, which the hosts do not share."""
    folder = scratch() / "project"
    (folder / "lib").mkdir(parents=True)
    (folder / "train.py").write_text(PROGRAM)
    (folder / "lib" / "answer.py").write_text("VALUE = 42\n" + "#" * 3_000_000)
    (folder / "lib" / "link.py").symlink_to("answer.py")
    return folder


def copies(name):
    """Returns the folders with staged code on a host."""
    shown = run_to_end([HOSTS, "exec", name, "sh", "-c", "ls -d /tmp/horovod-stage-* 2>/dev/null"])
    return shown.stdout.split()


@world("a b", "--private-tmp")
def test_code_is_where_its_ranks_look_for_it_and_goes_with_the_job():
    folder = project()
    job = Job("-np", 4, "-H", "a:2,b:2", "--stage", ".", PYTHON, "train.py", cwd=folder)
    job.ends_with(0)
    expect(job.out.count("answer 42 horovod-stage-") == 4, job.describe())
    job.leaves_nothing()
    # Started in a subfolder, and with only a part staged: relative paths are the same as here.
    job = Job("-np", 2, "-H", "a:1,b:1", "--stage", "..", PYTHON, "../train.py", cwd=folder / "lib")
    job.ends_with(0)
    expect(job.out.count("answer 42 lib") == 2, job.describe())
    job = Job(
        *"-np 2 -H a:1,b:1 --stage lib".split(),
        "sh",
        "-c",
        "cat lib/link.py | wc -c; echo $HOROVOD_STAGE_DIR",
        cwd=folder,
    )
    job.ends_with(0)
    expect(job.out.count("3000011") == 2 and job.out.count("/lib\n") == 2, job.describe())
    job = Job("-np", 1, "-H", "a:1", "--stage", "nowhere", "true", cwd=folder)
    job.ends_with(2)
    one_sentence(job, "--stage: nowhere: No such file or directory")
    (folder / ".venv").mkdir()
    (folder / ".venv" / "pyvenv.cfg").touch()
    (folder / ".venv" / "python").symlink_to(PYTHON)
    job = Job("-np", 1, "-H", "a:1", "--stage", ".", ".venv/python", "train.py", cwd=folder)
    job.ends_with(2)
    one_sentence(job, r"^--stage: .venv/python lies in /.*/\.venv, an environment of Python, which is not copied: ")
    job.leaves_nothing()


@world("a b", "--private-tmp")
def test_much_code_takes_little_memory_here():
    folder = project()
    (folder / "weights").write_bytes(b"w" * (96 << 20))
    job = Job("-np", 2, "-H", "a:1,b:1", "--stage", ".", "sh", "-c", "wc -c <weights; sleep 600", cwd=folder)
    job.wait_for("100663296\n", 2, seconds=90)
    status = pathlib.Path(f"/proc/{job.process.pid}/status").read_text()
    peak = int(re.search(r"VmHWM:\s+(\d+)", status)[1])
    expect(peak < 48 << 10, f"the launcher took {peak} KiB at most")
    print(f"the launcher's peak for 96 MiB of code on two hosts: {peak / 1024:.1f} MiB")
    job.signal(signal.SIGTERM)
    job.wait()
    job.leaves_nothing()


SAVES = """import os, pathlib, sys
import lib.answer
if os.environ["HOROVOD_RANK"] != "1" or sys.argv[1] == "reads":
    sys.exit(pathlib.Path("log.txt").read_text() != "before")
pathlib.Path("log.txt").write_text("after")
pathlib.Path("models/step 1").mkdir(parents=True)
for name in ("step 1/b.pt", "step 1/a.pt", "last.pt"):
    pathlib.Path("models", name).write_text("weights")
pathlib.Path("models/best.pt").symlink_to("last.pt")
sys.exit(int(sys.argv[2]))
"""


@world("a b", "--private-tmp")
def test_a_warning_names_what_the_program_wrote_into_the_copy():
    folder = project()
    (folder / "log.txt").write_text("before")
    (folder / "train.py").write_text(SAVES)
    run = ("-np", 2, "-H", "a:1,b:1", "--stage", ".", PYTHON, "train.py")
    job = Job(*run, "reads", cwd=folder)
    job.ends_with(0)
    expect("--stage" not in job.err, job.describe())
    for code in (0, 3):
        job = Job(*run, "saves", code, cwd=folder)
        job.ends_with(code)
        said = (
            "host b: the copy of the code (--stage) is removed with 5 files that the program wrote there: log.txt, "
            "models/best.pt, models/last.pt and 2 more; write to a folder that all hosts share, or to another "
            "absolute path\n"
        )
        expect(job.err.count(said) == job.err.count("--stage") == 1, job.describe())
        job.leaves_nothing()
    expect((folder / "log.txt").read_text() == "before", "a copy")


@world("a b", "--private-tmp")
def test_the_copy_goes_when_launcher_or_agent_is_killed():
    folder = project()
    for kill in ("launcher", "agent"):
        job = Job("-np", 2, "-H", "a:1,b:1", "--stage", ".", PYTHON, "train.py", "stay", cwd=folder)
        job.wait_for("answer 42", 2)
        expect(len(copies("a")) == 1 and len(copies("b")) == 1, "a copy on each host")
        if kill == "launcher":
            job.signal(signal.SIGKILL)
        else:
            os.kill(agents("b")["agent"][0], signal.SIGKILL)
        job.wait()
        wait_until(
            lambda: not copies("a") and not copies("b"), 20, lambda: f"no copy left: {copies('a')} {copies('b')}"
        )
        job.leaves_nothing()


if __name__ == "__main__":
    main()
