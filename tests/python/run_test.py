"""horovod.run, horovod.runner and horovod.data: programs that start jobs. Runs as one process."""

import contextlib
import io
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
import warnings

import rank_base

rank_base.need("cloudpickle")
import horovod
from horovod import exceptions
from horovod.data import AsyncDataLoaderMixin, BaseDataLoader
from horovod.runner import RemoteError, _calls, _job, _program, _store, run
from horovod.runner._store import Store, StoreError, connect

PLAIN = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")}


class RunTest(unittest.TestCase):
    def test_results_come_back_in_the_order_of_ranks(self):
        self.assertIs(horovod.run, run)
        offset = 5  # run() sends the variable with the function

        def work(first, second=0):
            import horovod._basics as hvd

            hvd.init()
            try:
                return hvd.rank(), hvd.size(), first + second + offset
            finally:
                hvd.shutdown()

        self.assertEqual(run(work, (1,), {"second": 10}, num_proc=3), [(rank, 3, 16) for rank in range(3)])

    def test_large_arguments_and_results(self):
        data = os.urandom(1 << 20) * 70  # more than fits into one request
        self.assertEqual(run(lambda given: given[::-1] == data[::-1] and given, (data,), num_proc=1), [data])

    def test_an_exception_comes_back_with_its_traceback_and_ends_the_others(self):
        def work():
            if os.environ["HOROVOD_RANK"] == "1":
                raise KeyError("what is missing")
            threading.Event().wait()

        with self.assertRaises(RuntimeError) as caught:
            run(work, num_proc=2)
        self.assertIsInstance(caught.exception, RemoteError)
        self.assertEqual(caught.exception.rank, 1)
        self.assertIsInstance(caught.exception.__cause__, KeyError)
        self.assertRegex(str(caught.exception), r"(?s)rank 1:\nTraceback.*in work\n.*KeyError: 'what")

    def errors_of(self, work):
        """Returns standard error of a program in which horovod.run calls `work` on 2 ranks."""
        done = subprocess.run(
            [sys.executable, "-c", f"import horovod\n{work}\nhorovod.run(work, num_proc=2)\n"],
            capture_output=True,
            text=True,
            env=PLAIN,
            timeout=240,
            check=False,
        )
        self.assertEqual(done.returncode, 1, done.stderr)
        return done.stderr

    def test_a_failure_s_traceback_is_shown_once(self):
        said = self.errors_of(
            "def work():\n"
            "    import os, threading\n"
            "    if os.environ['HOROVOD_RANK'] == '1':\n"
            "        raise KeyError('what is missing')\n"
            "    threading.Event().wait()"
        )
        self.assertEqual(said.count("in work"), 1, said)
        self.assertEqual(said.count("horovodrun: rank 1 on host localhost exited with code 1"), 1, said)

    def test_failures_of_several_ranks_are_shown_once_each(self):
        with tempfile.TemporaryDirectory() as folder:
            # Each rank waits until the other rank is also about to fail.
            said = self.errors_of(
                "def work():\n"
                "    import os, time\n"
                "    rank = os.environ['HOROVOD_RANK']\n"
                f"    open(os.path.join({folder!r}, rank), 'w').close()\n"
                f"    while len(os.listdir({folder!r})) < 2: time.sleep(0.01)\n"
                "    raise KeyError('missing on ' + rank)"
            )
        for rank in (0, 1):
            self.assertLessEqual(said.count(f"KeyError: 'missing on {rank}'"), 2, said)
        self.assertLessEqual(said.count("in work"), 2, said)

    def test_a_result_that_cannot_be_pickled_is_the_rank_s_error(self):
        with self.assertRaisesRegex(RemoteError, "rank 0:\n(?s:.*)pickle"):
            run(lambda: threading.Lock(), num_proc=1)

    def test_a_result_or_an_exception_that_the_caller_cannot_unpickle(self):
        class Result:
            def __getstate__(self):
                return {"": 1}

            def __setstate__(self, state):
                if "HOROVOD_RANK" not in os.environ:
                    raise FileNotFoundError("what only ranks have")

        class OfRanks(Result, Exception):
            def __reduce__(self):
                return OfRanks, (), {"": 1}

        def work(raises):
            if raises:
                raise OfRanks("its words")
            return Result()

        with self.assertRaisesRegex(RuntimeError, "result of rank 0 cannot be unpickled .* what only ranks have"):
            run(work, (False,), num_proc=1)
        with self.assertRaisesRegex(RemoteError, "in work\n(?s:.*)its words") as caught:
            run(work, (True,), num_proc=1)
        self.assertEqual(repr(caught.exception.__cause__), "RuntimeError('OfRanks: its words')")

    def test_an_exception_that_is_no_exception_of_programs_comes_back_too(self):
        def work():
            import asyncio

            raise asyncio.CancelledError("early")

        with self.assertRaisesRegex(RemoteError, "rank 0:(?s:.*)CancelledError: early"):
            run(work, num_proc=1)

    def test_errors_can_travel_on(self):
        for error in [RemoteError(3, "its trace"), exceptions.HorovodVersionMismatchError("torch", "1", "2")]:
            copy = pickle.loads(pickle.dumps(error))
            self.assertEqual((type(copy), str(copy), vars(copy)), (type(error), str(error), vars(error)))

    def test_the_words_that_a_rank_leaves_are_in_the_error(self):
        with self.assertRaisesRegex(RuntimeError, r"exited with code 1; its last lines.*:\n\[1\]<stderr>:no data"):
            run(lambda: sys.exit("no data") if os.environ["HOROVOD_RANK"] == "1" else time.sleep(240), num_proc=2)

    def test_a_process_that_does_not_end_after_its_function_says_why(self):
        def work(raises):
            import __main__ as task

            task._EXPLAIN_SECONDS, task._FAILED_SECONDS = 0.05, 0.1
            threading.Thread(target=time.sleep, args=(240 if raises else 0.5,), name="slow").start()
            return 1 // (not raises)

        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(run(work, (False,), num_proc=1), [1])
            with self.assertRaises(RemoteError):
                run(work, (True,), num_proc=1)
        for state in ("returned", "raised"):
            self.assertRegex(said.getvalue(), f"has {state} on rank 0, .* waits for the thread 'slow'")

    def test_a_name_means_the_same_module_to_ranks_as_to_the_caller(self):
        with tempfile.TemporaryDirectory() as folder:
            for place, text in [("script/yaml.py", "def who(): return 'the script'"), ("cwd/yaml.py", "1 / 0")]:
                os.makedirs(os.path.dirname(os.path.join(folder, place)))
                with open(os.path.join(folder, place), "w", encoding="utf-8") as file:
                    file.write(text)
            with open(os.path.join(folder, "script/main.py"), "w", encoding="utf-8") as file:
                file.write("import horovod, yaml\nprint(horovod.run(yaml.who))\n")
            done = subprocess.run(
                [sys.executable, "../script/main.py"],
                cwd=os.path.join(folder, "cwd"),
                env=PLAIN,
                capture_output=True,
                text=True,
                timeout=240,
                check=False,
            )
        self.assertEqual(done.stdout, "['the script']\n", done.stderr)

    def test_a_function_may_fork_and_close_descriptors(self):
        def work():
            child = os.fork()
            if child == 0:
                return "of the child"
            os.waitpid(child, 0)
            os.closerange(3, 100)
            return "of the rank"

        self.assertEqual(run(work, num_proc=2), ["of the rank"] * 2)

    def test_a_call_for_another_python_is_refused(self):
        call = _calls.pack_call([], print, (), {})
        with unittest.mock.patch.object(sys, "version_info", (3, 7, 1)):
            with self.assertRaisesRegex(RuntimeError, r"caller has \w+ 3\.\d+, and .* is \w+ 3\.7: .* equal versions"):
                _calls.unpack_call(call)

    def test_output_of_the_caller_comes_first(self):
        program = "import horovod\nprint('begins')\nhorovod.run(lambda: print('works'))\nprint('ends')\n"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=PLAIN, timeout=240)
        self.assertEqual(done.stdout.split(), ["begins", "[0]<stdout>:works", "ends"], done.stderr)

    def test_the_import_path_of_a_rank(self):
        here = os.getcwd()
        for path, first, own, wanted in [
            (
                ["/s", "/lib", "/site", "/late"],
                1,
                [here, "/lib", "/own"],
                ["/s", "/lib", "/own", "/site", "/late", here],
            ),
            (["", "/lib"], 1, [here, "/lib"], ["", "/lib", here]),
            (["/s", "/lib"], 0, ["/lib", "/own"], ["/lib", "/own", "/s"]),
        ]:
            self.assertEqual(_calls.import_path(path, first, own), wanted)

    def test_the_caller_s_standard_streams_do_not_matter(self):
        def work():
            sys.stderr.write("\N{SNOWMAN}" + 200000 * "x\n")
            return 7

        class Broken:
            def write(self, text):
                raise OSError("no stream")

        closed = io.StringIO()
        closed.close()
        with io.TextIOWrapper(io.BytesIO(), encoding="ascii") as ascii_only:
            for stream in (None, closed, Broken(), ascii_only):
                with contextlib.redirect_stderr(stream):
                    self.assertEqual(run(work, num_proc=1), [7])
            ascii_only.seek(0)
            self.assertIn("[0]<stderr>:\\u2603x", ascii_only.readline())
        with tempfile.NamedTemporaryFile("r") as file:
            program = (
                "import horovod, os, sys\n"
                "for number in range(3): os.close(number)\n"
                "def work(): sys.stderr.write(200000 * 'x\\n'); return 7\n"
                f"open({file.name!r}, 'w').write(str(horovod.run(work)))\n"
            )
            subprocess.run([sys.executable, "-c", program], env=PLAIN, timeout=240, check=False)
            self.assertEqual(file.read(), "[7]")

    def test_a_result_that_its_rank_did_not_sign_is_refused_and_not_unpickled(self):
        class Trap:  # rank 1 stores a Trap as rank 0's result
            def __reduce__(self):
                return open, (file.name, "w")

        def work():
            import os

            from horovod.runner._store import Store

            store = Store.of_environment()
            if os.environ["HOROVOD_RANK"] == "1":
                store.put("run/result/0", forged)
            store.get("run/taken/0")

        key = _calls.signing_key(os.urandom(32), "0")
        with tempfile.NamedTemporaryFile("w+") as file:
            file.write("untouched")
            file.flush()
            trap = _calls.cloudpickle().dumps(_calls.Outcome(Trap(), None, ""))
            for forged in [trap, _calls.sign(trap, key), b""]:
                with self.assertRaisesRegex(RuntimeError, "result at 'run/result/0' .* not signed by the rank"):
                    run(work, num_proc=2)
            with open(file.name, encoding="utf-8") as left:
                self.assertEqual(left.read(), "untouched")

    def test_a_rank_signs_for_its_own_number_only(self):
        secret = os.urandom(32)
        signed = _calls.sign(_calls.pack_value(7), _calls.signing_key(secret, "1"))
        self.assertEqual(_calls.unpack(signed, _calls.signing_key(secret, "1")).value, 7)
        for other in ["0", "01", "11", "\N{ARABIC-INDIC DIGIT ONE}", ""]:
            self.assertIsNone(_calls.unpack(signed, _calls.signing_key(secret, other)), other)
        self.assertIsNone(_calls.unpack(signed[:-1] + b"?", _calls.signing_key(secret, "1")))

    def test_a_function_s_children_do_not_inherit_its_rank_s_key(self):
        def work():
            import subprocess

            shown = subprocess.run(["env"], capture_output=True, text=True, check=True).stdout
            return "HOROVOD_RANK=" in shown, "HOROVOD_RESULT_KEY" in shown

        self.assertEqual(run(work, num_proc=2), [(True, False)] * 2)

    def elastic_work(self):
        """Makes ten steps; in the fifth step, the process with the first rank `victim` is killed or raises."""

        def work(victim, raises=False):
            import signal

            import horovod._basics as hvd
            from horovod import _elastic, _objects

            hvd.init()

            @_elastic.run
            def train(state):
                while state.step < 10:
                    _objects.allgather_object(hvd.rank())
                    state.step += 1
                    if state.step == 5 and os.environ["HOROVOD_ELASTIC_PROCESS"] == str(victim):
                        if raises:
                            raise KeyError("in the fifth step")
                        os.kill(os.getpid(), signal.SIGKILL)
                    state.commit()
                return hvd.rank(), hvd.size(), int(os.environ["HOROVOD_ELASTIC_PROCESS"]), state.step

            return train(_elastic.ObjectState(step=0))

        return work

    def test_an_elastic_job_returns_the_results_of_its_last_generation(self):
        hosts = "localhost:2,127.0.0.1:2"  # two names of this machine, which count as two hosts
        self.assertEqual(
            run(self.elastic_work(), (-1,), num_proc=2, min_num_proc=2, max_num_proc=2, hosts=hosts),
            [(0, 2, 0, 10), (1, 2, 1, 10)],
        )
        self.assertEqual(
            run(self.elastic_work(), (0,), num_proc=4, min_num_proc=2, hosts=hosts), [(0, 2, 2, 10), (1, 2, 3, 10)]
        )

    def test_an_exception_that_an_elastic_job_survives_is_shown(self):
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(
                run(self.elastic_work(), (0, True), num_proc=4, min_num_proc=2, hosts="localhost:2,127.0.0.1:2"),
                [(0, 2, 2, 10), (1, 2, 3, 10)],
            )
        self.assertRegex(
            said.getvalue(),
            r"(?s)horovod.run: the function raised on rank 0 of generation 0, and the "
            r"job went on:\nTraceback.*in work\n.*KeyError: 'in the fifth step'",
        )

    def test_errors_and_results_of_an_elastic_job_are_those_of_its_last_generation(self):
        generation_of = _job._Launcher.generation

        def call(code, messages, *found, least=1):
            """Returns the results and the output of a job that ends like this."""
            launcher = unittest.mock.Mock(messages=messages)
            launcher.wait.return_value = code
            launcher.generation = lambda: generation_of(launcher)
            outcomes = {process: _calls.Outcome(*each) for process, each in enumerate(found)}
            with unittest.mock.patch.multiple(
                _job, _Launcher=lambda flags, python: launcher, _collect=lambda *unused: outcomes
            ), contextlib.redirect_stderr(io.StringIO()) as written:
                try:
                    return _job.call_on_all(b"", least, [], "", True), written.getvalue()
                except RuntimeError as error:
                    return error, written.getvalue()

        old, new = (None, KeyError("old"), "trace of old", 0, 0), (None, KeyError("new"), "trace of new", 0, 2)
        begins, killed = ["generation 1: 3 ranks", "generation 2: 2 ranks; 4 changes are left"], "rank 0 was killed"

        found, written = call(0, begins, old, ("a", None, "", 0, 2), ("b", None, "", 1, 2))
        self.assertEqual(found, ["a", "b"])
        self.assertIn("trace of old", written)

        error, written = call(137, [*begins, killed], old)
        self.assertNotIsInstance(error, RemoteError)
        self.assertEqual(str(error), f"The job of horovod.run ended with exit code 137: {killed}")
        self.assertIn("rank 0 of generation 0, and the job went on:\ntrace of old", written)

        error, written = call(1, [*begins, killed], old, new)
        self.assertEqual((error.trace, error.__cause__), ("trace of new", new[1]))
        self.assertIn("trace of old", written)
        self.assertNotIn("trace of new", written)
        self.assertEqual(call(1, [], old)[0].trace, "trace of old")  # no new generation has begun

        error, _ = call(0, begins, ("a", None, "", 0, 2), ("c", None, "", 2, 2))
        self.assertRegex(str(error), r"ranks \[0, 2\] of its last generation .* ranks 0 to 2 must")
        error, _ = call(0, begins, ("a", None, "", 0, 2), least=2)
        self.assertRegex(str(error), r"ranks \[0\] of its last generation .* ranks 0 to 1 must")

    def test_an_elastic_job_finds_its_hosts_by_a_script(self):
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "hosts.sh")
            with open(script, "w", encoding="utf-8") as text:
                text.write("#!/bin/sh\necho localhost:3\n")
            os.chmod(script, 0o755)
            self.assertEqual(
                run(self.elastic_work(), (-1,), num_proc=2, host_discovery_script=script),
                [(rank, 3, rank, 10) for rank in range(3)],
            )

    def test_an_elastic_job_whose_ranks_all_raise(self):
        def work():
            raise KeyError("what is missing")

        with self.assertRaises(RemoteError) as caught:
            run(work, num_proc=2, min_num_proc=2, hosts="localhost:1,127.0.0.1:1")
        self.assertIsInstance(caught.exception.__cause__, KeyError)

    def test_results_of_earlier_generations_do_not_count(self):
        outcome = _calls.Outcome
        found = {
            3: outcome("old", None, "", 0, 1),
            2: outcome("b", None, "", 1, 2),
            1: outcome("a", None, "", 0, 2),
            0: outcome(None, KeyError(), "trace", 0, 0),
        }
        self.assertEqual({rank: each.value for rank, each in _job._of_last_generation(found).items()}, {0: "a", 1: "b"})
        self.assertEqual(_job._of_last_generation({}), {})

    def test_a_rank_that_dies_is_named_by_the_launcher_s_sentence(self):
        with self.assertRaisesRegex(RuntimeError, "exit code 7: rank 0 on host .* exited with code 7"):
            run(lambda: os._exit(7), num_proc=1)
        with self.assertRaisesRegex(
            RuntimeError, "exit code 0: rank 1 exited with code 0 before the function had returned there"
        ):
            run(lambda: os.environ["HOROVOD_RANK"] == "1" and os._exit(0), num_proc=2)

    def test_a_job_that_cannot_start_says_why(self):
        with self.assertRaisesRegex(RuntimeError, "exit code 2: .*no slots for 2|exit code 2: .*slot"):
            run(lambda: None, num_proc=2, hosts="localhost:1")

    def test_arguments_that_contradict_each_other(self):
        for arguments, words in [
            ({"hosts": "a", "hostfile": "b"}, "hosts or hostfile"),
            ({"use_gloo": True, "use_mpi": True}, "use_gloo or use_mpi"),
            ({"num_proc": 0}, "whole number, 1 or more"),
            ({"num_proc": 2.0}, "2.0; it must be a whole number"),
        ]:
            with self.assertRaisesRegex(ValueError, words):
                run(print, **arguments)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with self.assertRaisesRegex(DeprecationWarning, "np .* num_proc"):
                run(print, np=2)

    def test_flags(self):
        self.assertEqual(
            _program.flags(
                4,
                {
                    "hosts": "a:4",
                    "verbose": True,
                    "ssh_port": 2222,
                    "disable_cache": False,
                    "use_gloo": 0,
                    "reset_limit": 0,
                    "hostfile": None,
                    "network_interfaces": ["eth0", "ib0"],
                },
            ),
            "-np 4 -H a:4 --verbose -p 2222 --reset-limit 0 --network-interfaces eth0,ib0".split(),
        )

    def test_a_caller_that_dies_takes_its_job_along(self):
        # A forked child survives, for example a child of multiprocessing.
        program = (
            "import horovod, threading, os, sys\n"
            "def work():\n"
            "    print('pid', os.getpid(), flush=True)\n"
            "    threading.Event().wait()\n"
            "def fork():\n"
            "    sys.stdin.readline()\n"
            "    if os.fork() == 0:\n"
            "        os.read(0, 1)\n"
            "        os._exit(0)\n"
            "    print('forked', flush=True)\n"
            "threading.Thread(target=fork).start()\n"
            "horovod.run(work, num_proc=1)\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=PLAIN,
        ) as caller:
            pid = int(caller.stdout.readline().split()[-1])
            caller.stdin.write("\n")
            caller.stdin.flush()
            self.assertEqual(caller.stdout.readline(), "forked\n")
            caller.kill()
            deadline = time.monotonic() + 200
            while os.path.exists(f"/proc/{pid}"):
                self.assertLess(time.monotonic(), deadline, "the rank is still there")
                time.sleep(0.05)

    def test_the_launcher_as_a_module(self):
        done = subprocess.run(
            [sys.executable, "-m", "horovod.runner.launch", "-np", "2", "echo", "hi"],
            capture_output=True,
            text=True,
            env=PLAIN,
            timeout=240,
        )
        self.assertEqual((done.returncode, done.stdout.count("hi")), (0, 2), done.stderr)


