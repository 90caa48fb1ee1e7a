#!/usr/bin/python3 -B
"""The output of ranks arrives complete and in order, on the right stream and in files."""

import collections
import contextlib
import signal as signals

from elastic_jobs import RANK, discovery
from harness import *

sys.path.insert(0, str(ROOT / "tests" / "attack"))
from relay import Relay

import network


def lines_of(text):
    """Returns the lines of each rank and stream, without their prefix."""
    found = collections.defaultdict(list)
    for line in text.splitlines():
        match = re.fullmatch(r"\[(\d+)\]<(stdout|stderr)>:(.*)", line)
        expect(match, f"a line without rank and stream: {line[:200]!r}")
        found[int(match.group(1)), match.group(2)].append(match.group(3))
    return found


CHATTER = """
import os, sys, time
rank = os.environ["HOROVOD_RANK"]
for number in range(200):
    os.write(1, f"{rank} says ".encode())       # a line in two writes
    os.write(1, f"{number} {'x' * number}\\n".encode())
    os.write(2, f"{rank} moans {number}\\n".encode())
os.write(1, b"no newline at the end")
"""


@world()
def test_lines_are_whole_in_order_and_on_their_stream():
    job = Job("-np", 4, "-H", "a:2,b:2", "--no-omp-default", PYTHON, "-c", CHATTER)
    job.ends_with(0)
    out, err = lines_of(job.out), lines_of(job.err)
    for rank in range(4):
        said = [f"{rank} says {number} {'x' * number}" for number in range(200)]
        expect(
            out[rank, "stdout"] == [*said, "no newline at the end"],
            f"rank {rank}'s lines are not what it wrote: {out[rank, 'stdout'][-3:]}",
        )
        expect(
            err[rank, "stderr"] == [f"{rank} moans {number}" for number in range(200)],
            f"rank {rank}'s stderr is not what it wrote",
        )
    expect(len(out) == 4 and len(err) == 4, f"streams mixed: {list(out)} {list(err)}")


@world()
def test_bytes_of_lines_and_bars():
    """Any byte passes, carriage returns end lines and stay, an unfinished last line gets a newline."""
    every = bytes(byte for byte in range(256) if byte not in b"\r\n")
    code = f"import os; os.write(1, {every!r} + b'\\n10%\\r20%\\rdone\\nlast'); os.write(2, b'err\\n')"
    job = Job("-np", 1, "-H", "b:1", PYTHON, "-c", code)
    job.ends_with(0)
    lines = (every + b"\n", b"10%\r", b"20%\r", b"done\n", b"last\n")
    raw = (job.folder / "out").read_bytes()
    expect(raw == b"".join(b"[0]<stdout>:" + line for line in lines), f"bytes changed: {raw!r}")
    expect(job.err == "[0]<stderr>:err\n", job.describe())


def test_standard_streams_may_be_closed():
    for closed in (">&-", "2>&-", "<&-", "<&- >&- 2>&-"):
        folder = scratch()
        command = f'"$0" -np 2 sh -c "echo out; echo >{folder}/\\$HOROVOD_RANK" {closed}'
        ended = run_to_end(["sh", "-c", command, LAUNCHER], env=clean_environment(), text=False)
        expect((ended.returncode, ended.stderr) == (0, b""), ended)
        expect(sorted(path.name for path in folder.iterdir()) == ["0", "1"], closed)
        if ">&-" not in closed.replace("2>&-", ""):
            expect(sorted(ended.stdout.splitlines()) == [b"[0]<stdout>:out", b"[1]<stdout>:out"], ended)


@world()
def test_much_output_of_many_ranks():
    """Prints 40 MB: no line is lost, and the launcher's memory stays small."""
    code = "import sys\nfor i in range(100000): sys.stdout.write(f'{i:099d}\\n')"
    job = Job("-np", 4, "-H", "a:2,b:2", PYTHON, "-c", code)
    job.ends_with(0)
    out = lines_of(job.out)
    for rank in range(4):
        got = out[rank, "stdout"]
        expect(len(got) == 100000 and got[-1] == f"{99999:099d}", f"rank {rank}: {len(got)} lines")


