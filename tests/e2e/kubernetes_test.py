#!/usr/bin/python3 -B
"""The manifests of packaging/kubernetes: each field is one that Kubernetes knows, and the commands of the
containers run between two hosts that have the names, variables and files of pods.

HVD_TEST_KUBERNETES names an interpreter that has kubernetes-validate, with the schemas of Kubernetes, and
kubeflow-trainer-api, with the models of JobSet.
HVD_TEST_RELEASE=FOLDER runs the commands also in the image of the release in this folder.
"""
import contextlib
import copy
import json

from harness import *

import packages_test
from rendezvous_test import ranks_in

try:
    import yaml
except ImportError:
    yaml = None

FOLDER = ROOT / "packaging" / "kubernetes"
OVERLAYS = sorted(path.parent.name for path in FOLDER.glob("overlays/*/kustomization.yaml"))
KUBERNETES = os.environ.get("HVD_TEST_KUBERNETES", "")
# The first words of versions whose objects others than Kubernetes define.
MANAGERS = ("jobset.x-k8s.io/", "kubeflow.org/", "batch.volcano.sh/")
WORKER = BUILD / "tests" / "runtime_worker"
PROGRAM = ["python3", "/examples/torch_digits.py"]
POD_USER = 1000

# A schema is a type, a tuple of values, a list with the schema of its items, or an object with the schema of each
# field; "!" behind a name: the field is required. MAP holds strings by any name.
MAP = "map"
QUANTITIES = {"cpu": str, "memory": str, "nvidia.com/gpu": (int, str)}
NAMED = {"name!": str, "labels": MAP}
PROBE = {"tcpSocket": {"port!": int}, "periodSeconds": int}
CONTAINER = {
    "name!": str, "image!": str, "command": [str], "args": [str], "env": [{"name!": str, "value!": str}],
    "ports": [{"containerPort!": int, "name": str}], "resources": {"requests": QUANTITIES, "limits": QUANTITIES},
    "securityContext": {"allowPrivilegeEscalation": bool, "capabilities": {"drop": [str]}},
    "volumeMounts": [{"name!": str, "mountPath!": str, "readOnly": bool}], "readinessProbe": PROBE}
VOLUME = {"name!": str, "secret": {"secretName!": str, "defaultMode": int},
          "emptyDir": {"medium": ("Memory",), "sizeLimit": str}}
POD = {"metadata": {"labels": MAP}, "spec!": {
    "containers!": [CONTAINER], "volumes": [VOLUME], "subdomain": str, "restartPolicy": ("Never", "OnFailure"),
    "automountServiceAccountToken": bool, "enableServiceLinks": bool,
    "securityContext": {"runAsNonRoot": bool, "runAsUser": int, "runAsGroup": int, "fsGroup": int,
                        "seccompProfile": {"type!": ("RuntimeDefault",)}}}}
SELECTOR = {"matchLabels!": MAP}
REPLICAS = {"replicas!": int, "restartPolicy": ("Never", "OnFailure"), "template!": POD}
JOB = {"completionMode": ("Indexed",), "completions": int, "parallelism": int, "backoffLimit": int, "suspend": bool,
       "template!": POD}
POLICY = {"event!": ("PodFailed", "PodEvicted", "TaskCompleted"),
          "action!": ("AbortJob", "CompleteJob", "RestartJob", "TerminateJob")}
