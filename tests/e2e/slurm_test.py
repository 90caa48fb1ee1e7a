#!/usr/bin/python3 -B
"""Jobs under a real Slurm: the commands of its users, and the errors for commands that cannot work.
bootstrap_test.py tests each of Slurm's ways to start ranks."""

import json
import select
import shutil

from harness import *
from terminal import Screen

import slurm

RANK = WORKERS / "foreign_rank.py"


def on_cluster(*arguments):
    """Marks a test that runs on a Slurm cluster of hosts a and b, and passes the cluster to the test."""

    def mark(function):
        @world("a b", "--no-decoys", *arguments)
        def test():
            try:
                cluster = slurm.Cluster(["a", "b"])
            except slurm.Missing as missing:
                raise Skip(str(missing)) from None
            with cluster:
                function(cluster)

        test.__name__ = function.__name__
        return test

    return mark


def srun(cluster, *arguments, **more):
    return Job(
        *arguments,
        program=shutil.which("srun", path="/usr/bin"),
        environment=clean_environment(**cluster.environment),
        **more,
    )


@on_cluster()
def test_plain_srun_without_munge_says_what_to_use(cluster):
    job = srun(
        cluster,
        *"-N2 --ntasks-per-node=1 unshare --mount".split(),
        "sh",
        "-c",
        f"mount -t tmpfs none /run/munge && exec {PYTHON} {RANK}",
    )
    expect(job.wait() != 0, job.describe())
    expect("MUNGE" in job.err and "srun --mpi=pmix" in job.err, job.describe())
    expect("slurm-wlm-basic-plugins" in job.err, job.describe())


@on_cluster()
def test_horovodrun_whose_munge_is_down_says_so(cluster):
    job = salloc(
        cluster,
        *"-N2 --ntasks-per-node=1 unshare --mount".split(),
        "sh",
        "-c",
        f"mount -t tmpfs none /run/munge && exec {LAUNCHER} true",
    )
    expect(job.wait() == 2, job.describe())
    expect(
        re.search(
            r"horovodrun: host b: send agent: srun cannot reach MUNGE, which authenticates "
            r"Slurm's users, on the machine where horovodrun runs; start munged there "
            r"\(systemctl start munge\), or name hosts by -H to reach them by ssh; "
            r"srun printed: .*[Mm]unge",
            job.err,
        ),
        job.describe(),
    )


@on_cluster()
def test_steps_without_a_way_to_meet_name_the_plugin_that_is_missing(cluster):
    prefix = pathlib.Path("/etc/horovod")
    subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix], check=True, stdout=subprocess.DEVNULL)
    for plugin in (prefix / "lib/horovod/bootstraps").iterdir():
        plugin.unlink()
    cluster.environment["PYTHONPATH"] = str(prefix / "lib/python3/dist-packages")
    for kind, missing in (
        ("none", "use srun --mpi=pmix, which takes Slurm's mpi/pmix plugin"),
        ("pmi2", "takes a bootstrap plugin of Horovod's that cannot be used"),
    ):
        job = srun(cluster, f"--mpi={kind}", "-N2", "--ntasks-per-node=1", PYTHON, RANK)
        expect(job.wait() != 0, job.describe())
        for rank in range(2):
            expect(re.search(f"started 2 tasks, of which this is {rank}, and .*{missing}", job.err), job.describe())


SAY = """
import os
import horovod.numpy as hvd
try:
    hvd.init()
    said = "not refused"
except Exception as refusal:
    said = "refused: " + str(refusal).strip().splitlines()[0]
os.write(1, f"{said}\\n".encode())  # whole
"""


