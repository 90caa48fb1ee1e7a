"""Tests of horovodrun's texts about itself: version, help, plan, manual, completion."""

import fcntl
import json
import os
import re
import shutil
import struct
import subprocess
import tempfile
import termios
import unittest

from horovodrun_case import HOROVODRUN, TIMEOUT, lines, main, run, start


class Questions(unittest.TestCase):
    def test_version_prints_only_the_version(self):
        for flag in ("--version", "-v"):
            result = run(flag)
            self.assertEqual(result.returncode, 0)
            self.assertRegex(result.stdout.decode(), r"^\d+\.\d+\.\d+\n$")

    def test_without_arguments_eight_lines_show_where_to_begin(self):
        result = run()
        self.assertEqual((result.returncode, result.stdout), (2, b""))
        shown = result.stderr.decode().splitlines()
        self.assertEqual(len(shown), 8)
        self.assertLessEqual(max(map(len, shown)), 100)
        self.assertEqual(len([line for line in shown if line.startswith("  horovodrun ")]), 3)

    def test_init_writes_a_config_file_and_tests_its_hosts(self):
        with tempfile.TemporaryDirectory() as folder:
            job = {"cwd": folder, "env": {**os.environ, "HOME": folder}}
            result = run("init", **job)
            self.assertEqual((result.returncode, result.stderr), (0, b""))
            self.assertIn(b"/.ssh/config names no hosts.\n", result.stdout)
            os.mkdir(f"{folder}/.ssh")
            with open(f"{folder}/.ssh/config", "w", encoding="utf-8") as config:
                config.write("Host login production*\n  User me\nHost gpu1\n")
            result = run("init", **job)
            self.assertIn(b"/.ssh/config: login, gpu1\nNone of them was contacted.\n", result.stdout)
            self.assertEqual(os.listdir(folder), [".ssh"])
            result = run("init", "-np", "2", **job)
            self.assertEqual((result.returncode, result.stdout), (2, b""))
            self.assertIn(b"init takes hosts alone", result.stderr)
            result = run("init", "localhost:2", **job)
            self.assertEqual((result.returncode, result.stderr), (0, b"horovodrun: wrote horovodrun.yaml\n"))
            ready = "ready: horovodrun --config-file horovodrun.yaml python3 train.py"
            self.assertRegex(result.stdout.decode(), rf"\Alocalhost: Python .*\n{ready}\n\Z")
            words = ("--tag", "none", "sh", "-c", "echo $HOROVOD_RANK")
            result = run("--config-file", "horovodrun.yaml", *words, **job)
            self.assertEqual((result.returncode, lines(result.stdout), result.stderr), (0, ["0", "1"], b""))
            result = run("-np", "1", *words, **job)
            said = "horovodrun.yaml in this directory is not read; --config-file horovodrun.yaml reads it"
            self.assertEqual((lines(result.stdout), result.stderr.decode()), (["0"], f"horovodrun: {said}\n"))
            with open(f"{folder}/horovodrun.yaml", encoding="utf-8") as config:
                written = config.read()
            result = run("init", "localhost", **job)
            self.assertEqual((result.returncode, result.stdout), (2, b""))
            self.assertIn(b"horovodrun.yaml: the file exists; remove or rename it", result.stderr)
            with open(f"{folder}/horovodrun.yaml", encoding="utf-8") as config:
                self.assertEqual(config.read(), written)
            os.remove(f"{folder}/horovodrun.yaml")
            os.mkdir(f"{folder}/bin")
            for name in ("sh", "bash", "env"):
                os.symlink(f"/bin/{name}", f"{folder}/bin/{name}")
            result = run("init", "localhost", cwd=folder, env={"HOME": folder, "PATH": f"{folder}/bin"})
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stdout.decode(), r"not ready: no python3 on localhost; install it there, or let ")
            os.remove(f"{folder}/horovodrun.yaml")
            result = run("init", "localhost", "no-such-host.invalid", **job)
            self.assertEqual(result.returncode, 1)
            self.assertRegex(
                result.stdout.decode(),
                r"\nno-such-host.invalid: .*does not resolve.*\n"
                r"not ready: no-such-host.invalid; ",
            )

    def test_help_shows_the_flags(self):
        result = run("--help")
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        self.assertIn(b"-np, --num-proc N ", result.stdout)
        for flag in (b"-H", b"-hostfile", b"-p", b"-i", b"--verbose", b"--start-timeout", b"-cb", b"--dry-run"):
            self.assertRegex(result.stdout, b"(?m)[ ,]" + flag + b"[ ,]")
        shown = lines(result.stdout)
        self.assertLessEqual(len(shown), 120)
        self.assertLessEqual(max(map(len, shown)), 100)

    def test_all_flags_are_in_the_full_help_and_in_one_topic(self):
        everything = run("--help-all").stdout.decode()
        common = run("--help").stdout.decode()
        topics = re.search(r"help TOPIC prints those of a topic: ([a-z, \n]+)\.", common)[1].replace("\n", " ")
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
        self.assertTrue(
            result.stderr.startswith(b"horovodrun: --help netwrok: there is no such topic; give one of job, hosts,"),
            result.stderr,
        )
        self.assertEqual(run("-np", "2", "--help", "python3", "train.py").stdout, run("--help").stdout)

    def test_help_takes_a_topic_like_the_flag(self):
        self.assertEqual(run("help", "hosts").stdout, run("--help", "hosts").stdout)
        self.assertEqual(run("help").stdout, run("--help").stdout)
        self.assertEqual(run("help", "netwrok").returncode, 2)

    def test_help_explains_each_command(self):
        names = re.search(r"compgen -W '(ps [a-z ]*)'", run("--completion", "bash").stdout.decode())[1].split()
        self.assertLessEqual({"ps", "stack", "exec", "attach", "report", "help"}, set(names))
        page = run("--manual", "man").stdout.decode().replace("\\-", "-").replace("\\(aq", "'")
        for name in names:
            text = run("help", name).stdout.decode()
            usage, help_, *rest = [part for part in text.split("\n\n") if part]
            self.assertTrue(usage.startswith(f"Usage: horovodrun {name}"), usage)
            self.assertIn("\n  horovodrun ", rest[-1])
            self.assertTrue(rest[-1].startswith("Examples:\n"), rest[-1])
            self.assertLessEqual(max(map(len, text.splitlines())), 80)
            for paragraph in (help_, *rest[:-1]):
                self.assertIn(" ".join(paragraph.split()), page)
            for flag in ("--help", "-h"):
                self.assertEqual(run(name, flag).stdout.decode(), text)
        self.assertIn("; or a command: ps, top, stack, ", run("help", "netwrok").stderr.decode())

    def test_dry_run_shows_the_plan_and_starts_nothing(self):
        result = run("-np", "6", "-H", "a:4,no-such-host:4", "--dry-run", "python3", "train.py")
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        plan = json.loads(result.stdout)
        self.assertEqual(list(plan), ["size", "hosts", "ranks"])
        self.assertEqual((plan["size"], len(plan["ranks"])), (6, 6))
        last = plan["ranks"][5]
        self.assertEqual(list(last), ["rank", "host", "local_rank", "local_size", "cross_rank", "cross_size", "env"])
        self.assertEqual(list(last.values())[:6], [5, "no-such-host", 1, 2, 1, 2])
        self.assertEqual(last["env"]["HOROVOD_RANK"], "5")
        self.assertNotIn("HOROVOD_JOB_SECRET", last["env"])


