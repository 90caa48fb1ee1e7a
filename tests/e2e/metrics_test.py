#!/usr/bin/python3 -B
"""`horovodrun metrics`, --metrics-file and --metrics-port: counts and usage of ranks, without queries to the ranks."""

import contextlib
import http.client
import json
import shutil
import socket
import urllib.parse
import urllib.request

from harness import *

COUNTS = """
import signal, sys
import numpy
import horovod.numpy as hvd
hvd.init()
for _ in range(20): hvd.allreduce(numpy.ones(25, "f4"), name="gradient")
if hvd.rank() == 2: sum(range(3 * 10**7))
print("ready", flush=True)
if hvd.rank() == 3: os.kill(os.getpid(), signal.SIGSTOP)
if hvd.rank() == 1:
    while True: pass
if hvd.rank() == 0:
    while not os.path.exists(sys.argv[1]): time.sleep(0.02)
    began = idle()
    text = hvd.metrics("job")
    print("asked", idle() - began, [line[-1] for line in text.splitlines() if "rank_up{" in line], flush=True)
time.sleep(600)
"""


def samples(text):
    """Returns the values by name and labels, without job_id."""
    found = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        name, value = line.rsplit(" ", 1)
        name = re.sub(r'job_id="[^"]+",?', "", name).replace("{}", "")
        expect(name not in found, f"{name} is there twice")
        found[name] = float(value)
    return found


get = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


def metrics_of(job, level):
    began = idle()
    seen = ask("metrics", "--level", level, job.process.pid)
    took = idle() - began
    expect(seen.returncode == 0 and took < 1.5, (took, seen))
    by_promtool("metrics", text=seen.stdout)
    return samples(seen.stdout)


def by_promtool(*words, text=None):
    """Fails if promtool, if installed, reports an error."""
    if shutil.which("promtool"):
        checked = run_to_end(["promtool", "check", *words], input=text)
        expect(checked.returncode == 0 and not checked.stderr, checked)


@world()
def test_ranks_that_are_stopped_and_busy_are_counted_in_time():
    go = scratch() / "go"
    job = Job("-np", 4, "-H", "a:2,b:2", PYTHON, "-c", IDLE + COUNTS, go)
    job.wait_for("ready", 4)
    wait_until(
        lambda: any(" T " in faults.said_of(pid, "stat") for pid, _ in job.before.new_ones()), LONG, "a stopped rank"
    )
    go.touch()
    job.wait_for("asked")
    took, ups = re.search(r"asked ([0-9.]+) (\[.*\])", job.out).groups()
    expect(float(took) < 1, f"hvd.metrics took {took} s")
    expect(ups == "['1', '1', '1', '0']", job.describe())
    summary = metrics_of(job, "summary")
    expect(summary['horovod_operations_total{operation="allreduce"}'] == 80, summary)
    expect(summary['horovod_bytes_total{operation="allreduce"}'] == 8000, summary)
    expect(summary["horovod_steps_total"] == 19, summary)
    expect(summary["horovod_ranks_up"] == 3, summary)
    expect(summary['horovod_ranks{state="in_job"}'] == 4, summary)
    expect(len(summary) <= 250 and not any("rank=" in name for name in summary), summary)
    ranks = metrics_of(job, "rank")
    expect(ranks['horovod_host_operations_total{host="b"}'] == 40, ranks)
    expect(ranks['horovod_rank_up{host="b",rank="3"}'] == 0, ranks)
    expect(ranks['horovod_rank_up{host="a",rank="1"}'] == 1, ranks)
    cpu = [ranks[f'horovod_rank_cpu_seconds_total{{host="b",rank="{rank}"}}'] for rank in (2, 3)]
    expect(cpu[0] > cpu[1] > 0, cpu)  # rank 2 has computed more
    expect(ranks['horovod_rank_resident_bytes{host="b",rank="3"}'] > 10**7, ranks)
    again = metrics_of(job, "rank")
    for name, value in ranks.items():
        counts = name.split("{")[0].endswith(("_total", "_count", "_sum", "_bucket"))
        expect(not counts or again[name] >= value, f"{name} fell from {value} to {again[name]}")
    faults.cut("b", "launcher")
    cut = metrics_of(job, "host")
    expect(cut['horovod_host_up{host="b"}'] == 1, "an answer that comes late makes no host down")
    time.sleep(1.5)
    cut = metrics_of(job, "host")
    faults.heal("b", "launcher")
    expect(cut['horovod_host_up{host="b"}'] == 0 and cut['horovod_host_up{host="a"}'] == 1, cut)
    expect(cut['horovod_operations_total{operation="allreduce"}'] == 80, cut)
    job.signal(signal.SIGINT)
    job.wait()


