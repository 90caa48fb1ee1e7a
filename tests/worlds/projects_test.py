#!/usr/bin/python3 -B
"""Loops of other projects (projects.py), unmodified, train on two hosts to the weights of one process."""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from deepspeed_build import environment_of_deepspeed
from harness import *
from network_test import second_network
from worlds_test import interpreter

import network

FOLDER = pathlib.Path(__file__).resolve().parent
PROGRAM, ATOMS = FOLDER / "projects.py", FOLDER / "atoms.py"


def weights(output):
    return [json.loads(text) for text in re.findall(r"weights (.*)", output)]


def saved_weights(python, checkpoint):
    done = subprocess.run([python, ATOMS, "weights", checkpoint], check=True, capture_output=True, text=True)
    (found,) = weights(done.stdout)
    return found


def distance_of(some, others):
    return max(abs(mine - other) for mine, other in zip(some, others))


def check(name, most=1e-9, alone=(), environment_of=lambda _: {}):
    """Compares two ranks on two hosts with one process, which the command `alone` starts."""
    python = interpreter(name)
    if python is None:
        raise Skip(f"no interpreter here has {name}")
    environment = clean_environment(**environment_of(python))
    job = Job("-np", 2, "-H", "a:1,b:1", python, PROGRAM, name, environment=environment)
    job.ends_with(0, 400)
    alone = subprocess.run(
        [*alone, python, PROGRAM, name], env=environment, capture_output=True, text=True, timeout=400
    )
    (one,), ranks = weights(alone.stdout) or [[]], weights(job.out)
    expect(len(ranks) == 2 and ranks[0] == ranks[1] and one, f"{alone.stderr}\n{job.describe()}")
    distance = distance_of(ranks[0], one)
    print(f"{name}: the largest difference of {len(one)} weights is {distance:.0e}")
    expect(len(ranks[0]) == len(one) and distance < most, job.describe())


@world()
def test_ignite_on_the_backend_horovod():
    check("ignite")


@world()
def test_lightning():
    check("lightning")


@world()
def test_trainer_of_transformers():
    check("trainer")


@world()
def test_accelerate():
    check("accelerate")


@world()
def test_deepspeed_with_zero_1():
    # DeepSpeed looks for an MPI in a process without the launcher's variables. Its sums are those of float32.
    check("deepspeed", 1e-5, [LAUNCHER, "-np", "1"], environment_of_deepspeed)


@world()
def test_deepmd_kit():
    """Rank 0 trains on one frame, rank 1 on another; one process trains on both."""
    python = os.environ.get("HVD_TEST_DEEPMD")
    if not python:
        raise Skip("HVD_TEST_DEEPMD names no Python that has DeePMD-kit")
    folder = scratch("/etc")  # of this test's hosts
    subprocess.run([python, ATOMS, "make", folder], check=True)
    environment = clean_environment()
    environment["PATH"] = f"{pathlib.Path(python).parent}:{environment['PATH']}"
    trained = {}
    for name, line in {
        "ranks": "dp --tf train ../$HOROVOD_RANK.json",
        "both": "dp --tf train ../both.json",
        "0": "dp --tf train ../0.json",
    }.items():
        inside = f"mkdir -p {folder}/{name}$HOROVOD_RANK.out && cd {folder}/{name}$HOROVOD_RANK.out && {line}"
        hosts = ("-np", 2, "-H", "a:1,b:1") if name == "ranks" else ("-np", 1)
        job = Job(*hosts, "sh", "-c", inside, environment=environment)
        job.ends_with(0, 400)
        trained[name] = saved_weights(python, f"{folder}/{name}0.out/model.ckpt")
    distance, of_one_frame = (distance_of(trained[name], trained["both"]) for name in ("ranks", "0"))
    print(f"{len(trained['both'])} weights: {distance:.0e}; with one frame {of_one_frame:.0e}")
    expect(distance < 1e-9 < of_one_frame, f"{distance}, {of_one_frame}")


@world()
def test_returnn():
    """A loop of sessions, as of TensorFlow 1. Each rank trains on one sequence in a step, one process on both."""
    python = os.environ.get("HVD_TEST_RETURNN")
    if not python:
        raise Skip("HVD_TEST_RETURNN names no Python that has RETURNN")
    trained = {}
    for name, hosts in {"ranks": ("-np", 2, "-H", "a:1,b:1"), "both": ("-np", 1)}.items():
        folder = scratch("/etc")
        command = [*hosts, python, "-m", "returnn", FOLDER / "returnn.config"]
        job = Job(*command, environment=clean_environment(MODEL=str(folder)), cwd=folder)
        job.ends_with(0, 400)
        for epoch in (1, 2):
            trained[name, epoch] = saved_weights(python, f"{folder}/net.00{epoch}")
    distance, learned = (distance_of(trained["ranks", epoch], trained["both", 2]) for epoch in (2, 1))
    print(f"{len(trained['both', 2])} weights: {distance:.0e}; an epoch earlier {learned:.0e}")
    expect(distance < 1e-5 < learned, f"{distance}, {learned}")


@world()
def test_a_horovod_job_of_flytekit():
    """Its command names eth0, which the launcher's machine lacks. Both hosts have it, and a network of other names."""
    python = os.environ.get("HVD_TEST_FLYTEKIT")
    if not python:
        raise Skip("HVD_TEST_FLYTEKIT names no Python that has flytekit")
    second_network()
    folder = scratch("/etc")
    discovery = folder / "discover_hosts.sh"
    discovery.write_text("#!/bin/sh\necho a:1\necho b:1\n")
    discovery.chmod(0o755)
    environment = clean_environment(DISCOVERY=str(discovery))
    environment["PATH"] = f"{pathlib.Path(python).parent}:{environment['PATH']}"
    environment["PYTHONPATH"] += f":{FOLDER}"
    program = [python, FOLDER / "flyte_task.py", folder / "inputs.pb", folder / "outputs"]
    words = subprocess.run(program, env=environment, check=True, capture_output=True, text=True).stdout.splitlines()
    print(" ".join(words))
    expect(words[0] == "horovodrun", words)
    job = Job(*words[1:], environment=environment)
    job.ends_with(0, 400)
    expect({f"rank {rank} of 2, sum 3" for rank in (0, 1)} <= set(re.findall("rank.*", job.out)), job.describe())
    expect((folder / "outputs/outputs.pb").exists(), job.describe())
    # A host has no interface of that name.
    network._ip(["link set eth0 down", "link set eth0 name ens5", "link set ens5 up"], host.pid_of("b"))
    job = Job(*words[1:], environment=environment)
    job.ends_with(2)
    expect(
        re.search(r"host b: .*--network-interfaces selects none of the interfaces here: .*ens5", job.err),
        job.describe(),
    )


if __name__ == "__main__":
    main()
