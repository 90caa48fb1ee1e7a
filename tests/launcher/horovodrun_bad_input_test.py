"""Tests of the input that the real horovodrun refuses before it starts a process."""

import os
import tempfile
import unittest

from horovodrun_case import main, run


class EndSignals(unittest.TestCase):
    def test_an_end_signal_is_one_of_two(self):
        result = run("-np", "1", "--end-signal", "KILL", "true")
        self.assertEqual(result.returncode, 2)
        self.assertEqual(result.stderr, b"horovodrun: --end-signal KILL is not one of: TERM, INT\n")


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
            self.one_sentence("-hostfile", hostfile.name, "true", says=f"{hostfile.name}, line 2: 'four'")

    def test_more_ranks_than_slots(self):
        text = self.refused(
            "-np", "9", "-H", "localhost:4,b:4", "true", says="9 ranks are more than the 8 slots there are; "
        )
        self.assertEqual(
            [line.split() for line in text.splitlines()[1:]], [["host", "slots"], ["localhost", "4"], ["b", "4"]]
        )

    def test_an_unknown_flag(self):
        self.one_sentence("-np", "2", "--verbsoe", "true", says="did you mean --verbose?")

    def test_a_launcher_of_several_processes_in_each_rank(self):
        self.one_sentence(
            *("-np", "2", "env", "HF_HOME=/nonexistent", "accelerate", "launch", "--num_processes=2", "t.py"),
            says="leave accelerate out: horovodrun -np 4 env HF_HOME=/nonexistent python3 t.py; ",
        )

    def test_no_command_and_no_number(self):
        self.one_sentence("-np", "2", says="the command is missing")
        self.one_sentence("--min-np", "1", "true", says="-np N")
        self.one_sentence("-np", "0", "true", says="-np 0 is out of range")

    def test_flags_of_elastic_jobs_that_contradict_each_other(self):
        self.one_sentence("-np", "2", "--max-np", "4", "true", says="--max-np is for elastic jobs; add ")
        self.one_sentence("-np", "2", "--min-np", "4", "true", says="--min-np 4 is greater than -np 2")
        self.one_sentence(
            "-np",
            "2",
            "--host-discovery-script",
            "echo a",
            "-H",
            "a:2",
            "true",
            says="--host-discovery-script and -H both name the hosts",
        )
        self.one_sentence(
            "-np", "2", "--min-np", "1", "--blacklist-cooldown-range", "9", "2", "true", says="'9 2' is out of range"
        )

    def test_an_elastic_job_whose_hosts_join_by_themselves_and_have_names(self):
        for flag, value in ("-H", "a:2"), ("--host-discovery-script", "echo a"):
            self.one_sentence(
                "-np",
                "2",
                "--min-np",
                "1",
                "--listen",
                ":0",
                "--token-file",
                "x",
                flag,
                value,
                "true",
                says=f"lets hosts join an elastic job by themselves, and {flag} names them",
            )
        self.one_sentence(
            "-np",
            "2",
            "--min-np",
            "1",
            "--listen",
            ":0",
            "--token-file",
            "x",
            "--restart-ranks",
            "true",
            says="--restart-ranks cannot be combined with --token-file",
        )

    def test_a_discovery_script_that_fails_or_finds_too_few_slots(self):
        self.one_sentence(
            "-np",
            "1",
            "--host-discovery-script",
            "exit 3",
            "true",
            says="host discovery script 'exit 3': ended with exit code 3",
        )
        self.one_sentence(
            "-np",
            "2",
            "--elastic-timeout",
            "1",
            "--host-discovery-script",
            "echo a",
            "true",
            says="named 1 of 2 slots within 1 s (--elastic-timeout)",
        )

    def test_a_program_that_is_not_there(self):
        self.one_sentence("-np", "2", "no-such-program", says="no-such-program")
        self.one_sentence("-np", "2", "./no/such/program", says="no/such/program")

    def test_a_program_that_cannot_be_executed(self):
        with tempfile.NamedTemporaryFile("w") as program:
            self.one_sentence("-np", "1", program.name, says=program.name)

    def test_a_name_that_does_not_resolve(self):
        self.one_sentence("-np", "1", "-H", "no-such-host.invalid:1", "true", says="no-such-host.invalid")

    def test_each_host_that_fails_gets_its_line(self):
        sentence = self.refused("-H", "x1.invalid,localhost,x2.invalid", "true", says="x1.invalid")
        self.assertEqual(
            [line.split(":")[1].strip() for line in sentence.splitlines()], ["host x1.invalid", "host x2.invalid"]
        )

    def test_an_output_folder_that_cannot_be_made(self):
        self.one_sentence("-np", "1", "--output-filename", "/proc/no", "true", says="/proc/no")

    def test_the_command_that_joins_a_host_names_no_pipe_of_this_shell(self):
        ours, theirs = os.pipe()
        os.write(theirs, b"ab" * 32)
        os.close(theirs)
        try:
            result = run(
                "-np",
                "1",
                "--listen",
                "127.0.0.1:0",
                "--token-file",
                f"/dev/fd/{ours}",
                "--start-timeout",
                "1",
                "/bin/true",
                pass_fds=[ours],
            )
        finally:
            os.close(ours)
        self.assertEqual(result.returncode, 2)
        self.assertIn(b" --token-file FILE; or allow", result.stderr)


if __name__ == "__main__":
    main()