SCHEMAS = {
    ("v1", "Service"): {"metadata!": NAMED, "spec!": {
        "clusterIP": ("None",), "publishNotReadyAddresses": bool, "selector!": MAP,
        "ports": [{"name": str, "port!": int}]}},
    ("networking.k8s.io/v1", "NetworkPolicy"): {"metadata!": NAMED, "spec!": {
        "podSelector!": SELECTOR, "policyTypes": [("Ingress", "Egress")],
        "ingress": [{"from": [{"podSelector": SELECTOR}]}]}},
    ("batch/v1", "Job"): {"metadata!": NAMED, "spec!": JOB},
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): {"metadata!": NAMED, "spec!": {
        "network": {"enableDNSHostnames": bool, "subdomain": str, "publishNotReadyAddresses": bool},
        "failurePolicy": {"maxRestarts": int}, "suspend": bool, "ttlSecondsAfterFinished": int,
        "replicatedJobs!": [{"name!": str, "replicas": int, "template!": {"spec!": JOB}}]}},
    ("batch.volcano.sh/v1alpha1", "Job"): {"metadata!": NAMED, "spec!": {
        "schedulerName": ("volcano",), "minAvailable": int, "maxRetry": int, "queue": str, "policies": [POLICY],
        "plugins": {"svc": [str], "ssh": [str], "env": [str]}, "ttlSecondsAfterFinished": int,
        "tasks!": [{"name!": str, "replicas!": int, "policies": [POLICY], "template!": POD}]}},
    ("kubeflow.org/v2beta1", "MPIJob"): {"metadata!": NAMED, "spec!": {
        "slotsPerWorker": int, "launcherCreationPolicy": ("AtStartup", "WaitForWorkersReady"),
        "runPolicy": {"cleanPodPolicy": ("None", "Running", "All"), "backoffLimit": int,
                      "ttlSecondsAfterFinished": int, "activeDeadlineSeconds": int},
        "mpiReplicaSpecs!": {"Launcher!": REPLICAS, "Worker!": REPLICAS}}},
    ("kustomize.config.k8s.io/v1beta1", "Kustomization"): {
        "resources!": [str], "images": [{"name!": str, "newName": str, "newTag": str}],
        "patches": [{"target!": {"kind!": str, "name!": str}, "patch!": str}]},
}
# A misspelt label is ignored, and the job does not wait.
KUEUE_LABELS = ("kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class")


def faults_in(value, schema, place):
    """A sentence for each part of a value that its schema does not allow."""
    if schema == MAP:
        schema = dict.fromkeys(value, str) if isinstance(value, dict) else dict
    if isinstance(schema, dict):
        if not isinstance(value, dict):
            yield f"{place} is not an object"
            return
        known = {name.rstrip("!"): (part, name.endswith("!")) for name, part in schema.items()}
        yield from (f"{place}.{name} is missing" for name, (_, needed) in known.items() if needed and name not in value)
        for name, part in value.items():
            if name in known:
                yield from faults_in(part, known[name][0], f"{place}.{name}")
            else:
                yield f"{place}.{name} is not a field"
    elif isinstance(schema, list):
        if not isinstance(value, list):
            yield f"{place} is not a list"
            return
        for number, item in enumerate(value):
            yield from faults_in(item, schema[0], f"{place}[{number}]")
    elif isinstance(schema, tuple) and not isinstance(schema[0], type):
        if value not in schema:
            yield f"{place} is {value!r}, not one of {', '.join(schema)}"
    elif not isinstance(value, schema) or isinstance(value, bool) and schema is not bool:
        yield f"{place} is {value!r}, of another type"


def faults_of(thing):
    kind = thing.get("apiVersion"), thing.get("kind")
    if kind not in SCHEMAS:
        return [f"{kind[0]} has no {kind[1]}"]
    schema = {**SCHEMAS[kind], "apiVersion!": str, "kind!": str}
    faults = list(faults_in(thing, schema, kind[1]))
    for label in thing.get("metadata", {}).get("labels", {}):
        if label.startswith("kueue.x-k8s.io/") and label not in KUEUE_LABELS:
            faults.append(f"{kind[1]}.metadata.labels: Kueue reads no label {label}")
    if not faults and kind[1] in ("Job", "JobSet", "MPIJob"):
        faults += faults_of_pods(thing)
    return faults


def templates_of(job):
    """The (template, number of pods) of each part of a job, by the name of its pods without their number."""
    name, spec = job["metadata"]["name"], job["spec"]
    if job["kind"] == "MPIJob":
        return {f"{name}-{kind.lower()}": (part["template"], part["replicas"])
                for kind, part in spec["mpiReplicaSpecs"].items()}
    if job["kind"] == "JobSet":
        return {f"{name}-{part['name']}-{part.get('replicas', 1) - 1}": (
            part["template"]["spec"]["template"], part["template"]["spec"]["completions"])
            for part in spec["replicatedJobs"]}
    if "tasks" in spec:
        return {f"{name}-{task['name']}": (task["template"], task["replicas"]) for task in spec["tasks"]}
    return {name: (spec["template"], spec.get("completions", 1))}


def faults_of_pods(job):
    for name, (template, count) in templates_of(job).items():
        # The pod of an MPIJob's launcher has no host name that others use.
        host = "launcher" if job["kind"] == "MPIJob" and name.endswith("-launcher") else f"{name}-{count - 1}"
        if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", host):
            yield f"{host} is not a name of a host in DNS: at most 63 letters, digits and dashes"
        spec = template["spec"]
        volumes = {volume["name"] for volume in spec.get("volumes", ())}
        for container in spec["containers"]:
            for mount in container.get("volumeMounts", ()):
                if mount["name"] not in volumes:
                    yield f"{name} mounts {mount['name']}, which is no volume of the pod"


