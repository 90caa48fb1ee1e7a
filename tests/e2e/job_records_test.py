#!/usr/bin/python3 -B
"""Records of jobs (HOROVOD_STATE_DIR) as in docs/inspection.md, and directories that cannot hold a record."""

import contextlib
import ctypes
import json

from harness import *

WAITS = ("sh", "-c", "echo runs; while :; do sleep 0.1; done")


def states(environment):
    """Returns the records by name from `ps -a --json`."""
    listed = Job("ps", "-a", "--json", environment=environment)
    listed.ends_with(0)
    return {job["name"] or job["command"][-1]: job for job in map(json.loads, listed.out.splitlines())}


def named(name, *command, environment, **more):
    return Job("-np", 1, "--name", name, *command, environment=environment, **more)


def running(name, environment):
    job = named(name, *WAITS, environment=environment)
    job.wait_for("runs")
    return job


def test_jobs_are_found_by_name_while_they_run_and_afterwards():
    environment = clean_environment(HOROVOD_STATE_DIR=str(scratch() / "state"), SECRET_OF_MINE="hunter2")
    named("good", "true", environment=environment).ends_with(0)
    Job("-np", 2, "sh", "-c", "exit 7", environment=environment).ends_with(7)
    for number in (1, 2):
        named("twice", "sh", "-c", f"exit {number}", environment=environment).ends_with(number)
    job = running("twice", environment)
    found = states(environment)
    expect(found["good"]["state"] == "ended" and found["good"]["exit_code"] == 0, found)
    expect(found["exit 7"]["exit_code"] == 7 and found["exit 7"]["ranks"] == 2, found)
    expect(re.fullmatch(r"rank [01] on host \S+ exited with code 7", found["exit 7"]["cause"]), found)
    expect(found["twice"]["state"] == "running" and found["twice"]["pid"] == job.process.pid, found)
    other = running("twice", environment)
    several = Job("stop", "twice", environment=environment)
    several.ends_with(2)
    rows = [rf"  {one.process.pid}  twice  sh -c echo runs.*" for one in (job, other)]
    said = "\n".join(["several jobs run; write horovodrun stop ID, with one of these:", *rows])
    expect(re.search(said, several.err), several.describe())
    for one in (other, job):
        waiter = Job("wait", one.process.pid, environment=environment)
        stopped = Job("stop", one.process.pid, environment=environment)
        stopped.ends_with(0)
        one_sentence(stopped, rf"job twice \({one.process.pid}\): ended, exit code 143: ended by SIGTERM")
        one.ends_with(143)
        waiter.ends_with(143)
        one.leaves_nothing()
    again = Job("stop", "twice", environment=environment)
    again.ends_with(0)
    one_sentence(again, "does not run: ended, exit code 143")
    Job("wait", "twice", environment=environment).ends_with(143)
    Job("wait", "good", environment=environment).ends_with(0)
    unknown = Job("wait", "no-such", environment=environment)
    unknown.ends_with(2)
    one_sentence(unknown, "there is no job no-such in ")
    table = Job("ps", "-a", environment=environment)
    table.ends_with(0)
    expect(table.out.count("\n") == 13 and "exit code 7: rank" in table.out, table.describe())
    folder = pathlib.Path(environment["HOROVOD_STATE_DIR"])
    texts = [path.read_text() for path in folder.rglob("record.json")]
    expect(len(texts) == 6 and not any("hunter2" in text for text in texts), texts)


def test_a_command_whose_output_cannot_be_written_says_so_unless_a_pipe_has_no_reader():
    environment = clean_environment()
    named("long", "seq", 20000, environment=environment).ends_with(0)

    def run(stdout, *words):  # this test ignores SIGPIPE, like some callers
        return subprocess.run(
            [LAUNCHER, *words],
            env=environment,
            stdout=stdout,
            stderr=subprocess.PIPE,
            restore_signals=False,
            timeout=LONG,
            check=False,
        )

    reader, writer = os.pipe()
    os.close(reader)
    for words in (("logs", "long"), ("ps", "-a"), ("--version",)):
        with open("/dev/full", "wb") as full:
            told = run(full, *words)
        expect(told.returncode == 1, told)
        expect(told.stderr == b"horovodrun: cannot write to standard output: No space left on device\n", told)
        silent = run(writer, *words)
        expect((silent.returncode, silent.stderr) == (128 + signal.SIGPIPE, b""), silent)
    os.close(writer)


