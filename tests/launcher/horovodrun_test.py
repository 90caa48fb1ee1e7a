"""Runs the real horovodrun on this machine with small shell commands.

Usage: horovodrun_test.py PATH_OF_HOROVODRUN [unittest arguments]
"""
import fcntl
import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

HOROVODRUN = ""
TIMEOUT = 60


def start(*arguments, **options):
    options.setdefault("stdin", subprocess.DEVNULL)
    options.setdefault("stdout", subprocess.PIPE)
    options.setdefault("stderr", subprocess.PIPE)
    # What a shell may have ignored for its background jobs is as usual again.
    return subprocess.Popen([HOROVODRUN, *arguments], restore_signals=True,
                            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
                            **options)


def run(*arguments, **options):
    process = start(*arguments, **options)
    try:
        out, err = process.communicate(timeout=TIMEOUT)
    finally:
        process.kill()
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def lines(output):
    return sorted(output.decode().splitlines())


def processes_with(marker):
    """The living processes that have `marker` in their environment."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as environ:
                has_marker = marker.encode() in environ.read()
            with open(f"/proc/{pid}/stat") as stat:
                is_zombie = stat.read().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            continue
        if has_marker and not is_zombie and int(pid) != os.getpid():
            found.append(int(pid))
    return found


def wait_until(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def resident_kib(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def read_until(process, wanted):
    """Reads whole lines of standard output until `wanted` of them have come."""
    return [process.stdout.readline() for _ in range(wanted)]


class Marked(unittest.TestCase):
    """Each test's processes carry a mark, and none may be left."""

    def setUp(self):
        self.marker = f"HOROVODRUN_TEST={os.getpid()}.{self.id()}"
        self.environment = dict(os.environ)
        name, _, value = self.marker.partition("=")
        self.environment[name] = value

    def tearDown(self):
        self.assertTrue(wait_until(lambda: not processes_with(self.marker)),
                        f"left behind: {processes_with(self.marker)}")

    def run_job(self, *arguments, **options):
        return run(*arguments, env=self.environment, **options)

    def start_job(self, *arguments, **options):
        process = start(*arguments, env=self.environment, **options)
        self.addCleanup(self._end, process)
        return process

    def programs(self):
        """The names of the processes that carry the mark."""
        names = set()
        for pid in processes_with(self.marker):
            try:
                with open(f"/proc/{pid}/comm") as comm:
                    names.add(comm.read().strip())
            except OSError:
                pass
        return names

    @staticmethod
    def _end(process):
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream:
                stream.close()