@world()
def test_output_goes_to_files_too():
    folder = "/tmp/e2e-output/deeper"
    job = Job(
        *"-np 2 -H a:1,b:1".split(),
        "--output-filename",
        folder,
        PYTHON,
        "-c",
        "import sys; print('good'); print('bad', file=sys.stderr)",
    )
    job.ends_with(0)
    expect(len(lines_of(job.out)) == 2, job.describe())
    for rank in range(2):
        for stream, word in (("stdout", "good"), ("stderr", "bad")):
            text = (pathlib.Path(folder) / f"rank.{rank}" / stream).read_text()
            expect(text == f"[{rank}]<{stream}>:{word}\n", f"rank {rank} {stream}: {text!r}")


@world()
def test_a_full_disk_costs_the_files_alone_and_is_named_once_for_each():
    folder = pathlib.Path("/tmp/e2e-small")
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], check=True)
    job = Job(
        *"-np 2 -H a:1,b:1".split(),
        "--output-filename",
        folder / "out",
        "sh",
        "-c",
        "yes as many words as a disk can take | head -n 20000; echo all",
    )
    job.ends_with(0)
    out = lines_of(job.out)
    expect(all(len(out[rank, "stdout"]) == 20001 for rank in range(2)), job.describe())
    expect(
        sorted(job.said())
        == [f"cannot write to {folder}/out/rank.{rank}/stdout: No space left on device" for rank in range(2)],
        job.describe(),
    )


@world()
def test_names_of_output_folders_have_as_many_digits_as_the_ranks_need():
    for size, digits in ((11, 2), (1, 1)):
        folder = scratch() / "deep" / "logs"
        words = ("sh", "-c", "echo out $HOROVOD_RANK; echo err >&2")
        job = Job("-np", size, "-H", "a:6,b:5", "--output-filename", folder, *words)
        job.ends_with(0)
        expect(len(lines_of(job.out)) == size, job.describe())
        names = [f"rank.{rank:0{digits}d}" for rank in range(size)]
        expect(sorted(path.name for path in folder.iterdir()) == [".horovodrun.lock", *names], names)
        for rank, name in enumerate(names):
            for stream, text in (("stdout", f"out {rank}"), ("stderr", "err")):
                said = (folder / name / stream).read_text()
                expect(said == f"[{rank}]<{stream}>:{text}\n", f"{name} {stream}: {said!r}")


@world()
def test_the_last_words_of_a_rank_that_fails_are_not_lost():
    code = (
        "import os, sys\nif os.environ['HOROVOD_RANK'] == '1':\n"
        "  sys.stdout.write('x' * 100000 + '\\nlast words\\n'); sys.stdout.flush(); os._exit(9)\n"
        "import time; time.sleep(600)"
    )
    job = Job("-np", 2, "-H", "a:1,b:1", PYTHON, "-c", code)
    job.ends_with(9)
    expect("[1]<stdout>:last words\n" in job.out, job.describe())


@world()
def test_a_reader_that_goes_away_ends_the_job():
    before = Inventory()
    done = run_to_end(
        ["/bin/bash", "-c", f"{LAUNCHER} -np 2 -H a:1,b:1 --kill-grace 120 yes | head -n 3; echo ${{PIPESTATUS[0]}}"],
        env=clean_environment(),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
    )
    expect(done.stdout.splitlines()[-1] == str(128 + signals.SIGPIPE) and not done.stderr, done)
    before.wait_for_ends()


FLOODS = """
import os, sys, time
print("\\n".join(f"{i:0999d}" for i in range(3000)), flush=True)
open(os.path.join(sys.argv[1], os.environ["HOROVOD_RANK"]), "w").close()
while len(os.listdir(sys.argv[1])) < 2: time.sleep(0.02)
if os.environ["HOROVOD_RANK"] == "1": sys.exit(4)
time.sleep(600)
"""