@world()
def test_a_program_without_horovod_is_measured_and_the_file_goes_with_the_job():
    file = scratch() / "job.prom"
    burn = "sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done'; echo ready; exec sleep 600"
    job = Job("-np", 2, "-H", "a:1,b:1", "--metrics-file", file, "--metrics-level", "rank", "sh", "-c", burn)
    wait_until(file.exists, 30, lambda: f"no {file}\n{job.describe()}")
    job.wait_for("ready", 2, 60)
    ranks = metrics_of(job, "rank")
    expect(ranks['horovod_rank_cpu_seconds_total{host="a",rank="0"}'] > 0.05, ranks)
    expect(ranks['horovod_rank_operations_total{host="b",rank="1"}'] == 0, ranks)
    expect(samples(file.read_text()).keys() == ranks.keys(), file.read_text())
    expect(file.stat().st_mode & 0o777 == 0o644, oct(file.stat().st_mode))
    expect(len(list(file.parent.glob("job.prom*"))) == 1, list(file.parent.iterdir()))
    expect("counts where" not in job.err, job.describe())
    job.signal(signal.SIGINT)
    job.wait()
    expect(not file.exists(), f"{file} outlived its job")


def test_a_file_that_cannot_be_written_is_one_sentence():
    job = Job("-np", 1, "--metrics-file", "/no/such/folder/job.prom", "sleep", 1)
    job.ends_with(0)
    expect(job.err.count("cannot write /no/such/folder/job.prom (--metrics-file): ") == 1, job.describe())
    wrong = ask("metrics", "--level", "all")
    expect(wrong.returncode == 2 and "summary|host|rank" in wrong.stderr, wrong)


def test_prometheus_finds_a_port_that_stays_over_restarts():
    folder = scratch()
    environment = clean_environment(HOROVOD_STATE_DIR=str(folder / "state"))
    program = f"if mkdir {folder}/first; then exit 1; fi; echo ready; exec sleep 600"
    flags = ("-np", 1, "--name", "served", "--max-restarts", 1, "--metrics-port")
    job = Job(*flags, 0, "sh", "-c", program, environment=environment)
    job.wait_for("ready", 1, 60)
    (file,) = (folder / "state").glob("*.metrics.json")
    (group,) = json.loads(file.read_text())
    (target,) = group["targets"]
    expect(target.startswith("127.0.0.1:") and file.stat().st_mode & 0o777 == 0o644, file.read_text())
    listed = Job("ps", "-a", "--json", environment=environment)
    listed.ends_with(0)
    expect(json.loads(listed.out)["metrics"] == target, listed.describe())
    text = get(f"http://{target}/metrics", timeout=LONG).read().decode()
    by_promtool("metrics", text=text)
    found = samples(text)
    expect(found["horovod_ranks_up"] == 1 and found["horovod_job_restarts_total"] == 1, text)
    expect('name="served"' in text and str(folder) not in text and "sleep" not in text, text)
    accepts = urllib.request.Request(f"http://{target}/metrics", headers={"Accept": "application/openmetrics-text"})
    expect(get(accepts, timeout=LONG).read().endswith(b"# EOF\n"), "OpenMetrics")
    expect(get(f"http://{target}/healthz", timeout=LONG).read() == b"ok\n", "/healthz")
    config = folder / "prometheus.yml"
    config.write_text(
        f"scrape_configs:\n  - job_name: horovod\n    file_sd_configs:\n      - files: ['{folder}/state/*.json']\n"
    )
    by_promtool("config", config)
    taken = Job("-np", 1, "--metrics-port", target, "true", environment=environment)
    taken.ends_with(0)
    expect(taken.err.count("metrics are not served at --metrics-port") == 1, taken.describe())
    job.signal(signal.SIGINT)
    job.wait()
    expect(not file.exists(), f"{file} outlived its job")
    refused = Job("-np", 1, "--metrics-port", "0.0.0.0:0", "true")
    refused.ends_with(2)
    one_sentence(refused, "other machines can reach --metrics-port 0.0.0.0:0: .* --metrics-insecure")


def gpu_tool(script, name="nvidia-smi"):
    """Makes a folder with a program in place of nvidia-smi or rocm-smi, and the environment of a job that finds it."""
    if name != "nvidia-smi" and shutil.which("nvidia-smi"):
        raise Skip(f"this machine has nvidia-smi, which is asked before {name}")
    folder = scratch()
    (folder / name).write_text(script)
    (folder / name).chmod(0o755)
    return folder, clean_environment(PATH=f"{folder}:{os.environ['PATH']}")