def test_commands_that_look_into_a_job_take_its_name():
    folder = scratch()
    environment = clean_environment(HOROVOD_STATE_DIR=str(folder / "state"), HOROVOD_SPOOL_DIR=str(folder))
    named("gone", "true", environment=environment).ends_with(0)
    jobs = [running(name, environment) for name in ("one", "two")]
    pid = jobs[0].process.pid

    def answer(*words, code=0):
        asked = Job(*words, environment=environment)
        asked.ends_with(code)
        return asked

    for words in (("ps", "one"), ("ps", "--json", "one"), ("stack", "one")):
        said = answer(*words).out
        expect(str(pid) in said and str(jobs[1].process.pid) not in said, said)
    expect("horovod_ranks_up" in answer("metrics", "--level", "rank", "one").out, "metrics")
    for words in (("one", "sh"), ("--rank", "0", "one", "sh"), (pid, "sh")):
        expect(answer("exec", *words, "-c", "echo $HOROVOD_RANK").out == "0\n", words)
    # The word after "--" is the command, not a job's name.
    said = answer("exec", "--", "one", "x", code=2)
    row = f"several jobs run; write horovodrun exec ID(.*\n)+  {pid}  one  "
    expect(re.search(row, said.err), said.describe())
    one_sentence(answer("exec", "no-such", "hostname", code=2), "no job 'no-such' runs, and there is no program of")
    # The command exists on the hosts only.
    expect("several jobs run" in answer("exec", "no-such", "-L", code=2).err, "a program is taken for a job")
    one_sentence(answer("exec", "--rank", "0", "one", code=2), r"write horovodrun exec \[NAME or id of a job\]")
    one_sentence(answer("stack", "gone", code=2), r"job gone \(\d+\) does not run; horovodrun ps -a shows")
    one_sentence(answer("resize", "one", 2, code=2), "the job has a constant number of ranks|--min-np")
    one_sentence(answer("metrics", "no-such", code=2), "there is no job no-such in ")
    for job in jobs:
        job.signal(signal.SIGTERM)
        job.ends_with(143)
    named("apart", "--detach", "sh", "-c", "echo here; exit 3", environment=environment).ends_with(0)
    expect("here" in answer("attach", "apart", code=3).out, "attach")


def logs(*words, environment):
    job = Job("logs", *words, environment=environment)
    job.ends_with(0)
    return job


def test_logs_of_a_job_that_runs_and_has_ended():
    environment = clean_environment(HOROVOD_STATE_DIR=str(scratch() / "state"))
    program = "echo early $HOROVOD_RANK; read line < go; echo late; echo bad $HOROVOD_RANK >&2; exit 3"
    folder = scratch()
    os.mkfifo(folder / "go")
    job = Job(
        *("-np", 2, "--name", "talks", "--only-rank", 0, "sh", "-c", program), environment=environment, cwd=folder
    )

    def has_first_lines():
        asked = Job("logs", "talks", environment=environment)
        asked.wait()  # the record may not exist yet
        return asked.out.count("early") == 2

    wait_until(has_first_lines, 60, "the first lines")
    follower = Job("logs", "-f", "--rank", "1", "talks", environment=environment)
    follower.wait_for("early 1")
    # The other rank has already opened the pipe; a rank that opens the pipe later also finds its line.
    go = os.open(folder / "go", os.O_RDWR)
    os.write(go, b"x\nx\n")
    job.ends_with(3)
    os.close(go)
    follower.ends_with(0)
    expect(follower.out.splitlines()[0] == "[1]<stdout>:early 1" and "early 0" not in follower.out, follower.describe())
    said = logs("talks", environment=environment)
    expect({"[0]<stdout>:early 0", "[1]<stdout>:early 1"} <= set(said.out.splitlines()), said.describe())
    expect(re.search(r"horovodrun: rank [01] on host \S+ exited with code 3", said.err), said.describe())
    for rank, sentence in (("x", "--rank"), (2, r"--rank: there is no rank 2; the last one is 1$")):
        nothing = Job("logs", "--rank", rank, "talks", environment=environment)
        nothing.ends_with(2)
        one_sentence(nothing, sentence)
    Job("-np", 1, "true", environment=environment).ends_with(0)
    nothing = Job("logs", environment=environment)
    nothing.ends_with(2)
    one_sentence(nothing, "has no log: only jobs with --name")


