#!/usr/bin/python3 -B
"""Runs the commands of the containers in packaging/kubernetes between two hosts with the names, variables and files of
pods.

HVD_TEST_RELEASE=FOLDER also runs the commands in the image of the release in this folder.
"""

import contextlib
import copy

from harness import *

import packages_test
from manifests import FOLDER, one, read_all, rendered, variables_of
from rendezvous_test import ranks_in
from torchrun_test import torchruns

WORKER = BUILD / "tests" / "runtime_worker"
PROGRAM = ["python3", "/examples/torch_digits.py"]
POD_USER = 1000
POD_USER_WORDS = [
    "setpriv",
    f"--reuid={POD_USER}",
    f"--regid={POD_USER}",
    f"--groups={POD_USER}",
    "--no-new-privs",
    "--inh-caps=-all",
    "--bounding-set=-all",
]


@contextlib.contextmanager
def secret_volume(mode=0o440, group=POD_USER):
    """Makes a folder like a volume with a Secret: links to files of root that a group may read."""
    with tempfile.TemporaryDirectory(prefix="e2e-secret-") as name:
        folder = pathlib.Path(name)
        files = folder / "..2026_01_01"
        files.mkdir()
        (files / "token").write_text("0123456789abcdef" * 4)
        (folder / "..data").symlink_to(files.name)
        (folder / "token").symlink_to("..data/token")
        for path in folder, files:
            os.chown(path, 0, group)
            path.chmod(0o3777)
        os.chown(files / "token", 0, group)
        (files / "token").chmod(mode)
        yield folder


# Runs a command in an image's files, in a separate namespace: IMAGE VOLUME PLACE_OF_THE_VOLUME COMMAND...
IN_IMAGE = """set -e
mount -t proc proc "$0/proc"; mount --rbind /dev "$0/dev"; mount -t tmpfs tmpfs "$0/tmp"
touch "$0/etc/hosts"; mount --bind /etc/hosts "$0/etc/hosts"; mkdir -p "$0$2"; mount --bind "$1" "$0$2"
shift 2
exec chroot "$0" "$@"
"""


class Pod:
    """A host that runs the command of a container, with its user, variables and capabilities.

    `program` replaces the program of the manifest. `image` is the folder with the files of the container's image; by
    default, the container has the host's files and the build's programs. `user` has words of setpriv.
    """

    def __init__(self, name, index, container, token_folder, program=(WORKER, "sum"), image=None, user=POD_USER_WORDS):
        self.name, self.log = name, scratch() / "log"
        (mount,) = [each["mountPath"] for each in container["volumeMounts"] if each["name"] == "token"]
        variables = variables_of(container)
        words = container["command"] + container["args"]
        expect(re.fullmatch(r"python3 /examples/\S+", variables["PROGRAM"]), variables)
        variables["PROGRAM"] = " ".join(map(str, program))
        environment = clean_environment(HOME="/", JOB_COMPLETION_INDEX=str(index))
        if image is None:
            place = []
            environment |= {key: value.replace(mount, str(token_folder)) for key, value in variables.items()}
            environment["PATH"] = f"{BUILD / 'bin'}:{environment['PATH']}"
        else:
            place = ["unshare", "--mount", "sh", "-c", IN_IMAGE, image, token_folder, mount]
            environment = {
                "HOME": "/",
                "JOB_COMPLETION_INDEX": str(index),
                "LANG": "C.UTF-8",
                "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                **variables,
            }
        self.environment = environment
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                entering(name, *place, *user, *words),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd="/",
                process_group=0,
            )

    def wait_for(self, words):
        wait_until(lambda: re.search(words, self.log.read_text()), 60, lambda: f"{words!r}\n{self.log.read_text()}")

    def runs(self, *words):
        """Returns exit code and output of a command, run as by kubectl exec and by kubelet's probes."""
        done = run_to_end(entering(self.name, *POD_USER_WORDS, *words), env=self.environment, cwd="/")
        return done.returncode, done.stdout + done.stderr

    def ends(self, seconds=60):
        wait_until(lambda: self.process.poll() is not None, seconds, lambda: f"an end\n{self.log.read_text()}")
        return self.process.returncode, self.log.read_text(errors="replace")


def give_name(name, other):
    """Adds a name of a host, like a DNS name, for all hosts and for the launcher's machine."""
    address = re.search(rf"(?m)^(10\.\S+)\s.*\b{name}\b", pathlib.Path("/etc/hosts").read_text())[1]
    line = f"echo {address} {other} >>/etc/hosts"
    for place in ([], *([HOSTS, "exec", each] for each in os.environ["HVD_HOSTS"].split())):
        subprocess.run([*place, "sh", "-c", line], check=True)