@contextlib.contextmanager
def ranks_on_gpus(folder, environment, processes):
    """Starts a job of two ranks; a file `processes` of the folder has rank 1's process id in place of PID."""
    (folder / "processes").touch()
    job = Job("-np", 2, "sh", "-c", "echo pid $$; sleep 600; true", environment=environment)
    job.wait_for("pid ", 2, 60)
    pids = dict(re.findall(r"\[([01])\]<stdout>:pid ([0-9]+)", job.out))
    (folder / "processes").write_text(processes.replace("{PID}", pids["1"]))
    yield job
    job.signal(signal.SIGINT)
    job.wait()


def expect_gpu_bytes(job, count):
    found = metrics_of(job, "rank")
    expect(found['horovod_rank_gpu_bytes{host="localhost",rank="1"}'] == count, found)
    expect(found["horovod_job_gpu_bytes"] == count, found)


def test_the_memory_of_ranks_on_gpus():
    """Uses a program with the output of nvidia-smi: no GPU is needed."""
    folder, environment = gpu_tool(
        """#!/bin/sh
case $1 in
--query-gpu=*) printf 'GPU-a, 97\nGPU-b, [N/A]\n' ;;
*) cat "${0%/*}/processes" ;;
esac
"""
    )
    (folder / "rocm-smi").write_text("#!/bin/sh\necho >${0%/*}/rocm\n")
    (folder / "rocm-smi").chmod(0o755)
    processes = "GPU-a, {PID}, 1024\nGPU-b, {PID}, 1\nGPU-a, 1, 77\nfoo, bar, baz\n"
    with ranks_on_gpus(folder, environment, processes) as job:
        expect_gpu_bytes(job, 1025 << 20)
    expect(not (folder / "rocm").exists(), "rocm-smi is asked beside nvidia-smi")


OF_ROCM_SMI = """

======================= ROCm System Management Interface =======================
============================== % time GPU is busy ==============================
GPU[0]\t\t: GPU use (%): 3
GPU[0]\t\t: GFX Activity: N/A
GPU[1]\t\t: GPU use (%): 75
GPU[1]\t\t: GFX Activity: N/A
GPU[2]\t\t: GPU use (%): 98
GPU[2]\t\t: GFX Activity: N/A
================================================================================
================================ KFD Processes =================================
KFD process information:
PID\tPROCESS NAME\tGPU(s)\tVRAM USED \tSDMA USED\tCU OCCUPANCY\t
1  \tsystemd     \t1     \t77        \t0        \t0           \t
{PID}\tsh          \t2     \t3221225472\t0        \t12          \t
================================================================================
============================= GPUs Indexed by PID ==============================
PID 1 is using 1 DRM device(s):
2\x20
PID {PID} is using 2 DRM device(s):
0 1\x20
================================================================================
============================= End of ROCm SMI Log ==============================
"""


def test_the_memory_of_ranks_on_amd_gpus():
    """Uses the output of rocm-smi, whose exit code is that for GPUs without an activity counter."""
    folder, environment = gpu_tool(
        """#!/bin/sh
[ "$*" = "--showuse --showpids --showpidgpus" ] && cat "${0%/*}/processes"
exit 2
""",
        "rocm-smi",
    )
    with ranks_on_gpus(folder, environment, OF_ROCM_SMI) as job:
        expect_gpu_bytes(job, 3 << 30)
        seen = ask("ps", "--json", job.process.pid)
        ranks = json.loads(seen.stdout)["hosts"][0]["ranks"]
        expect([rank.get("gpu_share") for rank in ranks] == [None, 0.75], seen)