@on_cluster()
def test_variables_by_hand_that_disagree_with_the_step(cluster):
    for kind in ("pmix", "pmi2", "none"):
        for rank, size in (("0", 2), ("0", 3), ("$((1 - SLURM_PROCID))", 2)):
            job = srun(
                cluster,
                f"--mpi={kind}",
                "-N2",
                "--ntasks-per-node=1",
                "sh",
                "-c",
                f'HOROVOD_RANK={rank} HOROVOD_SIZE={size} exec "$@"',
                "sh",
                PYTHON,
                "-c",
                SAY,
            )
            job.ends_with(0)
            for task in range(2):
                by_hand = 1 - task if "SLURM" in rank else 0
                words = (
                    f"HOROVOD_RANK and HOROVOD_SIZE say rank {by_hand} of {size}, but .* says rank {task} of 2"
                    if (by_hand, size) != (task, 2)
                    else f"HOROVOD_SIZE is {size}, but"
                )
                expect(
                    len(re.findall(f"refused: {words}.*unset HOROVOD_RANK and HOROVOD_SIZE", job.out)) == 1,
                    f"{words!r} is missing\n{job.describe()}",
                )


@on_cluster()
def test_one_task_and_a_script_of_sbatch_are_worlds_of_one(cluster):
    job = srun(cluster, "-n1", PYTHON, RANK)
    job.ends_with(0)
    expect("rank 0 of 1, local 0 of 1, cross 0 of 1, sum 1" in job.out, job.describe())
    out = sbatch(cluster, "-N2", "--ntasks-per-node=2", script=f"{PYTHON} {RANK}")
    expect("rank 0 of 1" in out, out)


@on_cluster()
def test_tasks_in_an_arbitrary_order_of_nodes_are_one_world(cluster):
    """Slurm sorts the nodes of such a step, and task 0 is not on the first node."""
    for kind in ("pmix", "pmi2", "none"):
        job = srun(cluster, f"--mpi={kind}", "-n3", "--distribution=arbitrary", "-w", "b,a,a", PYTHON, RANK)
        job.ends_with(0)
        for rank, node in enumerate("baa"):
            expect(re.search(f"rank {rank} of 3, .* sum 6 on {node}", job.out), job.describe())


@on_cluster()
def test_ranks_of_two_nodes_wait_no_longer_than_allowed_for_one_that_never_comes(cluster):
    cluster.environment["HOROVOD_INIT_TIMEOUT"] = "3"
    jobs = [
        srun(
            cluster,
            f"--mpi={kind}",
            "-N2",
            "--ntasks-per-node=2",
            *("sh", "-c", 'test $SLURM_PROCID = 3 || exec "$@"', "sh", PYTHON, RANK),
        )
        for kind in ("pmix", "pmi2", "none")
    ]
    for job in jobs:
        expect(job.wait() != 0, job.describe())
        expect(len(re.findall(r"Error: .* within \d s.*HOROVOD_INIT_TIMEOUT", job.err)) == 3, job.describe())


@on_cluster()
def test_the_parts_of_a_heterogeneous_job_are_one_world(cluster):
    for kind in ("pmix", "pmi2", "none"):
        job = srun(cluster, f"--mpi={kind}", "-n1", PYTHON, RANK, ":", "-n2", PYTHON, RANK)
        job.ends_with(0)
        for rank in range(3):
            expect(re.search(f"rank {rank} of 3, .* sum 6 on", job.out), job.describe())


def type_into_shell(cluster, *arguments, lines):
    """Returns the output of a terminal after these lines are typed into the shell of srun --pty."""
    leader, follower = os.openpty()
    environment = clean_environment(PS1="ready> ", **cluster.environment)
    shell = subprocess.Popen(
        ["/usr/bin/srun", *map(str, arguments), "--pty", "bash", "--norc"],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=environment,
        cwd=ROOT,
        start_new_session=True,
    )
    os.close(follower)
    said, typed, deadline = "", [], time.monotonic() + 120
    while time.monotonic() < deadline and select.select([leader], [], [], 120)[0]:
        try:
            said += os.read(leader, 4096).decode(errors="replace")
        except OSError:
            break  # the shell has ended
        if said.count("ready> ") > len(typed) and len(typed) <= len(lines):
            typed.append((*lines, "exit")[len(typed)])
            os.write(leader, f"{typed[-1]}\n".encode())
    os.close(leader)
    shell.wait(LONG)
    return said