def test_a_log_has_the_last_64_mib():
    environment = clean_environment(HOROVOD_STATE_DIR=str(scratch() / "state"))
    named("long", "sh", "-c", f"yes {'x' * 999} | head -n 80000; seq 10", environment=environment).ends_with(0)
    said = logs("long", environment=environment)
    expect(said.out.endswith("[0]<stdout>:9\n[0]<stdout>:10\n"), said.out[-200:])
    folder = pathlib.Path(environment["HOROVOD_STATE_DIR"])
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    expect(size <= 65 << 20, size)
    # A busy machine may lose more lines, and reports so. After such a loss, the oldest remaining line fits.
    missing = sum(int(each.split()[0]) for each in said.said() if "bytes of output are missing here" in each)
    sentences = [each for each in said.said() if "bytes of output are missing here" not in each]
    if not sentences:
        expect(missing > 80_000_000 - (64 << 20), said.said())
    else:
        expect(len(sentences) == 1 and sentences[0].startswith("the oldest output is gone"), sentences)


def test_a_launcher_that_was_killed_has_an_end():
    environment = clean_environment(HOROVOD_STATE_DIR=str(scratch() / "state"))
    job = running("killed", environment)
    waiter = Job("wait", "killed", environment=environment)
    job.process.kill()
    job.ends_with(137)
    waiter.ends_with(137)
    found = states(environment)["killed"]
    expect(
        (found["exit_code"], found["cause"]) == (137, "the launcher was killed, or could not say how it ended"), found
    )
    job.leaves_nothing()


def test_a_relative_directory_is_below_the_working_directory_of_the_launcher():
    folder = scratch()
    environment = clean_environment(HOROVOD_STATE_DIR="st")
    Job("-np", 1, "--name", "near", "true", environment=environment, cwd=folder).ends_with(0)
    records = list((folder / "st").glob("*/record.json"))
    expect(len(records) == 1 and json.loads(records[0].read_text())["exit_code"] == 0, records)


def test_the_cause_of_an_end_before_all_ranks_is_recorded():
    environment = clean_environment(HOROVOD_STATE_DIR=str(scratch() / "state"))
    Job("-np", 8, "--name", "bad", "-H", "localhost:2", "true", environment=environment).ends_with(2)
    found = states(environment)["bad"]
    said = logs("bad", environment=environment)
    expect(found["exit_code"] == 2 and found["cause"] and found["cause"] in said.err, (found, said.describe()))


def test_secrets_of_a_command_are_not_recorded():
    state = scratch() / "state"
    environment = clean_environment(HOROVOD_STATE_DIR=str(state))
    words = ("env", "MY_TOKEN=secret-1", "true", "--url=https://u:secret-2@h/", "--password", "secret-3")
    named("secrets", *words, environment=environment).ends_with(0)
    (path,) = state.glob("*/record.json")
    expect("secret-" not in path.read_text() and "--password" in path.read_text(), path.read_text())


