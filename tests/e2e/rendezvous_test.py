#!/usr/bin/python3 -B
"""Jobs whose processes the user starts: the unchanged command lines of docs/rendezvous.md."""

from harness import *

import contextlib
import json
import shutil

from certificates import certify

WORKER = BUILD / "tests" / "runtime_worker"
DOCUMENT = (ROOT / "docs" / "rendezvous.md").read_text()


def lines_of(heading):
    """Returns the commands under a heading, one from each block."""
    section = DOCUMENT.split(f"\n## {heading}\n")[1].split("\n## ")[0] if heading else DOCUMENT.split("\n## ")[0]
    return re.findall(r"^```sh(?: .*)?\n(.*)\n```$", section, re.M)


class Shell:
    """Runs a command line that a user types on a host; it needs no sshd."""

    def __init__(self, name, folder, line, **more):
        self.line = line
        self.log = scratch() / "log"
        inside = [] if name == "launcher" else entering(name)
        environment = clean_environment(**more)
        environment["PATH"] = f"{BUILD / 'bin'}:{environment['PATH']}"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [*inside, "sh", "-c", f"cd {folder} && {line}"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                process_group=0,
            )

    @property
    def said(self):
        return self.log.read_text(errors="replace")

    def wait_for(self, words, seconds=LONG):
        wait_until(lambda: re.search(words, self.said), seconds, lambda: f"{words!r} of $ {self.line}\n{self.said}")

    def ends_with(self, code, seconds=LONG):
        wait_until(lambda: self.process.poll() is not None, seconds, lambda: f"the end of $ {self.line}\n{self.said}")
        expect(
            self.process.returncode == code,
            f"exit code {self.process.returncode}, expected {code}: $ {self.line}\n{self.said}",
        )
        return self.said

    def end(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(LONG)


@contextlib.contextmanager
def workplace():
    """Makes a folder that all hosts share, with the token, and with a train.py that sums numbers."""
    with tempfile.TemporaryDirectory(dir=BUILD / "tests", prefix="e2e-") as folder:
        path = pathlib.Path(folder)
        (path / "train.py").write_text(f"import os\nos.execv('{WORKER}', ['worker', 'sum'])\n")
        (making,) = lines_of("")
        subprocess.run(["sh", "-c", making], cwd=path, check=True)
        yield path


def ranks_in(texts):
    return sorted(re.findall(r"^(?:\[\d\]<stdout>:)?(\d) of \d, (\d of \d) here$", "\n".join(texts), re.M))


def expect_secret(folder):
    """Checks that no command line on any host contains the token, and returns the token."""
    token = (folder / "token").read_text().strip()
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                expect(
                    token.encode() not in (entry / "cmdline").read_bytes(),
                    f"the token is on the command line of {entry.name}",
                )
    return token


@world()
def test_workers_started_by_hand_on_two_hosts():
    before = Inventory()
    serve, work = lines_of("Workers started by hand")
    with workplace() as folder:
        server = Shell("a", folder, serve)
        server.wait_for("listens on tcp:")
        workers = [Shell(name, folder, work) for name in "abb"]
        status = monitor(folder, "status")
        wait_until(lambda: status()["job"]["present"] == 3, 60, "three workers")
        expect(status()["job"]["missing"] == 1, status())
        token = expect_secret(folder)
        workers.append(Shell("a", folder, work))
        said = [worker.ends_with(0) for worker in workers]
        expect(ranks_in(said) == [("0", "0 of 2"), ("1", "1 of 2"), ("2", "0 of 2"), ("3", "1 of 2")], said)
        surplus = Shell("b", folder, work).ends_with(1)
        expect("already has its 4 workers" in surplus, surplus)
        server.end()
        said.append(surplus + server.said)
        expect(token not in "".join(said), "the token is in a log")
    before.wait_for_ends()


@world()
def test_a_worker_that_times_out_names_the_ranks_that_are_there():
    serve, work = lines_of("Workers started by hand")
    with workplace() as folder:
        server = Shell("a", folder, serve)
        server.wait_for("listens on tcp:")
        said = Shell("b", folder, work, HOROVOD_INIT_TIMEOUT="6").ends_with(1)
        expect("1 of 4 workers are there" in said and "3 are missing" in said, said)
        server.end()


def page_of(folder, address):
    """A monitoring request; the command is the documented one for http://a:29400/status."""
    (line,) = lines_of("Monitoring")
    return run_to_end(
        ["sh", "-c", line.replace("a:29400/status", address)],
        cwd=folder,
        check=True,
        env=clean_environment() | {"PATH": f"{BUILD / 'bin'}:{os.environ['PATH']}"},
    ).stdout


def states_of(job):
    """Returns the states that /status and `horovodrun ps --json` show."""
    return [(host["host"], host["state"], [rank["state"] for rank in host["ranks"]]) for host in job["hosts"]]


def monitor(folder, page):
    return lambda: json.loads(page_of(folder, f"a:29400/{page}"))


@world()
def test_two_shells_with_ranks_set_by_hand():
    serve, first, second = lines_of("Two shells")
    with workplace() as folder:
        server = Shell("a", folder, serve)
        server.wait_for("listens on tcp:")
        said = [shell.ends_with(0) for shell in (Shell("b", folder, second), Shell("a", folder, first))]
        expect(ranks_in(said) == [("0", "0 of 1"), ("1", "0 of 1")], said)
        server.end()


@world()
def test_hosts_without_sshd_join():
    launch, join = lines_of("Hosts without sshd")
    with workplace() as folder:
        for name in "ab":
            for pid in faults.processes(name):
                if "sshd" in faults.said_of(pid, "cmdline"):
                    os.kill(pid, signal.SIGTERM)
        before = Inventory()
        # Starts the ranks like mpirun and srun; the ranks do not detect it.
        early = Shell("a", folder, join, OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="2")
        early.wait_for("waiting for its launcher")
        job = Shell("launcher", folder, launch)
        job.wait_for("waits up to 30 s at .*29400 for hosts that provide 4 slots")
        token = expect_secret(folder)
        late = Shell("b", folder, join, SLURM_PROCID="1", SLURM_STEP_NUM_TASKS="2")
        said = job.ends_with(0)
        expect(len(ranks_in([said])) == 4, said)
        for agent in (early, late):
            said += agent.ends_with(0)
        expect(token not in said, "the token is in a log")
        before.wait_for_ends()


def certified(folder):
    """Makes server.pem, server.key and ca.pem for the launcher."""
    certificate, _ = certify(folder, "server", "DNS:launcher")
    shutil.copy(certificate, folder / "ca.pem")


@world()
def test_hosts_join_by_tls():
    _, _, launch, join = lines_of("TLS")
    with workplace() as folder:
        certified(folder)
        program = folder / "train.py"
        program.write_text(
            "for line in range(20_000): print('line', line, 'x' * 80)\n"
            f"import sys\nsys.stdout.flush()\n{program.read_text()}"
        )
        before = Inventory()
        # Starts the ranks like mpirun and srun; the ranks do not detect it.
        early = Shell("a", folder, join, OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="2")
        early.wait_for("waiting for its launcher")
        job = Shell("launcher", folder, launch)
        job.wait_for("to join by: horovod-agent --join https://")
        late = Shell("b", folder, join)
        said = job.ends_with(0)
        expect(len(ranks_in([said])) == 4, said[-4000:])
        for rank in range(4):
            count = len(re.findall(rf"^\[{rank}\]<stdout>:line \d+ x{{80}}$", said, re.M))
            expect(count == 20_000, f"rank {rank} printed {count} lines")
        for agent in (early, late):
            agent.ends_with(0)
        before.wait_for_ends()


@world()
def test_an_agent_that_joins_by_tls_wants_a_certificate_and_others_get_an_error():
    _, _, launch, join = lines_of("TLS")
    with workplace() as folder:
        certified(folder)
        job = Shell("launcher", folder, launch)
        job.wait_for("waits up to")
        (folder / "other").mkdir()
        certified(folder / "other")
        for line, words in (
            (join.replace("ca.pem", "other/ca.pem"), "does not prove that it is launcher.*--ca"),
            (join.replace("--ca ca.pem ", ""), "does not prove that it is launcher.*--ca"),
            (join.replace("ca.pem", "none.pem"), "--ca: the file .*none.pem"),
        ):
            said = Shell("a", folder, line).ends_with(2)
            expect(re.search(words, said) and said.count("\n") == 1, said)
        job.end()
        plain = Shell("launcher", folder, lines_of("Hosts without sshd")[0])
        plain.wait_for("waits up to")
        said = Shell("a", folder, join).ends_with(2)
        expect("has no certificate" in said and said.count("\n") == 1, said)
        plain.end()


@world()
def test_a_host_asks_the_server_once_for_all_of_its_ranks():
    launch, join = lines_of("Hosts without sshd")
    launch = launch.replace("-np 4 python3 train.py", f"-np 8 {WORKER} steps-for-ever")
    with workplace() as folder:
        job = Shell("launcher", folder, launch)
        job.wait_for("for hosts that provide 8 slots")
        agents = [Shell(name, folder, join.replace("--slots 2", "--slots 4")) for name in "ab"]
        for rank in range(8):
            job.wait_for(f"ready {rank} ")
        asked = dict(
            re.findall(
                r'requests_total\{resource="(\w+)",status="200"\} (\d+)', page_of(folder, "launcher:29400/metrics")
            )
        )
        # One rank of each host forwards the host's records: first the chosen backends, then the addresses.
        # This rank sends one hello and gets all records at once. Rank 0 then removes the records of the
        # rendezvous from the store.
        hellos = int(asked.pop("hello"))
        expect(2 <= hellos <= 5 and asked == {"exchange": "8", "keys": "1"}, (hellos, asked))
        job.end()
        for agent in agents:
            agent.end()


@world()
def test_a_rank_that_never_starts_is_named_and_its_neighbour_is_not():
    job = Job(
        *"-np 4 -H a:2,b:2 --init-timeout 6".split(),
        "sh",
        "-c",
        f"[ $HOROVOD_RANK = 2 ] && exec sleep 600; exec {WORKER} sum",
    )
    expect(job.wait() != 0, job.describe())
    named = re.findall(r"<stderr>.*: (ranks? .*) not called hvd", job.err)
    expect(named and set(named) == {"rank 2 has"}, job.describe())


@world()
def test_named_hosts_that_do_not_join_are_named():
    launch, join = lines_of("Hosts without sshd")
    with workplace() as folder:
        job = Shell("launcher", folder, launch.replace("-np 4", "-H a:2,b:2 --start-timeout 12"))
        job.wait_for("waits up to 12 s")
        agent = Shell("a", folder, join)
        said = job.ends_with(2)
        expect(
            "horovodrun: b did not join within 12 s; run there: horovod-agent --join "
            f"10.77.255.254:29400 --token-file {folder}/token --name b; " in said,
            said,
        )
        agent.end()
        waiting = Shell("a", folder, join)
        waiting.wait_for("waiting for its launcher")
        waiting.end()


@world()
def test_an_agent_with_another_token_is_refused():
    launch, join = lines_of("Hosts without sshd")
    with workplace() as folder:
        job = Shell("launcher", folder, launch.replace("-np 4", "-np 4 --start-timeout 15"))
        job.wait_for("waits up to 15 s")
        (folder / "other").write_text("0" * 64)
        os.chmod(folder / "other", 0o600)
        agent = Shell("a", folder, join.replace("--token-file token", "--token-file other"))
        expect("did not admit this host, 'a:2': the token here is not the launcher's" in agent.ends_with(2), agent.said)
        said = job.ends_with(2)
        expect(re.search(r"the agent at tcp:10\.77\.0\.1:\d+ does not hold the job's token; copy", said), said)
        expect(
            "only 0 of 4 slots joined within 15 s; run on each host: horovod-agent --join "
            f"10.77.255.254:29400 --token-file {folder}/token; " in said,
            said,
        )


@world()
def test_the_command_that_the_launcher_prints_joins_a_host():
    launch, _ = lines_of("Hosts without sshd")
    with workplace() as folder:
        job = Shell("launcher", folder, launch.replace("-np 4", "-np 1"))
        job.wait_for("to join by: ")
        (command,) = re.findall("to join by: (horovod-agent .*)", job.said)
        agent = Shell("a", "/", command)
        expect(ranks_in([job.ends_with(0)]) == [("0", "0 of 1")], job.said)
        agent.ends_with(0)


def test_a_launcher_that_waits_for_hosts_takes_all_descriptors_that_it_may():
    with workplace() as folder:
        job = Shell(
            "launcher", folder, "ulimit -Sn 256; exec horovodrun --listen 127.0.0.1:0 --token-file token -np 2 true"
        )
        job.wait_for("to join by: ")
        limits = pathlib.Path(f"/proc/{job.process.pid}/limits").read_text()
        soft, hard = re.search(r"Max open files +(\d+) +(\d+)", limits).groups()
        expect(soft == hard != "256", limits)
        job.end()


@world()
def test_the_status_of_a_job_counts_the_hosts_that_joined():
    launch, join = lines_of("Hosts without sshd")
    launch = launch.replace("-np 4 python3 train.py", f"-np 4 {WORKER} steps-for-ever")

    with workplace() as folder:
        job = Shell("launcher", folder, launch)
        job.wait_for("for hosts that provide 4 slots")

        def page():
            return json.loads(page_of(folder, "launcher:29400/status"))

        def status():
            return page()["job"]

        expect("hosts" not in page(), "hosts have a state when the launch begins")
        agents = [Shell("a", folder, join)]
        wait_until(lambda: status()["present"] == 2, 60, lambda: f"a host that joined: {status()}")
        seen = status()
        expect((seen["size"], seen["missing"], seen["complete"]) == (4, 2, False), seen)
        expect([(host["host"], host["slots"]) for host in seen["hosts"]] == [("a", 2)], seen)
        agents.append(Shell("b", folder, join))
        for rank in range(4):
            job.wait_for(f"ready {rank} ")
        seen = status()
        expect((seen["present"], seen["missing"], seen["complete"]) == (4, 0, True), seen)
        expected = [(name, "running", ["in_job", "in_job"]) for name in ("a", "b")]
        wait_until(lambda: states_of(page()) == expected, 30, lambda: f"the states of hosts and ranks: {page()}")
        job.end()
        for agent in agents:
            agent.end()


@world()
def test_an_unexpected_agent_gets_the_names_of_the_expected_ones():
    launch, join = lines_of("Hosts without sshd")
    with workplace() as folder:
        job = Shell("launcher", folder, launch.replace("-np 4", "-H n1:2,n2:2 --start-timeout 15"))
        job.wait_for("waits up to 15 s")
        named = Shell("b", folder, f"{join} --name n2")
        stranger = Shell("a", folder, join)
        told = stranger.ends_with(2)
        expect(
            "does not accept this host: the job awaits n1, n2, not 'a'; give the agent one of "
            "these names with --name" in told,
            told,
        )
        said = job.ends_with(2)
        expect(
            "an agent joined as 'a', but this job awaits n1, n2; start it with one of these names "
            "(--name), or add it to -H" in said,
            said,
        )
        expect(
            "horovodrun: n1 did not join within 15 s; agents joined under other names: a; run "
            "there: horovod-agent --join" in said,
            said,
        )
        named.end()


@world()
def test_an_agent_whose_namesake_joins_gets_a_message():
    launch, join = lines_of("Hosts without sshd")
    with workplace() as folder:
        job = Shell("launcher", folder, launch)
        job.wait_for("waits up to")
        first = Shell("a", folder, f"{join} --name same")
        wait_until(
            lambda: (
                json.loads(page_of(folder, "launcher:29400/status"))["connections"] == 1
                or "same" in page_of(folder, "launcher:29400/status")
            ),
            20,
            "the first agent",
        )
        second = Shell("b", folder, f"{join} --name same")
        told = first.ends_with(2)
        expect(
            "another agent joined as 'same' and took its place; if these are two hosts, start "
            "each agent with its own --name" in told,
            told,
        )
        job.wait_for("host same joined again")
        third = Shell("a", folder, join)
        expect(len(ranks_in([job.ends_with(0)])) == 4, job.said)
        for agent in (second, third):
            agent.ends_with(0)


@world()
def test_a_token_of_roots_that_a_group_reads_is_taken_by_all_programs():
    launch, join = lines_of("Hosts without sshd")
    with workplace() as folder:
        # The layout of a Kubernetes Secret volume with an fsGroup.
        (folder / "..1").mkdir()
        (folder / "token").rename(folder / "..1" / "token")
        (folder / "..data").symlink_to("..1")
        (folder / "token").symlink_to("..data/token")
        os.chown(folder / "token", 0, 4711)
        os.chmod(folder / "token", 0o440)
        shown = "horovod-rendezvous --show-monitor-token --token-file token"
        expect(len(Shell("launcher", folder, shown).ends_with(0)) == 65, "no token was shown")
        job = Shell("launcher", folder, launch.replace("-np 4", "-np 2"))
        agent = Shell("a", folder, join)
        expect(len(ranks_in([job.ends_with(0)])) == 2, job.said)
        agent.ends_with(0)


@world()
def test_a_token_file_that_is_missing_is_created_by_the_launcher_alone():
    launch, join = lines_of("Hosts without sshd")
    with workplace() as folder:
        (folder / "token").unlink()
        for line in (join, "horovod-rendezvous --show-monitor-token --token-file token"):
            said = Shell("a", folder, line).ends_with(2)
            expect("No such file" in said and "make one with" in said, said)
            expect(not (folder / "token").exists(), line)
        job = Shell("launcher", folder, launch.replace("-np 4", "-np 2"))
        job.wait_for(f"created the token file {folder}/token; copy it to each host")
        expect((folder / "token").stat().st_mode & 0o777 == 0o600, "the file is open to others")
        expect(expect_secret(folder) not in job.said, "the token is in a log")
        agent = Shell("a", folder, "cat token | " + join.replace("--token-file token", "--token-fd 0"))
        expect(len(ranks_in([job.ends_with(0)])) == 2, job.said)
        agent.ends_with(0)


@world()
def test_all_programs_read_the_token_from_a_descriptor_and_by_one_rule():
    launch, join = lines_of("Hosts without sshd")
    serve = "horovod-rendezvous --show-monitor-token --token-file token"
    with workplace() as folder:
        by_pipe = "cat token | " + serve.replace("--token-file token", "--token-fd 0")
        expect(
            Shell("launcher", folder, by_pipe).ends_with(0) == Shell("launcher", folder, serve).ends_with(0),
            "two tokens",
        )
        job = Shell(
            "launcher",
            folder,
            launch.replace("-np 4", "-np 2").replace("--token-file token", "--token-fd 5") + " 5<token",
        )
        job.wait_for("waits up to")
        by_name = join.replace("--token-file token", "--token-file <(cat token)")
        agent = Shell("a", folder, f"exec bash -c '{by_name}'")
        expect(len(ranks_in([job.ends_with(0)])) == 2, job.said)
        agent.ends_with(0)
        for content, words in (
            ("abcd", "holds fewer than 32"),
            ("correct horse battery staple is it", "hexadecimal digits"),
        ):
            (folder / "token").write_text(content)
            for line in (launch, join, serve):
                said = Shell("a", folder, line).ends_with(2)
                expect(words in said and said.count("\n") == 1, f"{line}: {said}")


def test_a_port_that_is_taken_gets_a_sentence_and_a_range_another_port():
    with workplace() as folder, socket_at_free_port() as port:
        taken = f"horovod-rendezvous --listen 127.0.0.1:{port} --token-file token"
        said = Shell("launcher", folder, taken).ends_with(2)
        expect(f"127.0.0.1:{port}" in said and "in use" in said and said.count("\n") == 1, said)
        said = Shell("launcher", folder, taken.replace("horovod-rendezvous", "horovodrun -np 1") + " true").ends_with(2)
        expect(f"127.0.0.1:{port}" in said and "in use" in said and said.count("\n") == 1, said)
        server = Shell("launcher", folder, f"{taken} --port-range {port}-{min(port + 9, 65535)}")
        server.wait_for(r"listens on tcp:127\.0\.0\.1:(?!%d\b)\d+" % port)
        server.end()


def test_a_server_that_stops_or_is_killed_is_named_within_the_start_timeout():
    with workplace() as folder:
        for number in (signal.SIGSTOP, signal.SIGKILL):
            server = Shell("launcher", folder, "exec horovod-rendezvous --listen 127.0.0.1:0 --token-file token")
            server.wait_for("listens on")
            address = re.search(r"127\.0\.0\.1:\d+", server.said)[0]
            by_hand = {"HOROVOD_RANK": "0", "HOROVOD_SIZE": "2", "HOROVOD_JOB_SECRET": expect_secret(folder)}
            rank = Shell(
                "launcher", folder, f"HOROVOD_START_TIMEOUT=3 HOROVOD_STORE=tcp:{address} {WORKER} sum", **by_hand
            )
            wait_until(lambda to=address: is_connected(to), 30, "the rank's connection")
            server.process.send_signal(number)
            said = rank.ends_with(1, PROMPT)
            expect(address in said and "does not answer" in said and "called hvd.init()" not in said, said)
            server.process.kill()
            server.process.wait()


def is_connected(address):
    found = run_to_end(["ss", "-Htn", "dst", address], check=True)
    return "ESTAB" in found.stdout


@contextlib.contextmanager
def socket_at_free_port():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


if __name__ == "__main__":
    main()
