#!/usr/bin/python3 -B
"""Flags that change the environment, the output and the end of ranks, on two hosts."""

import json
import shutil
import signal as signals
import stat

from harness import *

HOSTS_OF_TWO = ("-np", 2, "-H", "a:1,b:1")
SHOW = "import os; print(*[os.environ.get(n, '-') for n in '{}'.split()])"


def shown(names, *flags, **environment):
    """Returns the values of these variables in rank 0 on a and in rank 1 on b."""
    job = Job(*HOSTS_OF_TWO, *flags, PYTHON, "-c", SHOW.format(names), environment=clean_environment(**environment))
    job.ends_with(0)
    lines = sorted(job.out.splitlines())
    expect(len(lines) == 2, job.describe())
    return [line.partition(":")[2].split(" ") for line in lines]


@world()
def test_variables_by_name_by_value_and_by_pattern():
    got = shown(
        "GIVEN HOME NCCL_DEBUG NCCL_X OWN HOROVOD_CYCLE_TIME",
        *"-x GIVEN=a=b -x HOME".split(),
        "-x",
        "NCCL_*",
        "--no-env",
        "-x",
        "HOROVOD_CYCLE_TIME=7",
        HOME="/elsewhere",
        NCCL_DEBUG="INFO",
        NCCL_X="1",
        OWN="1",
        HOROVOD_CYCLE_TIME="3",
        XDG_RUNTIME_DIR="/run/user/0",
    )
    expect(got == [["a=b", "/elsewhere", "INFO", "1", "-", "7"]] * 2, got)


@world()
def test_without_flags_all_goes_but_what_is_this_machines():
    got = shown(
        "OWN UCX_TLS XDG_RUNTIME_DIR PMI_RANK", OWN="1", UCX_TLS="tcp", XDG_RUNTIME_DIR="/run/user/0", PMI_RANK="3"
    )
    expect(got == [["1", "tcp", "-", "-"]] * 2, got)


@world()
def test_nothing_goes_without_env_also_to_local_ranks():
    job = Job(
        *"-np 2 -H localhost:1,b:1".split(),
        "--no-env",
        PYTHON,
        "-c",
        SHOW.format("OWN"),
        environment=clean_environment(OWN="1"),
    )
    job.ends_with(0)
    expect(sorted(job.out.split()) == ["[0]<stdout>:-", "[1]<stdout>:-"], job.describe())


@world()
def test_a_file_of_variables():
    path = pathlib.Path("/tmp/e2e-variables")
    path.write_text("# ours\nexport A='one two'\nB=3\nOWN\n")
    got = shown("B OWN HOROVOD_RANK", "--env-file", path, "-x", "HOROVOD_RANK=9", OWN="1")
    expect(got == [["3", "1", "0"], ["3", "1", "1"]], got)


@world()
def test_ranks_get_the_variables_of_the_original_and_of_torchrun_unless_left_out():
    names = "HOROVOD_CONTROLLER HOROVOD_CPU_OPERATIONS RANK LOCAL_RANK WORLD_SIZE MASTER_ADDR MASTER_PORT"
    got = shown(names, HOROVOD_CPU_OPERATIONS="mpi")
    for rank in range(2):
        expect(got[rank][:5] == ["gloo", "mpi", str(rank), "0", "2"] and "-" not in got[rank], got)
    got = shown(names, "--no-torch-env", RANK="7", MASTER_ADDR="elsewhere")
    expect(got == [["gloo", "gloo", "-", "-", "-", "-", "-"]] * 2, got)


@world("a")
def test_flags_for_mpirun_have_no_effect_without_it():
    job = Job("-np", 1, "-H", "a:1", "--mpi-args=-v", "--binding-args=-bind-to core", "echo", "started")
    job.ends_with(0)
    expect("started" in job.out, job.describe())
    for flag in ("--mpi-args", "--binding-args"):
        expect(job.err.count(f"horovodrun: {flag} has no effect without --mpi or --jsrun\n") == 1, job.describe())


INIT = (PYTHON, "-c", "import horovod.numpy as hvd; hvd.init(); hvd.shutdown()")
MISSPELT = "HOROVOD_FUSION_TRESHOLD.* did you mean HOROVOD_FUSION_THRESHOLD"