def test_a_program_for_gpus_that_hangs_is_one_sentence():
    names = ["nvidia-smi"] if shutil.which("nvidia-smi") else ["nvidia-smi", "rocm-smi"]
    hangs = "#!/bin/sh\necho $$ >>${0%/*}/asked\nexec sleep 600\n"
    folders, environments = zip(*(gpu_tool(hangs, name) for name in names))
    jobs = [
        Job("-np", 1, "sh", "-c", "echo ready; exec sleep 600", environment=environment) for environment in environments
    ]
    for job in jobs:
        job.wait_for("ready", 1, 60)
        for _ in range(2):
            expect(metrics_of(job, "summary")["horovod_job_gpu_bytes"] == 0, "no GPU is known")  # returns in time
    for job, name, folder in zip(jobs, names, folders):
        silent = f"{name} has not answered for 3 s"
        wait_until(
            lambda job=job, silent=silent: metrics_of(job, "summary") and silent in job.err,
            LONG,
            job.describe,
            interval=0.5,
        )
        for _ in range(2):
            metrics_of(job, "summary")
        expect(job.err.count(silent) == 1, job.describe())
        asked = (folder / "asked").read_text().split()
        expect(len(asked) == 1 and not os.path.exists(f"/proc/{asked[0]}"), asked)
        job.signal(signal.SIGINT)
        job.wait()
        job.leaves_nothing()
    # The job ends with its ranks, and does not wait for the GPU program.
    folder, environment = folders[0], environments[0]
    waits = "echo ready; while [ ! -e stop ]; do sleep 0.05; done"
    job = Job("-np", 1, "sh", "-c", waits, environment=environment, cwd=folder)
    job.wait_for("ready", 1, 60)
    metrics_of(job, "summary")
    wait_until(lambda: len((folder / "asked").read_text().split()) == 2, 20, job.describe)
    (folder / "stop").touch()
    job.ends_with(0)
    expect(job.err == "", job.describe())
    job.leaves_nothing()


LOOPS = """
import os, time
import numpy
import horovod.numpy as hvd
hvd.init()
goes_on = True
while goes_on:
    hvd.allreduce(numpy.ones(25, "f4"), name="gradient")
    goes_on = bool(hvd.broadcast(numpy.array(not os.path.exists("stop")), root_rank=0, name="goes on"))
    time.sleep(0.01)
hvd.shutdown()
"""


def test_rank_0_shows_a_job_of_another_launcher():
    mpirun = shutil.which("mpirun.openmpi")
    if mpirun is None:
        raise Skip("there is no mpirun.openmpi: packaging/packages-test.txt names its package")
    folder = scratch()
    file = folder / "job.prom"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        flags = ("--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", 3, PYTHON, "-c")
        variables = {"HOROVOD_METRICS_PORT": str(port)}
        program = "import horovod.numpy as hvd; hvd.init()"
        refused = Job(*flags, program, program=mpirun, environment=clean_environment(**variables))
        refused.ends_with(0)
        expect(refused.err.count("metrics are not served at HOROVOD_METRICS_PORT=") == 1, refused.describe())
    variables["HOROVOD_METRICS_FILE"] = str(file)
    job = Job(*flags, LOOPS, program=mpirun, cwd=folder, environment=clean_environment(**variables))
    wait_until(file.exists, 60, lambda: f"no {file}\n{job.describe()}")
    first = samples(file.read_text())
    for _ in range(2):
        text = get(f"http://127.0.0.1:{port}/metrics", timeout=LONG).read().decode()
        by_promtool("metrics", text=text)
        found = samples(text)
        expect(found.keys() >= first.keys() and found["horovod_ranks_up"] == 3, text)
        expect(not re.search("rank=|host=", text), text)
        for name, value in first.items():
            expect(not name.split("{")[0].endswith("_total") or found[name] >= value, (name, value, found[name]))
        first = found
        time.sleep(1.1)
    sum_of_operations = found['horovod_operations_total{operation="allreduce"}']
    expect(2.5 * found["horovod_steps_total"] < sum_of_operations < 4 * found["horovod_steps_total"] + 99, text)
    head = urllib.request.Request(f"http://127.0.0.1:{port}/healthz", method="HEAD")
    expect(get(head, timeout=LONG).read() == b"", "HEAD has no body")
    for host, status in (("rebound.example:80", 421), ("localhost:80", 200), ("[::1]:80", 200)):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONG)
        connection.request("GET", "/healthz", headers={"Host": host})
        expect(connection.getresponse().status == status, host)
        connection.close()
    (folder / "stop").touch()
    job.ends_with(0)
    expect(not file.exists() and "Traceback" not in job.err, job.describe())


STEPS = """
import time
import numpy
import horovod.numpy as hvd
hvd.init()
for _ in range(6000):
    hvd.grouped_allreduce([numpy.ones(1000), numpy.ones(10)], name="gradients")
    time.sleep(0.01 + 0.01 * hvd.rank())
"""
# Seconds between two scrapes: the interval of docs/metrics.md, and Prometheus's default.
SCRAPES = (15, 60)
# The format of dcgm-exporter; the test machine has no GPU.
OF_GPUS = "".join(
    f'DCGM_FI_DEV_{name}{{gpu="0",UUID="GPU-0",device="nvidia0",modelName="none",Hostname="a"}} 1\n'
    for name in ("GPU_UTIL", "FB_USED", "POWER_USAGE")
)