class StoreTest(unittest.TestCase):
    """Replies of a server with another secret, and of a program that is not a rendezvous server."""

    def ask(self, *answers):
        ours, its = socket.socketpair()

        def serve():
            with its, its.makefile("rb") as stream:
                for answer in answers:
                    while stream.readline() not in (b"\r\n", b""):
                        pass
                    its.sendall(answer)

        server = threading.Thread(target=serve)
        server.start()
        try:
            Store(lambda: ours, "00" * 32, False).get("k")
        finally:
            ours.close()
            server.join()

    def test_responses_that_are_not_believed(self):
        hello = b"HTTP/1.1 200 OK\r\nHvd-Nonce: 11\r\nContent-Length: 0\r\n\r\n"
        for answers, error, words in [
            ([hello, b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1"], StoreError, "not signed"),
            (
                [hello, b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nHvd-Signature: \xe9\r\n\r\n1"],
                StoreError,
                "not signed",
            ),
            ([b"SSH-2.0-OpenSSH\r\n\r\n"], StoreError, "no HTTP"),
            ([b"HTTP/1.1 401 no\r\nContent-Length: 0\r\n\r\n"], StoreError, "401"),
            ([hello, b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n"], StoreError, "Content-Length"),
            ([hello, b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"], StoreError, "Content-Length"),
            ([hello, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"], ConnectionError, "inside"),
            ([hello, b""], ConnectionError, "closed"),
            # A character that str.isdigit() accepts and int() refuses.
            ([b"HTTP/1.1 \xb2 no\r\n\r\n"], StoreError, "no HTTP"),
            ([hello, b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\n"], StoreError, "Content-Length"),
            ([b"HTTP/1.1 200 OK\r\n" + 200 * b"A: b\r\n"], StoreError, "header fields"),
        ]:
            with self.assertRaisesRegex(error, words):
                self.ask(*answers)

    def test_a_server_may_be_stopped_where_nothing_limits_its_responses(self):
        for limited, error in [(True, TimeoutError), (False, StoreError)]:
            ours, its = socket.socketpair()
            timer = threading.Timer(0.2, its.sendall, (b"HTTP/1.1 401 no\r\nContent-Length: 0\r\n\r\n",))
            with ours, its, unittest.mock.patch.object(_store, "_WAIT_SECONDS", 0.05):
                timer.start()
                with self.assertRaises(error):
                    Store(lambda end=ours: end, "00" * 32, False, limited).get("k")
                timer.join()

    def test_places_that_are_none(self):
        for place in ["", "unix:", "tcp:host", "ftp:host:1", "tcp:host:port"]:
            with self.assertRaises(ValueError, msg=place):
                connect(place)

    def test_an_exception_that_cannot_travel_leaves_its_words(self):
        class Stubborn(Exception):
            def __reduce__(self):
                raise TypeError("no")

        outcome = _calls.unpack(_calls.sign(_calls.pack_error(Stubborn("stays here")), b"key"), b"key")
        self.assertRegex(str(outcome.error), "Stubborn: stays here")


class Numbers(BaseDataLoader):
    def __init__(self, count, fails_at=None):
        self.count, self.fails_at = count, fails_at

    def __len__(self):
        return self.count

    def _iterate(self):
        for number in range(self.count):
            if number == self.fails_at:
                raise OSError("unreadable")
            yield number

    def _process_batch(self, batch):
        return batch * 10


class AsyncNumbers(AsyncDataLoaderMixin, Numbers):
    pass


class DataTest(unittest.TestCase):
    def test_batches_come_in_order_with_a_thread_and_without(self):
        for loader in [
            Numbers(5),
            AsyncNumbers(0, False, 5),
            AsyncNumbers(1, True, 5),
            AsyncNumbers(count=5, debug_data_loader=True),
        ]:
            for _ in range(2):
                self.assertEqual(list(loader), [0, 10, 20, 30, 40])
            self.assertEqual(len(loader), 5)

    def test_an_error_reaches_who_iterates_and_threads_end(self):
        with self.assertRaisesRegex(OSError, "unreadable"):
            list(AsyncNumbers(2, count=5, fails_at=3))
        loader = AsyncNumbers(2, count=1000)
        iteration = iter(loader)
        self.assertEqual(next(iteration), 0)
        loader.close_async_loader()
        iteration.close()
        self.assertFalse([each for each in threading.enumerate() if each.name == "horovod-data"])

    def test_a_child_by_fork_does_not_wait_for_the_thread_of_its_parent(self):
        iteration = iter(AsyncNumbers(1, count=1000))
        next(iteration)
        child = os.fork()
        if child == 0:
            try:
                list(iteration)
            except RuntimeError as error:
                os._exit("child by fork" in str(error))
            os._exit(2)
        self.assertEqual(os.WEXITSTATUS(os.waitpid(child, 0)[1]), 1)
        self.assertEqual(len(list(iteration)), 999)

    def test_a_program_that_ends_in_an_iteration_awaits_the_batch_in_the_making(self):
        program = """
import itertools, time
from horovod.data import AsyncDataLoaderMixin, BaseDataLoader

class Numbers(BaseDataLoader):
    def _iterate(self):
        for number in itertools.count():
            time.sleep(0.3)
            print("made", number, flush=True)
            yield number

class AsyncNumbers(AsyncDataLoaderMixin, Numbers):
    pass

iteration = iter(AsyncNumbers(64))
print("got", next(iteration))
"""
        done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=200)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stdout.splitlines()[-1][:4], "made")

    def test_a_loader_without_its_parts(self):
        for ask in (len, list):
            with self.assertRaisesRegex(NotImplementedError, "BaseDataLoader"):
                ask(BaseDataLoader())


if __name__ == "__main__":
    rank_base.main()