def test_a_paused_job_is_stopped():
    environment = clean_environment(HOROVOD_STATE_DIR=str(scratch() / "state"))
    job = running("paused", environment)
    job.process.send_signal(signal.SIGSTOP)
    Job("stop", "paused", environment=environment).ends_with(0)
    job.ends_with(143)


def test_stop_ends_a_job_that_has_outlived_its_script():
    """Some schedulers do not end the processes that a script leaves behind."""
    manager = shutil.copy("/bin/dash", scratch() / "pbs_mom")
    begins = f"{LAUNCHER} --detach -np 1 --name outlives sleep 1000"
    begun = run_to_end([manager, "-c", f"sh -c '{begins}; :'; exit"], env=clean_environment(), check=True)
    expect("until the end of the script of PBS" in begun.stderr, begun)
    time.sleep(6)  # the time in which the end of a script ends its jobs
    stopped = ask("stop", "outlives")
    expect(re.search(r"exit code 143: ended by SIGTERM$", stopped.stderr), stopped)


def test_a_launcher_that_hangs_is_killed():
    """A debugger that has stopped the launcher blocks SIGTERM, like an uninterruptible wait in the kernel."""
    environment = clean_environment(HOROVOD_STATE_DIR=str(scratch() / "state"))
    job = named("hangs", "--kill-grace", 0, *WAITS, environment=environment)
    job.wait_for("runs")
    libc = ctypes.CDLL(None, use_errno=True)
    seize, interrupt = 0x4206, 0x4207
    for request in (seize, interrupt):
        expect(libc.ptrace(request, job.process.pid, None, None) == 0, os.strerror(ctypes.get_errno()))
    stopped = Job("stop", "hangs", environment=environment)
    stopped.ends_with(0)
    expect(re.search("has not ended within 75 s of SIGTERM, and is killed", stopped.err), stopped.describe())
    job.ends_with(137)
    job.leaves_nothing()


def recorder_of(job):
    """Returns the process that writes the record of a job. It sets its name after it has begun."""
    found = []

    def look():
        children = pathlib.Path(f"/proc/{job.process.pid}/task/{job.process.pid}/children").read_text().split()
        names = {int(pid): pathlib.Path(f"/proc/{pid}/comm").read_text() for pid in children}
        found[:] = [pid for pid, name in names.items() if name == "horovodrun-rec\n"]
        return len(found) == 1

    wait_until(look, 30, "the process that keeps the record")
    return found[0]


def test_a_log_says_that_a_slow_disk_has_cost_its_end():
    folder = scratch()
    environment = clean_environment(HOROVOD_STATE_DIR=str(folder / "state"))
    program = f"echo runs; while ! [ -e go ]; do sleep 0.1; done; yes {'x' * 999} | head -n 12000; exit 5"
    job = named("slow", "sh", "-c", program, environment=environment, cwd=folder)
    job.wait_for("runs")
    recorder = recorder_of(job)
    os.kill(recorder, signal.SIGSTOP)
    try:
        (folder / "go").touch()
        job.ends_with(5)
        waiter = Job("wait", "slow", environment=environment)
        time.sleep(4)  # longer than the wait for a killed launcher
    finally:
        os.kill(recorder, signal.SIGCONT)
    waiter.ends_with(5)
    expect("bytes of output are missing here" in logs("slow", environment=environment).err, "a notice")


def test_a_recorder_that_was_killed_costs_one_sentence():
    folder = scratch()
    environment = clean_environment(HOROVOD_STATE_DIR=str(folder / "state"))
    program = "echo runs; while ! [ -e go ]; do sleep 0.1; done"
    job = named("alone", "sh", "-c", program, environment=environment, cwd=folder)
    job.wait_for("runs")
    os.kill(recorder_of(job), signal.SIGKILL)
    (folder / "go").touch()
    job.ends_with(0)
    one_sentence(job, "the process that keeps the record of this job has ended too early")