class Manuals(unittest.TestCase):
    def test_the_page_of_all_settings_is_current(self):
        page = os.path.join(os.path.dirname(__file__), "../../docs/settings.md")
        with open(page, encoding="utf-8") as text:
            self.assertEqual(
                run("--manual", "markdown").stdout.decode(),
                text.read(),
                "run: horovodrun --manual markdown > docs/settings.md",
            )

    def test_bash_completes_hosts_of_ssh(self):
        with tempfile.TemporaryDirectory() as home:
            os.mkdir(f"{home}/.ssh")
            with open(f"{home}/.ssh/known_hosts", "w", encoding="utf-8") as file:
                file.write(
                    "alpha,10.99.0.1 ssh-rsa A\n[beta.x]:2222 ssh-rsa A\n|1|hashed ssh-rsa A\n@revoked gone ssh-rsa A\n"
                )
            with open(f"{home}/.ssh/config", "w", encoding="utf-8") as file:
                file.write("Host gamma delta *.wild\n  Port 2\nhost=eps\n")
            for words, expected in (
                (["-H", "a"], ["alpha"]),
                (["-H", "10.99"], ["10.99.0.1"]),
                (["--hosts", "=", "alpha", ":", "4,b"], ["4,beta.x"]),
                (["-np", "2", "-H", "alpha", ":", "4,beta.x", ":", "2,e"], ["2,eps"]),
                (["-H", "g"], ["gamma"]),
                (["-H", "d"], ["delta"]),
                (["-H", "|"], [""]),
            ):
                self.assertEqual(self.completed(*words, HOME=home), expected, words)

    def test_the_other_shells_complete_hosts_by_their_own_functions(self):
        self.assertRegex(run("--completion", "zsh").stdout.decode(), r"'\*-H\[.*:_sequence -s , _hosts'")
        self.assertRegex(run("--completion", "fish").stdout.decode(), r"-l hosts -x -a '\(__fish_print_hostnames\)'")

    def completed(self, *words, **environment):
        script = (
            'source <("$0" --completion bash); COMP_WORDS=(horovodrun "$@"); COMP_CWORD=$#; '
            '_horovodrun; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        done = subprocess.run(
            ["bash", "-c", script, HOROVODRUN, *words],
            stdout=subprocess.PIPE,
            check=True,
            timeout=TIMEOUT,
            env={**os.environ, **environment},
        )
        return lines(done.stdout)

    def test_shells_complete_names_of_jobs(self):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/horovodrun"
            with open(path, "w", encoding="utf-8") as file:
                file.write(
                    "#!/bin/sh\n[ \"$*\" = 'ps -a' ] || exit 2\nprintf '%s\\n' 'ID    NAME   BEGAN' "
                    "'4711  mnist  2026' '  ended, exit code 1' '4802  -      2026' '  running' '4803  mnist  2026'\n"
                )
            os.chmod(path, 0o755)
            path = f"{folder}:{os.environ['PATH']}"
            for command in ("logs", "stop", "top", "stack", "wait", "attach", "ps"):
                self.assertEqual(self.completed(command, "", PATH=path), ["4802", "mnist"], command)
                self.assertEqual(self.completed(command, "m", PATH=path), ["mnist"], command)
            self.assertIn("mnist", self.completed("exec", "mni", PATH=path))
            self.assertNotIn("mnist", self.completed("python3", "mni", PATH=path))
            zsh = run("--completion", "zsh").stdout.decode()
            self.assertIn("stop", re.search(r"case \$words\[1\] in \((.*?)\) _horovodrun_jobs", zsh)[1].split("|"))
            if not shutil.which("fish"):
                self.skipTest("there is no fish: bash and zsh were tested")
            done = subprocess.run(
                ["fish", "-c", run("--completion", "fish").stdout.decode() + "complete -C 'horovodrun stop '"],
                capture_output=True,
                text=True,
                check=True,
                timeout=TIMEOUT,
                env={**os.environ, "PATH": path},
            )
            self.assertEqual([line.split()[0] for line in done.stdout.splitlines()], ["4802", "mnist"])

    def test_bash_completes_flags(self):
        self.assertEqual(self.completed("--hie"), ["--hierarchical-allgather", "--hierarchical-allreduce"])

    def test_bash_completes_values_that_are_known(self):
        self.assertEqual(self.completed("-np", "2", "--log-format", ""), ["json", "text"])
        self.assertEqual(self.completed("--log-format", "=", "j"), ["json"])
        self.assertEqual(self.completed("-np", ""), [""])
        self.assertEqual(self.completed("--timeout", "=", ""), [""])
        self.assertEqual(self.completed("--log-format", "="), ["json", "text"])
        self.assertEqual(self.completed("--stdin", "a"), ["all"])

    def test_the_agent_says_how_it_is_started_by_hand(self):
        agent = os.path.join(os.path.dirname(HOROVODRUN), "horovod-agent")
        for flag in ("--help", "-h"):
            done = subprocess.run(
                [agent, flag], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=TIMEOUT
            )
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            for words in (b"--join HOST:PORT", b"--token-file FILE", b"--slots N", b"--ca FILE"):
                self.assertIn(words, done.stdout)
            self.assertLessEqual(max(map(len, done.stdout.splitlines())), 80)

    def test_the_agent_tells_an_unknown_flag_from_one_without_its_value(self):
        agent = os.path.join(os.path.dirname(HOROVODRUN), "horovod-agent")
        for flags, sentence in (
            (["--bogus"], "unknown flag '--bogus'; see horovod-agent --help"),
            (["--slots=2"], "unknown flag '--slots=2'; see horovod-agent --help"),
            (["--bogus", "2"], "unknown flag '--bogus'; see horovod-agent --help"),
            (["--name", "a", "--slots"], "'--slots' needs a value"),
        ):
            done = subprocess.run(
                [agent, *flags], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=TIMEOUT
            )
            self.assertEqual((done.returncode, done.stderr.decode()), (2, f"horovod-agent: {sentence}\n"))

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


if __name__ == "__main__":
    main()