class Ranks(Marked):
    def test_each_rank_knows_who_it_is(self):
        result = self.run_job(
            "-np", "4", "sh", "-c",
            "echo $HOROVOD_RANK/$HOROVOD_SIZE $HOROVOD_LOCAL_RANK/$HOROVOD_LOCAL_SIZE "
            "$HOROVOD_CROSS_RANK/$HOROVOD_CROSS_SIZE $HOROVOD_HOSTNAME")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(lines(result.stdout),
                         [f"[{r}]<stdout>:{r}/4 {r}/4 0/1 localhost" for r in range(4)])

    def test_np_caps_the_slots_of_H(self):
        result = self.run_job("-np", "2", "-H", "localhost:4", "sh", "-c", "echo $HOROVOD_SIZE")
        self.assertEqual(lines(result.stdout), ["[0]<stdout>:2", "[1]<stdout>:2"])

    def test_H_alone_fills_all_slots(self):
        result = self.run_job("-H", "localhost:3", "sh", "-c", "echo $HOROVOD_SIZE")
        self.assertEqual(lines(result.stdout), [f"[{r}]<stdout>:3" for r in range(3)])

    def test_a_hostfile_names_the_hosts(self):
        with tempfile.NamedTemporaryFile("w") as hostfile:
            hostfile.write("# two\r\nlocalhost slots=2 max_slots=4\r\n")
            hostfile.flush()
            result = self.run_job("-hostfile", hostfile.name, "sh", "-c", "echo $HOROVOD_SIZE")
        self.assertEqual(lines(result.stdout), ["[0]<stdout>:2", "[1]<stdout>:2"])

    def test_a_hostfile_may_come_from_standard_input(self):
        with tempfile.TemporaryFile() as hosts:
            hosts.write(b"localhost slots=2\n")
            hosts.seek(0)
            result = self.run_job("--hostfile", "-", "sh", "-c", "echo $HOROVOD_SIZE; cat",
                                  stdin=hosts)
        self.assertEqual(lines(result.stdout), ["[0]<stdout>:2", "[1]<stdout>:2"])

    def test_a_schedulers_hosts_are_found_but_not_within_a_rank(self):
        self.environment.update(SLURM_JOB_ID="7", SLURM_JOB_NODELIST="localhost",
                                SLURM_TASKS_PER_NODE="2")
        self.environment.pop("HOROVOD_JOB_ID", None)
        result = self.run_job("sh", "-c", "echo $HOROVOD_SIZE")
        self.assertEqual(lines(result.stdout), ["[0]<stdout>:2", "[1]<stdout>:2"])
        result = self.run_job("-H", "localhost", HOROVODRUN, "-np", "3", "sh", "-c", "echo x")
        self.assertEqual(result.stdout.count(b"x"), 3)

    def test_ranks_run_where_the_launcher_was_called_with_its_environment(self):
        with tempfile.TemporaryDirectory() as folder:
            self.environment["MINE"] = "a b\n'c'"
            result = self.run_job("-np", "1", "sh", "-c", "pwd; printf '%s\\n' \"$MINE\"",
                                  cwd=folder)
        self.assertEqual(result.stdout.decode().splitlines(),
                         [f"[0]<stdout>:{os.path.realpath(folder)}", "[0]<stdout>:a b",
                          "[0]<stdout>:'c'"])

    def test_a_job_inside_a_rank_is_a_job_of_its_own(self):
        result = self.run_job("-np", "2", HOROVODRUN, "-np", "2", "sh", "-c",
                              "echo $HOROVOD_RANK/$HOROVOD_SIZE")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(lines(result.stdout),
                         [f"[{outer}]<stdout>:[{inner}]<stdout>:{inner}/2"
                          for outer in range(2) for inner in range(2)])

    def test_identities_of_other_launchers_do_not_reach_ranks(self):
        self.environment.update(OMPI_COMM_WORLD_RANK="5", PMI_RANK="5", SLURM_PROCID="5",
                                HOROVOD_GLOO_RENDEZVOUS_ADDR="10.0.0.1", NCCL_DEBUG="WARN")
        # Without the identity that ranks get of us.
        result = self.run_job("-np", "1", "--no-pmix", "sh", "-c",
                              "env | grep -E 'OMPI_|PMI_|SLURM_|GLOO_R|NCCL'")
        self.assertEqual(lines(result.stdout), ["[0]<stdout>:NCCL_DEBUG=WARN"])

    def test_the_secret_is_on_no_command_line(self):
        job = self.start_job("-np", "1", "sh", "-c", "echo $HOROVOD_JOB_SECRET; exec sleep 30")
        secret = read_until(job, 1)[0].strip().partition(b":")[2]
        self.assertGreaterEqual(len(secret), 32)
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as command_line:
                    self.assertNotIn(secret, command_line.read())
            except OSError:
                pass
        job.send_signal(signal.SIGTERM)
        job.wait(TIMEOUT)

    def test_standard_input_is_empty(self):
        result = self.run_job("-np", "2", "cat", stdin=None)
        self.assertEqual((result.returncode, result.stdout), (0, b""))


