"""Tests of the real horovodrun in daily use: scripts, output directories, terminals."""

import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import tempfile

from horovodrun_case import HOROVODRUN, TIMEOUT, Marked, lines, main, read_until, run, wait_until

PYTHON = "/usr/bin/python3"


def at_terminal(*arguments, keys=(), environment=None, cwd=None):
    """Returns the text on a terminal, and the exit code. `keys`: pairs of a text to wait for and bytes to type."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(cwd or "/")
        os.execve(HOROVODRUN, [HOROVODRUN, *arguments], {**os.environ, **(environment or {})})
    text = b""
    keys = list(keys)
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the end of a terminal
            break
        if not piece:
            break
        text += piece
        while keys and keys[0][0] in text:
            os.write(terminal, keys.pop(0)[1])
    os.close(terminal)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return text.decode().replace("\r\n", "\n"), code


class Folder(Marked):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()  # pylint: disable=consider-using-with
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
            self.environment.pop(name, None)

    def file(self, name, text, mode=0o644):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)
        return path

    def python(self, name):
        """Makes a Python that prints its name."""
        return self.file(f"{name}/bin/python3", f'#!/bin/sh\necho by {name} "$@"\n', 0o755).parents[1]


class Scripts(Folder):
    def ran(self, *command, **environment):
        result = run("-np", "1", "--tag", "none", *command, cwd=self.folder, env={**self.environment, **environment})
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        return result.stdout.decode().strip()

    def refused(self, *arguments, says):
        result = run(*arguments, cwd=self.folder, env=self.environment)
        self.assertEqual((result.returncode, result.stdout), (2, b""), result.stderr)
        self.assertIn(says, result.stderr.decode())
        self.assertEqual(result.stderr.count(b"\n"), 1, result.stderr)

    def test_a_script_needs_no_python_before_it(self):
        self.file("train.py", "import sys; print('ran', *sys.argv)\n")
        self.assertEqual(self.ran("train.py", "--epochs", "2"), "ran train.py --epochs 2")
        self.file("tool.py", "#!/bin/sh\necho as it is\n", 0o755)
        self.assertEqual(self.ran("tool.py"), "as it is")
        self.assertEqual(self.ran("./tool.py"), "as it is")
        # Without the line, the shell would interpret Python code.
        self.file("no-line.py", "import sys; print('by Python')\n", 0o755)
        self.assertEqual(self.ran("./no-line.py"), "by Python")

    def test_the_python_is_that_of_the_active_environment(self):
        self.file("train.py", "print('by another Python')\n")
        venv, conda = self.python("venv"), self.python("conda")
        both = {"VIRTUAL_ENV": str(venv), "CONDA_PREFIX": str(conda)}
        self.assertEqual(self.ran("train.py", "7", **both), "by venv train.py 7")
        self.assertEqual(self.ran("train.py", CONDA_PREFIX=str(conda)), "by conda train.py")
        self.assertEqual(self.ran("--remote-init", f"export VIRTUAL_ENV={venv}", "train.py"), "by venv train.py")
        self.assertEqual(self.ran("--no-env", "train.py", VIRTUAL_ENV=str(venv)), "by another Python")
        self.assertEqual(self.ran("--stage", ".", "train.py", CONDA_PREFIX=str(conda)), "by conda train.py")

    def test_without_an_active_environment_it_is_that_of_the_environment_of_horovodrun(self):
        self.file("train.py", "print('by another Python')\n")
        around = self.python("around")
        for name in ("horovodrun", "horovod-agent"):
            shutil.copy(pathlib.Path(HOROVODRUN).with_name(name), around / "bin")

        def ran(**environment):
            return subprocess.run(
                [around / "bin/horovodrun", "-np", "1", "--tag", "none", "train.py"],
                cwd=self.folder,
                env={**self.environment, **environment},
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
                check=True,
            ).stdout.strip()

        self.assertEqual(ran(), "by another Python")
        for mark in ("pyvenv.cfg", "conda-meta"):
            file = self.file(f"around/{mark}", "")
            self.assertEqual(ran(), "by around train.py")
            self.assertEqual(ran(VIRTUAL_ENV=str(self.python("venv"))), "by venv train.py")
            file.unlink()

    def test_a_missing_script_is_named_before_ranks_start(self):
        missing = f"script 'missing.py' does not exist in {self.folder} on this host"
        for command in (["missing.py"], [PYTHON, "missing.py"], ["bash", "missing.py"], [PYTHON, "-u", "missing.py"]):
            self.refused("-np", "2", *command, says=missing)

    def test_flags_behind_the_command_are_named(self):
        self.refused("python3", "train.py", "-np", "2", says="-np 2 comes after the command")
        self.refused("-h", "a:1,b:1", "python3", "train.py", says="write -H a:1,b:1 for hosts")

    def test_a_command_alone_starts_a_rank_for_each_gpu(self):
        self.file("train.py", "import os; print(os.environ['HOROVOD_SIZE'])\n")
        self.refused("--min-np", "1", "train.py", says="give the number of ranks with -np N")
        # A private /dev with files in place of the devices.
        devices = self.folder / "dev"
        devices.mkdir()
        start = (
            f"cp -a /dev/null /dev/zero /dev/random /dev/urandom /dev/tty {devices} && mkdir {devices}/shm && "
            f'ln -s /proc/self/fd {devices}/fd && touch $GPUS && mount --bind {devices} /dev && exec "$@"'
        )
        one = "1 rank, as a program sees {} GPU; -np N for more"
        for gpus, visible, command, size, line in (
            (2, None, ["train.py"], 2, "2 ranks, one per GPU; -np 1 for one"),
            (3, "0,2", [PYTHON, "train.py"], 2, "2 ranks, one per GPU; -np 1 for one"),
            (2, "MIG-4711", ["train.py"], 1, one.format("one")),
            (2, "-1", ["train.py"], 1, one.format("no")),
            (0, None, [PYTHON, "train.py"], 1, one.format("no")),
        ):
            environment = {**self.environment, "GPUS": " ".join(f"{devices}/nvidia{gpu}" for gpu in range(gpus))}
            environment["GPUS"] += f" {devices}/none"
            environment.pop("CUDA_VISIBLE_DEVICES", None)
            if visible is not None:
                environment["CUDA_VISIBLE_DEVICES"] = visible
            result = subprocess.run(
                ["unshare", "--mount", "sh", "-c", start, "sh", HOROVODRUN, "--tag", "none", *command],
                cwd=self.folder,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=TIMEOUT,
            )
            if "unshare failed" in result.stderr:
                self.skipTest(result.stderr.strip())
            shutil.rmtree(devices)
            devices.mkdir()
            self.assertEqual((result.returncode, result.stdout), (0, f"{size}\n" * size), result.stderr)
            self.assertEqual(result.stderr.splitlines()[0], f"horovodrun: {line}", result.stderr)

    def test_commands_of_other_tools_are_answered(self):
        for word in ("status", "pss", "version", "check-build"):
            self.refused(word, says=f"no command '{word}'; ")
        result = run("-np", "2", "no-such-status", cwd=self.folder, env=self.environment)
        self.assertNotIn(b"no command", result.stderr)
        result = run("-np", "2", "pss", cwd=self.folder, env={**self.environment, "PATH": "/nonexistent"})
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"\nhorovodrun: no command 'pss'; did you mean horovodrun ps?\n", result.stderr)
        # If ranks are given, the name means a program, not a command.
        self.file("bin/top", "#!/bin/sh\necho top\n", 0o755)
        self.assertEqual(self.ran("top", PATH=f"{self.folder}/bin:/usr/bin:/bin"), "top")

    def test_a_number_of_ranks_by_this_machine(self):
        result = run("--nproc-per-node", "cpu", "sh", "-c", "echo $HOROVOD_SIZE", env=self.environment)
        cores = len(os.sched_getaffinity(0))
        self.assertEqual(result.returncode, 0, result.stderr)
        ranks = result.stdout.count(b"\n")
        self.assertTrue(1 <= ranks <= cores, result.stdout)  # a CPU quota may allow fewer
        self.assertTrue(all(line.endswith(f":{ranks}") for line in lines(result.stdout)), result.stdout)


class OutputDirectories(Folder):
    def text(self, name):
        return (self.folder / name).read_text(encoding="utf-8")

    def earlier(self):
        return sorted(self.folder.glob("logs/before-*"))

    def test_an_earlier_run_is_moved_aside(self):
        for number in range(3):
            result = self.run_job("-np", "2", "--output-filename", self.folder / "logs", "echo", str(number))
            self.assertEqual(result.returncode, 0)
        self.assertEqual(self.text("logs/rank.1/stdout"), "[1]<stdout>:2\n")
        self.assertEqual(
            [(path / "rank.0/stdout").read_text(encoding="utf-8") for path in self.earlier()],
            ["[0]<stdout>:0\n", "[0]<stdout>:1\n"],
        )
        self.assertEqual(
            result.stderr.decode(), f"horovodrun: the output of an earlier run is now in {self.earlier()[1]}\n"
        )

    def test_attempts_are_one_run(self):
        result = self.run_job(
            *"-np 1 --max-restarts 1".split(),
            "--output-filename",
            self.folder / "logs",
            "sh",
            "-c",
            "echo $HOROVOD_GENERATION; [ $HOROVOD_GENERATION = 1 ]",
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.text("logs/rank.0/stdout"), "[0]<stdout>:0\n[0]<stdout>:1\n")
        self.assertEqual(self.earlier(), [])

    def test_a_directory_of_a_living_job_is_refused(self):
        job = self.start_job("-np", "1", "--output-filename", self.folder / "logs", "sh", "-c", "echo up; sleep 600")
        read_until(job, 1)
        result = self.run_job("-np", "1", "--output-filename", self.folder / "logs", "echo", "second")
        self.assertEqual((result.returncode, result.stdout), (2, b""))
        self.assertIn(f"the job of horovodrun with pid {job.pid} on ", result.stderr.decode())
        self.assertEqual(self.text("logs/rank.0/stdout"), "[0]<stdout>:up\n")
        # A killed launcher leaves its lock free.
        job.kill()
        job.wait()
        self.assertTrue(
            wait_until(
                lambda: self.run_job("-np", "1", "--output-filename", self.folder / "logs", "true").returncode == 0
            )
        )

    def test_a_plan_moves_nothing(self):
        self.run_job("-np", "1", "--output-filename", self.folder / "logs", "echo", "first")
        self.run_job("-np", "1", "--output-filename", self.folder / "logs", "--dry-run", "echo", "second")
        self.run_job("-np", "9", "-H", "localhost:1", "--output-filename", self.folder / "logs", "echo", "third")
        self.assertEqual(self.text("logs/rank.0/stdout"), "[0]<stdout>:first\n")


class Terminals(Folder):
    def test_the_first_interrupt_says_what_ends_and_the_second_one_kills(self):
        command = ["-np", "2", "--kill-grace", "300", "sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"]
        text, code = at_terminal(
            *command,
            environment=self.environment,
            keys=[(b"[0]<stdout>:up", b""), (b"[1]<stdout>:up", b"\x03"), (b"again to kill", b"\x03")],
        )
        self.assertEqual(code, 130, text)
        self.assertIn("^C\nhorovodrun: ending 2 ranks; Ctrl-C again to kill\n", text)

    def test_a_log_has_no_word_of_keys(self):
        job = self.start_job("-np", "1", "sh", "-c", "echo up; exec sleep 600")
        read_until(job, 1)
        job.send_signal(signal.SIGINT)
        self.assertEqual(job.wait(TIMEOUT), 130)
        self.assertEqual(job.stderr.read(), b"horovodrun: ended by SIGINT\n")

    def test_a_plan_is_a_table(self):
        command = ["-H", "a:2,b:2", "--dry-run", "true"]
        text, code = at_terminal(*command)
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"(?m)^host +ranks +local ranks +agent by$")
        self.assertRegex(text, r"(?m)^b +2-3 +0-1 +ssh")
        text, _ = at_terminal("--json", *command)
        self.assertTrue(text.startswith('{"size":4,'), text)
        self.assertTrue(run(*command).stdout.startswith(b'{"size":4,'))

    def test_one_rank_of_several_reads_the_terminal(self):
        text, code = at_terminal(
            *"-np 2 --stdin 1".split(),
            "sh",
            "-c",
            "read line && echo rank $HOROVOD_RANK read $line; echo ready; read line; true",
            environment=self.environment,
            keys=[(b"[0]<stdout>:ready", b"hello\n\x04")],
        )
        self.assertEqual(code, 0, text)
        self.assertIn("[1]<stdout>:rank 1 read hello\n", text)
        self.assertNotIn("rank 0 read", text)

    def test_ranks_of_no_such_number_read_nothing(self):
        result = self.run_job("-np", "2", "--stdin", "2", "true")
        self.assertEqual(
            (result.returncode, result.stderr), (2, b"horovodrun: --stdin: there is no rank 2; the last one is 1\n")
        )


class Messages(Folder):
    def test_tags_have_a_time(self):
        result = self.run_job("-np", "1", "--tag", "{time} {rank}", "sh", "-c", "echo one; echo two >&2")
        for text, word in ((result.stdout, b"one"), (result.stderr, b"two")):
            self.assertRegex(text, rb"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3} 0: " + word + rb"\n$")
        result = self.run_job("-np", "1", "--prefix-timestamp", "--tag", "|{time} {rank}", "echo", "x")
        self.assertRegex(result.stdout, rb"^\w{3} .* \d{4}\|\d{4}-\d\d-\d\dT[\d:.]+ 0: x\n$")
        result = self.run_job("-np", "2", "--fold", "--tag", "{time} {rank}", "echo", "same")
        self.assertRegex(result.stdout, rb"\.\d{3} 0-1: same\n|\.\d{3} [01]: same\n")

    def test_variables_that_have_no_effect_are_named_once(self):
        file = self.file("variables", "HOROVOD_RANK=3\nHOROVOD_SIZE\nNOWHERE_SET\n")
        result = self.run_job(
            *"-np 1 --max-restarts 1".split(),
            "--env-file",
            file,
            "-x",
            "RANK=7",
            "sh",
            "-c",
            "echo $HOROVOD_RANK $RANK; [ $HOROVOD_GENERATION = 1 ]",
        )
        self.assertEqual((result.returncode, lines(result.stdout)), (0, ["[0]<stdout>:0 0"] * 2), result.stderr)
        text = result.stderr.decode()
        for name in ("HOROVOD_RANK", "HOROVOD_SIZE", "RANK"):
            self.assertEqual(text.count(f"horovodrun: {name} of -x or --env-file "), 1, text)
            self.assertIn(f"{name} of -x or --env-file has no effect: horovodrun itself sets this variable", text)
        self.assertEqual(text.count("NOWHERE_SET of -x or --env-file is not set here"), 1, text)

    def test_the_number_of_threads_is_printed_with_verbose_alone(self):
        self.environment.pop("OMP_NUM_THREADS", None)
        self.assertEqual(self.run_job("-np", "2", "true").stderr, b"")
        self.assertIn(b"each rank gets OMP_NUM_THREADS=", self.run_job("-np", "2", "--verbose", "true").stderr)

    def test_verbose_lines_have_times_and_reasons(self):
        text = self.run_job("-np", "2", "--verbose", PYTHON, "-c", "pass").stderr.decode()
        for pattern in (
            r"\d+\.\d\d s: the command is ",
            r"\d+\.\d\d s: host localhost: it is this machine, so ",
            r"\d+\.\d\d s: host localhost: ready for 2 ranks\n",
            rf"host localhost: interpreter {PYTHON}",
            r"ranks get MASTER_ADDR=127\.0\.0\.1 MASTER_PORT=\d+",
            r"\d+\.\d\d s: all ranks are started\n",
        ):
            self.assertRegex(text, pattern)
        times = [float(time) for time in re.findall(r"(\d+\.\d\d) s: ", text)]
        self.assertEqual(times, sorted(times))

    def test_a_list_of_jobs_leaves_out_those_that_end(self):
        for _ in range(5):
            job = subprocess.Popen([HOROVODRUN, "-np", "1", "sleep", "0.05"], env=self.environment)
            while job.poll() is None:
                result = run("ps", env=self.environment)
                self.assertNotIn(b"answer", result.stderr)
                self.assertIn(result.returncode, (0, 2))

    def test_another_command_names_the_job_that_has_ended(self):
        result = run("stack", "999999999", env=self.environment)
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"999999999", result.stderr)


if __name__ == "__main__":
    main()