def read_all(path):
    if yaml is None:
        raise Skip("python3-yaml is missing")
    return [thing for thing in yaml.safe_load_all(path.read_text()) if thing]


def patched(thing, patch):
    """A copy of an object with the changes of a JSON patch."""
    thing = copy.deepcopy(thing)
    for change in yaml.safe_load(patch):
        *parents, last = [part.replace("~1", "/") for part in change["path"].strip("/").split("/")]
        at = thing
        for part in parents:
            at = at[int(part)] if isinstance(at, list) else at[part]
        last = int(last) if isinstance(at, list) else last
        if change["op"] == "replace":
            at[last]  # it must be there
        expect(change["op"] in ("replace", "add"), change)
        at[last] = change["value"]
    return thing


def rendered(folder):
    """The objects that a folder of Kustomize makes."""
    settings, = read_all(folder / "kustomization.yaml")
    expect(not (faults := faults_of(settings)), f"{folder}: {faults}")
    things = []
    for name in settings["resources"]:
        path = folder / name
        things += rendered(path) if path.is_dir() else read_all(path)
    for change in settings.get("patches", ()):
        target = change["target"]
        found = [n for n, thing in enumerate(things)
                 if (thing["kind"], thing["metadata"]["name"]) == (target["kind"], target["name"])]
        expect(len(found) == 1, f"{folder}: {target} is not one object")
        things[found[0]] = patched(things[found[0]], change["patch"])
    for image in settings.get("images", ()):
        containers = [container for thing in things if thing["kind"] == "Job"
                      for container in thing["spec"]["template"]["spec"]["containers"]]
        changed = [each for each in containers if each["image"].rpartition(":")[0] == image["name"]]
        expect(changed, f"{folder}: no container has the image {image['name']}")
        for container in changed:
            container["image"] = f"{image['newName']}:{image['newTag']}"
    return things


def one(things, kind):
    thing, = [thing for thing in things if thing["kind"] == kind]
    return thing


def variables_of(container):
    return {each["name"]: each["value"] for each in container.get("env", ())}


def check_indexed_job(things):
    """The parts of an Indexed Job that name each other agree."""
    job, service, policy = (one(things, kind) for kind in ("Job", "Service", "NetworkPolicy"))
    template = job["spec"]["template"]
    port, subdomain = check_joining_pods(job["metadata"]["name"], job["spec"], template["spec"]["subdomain"])
    expect(service["metadata"]["name"] == subdomain and service["spec"]["publishNotReadyAddresses"] is True
           and service["spec"]["clusterIP"] == "None", "pods have no names")
    for labels in service["spec"]["selector"], policy["spec"]["podSelector"]["matchLabels"], \
            policy["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"]:
        expect(labels.items() <= template["metadata"]["labels"].items(), f"{labels} selects no pod")
    expect({each["port"] for each in service["spec"]["ports"]} == {port}, f"{service} has not the port {port}")


def check_joining_pods(name, spec, subdomain):
    """The parts of the spec of an Indexed Job whose pods join pod 0 agree; returns its port and subdomain."""
    pod = spec["template"]["spec"]
    container, = pod["containers"]
    variables = variables_of(container)
    expect(spec["completions"] == spec["parallelism"] == int(variables["PODS"]), "numbers of pods differ")
    first, _, port = variables["LAUNCHER"].partition(":")
    expect(first == f"{name}-0.{subdomain}", f"LAUNCHER is {first}")
    ports = {each["containerPort"] for each in container["ports"]}
    expect(ports == {int(port)} and f"--listen :{port} " in container["args"][0], f"ports {ports}, {port}")
    expect(pod["automountServiceAccountToken"] is False, "the pod has a token of the API server")
    mount, = [each for each in container["volumeMounts"] if variables["TOKEN"].startswith(each["mountPath"] + "/")]
    volume, = [each for each in pod["volumes"] if each["name"] == mount["name"]]
    expect(volume["secret"]["defaultMode"] == 0o440 and "fsGroup" in pod["securityContext"], volume)
    expect(spec["backoffLimit"] == 0 and pod["restartPolicy"] == "Never", "a pod may start again alone")
    return int(port), subdomain