class Ends(Marked):
    def ended(self, command, code, sentence, ranks=3):
        begin = time.monotonic()
        result = self.run_job("-np", str(ranks), "sh", "-c", command)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stderr.decode(), f"horovodrun: {sentence}\n")
        self.assertLess(time.monotonic() - begin, 5)

    def test_an_exit_code_ends_the_job_and_is_the_launchers(self):
        self.ended("[ $HOROVOD_RANK = 1 ] && exit 3; exec sleep 60", 3,
                   "rank 1 on host localhost exited with code 3")

    def test_so_does_a_signal(self):
        self.ended("[ $HOROVOD_RANK = 2 ] && kill -9 $$; exec sleep 60", 137,
                   "rank 2 on host localhost was killed by signal 9 (SIGKILL)")
        self.ended("[ $HOROVOD_RANK = 0 ] && kill -SEGV $$; exec sleep 60", 139,
                   "rank 0 on host localhost was killed by signal 11 (SIGSEGV)")

    def test_ranks_that_ignore_SIGTERM_are_killed_and_named(self):
        with tempfile.TemporaryDirectory() as folder:
            self.environment["READY"] = folder
            self.ended("trap '' TERM; if [ $HOROVOD_RANK = 1 ]; then "
                       "until [ -e $READY/0 ] && [ -e $READY/2 ]; do sleep 0.02; done; exit 7; fi; "
                       "(setsid sleep 60 &); : >$READY/$HOROVOD_RANK; while :; do sleep 1; done", 7,
                       "rank 1 on host localhost exited with code 7; ranks 0,2 on host localhost did "
                       "not end within 2 s (--kill-grace) of SIGTERM and were killed")

    def test_a_rank_that_ends_well_leaves_the_others_alone(self):
        result = self.run_job("-np", "2", "sh", "-c",
                              "[ $HOROVOD_RANK = 0 ] && exit 0; sleep 0.5; echo done")
        self.assertEqual((result.returncode, result.stdout, result.stderr),
                         (0, b"[1]<stdout>:done\n", b""))

    def interrupted(self, number, code, name):
        job = self.start_job("-np", "2", "sh", "-c", "(setsid sleep 60 &) ; echo up; sleep 60")
        read_until(job, 2)
        begin = time.monotonic()
        job.send_signal(number)
        self.assertEqual(job.wait(TIMEOUT), code)
        self.assertLess(time.monotonic() - begin, 5)
        self.assertEqual(job.stderr.read().decode(), f"horovodrun: ended by {name}\n")
        self.assertTrue(wait_until(lambda: not processes_with(self.marker), 5))

    def test_interrupt_terminate_and_hangup_end_the_job_and_leave_nothing(self):
        self.interrupted(signal.SIGINT, 130, "SIGINT")
        self.interrupted(signal.SIGTERM, 143, "SIGTERM")
        self.interrupted(signal.SIGHUP, 129, "SIGHUP")

    def test_a_second_interrupt_ends_it_at_once(self):
        job = self.start_job("-np", "2", "sh", "-c",
                             "trap '' TERM; echo up; while :; do sleep 1; done")
        read_until(job, 2)
        begin = time.monotonic()
        job.send_signal(signal.SIGINT)
        time.sleep(0.3)
        job.send_signal(signal.SIGINT)
        self.assertEqual(job.wait(TIMEOUT), 130)
        self.assertLess(time.monotonic() - begin, 1.5)

    def test_a_killed_launcher_leaves_nothing(self):
        job = self.start_job("-np", "2", "sh", "-c",
                             "trap '' TERM HUP; (setsid sleep 60 &) ; echo up; sleep 60")
        read_until(job, 2)
        job.kill()
        job.wait()
        self.assertTrue(wait_until(lambda: not processes_with(self.marker), 10))

    def test_a_stopped_launcher_goes_on_when_continued(self):
        job = self.start_job("-np", "2", "--lease", "1", "sh", "-c",
                             "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.5; done")
        read_until(job, 2)
        job.send_signal(signal.SIGTSTP)
        _, status = os.waitpid(job.pid, os.WUNTRACED)
        self.assertTrue(os.WIFSTOPPED(status))
        time.sleep(2.5)
        job.send_signal(signal.SIGCONT)
        out, err = job.communicate(timeout=TIMEOUT)
        self.assertEqual((job.returncode, err), (0, b""))
        self.assertEqual(out.count(b":8\n"), 2)


