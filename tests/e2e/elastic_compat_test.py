#!/usr/bin/python3 -B
"""Elastic jobs of our ranks under Horovod's own launcher, and of its workers under ours."""
from harness import *

sys.path.insert(0, str(ROOT / "tests" / "conformance" / "original"))
import driver

WORKER = ROOT / "tests" / "conformance" / "original" / "elastic_worker.py"
FOREIGN_RANK = WORKERS / "elastic_foreign_rank.py"


class Original:
    """A job of our ranks under a launcher that behaves as Horovod's own one."""

    def __init__(self, hosts, *arguments):
        self.driver = driver.Driver(hosts, [PYTHON, "-B", str(FOREIGN_RANK), *map(str, arguments)], scratch(),
                                    clean_environment())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.driver.end()

    def describe(self):
        return "\n".join(f"--- {name}\n{said}" for name, said in sorted(self.driver.said().items()))

    def begun(self, name):
        """(rank, size, step) of each generation of a slot's process."""
        return [tuple(map(int, words)) for words in
                re.findall(r"begins (\d+)/(\d+) at (\d+)", self.driver.said().get(name, ""))]

    def ends(self, *names):
        for name in names:
            wait_until(lambda name=name: "ends with" in self.driver.said().get(name, ""), 60, self.describe)
        found = {re.search(r"ends with (\d+)", self.driver.said()[name])[1] for name in names}
        expect(len(found) == 1, f"the sums differ\n{self.describe()}")
        return int(found.pop())


def test_ranks_of_ours_survive_a_killed_one_under_the_launcher_of_the_original():
    with Original([("x", 2), ("y", 2)], 20, "y:0@5") as job:
        total = job.ends("x:0", "x:1")
        first, second = job.begun("x:0"), job.begun("x:1")
        step = first[-1][2]
        expect(step in (4, 5) and first == [(0, 4, 0), (0, 2, step)], job.describe())
        expect(second == [(1, 4, 0), (1, 2, step)], job.describe())
        expect(total == step * 4 + (20 - step) * 2, job.describe())


def test_a_removed_slot_leaves_and_a_new_host_joins_under_the_launcher_of_the_original():
    with Original([("x", 1), ("y", 1), ("z", 1)], 40, "y:0@5") as job:
        job.driver.hosts = [("x", 1), ("w", 1)]
        job.ends("x:0", "w:0")
        expect([place[:2] for place in job.begun("x:0")] == [(0, 3), (0, 2)], job.describe())
        expect(job.begun("w:0") == [(1, 2, job.begun("x:0")[-1][2])], job.describe())
        expect("has taken process z:0 out of the elastic job" in job.driver.said()["z:0"], job.describe())
        expect(sum(process.wait(60) == 0 for process in job.driver.started) == 2, job.describe())


def original(*arguments, hosts=("-H", "a:2,b:2")):
    """A job of workers that behave as those of the original."""
    return Job("--insecure-compat", "--min-np", 1, *hosts, PYTHON, "-B", WORKER, *arguments)


def begun(job):
    """{worker: [(rank, size, step), ...]} of workers that have begun, with the generations of each."""
    found = {}
    for name, *numbers in re.findall(r"(\w:\d) begins (\d+)/(\d+) at (\d+)", job.out):
        found.setdefault(name, []).append(tuple(map(int, numbers)))
    return found


def discovery(folder, *hosts):
    """Writes what the discovery script answers from now on."""
    answer = folder / "answer"
    answer.with_suffix(".new").write_text("".join(f"{host}\n" for host in hosts))
    answer.with_suffix(".new").rename(answer)
    return "--host-discovery-script", f"cat {answer}"


@world()
def test_workers_of_the_original_survive_a_killed_one():
    job = original(20, "--kill", "b:1@5")
    job.ends_with(0)
    job.leaves_nothing()
    ranks = begun(job)
    expect("a:0" in ranks, job.describe())
    step = ranks["a:0"][-1][2]
    expect(step in (4, 5) and ranks == {"a:0": [(0, 4, 0), (0, 2, step)], "a:1": [(1, 4, 0), (1, 2, step)],
                                        "b:0": [(2, 4, 0)], "b:1": [(3, 4, 0)]}, job.describe())
    total = step * 4 + (20 - step) * 2
    expect(set(re.findall(r"ends with (\d+)", job.out)) == {str(total)}, job.describe())


@world()
def test_a_killed_first_worker_of_the_original_gives_its_rank_to_another_host():
    job = original(20, "--kill", "a:0@5")
    job.ends_with(0)
    job.leaves_nothing()
    expect([place[:2] for place in begun(job)["b:0"]] == [(2, 4), (0, 2)], job.describe())
    expect([place[:2] for place in begun(job)["b:1"]] == [(3, 4), (1, 2)], job.describe())


@world("a b c")
def test_workers_of_the_original_grow_and_shrink_as_the_script_says():
    folder = scratch()
    job = original(400, "--slow", 0.05, hosts=("-np", 1, *discovery(folder, "a:1")))
    job.wait_for("a:0 begins 0/1 at")
    discovery(folder, "a:1", "b:2")
    job.wait_for(r"b:\d begins \d/3 at", 2)
    expect([place[:2] for place in begun(job)["a:0"]] == [(0, 1), (0, 3)], job.describe())
    expect(all(place[0][2] > 0 for name, place in begun(job).items() if name[0] == "b"), job.describe())
    discovery(folder, "a:1", "b:1")
    job.wait_for(r"b:0 begins 1/2 at")
    discovery(folder, "b:1", "c:1")
    job.wait_for(r"b:0 begins 0/. at")
    job.wait_for(r"c:0 begins \d/\d at")
    job.ends_with(0, 120)
    job.leaves_nothing()
    expect(len(set(re.findall(r"ends with (\d+)", job.out))) == 1, job.describe())
    expect(sorted(re.findall(r"(\w:\d) ends with", job.out)) == ["b:0", "c:0"], job.describe())


@world()
def test_a_worker_of_the_original_that_is_late_costs_the_others_a_wait_and_no_failure():
    folder = scratch()
    job = original(150, "--slow", 0.05, "--import", 3, hosts=("-np", 1, *discovery(folder, "a:1")))
    job.wait_for("a:0 begins 0/1 at")
    discovery(folder, "a:1", "b:1")
    job.wait_for(r"b:0 begins 1/2 at")
    job.ends_with(0)
    job.leaves_nothing()
    expect(len(begun(job)["a:0"]) == 2, job.describe())


def test_workers_of_the_original_without_elastic_run_are_not_started_again():
    job = Job("--insecure-compat", "-np", 2, "--min-np", 1, "-H", "localhost:2", PYTHON, "-c",
              "import os, sys, time; time.sleep(1); print('started'); sys.exit(int(os.environ['HOROVOD_RANK']))")
    expect(job.wait() in (0, 1), job.describe())
    expect(job.out.count("started") == 2, job.describe())


if __name__ == "__main__":
    main()