def need_pod_user():
    if subprocess.run(
        ["setpriv", f"--reuid={POD_USER}", f"--regid={POD_USER}", "--clear-groups", "test", "-x", WORKER], check=False
    ).returncode:
        raise Skip(f"user {POD_USER} cannot run {WORKER}")


def pods_run_together(names, subdomain, container, **more):
    """Runs a program in two pods, and returns the output of the first pod."""
    if "image" not in more:
        need_pod_user()
    before = Inventory()
    with secret_volume() as folder:
        # The pod of the launcher has no DNS name yet.
        second = Pod(names[1], 1, copy.deepcopy(container), folder, **more)
        second.wait_for(f"waiting for its launcher: '{names[0]}.{subdomain}' does not resolve")
        give_name(names[0], f"{names[0]}.{subdomain}")
        first = Pod(names[0], 0, copy.deepcopy(container), folder, **more)
        code, said = first.ends(300)
        expect(code == 0, said)
        expect(second.ends()[0] == 0, second.ends())
    before.wait_for_ends()
    return said


def pods_add_up(names, subdomain, container):
    said = pods_run_together(names, subdomain, container)
    expect(ranks_in([said]) == [("0", "0 of 2"), ("1", "1 of 2"), ("2", "0 of 2"), ("3", "1 of 2")], said)


@world("horovod-0 horovod-1")
def test_the_pods_of_the_indexed_job_add_up():
    job = one(rendered(FOLDER / "base"), "Job")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    pods_add_up(("horovod-0", "horovod-1"), "horovod", container)


@world("horovod-0 horovod-1")
def test_pods_of_openshift_add_up_as_a_user_without_a_name_in_the_group_0():
    """OpenShift's SCC chooses the user and the volumes' group from the range of the namespace."""
    need_pod_user()
    user = 1000730000
    words = [f"--reuid={user}", "--regid=0", f"--groups=0,{user}", *POD_USER_WORDS[4:]]
    job = one(rendered(FOLDER / "overlays" / "openshift"), "Job")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    before = Inventory()
    with secret_volume(group=user) as folder:
        give_name("horovod-0", "horovod-0.horovod")
        pods = [
            Pod(f"horovod-{index}", index, copy.deepcopy(container), folder, user=["setpriv", *words])
            for index in range(2)
        ]
        code, said = pods[0].ends(300)
        expect(code == 0 and len(ranks_in([said])) == 4, said)
        expect(pods[1].ends()[0] == 0, pods[1].ends())
    before.wait_for_ends()


@world("horovod-0 horovod-1")
def test_the_launcher_answers_its_probes_and_prometheus_while_it_runs():
    need_pod_user()
    job = one(rendered(FOLDER / "overlays" / "metrics"), "Job")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    probe, alive = (container[kind]["exec"]["command"] for kind in ("readinessProbe", "livenessProbe"))
    expect(probe == alive, alive)
    before = Inventory()
    with secret_volume() as folder:
        give_name("horovod-0", "horovod-0.horovod")
        pods = [
            Pod(f"horovod-{index}", index, copy.deepcopy(container), folder, program=("sleep", "600"))
            for index in range(2)
        ]
        wait_until(lambda: pods[0].runs(*probe)[0] == 0, 60, lambda: f"{pods[0].runs(*probe)}{pods[0].log.read_text()}")
        expect(pods[1].runs(*probe) == (0, ""), pods[1].runs(*probe))
        # Prometheus and `kubectl exec` connect to pod 0 from outside.
        scraped = pods[1].runs("curl", "-s", "--max-time", "20", "http://horovod-0.horovod:9400/metrics")
        expect("horovod_ranks_up" in scraped[1] and 'rank="3"' in scraped[1], scraped)
        code, said = pods[0].runs("horovodrun", "metrics", "--level", "rank")
        expect(code == 0 and "horovod_rank_up{" in said, said)
        launcher = re.search(r'"pid":(\d+)', pods[0].runs("horovodrun", "ps", "--json")[1])[1]
        pods[0].runs("kill", "-STOP", launcher)
        code, said = pods[0].runs("timeout", str(container["livenessProbe"]["timeoutSeconds"]), *probe)
        expect(code == 124, f"the probe of a launcher that is stopped ends with {code}: {said}")
        pods[0].runs("kill", "-CONT", launcher)
        pods[0].process.send_signal(signal.SIGCONT)  # nsenter stops with its child
        pods[0].runs("kill", launcher)
        code, said = pods[0].ends()
        expect(code == 143 and "records of jobs" not in said, said)
        expect(pods[1].ends()[0] != 124, pods[1].ends())
        expect(pods[0].runs(*probe)[0] == 1, "a launcher that has ended is healthy")
    before.wait_for_ends()