class Output(Marked):
    def test_standard_error_stays_standard_error(self):
        result = self.run_job("-np", "1", "sh", "-c", "echo out; echo err >&2")
        self.assertEqual((result.stdout, result.stderr),
                         (b"[0]<stdout>:out\n", b"[0]<stderr>:err\n"))

    def test_carriage_returns_end_lines_and_stay(self):
        result = self.run_job("-np", "1", "printf", "10%%\\r20%%\\rdone\\n")
        self.assertEqual(result.stdout,
                         b"[0]<stdout>:10%\r[0]<stdout>:20%\r[0]<stdout>:done\n")

    def test_an_unfinished_last_line_gets_a_newline(self):
        result = self.run_job("-np", "1", "printf", "a\\nb")
        self.assertEqual(result.stdout, b"[0]<stdout>:a\n[0]<stdout>:b\n")

    def test_any_bytes_survive(self):
        result = self.run_job("-np", "1", "printf", "\\000\\377\\200\\001\\n")
        self.assertEqual(result.stdout, b"[0]<stdout>:\x00\xff\x80\x01\n")

    def test_lines_of_many_ranks_arrive_whole(self):
        script = "i=0; while [ $i -lt 300 ]; do printf '%s' $HOROVOD_RANK; printf '%0200d\\n' $i;" \
                 " i=$((i+1)); done"
        result = self.run_job("-np", "6", "sh", "-c", script)
        received = result.stdout.decode().splitlines()
        self.assertEqual(len(received), 1800)
        for rank in range(6):
            mine = [line for line in received if line.startswith(f"[{rank}]")]
            self.assertEqual(mine, [f"[{rank}]<stdout>:{rank}{i:0200d}" for i in range(300)])

    def test_a_stalled_reader_loses_nothing_and_holds_up_no_control(self):
        job = self.start_job("-np", "2", "sh", "-c",
                             "yes | head -c 3000000; sleep 0.3; [ $HOROVOD_RANK = 0 ] || exit 4; "
                             "sleep 60")
        self.assertTrue(wait_until(lambda: "yes" in self.programs()))
        time.sleep(1)
        before = resident_kib(job.pid)
        time.sleep(1)
        self.assertLess(resident_kib(job.pid) - before, 1024)
        out, err = job.communicate(timeout=TIMEOUT)
        self.assertEqual(job.returncode, 4, err)
        self.assertEqual(out.count(b"]<stdout>:y\n"), 3000000)

    def test_a_job_can_be_interrupted_while_its_reader_is_stalled(self):
        job = self.start_job("-np", "2", "yes")
        time.sleep(0.5)
        job.send_signal(signal.SIGINT)
        self.assertTrue(wait_until(lambda: "yes" not in self.programs(), 5))
        job.send_signal(signal.SIGINT)
        self.assertEqual(job.wait(5), 130)
        self.assertEqual(job.stderr.read(), b"horovodrun: ended by SIGINT\n")

    def test_a_reader_that_goes_away_ends_the_job_quietly(self):
        job = self.start_job("-np", "2", "yes")
        job.stdout.readline()
        job.stdout.close()
        self.assertEqual(job.wait(10), 128 + signal.SIGPIPE)
        self.assertEqual(job.stderr.read(), b"")
        job.stdout = None

    def test_standard_streams_may_be_closed(self):
        for closed in (">&-", "2>&-", "<&-", "<&- >&- 2>&-"):
            with self.subTest(closed), tempfile.TemporaryDirectory() as folder:
                command = f'"$0" -np 2 sh -c "echo out; echo >{folder}/\\$HOROVOD_RANK" {closed}'
                ended = subprocess.run(["sh", "-c", command, HOROVODRUN], timeout=TIMEOUT,
                                       capture_output=True)
                self.assertEqual((ended.returncode, ended.stderr), (0, b""))
                self.assertEqual(sorted(os.listdir(folder)), ["0", "1"])
                if ">&-" not in closed.replace("2>&-", ""):
                    self.assertEqual(lines(ended.stdout), ["[0]<stdout>:out", "[1]<stdout>:out"])

    def test_output_filename_keeps_a_copy_of_each_rank(self):
        with tempfile.TemporaryDirectory() as folder:
            target = os.path.join(folder, "deep", "logs")
            result = self.run_job("-np", "11", "--output-filename", target, "sh", "-c",
                                  "echo out $HOROVOD_RANK; echo err >&2")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(sorted(os.listdir(target)), [f"rank.{r:02d}" for r in range(11)])
            for rank in range(11):
                for stream, text in (("stdout", f"out {rank}"), ("stderr", "err")):
                    with open(os.path.join(target, f"rank.{rank:02d}", stream)) as file:
                        self.assertEqual(file.read(), f"[{rank}]<{stream}>:{text}\n")
            self.assertEqual(len(lines(result.stdout)), 11)

    def test_output_filename_works_for_one_rank(self):
        with tempfile.TemporaryDirectory() as folder:
            self.run_job("-np", "1", "--output-filename", folder, "echo", "x")
            with open(os.path.join(folder, "rank.0", "stdout")) as file:
                self.assertEqual(file.read(), "[0]<stdout>:x\n")