@on_cluster()
def test_in_a_shell_of_srun_a_program_is_alone_and_launchers_start_several(cluster):
    says = pathlib.Path("/etc/says.py")
    says.write_text(
        "import os\nimport horovod.numpy as hvd\nhvd.init()\n"
        "os.write(1, f'rank {hvd.rank()} of {hvd.size()}\\n'.encode())\nhvd.shutdown()\n"
    )
    for kind in ("none", "pmix", "pmi2"):
        said = type_into_shell(
            cluster,
            f"--mpi={kind}",
            "-n",
            3,
            lines=(f"{PYTHON} {says}", f"{LAUNCHER} {PYTHON} {says}", f"srun --overlap -n2 {PYTHON} {says}"),
        )
        expect(len(re.findall("a single-process job: of the 3 tasks of srun --pty only", said)) == 1, said)
        for size in (1, 3, 2):
            ranks = re.findall(rf"rank (\d) of {size}\b", said)
            expect(sorted(ranks) == [str(rank) for rank in range(size)], said)


@on_cluster()
def test_a_program_in_a_terminal_of_a_shell_of_srun_is_alone(cluster):
    """tmux, screen and script make such terminals; a shell is the leader of each."""
    says = "import horovod.numpy as h; h.init(); print('rank', h.rank(), 'of', h.size()); h.shutdown()"
    said = type_into_shell(
        cluster,
        "--mpi=pmix",
        "-n",
        3,
        lines=(
            "script -qc 'exec bash --norc -i' /dev/null",
            f'{PYTHON} -c "{says}"',
            "exit",
            # Without a shell, the program in the terminal is a task of the step.
            f"script -qc 'HOROVOD_INIT_TIMEOUT=2 exec {PYTHON} -c \"{says}\"' /dev/null",
        ),
    )
    expect(len(re.findall("a single-process job: of the 3 tasks of srun --pty only", said)) == 1, said)
    expect(len(re.findall("rank 0 of 1", said)) == 1, said)
    expect("within 2 s, which HOROVOD_INIT_TIMEOUT may raise" in said, said)


@on_cluster()
def test_a_hydra_in_a_step_of_slurm_counts_before_slurm(cluster):
    hydra = shutil.which("mpiexec.hydra", path="/usr/bin")
    if hydra is None:
        raise Skip("there is no mpiexec.hydra: packaging/packages-test.txt names its package")
    job = srun(cluster, "--mpi=pmix", "-n1", hydra, "-launcher", "fork", "-np", 2, PYTHON, RANK)
    job.ends_with(0)
    expect("rank 0 of 2" in job.out and "rank 1 of 2" in job.out, job.describe())


@on_cluster()
def test_a_rank_that_fails_ends_the_step_with_its_reason(cluster):
    job = srun(cluster, "--mpi=pmix", "--kill-on-bad-exit=1", "-N2", "--ntasks-per-node=2", PYTHON, RANK, "fail", 3)
    expect(job.wait() != 0, job.describe())
    expect("task 3: Exited with exit code 7" in job.err, job.describe())
    job.leaves_nothing()