def check_job_set(things):
    job_set, policy = (one(things, kind) for kind in ("JobSet", "NetworkPolicy"))
    part, = job_set["spec"]["replicatedJobs"]
    network, name = job_set["spec"]["network"], job_set["metadata"]["name"]
    check_joining_pods(f"{name}-{part['name']}-0", part["template"]["spec"], network["subdomain"])
    expect(network["enableDNSHostnames"] and network["publishNotReadyAddresses"], "pods have no names")
    expect(job_set["spec"]["failurePolicy"]["maxRestarts"] == 0, "the set starts again")
    for labels in policy["spec"]["podSelector"]["matchLabels"], \
            policy["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"]:
        expect(labels == {"jobset.sigs.k8s.io/jobset-name": name}, f"{labels} selects no pod")


def test_each_field_of_the_manifests_is_one_of_kubernetes():
    files = sorted(path.name for path in FOLDER.glob("*.yaml"))
    expect(files == ["jobset.yaml", "mpijob.yaml", "volcano.yaml"], files)
    base, others = rendered(FOLDER / "base"), [thing for name in files for thing in read_all(FOLDER / name)]
    expect([thing["kind"] for thing in base + others] ==
           ["Service", "NetworkPolicy", "Job", "NetworkPolicy", "JobSet", "MPIJob", "Job"], others)
    for thing in base + others:
        expect(not (faults := faults_of(thing)), faults)
    check_indexed_job(base)
    check_job_set(others[:2])
    volcano = others[-1]["spec"]
    expect(volcano["minAvailable"] == sum(task["replicas"] for task in volcano["tasks"]), "pods do not start together")


def test_the_manifest_has_the_name_that_guides_of_horovod_give_it():
    """kubectl apply -f k8s/horovod-job.yaml, in the folder that holds the examples."""
    things = read_all(ROOT / "k8s/horovod-job.yaml")
    expect(things == rendered(FOLDER / "base"), things)
    page = (ROOT / "docs/tutorials/kubernetes.md").read_text()
    expect("\nkubectl apply -f k8s/horovod-job.yaml\n" in page, "the page has another name")


def test_overlays_change_what_is_there():
    expect(len(OVERLAYS) >= 2, OVERLAYS)
    for name in OVERLAYS:
        things = rendered(FOLDER / "overlays" / name)
        for thing in things:
            expect(not (faults := faults_of(thing)), f"{name}: {faults}")
        check_indexed_job(things)


def test_faults_of_manifests_are_found():
    job = one(rendered(FOLDER / "base"), "Job")
    mpi_job, = read_all(FOLDER / "mpijob.yaml")
    volcano, = read_all(FOLDER / "volcano.yaml")
    job_set = one(read_all(FOLDER / "jobset.yaml"), "JobSet")

    def fault(thing, path, value):
        found = faults_of(patched(thing, yaml.safe_dump([{"op": "add", "path": path, "value": value}])))
        expect(len(found) == 1, f"{path}: {found}")
        return found[0]

    expect("is not a field" in fault(mpi_job, "/spec/slotPerWorker", 2), "a misspelt field")
    expect("not one of" in fault(mpi_job, "/spec/launcherCreationPolicy", "WaitForWorkers"), "a misspelt value")
    expect("of another type" in fault(job, "/spec/completions", "2"), "a text in place of a number")
    expect("has no" in fault(job, "/apiVersion", "batch/v2"), "an unknown version")
    expect("is missing" in fault(job, "/spec/template", {"spec": {}}), "no containers")
    expect("name of a host in DNS" in fault(job, "/metadata/name", "h" * 62), "a long name")
    expect("name of a host in DNS" in fault(mpi_job, "/metadata/name", "h" * 55), "a long name of workers")
    expect("name of a host in DNS" in fault(job_set, "/metadata/name", "h" * 55), "a long name of a set")
    expect("is not a field" in fault(job_set, "/spec/network/subDomain", "x"), "a misspelt field of a set")
    expect("is not a field" in fault(volcano, "/spec/plugins/ssl", []), "an unknown plugin")
    expect("not one of" in fault(volcano, "/spec/policies/0/action", "AbortAll"), "an unknown action")
    for name in ("queue-name", "priority-class"):
        labelled = patched(job_set, f"[{{op: add, path: /metadata/labels, value: {{kueue.x-k8s.io/{name}: q}}}}]")
        expect(not faults_of(labelled), labelled)
    expect("Kueue reads no label" in fault(job_set, "/metadata/labels", {"kueue.x-k8s.io/queue": "q"}), "a wrong label")
    volcano["spec"]["tasks"][1]["name"] = "w" * 60
    expect(["name of a host in DNS" in each for each in faults_of(volcano)] == [True], faults_of(volcano))
    job["spec"]["template"]["spec"]["volumes"].pop()
    expect(["no volume" in each for each in faults_of(job)] == [True], faults_of(job))