class Questions(unittest.TestCase):
    def test_version_prints_only_the_version(self):
        for flag in ("--version", "-v"):
            result = run(flag)
            self.assertEqual(result.returncode, 0)
            self.assertRegex(result.stdout.decode(), r"^\d+\.\d+\.\d+\n$")

    def test_help_shows_the_flags(self):
        result = run("--help")
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        self.assertIn(b"-np, --num-proc N ", result.stdout)
        shown = lines(result.stdout)
        self.assertLessEqual(len(shown), 120)
        self.assertLessEqual(max(map(len, shown)), 100)

    def test_all_flags_are_in_the_full_help_and_in_one_topic(self):
        everything = run("--help-all").stdout.decode()
        common = run("--help").stdout.decode()
        topics = re.search(r"TOPIC prints those of a topic: ([a-z, \n]+)\.", common)[1].replace("\n", " ")
        by_topic = "".join(run("--help", topic.strip()).stdout.decode() for topic in topics.split(","))
        completed = run("--completion", "bash").stdout.decode()
        flags = re.search(r"-\*\) COMPREPLY=\(\$\(compgen -W '([^']*)'", completed)[1].split()
        self.assertGreater(len(flags), 90)
        for flag in flags:
            for text in (everything, by_topic):
                self.assertRegex(text, r"(?<![\w-])" + re.escape(flag) + r"(?![\w-])")
        for text in (everything, common, run("--manual", "man").stdout.decode()):
            self.assertNotRegex(text, r"-[\w-]+ (TEXT|INT|FLOAT|NUMBER)\b")

    def test_a_topic_that_does_not_exist_is_refused_with_the_names_of_all(self):
        result = run("--help", "netwrok")
        self.assertEqual((result.returncode, result.stdout), (2, b""))
        self.assertTrue(result.stderr.startswith(
            b"horovodrun: --help netwrok: there is no such topic; give one of job, hosts,"), result.stderr)
        self.assertEqual(run("-np", "2", "--help", "python3", "train.py").stdout, run("--help").stdout)

    def test_dry_run_shows_the_plan_and_starts_nothing(self):
        result = run("-np", "6", "-H", "a:4,no-such-host:4", "--dry-run", "python3", "train.py")
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        plan = json.loads(result.stdout)
        self.assertEqual(list(plan), ["size", "ranks"])
        self.assertEqual((plan["size"], len(plan["ranks"])), (6, 6))
        last = plan["ranks"][5]
        self.assertEqual(list(last), ["rank", "host", "local_rank", "local_size", "cross_rank",
                                      "cross_size", "env"])
        self.assertEqual(list(last.values())[:6], [5, "no-such-host", 1, 2, 1, 2])
        self.assertEqual(last["env"]["HOROVOD_RANK"], "5")
        self.assertNotIn("HOROVOD_JOB_SECRET", last["env"])


def records(stderr):
    """Each line of the launcher as what its object holds, without the time."""
    found = [json.loads(line) for line in stderr.splitlines()]
    return [{key: value for key, value in each.items() if key != "time"} for each in found if each["time"]]