def test_a_directory_that_was_removed_is_made_again():
    folder = scratch()
    environment = clean_environment(HOROVOD_STATE_DIR=str(folder / "state"))
    program = "echo runs; while ! [ -e go ]; do sleep 0.1; done; exit 4"
    job = named("again", "sh", "-c", program, environment=environment, cwd=folder)
    wait_until(lambda: states(environment).get("again", {}).get("state") == "running", 30, "a record")
    shutil.rmtree(folder / "state")
    (folder / "go").touch()
    job.ends_with(4)
    expect(states(environment)["again"]["exit_code"] == 4, states(environment))


@world()
def test_a_full_disk_costs_neither_the_end_nor_the_log():
    folder = scratch()
    disk = folder / "disk"
    disk.mkdir()
    done = run_to_end(["mount", "-t", "tmpfs", "-o", "size=3m", "none", disk], text=False)
    if done.returncode != 0:
        raise Skip(f"mount: {done.stderr.decode().strip()}")
    environment = clean_environment(HOROVOD_STATE_DIR=str(disk / "state"))
    try:
        program = "seq 20000; while ! [ -e go ]; do sleep 0.1; done; exit 4"
        job = named("full", "sh", "-c", program, environment=environment, cwd=folder)
        job.wait_for("20000")
        wait_until(lambda: "20000" in logs("full", environment=environment).out, 30, "the log")
        with open(disk / "filler", "wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * 4096)
        (folder / "go").touch()
        job.ends_with(4)
        Job("wait", "full", environment=environment).ends_with(4)
        log = logs("full", environment=environment)
        expect(log.out.count("\n") == 20000 and "is gone" not in log.err, log.err)
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def test_a_record_without_an_end_is_unknown():
    folder = scratch() / "state"
    environment = clean_environment(HOROVOD_STATE_DIR=str(folder))
    named("lost", "true", environment=environment).ends_with(0)
    (path,) = folder.glob("*/record.json")
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "state": "running"}))
    expect(states(environment)["lost"]["state"] == "unknown", states(environment))
    lost = Job("wait", "lost", environment=environment)
    lost.ends_with(137)
    one_sentence(lost, "unknown since ")


def test_a_directory_that_keeps_no_record_harms_no_job():
    folder = scratch()
    (folder / "file").touch()
    (folder / "open").mkdir()
    (folder / "open").chmod(0o777)
    for path, said in (
        (folder / "file", "Not a directory"),
        (folder / "file" / "state", "Not a directory"),
        (folder / "open", "is not a directory that only you can write to"),
        (pathlib.Path("/proc/state"), "No such file or directory"),
    ):
        job = named("x", "sh", "-c", "echo runs; exit 3", environment=clean_environment(HOROVOD_STATE_DIR=str(path)))
        job.ends_with(3)
        expect(job.out == "[0]<stdout>:runs\n", job.describe())
        sentences = [line for line in job.said() if "ps -a" in line]
        expect(len(sentences) == 1 and said in sentences[0] and "HOROVOD_STATE_DIR" in sentences[0], job.describe())
    off = clean_environment(HOROVOD_STATE_DIR="none")
    job = named("x", "true", environment=off)
    job.ends_with(0)
    expect(not job.said(), job.describe())
    Job("ps", "-a", environment=off).ends_with(2)


def test_root_keeps_no_record_in_the_home_of_another_user():
    home = scratch() / "home"
    home.parent.chmod(0o711)
    home.mkdir()
    os.chown(home, 65534, 65534)
    environment = clean_environment(HOME=str(home))
    del environment["HOROVOD_STATE_DIR"]
    job = named("x", "true", environment=environment)
    job.ends_with(0)
    one_sentence(job, f"root keeps no records in {home}, which belongs to nobody; ")
    expect(not list(home.iterdir()), list(home.iterdir()))
    (home / ".local").mkdir(mode=0o755)
    user = ("--reuid=65534", "--regid=65534", "--clear-groups", LAUNCHER)
    job = Job(*user, "-np", 1, "--name", "x", "true", environment=environment, program="/usr/bin/setpriv")
    job.ends_with(0)
    one_sentence(job, f"cannot make directory {home}/.local/state: {home}/.local belongs to root: Permission denied; ")


