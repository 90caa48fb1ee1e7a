"""horovod.runner's inner modules, under the names that scripts import. Runs as one process."""

import contextlib
import importlib.util
import io
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

import rank_base

rank_base.need("cloudpickle")
from horovod import runner
from horovod.runner import launch, run_task
from horovod.runner.common.util import codec, env, host_hash, hosts, secret, settings, timeout
from horovod.runner.http.http_server import RendezvousServer
from horovod.runner.util import threads

WORKER = pathlib.Path(__file__).parents[1] / "conformance/original/worker.py"
SECONDS = 200


def original_worker():
    spec = importlib.util.spec_from_file_location("original_worker", WORKER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class NamesTest(unittest.TestCase):
    def test_slots_of_hosts(self):
        slots = hosts.get_host_assignments(hosts.parse_hosts("a:2, b:1"), 3)
        self.assertEqual(
            [(slot.hostname, slot.to_response_string()) for slot in slots],
            [("a", "0,3,0,2,0,2"), ("a", "1,3,1,2,0,1"), ("b", "2,3,0,1,1,2")],
        )
        again = hosts.SlotInfo.from_response_string("1,3,1,2,0,1")
        self.assertEqual(again, hosts.SlotInfo("", 1, 1, 0, 3, 2, 1))
        self.assertEqual(len(hosts.get_host_assignments([hosts.HostInfo("a", 9)], 1, 4)), 4)
        self.assertEqual(hosts.parse_hosts_and_slots("a:2,b:1"), (["a", "b"], {"a": 2, "b": 1}))
        with self.assertRaisesRegex(ValueError, r"more processes \(4\) than .* slots \(3\)"):
            hosts.get_host_assignments(hosts.parse_hosts("a:3"), 4)
        for wrong in ("a", "a:", "a:b", "a:1,,b:1"):
            self.assertRaises(ValueError, hosts.parse_hosts, wrong)
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("# two hosts\na slots=2\n\nb slots=1 max_slots=3\n")
            file.flush()
            self.assertEqual(hosts.parse_host_files(file.name), "a:2,b:1")

    def test_secrets_timeouts_and_settings(self):
        key = secret.make_secret_key()
        self.assertNotEqual(key, secret.make_secret_key())
        digest = secret.compute_digest(key, b"message")
        self.assertEqual(len(digest), secret.DIGEST_LENGTH)
        self.assertTrue(secret.check_digest(key, b"message", digest))
        self.assertFalse(secret.check_digest(key, b"Message", digest))
        late = timeout.Timeout(-1, "Timed out waiting for {activity}.")
        self.assertTrue(late.timed_out())
        self.assertEqual(late.remaining(), 0)
        with self.assertRaisesRegex(timeout.TimeoutException, "^Timed out waiting for hosts. Timeout after -1"):
            late.check_time_out_for("hosts")
        early = timeout.Timeout(1000, "")
        early.check_time_out_for("hosts")
        self.assertTrue(0 < early.remaining() <= 1000)
        made = settings.Settings(num_proc=2, hosts="a:2", of_mine=1)
        self.assertEqual((made.num_proc, made.hosts, made.of_mine, made.nics), (2, "a:2", 1, None))

    def test_objects_as_text_and_identities(self):
        for to_ascii in (True, False):
            text = codec.dumps_base64({"f": lambda: 7}, to_ascii)
            self.assertIs(type(text), str if to_ascii else bytes)
            self.assertEqual(codec.loads_base64(text)["f"](), 7)
        self.assertEqual(host_hash.host_hash(), host_hash.host_hash())
        self.assertNotEqual(host_hash.host_hash(), host_hash.host_hash("salt"))
        for variables, wanted in [
            ({"HOROVOD_RANK": "1", "HOROVOD_SIZE": "3", "PMI_RANK": "5"}, (1, 3)),
            ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}, (2, 4)),
            ({"PMI_RANK": "0", "PMI_SIZE": "2"}, (0, 2)),
            ({}, (0, 1)),
        ]:
            with mock.patch.dict(os.environ, variables, clear=True):
                self.assertEqual(env.get_env_rank_and_size(), wanted)

    def test_a_call_in_a_thread(self):
        done = threading.Event()
        thread = threads.in_thread(lambda event: event.set(), (done,), name="of-mine")
        self.assertTrue(done.wait(SECONDS))
        thread.join(SECONDS)
        self.assertEqual((thread.name, thread.daemon), ("of-mine", True))
        threads.in_thread(lambda: 1 / 0, silent=True).join(SECONDS)


