"""Reads the manifests of packaging/kubernetes, renders them like kubectl, and compares them with the known fields."""

import copy

from harness import *

try:
    import yaml
except ImportError:
    yaml = None

FOLDER = ROOT / "packaging" / "kubernetes"

# A schema is a type, a tuple of values, a list with the schema of its items, or an object with the schema of each
# field; "!" after a name means that the field is required. MAP holds strings by any name.
MAP = "map"
QUANTITIES = {"cpu": str, "memory": str, "nvidia.com/gpu": int}
NAMED = {"name!": str, "labels": MAP}
PROBE = {
    "tcpSocket": {"port!": int},
    "exec": {"command!": [str]},
    "periodSeconds": int,
    "timeoutSeconds": int,
    "failureThreshold": int,
}
CONTAINER = {
    "name!": str,
    "image!": str,
    "command": [str],
    "args": [str],
    "env": [{"name!": str, "value!": str}],
    "ports": [{"containerPort!": int, "name": str}],
    "resources": {"requests": QUANTITIES, "limits": QUANTITIES},
    "securityContext": {"allowPrivilegeEscalation": bool, "capabilities": {"drop": [str]}},
    "volumeMounts": [{"name!": str, "mountPath!": str, "readOnly": bool}],
    "readinessProbe": PROBE,
    "livenessProbe": PROBE,
}
VOLUME = {
    "name!": str,
    "secret": {"secretName!": str, "defaultMode": int},
    "emptyDir": {"medium": ("Memory",), "sizeLimit": str},
    "configMap": {"name!": str},
    "persistentVolumeClaim": {"claimName!": str},
}
POD = {
    "metadata": {"labels": MAP, "annotations": MAP},
    "spec!": {
        "containers!": [CONTAINER],
        "volumes": [VOLUME],
        "subdomain": str,
        "restartPolicy": ("Never", "OnFailure"),
        "automountServiceAccountToken": bool,
        "enableServiceLinks": bool,
        "imagePullSecrets": [{"name!": str}],
        "tolerations": [{"key": str, "operator": ("Exists", "Equal"), "effect": ("NoSchedule", "NoExecute")}],
        "securityContext": {
            "runAsNonRoot": bool,
            "runAsUser": int,
            "runAsGroup": int,
            "fsGroup": int,
            "seccompProfile": {"type!": ("RuntimeDefault",)},
        },
    },
}
SELECTOR = {"matchLabels!": MAP}
REPLICAS = {"replicas!": int, "restartPolicy": ("Never", "OnFailure"), "template!": POD}
JOB = {
    "completionMode": ("Indexed",),
    "completions": int,
    "parallelism": int,
    "backoffLimit": int,
    "suspend": bool,
    "ttlSecondsAfterFinished": int,
    "template!": POD,
}
PARTS = [{"name!": str, "replicas": int, "template!": {"metadata": {"labels": MAP}, "spec!": JOB}}]
POLICY = {
    "event!": ("PodFailed", "PodEvicted", "TaskCompleted"),
    "action!": ("AbortJob", "CompleteJob", "RestartJob", "TerminateJob"),
}
SCHEMAS = {
    ("v1", "Service"): {
        "metadata!": NAMED,
        "spec!": {
            "clusterIP": ("None",),
            "publishNotReadyAddresses": bool,
            "selector!": MAP,
            "ports": [{"name": str, "port!": int}],
        },
    },
    ("v1", "PersistentVolumeClaim"): {
        "metadata!": NAMED,
        "spec!": {
            "accessModes!": [("ReadWriteMany", "ReadWriteOnce")],
            "resources!": {"requests!": {"storage!": str}},
            "storageClassName": str,
        },
    },
    ("networking.k8s.io/v1", "NetworkPolicy"): {
        "metadata!": NAMED,
        "spec!": {
            "podSelector!": SELECTOR,
            "policyTypes": [("Ingress", "Egress")],
            "ingress": [
                {"from": [{"podSelector": SELECTOR, "namespaceSelector": SELECTOR}], "ports": [{"port!": int}]}
            ],
        },
    },
    ("batch/v1", "Job"): {"metadata!": NAMED, "spec!": JOB},
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): {
        "metadata!": NAMED,
        "spec!": {
            "network": {"enableDNSHostnames": bool, "subdomain": str, "publishNotReadyAddresses": bool},
            "failurePolicy": {"maxRestarts": int},
            "suspend": bool,
            "ttlSecondsAfterFinished": int,
            "replicatedJobs!": PARTS,
        },
    },
    ("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime"): {
        "metadata!": NAMED,
        "spec!": {
            "mlPolicy!": {
                "numNodes!": int,
                "torch": {},
                "mpi": {
                    "mpiImplementation": ("OpenMPI", "Intel", "MPICH"),
                    "numProcPerNode": int,
                    "sshAuthMountPath": str,
                    "runLauncherAsNode": bool,
                },
            },
            "template!": {
                "spec!": {
                    "network": {"publishNotReadyAddresses": bool},
                    "successPolicy": {"operator!": ("All", "Any"), "targetReplicatedJobs": [str]},
                    "replicatedJobs!": PARTS,
                }
            },
        },
    },
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): {
        "metadata!": NAMED,
        "spec!": {
            "runtimeRef!": {"name!": str},
            "suspend": bool,
            "trainer": {
                "image": str,
                "command": [str],
                "args": [str],
                "env": [{"name!": str, "value!": str}],
                "numNodes": int,
                "numProcPerNode": int,
                "resourcesPerNode": {"requests": QUANTITIES, "limits": QUANTITIES},
            },
        },
    },
    ("batch.volcano.sh/v1alpha1", "Job"): {
        "metadata!": NAMED,
        "spec!": {
            "schedulerName": ("volcano",),
            "minAvailable": int,
            "maxRetry": int,
            "queue": str,
            "policies": [POLICY],
            "plugins": {"svc": [str], "ssh": [str], "env": [str]},
            "ttlSecondsAfterFinished": int,
            "tasks!": [{"name!": str, "replicas!": int, "policies": [POLICY], "template!": POD}],
        },
    },
    ("kubeflow.org/v2beta1", "MPIJob"): {
        "metadata!": NAMED,
        "spec!": {
            "slotsPerWorker": int,
            "launcherCreationPolicy": ("AtStartup", "WaitForWorkersReady"),
            "runPolicy": {
                "cleanPodPolicy": ("None", "Running", "All"),
                "backoffLimit": int,
                "ttlSecondsAfterFinished": int,
                "activeDeadlineSeconds": int,
            },
            "mpiReplicaSpecs!": {"Launcher!": REPLICAS, "Worker!": REPLICAS},
        },
    },
    ("monitoring.coreos.com/v1", "PodMonitor"): {
        "metadata!": NAMED,
        "spec!": {
            "jobLabel": str,
            "podTargetLabels": [str],
            "selector!": SELECTOR,
            "namespaceSelector": {"any": bool, "matchNames": [str]},
            # The durations of Prometheus.
            "podMetricsEndpoints!": [
                {"port!": str, "path": str, "scheme": ("http", "https"), "interval": str, "scrapeTimeout": str}
            ],
        },
    },
    ("kustomize.config.k8s.io/v1beta1", "Kustomization"): {
        "resources!": [str],
        "images": [{"name!": str, "newName": str, "newTag": str}],
        "patches": [{"patch!": str}],
    },
}
# Kubernetes accepts a misspelt label, and Kueue does not queue a job without its queue label.
KUEUE_LABELS = ("kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class")