def validate(things, version, folder):
    """The exit code and the words of kubernetes-validate about objects."""
    path = folder / "objects.yaml"
    path.write_text(yaml.safe_dump_all(things))
    done = subprocess.run([KUBERNETES, "-m", "kubernetes_validate", "--strict", "-k", version, path],
                          capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stdout + done.stderr


def objects_of_kubernetes():
    """The objects of all manifests that Kubernetes itself has; of the others the Jobs and pods that their managers
    make."""
    for folder in [FOLDER / "base", *(FOLDER / "overlays" / name for name in OVERLAYS)]:
        yield from rendered(folder)
    for path in sorted(FOLDER.glob("*.yaml")):
        for thing in read_all(path):
            if not thing["apiVersion"].startswith(MANAGERS):
                yield thing
                continue
            if thing["kind"] == "JobSet":
                for part in thing["spec"]["replicatedJobs"]:
                    yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": part["name"]},
                           **part["template"]}
            for name, (template, _) in templates_of(thing).items():
                yield {"apiVersion": "v1", "kind": "Pod", **template,
                       "metadata": {"name": name, **template.get("metadata", {})}}


def test_the_schemas_of_kubernetes_know_each_field():
    """By the oldest version of the schemas and by the newest one."""
    if not KUBERNETES:
        raise Skip("HVD_TEST_KUBERNETES names no Python that has kubernetes-validate")
    things = list(objects_of_kubernetes())
    kinds = [thing["kind"] for thing in things]
    expect(kinds.count("Job") == len(OVERLAYS) + 2 and kinds.count("Pod") == 5, kinds)
    misspelt = patched(things[kinds.index("Pod")], "[{op: add, path: /spec/subDomain, value: x}]")
    with tempfile.TemporaryDirectory() as name:
        for version in ("1.25", "1.37"):
            code, said = validate(things, version, pathlib.Path(name))
            # Without a schema, an object only gets a warning.
            expect(code == 0 and said.count("passed") == len(things), said)
            code, said = validate([misspelt], version, pathlib.Path(name))
            expect(code != 0 and "subDomain" in said, said)


# Prints what the models of JobSet know of an object.
KNOWN_TO_JOBSET = ("import json, sys; from kubeflow_trainer_api.models import JobsetV1alpha2JobSet as JobSet; "
                   "json.dump(JobSet.from_dict(json.load(sys.stdin)).to_dict(), sys.stdout)")


def unknown_fields(value, known, place):
    """The places at which an object has a field that is missing in `known`, or has another value there."""
    if isinstance(value, dict) and isinstance(known, dict):
        for name, part in value.items():
            yield from unknown_fields(part, known.get(name), f"{place}.{name}")
    elif isinstance(value, list) and isinstance(known, list) and len(value) == len(known):
        for number, (part, of) in enumerate(zip(value, known)):
            yield from unknown_fields(part, of, f"{place}[{number}]")
    elif value != known:
        yield place


def test_the_models_of_jobset_know_each_field():
    if not KUBERNETES:
        raise Skip("HVD_TEST_KUBERNETES names no Python that has kubeflow-trainer-api")
    job_set = one(read_all(FOLDER / "jobset.yaml"), "JobSet")

    def unknown(thing):
        done = subprocess.run([KUBERNETES, "-c", KNOWN_TO_JOBSET], input=json.dumps(thing), capture_output=True,
                              text=True, check=False, timeout=120)
        if "No module named 'kubeflow_trainer_api'" in done.stderr:
            raise Skip(f"{KUBERNETES} has no kubeflow-trainer-api; tests/run.sh names its version")
        expect(done.returncode == 0, done.stderr)
        return list(unknown_fields(thing, json.loads(done.stdout), "JobSet"))

    expect(not (fields := unknown(job_set)), fields)
    for field in ("network/subDomain", "replicatedJobs/0/template/spec/completion"):
        misspelt = patched(job_set, f"[{{op: add, path: /spec/{field}, value: x}}]")
        expect(unknown(misspelt) == [f"JobSet.spec.{field}".replace("/0/", "[0]/").replace("/", ".")], field)