@world()
def test_a_job_of_another_machine_is_listed_and_stopped_by_ssh():
    state = str(scratch() / "state")
    environment = clean_environment(HOROVOD_STATE_DIR=state)
    before = Inventory()
    job = subprocess.Popen(
        [HOSTS, "exec", "a", "env", f"HOROVOD_STATE_DIR={state}", LAUNCHER, "-np", "1", "--name", "far", *WAITS],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    wait_until(lambda: states(environment).get("far", {}).get("state") == "running", 60, "a record")
    expect(states(environment)["far"]["id"].startswith("a:"), states(environment))
    waiter = Job("wait", "far", environment=environment)
    follower = Job("logs", "-f", "far", environment=environment)
    follower.wait_for("runs")
    listed = Job("ps", "--json", environment=environment)
    listed.ends_with(0)
    expect(json.loads(listed.out)["name"] == "far", listed.describe())
    ran = Job("exec", "far", "sh", "-c", "echo '$HOME' \"$(uname -n)\"", environment=environment)
    ran.ends_with(0)
    expect(ran.out == "$HOME a\n", ran.describe())
    stopped = Job("stop", "far", environment=environment)
    stopped.ends_with(0)
    one_sentence(stopped, r"job far \(\d+\): ended, exit code 143: ended by SIGTERM")
    waiter.ends_with(143)
    follower.ends_with(0)
    job.wait()
    # The log of a detached job is on its machine.
    there = ["env", f"HOROVOD_STATE_DIR={state}", f"HOROVOD_SPOOL_DIR={scratch()}", LAUNCHER]
    command = [HOSTS, "exec", "a", *there, "--detach", "-np", "1", "--name", "behind", "sh", "-c", "echo here; exit 3"]
    run_to_end(command, env=environment, stdin=subprocess.DEVNULL, check=True, text=False)
    for words, code in ((("attach", "behind"), 3), (("logs", "-f", "behind"), 0)):
        shown = Job(*words, environment=environment)
        shown.ends_with(code)
        expect(shown.out == "[0]<stdout>:here\n", shown.describe())
    before.wait_for_ends()


def frozen_disk(image, folder):
    """Mounts a file system that fsfreeze can stop."""
    with open(image, "wb") as file:
        file.truncate(8 << 20)
    for command in (["mkfs.ext4", "-q", image], ["mount", "-o", "loop", image, folder]):
        done = run_to_end(command)
        if done.returncode != 0:
            raise Skip(f"{command[0]}: {done.stderr.strip()}")


@world()
def test_a_file_system_that_does_not_answer_delays_no_job():
    folder = scratch()
    disk = folder / "disk"
    disk.mkdir()
    frozen_disk(folder / "image", disk)
    environment = clean_environment(HOROVOD_STATE_DIR=str(disk / "state"))
    try:
        job = named(
            "frozen",
            "sh",
            "-c",
            "echo runs; while ! [ -e go ]; do sleep 0.1; done",
            environment=environment,
            cwd=folder,
        )
        wait_until(lambda: states(environment).get("frozen", {}).get("state") == "running", 30, "a record")
        subprocess.run(["fsfreeze", "--freeze", disk], check=True)
        try:
            began = idle()
            (folder / "go").touch()
            job.ends_with(0)
            expect(idle() - began < 10, f"the end took {idle() - began:.1f} s")
            one_sentence(job, "cannot show the end of this job: .* does not answer")
            began = idle()
            later = named("later", "true", environment=environment)
            later.ends_with(0)
            expect(idle() - began < 10, f"a job took {idle() - began:.1f} s")
        finally:
            subprocess.run(["fsfreeze", "--unfreeze", disk], check=True)
        job.before.wait_for_ends()
        found = states(environment)
        expect(found["frozen"]["state"] == "ended" and found["later"]["exit_code"] == 0, found)
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


if __name__ == "__main__":
    main()