@world("horovod-0 horovod-1")
def test_an_elastic_job_takes_in_the_pod_that_replaces_a_lost_one():
    need_pod_user()
    job = one(rendered(FOLDER / "overlays" / "elastic"), "Job")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    program = (PYTHON, ROOT / "tests/e2e/workers/elastic_rank.py", 250)

    def start(index, folder):
        return Pod(f"horovod-{index}", index, copy.deepcopy(container), folder, program=program)

    before = Inventory()
    with secret_volume() as folder:
        give_name("horovod-0", "horovod-0.horovod")
        first, lost = start(0, folder), start(1, folder)
        first.wait_for(r"(?s)(\d begins 0 \d/4 .*){4}")
        os.killpg(lost.process.pid, signal.SIGKILL)
        lost.ends()
        first.wait_for(r"(?s)(\d begins 1 \d/2 .*){2}")
        second = start(1, folder)
        first.wait_for(r"(?s)(\d begins 2 \d/4 .*){4}")
        code, said = first.ends()
        expect(code == 0 and len(re.findall(r"\d ends with \d+ in 2", said)) == 4, said)
        expect(second.ends()[0] == 0, second.ends())
    before.wait_for_ends()


@world("horovod-0 horovod-1")
def test_the_pods_of_the_indexed_job_train_the_digits():
    """Returns the program of the manifest, from this tree instead of the image."""
    job = one(rendered(FOLDER / "base"), "Job")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    script = ROOT / PROGRAM[1].lstrip("/")
    said = pods_run_together(
        ("horovod-0", "horovod-1"), "horovod", container, program=(PROGRAM[0], script, "--epochs", 4)
    )
    expect(re.search(r"test accuracy 0\.9\d* after .* on 4 processes", said), said)


@world("horovod-0 horovod-1")
def test_the_pods_of_the_indexed_job_train_in_the_image_of_a_release():
    """A new user's steps with the image: the manifest's command with only the files of the image."""
    archive = packages_test.release_file("horovod-*-cpu.oci.tar")
    if archive is None:
        raise Skip("HVD_TEST_RELEASE names no folder with the files of a release")
    if not shutil.which("umoci"):
        raise Skip("there is no umoci; packaging/packages-release.txt names it")
    (container,) = one(read_all(ROOT / "k8s/horovod-job.yaml"), "Job")["spec"]["template"]["spec"]["containers"]
    started = time.monotonic()
    # The hosts have separate /tmp folders.
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="e2e-", ignore_cleanup_errors=True) as path:
        image = packages_test.unpack_image(archive, pathlib.Path(path))
        said = pods_run_together(("horovod-0", "horovod-1"), "horovod", container, program=PROGRAM, image=image)
    expect(re.search(r"test accuracy 0\.9\d* after .* on 4 processes", said), said)
    packages_test.in_time("Kubernetes", started)


@world("horovod-pods-0-0 horovod-pods-0-1")
def test_the_pods_of_the_job_set_add_up():
    job_set = one(read_all(FOLDER / "jobset.yaml"), "JobSet")
    (part,) = job_set["spec"]["replicatedJobs"]
    (container,) = part["template"]["spec"]["template"]["spec"]["containers"]
    pods_add_up(("horovod-pods-0-0", "horovod-pods-0-1"), job_set["spec"]["network"]["subdomain"], container)


@world("horovod-0 horovod-1")
def test_a_secret_that_others_can_read_is_refused_with_the_fix():
    need_pod_user()
    (container,) = one(rendered(FOLDER / "base"), "Job")["spec"]["template"]["spec"]["containers"]
    give_name("horovod-0", "horovod-0.horovod")
    for mode, group in ((0o444, POD_USER), (0o644, 0)):
        with secret_volume(mode, group) as folder:
            code, said = Pod("horovod-1", 1, copy.deepcopy(container), folder).ends()
        expect(code == 2 and "is open to others" in said and "defaultMode: 0440" in said, f"{code}: {said}")