@world()
def test_a_reader_that_stalls_costs_no_lease():
    """The reader pauses for longer than the lease, and then gets all lines, and the end by one rank."""
    read_end, write_end = os.pipe()
    process = subprocess.Popen(
        [LAUNCHER, *"-np 2 -H a:1,b:1 --lease 5".split(), PYTHON, "-c", FLOODS, scratch()],
        stdin=subprocess.DEVNULL,
        stdout=write_end,
        env=clean_environment(),
        cwd=ROOT,
        process_group=0,
    )
    os.close(write_end)
    time.sleep(11)  # a lease that must not end has no event
    expect(process.poll() is None, f"it ended: {process.returncode}")
    with os.fdopen(read_end, "rb") as pipe:
        text = pipe.read()
    expect(process.wait(LONG) == 4, f"exit code {process.returncode}")
    expect(text.count(b"\n") == 6000, f"{text.count(bytes([10]))} lines")


COUNTER = """
import sys, time
for number in range(int(sys.argv[1])):
    print(f"{number:099d}", flush=number % 10 == 9)
    time.sleep(float(sys.argv[2]))
"""


def counted(rank, lines):
    return "".join(f"[{rank}]<stdout>:{number:099d}\n" for number in range(lines))


@world()
def test_an_output_file_that_stalls_holds_up_nothing_else():
    """The file of one rank is a FIFO without a reader; a later reader gets all lines."""
    folder = scratch()
    # A restart continues with the files of the first attempt.
    job = Job(
        *"-np 2 -H a:1,b:1".split(),
        "--output-filename",
        folder,
        "--max-restarts",
        1,
        "sh",
        "-c",
        """while [ ! -e "$1/go" ]; do [ -e "$1/ready" ] && exit 1; sleep 0.1; done; shift; exec "$@" """,
        "-",
        folder,
        PYTHON,
        "-c",
        COUNTER,
        30000,
        0,
    )
    wait_until(lambda: (folder / "rank.1" / "stdout").exists(), 60, job.describe)
    (folder / "rank.1" / "stdout").unlink()
    os.mkfifo(folder / "rank.1" / "stdout")
    fifo = os.open(folder / "rank.1" / "stdout", os.O_RDONLY | os.O_NONBLOCK)
    (folder / "ready").touch()
    wait_until(lambda: "restart" in job.err, 60, job.describe)
    (folder / "go").touch()
    for rank in range(2):
        job.wait_for(rf"\[{rank}\]<stdout>:0*3000\n")  # four times the size of a FIFO
    os.set_blocking(fifo, True)
    with os.fdopen(fifo) as reader:
        out = reader.read()
    job.ends_with(0)
    expect(out == counted(1, 30000), f"{len(out)} bytes of the file\n{job.describe()}")
    expect((folder / "rank.0" / "stdout").read_text() == counted(0, 30000), job.describe())
    job.leaves_nothing()


# PATH with mkfs and fsfreeze.
SBIN = {"PATH": "/usr/sbin:/sbin:/usr/bin:/bin"}


@contextlib.contextmanager
def freezable_disk():
    """A file system that fsfreeze can stall: writes to it wait until it is thawed."""
    folder = scratch()
    disk = folder / "disk"
    disk.mkdir()
    (folder / "image").write_bytes(b"")
    os.truncate(folder / "image", 16 << 20)
    for command in (("mkfs.ext4", "-q", folder / "image"), ("mount", "-o", "loop", folder / "image", disk)):
        try:
            run_to_end(command, env=SBIN, check=True, text=False)
        except (OSError, subprocess.CalledProcessError) as error:
            raise Skip(f"no file system of its own: {error}") from None
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True, env=SBIN)


