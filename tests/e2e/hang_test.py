#!/usr/bin/python3 -B
"""--hang-warning names the places of ranks that hang without hvd.init(), and calls nothing else a hang."""

from hangs import *

FEW = ["compile_in_a_child", "download", "be_stopped", "read_a_terminal"]
PLACES = (
    r"no rank has moved for (\d+) s: rank 1 on \S+ waits in (torch\.distributed( \(gloo\))?|JAX): \w+, \w+\.py:\d+; "
    r"rank 0 on \S+ is in load_shard, busy_rank\.py:\d+"
)


def check_busy(kinds, limit, seconds):
    """Keeps rank 0 busy for `seconds` in each way, then hangs. The launcher must name only the hang and end the job."""
    job, before = busy(kinds, limit, seconds, "--on-hang", "stop")
    expect("the job hangs" not in before, job.describe())
    wait_until(lambda: re.search("the job hangs: " + PLACES, job.err), limit + 10, job.describe)
    if "compile_with_xla" in kinds:  # a hang of JAX may be a computation, and does not end the job
        end(job)
        return
    job.ends_with(124, limit + 10)
    expect(re.search(r"the job hangs and was ended \(--on-hang stop\): " + PLACES, job.err), job.describe())
    job.leaves_nothing()


def test_a_hang_is_named_after_waits_that_are_none_and_stops_the_job():
    check_busy(FEW, 2, 4)


def test_no_way_to_be_busy_is_called_a_hang_at_three_limits():
    of_jax = ["compile_with_xla"]
    check_busy(of_jax, 2, 6)
    check_busy([kind for kind in BUSY + MORE_BUSY if kind not in of_jax], 2, 6)


def check_report_by_proc(start, reason):
    worker = [python_of("torch"), WORKERS / "hanging_rank.py", "--library", "torch", "--kind", "skip"]
    job = start("--hang-warning", 2, "--on-hang", "stop", *worker)
    job.wait_for("hangs", 2, 240)
    at = r"\(\S*python\S* \S*hanging_rank\.py [^)]*\)"
    hang = rf"the job may hang: no rank has moved for \d+ s: rank 0 on \S+ is sleeping in futex\w+ {at}; rank 1 on "
    wait_until(lambda: re.search(hang + rf"\S+ is sleeping in \w*nanosleep\w* {at}\n", job.err), 20, job.describe)
    said = rf"no Python stack of ranks 0-1 on \S+: .*{reason}"
    wait_until(lambda: re.search(said, job.err), 5, job.describe)
    time.sleep(4)  # twice the limit; without proof of a hang, the job must continue
    # If the launcher looks late on a busy machine, the rule begins again: a second report has its own reason.
    expect(job.process.poll() is None, job.describe())
    expect(len(re.findall(said, job.err)) <= job.err.count("may hang"), job.describe())
    end(job)


def test_a_hang_is_reported_without_py_spy_by_what_proc_shows():
    check_report_by_proc(without_py_spy, "need py-spy.*pip install")


def test_a_hang_is_reported_where_the_kernel_refuses_py_spy():
    def start(*arguments):
        return with_py_spy("-x", f"PATH={refused_py_spy()}:/usr/bin:/bin", *arguments)

    check_report_by_proc(start, r"the kernel refuses process_vm_readv.*--cap-add SYS_PTRACE")


def test_ranks_without_py_spy_that_wait_for_one_that_works_do_not_hang():
    kinds = ["compile_in_a_child", "be_stopped", "serve", "sleep"]
    worker = [python_of("torch"), WORKERS / "busy_rank.py", "--library", "torch", "--seconds", 4, *kinds]
    job = without_py_spy("--hang-warning", 1, *worker)
    job.wait_for("hangs", 1, 240)
    expect("hang:" not in job.err, job.describe())
    wait_until(lambda: "the job may hang" in job.err, 20, job.describe)
    end(job)


def check_planted(library, *flags):
    for kind in PLANTED[library]:
        print(f"{library} {kind}: {planted(library, kind, 4, *flags):.1f} s", flush=True)


def test_each_planted_hang_of_horovod_is_named_by_the_stall_report():
    check_planted("horovod")


def test_each_planted_hang_of_torch_is_named():
    check_planted("torch")
    check_planted("ddp")


def test_each_planted_hang_of_deepspeed_is_named():
    check_planted("deepspeed")


def test_each_planted_hang_of_mpi4py_is_named():
    check_planted("mpi")


def test_each_planted_hang_of_jax_is_named():
    check_planted("jax")


def test_ranks_that_sleep_without_a_collective_do_not_hang():
    job = with_py_spy("--hang-warning", 1, "--on-hang", "stop", PYTHON, "-c", "import time; time.sleep(6)")
    expect(job.wait() == 0 and job.err == "", job.describe())


main()
