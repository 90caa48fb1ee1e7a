#!/usr/bin/python3 -B
"""Each field of the manifests of packaging/kubernetes is one that Kubernetes, or the operator of the object, knows.

HVD_TEST_KUBERNETES names an interpreter that has kubernetes-validate, with the schemas of Kubernetes, and
kubeflow-trainer-api, with the models of JobSet.
"""

import json

from harness import *

from manifests import FOLDER, faults_of, one, patched, read_all, rendered, templates_of, variables_of, yaml

OVERLAYS = sorted(path.parent.name for path in FOLDER.glob("overlays/*/kustomization.yaml"))
KUBERNETES = os.environ.get("HVD_TEST_KUBERNETES", "")
# The first words of versions whose objects others than Kubernetes define.
MANAGERS = ("jobset.x-k8s.io/", "kubeflow.org/", "batch.volcano.sh/", "monitoring.coreos.com/")


def check_indexed_job(things):
    """The parts of an Indexed Job that name each other agree."""
    job, service, policy = (one(things, kind) for kind in ("Job", "Service", "NetworkPolicy"))
    template = job["spec"]["template"]
    port, subdomain = check_joining_pods(job["metadata"]["name"], job["spec"], template["spec"]["subdomain"])
    expect(
        service["metadata"]["name"] == subdomain
        and service["spec"]["publishNotReadyAddresses"] is True
        and service["spec"]["clusterIP"] == "None",
        "pods have no names",
    )
    for labels in (
        service["spec"]["selector"],
        policy["spec"]["podSelector"]["matchLabels"],
        policy["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"],
    ):
        expect(labels.items() <= template["metadata"]["labels"].items(), f"{labels} selects no pod")
    expect({each["port"] for each in service["spec"]["ports"]} == {port}, f"{service} has not the port {port}")


def check_joining_pods(name, spec, subdomain):
    """The parts of the spec of an Indexed Job whose pods join pod 0 agree; returns its port and subdomain."""
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    variables = variables_of(container)
    expect(spec["completions"] == spec["parallelism"] == int(variables["PODS"]), "numbers of pods differ")
    first, _, port = variables["LAUNCHER"].partition(":")
    expect(first == f"{name}-0.{subdomain}", f"LAUNCHER is {first}")
    ports = {each["containerPort"] for each in container["ports"] if each.get("name") != "metrics"}
    expect(ports == {int(port)} and f"--listen :{port} " in container["args"][0], f"ports {ports}, {port}")
    expect('--metrics-port "$METRICS"' in container["args"][0], "there is no port of the metrics")
    check_probes(container, "${METRICS##*:}")
    expect(pod["automountServiceAccountToken"] is False, "the pod has a token of the API server")
    (mount,) = [each for each in container["volumeMounts"] if variables["TOKEN"].startswith(each["mountPath"] + "/")]
    (volume,) = [each for each in pod["volumes"] if each["name"] == mount["name"]]
    expect(volume["secret"]["defaultMode"] == 0o440 and "fsGroup" in pod["securityContext"], volume)
    is_elastic = "--min-np" in container["args"]
    expect((spec["backoffLimit"] > 0) == is_elastic, "a pod may start again alone")
    expect(pod["restartPolicy"] == "Never", "a container may start again alone")
    return int(port), subdomain


def check_probes(container, port):
    """Both ask the port of --metrics-port, and one answer that is late ends no pod."""
    ready, alive = container["readinessProbe"], container["livenessProbe"]
    expect(ready["exec"] == alive["exec"] and port in ready["exec"]["command"][-1], f"{ready}, {alive}")
    expect(alive["periodSeconds"] * alive["failureThreshold"] >= 600, f"{alive} ends a job soon")


