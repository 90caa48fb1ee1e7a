#!/usr/bin/python3 -B
"""Kubernetes, or the operator of the object, knows each field of the manifests of packaging/kubernetes.

HVD_TEST_KUBERNETES names an interpreter that has kubernetes-validate, with the schemas of Kubernetes, and
kubeflow-trainer-api, with the models of JobSet and of Kubeflow Trainer.
"""

import json

from harness import *

from manifests import (
    FOLDER,
    faults_of,
    one,
    patched,
    read_all,
    rendered,
    restrictions_of,
    templates_of,
    variables_of,
    yaml,
)

OVERLAYS = sorted(path.parent.name for path in FOLDER.glob("overlays/*/kustomization.yaml"))
KUBERNETES = os.environ.get("HVD_TEST_KUBERNETES", "")
# Prefixes of API versions that Kubernetes itself does not define.
MANAGERS = (
    "jobset.x-k8s.io/",
    "kubeflow.org/",
    "trainer.kubeflow.org/",
    "batch.volcano.sh/",
    "monitoring.coreos.com/",
)


def check_indexed_job(things):
    """The fields of an Indexed Job that refer to each other agree."""
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
    """The fields of an Indexed Job whose pods join pod 0 agree; returns its port and subdomain."""
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
    # OpenShift gives each namespace a group.
    expect(volume["secret"]["defaultMode"] == 0o440, volume)
    expect(("fsGroup" in pod["securityContext"]) == ("runAsUser" in pod["securityContext"]), pod["securityContext"])
    expect(not (refused := list(restrictions_of(pod))), f"Pod Security restricted: {refused}")
    is_elastic = "--min-np" in variables["FLAGS"]
    expect((spec["backoffLimit"] > 0) == is_elastic, "a pod may start again alone")
    expect(pod["restartPolicy"] == "Never", "a container may start again alone")
    return int(port), subdomain


def check_probes(container, port):
    """Both probes query the port of --metrics-port, and a single late answer ends no pod."""
    ready, alive = container["readinessProbe"], container["livenessProbe"]
    expect(ready["exec"] == alive["exec"] and port in ready["exec"]["command"][-1], f"{ready}, {alive}")
    expect(alive["periodSeconds"] * alive["failureThreshold"] >= 600, f"{alive} ends a job soon")