def test_kubectl_renders_the_same():
    if not shutil.which("kubectl"):
        raise Skip("kubectl is missing")
    for folder in [FOLDER / "base", *(FOLDER / "overlays" / name for name in OVERLAYS)]:
        done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False, timeout=60)
        expect(done.returncode == 0, done.stderr)

        def by_kind(things):
            return sorted(things, key=lambda thing: thing["kind"])
        expect(by_kind(yaml.safe_load_all(done.stdout)) == by_kind(rendered(folder)), folder)


@contextlib.contextmanager
def secret_volume(mode=0o440, group=POD_USER):
    """A folder like a volume with a Secret: links to files of root that a group may read."""
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


# Runs a command in the files of an image, in a namespace of its own: IMAGE VOLUME PLACE_OF_THE_VOLUME COMMAND...
IN_IMAGE = """set -e
mount -t proc proc "$0/proc"; mount --rbind /dev "$0/dev"; mount -t tmpfs tmpfs "$0/tmp"
touch "$0/etc/hosts"; mount --bind /etc/hosts "$0/etc/hosts"; mkdir -p "$0$2"; mount --bind "$1" "$0$2"
shift 2
exec chroot "$0" "$@"
"""


class Pod:
    """A host that runs the command of a container, with its user, variables and capabilities.

    `program` takes the place of that of the manifest. `image` is the folder with the files of the container's image;
    without it, the container has those of the host and the programs of the build.
    """

    def __init__(self, name, index, container, token_folder, program=(WORKER, "sum"), image=None):
        self.log = scratch() / "log"
        mount, = [each["mountPath"] for each in container["volumeMounts"] if each["name"] == "token"]
        variables = variables_of(container)
        words = container["command"] + container["args"]
        expect(words[-2:] == PROGRAM, words)
        words[-2:] = map(str, program)
        environment = clean_environment(HOME="/", JOB_COMPLETION_INDEX=str(index))
        if image is None:
            place = []
            environment |= {key: value.replace(mount, str(token_folder)) for key, value in variables.items()}
            environment["PATH"] = f"{BUILD / 'bin'}:{environment['PATH']}"
        else:
            place = ["unshare", "--mount", "sh", "-c", IN_IMAGE, image, token_folder, mount]
            environment = {"HOME": "/", "JOB_COMPLETION_INDEX": str(index), "LANG": "C.UTF-8",
                           "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", **variables}
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                ["nsenter", "-t", str(host.pid_of(name)), "-m", "-u", "-i", "-n", "-p", *place, "setpriv",
                 f"--reuid={POD_USER}", f"--regid={POD_USER}", f"--groups={POD_USER}", "--no-new-privs",
                 "--inh-caps=-all", "--bounding-set=-all", *words],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd="/", process_group=0)

    def wait_for(self, words):
        wait_until(lambda: re.search(words, self.log.read_text()), 60, lambda: f"{words!r}\n{self.log.read_text()}")

    def ends(self, seconds=60):
        wait_until(lambda: self.process.poll() is not None, seconds, lambda: f"an end\n{self.log.read_text()}")
        return self.process.returncode, self.log.read_text(errors="replace")


def give_name(name, other):
    """Another name of a host, such as that in DNS, for all hosts and for the launcher's machine."""
    address = re.search(rf"(?m)^(10\.\S+)\s.*\b{name}\b", pathlib.Path("/etc/hosts").read_text())[1]
    line = f"echo {address} {other} >>/etc/hosts"
    for place in ([], *([HOSTS, "exec", each] for each in os.environ["HVD_HOSTS"].split())):
        subprocess.run([*place, "sh", "-c", line], check=True)


def need_pod_user():
    if subprocess.run(["setpriv", f"--reuid={POD_USER}", f"--regid={POD_USER}", "--clear-groups", "test", "-x", WORKER],
                      check=False).returncode:
        raise Skip(f"user {POD_USER} cannot run {WORKER}")


def pods_run_together(names, subdomain, container, **more):
    """Runs a program in two pods, and returns the output of the first one."""
    if "image" not in more:
        need_pod_user()
    before = Inventory()
    with secret_volume() as folder:
        # Its launcher has no name in DNS yet.
        second = Pod(names[1], 1, copy.deepcopy(container), folder, **more)
        second.wait_for(f"waits for its launcher: '{names[0]}.{subdomain}' does not resolve")
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
    container, = job["spec"]["template"]["spec"]["containers"]
    pods_add_up(("horovod-0", "horovod-1"), "horovod", container)