class LinesAsObjects(unittest.TestCase):
    def refuses(self, *arguments):
        result = run(*arguments)
        self.assertEqual(result.returncode, 2)
        (record,) = records(result.stderr)
        self.assertEqual(record["source"], "horovodrun")
        return record["text"]

    def test_errors_in_flags_are_objects_wherever_the_format_stands(self):
        self.assertIn("unknown flag --bogus", self.refuses("--bogus", "x", "--log-format", "json"))
        self.assertIn("unknown flag --bogus", self.refuses("--log-format=json", "--bogus", "true"))
        self.assertIn("-np needs a value", self.refuses("-np", "--log-format", "json", "true"))
        self.assertIn("-np", self.refuses("-np", "x", "--log-format", "JSON", "true"))
        self.assertIn("command is missing", self.refuses("-np", "1", "--log-format", "json"))
        with tempfile.NamedTemporaryFile("w") as config:
            config.write("log_format: json\n")
            config.flush()
            self.assertIn("unknown flag --bogus", self.refuses("--config-file", config.name, "--bogus"))

    def test_a_programs_own_flag_is_left_alone(self):
        result = run("-np", "0", "python3", "--log-format", "json")
        self.assertTrue(result.stderr.startswith(b"horovodrun: -np 0 is out of range"), result.stderr)

    def test_what_verbose_says_is_an_object_with_its_level(self):
        result = run("-np", "1", "--verbose", "--log-format", "json", "true")
        self.assertEqual(result.returncode, 0)
        self.assertIn({"source": "horovodrun", "level": "info",
                       "text": "host localhost: ready for 1 ranks"}, records(result.stderr))

    def test_waiting_for_hosts_is_told_by_an_object(self):
        with tempfile.NamedTemporaryFile("w") as token:
            token.write("ab" * 32 + "\n")
            token.flush()
            result = run("-np", "1", "--listen", "127.0.0.1:0", "--token-file", token.name,
                         "--start-timeout", "0.5", "--log-format", "json", "true")
        self.assertTrue(records(result.stderr)[0]["text"].startswith("waits up to 0.5 s"), result.stderr)


class EndSignals(unittest.TestCase):
    def test_an_end_signal_is_one_of_two(self):
        result = run("-np", "1", "--end-signal", "KILL", "true")
        self.assertEqual(result.returncode, 2)
        self.assertEqual(result.stderr, b"horovodrun: --end-signal KILL is none of: TERM, INT\n")


class Manuals(unittest.TestCase):
    def test_the_page_of_all_settings_is_current(self):
        page = os.path.join(os.path.dirname(__file__), "../../docs/settings.md")
        with open(page, encoding="utf-8") as text:
            self.assertEqual(run("--manual", "markdown").stdout.decode(), text.read(),
                             "run: horovodrun --manual markdown > docs/settings.md")

    def completed(self, *words):
        script = ('source <("$0" --completion bash); COMP_WORDS=(horovodrun "$@"); COMP_CWORD=$#; '
                  '_horovodrun; printf "%s\\n" "${COMPREPLY[@]}"')
        done = subprocess.run(["bash", "-c", script, HOROVODRUN, *words], stdout=subprocess.PIPE,
                              check=True, timeout=TIMEOUT)
        return lines(done.stdout)

    def test_bash_completes_flags(self):
        self.assertEqual(self.completed("--hie"),
                         ["--hierarchical-allgather", "--hierarchical-allreduce"])

    def test_bash_completes_values_that_are_known(self):
        self.assertEqual(self.completed("-np", "2", "--log-format", ""), ["json", "text"])
        self.assertEqual(self.completed("--log-format", "=", "j"), ["json"])
        self.assertEqual(self.completed("--log-format", "="), ["json", "text"])
        self.assertEqual(self.completed("--stdin", "a"), ["all"])

    def test_the_agent_says_how_it_is_started_by_hand(self):
        agent = os.path.join(os.path.dirname(HOROVODRUN), "horovod-agent")
        for flag in ("--help", "-h"):
            done = subprocess.run([agent, flag], stdin=subprocess.DEVNULL, capture_output=True,
                                  check=False, timeout=TIMEOUT)
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            for words in (b"--join HOST:PORT", b"--token-file FILE", b"--slots N", b"--ca FILE"):
                self.assertIn(words, done.stdout)
            self.assertLessEqual(max(map(len, done.stdout.splitlines())), 80)

    def test_help_is_as_wide_as_the_terminal(self):
        def widest(**environment):
            done = run("--help", env={**os.environ, **environment})
            return max(map(len, done.stdout.decode().splitlines()))
        self.assertLessEqual(widest(COLUMNS=""), 80)
        self.assertGreater(widest(COLUMNS="150"), 120)
        ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
        with open(ours, "rb", buffering=0) as terminal:
            job = start("--help", stdout=theirs, env={**os.environ, "COLUMNS": ""})
            os.close(theirs)
            text = b""
            try:
                while part := terminal.read(65536):
                    text += part
            except OSError:  # the terminal's other end is closed
                pass
            self.assertEqual(job.wait(TIMEOUT), 0)
            job.stderr.close()
        self.assertLessEqual(max(map(len, text.decode().splitlines())), 60)
        self.assertIn(b"--hosts", text)