@world()
def test_a_misspelt_variable_is_named_once_for_a_job():
    job = Job(
        *"-np 4 -H a:2,b:2 -x HOROVOD_LOG_LEVLE=info".split(),
        *INIT,
        environment=clean_environment(
            HOROVOD_FUSION_TRESHOLD="1", HOROVOD_CYCLE_TIME="2", HOROVOD_ELASTIC="1", HOROVOD_OF_MINE="3"
        ),
    )
    job.ends_with(0)
    expect(len(re.findall("did you mean", job.out + job.err)) == 2, job.describe())
    for words in (MISSPELT, "HOROVOD_LOG_LEVLE.* did you mean HOROVOD_LOG_LEVEL"):
        expect(any(re.search(words, sentence) for sentence in job.said()), job.describe())


def test_rank_0_names_a_misspelt_variable_where_no_horovodrun_started_it():
    variables = clean_environment(HOROVOD_FUSION_TRESHOLD="1")
    jobs = [Job(*INIT[1:], program=PYTHON, environment=variables)]
    if shutil.which("mpiexec.hydra"):
        jobs.append(Job("-np", 3, *INIT, program=shutil.which("mpiexec.hydra"), environment=variables))
    for job in jobs:
        job.ends_with(0)
        expect(len(re.findall(MISSPELT, job.out + job.err)) == 1, job.describe())


def threads_of(*arguments, where="a:2,b:2", **environment):
    """Returns OMP_NUM_THREADS of each rank on two hosts, and the launcher's messages about it."""
    job = Job(
        "-H",
        where,
        "--verbose",
        *arguments,
        PYTHON,
        "-c",
        SHOW.format("OMP_NUM_THREADS"),
        environment=clean_environment(**environment),
    )
    job.ends_with(0)
    return (
        [line.partition(":")[2] for line in sorted(job.out.splitlines())],
        [line for line in job.err.splitlines() if "gets OMP_NUM_THREADS" in line or "get OMP_NUM_THREADS" in line],
    )