def check_pod_monitor(things):
    """The PodMonitor selects pods of the job by their launcher's metrics port, and the NetworkPolicy admits it."""
    job, policy, monitor = (one(things, kind) for kind in ("Job", "NetworkPolicy", "PodMonitor"))
    labels = dict(monitor["spec"]["selector"]["matchLabels"])
    expect(labels.pop("batch.kubernetes.io/job-completion-index") == "0", "a pod without a launcher is scraped")
    template = job["spec"]["template"]
    expect(labels.items() <= template["metadata"]["labels"].items(), f"{labels} selects no pod")
    (container,) = template["spec"]["containers"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    (port,) = [each["containerPort"] for each in container["ports"] if each.get("name") == endpoint["port"]]
    expect(variables_of(container)["METRICS"] == f"0.0.0.0:{port}", container["env"])
    expect("--metrics-insecure" in variables_of(container)["FLAGS"], container["env"])
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


def check_train_jobs(runtimes, jobs):
    """Each job has its runtime with a part for the trainer; the job sets only variables of that part."""
    for runtime, job in zip(runtimes, jobs, strict=True):
        expect(job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"], job)
        parts = runtime["spec"]["template"]["spec"]["replicatedJobs"]
        (part,) = [
            part
            for part in parts
            if part["template"].get("metadata")
            == {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
        ]
        (container,) = part["template"]["spec"]["template"]["spec"]["containers"]
        # Trainer searches for this name.
        expect(container["name"] == "node", container)
        trainer = job["spec"]["trainer"]
        expect({each["name"] for each in trainer.get("env", ())} <= variables_of(container).keys(), trainer)
        expect(("PROGRAM" in variables_of(container)) == ("args" not in trainer), trainer)
    # sshd runs as root: a namespace with Pod Security restricted takes the other runtime.
    for runtime, is_restricted in zip(runtimes, (False, True), strict=True):
        refused = [each for pod, _ in templates_of(runtime).values() for each in restrictions_of(pod["spec"])]
        expect((not refused) == is_restricted, refused)


def test_each_field_of_the_manifests_is_one_of_kubernetes():
    files = sorted(path.name for path in FOLDER.glob("*.yaml"))
    expect(files == ["jobset.yaml", "mpijob.yaml", "trainer-runtime.yaml", "trainjob.yaml", "volcano.yaml"], files)
    base, others = rendered(FOLDER / "base"), [thing for name in files for thing in read_all(FOLDER / name)]
    expect(
        [thing["kind"] for thing in base + others]
        == "Service NetworkPolicy Job NetworkPolicy JobSet MPIJob ClusterTrainingRuntime ClusterTrainingRuntime "
        "TrainJob TrainJob Job".split(),
        others,
    )
    for thing in base + others:
        expect(not (faults := faults_of(thing)), faults)
    check_indexed_job(base)
    check_job_set(others[:2])
    (launcher,) = others[2]["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"]
    expect("--metrics-port 9400" in " ".join(launcher["command"]), launcher["command"])
    check_probes(launcher, "9400")
    check_train_jobs(others[3:5], others[5:7])
    volcano = others[-1]["spec"]
    (launcher,) = volcano["tasks"][0]["template"]["spec"]["containers"]
    expect("--metrics-port 9400 " in launcher["args"][0], launcher["args"])
    check_probes(launcher, "9400")
    expect(volcano["minAvailable"] == sum(task["replicas"] for task in volcano["tasks"]), "pods do not start together")


def test_the_manifest_has_the_name_that_guides_of_horovod_give_it():
    """Users run `kubectl apply -f k8s/horovod-job.yaml` in the folder that holds the examples."""
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
        # Each mounted volume belongs to the pod, and a script of a volume is at the container's mount.
        pod = one(things, "Job")["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        places = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        expect(places.keys() == {each["name"] for each in pod["volumes"]}, f"{name}: {places}")
        program = variables_of(container)["PROGRAM"].split()
        expect("script" not in places or program[-1].startswith(places["script"] + "/"), program)
        expect(program[0] == "python3", program)
        script = ROOT / program[1].lstrip("/")
        expect(script.is_file() or program[1] == "/code/train.py", f"{name}: there is no {script}")


def test_overlays_change_parts_by_name():
    """One more variable, container or volume in the base does not change an overlay's changes."""
    for name in OVERLAYS:
        text = (FOLDER / "overlays" / name / "kustomization.yaml").read_text()
        expect(not re.search(r"\bop:|/\d+/", text), f"{name} changes a part by its position")
    job = one(rendered(FOLDER / "overlays" / "openshift"), "Job")
    of_pod = job["spec"]["template"]["spec"]["securityContext"]
    expect(of_pod == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}, of_pod)
    (container,) = one(rendered(FOLDER / "overlays" / "gpu"), "Job")["spec"]["template"]["spec"]["containers"]
    expect(str(container["resources"]["limits"]["nvidia.com/gpu"]) == variables_of(container)["SLOTS"], container)


def test_pod_security_restricted_refuses_sshd_alone():
    """Checks the table of the page."""
    page = (ROOT / "docs/tutorials/kubernetes.md").read_text()
    for name in ("mpijob.yaml", "volcano.yaml"):
        pods = [pod["spec"] for thing in read_all(FOLDER / name) for pod, _ in templates_of(thing).values()]
        expect(all(any("may run as root" in each for each in restrictions_of(pod)) for pod in pods), name)
    expect("Pod Security *restricted*" in page and "sshd as root" in page, "the page does not say so")


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
    """Returns exit code and output of kubernetes-validate about objects."""
    path = folder / "objects.yaml"
    path.write_text(yaml.safe_dump_all(things))
    done = run_to_end([KUBERNETES, "-m", "kubernetes_validate", "--strict", "-k", version, path])
    return done.returncode, done.stdout + done.stderr


def objects_of_kubernetes():
    """Returns the objects of all manifests that Kubernetes itself defines; for other objects, the Jobs and pods that
    their controllers make."""
    for folder in [FOLDER / "base", *(FOLDER / "overlays" / name for name in OVERLAYS)]:
        yield from (thing for thing in rendered(folder) if not thing["apiVersion"].startswith(MANAGERS))
    for path in sorted(FOLDER.glob("*.yaml")):
        for thing in read_all(path):
            if not thing["apiVersion"].startswith(MANAGERS):
                yield thing
                continue
            if thing["kind"] == "TrainJob":
                continue
            if thing["kind"] in ("JobSet", "ClusterTrainingRuntime"):
                for part in thing["spec"].get("template", thing)["spec"]["replicatedJobs"]:
                    yield {
                        "apiVersion": "batch/v1",
                        "kind": "Job",
                        **part["template"],
                        "metadata": {"name": part["name"], **part["template"].get("metadata", {})},
                    }
            for name, (template, _) in templates_of(thing).items():
                yield {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    **template,
                    "metadata": {"name": name, **template.get("metadata", {})},
                }


def test_the_schemas_of_kubernetes_know_each_field():
    """Validates with each version of the schemas, from 1.25 to the newest."""
    if not KUBERNETES:
        raise Skip("HVD_TEST_KUBERNETES names no Python that has kubernetes-validate")
    things = list(objects_of_kubernetes())
    kinds = [thing["kind"] for thing in things]
    expect(kinds.count("Job") == len(OVERLAYS) + 5 and kinds.count("Pod") == 8, kinds)
    misspelt = patched(things[kinds.index("Pod")], "[{op: add, path: /spec/subDomain, value: x}]")
    listed = run_to_end([KUBERNETES, "-c", "from kubernetes_validate import utils; print(*utils.all_versions())"])
    versions = sorted({version.removesuffix(".0") for version in listed.stdout.split()})
    expect(len(versions) >= 13 and versions[0] == "1.25", listed)
    with tempfile.TemporaryDirectory() as name:
        for version in versions:
            code, said = validate(things, version, pathlib.Path(name))
            # Without a schema, an object only gets a warning.
            expect(code == 0 and said.count("passed") == len(things), f"{version}: {said}")
        code, said = validate([misspelt], versions[-1], pathlib.Path(name))
        expect(code != 0 and "subDomain" in said, said)


# Prints the fields that the models keep.
KNOWN_TO_MODELS = (
    "import json, sys, kubeflow_trainer_api.models as models; "
    "json.dump([getattr(models, name).from_dict(thing).to_dict() for name, thing in json.load(sys.stdin)], sys.stdout)"
)


def unknown_fields(value, known, place):
    """Returns the places at which an object has a field that is missing in `known`, or has another value there."""
    if isinstance(value, dict) and isinstance(known, dict):
        for name, part in value.items():
            yield from unknown_fields(part, known.get(name), f"{place}.{name}")
    elif isinstance(value, list) and isinstance(known, list) and len(value) == len(known):
        for number, (part, of) in enumerate(zip(value, known)):
            yield from unknown_fields(part, of, f"{place}[{number}]")
    elif value != known:
        yield place


def test_the_models_of_jobset_and_trainer_know_each_field():
    if not KUBERNETES:
        raise Skip("HVD_TEST_KUBERNETES names no Python that has kubeflow-trainer-api")
    things = [
        ("JobsetV1alpha2JobSet", one(read_all(FOLDER / "jobset.yaml"), "JobSet")),
        *(("TrainerV1alpha1ClusterTrainingRuntime", each) for each in read_all(FOLDER / "trainer-runtime.yaml")),
        *(("TrainerV1alpha1TrainJob", each) for each in read_all(FOLDER / "trainjob.yaml")),
    ]
    wrong = (
        (0, "network/subDomain"),
        (0, "replicatedJobs/0/template/spec/completion"),
        (1, "mlPolicy/mpi/slotsPerWorker"),
        (3, "trainer/nodes"),
    )
    for number, field in wrong:
        model, thing = things[number]
        things.append((model, patched(thing, f"[{{op: add, path: /spec/{field}, value: x}}]")))
    done = run_to_end([KUBERNETES, "-c", KNOWN_TO_MODELS], input=json.dumps(things))
    if "No module named 'kubeflow_trainer_api'" in done.stderr:
        raise Skip(f"{KUBERNETES} has no kubeflow-trainer-api; tests/run.sh names its version")
    expect(done.returncode == 0, done.stderr)
    found = [
        list(unknown_fields(thing, known, thing["kind"])) for (_, thing), known in zip(things, json.loads(done.stdout))
    ]
    places = [[f"{things[n][1]['kind']}.spec.{field}".replace("/0/", "[0]/").replace("/", ".")] for n, field in wrong]
    expect(found == [[]] * (len(things) - len(wrong)) + places, found)


def test_kubectl_renders_the_same():
    if not shutil.which("kubectl"):
        raise Skip("kubectl is missing")
    for folder in [FOLDER / "base", *(FOLDER / "overlays" / name for name in OVERLAYS)]:
        done = run_to_end(["kubectl", "kustomize", folder])
        expect(done.returncode == 0, done.stderr)

        def by_kind(things):
            return sorted(things, key=lambda thing: thing["kind"])

        expect(by_kind(yaml.safe_load_all(done.stdout)) == by_kind(rendered(folder)), folder)


if __name__ == "__main__":
    main()