def faults_in(value, schema, place):
    """Returns an error for each part of a value that its schema does not allow."""
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
    if not faults and kind[1] in ("Job", "JobSet", "MPIJob", "ClusterTrainingRuntime"):
        faults += faults_of_pods(thing)
    return faults


def templates_of(job):
    """Yields the (template, number of pods) of each part of a job, by the name of its pods without their number."""
    name, spec = job["metadata"]["name"], job["spec"]
    if job["kind"] == "MPIJob":
        return {
            f"{name}-{kind.lower()}": (part["template"], part["replicas"])
            for kind, part in spec["mpiReplicaSpecs"].items()
        }
    if job["kind"] == "ClusterTrainingRuntime":
        # A TrainJob with the same name makes the pods.
        return {
            f"{name}-{part['name']}-0": (
                part["template"]["spec"]["template"],
                spec["mlPolicy"]["numNodes"] if part["name"] == "node" else 1,
            )
            for part in spec["template"]["spec"]["replicatedJobs"]
        }
    if job["kind"] == "JobSet":
        return {
            f"{name}-{part['name']}-{part.get('replicas', 1) - 1}": (
                part["template"]["spec"]["template"],
                part["template"]["spec"]["completions"],
            )
            for part in spec["replicatedJobs"]
        }
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