@contextlib.contextmanager
def prometheus(recordings):
    """Yields a function that evaluates a query in Prometheus at a time, over (time, metrics) in the order of time."""
    folder = scratch()
    with open(folder / "recorded", "w") as file:
        for at, text in recordings:
            file.writelines(f"{line} {at}\n" for line in text.splitlines() if not line.startswith("#"))
        file.write("# EOF\n")
    made = run_to_end(["promtool", "tsdb", "create-blocks-from", "openmetrics", "recorded", "data"], cwd=folder)
    expect(made.returncode == 0, made)
    (folder / "prometheus.yml").write_text("{}")
    log = folder / "log"
    with open(log, "w") as file:
        server = subprocess.Popen(
            [
                "prometheus",
                "--config.file=prometheus.yml",
                "--storage.tsdb.path=data",
                "--web.listen-address=127.0.0.1:0",
            ],
            cwd=folder,
            stdout=file,
            stderr=file,
        )
    try:
        found = wait_until(
            lambda: (
                re.search(r'msg="Listening on" address=(\S+)', log.read_text())
                if "ready to receive" in log.read_text()
                else None
            ),
            60,
            log.read_text,
        )

        def ask_for(query, at):
            words = urllib.parse.urlencode({"query": query, "time": at})
            answer = json.loads(get(f"http://{found[1]}/api/v1/query?{words}", timeout=LONG).read())
            return answer["data"]["result"]

        yield ask_for
    finally:
        server.kill()
        server.wait()


def as_grafana_asks(query, scrape):
    """Returns a query of the dashboard, for all jobs and hosts of a source with this scrape interval."""
    return query.replace("$__rate_interval", f"{4 * scrape}s").replace("$job", ".*").replace("$host", ".*")


@world()
def test_prometheus_answers_each_query_of_the_board_at_scrapes_of_15_and_60_s():
    """Reads a job's metrics six times and records them with a distance of 15 s at the default level, and of 60 s at the
    ranks' level."""
    if not shutil.which("prometheus") or not shutil.which("promtool"):
        raise Skip("there is no prometheus: packaging/packages-test.txt names it")
    state = scratch() / "state"
    environment = clean_environment(HOROVOD_STATE_DIR=str(state))
    job = Job("-np", 2, "-H", "a:1,b:1", "--metrics-port", 0, PYTHON, "-c", STEPS, environment=environment)
    (file,) = wait_until(lambda: list(state.glob("*.metrics.json")), 60, job.describe)
    ((target,),) = (group["targets"] for group in json.loads(file.read_text()))
    texts = []

    def scrape():
        text = get(f"http://{target}/metrics", timeout=LONG).read().decode()
        if "horovod_step_age_seconds{" in text:
            of_ranks = run_to_end(
                [LAUNCHER, "metrics", "--level", "rank", str(job.process.pid)], env=environment, check=True
            ).stdout
            texts.append([text + OF_GPUS, of_ranks + OF_GPUS])
        return len(texts) == 6

    wait_until(scrape, 90, job.describe, interval=1.05)  # a reply is cached for a second
    job.signal(signal.SIGINT)
    job.wait()
    board = json.loads((ROOT / "examples/grafana/horovod.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    alerts = re.findall(r"\bhorovod_\w+", (ROOT / "examples/grafana/alerts.yml").read_text())
    expect(len(queries) > 25 and len(alerts) > 7, queries)
    end = int(time.time()) - 60
    recordings = {
        scrape: [(end - scrape * (6 - n) - 3600 * (scrape == 60), text[scrape == 60]) for n, text in enumerate(texts)]
        for scrape in SCRAPES
    }
    with prometheus(sorted(sum(recordings.values(), []))) as ask_for:
        for scrape, recording in recordings.items():
            at = recording[-1][0] + scrape // 3  # a query between two scrapes
            for query in queries:
                asked = as_grafana_asks(query, scrape)
                answers = ask_for(asked, at)
                expect(
                    answers and all(each["value"][1] != "NaN" for each in answers), f"{scrape} s: {asked}: {answers}"
                )
            # The second rank is late, on host b.
            (lateness,) = [query for query in queries if "waited" in query]
            late = {
                (each["metric"]["host"], each["metric"].get("rank")): float(each["value"][1])
                for each in ask_for(as_grafana_asks(lateness, scrape), at)
            }
            ranks = ("1", "0") if scrape == 60 else (None, None)
            expect(len(late) == 2 and late["b", ranks[0]] > late["a", ranks[1]] == 0, late)
            for name in alerts:
                is_there = scrape == 60 or not name.startswith("horovod_rank_")
                expect(bool(ask_for(name, at)) == is_there, f"{scrape} s: {name}")


if __name__ == "__main__":
    main()