class BadInput(unittest.TestCase):
    def refused(self, *arguments, says):
        result = run(*arguments)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(result.stdout, b"")
        sentence = result.stderr.decode()
        self.assertTrue(sentence.startswith("horovodrun: "), sentence)
        self.assertTrue(sentence.endswith("\n"), sentence)
        self.assertIn(says, sentence)
        return sentence

    def one_sentence(self, *arguments, says):
        self.assertEqual(self.refused(*arguments, says=says).count("\n"), 1)

    def test_a_malformed_list_of_hosts(self):
        self.one_sentence("-np", "2", "-H", "a:2,b:x", "true", says="'b:x'")

    def test_a_hostfile_that_cannot_be_read(self):
        self.one_sentence("-hostfile", "/no/such/file", "true", says="/no/such/file")

    def test_a_private_key_that_cannot_be_read(self):
        self.one_sentence("-np", "1", "-i", "/no/such/key", "true", says="/no/such/key")

    def test_a_hostfile_with_a_mistake(self):
        with tempfile.NamedTemporaryFile("w") as hostfile:
            hostfile.write("localhost slots=2\nb four\n")
            hostfile.flush()
            self.one_sentence("-hostfile", hostfile.name, "true",
                              says=f"{hostfile.name}, line 2: 'four'")

    def test_more_ranks_than_slots(self):
        text = self.refused("-np", "9", "-H", "localhost:4,b:4", "true",
                            says="9 ranks are more than the 8 slots there are; ")
        self.assertEqual([line.split() for line in text.splitlines()[1:]],
                         [["host", "slots"], ["localhost", "4"], ["b", "4"]])

    def test_an_unknown_flag(self):
        self.one_sentence("-np", "2", "--verbos", "true", says="did you mean --verbose?")

    def test_no_command_and_no_number(self):
        self.one_sentence("-np", "2", says="the command is missing")
        self.one_sentence("true", says="-np N")
        self.one_sentence("-np", "0", "true", says="-np 0 is out of range")

    def test_a_program_that_is_not_there(self):
        self.one_sentence("-np", "2", "no-such-program", says="no-such-program")
        self.one_sentence("-np", "2", "./no/such/program", says="no/such/program")

    def test_a_program_that_cannot_be_executed(self):
        with tempfile.NamedTemporaryFile("w") as program:
            self.one_sentence("-np", "1", program.name, says=program.name)

    def test_a_name_that_does_not_resolve(self):
        self.one_sentence("-np", "1", "-H", "no-such-host.invalid:1", "true",
                          says="no-such-host.invalid")

    def test_each_host_that_fails_gets_its_line(self):
        sentence = self.refused("-H", "x1.invalid,localhost,x2.invalid", "true", says="x1.invalid")
        self.assertEqual([line.split(":")[1].strip() for line in sentence.splitlines()],
                         ["host x1.invalid", "host x2.invalid"])

    def test_an_output_folder_that_cannot_be_made(self):
        self.one_sentence("-np", "1", "--output-filename", "/proc/no", "true", says="/proc/no")


if __name__ == "__main__":
    HOROVODRUN = os.path.abspath(sys.argv.pop(1))
    os.environ["OMP_NUM_THREADS"] = "1"  # otherwise one line tells that ranks share the cores
    unittest.main(verbosity=2)
