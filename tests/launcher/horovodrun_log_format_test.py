"""Tests of the real horovodrun with --log-format json: the launcher's lines are JSON objects."""

import json
import tempfile
import unittest

from horovodrun_case import main, run


def records(stderr):
    """Returns the fields of each JSON line of the launcher, without the time."""
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

    def test_a_line_of_verbose_is_an_object_with_its_level(self):
        result = run("-np", "1", "--verbose", "--log-format", "json", "true")
        self.assertEqual(result.returncode, 0)
        ready = [
            record
            for record in records(result.stderr)
            if record["text"].endswith(" s: host localhost: ready for 1 rank")
        ]
        self.assertEqual([(record["source"], record["level"]) for record in ready], [("horovodrun", "info")])

    def test_waiting_for_hosts_is_an_object(self):
        with tempfile.NamedTemporaryFile("w") as token:
            token.write("ab" * 32 + "\n")
            token.flush()
            result = run(
                *"-np 1 --listen 127.0.0.1:0".split(),
                "--token-file",
                token.name,
                *"--start-timeout 0.5 --log-format json true".split(),
            )
        self.assertTrue(records(result.stderr)[0]["text"].startswith("waits up to 0.5 s"), result.stderr)


if __name__ == "__main__":
    main()
