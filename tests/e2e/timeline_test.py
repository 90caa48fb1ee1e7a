#!/usr/bin/python3 -B
"""One file shows the activity of all ranks on one clock, and is complete after every kind of end."""

import contextlib

import traces

from harness import *

WORKER = BUILD / "tests" / "runtime_worker"
ONCE = ["B NEGOTIATE_ALLREDUCE", "X {}", "E", "B ALLREDUCE", "B {}_ALLREDUCE", "E", "E"]


def traced(*arguments, path, **options):
    return Job(*arguments[:-2], "--timeline-filename", path, *arguments[-2:], **options)


def read(path):
    try:
        return traces.Trace(path)
    except ValueError as error:
        raise Failure(f"{path}: {error}") from None


def sequence(rank, links):
    return [word.format(rank if word[0] == "X" else links) for word in ONCE]


def killed(victims):
    """Runs ranks that reduce forever, and kills these ranks at the same moment."""
    path = scratch() / "trace.json"
    for round_ in range(3):
        job = traced("-np", 4, WORKER, "steps-for-ever", path=path)
        job.wait_for("ready [0-9]+", 4)
        pids = {int(rank): int(pid) for rank, pid in re.findall(r"ready ([0-9]+) ([0-9]+)", job.out)}
        # The file has events of all ranks, and grows.
        wait_until(
            lambda: all(f'"X", "name": "{rank}"' in path.read_text() for rank in range(4)), 30, "events of all ranks"
        )
        size = path.stat().st_size + 100_000 * round_
        wait_until(lambda: path.stat().st_size > size, 60, "a longer timeline")
        for rank in victims:
            with contextlib.suppress(ProcessLookupError):  # this rank ended because the first rank was lost
                os.kill(pids[rank], signal.SIGKILL)
        expect(job.wait() != 0, f"a failure was expected\n{job.describe()}")
        job.leaves_nothing()
        trace = read(path)
        for rank in range(4):
            words = trace.words("value", rank)
            expect(
                any(words[at : at + 7] == sequence(rank, "SHM") for at in range(len(words))),
                f"rank {rank}: {words[-20:]}",
            )
        path.unlink()


def test_every_rank_is_killed():
    killed([0, 1, 2, 3])


def test_the_rank_that_writes_is_killed():
    killed([0])


def test_another_rank_is_killed():
    killed([2])


def test_a_relative_path_is_relative_to_the_directory_of_rank_0_and_cycles_are_marked():
    folder = scratch()
    for flag, marked in [("--timeline-mark-cycles", True), ("--no-timeline-mark-cycles", False)]:
        job = traced("-np", 2, flag, WORKER, "sum", path="trace.json", cwd=folder)
        job.ends_with(0)
        trace = read(folder / "trace.json")
        expect(trace.open == 0, "all events have an end")
        marks = [event for event in trace.events if event.get("name") == "CYCLE_START"]
        expect(bool(marks) == marked, f"{len(marks)} marks")
        for rank in range(2):
            words = trace.words("value", rank)
            expect(words[-7:] == sequence(rank, "SHM"), f"{words[-7:]}")
            expect(words.count("E") == 300 or words.count("E") == 299, f"{words.count('E')} ends")


def test_each_generation_of_an_elastic_job_has_a_file_of_its_own():
    path = scratch() / "trace.json"
    job = Job(
        *"--min-np 1 -H localhost:1,127.0.0.1:2".split(),
        "--timeline-filename",
        path,
        PYTHON,
        WORKERS / "elastic_rank.py",
        *"20 --slow 0.02 --kill 0@8".split(),
    )
    job.ends_with(0)
    job.leaves_nothing()
    expect(
        sorted(file.name for file in path.parent.iterdir()) == ["trace.generation-1.json", "trace.json"], job.describe()
    )
    for file, ranks in ((path, 3), (path.with_name("trace.generation-1.json"), 2)):
        trace = read(file)
        sums = {
            (tensor, rank): events
            for (tensor, rank), events in trace.sequences.items()
            if events[0].get("name") == "NEGOTIATE_ALLREDUCE"
        }
        expect({rank for _, rank in sums} == set(range(ranks)), f"{file}: {sums.keys()}")