@world("horovod-0 horovod-1")
def test_the_pods_of_the_indexed_job_train_the_digits():
    """The program of the manifest, from this tree in place of the image."""
    job = one(rendered(FOLDER / "base"), "Job")
    container, = job["spec"]["template"]["spec"]["containers"]
    script = ROOT / PROGRAM[1].lstrip("/")
    said = pods_run_together(("horovod-0", "horovod-1"), "horovod", container,
                             program=(PROGRAM[0], script, "--epochs", 4))
    expect(re.search(r"test accuracy 0\.9\d* after .* on 4 processes", said), said)


@world("horovod-0 horovod-1")
def test_the_pods_of_the_indexed_job_train_in_the_image_of_a_release():
    """The walk of a new user, from the image: the command of the manifest with the files of the image alone."""
    archive = packages_test.release_file("horovod-*-cpu.oci.tar")
    if archive is None:
        raise Skip("HVD_TEST_RELEASE names no folder with the files of a release")
    if not shutil.which("umoci"):
        raise Skip("there is no umoci; packaging/packages-release.txt names it")
    container, = one(read_all(ROOT / "k8s/horovod-job.yaml"), "Job")["spec"]["template"]["spec"]["containers"]
    started = time.monotonic()
    # The hosts have a /tmp of their own.
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="e2e-", ignore_cleanup_errors=True) as path:
        image = packages_test.unpack_image(archive, pathlib.Path(path))
        said = pods_run_together(("horovod-0", "horovod-1"), "horovod", container, program=PROGRAM, image=image)
    expect(re.search(r"test accuracy 0\.9\d* after .* on 4 processes", said), said)
    packages_test.in_time("Kubernetes", started)


@world("horovod-pods-0-0 horovod-pods-0-1")
def test_the_pods_of_the_job_set_add_up():
    job_set = one(read_all(FOLDER / "jobset.yaml"), "JobSet")
    part, = job_set["spec"]["replicatedJobs"]
    container, = part["template"]["spec"]["template"]["spec"]["containers"]
    pods_add_up(("horovod-pods-0-0", "horovod-pods-0-1"), job_set["spec"]["network"]["subdomain"], container)


@world("horovod-0 horovod-1")
def test_a_secret_that_others_can_read_is_refused_with_the_fix():
    need_pod_user()
    container, = one(rendered(FOLDER / "base"), "Job")["spec"]["template"]["spec"]["containers"]
    give_name("horovod-0", "horovod-0.horovod")
    for mode, group in ((0o444, POD_USER), (0o644, 0)):
        with secret_volume(mode, group) as folder:
            code, said = Pod("horovod-1", 1, copy.deepcopy(container), folder).ends()
        expect(code == 2 and "is open to others" in said and "defaultMode: 0440" in said, f"{code}: {said}")


def test_a_pod_whose_launcher_has_a_name_too_long_for_dns_says_so():
    with tempfile.NamedTemporaryFile("w") as token:
        token.write("0123456789abcdef" * 4)
        token.flush()
        joined = subprocess.Popen([BUILD / "bin" / "horovod-agent", "--join", f"{'j' * 64}-0.horovod:29400",
                                   "--token-file", token.name], env=clean_environment(), stderr=subprocess.PIPE,
                                  text=True)
        try:
            said = joined.stderr.readline()
        finally:
            joined.kill()
            joined.wait()
    expect("waits for its launcher" in said and "has 66 characters, and DNS takes 63: give the job" in said, said)


def make_key(*kind, config=""):
    """The only key of all pods, in ~/.ssh as a volume has it, without known hosts."""
    ssh = pathlib.Path.home() / ".ssh"
    for path in ssh.iterdir():
        path.unlink()
    subprocess.run(["ssh-keygen", "-q", *kind, "-m", "PEM", "-N", "", "-f", ssh / "id_rsa"], check=True)
    (ssh / "id_rsa.pub").rename(ssh / "authorized_keys")
    if config:
        (ssh / "config").write_text(config)
    ssh.chmod(0o1777)  # as the folder of a volume