class LaunchTest(unittest.TestCase):
    def test_arguments_become_the_command_line_that_they_came_from(self):
        words = [
            *"-np 2 -H a:1,b:1 --network-interface eth0 --no-autotune --verbose --blacklist-cooldown-range 1".split(),
            *"2 --cycle-time-ms 2.5 -p 22 --mpi python3 train.py --verbose".split(),
        ]
        found = launch.parse_args(words)
        self.assertEqual(
            (found.num_proc, found.hosts, found.autotune, found.use_mpi, found.command),
            (2, "a:1,b:1", False, True, ["python3", "train.py", "--verbose"]),
        )
        self.assertEqual(
            runner._arguments.flags_of(found),
            [
                *"--num-proc=2 --network-interfaces=eth0 --verbose --ssh-port=22".split(),
                "--cycle-time-ms=2.5",
                *"--no-autotune --blacklist-cooldown-range 1 2 --hosts=a:1,b:1 --mpi".split(),
            ],
        )
        self.assertEqual(vars(launch.parse_args(["-np", "1", "x"]))["ssh_port"], None)
        found = launch.parse_args(
            ["--network-interfaces", "a,b", "--network-interface", "c", "--log-hide-timestamp", "x"]
        )
        self.assertEqual((found.nics, found.log_with_timestamp), ({"a", "b", "c"}, False))
        self.assertEqual(runner._arguments.flags_of(found), ["--network-interfaces=a,b,c", "--log-without-timestamp"])
        for words, code, said in [(["-v"], 0, runner.__version__), (["--kill-grace", "1", "x"], 2, "--kill-grace")]:
            with self.assertRaises(SystemExit) as raised, contextlib.redirect_stdout(
                io.StringIO()
            ) as output, contextlib.redirect_stderr(output):
                launch.parse_args(words)
            self.assertEqual(raised.exception.code, code)
            self.assertIn(said, output.getvalue())

    def test_a_command_and_a_function(self):
        args = runner._HorovodArgs()
        self.assertEqual((args.num_proc, args.cycle_time_ms, args.run_func), (1, None, None))
        args.num_proc, args.verbose, args.nics = 2, False, {"lo"}
        with tempfile.TemporaryDirectory() as folder:
            args.output_filename = folder
            args.command = [sys.executable, "-c", "import os; print(os.environ['HOROVOD_RANK'])"]
            self.assertIsNone(launch._run(args))
            said = [(pathlib.Path(folder) / f"rank.{rank}/stdout").read_text() for rank in range(2)]
        self.assertEqual([line.strip()[-1] for line in said], ["0", "1"])
        args.output_filename = None
        args.run_func = lambda: int(os.environ["HOROVOD_RANK"]) + 5
        self.assertEqual(launch._run(args), [5, 6])
        args.min_num_proc, args.hosts = 1, "localhost:2"
        with mock.patch.object(launch, "call_on_all") as called:
            launch._run(args)
        _, least, flags, _, is_elastic = called.call_args[0]
        self.assertEqual((least, is_elastic), (1, True))
        self.assertIn("--min-num-proc=1", flags)

    def test_a_job_that_fails_or_has_no_command(self):
        with self.assertRaisesRegex(RuntimeError, "exit code 3"):
            launch._run(runner._HorovodArgs(command="sh -c 'exit 3'"))
        with self.assertRaisesRegex(ValueError, "run_func or command"):
            launch._run(runner._HorovodArgs())

    def test_the_program_of_ranks_takes_the_original_s_arguments(self):
        with mock.patch.dict(os.environ, clear=True), self.assertRaises(KeyError):
            run_task.main("127.0.0.1", 1)  # this process is not a rank


def has_ended(process):
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as stat:
            return stat.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


class RendezvousServerTest(unittest.TestCase):
    def meet(self, port):
        worker = original_worker()
        slots = hosts.get_host_assignments(hosts.parse_hosts("a:1,b:1"), 2)
        places = [
            worker.Place(
                slot.rank, slot.size, slot.hostname, slot.local_rank, slot.local_size, slot.cross_rank, slot.cross_size
            )
            for slot in slots
        ]
        self.assertEqual(worker.run_job("127.0.0.1", port, places, 1), [])

    def test_workers_of_the_original_meet_and_the_server_starts_again(self):
        server = RendezvousServer(0)
        self.addCleanup(server.stop)
        with self.assertRaisesRegex(RuntimeError, "does not run"):
            server.init([])
        port = server.start()
        for _ in range(2):
            server.init([])
            self.meet(port)
        self.assertRaises(RuntimeError, server.start)
        line = pathlib.Path(f"/proc/{server._child.pid}/cmdline").read_bytes()
        self.assertNotRegex(line, rb"[0-9a-f]{32}")  # no line has the token
        child = server._child.pid
        server.stop()
        server.stop()
        self.assertTrue(has_ended(child))
        self.meet(server.start())

    def test_an_address_and_a_range_of_ports(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            server = RendezvousServer(address="127.0.0.1", port_range=f"{port}-{port}")
            with self.assertRaisesRegex(RuntimeError, "does not start"):
                server.start()
        server = RendezvousServer(address="127.0.0.1", port_range="21000-29999")
        self.addCleanup(server.stop)
        self.assertIn(server.start(), range(21000, 30000))

    def test_the_server_ends_with_a_killed_parent(self):
        # A forked child survives, for example a child of multiprocessing.
        program = (
            "from horovod.runner.http.http_server import RendezvousServer as Server; import os, sys, time;"
            "server = Server(address='127.0.0.1'); server.start();"
            "os.fork() and print(server._child.pid, flush=True);"
            "sys.stdin.read()"
        )
        with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
            server = int(parent.stdout.readline())
            self.assertFalse(has_ended(server))
            parent.send_signal(signal.SIGKILL)
            deadline = time.monotonic() + SECONDS
            while not has_ended(server) and time.monotonic() < deadline:
                time.sleep(0.02)
            self.assertTrue(has_ended(server))


if __name__ == "__main__":
    rank_base.main()