def sbatch(cluster, *arguments, script):
    """Returns the output of the job's script on both streams."""
    folder = scratch("/etc")
    (folder / "job.sh").write_text(f"#!/bin/bash -e\n{script}\n")
    done = subprocess.run(
        ["/usr/bin/sbatch", "--wait", "-o", folder / "out", *map(str, arguments), folder / "job.sh"],
        env=clean_environment(**cluster.environment),
        cwd=ROOT,
        timeout=240,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    out = (folder / "out").read_text() if (folder / "out").exists() else ""
    expect(done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{out}")
    return out


@on_cluster()
def test_an_sbatch_script_of_the_usual_form(cluster):
    out = sbatch(
        cluster,
        "--nodes=2",
        "--ntasks-per-node=2",
        script=f"N=$SLURM_JOB_NUM_NODES\necho nodes $N\nsrun --mpi=pmix {PYTHON} {RANK}",
    )
    expect("nodes 2" in out and out.count("of 4,") == 4 and out.count("sum 10") == 4, out)


@on_cluster()
def test_horovodrun_in_an_allocation_finds_its_hosts(cluster):
    out = sbatch(cluster, "--nodes=2", "--ntasks-per-node=2", script=f"{LAUNCHER} {PYTHON} {RANK}")
    expect(out.count("of 4,") == 4 and out.count("sum 10") == 4, out)


@on_cluster()
def test_a_detached_job_of_a_script_ends_with_it_and_says_so(cluster):
    begins = f"{LAUNCHER} --detach --name behind {PYTHON} -c 'import time; print(1, flush=True); time.sleep({{}})'"
    out = sbatch(cluster, "-N2", "--ntasks-per-node=1", script=f"{begins.format(5)}\n{LAUNCHER} wait behind")
    said = r"the job goes on until the end of the script of Slurm, which may wait for it by horovodrun wait \d+; "
    expect(re.search(said, out), out)
    sbatch(cluster, "-N2", "--ntasks-per-node=1", script=begins.format(1000))
    cause = "the script of Slurm has ended, and this job with it; let the script wait for the job by horovodrun wait"
    wait_until(
        lambda: re.search(rf"ended, exit code \d+: {cause}", ask("ps", "-a").stdout), 60, lambda: ask("ps", "-a")
    )
    logs = ask("logs", "behind").stderr
    expect(f"horovodrun: {cause}" in logs and "rank" not in logs and "host" not in logs, logs)
    expect(ask("wait", "behind").returncode not in (0, 2), "another exit code")


# Prints the processes above a rank, and the step variables of its agent.
ABOVE = """
import os
pid, names = os.getppid(), []
while pid > 1:
    fields = open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()
    names.append(open(f'/proc/{pid}/comm').read().strip())
    pid = int(fields[1])
print('node', os.environ['SLURMD_NODENAME'], 'in a step:', 'slurmstepd' in names, 'task:',
      os.environ.get('SLURM_PROCID'), 'job', os.environ['SLURM_JOB_ID'], flush=True)
"""


def salloc(cluster, *arguments):
    return Job("--quiet", *arguments, program="/usr/bin/salloc", environment=clean_environment(**cluster.environment))


@on_cluster()
def test_agents_are_steps_of_the_allocation(cluster):
    job = salloc(cluster, "-N2", "--ntasks-per-node=2", LAUNCHER, PYTHON, "-c", ABOVE)
    job.ends_with(0)
    for node in "ab":
        expect(len(re.findall(rf"node {node} in a step: True task: \d job \d", job.out)) == 2, job.describe())
    job = salloc(cluster, "-N2", "--ntasks-per-node=4", LAUNCHER, "-np", 6, PYTHON, RANK)
    job.ends_with(0)
    expect(job.out.count("of 6,") == 6 and job.out.count("sum 21") == 6, job.describe())
    job = srun(cluster, "-N2", "-n", 4, LAUNCHER, PYTHON, RANK)
    expect(job.wait() != 0, job.describe())
    expect("srun has started horovodrun 4 times" in job.err, job.describe())


# PyTorch Lightning, ignite and JAX find their ranks by these variables; without SLURM_NTASKS, by others.
PLACE = (
    "sh",
    "-c",
    "echo place ${SLURM_PROCID-none} ${SLURM_LOCALID-none} ${SLURM_NODEID-none} ${SLURM_NTASKS-none} "
    "${SLURM_NTASKS_PER_NODE-none} $SLURM_JOB_NUM_NODES ${SLURM_STEP_NODELIST-none} ${SLURM_STEP_NUM_TASKS-none} "
    '$(test "$SLURM_LAUNCH_NODE_IPADDR" = "$MASTER_ADDR" && echo met) $(test "$SLURM_TASK_PID" = $$ && echo pid)',
)


@on_cluster()
def test_ranks_find_their_places_in_the_allocation(cluster):
    def places(*words):
        job = salloc(cluster, "-N2", "--ntasks-per-node=4", *words, *PLACE)
        job.ends_with(0)
        return sorted(place.strip() for place in re.findall("place (.*)", job.out))

    unequal = [f"{rank} {rank % 4} {rank // 4} 6 none 2 a,b none met pid" for rank in range(6)]
    expect((found := places(LAUNCHER, "-np", 6)) == unequal, found)
    # Rank 0's host is the first host, also without steps of Slurm, and if the launcher itself is a task of a step.
    reversed_hosts = ["0 0 0 2 1 2 b,a none met pid", "1 0 1 2 1 2 b,a none met pid"]
    expect((found := places(LAUNCHER, "-H", "b:1,a:1")) == reversed_hosts, found)
    expect((found := places(LAUNCHER, "-p", 22, "-H", "b:1,a:1")) == reversed_hosts, found)
    inside = places("/usr/bin/srun", "-N1", "-n1", "-w", "a", LAUNCHER, "-np", 2, "-H", "a:2")
    expect(inside == ["0 0 0 2 2 1 a none met pid", "1 1 0 2 2 1 a none met pid"], inside)
    # The ranks of an elastic job change.
    changing = places(LAUNCHER, "--min-np", 2, "--max-np", 2)
    expect(changing == 2 * ["none none none none none 2 none none"], changing)


def listed(cluster, *arguments):
    """Returns the numbers of jobs that squeue prints."""
    command = ["/usr/bin/squeue", "-h", "-o", "%A", *arguments]
    return subprocess.check_output(command, text=True, env=clean_environment(**cluster.environment)).strip()


@on_cluster()
def test_the_doctor_examines_the_nodes_of_an_allocation(cluster):
    job = salloc(cluster, "-N2", "--ntasks-per-node=2", LAUNCHER, "doctor", "--json")
    job.ends_with(0)
    answer = json.loads(job.out)
    expect(len(answer["hosts"]) == 2 and [pair["send"] > 1e6 for pair in answer["pairs"]] == [True], job.describe())


@on_cluster()
def test_the_number_of_a_job_alone_reaches_its_nodes(cluster):
    code = "printenv SLURMD_NODENAME || echo here"
    salloc(cluster, "--no-shell", "-J", "held", "-N2", "--ntasks-per-node=1").ends_with(0)
    number = listed(cluster, "-n", "held")
    expect(number.isdigit(), number)
    environment = clean_environment(**cluster.environment, SLURM_JOB_ID=number)
    job = Job("-np", 2, "sh", "-c", code, environment=environment)
    job.ends_with(0)
    expect(sorted(re.findall(r"<stdout>:(\w+)", job.out)) == ["a", "b"], job.describe())
    subprocess.run(["/usr/bin/scancel", number], check=True, env=clean_environment(**cluster.environment))
    wait_until(lambda: not listed(cluster, "-n", "held"), 60, "the end of the job")
    job = Job("-np", 2, "sh", "-c", code, environment=environment)
    job.ends_with(0)
    expect(job.out.count("here") == 2, job.describe())
    said = f"Slurm job {number}: SLURM_JOB_NODELIST is not set, and scontrol calls it CANCELLED, so all ranks run"
    expect(len(job.err.splitlines()) == 1 and said in job.err, job.describe())
    job.leaves_nothing()


@on_cluster()
def test_an_allocation_that_is_cancelled_leaves_nothing(cluster):
    before = Inventory()
    job = salloc(cluster, "-J", "gone", "-N2", "--ntasks-per-node=2", LAUNCHER, PYTHON, RANK, "sleep")
    job.wait_for("asleep", 4)
    subprocess.run(["/usr/bin/scancel", "-n", "gone"], check=True, env=clean_environment(**cluster.environment))
    job.wait()
    before.wait_for_ends(60)


# A rank that saves its state at signals, and prints each signal that it gets.
SAVES = """
import os, signal, sys, time
def save(number, frame):
    os.write(1, f"rank {os.environ['HOROVOD_RANK']} got {signal.Signals(number).name}\\n".encode())
    if number == signal.SIGTERM:
        time.sleep(1)
        os.write(1, f"rank {os.environ['HOROVOD_RANK']} saved\\n".encode())
        sys.exit(0)
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, save)
os.write(1, b"ready\\n")
while True:
    time.sleep(0.02)
"""


def submit_saves(cluster, first=""):
    """Submits a job of four ranks that save, and returns the file of its output."""
    folder = scratch("/etc")
    (folder / "rank.py").write_text(SAVES)
    (folder / "job.sh").write_text(f"#!/bin/bash\n{first}{LAUNCHER} --kill-grace 10 {PYTHON} {folder}/rank.py\n")
    out = folder / "out"
    subprocess.run(
        ["/usr/bin/sbatch", "-J", "saves", "-N2", "--ntasks-per-node=2", "-o", out, folder / "job.sh"],
        check=True,
        env=clean_environment(**cluster.environment),
    )
    return out


def scancel(cluster, *arguments):
    subprocess.run(
        ["/usr/bin/scancel", *arguments, "-n", "saves"], check=True, env=clean_environment(**cluster.environment)
    )


@on_cluster()
def test_a_signal_to_the_steps_reaches_each_rank_once_and_scancel_shows_their_last_lines(cluster):
    before = Inventory()
    out = submit_saves(cluster, "trap : USR1\n")

    def shows(words, count):
        wait_until(
            lambda: out.exists() and len(re.findall(words, out.read_text())) >= count,
            60,
            lambda: f"{count} x {words!r}\n{out.exists() and out.read_text()}",
        )

    shows("ready", 4)
    scancel(cluster, "-s", "USR1")  # signals only the steps, like sbatch --signal=USR1@50
    for rank in range(4):
        shows(f"rank {rank} got SIGUSR1", 1)
    scancel(cluster, "--full", "-s", "USR1")  # signals the script, the launcher and its children
    for rank in range(4):
        shows(f"rank {rank} got SIGUSR1", 2)
    scancel(cluster)
    before.wait_for_ends(60)
    text = out.read_text()
    for rank in range(4):
        said = re.findall(rf"\[{rank}\]<stdout>:(.*)", text)
        expect(
            said == ["ready", *2 * [f"rank {rank} got SIGUSR1"], f"rank {rank} got SIGTERM", f"rank {rank} saved"], text
        )
    expect("horovodrun: ended by SIGTERM" in text and "lost" not in text, text)
    expect("horovodrun: --kill-grace is 4 s and not 10 s: Slurm kills a step 5 s after its SIGTERM" in text, text)


@on_cluster()
def test_a_sigterm_of_slurm_to_the_steps_is_named(cluster):
    before = Inventory()
    out = submit_saves(cluster)
    wait_until(lambda: out.exists() and out.read_text().count("ready") == 4, 60, "4 ranks")
    scancel(cluster, "-s", "TERM")
    before.wait_for_ends(60)
    text = out.read_text()
    expect(
        re.search(r"horovodrun: host \w+ was lost: Slurm has sent SIGTERM to every process of its job \d+ there", text),
        text,
    )
    expect("ended by signal" not in text and len(re.findall(r"rank \d saved", text)) == 4, text)


@on_cluster()
def test_commands_of_a_login_node_reach_a_job_in_an_allocation(cluster):
    """The login node is the controller's machine, and no launcher runs there."""
    environment = clean_environment(**cluster.environment)
    before = Inventory()
    waits = f"{PYTHON} -c 'import time, horovod.numpy as hvd; hvd.init(); time.sleep(600)'"
    script = scratch("/etc") / "far.sh"
    script.write_text(f"#!/bin/bash\nexec {LAUNCHER} --name far {waits}\n")
    submits = ["/usr/bin/sbatch", "-J", "queued", "-N2", "--ntasks-per-node=1", "-o", "/dev/null", script]
    subprocess.run(submits, env=environment, check=True, stdout=subprocess.DEVNULL)

    def say(*words, code=0):
        job = Job(*words, environment=environment)
        job.ends_with(code)
        return job

    wait_until(lambda: "running" in ask("ps", "-a").stdout, 60, lambda: ask("ps", "-a"))
    far = json.loads(ask("ps", "-a", "--json").stdout)["id"]
    expect(re.fullmatch(r"a:\d+", far), far)
    wait_until(lambda: say("ps").out.count("in_job") == 2, 60, lambda: say("ps").describe())
    number = listed(cluster, "-n", "queued")
    expect(re.search(rf"^{far} +far +{number} ", ask("ps", "-a").stdout, re.M), lambda: ask("ps", "-a"))
    for word in ("far", far, number):
        expect(json.loads(say("ps", "--json", word).out)["name"] == "far", word)
        expect(say("stack", word).out.count("in <module>") == 2, lambda: say("stack", word).describe())
        expect("\n2/2 ranks" in say("top", "--once", word).out, word)
        ran = say("exec", word, "--rank", 1, "sh", "-c", "echo $HOROVOD_RANK; uname -n; exit 7", code=7)
        expect(ran.out.split() == ["1", "b"], ran.describe())
    expect(re.search("horovod_job_processes.* 2$", say("metrics").out, re.M), "metrics")
    expect("number of ranks of this job is constant" in say("resize", 3, code=2).err, "resize")
    top = Screen(LAUNCHER, "top", **cluster.environment)
    top.sees(r"^2/2 ranks")
    top.type("q")
    expect(top.end() == 0, top.text)
    expect(json.loads(say("ps", "--json", "queued").out)["name"] == "far", "the name that squeue prints")
    say("stop", number)
    ended = say("stack", "far", code=2)
    expect(rf"job far ({far}) does not run; horovodrun ps -a shows how it has ended" in ended.err, ended.describe())
    before.wait_for_ends()


@on_cluster()
def test_a_node_that_dies_ends_the_job_with_its_name(cluster):
    job = salloc(cluster, "-N2", "--ntasks-per-node=1", LAUNCHER, PYTHON, RANK, "sleep")
    job.wait_for("asleep", 2, 240)
    begun = time.monotonic()
    faults.crash("b")
    wait_until(lambda: any("host b" in sentence for sentence in job.said()), 60, job.describe)
    print(f"named after {time.monotonic() - begun:.1f} s")
    expect("cpu binding" not in job.err, job.describe())
    expect(job.wait() != 0, job.describe())


@on_cluster()
def test_an_elastic_job_goes_on_without_a_node_that_dies(cluster):
    job = salloc(
        cluster,
        "--no-kill",
        "-N2",
        "--ntasks-per-node=2",
        LAUNCHER,
        *"-np 4 --min-np 2".split(),
        PYTHON,
        WORKERS / "elastic_rank.py",
        100,
    )
    job.wait_for(r"\d+ begins 0 \d+/4 ", 4, 240)
    faults.crash("b")
    job.wait_for(r"\d+ begins 1 \d+/2 ", 2, 60)
    job.ends_with(0)
    expect(len(re.findall(r"ends with \d+ in 1", job.out)) == 2, job.describe())
    expect(any("host b was lost" in sentence for sentence in job.said()), job.describe())


def slurm_command(cluster, *words):
    return subprocess.run(
        [str(word) for word in words],
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        env=clean_environment(**cluster.environment),
    ).stdout.strip()


# The command of docs/elastic.md.
NODES = 'scontrol show hostnames "$(squeue --noheader --job=$SLURM_JOB_ID --format=%N)"'


def elastic_in_allocation(cluster, steps):
    job = salloc(
        cluster,
        "--job-name=elastic",
        "--no-kill",
        "-N2",
        "--ntasks-per-node=2",
        LAUNCHER,
        *"-np 4 --min-np 2 --slots 2".split(),
        "--host-discovery-script",
        NODES,
        PYTHON,
        WORKERS / "elastic_rank.py",
        steps,
    )
    job.wait_for(r"\d+ begins 0 \d+/4 ", 4, 240)
    return job, slurm_command(cluster, "/usr/bin/squeue", "--noheader", "--name=elastic", "--format=%A")


@on_cluster()
def test_an_elastic_job_loses_nothing_when_a_node_is_removed_and_given_back(cluster):
    job, number = elastic_in_allocation(cluster, 300)
    done = ask("remove", "b")
    expect(done.returncode == 0, done)
    job.wait_for(r"\d+ begins 1 \d+/2 ", 2, 60)
    slurm_command(cluster, "/usr/bin/scontrol", "update", f"JobId={number}", "NodeList=a")
    job.ends_with(0)
    step = int(re.search(r"\d begins 1 \d/2 at (\d+)", job.out)[1])
    expect(re.findall(r"ends with (\d+) in 1", job.out) == [str(step * 4 + (300 - step) * 2)] * 2, job.describe())
    expect(not any("lost" in sentence for sentence in job.said()), job.describe())


@on_cluster()
def test_an_elastic_job_goes_on_when_slurm_takes_a_node(cluster):
    job, number = elastic_in_allocation(cluster, 300)
    slurm_command(cluster, "/usr/bin/scontrol", "update", f"JobId={number}", "NodeList=a")
    job.wait_for(r"\d+ begins \d \d+/2 ", 2, 60)
    job.ends_with(0)
    expect(len(re.findall(r"ends with \d+ in", job.out)) == 2, job.describe())


@on_cluster()
def test_a_node_that_joins_the_allocation_is_reached_by_a_step(cluster):
    job = salloc(
        cluster,
        *"--job-name=elastic --no-kill -N1 -w a".split(),
        "--ntasks-per-node=1",
        LAUNCHER,
        *"-np 1 --min-np 1 --slots 1".split(),
        "--host-discovery-script",
        NODES,
        PYTHON,
        WORKERS / "elastic_rank.py",
        300,
    )
    job.wait_for(r"\d+ begins 0 \d+/1 ", 1, 240)
    number = slurm_command(cluster, "/usr/bin/squeue", "--noheader", "--name=elastic", "--format=%A")
    slurm_command(
        cluster,
        *"/usr/bin/salloc --quiet -N1 -w b".split(),
        f"--dependency=expand:{number}",
        "sh",
        "-c",
        "cd /tmp && scontrol update JobId=$SLURM_JOB_ID NumNodes=0",
    )
    job.wait_for(r"\d+ begins \d \d+/2 ", 2, 60)
    nodes = slurm_command(cluster, "/usr/bin/squeue", "--noheader", "--steps", f"--jobs={number}", "--format=%N")
    expect("b" in nodes.split(), f"no step on node b: {nodes}\n{job.describe()}")
    job.ends_with(0)


@on_cluster()
def test_an_elastic_job_goes_on_when_a_node_is_set_down(cluster):
    job, number = elastic_in_allocation(cluster, 300)
    slurm_command(cluster, "/usr/bin/scontrol", "update", "NodeName=b", "State=DOWN", "Reason=test")
    job.wait_for(r"\d+ begins \d \d+/2 ", 2, 60)
    job.ends_with(0)
    expect(len(re.findall(r"ends with \d+ in", job.out)) == 2, job.describe())


@on_cluster()
def test_an_elastic_job_goes_on_when_the_step_of_a_node_is_cancelled(cluster):
    job, number = elastic_in_allocation(cluster, 300)
    steps = slurm_command(
        cluster, "/usr/bin/squeue", "--noheader", "--steps", f"--jobs={number}", "--format=%i %N"
    ).splitlines()
    of_b = [line.split()[0] for line in steps if line.split()[1:] == ["b"]]
    expect(len(of_b) == 1, f"one step on node b expected: {steps}")
    slurm_command(cluster, "/usr/bin/scancel", "--ctld", "--signal=TERM", of_b[0])
    job.wait_for(r"\d+ begins \d \d+/2 ", 2, 60)
    job.ends_with(0)
    expect(len(re.findall(r"ends with \d+ in", job.out)) == 2, job.describe())


@on_cluster()
def test_scancel_leaves_nothing(cluster):
    before = Inventory()
    job = srun(cluster, "--mpi=pmix", "-N2", "--ntasks-per-node=2", PYTHON, RANK, "sleep")
    job.wait_for("asleep", 4)
    subprocess.run(["/usr/bin/scancel", "-n", "python3"], check=True, env=clean_environment(**cluster.environment))
    job.wait()
    before.wait_for_ends(60)


if __name__ == "__main__":
    main()