@world()
def test_ranks_that_share_a_host_share_its_cores():
    cores = len(os.sched_getaffinity(0))  # a CPU quota may allow fewer
    threads, said = threads_of()
    expect(len(set(threads)) == 1 and 1 <= int(threads[0]) <= max(1, cores // 2), threads)
    expect(
        len(said) == 1
        and f"each rank gets OMP_NUM_THREADS={threads[0]}, " in said[0]
        and "--no-omp-default" in said[0],
        said,
    )
    # A rank alone on its host gets no value: the line names only the other host.
    threads, said = threads_of(where=f"a:1,b:{cores + 1}")
    expect(threads == ["-"] + ["1"] * (cores + 1) and len(said) == 1, (threads, said))
    expect("OMP_NUM_THREADS=1 on b, " in said[0], said)
    # A user's value stays, wherever the user set it.
    expect(threads_of("-x", "OMP_NUM_THREADS=7") == (["7"] * 4, []), "-x")
    expect(threads_of(OMP_NUM_THREADS="5") == (["5"] * 4, []), "the shell")
    expect(threads_of(MKL_NUM_THREADS="5") == (["-"] * 4, []), "MKL's")
    expect(threads_of("-x", "OPENBLAS_NUM_THREADS=2") == (["-"] * 4, []), "OpenBLAS's")
    expect(threads_of("--remote-init", "export OMP_NUM_THREADS=3") == (["3"] * 4, []), "remote-init")
    path = pathlib.Path("/tmp/e2e-threads")
    path.write_text("OMP_NUM_THREADS=9\n")
    expect(threads_of("--env-file", path) == (["9"] * 4, []), "the env file")
    job = Job("-H", "a:2,b:2", "true")
    job.ends_with(0)
    expect(job.err == "", job.describe())
    if cores > 1:
        job = Job("-c", 'exec taskset -c 0 "$@"', "sh", LAUNCHER, "-np", 2, "true", program="/bin/sh")
        job.ends_with(0)
        one_sentence(job, rf"ranks share 1 of {cores} cores on localhost: .* bound, as by taskset, mpirun or srun")
    expect(threads_of("--no-omp-default") == (["-"] * 4, []), "switched off")
    expect(threads_of(HOROVOD_OMP_DEFAULT="0") == (["-"] * 4, []), "switched off by the variable")


@world()
def test_tags():
    job = Job("-np", 3, "-H", "a:1,b:2", "--tag", "{host}/{rank}.{local_rank}", "echo", "x")
    job.ends_with(0)
    expect(sorted(job.out.splitlines()) == ["a/0.0: x", "b/1.0: x", "b/2.1: x"], job.describe())


@world()
def test_only_some_ranks_are_shown_and_all_are_written():
    folder = pathlib.Path("/tmp/e2e-output")
    job = Job(
        *"-np 4 -H a:2,b:2 --only-rank 0,2-3".split(),
        "--output-filename",
        folder,
        "sh",
        "-c",
        "echo $HOROVOD_RANK; echo e >&2",
    )
    job.ends_with(0)
    expect(sorted(job.out.split()) == [f"[{rank}]<stdout>:{rank}" for rank in (0, 2, 3)], job.describe())
    expect("[1]" not in job.err, job.describe())
    expect((folder / "rank.1" / "stdout").read_text() == "[1]<stdout>:1\n", "rank 1 is not written")


@world()
def test_much_output_of_a_rank_that_is_not_shown_is_no_obstacle():
    job = Job(*HOSTS_OF_TWO, "--only-rank", "0", PYTHON, "-c", "print('x' * 5000000)")
    job.ends_with(0)
    expect("[1]" not in job.out and job.out.count("x") == 5000000, "not what was asked for")


@world()
def test_lines_as_objects():
    job = Job(
        *HOSTS_OF_TWO,
        *"--log-format json --on-failure wait".split(),
        "sh",
        "-c",
        r"""printf 'a"b\n\377\n1%%\r'; echo 'my "words"' >&2; exit $HOROVOD_RANK""",
    )
    job.ends_with(1)
    lines = [json.loads(line) for line in job.out.splitlines()]
    for rank, host_name in ((0, "a"), (1, "b")):
        own = [line for line in lines if line["rank"] == rank]
        expect([line.get("text", line.get("base64")) for line in own] == ['a"b', "/w==", "1%"], own)
        expect(
            own[2]["end"] == "\r"
            and own[0]["host"] == host_name
            and own[0]["stream"] == "stdout"
            and own[0]["time"].endswith("Z"),
            own,
        )
    report, words = (json.loads(line) for line in job.err.splitlines()[-2:])
    expect(report["source"] == "horovodrun" and "rank 1 on host b" in report["text"], job.describe())
    expect(words["source"] == "horovodrun" and words["text"] == '[1]<stderr>:my "words"', job.describe())


@world()
def test_a_line_of_all_ranks_is_shown_once():
    # All ranks begin at one moment, however long each start takes.
    code = (
        "import os, sys, time\nr, folder = os.environ['HOROVOD_RANK'], sys.argv[1]\n"
        "own, at = f'{folder}/{r}', lambda name: os.stat(name).st_mtime\n"
        "open(own, 'w').close()\n"
        "while len(os.listdir(folder)) < 4: time.sleep(0.01)\n"
        "begin = max(at(f'{folder}/{rank}') for rank in range(4)) + 0.3\n"
        "def sleep_until(turn): time.sleep(max(0, begin + turn * 0.5 - time.time()))\n"
        "for i in range(3): sleep_until(i); print('epoch', i, flush=True)\n"
        "sleep_until(3)\n"
        "if r != '2': print('not two', flush=True)\nprint('mine is', r)"
    )
    for last in (*[False] * 19, True):
        job = Job("-np", 4, "-H", "a:2,b:2", "--fold", PYTHON, "-c", code, scratch())
        job.ends_with(0)
        got = job.out.splitlines()
        if (len(got) > 8 or "[0-3]" not in got[0]) and not last:
            continue  # on a busy machine one rank may print a line later than the others: try again
        expect([f"[0-3]<stdout>:epoch {i}" for i in range(3)] == got[:3], job.describe())
        expect(
            sorted(got[3:])
            == sorted([f"[{rank}]<stdout>:mine is {rank}" for rank in range(4)] + ["[0-1,3]<stdout>:not two"]),
            job.describe(),
        )
        break


@world()
def test_much_output_is_folded_without_a_loss():
    code = "print('\\n'.join(f'{i:099d}' for i in range(50000)))"
    job = Job("-np", 4, "-H", "a:2,b:2", "--fold", PYTHON, "-c", code)
    job.ends_with(0)
    seen = [0] * 4
    for line in job.out.splitlines():
        ranks, text = re.fullmatch(r"\[([\d,-]+)\]<stdout>:(\d+)", line).groups()
        for part in ranks.split(","):
            first, _, last = part.partition("-")
            for rank in range(int(first), int(last or first) + 1):
                expect(int(text) == seen[rank], f"rank {rank}: {text} after {seen[rank]}")
                seen[rank] += 1
    expect(seen == [50000] * 4, seen)


RECORDER = """
import os, signal, sys, time
def note(number, frame):
    print(signal.Signals(number).name, flush=True)
    if number == signal.SIGUSR2: sys.exit(0)
for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGCONT):
    signal.signal(number, note)
print("ready", flush=True)
while True: time.sleep(0.02)
"""


@world()
def test_signals_reach_every_rank():
    job = Job("-np", 2, "-H", "localhost:1,b:1", PYTHON, "-c", RECORDER)
    job.wait_for("ready", 2)
    for number in (signals.SIGUSR1, signals.SIGWINCH):
        os.kill(job.process.pid, number)
        job.wait_for(number.name, 2)
    os.kill(job.process.pid, signals.SIGUSR2)
    job.ends_with(0)


@world()
def test_ranks_stop_and_go_on_with_the_launcher():
    job = Job("-np", 2, "-H", "a:1,b:1", PYTHON, "-c", RECORDER)
    job.wait_for("ready", 2)
    ranks = [pid for name in "ab" for pid in faults.processes(name) if "SIGUSR2" in faults.said_of(pid, "cmdline")]
    expect(len(ranks) == 2, f"ranks: {ranks}")

    def states():
        return {
            pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            for pid in [job.process.pid, *ranks]
        }

    os.kill(job.process.pid, signals.SIGTSTP)
    wait_until(lambda: states() == {"T"}, 60, states)
    os.kill(job.process.pid, signals.SIGCONT)
    job.wait_for("SIGCONT", 2)
    os.kill(job.process.pid, signals.SIGUSR2)
    job.ends_with(0)


@world()
def test_the_others_end_by_themselves_when_the_user_wants_it():
    go = scratch() / "go"
    code = f"[ $HOROVOD_RANK != 0 ] || exit 4; until [ -e {go} ]; do sleep 0.02; done; echo done $HOROVOD_RANK"
    job = Job("-np", 3, "-H", "a:2,b:1", "--on-failure", "wait", "sh", "-c", code)
    wait_until(job.said, 60, job.describe)
    go.touch()
    job.ends_with(4)
    expect(
        len(said := job.said()) == 2
        and said[1] == "rank 0 on host a exited with code 4"
        and said[0].startswith(said[1] + "; --on-failure wait lets the other 2 ranks continue"),
        job.describe(),
    )
    expect("done 1" in job.out and "done 2" in job.out, job.describe())


STUBBORN = (
    "import signal, time; signal.signal(15, lambda *_: print('asked', flush=True))\n"
    "print('ready', flush=True)\nwhile True: time.sleep(1)"
)


@world()
def test_the_grace_is_as_long_as_the_user_says():
    job = Job("-np", 2, "-H", "a:1,b:1", "--kill-grace", 5, PYTHON, "-c", STUBBORN)
    job.wait_for("ready", 2)
    job.signal(signals.SIGTERM)
    begun = time.monotonic()
    job.ends_with(143)
    expect(time.monotonic() - begun > 4.5, f"it took {time.monotonic() - begun} s")
    expect(job.out.count("asked") == 2, job.describe())
    job.leaves_nothing()


@world()
def test_a_second_control_c_means_now():
    job = Job("-np", 2, "-H", "a:1,b:1", "--kill-grace", 500, PYTHON, "-c", STUBBORN)
    job.wait_for("ready", 2)
    job.signal(signals.SIGINT)
    job.wait_for("asked", 2)
    job.signal(signals.SIGINT)
    job.ends_with(130)
    job.leaves_nothing()


@world()
def test_a_job_that_takes_too_long_is_ended():
    job = Job("-np", 2, "-H", "a:1,b:1", "--timeout", 2, "sleep", 60)
    job.ends_with(124)
    expect("after 2 s" in job.said()[-1], job.describe())
    job.leaves_nothing()


@world()
def test_the_last_lines_of_the_rank_that_failed_are_in_the_report():
    code = (
        "import os, sys, time\nif os.environ['HOROVOD_RANK'] == '1':\n"
        "  sys.exit('\\n'.join(f'line {i}' for i in range(30)))\ntime.sleep(600)"
    )
    job = Job("-np", 2, "-H", "a:1,b:1", PYTHON, "-c", code)
    job.ends_with(1)
    report = job.err.partition("horovodrun: ")[2]
    expect(
        "rank 1 on host b" in report and "line 20" in report and "line 29" in report and "line 19" not in report,
        job.describe(),
    )


@world("a b", "--private-tmp")
def test_the_working_directory_of_the_ranks():
    for name in "ab":
        (pathlib.Path(f"/proc/{host.pid_of(name)}/root/tmp") / "work").mkdir(parents=True)
    job = Job("-np", 2, "-H", "a:1,b:1", "--wdir", "/tmp/work", "pwd")
    job.ends_with(0)
    expect(sorted(job.out.split()) == [f"[{rank}]<stdout>:/tmp/work" for rank in (0, 1)], job.describe())
    job = Job("-np", 2, "-H", "a:1,b:1", "--wdir", "/tmp/none", "pwd")
    job.ends_with(2)
    expect("/tmp/none" in job.err and "host b" in job.err, job.describe())


def stand_in(name, text):
    """Writes a program of this name and returns its folder."""
    folder = pathlib.Path("/tmp/e2e-programs")
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return folder


def by_agent(command, **environment):
    """Runs a job whose hosts the launcher reaches by this command, and checks its output and its end."""
    flags = ("--launch-agent", command) if command else ()
    folder = pathlib.Path("/tmp/e2e-programs")
    usual = clean_environment(**environment)
    job = Job(
        *"-np 4 -H a:2,b:2".split(),
        *flags,
        "sh",
        "-c",
        "echo $HOROVOD_RANK $(hostname)",
        environment={**usual, "PATH": f"{folder}:{usual['PATH']}"},
    )
    job.ends_with(0)
    got = sorted(line.partition(":")[2] for line in job.out.splitlines())
    expect(got == ["0 a", "1 a", "2 b", "3 b"], job.describe())
    job.leaves_nothing()


# The arguments of these programs: the name of a container or pod, and a command.
EXEC = (
    'while [ "${1#-}" != "$1" ]; do shift; done; [ "$1" = exec ] && shift; '
    'input=; [ "$1" = -i ] && { input=1; shift; }; name=$1; shift; [ "$1" = -- ] && shift; '
    'if [ -n "$input" ]; then exec ssh "$name" "$@"; else exec ssh -n "$name" "$@"; fi'
)


@world()
def test_hosts_are_reached_through_docker():
    stand_in("docker", EXEC)
    by_agent("docker exec -i {host}")


@world()
def test_hosts_are_reached_through_kubectl():
    stand_in("kubectl", EXEC)
    by_agent("kubectl exec -i {host} --")


@world()
def test_hosts_are_reached_by_the_operators_script_which_passes_no_input_on():
    stand_in("kubectl", EXEC)
    folder = stand_in("kubexec.sh", 'POD_NAME=$1\nshift\n/tmp/e2e-programs/kubectl exec ${POD_NAME} -- /bin/sh -c "$*"')
    by_agent(f"{folder}/kubexec.sh {{host}}")
    by_agent("", OMPI_MCA_plm_rsh_agent=f"{folder}/kubexec.sh")


@world()
def test_hosts_are_reached_by_another_ssh():
    folder = stand_in("own-ssh", 'echo used >> /tmp/e2e-programs/log\nexec ssh "$@"')
    job = Job("-np", 2, "-H", "a:1,root@b:1", "--ssh-command", f"{folder}/own-ssh -q", "-p", 22, "hostname")
    job.ends_with(0)
    expect(sorted(job.out.split()) == ["[0]<stdout>:a", "[1]<stdout>:b"], job.describe())
    expect((folder / "log").read_text().count("used") == 2, "the command was not used")
    job.leaves_nothing()


@world()
def test_a_launch_agent_that_fails_says_why():
    stand_in("docker", 'echo "Error: No such container: $3" >&2; exit 1')
    job = Job("-np", 2, "-H", "a:1,b:1", "--launch-agent", "/tmp/e2e-programs/docker exec -i {host}", "true")
    job.ends_with(2)
    expect(all(f"No such container: {name}" in job.err for name in "ab"), job.describe())


if __name__ == "__main__":
    main()
