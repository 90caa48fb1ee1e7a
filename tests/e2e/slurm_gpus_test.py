#!/usr/bin/python3 -B
"""Jobs of Slurm on nodes with GPUs: each rank sees the job's GPUs on its node, however they were requested, and the
launcher's SLURM_* variables except those that describe the launcher's node. Also heterogeneous jobs, and slots."""

import shlex

from harness import *

import network
import slurm

PLACE = pathlib.Path("/etc/of-root")
# A rank prints a line of words: rank, host, and its variables of Slurm and of GPUs.
RANK = "echo rank=$HOROVOD_RANK host=$(hostname) $(env | grep -E '^(SLURM|CUDA_VISIBLE)[A-Z_]*=[^ ]*$')"
# The variables of Slurm that describe a rank or a node; other variables have the same value on all ranks.
OF_THE_RANK = {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS", "SLURM_TASK_PID"}
OF_THE_NODE = {
    "SLURM_JOB_GPUS",
    "SLURM_STEP_GPUS",
    "SLURM_GPUS_ON_NODE",
    "SLURM_SHARDS_ON_NODE",
    "SLURM_CPUS_ON_NODE",
    "SLURM_TOPOLOGY_ADDR",
    "SLURM_TOPOLOGY_ADDR_PATTERN",
    "SLURMD_NODENAME",
}

# The user's request, the command in the script, and the indices of the GPUs that ranks see on each node.
ALL = "0,1,2,3"
FORMS = [
    ("--gres=gpu:4", "horovodrun", (ALL, ALL)),
    ("--gpus-per-node=4 --ntasks-per-node=4", "horovodrun", (ALL, ALL)),
    ("--gpus-per-node=4 --ntasks-per-node=1", "horovodrun -np 8", (ALL, ALL)),
    ("--gpus=8 --ntasks-per-node=4", "horovodrun", (ALL, ALL)),
    ("--gpus=8 --ntasks=8", "horovodrun", (ALL, ALL)),
    ("--gpus-per-socket=4 --sockets-per-node=1 --ntasks-per-node=4", "horovodrun", (ALL, ALL)),
    ("--gpus=8 --ntasks-per-gpu=1", "horovodrun", (ALL, ALL)),
    ("--gpus-per-node=4 --ntasks-per-gpu=1", "horovodrun", (ALL, ALL)),
    ("--gpus-per-task=1 --ntasks-per-node=4", "horovodrun", (ALL, ALL)),
    ("--exclusive --ntasks-per-node=2", "horovodrun", (ALL, ALL)),
    ("--exclusive --gpus-per-node=1 --ntasks-per-node=2", "horovodrun", (ALL, ALL)),
    ("--gres=gpu:a100:1,gpu:h100:1 --ntasks-per-node=2", "horovodrun", ("0,2", "0,2")),
    ("--gres=shard:2 --ntasks-per-node=1", "horovodrun", ("0", "0")),
    ("--gpus=6 --ntasks=6", "horovodrun", None),
    ("--gpus-per-node=4 --ntasks-per-node=2", "srun --overlap -N1 -n1 --gpus-per-node=1 horovodrun -np 4", (ALL, ALL)),
    ("--gpus-per-node=4", "srun --overlap -N1 -n1 --gpus-per-node=1 horovodrun", (ALL, ALL)),
]


def cluster():
    try:
        return slurm.Cluster(["a", "b"], gpus=4, types=("a100", "h100"), shards=8)
    except slurm.Missing as missing:
        raise Skip(str(missing)) from None


def batch(made, options, command, then=""):
    """Runs a script with sbatch, and returns its output."""
    PLACE.mkdir(0o755, exist_ok=True)
    out = PLACE / "job.out"
    out.unlink(missing_ok=True)
    script = PLACE / "job.sh"
    script.write_text(f"#!/bin/bash\nexport PATH={LAUNCHER.parent}:$PATH\n{command}\n{then}\n")
    done = subprocess.run(
        ["sbatch", "--wait", "-o", out, "-t5", *shlex.split(options), script],
        env=clean_environment(**made.environment),
        cwd=PLACE,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
        check=False,
    )
    text = out.read_text() if out.exists() else ""
    expect(done.returncode == 0, f"sbatch {options}: {command}\n{done.stdout}\n{text}")
    return text


def ranks_in(text):
    lines = [line[line.index("rank=") :] for line in text.splitlines() if "rank=" in line]
    found = [dict(word.partition("=")[::2] for word in line.split()) for line in lines]
    return sorted(found, key=lambda each: int(each["rank"]))


def gpus_by_node(text):
    """Returns the indices that `scontrol show job -d` prints for each node."""
    found = {}
    for names, resources in re.findall(r"^ *Nodes=(\S+) .*GRES=(\S+)", text, re.M):
        indices = []
        for part in re.findall(r"gpu[^(]*\(IDX:([^)]*)\)", resources):
            for piece in part.split(","):
                first, _, last = piece.partition("-")
                if first:
                    indices += range(int(first), int(last or first) + 1)
        for name in ("a", "b"):
            if re.search(rf"\b{name}\b", names) or re.fullmatch(r"\[?a-b\]?", names):
                found[name] = ",".join(map(str, sorted(indices)))
    return found


def check_form(made, options, command, wanted):
    text = batch(made, f"-N2 {options}", f"{command} sh -c {shlex.quote(RANK)}", "scontrol show job -d $SLURM_JOB_ID")
    ranks = ranks_in(text)
    place = f"{options}: {command}\n{text}"
    expect({each["host"] for each in ranks} == {"a", "b"}, place)
    given = gpus_by_node(text)
    shared = {name for each in ranks for name in each if name.startswith(("SLURM_", "SLURMD_"))}
    shared -= OF_THE_NODE | OF_THE_RANK
    expect({"SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_TASKS_PER_NODE"} <= shared, place)
    for name in shared:
        expect(all(each.get(name) == ranks[0].get(name) for each in ranks), f"{name} differs: {place}")
    for each in ranks:
        seen = each["CUDA_VISIBLE_DEVICES"]
        if wanted:
            expect(seen == wanted["ab".index(each["host"])], place)
        else:
            expect(seen == given[each["host"]], place)
        if "shard" not in options:
            expect(each["SLURM_JOB_GPUS"] == seen and each.get("SLURM_STEP_GPUS", seen) == seen, place)
            expect(each["SLURM_GPUS_ON_NODE"] == str(len(seen.split(","))), place)
        for name in ("SLURMD_NODENAME", "SLURM_TOPOLOGY_ADDR"):
            expect(each[name] == each["host"], f"{name}: {place}")
    # The agent of node b is a step.
    expect("srun" in command or all("SLURM_STEP_GPUS" in each for each in ranks if each["host"] == "b"), place)
    seen = {each["host"]: each["CUDA_VISIBLE_DEVICES"] for each in ranks}
    counts = [sum(each["host"] == name for each in ranks) for name in "ab"]
    return f"| `{options}` | `{command}` |", f"{counts[0]} + {counts[1]}", f"| {seen['a']} | {seen['b']} |"


def is_in_table(lines, row, version):
    """Slurm itself places tasks of some requests: the cell of ranks then names the version with another placement."""
    request, ranks, gpus = row
    cells = [line[len(request) : -len(gpus)] for line in lines if line.startswith(request) and line.endswith(gpus)]
    if not cells:
        return False
    other = re.search(rf"{re.escape(version)}: (\d \+ \d)", cells[0])
    return (other or re.search(r"(\d \+ \d)", cells[0]))[1] == ranks


@world("a b", "--no-decoys")
def test_ranks_see_the_gpus_of_the_job_on_their_node():
    with cluster() as made:
        rows = [check_form(made, *form) for form in FORMS]
        version = (
            run_to_end(["sinfo", "--version"], env=clean_environment(**made.environment), check=True)
            .stdout.split()[-1]
            .rpartition(".")[0]
        )
    table = "\n".join(map(" ".join, rows))
    print(f"Slurm {version}\n{table}")
    page = (ROOT / "docs/schedulers.md").read_text()
    expect(
        f" {version} " in page[page.index("Measured with Slurm") :], f"docs/schedulers.md does not name Slurm {version}"
    )
    for row in rows:
        expect(
            is_in_table(page.splitlines(), row, version),
            f"docs/schedulers.md lacks the line\n{' '.join(row)}\nof the table of Slurm {version}\n{table}",
        )


@world("a b", "--no-decoys")
def test_a_node_whose_free_gpus_have_other_indices():
    with cluster() as made:
        held = subprocess.Popen(
            ["srun", "-w", "b", "--gres=gpu:a100:2", "sleep", "600"],
            env=clean_environment(**made.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_until(
                lambda: (
                    "RUNNING"
                    in run_to_end(["squeue", "-h", "-o", "%T"], env=clean_environment(**made.environment)).stdout
                ),
                60,
                "the job that holds GPUs of node b",
            )
            row = check_form(made, "--gpus-per-node=2 --ntasks-per-node=2", "horovodrun", ("0,1", "2,3"))
            line = " ".join(row).replace("` | `", "`, while another job has GPUs 0 and 1 of node 2 | `", 1)
            expect(line in (ROOT / "docs/schedulers.md").read_text().splitlines(), f"docs/schedulers.md lacks\n{line}")
            text = batch(
                made,
                "-N2 --gpus-per-node=2 --ntasks-per-node=1",
                "horovodrun -np 2 --min-np 2 sh -c 'echo on $(hostname) $CUDA_VISIBLE_DEVICES.'",
            )
            expect(sorted(re.findall(r"on (.*)\.$", text, re.M)) == ["a 0,1", "b 2,3"], f"elastic: {text}")
        finally:
            held.terminate()
            held.wait()


@world("a b", "--no-decoys")
def test_the_components_of_a_heterogeneous_job_are_one_job():
    with cluster() as made:
        options = "-N1 -w a --ntasks-per-node=1 : -N1 -w b --ntasks-per-node=2 --gres=gpu:h100:1"
        text = batch(made, options, f"horovodrun sh -c {shlex.quote(RANK)}")
        ranks = ranks_in(text)
        expect([each["host"] for each in ranks] == ["a", "b", "b"], text)
        expect([each["CUDA_VISIBLE_DEVICES"] for each in ranks[1:]] == ["2", "2"], text)
        in_step = batch(made, options, f"srun --het-group=1 --overlap -n1 horovodrun sh -c {shlex.quote(RANK)}")
        expect([each["host"] for each in ranks_in(in_step)] == ["a", "b", "b"], f"in a step: {in_step}")
        silent = "mkdir bin; ln -s /bin/false bin/scontrol; export PATH=$PWD/bin:$PATH"
        text = batch(made, options, f"{silent}; horovodrun sh -c {shlex.quote(RANK)}")
        expect([each["host"] for each in ranks_in(text)] == ["a", "b", "b"], f"without scontrol: {text}")
        elastic = batch(made, options, "horovodrun -np 3 --min-np 3 sh -c 'echo on $(hostname)'")
        expect(sorted(re.findall(r"on ([ab])$", elastic, re.M)) == ["a", "b", "b"], elastic)


@world("a b", "--no-decoys")
def test_slots_of_nodes():
    count = "sh -c 'echo on $(hostname)'"
    with cluster() as made:

        def ranks(options, command):
            text = batch(made, options, f"{command} {count}")
            found = re.findall(r"on ([ab])$", text, re.M)
            return [found.count(name) for name in "ab"]

        for options, command, wanted in [
            ("-N2 --gpus-per-node=2", "horovodrun", [2, 2]),
            ("-N2 --gpus-per-node=2", "horovodrun -np 2", [1, 1]),
            ("-N2 --gpus-per-node=4", "horovodrun -np 6", [3, 3]),
            ("-N2 --ntasks-per-node=1 --gpus-per-node=4", "horovodrun", [1, 1]),
            ("-N2", "horovodrun", [1, 1]),
            ("-N2", "horovodrun --slots-per-host 3", [3, 3]),
            ("-N2 --ntasks-per-node=1 --cpus-per-task=4", "horovodrun", [1, 1]),
            ("-N1 -w a --gpus-per-node=4", "srun -n1 --gpus-per-node=4 horovodrun -np 4", [4, 0]),
            ("-N1 -w a --gpus-per-node=3", "srun -n1 --gpus-per-node=3 horovodrun", [3, 0]),
            ("-N1 -w a --gpus-per-node=3", "srun --ntasks-per-node=1 --gpus-per-node=3 horovodrun", [3, 0]),
            ("-N2 --exclusive", "horovodrun", [4, 4]),
            ("-N2 --overcommit --ntasks=6 --gpus-per-node=1", "horovodrun", [3, 3]),
        ]:
            got = ranks(options, command)
            expect(got == wanted, f"{options}: {command}: {got} and not {wanted}")
        text = batch(made, "-N2", f"horovodrun -np 9 {count} || echo refused with $?")
        expect("refused with 2" in text and "9 ranks are more than the " in text, text)
        expect("(Slurm: 1 task" in text and "--slots-per-host N" in text, text)


@world("a b", "--no-decoys")
def test_without_scontrol_one_line_says_so():
    with cluster() as made:
        text = batch(
            made,
            "-N2 --gpus-per-node=2 --ntasks-per-node=1",
            "mkdir bin; ln -s /bin/false bin/scontrol; export PATH=$PWD/bin:$PATH; "
            "horovodrun sh -c 'echo on $(hostname) $CUDA_VISIBLE_DEVICES.'",
        )
        expect(sorted(re.findall(r"on (.*)\.$", text, re.M)) == ["a 0,1", "b 0,1"], text)
        expect(text.count("Slurm's generic resources of each node are unknown (scontrol show job -d") == 1, text)


@world("a b", "--no-decoys")
def test_slurm_adds_no_node_to_a_job_with_gpus():
    """docs/elastic.md: a node that joins a running job has no generic resources."""
    clean = 'env -i PATH="$PATH" SLURM_CONF="$SLURM_CONF"'
    with cluster() as made:
        text = batch(
            made,
            "-N1 -w a --gpus-per-node=1",
            f"{clean} salloc --quiet -N1 -w b --gpus-per-node=1 "
            "--dependency=expand:$SLURM_JOB_ID sh -c "
            "'cd /tmp && scontrol update JobId=$SLURM_JOB_ID NumNodes=0' && echo grown || echo refused",
        )
        expect("refused" in text and "grown" not in text, text)


@world("a b", "--no-decoys")
def test_variables_that_srun_reads_change_no_step():
    with cluster() as made:
        for setting in (
            "SLURM_LABELIO=1",
            "SLURM_EXACT=1",
            "SLURM_DEBUG=3",
            "SLURM_STDINMODE=none",
            "SLURM_STDOUTMODE=/dev/null",
            "SLURM_NTASKS_PER_TRES=1",
            "SRUN_CPUS_PER_TASK=99",
        ):
            text = batch(
                made, "-N2 --ntasks-per-node=1", f"export {setting}; timeout 60 horovodrun sh -c 'echo on $(hostname)'"
            )
            expect(sorted(re.findall(r"on ([ab])$", text, re.M)) == ["a", "b"], f"{setting}: {text}")


@world("a b c", "--no-decoys")
def test_named_nodes_are_steps_and_other_hosts_are_reached_by_ssh():
    addresses = [network.address(index) for index in range(2)]
    with cluster() as made:
        text = batch(
            made,
            "-N2 --gpus-per-node=2",
            "horovodrun -H a:1,b:1,c:1 sh -c "
            "'echo on $(hostname) gpus $CUDA_VISIBLE_DEVICES.'; "
            f"horovodrun -H a:1,b.cluster:1,{addresses[0]}:1,{addresses[1]}:1,other@b:1,c:1 --dry-run true; "
            + "".join(
                f"horovodrun -H b:1 {flag} --dry-run true; "
                for flag in ("-p 22", "-i /etc/hosts", "--ssh-command ssh", "--launch-agent 'ssh {host}'")
            ),
        )
        expect(sorted(re.findall(r"on (.*)\.$", text, re.M)) == ["a gpus 0,1", "b gpus 0,1", "c gpus "], text)
        starts = re.findall(r'"host":"([^"]*)","start":"([a-z]*)","host_timeout":([0-9.]*),"lease":[0-9.]*', text)
        expect(
            starts
            == [
                ("a", "step", "12.0"),
                ("b.cluster", "step", "12.0"),
                *((address, "step", "12.0") for address in addresses),
                ("b", "ssh", "45.0"),
                ("c", "ssh", "45.0"),
                *2 * [("b", "ssh", "45.0")],
                *2 * [("b", "command", "45.0")],
            ],
            text,
        )


@world("a b", "--no-decoys")
def test_errors_name_the_cause_first():
    with cluster() as made:
        variables = clean_environment(
            **made.environment,
            SLURM_CLUSTER_NAME="hosts",
            SLURM_JOB_NODELIST="a,b",
            SLURM_TASKS_PER_NODE="1(x2)",
        )
        ended = subprocess.run(
            ["/usr/bin/salloc", "-Q", "printenv", "SLURM_JOB_ID"],
            check=True,
            text=True,
            stdout=subprocess.PIPE,
            env=clean_environment(**made.environment),
        ).stdout.strip()
        for job, words in (("99999", "Invalid job id"), (ended, "a job that has ended .*has expired")):
            done = run_to_end([LAUNCHER, "true"], stdin=subprocess.DEVNULL, env={**variables, "SLURM_JOB_ID": job})
            expect(done.returncode == 2, done.stderr)
            sentence = next(line for line in done.stderr.splitlines() if "host a: " in line)
            expect(re.search(words, sentence) and "--overlap" not in sentence, done.stderr)
            expect("SLURM_JOB_ID" in sentence and "-H" in sentence, done.stderr)
            expect("--overlap" not in done.stderr, done.stderr)
        # An unknown cause, and the command.
        text = batch(
            made,
            "-N2",
            "mkdir bin; printf '#!/bin/sh\\necho no step for you >&2; exit 3' >bin/srun; "
            "chmod +x bin/srun; export PATH=$PWD/bin:$PATH; horovodrun true; horovodrun --verbose true || :",
        )
        short, _, verbose = text.rpartition("no step for you")[0].partition("no step for you")
        expect("srun ended before the agent could start: " in short and "--overlap" not in short, text)
        expect("srun --overlap --whole" in verbose, text)


@world("a b", "--no-decoys")
def test_the_scripts_of_the_examples():
    with cluster() as made:
        for name, ranks in (("gpus_per_task", 4), ("one_task_per_node", 4), ("heterogeneous", 3)):
            out = PLACE / "out"
            PLACE.mkdir(0o755, exist_ok=True)
            environment = clean_environment(**made.environment)
            environment["PATH"] = f"{LAUNCHER.parent}:{environment['PATH']}"
            done = run_to_end(
                ["sbatch", "--wait", "-o", out, f"{name}.sh"],
                env=environment,
                cwd=ROOT / "examples/slurm",
                stdin=subprocess.DEVNULL,
                timeout=300,
            )
            text = out.read_text()
            expect(done.returncode == 0 and f"on {ranks} processes" in text, f"{name}: {done.stderr}\n{text}")


if __name__ == "__main__":
    main()