def test_a_pod_whose_launcher_has_a_name_too_long_for_dns_says_so():
    with tempfile.NamedTemporaryFile("w") as token:
        token.write("0123456789abcdef" * 4)
        token.flush()
        joined = subprocess.Popen(
            [BUILD / "bin" / "horovod-agent", "--join", f"{'j' * 64}-0.horovod:29400", "--token-file", token.name],
            env=clean_environment(),
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            said = joined.stderr.readline()
        finally:
            joined.kill()
            joined.wait()
    expect("waiting for its launcher" in said and "has 66 characters, and DNS takes 63: give the job" in said, said)


def make_key(*kind, config=""):
    """Makes the single key of all pods, in ~/.ssh like a volume, without known hosts."""
    ssh = pathlib.Path.home() / ".ssh"
    for path in ssh.iterdir():
        path.unlink()
    subprocess.run(["ssh-keygen", "-q", *kind, "-m", "PEM", "-N", "", "-f", ssh / "id_rsa"], check=True)
    (ssh / "id_rsa.pub").rename(ssh / "authorized_keys")
    if config:
        (ssh / "config").write_text(config)
    ssh.chmod(0o1777)  # like the folder of a volume


def start_worker(pod, container):
    """Runs the container's sshd instead of the host's."""
    for pid in faults.processes(pod):
        if "sshd" in faults.said_of(pid, "cmdline"):
            os.kill(pid, signal.SIGTERM)
            # The host's sshd must leave the port to the container's.
            wait_until(lambda pid=pid: not faults.said_of(pid, "cmdline"), 60, f"the end of the sshd of {pod}")
    return subprocess.Popen(
        entering(pod, *container["command"]),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def four_ranks_ran(ended, servers):
    """Checks a finished job of four ranks on two hosts, and ends the servers of its hosts."""
    ended.ends_with(0)
    expect(
        ranks_in([ended.out]) == [("0", "0 of 2"), ("1", "1 of 2"), ("2", "0 of 2"), ("3", "1 of 2")], ended.describe()
    )
    for server in servers:
        server.terminate()


@world("horovod-worker-0 horovod-worker-1")
def test_the_launcher_of_a_volcano_job_reaches_its_workers():
    (job,) = read_all(FOLDER / "volcano.yaml")
    name = job["metadata"]["name"]
    launcher, worker = (task["template"]["spec"]["containers"][0] for task in job["spec"]["tasks"])
    workers = job["spec"]["tasks"][1]
    pods = [f"{name}-{workers['name']}-{number}" for number in range(workers["replicas"])]
    expect(pods == ["horovod-worker-0", "horovod-worker-1"], pods)
    for pod in pods:
        give_name(pod, f"{pod}.{name}")
    # The key and the settings of the plugin ssh.
    make_key(
        *"-t rsa -b 2048".split(),
        config="StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n"
        + "".join(f"Host {pod}\n  HostName {pod}.{name}\n" for pod in pods),
    )
    servers = [start_worker(pod, worker) for pod in pods]
    words = launcher["command"] + launcher["args"]
    expect(words[-2:] == PROGRAM, words)
    # The variables of the plugins svc and env.
    environment = clean_environment(
        **variables_of(launcher),
        VC_LAUNCHER_HOSTS=f"{name}-launcher-0.{name}",
        VC_LAUNCHER_NUM="1",
        VC_WORKER_HOSTS=",".join(f"{pod}.{name}" for pod in pods),
        VC_WORKER_NUM=str(len(pods)),
        VC_TASK_INDEX="0",
        HOSTNAME=f"{name}-launcher-0",
    )
    environment["PATH"] = f"{BUILD / 'bin'}:{environment['PATH']}"
    ended = Job(*words[1:-2], WORKER, "sum", program=words[0], environment=environment)
    four_ranks_ran(ended, servers)


@world("horovod-worker-0 horovod-worker-1")
def test_the_launcher_of_the_mpi_job_reaches_its_workers():
    (job,) = read_all(FOLDER / "mpijob.yaml")
    name, slots = job["metadata"]["name"], job["spec"]["slotsPerWorker"]
    replicas = job["spec"]["mpiReplicaSpecs"]
    (launcher,) = replicas["Launcher"]["template"]["spec"]["containers"]
    (worker,) = replicas["Worker"]["template"]["spec"]["containers"]
    pods = [f"{name}-worker-{number}" for number in range(replicas["Worker"]["replicas"])]
    expect(pods == ["horovod-worker-0", "horovod-worker-1"], pods)
    for pod in pods:
        give_name(pod, f"{pod}.{name}.default.svc")
    # The operator makes the hostfile, one key for all pods and these variables, and no known hosts.
    pathlib.Path("/etc/mpi").mkdir()
    pathlib.Path("/etc/mpi/hostfile").write_text("".join(f"{pod}.{name}.default.svc slots={slots}\n" for pod in pods))
    make_key("-t", "ecdsa", "-b", "521")
    servers = [start_worker(pod, worker) for pod in pods]
    for pod in pods:
        # The operator waits for the port of the readiness probe.
        port = worker["readinessProbe"]["tcpSocket"]["port"]
        wait_until(
            lambda pod=pod: (
                subprocess.run(
                    ["bash", "-c", f"exec 3<>/dev/tcp/{pod}/{port}"], stderr=subprocess.DEVNULL, check=False
                ).returncode
                == 0
            ),
            30,
            f"sshd of {pod}",
        )
    words = launcher["command"]
    expect(words[-2:] == PROGRAM and words[0] == "horovodrun", words)
    ended = Job(
        *words[1:-2],
        WORKER,
        "sum",
        environment=clean_environment(
            K_MPI_JOB_ROLE="launcher",
            OMPI_MCA_orte_default_hostfile="/etc/mpi/hostfile",
            OMPI_MCA_orte_set_default_slots=str(slots),
            OMPI_MCA_plm_rsh_args="-o ConnectionAttempts=10",
            OMPI_MCA_orte_keep_fqdn_hostnames="true",
        ),
    )
    four_ranks_ran(ended, servers)


@world("horovod-node-0-0 horovod-node-0-1")
def test_the_launcher_of_a_train_job_reaches_its_nodes():
    """The policy mpi of Kubeflow Trainer makes the hostfile, and one key for all pods."""
    runtime, job = read_all(FOLDER / "trainer-runtime.yaml")[0], read_all(FOLDER / "trainjob.yaml")[0]
    name, policy = job["metadata"]["name"], runtime["spec"]["mlPolicy"]
    launcher, node = (
        part["template"]["spec"]["template"]["spec"]["containers"][0]
        for part in runtime["spec"]["template"]["spec"]["replicatedJobs"]
    )
    pods = [f"{name}-node-0-{number}" for number in range(policy["numNodes"])]
    expect(pods == os.environ["HVD_HOSTS"].split(), pods)
    for pod in pods:
        give_name(pod, f"{pod}.{name}")
    slots = policy["mpi"]["numProcPerNode"]
    pathlib.Path("/etc/mpi").mkdir()
    pathlib.Path("/etc/mpi/hostfile").write_text("".join(f"{pod}.{name} slots={slots}\n" for pod in pods))
    make_key("-t", "ecdsa", "-b", "521")
    servers = [start_worker(pod, node) for pod in pods]
    words = launcher["command"] + launcher["args"]
    variables = variables_of(launcher) | {each["name"]: each["value"] for each in job["spec"]["trainer"]["env"]}
    expect(variables["PROGRAM"].split()[:2] == PROGRAM, variables)
    environment = clean_environment(**variables | {"PROGRAM": f"{WORKER} sum"})
    environment["PATH"] = f"{BUILD / 'bin'}:{environment['PATH']}"
    ended = Job(*words[1:], program=words[0], environment=environment)
    four_ranks_ran(ended, servers)


@world("horovod-torch-node-0-0 horovod-torch-node-0-1")
def test_the_pods_of_a_train_job_start_torchrun():
    """The policy torch of Kubeflow Trainer sets the variables PET_... of each pod."""
    python = torchruns()[-1]
    runtime, job = read_all(FOLDER / "trainer-runtime.yaml")[1], read_all(FOLDER / "trainjob.yaml")[1]
    name, trainer = job["metadata"]["name"], job["spec"]["trainer"]
    (part,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    (container,) = part["template"]["spec"]["template"]["spec"]["containers"]
    pods = [f"{name}-node-0-{number}" for number in range(trainer["numNodes"])]
    give_name(pods[0], f"{pods[0]}.{name}")
    program = [ROOT / "examples/torch_digits.py", *trainer["args"][1:]]
    running = []
    for number, pod in enumerate(pods):
        environment = clean_environment(
            **variables_of(container),
            PYTHONPATH=str(BUILD / "python"),
            OMP_NUM_THREADS="1",
            PET_NNODES=str(len(pods)),
            PET_NPROC_PER_NODE=str(trainer["numProcPerNode"]),
            PET_NODE_RANK=str(number),
            PET_MASTER_ADDR=f"{pods[0]}.{name}",
            PET_MASTER_PORT="29400",
        )
        running.append(
            subprocess.Popen(
                [HOSTS, "exec", pod, python, *container["command"][1:], *program],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    said = [each.communicate(timeout=300)[0] for each in running]
    expect([each.returncode for each in running] == [0, 0], said)
    expect(re.search(r"test accuracy 0\.9\d* after .* on 4 processes", said[0]), said)


if __name__ == "__main__":
    main()