def check_pod_monitor(things):
    """It selects pods of the job, by the port at which their launcher serves the metrics, and they admit it."""
    job, policy, monitor = (one(things, kind) for kind in ("Job", "NetworkPolicy", "PodMonitor"))
    labels = dict(monitor["spec"]["selector"]["matchLabels"])
    expect(labels.pop("batch.kubernetes.io/job-completion-index") == "0", "a pod without a launcher is scraped")
    template = job["spec"]["template"]
    expect(labels.items() <= template["metadata"]["labels"].items(), f"{labels} selects no pod")
    (container,) = template["spec"]["containers"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    (port,) = [each["containerPort"] for each in container["ports"] if each.get("name") == endpoint["port"]]
    expect(variables_of(container)["METRICS"] == f"0.0.0.0:{port}", container["env"])
    expect("--metrics-insecure" in container["args"], container["args"])
    expect(policy["spec"]["ingress"][-1]["ports"] == [{"port": port}], policy)


def check_job_set(things):
    job_set, policy = (one(things, kind) for kind in ("JobSet", "NetworkPolicy"))
    (part,) = job_set["spec"]["replicatedJobs"]
    network, name = job_set["spec"]["network"], job_set["metadata"]["name"]
    check_joining_pods(f"{name}-{part['name']}-0", part["template"]["spec"], network["subdomain"])
    expect(network["enableDNSHostnames"] and network["publishNotReadyAddresses"], "pods have no names")
    expect(job_set["spec"]["failurePolicy"]["maxRestarts"] == 0, "the set starts again")
    for labels in (
        policy["spec"]["podSelector"]["matchLabels"],
        policy["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"],
    ):
        expect(labels == {"jobset.sigs.k8s.io/jobset-name": name}, f"{labels} selects no pod")


def test_each_field_of_the_manifests_is_one_of_kubernetes():
    files = sorted(path.name for path in FOLDER.glob("*.yaml"))
    expect(files == ["jobset.yaml", "mpijob.yaml", "volcano.yaml"], files)
    base, others = rendered(FOLDER / "base"), [thing for name in files for thing in read_all(FOLDER / name)]
    expect(
        [thing["kind"] for thing in base + others]
        == ["Service", "NetworkPolicy", "Job", "NetworkPolicy", "JobSet", "MPIJob", "Job"],
        others,
    )
    for thing in base + others:
        expect(not (faults := faults_of(thing)), faults)
    check_indexed_job(base)
    check_job_set(others[:2])
    (launcher,) = others[2]["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"]
    expect("--metrics-port 9400" in " ".join(launcher["command"]), launcher["command"])
    check_probes(launcher, "9400")
    volcano = others[-1]["spec"]
    (launcher,) = volcano["tasks"][0]["template"]["spec"]["containers"]
    expect("--metrics-port 9400 " in launcher["args"][0], launcher["args"])
    check_probes(launcher, "9400")
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
        if name == "metrics":
            check_pod_monitor(things)
        # Each volume is one of the pod's, and a script of a volume is where the container has that volume.
        pod = one(things, "Job")["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        places = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        expect(places.keys() == {each["name"] for each in pod["volumes"]}, f"{name}: {places}")
        expect("script" not in places or container["args"][-1].startswith(places["script"] + "/"), container["args"])


def test_faults_of_manifests_are_found():
    job = one(rendered(FOLDER / "base"), "Job")
    (mpi_job,) = read_all(FOLDER / "mpijob.yaml")
    (volcano,) = read_all(FOLDER / "volcano.yaml")
    job_set = one(read_all(FOLDER / "jobset.yaml"), "JobSet")
    (monitor,) = read_all(FOLDER / "overlays/metrics/podmonitor.yaml")

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
    expect("is not a field" in fault(monitor, "/spec/podMetricsEndpoint", []), "a misspelt field of a monitor")
    expect("of another type" in fault(monitor, "/spec/podMetricsEndpoints/0/port", 9400), "a number of a port")
    expect("is not a field" in fault(mpi_job, "/spec/runPolicy/ttlSecondsAfterFinish", 1), "a misspelt time to live")
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
    done = subprocess.run(
        [KUBERNETES, "-m", "kubernetes_validate", "--strict", "-k", version, path],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


def objects_of_kubernetes():
    """The objects of all manifests that Kubernetes itself has; of the others the Jobs and pods that their managers
    make."""
    for folder in [FOLDER / "base", *(FOLDER / "overlays" / name for name in OVERLAYS)]:
        yield from (thing for thing in rendered(folder) if not thing["apiVersion"].startswith(MANAGERS))
    for path in sorted(FOLDER.glob("*.yaml")):
        for thing in read_all(path):
            if not thing["apiVersion"].startswith(MANAGERS):
                yield thing
                continue
            if thing["kind"] == "JobSet":
                for part in thing["spec"]["replicatedJobs"]:
                    yield {
                        "apiVersion": "batch/v1",
                        "kind": "Job",
                        "metadata": {"name": part["name"]},
                        **part["template"],
                    }
            for name, (template, _) in templates_of(thing).items():
                yield {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    **template,
                    "metadata": {"name": name, **template.get("metadata", {})},
                }


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
KNOWN_TO_JOBSET = (
    "import json, sys; from kubeflow_trainer_api.models import JobsetV1alpha2JobSet as JobSet; "
    "json.dump(JobSet.from_dict(json.load(sys.stdin)).to_dict(), sys.stdout)"
)


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
        done = subprocess.run(
            [KUBERNETES, "-c", KNOWN_TO_JOBSET],
            input=json.dumps(thing),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
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


if __name__ == "__main__":
    main()