def restrictions_of(pod):
    """Returns an error for each part of a pod's spec that the Pod Security Standard `restricted` refuses."""
    of_pod = pod.get("securityContext", {})
    for container in pod["containers"]:
        of_container = container.get("securityContext", {})
        either = {**of_pod, **of_container}
        if either.get("runAsNonRoot") is not True or either.get("runAsUser") == 0:
            yield f"{container['name']} may run as root"
        if either.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
            yield f"{container['name']} has no seccompProfile"
        if of_container.get("allowPrivilegeEscalation") is not False:
            yield f"{container['name']} has no allowPrivilegeEscalation: false"
        if "ALL" not in of_container.get("capabilities", {}).get("drop", ()):
            yield f"{container['name']} does not drop ALL capabilities"
    allowed = {"name", "configMap", "emptyDir", "secret", "persistentVolumeClaim", "projected", "downwardAPI", "csi"}
    for volume in pod.get("volumes", ()):
        yield from (f"the volume {volume['name']} is of {kind}" for kind in volume.keys() - allowed)


def read_all(path):
    if yaml is None:
        raise Skip("python3-yaml is missing")
    return [thing for thing in yaml.safe_load_all(path.read_text()) if thing]


def patched(thing, patch):
    """Returns a copy of an object with the changes of a JSON patch."""
    thing = copy.deepcopy(thing)
    for change in yaml.safe_load(patch):
        *parents, last = [part.replace("~1", "/") for part in change["path"].strip("/").split("/")]
        at = thing
        for part in parents:
            at = at[int(part)] if isinstance(at, list) else at[part]
        if last == "-":
            expect(change["op"] == "add", change)
            at.append(change["value"])
            continue
        last = int(last) if isinstance(at, list) else last
        if change["op"] == "add" and isinstance(at, list):
            at.insert(last, change["value"])
            continue
        if change["op"] == "replace":
            at[last]  # raises an error if the target does not exist
        expect(change["op"] in ("replace", "add"), change)
        at[last] = change["value"]
    return thing


# The field that identifies the items of a list; a list with another name is replaced completely.
MERGE_KEYS = {
    "containers": "name",
    "env": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
}


def merged(thing, patch, name=""):
    """Returns a copy of an object with a strategic merge patch, merged like kubectl: lists by name, the patch's items
    first, and null removes."""
    if isinstance(thing, list) and isinstance(patch, list) and (key := MERGE_KEYS.get(name)):
        before = {each[key]: each for each in thing}
        return [merged(before.pop(each[key], None), each) for each in patch] + list(before.values())
    if not (isinstance(thing, dict) and isinstance(patch, dict)):
        return copy.deepcopy(patch)
    kept = {key: value for key, value in thing.items() if key not in patch}
    for key, value in patch.items():
        if value is not None:
            kept[key] = merged(thing.get(key), value, key)
    return kept


def rendered(folder):
    """Returns the objects that a folder of Kustomize makes."""
    (settings,) = read_all(folder / "kustomization.yaml")
    expect(not (faults := faults_of(settings)), f"{folder}: {faults}")
    things = []
    for name in settings["resources"]:
        path = folder / name
        things += rendered(path) if path.is_dir() else read_all(path)
    for change in settings.get("patches", ()):
        patch = yaml.safe_load(change["patch"])
        found = [
            n
            for n, thing in enumerate(things)
            if (thing["kind"], thing["metadata"]["name"]) == (patch["kind"], patch["metadata"]["name"])
        ]
        expect(len(found) == 1, f"{folder}: {patch['kind']} {patch['metadata']['name']} is not one object")
        things[found[0]] = merged(things[found[0]], patch)
    for image in settings.get("images", ()):
        containers = [
            container
            for thing in things
            if thing["kind"] == "Job"
            for container in thing["spec"]["template"]["spec"]["containers"]
        ]
        changed = [each for each in containers if each["image"].rpartition(":")[0] == image["name"]]
        expect(changed, f"{folder}: no container has the image {image['name']}")
        for container in changed:
            container["image"] = f"{image['newName']}:{image['newTag']}"
    return things


def one(things, kind):
    (thing,) = [thing for thing in things if thing["kind"] == kind]
    return thing


def variables_of(container):
    return {each["name"]: each["value"] for each in container.get("env", ())}
