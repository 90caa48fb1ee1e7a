#!/usr/bin/python3 -B
"""Elastic jobs of this project's ranks under Horovod's own launcher."""

from harness import *

sys.path.insert(0, str(ROOT / "tests" / "conformance" / "original"))
import driver

FOREIGN_RANK = WORKERS / "elastic_foreign_rank.py"


class Original:
    """Starts a job of this project's ranks under a launcher that behaves like Horovod's own."""

    def __init__(self, hosts, *arguments):
        self.driver = driver.Driver(
            hosts, [PYTHON, "-B", str(FOREIGN_RANK), *map(str, arguments)], scratch(), clean_environment()
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.driver.end()

    def describe(self):
        return "\n".join(f"--- {name}\n{said}" for name, said in sorted(self.driver.said().items()))

    def begun(self, name):
        """Returns (rank, size, step) of each generation of a slot's process."""
        return [
            tuple(map(int, words))
            for words in re.findall(r"begins (\d+)/(\d+) at (\d+)", self.driver.said().get(name, ""))
        ]

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
        expect(sum(process.wait(LONG) == 0 for process in job.driver.started) == 2, job.describe())


if __name__ == "__main__":
    main()