@contextlib.contextmanager
def stalled(disk):
    """The disk stalls for 7 s, starting before the block."""
    # A lease that must not end has no event. The shell thaws the disk even if this test is killed.
    with subprocess.Popen(
        ["sh", "-c", f"fsfreeze -f {disk} && echo frozen && sleep 7; fsfreeze -u {disk}"],
        stdout=subprocess.PIPE,
        text=True,
        env=SBIN,
    ) as freezing:
        expect(freezing.stdout.readline() == "frozen\n", "the disk does not stall")
        yield


@world()
def test_a_rank_that_hangs_in_the_kernel_is_named():
    """SIGKILL does not end a process that writes to a stalled disk."""
    with freezable_disk() as disk:
        writes = f"echo up; while [ $HOROVOD_RANK = 1 ]; do echo 1 >{disk}/file; done; exec sleep 1000"
        job = Job("-np", 2, "--kill-grace", 1, "sh", "-c", writes)
        job.wait_for("up", 2)
        subprocess.run(["fsfreeze", "-f", disk], check=True, env=SBIN)
        try:

            def stuck():
                stats = {
                    pid: faults.said_of(pid, "stat").rpartition(")")[2].split() for pid, _ in job.before.new_ones()
                }
                return [pid for pid, fields in stats.items() if fields and fields[0] == "D"]

            (pid,) = wait_until(stuck, 30, job.describe)
            job.signal(signals.SIGTERM)
            job.ends_with(128 + signals.SIGTERM)
            said = rf"could not end sh of rank 1 \(pid {pid}, state D in \w+\); SIGKILL takes effect when the disk"
            expect(re.search(said, job.err) and "has not confirmed" not in job.err, job.describe())
        finally:
            subprocess.run(["fsfreeze", "-u", disk], check=True, env=SBIN)
        job.leaves_nothing()


@world()
def test_a_disk_that_stalls_costs_no_lease():
    """Standard output, its copy and standard error are files on a disk that stalls for longer than the lease. The
    launcher logs meanwhile that a link has broken."""
    relay = Relay((network.address(0), 22))
    config = pathlib.Path.home() / ".ssh" / "config"
    before = config.read_text() if config.exists() else ""
    port = relay.address.rpartition(":")[2]
    config.write_text(f"Host a\n HostName 127.0.0.1\n Port {port}\n HostKeyAlias a\n{before}")
    with freezable_disk() as disk, open(disk / "out", "w+") as out, open(disk / "err", "w+") as err:
        process = subprocess.Popen(
            [
                LAUNCHER,
                *"-np 2 -H a:1,b:1 --lease 3".split(),
                "--output-filename",
                disk / "copy",
                PYTHON,
                "-c",
                COUNTER,
                "3000",
                "0.003",
            ],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=clean_environment(),
            cwd=ROOT,
            process_group=0,
        )
        wait_until(lambda: os.path.getsize(disk / "out") > 10000, 60, "the first lines")
        with stalled(disk):
            relay.cut()
            relay.heal()
        code = process.wait(LONG)
        out.seek(0)
        err.seek(0)
        said = err.read()
        expect(
            code == 0
            and said.count("\n") == 1
            and "host a: the link broke and continues over another connection" in said,
            f"exit code {code}: {said}",
        )
        lines = out.read().splitlines(keepends=True)
        for rank in range(2):
            mine = "".join(line for line in lines if line.startswith(f"[{rank}]"))
            expect(mine == counted(rank, 3000), f"rank {rank}: {len(mine)} bytes")
            expect((disk / "copy" / f"rank.{rank}" / "stdout").read_text() == mine, f"rank {rank}'s copy")