def start_worker(pod, container):
    """Runs the container's sshd in place of that of the host."""
    for pid in faults.processes(pod):
        if "sshd" in faults.said_of(pid, "cmdline"):
            os.kill(pid, signal.SIGTERM)
            # It must leave the port to the container's.
            wait_until(lambda pid=pid: not faults.said_of(pid, "cmdline"), 60, f"the end of the sshd of {pod}")
    return subprocess.Popen(
        ["nsenter", "-t", str(host.pid_of(pod)), "-m", "-u", "-i", "-n", "-p", *container["command"]],
        stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@world("horovod-worker-0 horovod-worker-1")
def test_the_launcher_of_a_volcano_job_reaches_its_workers():
    job, = read_all(FOLDER / "volcano.yaml")
    name = job["metadata"]["name"]
    launcher, worker = (task["template"]["spec"]["containers"][0] for task in job["spec"]["tasks"])
    workers = job["spec"]["tasks"][1]
    pods = [f"{name}-{workers['name']}-{number}" for number in range(workers["replicas"])]
    expect(pods == ["horovod-worker-0", "horovod-worker-1"], pods)
    for pod in pods:
        give_name(pod, f"{pod}.{name}")
    # The key and the settings of the plugin ssh.
    make_key("-t", "rsa", "-b", "2048", config="StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n" + "".join(
        f"Host {pod}\n  HostName {pod}.{name}\n" for pod in pods))
    servers = [start_worker(pod, worker) for pod in pods]
    words = launcher["command"] + launcher["args"]
    expect(words[-2:] == PROGRAM, words)
    # The variables of the plugins svc and env.
    environment = clean_environment(
        **variables_of(launcher), VC_LAUNCHER_HOSTS=f"{name}-launcher-0.{name}", VC_LAUNCHER_NUM="1",
        VC_WORKER_HOSTS=",".join(f"{pod}.{name}" for pod in pods), VC_WORKER_NUM=str(len(pods)), VC_TASK_INDEX="0",
        HOSTNAME=f"{name}-launcher-0")
    environment["PATH"] = f"{BUILD / 'bin'}:{environment['PATH']}"
    ended = Job(*words[1:-2], WORKER, "sum", program=words[0], environment=environment)
    ended.ends_with(0)
    expect(ranks_in([ended.out]) == [("0", "0 of 2"), ("1", "1 of 2"), ("2", "0 of 2"), ("3", "1 of 2")],
           ended.describe())
    for server in servers:
        server.terminate()


@world("horovod-worker-0 horovod-worker-1")
def test_the_launcher_of_the_mpi_job_reaches_its_workers():
    job, = read_all(FOLDER / "mpijob.yaml")
    name, slots = job["metadata"]["name"], job["spec"]["slotsPerWorker"]
    replicas = job["spec"]["mpiReplicaSpecs"]
    launcher, = replicas["Launcher"]["template"]["spec"]["containers"]
    worker, = replicas["Worker"]["template"]["spec"]["containers"]
    pods = [f"{name}-worker-{number}" for number in range(replicas["Worker"]["replicas"])]
    expect(pods == ["horovod-worker-0", "horovod-worker-1"], pods)
    for pod in pods:
        give_name(pod, f"{pod}.{name}.default.svc")
    # The operator makes the hostfile, one key for all pods and these variables, and no known hosts.
    pathlib.Path("/etc/mpi").mkdir()
    pathlib.Path("/etc/mpi/hostfile").write_text(
        "".join(f"{pod}.{name}.default.svc slots={slots}\n" for pod in pods))
    make_key("-t", "ecdsa", "-b", "521")
    servers = [start_worker(pod, worker) for pod in pods]
    for pod in pods:
        # The port of the readiness probe, for which the operator waits.
        port = worker["readinessProbe"]["tcpSocket"]["port"]
        wait_until(lambda pod=pod: subprocess.run(
            ["bash", "-c", f"exec 3<>/dev/tcp/{pod}/{port}"], stderr=subprocess.DEVNULL,
            check=False).returncode == 0, 30, f"sshd of {pod}")
    words = launcher["command"]
    expect(words[-2:] == PROGRAM and words[0] == "horovodrun", words)
    ended = Job(*words[1:-2], WORKER, "sum", environment=clean_environment(
        K_MPI_JOB_ROLE="launcher", OMPI_MCA_orte_default_hostfile="/etc/mpi/hostfile",
        OMPI_MCA_orte_set_default_slots=str(slots), OMPI_MCA_plm_rsh_args="-o ConnectionAttempts=10",
        OMPI_MCA_orte_keep_fqdn_hostnames="true"))
    ended.ends_with(0)
    expect(ranks_in([ended.out]) == [("0", "0 of 2"), ("1", "1 of 2"), ("2", "0 of 2"), ("3", "1 of 2")],
           ended.describe())
    for server in servers:
        server.terminate()


if __name__ == "__main__":
    main()