def test_a_path_that_cannot_be_written_is_one_sentence():
    job = traced("-np", 2, WORKER, "sum", path="/nowhere/trace.json")
    job.ends_with(0)
    found = re.findall("cannot write the timeline /nowhere/trace.json: .*", job.err + job.out)
    expect(len(found) == 1, f"one sentence was expected\n{job.describe()}")


def test_perfetto_loads_it():
    python = os.environ.get("HVD_TEST_PERFETTO")
    if not python:
        raise Skip("HVD_TEST_PERFETTO names no Python that has Perfetto's trace processor")
    with tempfile.TemporaryDirectory(prefix="e2e-") as folder:
        path = pathlib.Path(folder) / "trace.json"
        traced("-np", 3, "--timeline-mark-cycles", WORKER, "sum", path=path).ends_with(0)
        events = [event for event in read(path).events if event["ph"] in "BXi"]
        found = traces.perfetto_finds(python, path)
        expect(
            found["errors"] == [] and found["slices"] == len(events), f"perfetto finds {found} in {len(events)} events"
        )

        job = traced("-np", 2, WORKER, "steps-for-ever", path=path)
        job.wait_for("ready [0-9]+", 2)
        pids = [int(pid) for pid in re.findall(r"ready [0-9]+ ([0-9]+)", job.out)]
        wait_until(lambda: path.exists() and path.stat().st_size > 100_000, 60, "a timeline")
        # A copy of the growing file may end at any byte.
        copy = path.with_name("copy.json")
        copy.write_bytes(path.read_bytes())
        growing = traces.perfetto_finds(python, copy)
        expect(growing["errors"] == [] and growing["slices"] > 100, f"perfetto: {growing}")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # this rank ended because the other rank was lost
                os.kill(pid, signal.SIGKILL)
        expect(job.wait() != 0, f"a failure was expected\n{job.describe()}")
        found = traces.perfetto_finds(python, path)
        expect(found["errors"] == [] and found["slices"] >= growing["slices"], f"perfetto: {found} after {growing}")


@world()
def test_ranks_of_two_hosts_whose_clocks_are_a_day_apart_are_shown_on_one_clock():
    path = "/tmp/e2e-trace.json"
    # The clock of host b starts at another time, as on another machine.
    apart = (
        "if [ $HOROVOD_RANK -ge 2 ]; then exec unshare --time --monotonic 86400 --boottime "
        f"86400 --fork --kill-child {WORKER} sum; else exec {WORKER} sum; fi"
    )
    if run_to_end(["unshare", "--time", "--monotonic", "5", "true"]).returncode != 0:
        raise Skip("this kernel has no time namespaces, or does not allow them")
    job = Job("-np", 4, "-H", "a:2,b:2", "--timeline-filename", path, "sh", "-c", apart)
    job.ends_with(0)
    trace = read(path)
    for rank in range(4):
        clock = trace.clocks[rank]
        day = -86400e6 if rank >= 2 else 0
        expect(abs(clock["offset_us"] - day) <= max(clock["error_us"], 0.001) + 1000, f"rank {rank}: {clock}")
        expect(0 <= clock["error_us"] < 100_000, f"rank {rank}: {clock}")
        expect(trace.words("value", rank)[-7:] == sequence(rank, "TCP"), f"{trace.words('value', rank)[-7:]}")
    # No rank starts an operation before the last rank is ready, within the clock error.
    wrong = sum(trace.clocks[rank]["error_us"] for rank in range(4)) + 1
    ready = [trace.times("value", rank, "X")[-90:] for rank in range(4)]
    runs = [trace.times("value", rank, "B", "ALLREDUCE")[-90:] for rank in range(4)]
    for step in range(90):
        last = max(times[step] for times in ready)
        first = min(times[step] for times in runs)
        expect(first >= last - wrong, f"step {step}: runs at {first}, ready at {last}, +-{wrong}")


if __name__ == "__main__":
    main()