@world()
def test_a_host_that_joins_while_the_disk_of_the_copies_stalls_costs_no_lease():
    answers = scratch()
    with freezable_disk() as disk:
        job = Job(
            *"-np 1 --min-np 1 --lease 3".split(),
            *discovery(answers, "a:1"),
            "--output-filename",
            disk / "copy",
            PYTHON,
            RANK,
            300,
            "--slow",
            0.05,
        )
        job.wait_for("0 begins 0 0/1 ")
        with stalled(disk):
            discovery(answers, "a:1", "b:1")
        job.wait_for("1 begins 1 1/2 ")
        job.ends_with(0)
        for rank in range(2):
            expect(
                (disk / "copy" / f"rank.{rank}" / "stdout").read_text().splitlines()
                == re.findall(rf"^\[{rank}\]<stdout>:.*", job.out, re.M),
                f"rank {rank}'s copy\n{job.describe()}",
            )
        job.leaves_nothing()


@world()
def test_a_job_ends_by_control_c_while_an_output_file_stalls():
    folder = scratch()
    (folder / "rank.0").mkdir()
    os.mkfifo(folder / "rank.0" / "stdout")
    reader = os.open(folder / "rank.0" / "stdout", os.O_RDWR)  # the FIFO has no reader
    job = Job("-np", 1, "-H", "b:1", "--output-filename", folder, "yes")
    job.wait_for("y", 1000)
    job.signal(signals.SIGINT)
    wait_until(
        lambda: not [pid for pid in faults.processes("b") if faults.said_of(pid, "comm") == "yes\n"],
        PROMPT,
        "the rank to end",
    )
    job.signal(signals.SIGINT)
    job.ends_with(130)
    os.close(reader)
    job.leaves_nothing()


def memory_of(pid):
    """Returns the peak memory of a process in MiB; 0 after its end."""
    peak = re.search(r"VmHWM:\s+(\d+)", faults.said_of(pid, "status"))
    return int(peak[1]) / 1024 if peak else 0


@world()
def test_256_mib_of_a_rank_takes_little_memory_and_none_is_lost():
    process = subprocess.Popen(
        [LAUNCHER, "-np", "1", "-H", "b:1", "sh", "-c", f"yes {'x' * 63} | head -c 268435456"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=clean_environment(),
        cwd=ROOT,
    )
    lines = 0
    while chunk := process.stdout.read1(1 << 20):
        lines += chunk.count(b"\n")
        if (lines & 1023) == 0 and process.poll() is None:
            expect(memory_of(process.pid) < 64, f"{memory_of(process.pid)} MiB")
    expect(process.wait(LONG) == 0 and lines == 1 << 22, f"{lines} lines")


@world()
def test_a_stalled_terminal_takes_little_memory_and_delays_no_control():
    """The ranks' output has no reader; Ctrl-C ends the job."""
    read_end, write_end = os.pipe()
    before = Inventory()
    process = subprocess.Popen(
        [LAUNCHER, "-np", "2", "-H", "a:1,b:1", "yes"],
        stdin=subprocess.DEVNULL,
        stdout=write_end,
        env=clean_environment(),
        cwd=ROOT,
        process_group=0,
    )
    os.close(write_end)

    def written():
        ranks = [pid for name in "ab" for pid in faults.processes(name) if faults.said_of(pid, "comm") == "yes\n"]
        return sum(int(said.split()[3]) for pid in ranks if (said := faults.said_of(pid, "io")))

    # All buffers are full when the number of written bytes no longer grows.
    last = [0, time.monotonic()]

    def is_stalled():
        if (now := written()) != last[0] or not now:
            last[:] = now, time.monotonic()
        return time.monotonic() - last[1] > 1

    wait_until(is_stalled, 60, lambda: last)
    expect(last[0] < 8 << 20, f"the ranks wrote {last[0]} bytes that nobody reads")
    expect(memory_of(process.pid) < 64, f"{memory_of(process.pid)} MiB")
    os.killpg(process.pid, signals.SIGINT)
    wait_until(lambda: not written(), 60, "the ranks to end")
    os.killpg(process.pid, signals.SIGINT)
    expect(process.wait(LONG) == 130, f"exit code {process.returncode}")
    os.close(read_end)
    before.wait_for_ends()


if __name__ == "__main__":
    main()
