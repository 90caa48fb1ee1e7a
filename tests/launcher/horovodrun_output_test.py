"""The output of ranks of the real horovodrun."""

import os
import signal
import subprocess
import tempfile
import time

from horovodrun_case import HOROVODRUN, TIMEOUT, Marked, lines, main, resident_kib, wait_until


class Output(Marked):
    def test_standard_error_stays_standard_error(self):
        result = self.run_job("-np", "1", "sh", "-c", "echo out; echo err >&2")
        self.assertEqual((result.stdout, result.stderr), (b"[0]<stdout>:out\n", b"[0]<stderr>:err\n"))

    def test_carriage_returns_end_lines_and_stay(self):
        result = self.run_job("-np", "1", "printf", "10%%\\r20%%\\rdone\\n")
        self.assertEqual(result.stdout, b"[0]<stdout>:10%\r[0]<stdout>:20%\r[0]<stdout>:done\n")

    def test_an_unfinished_last_line_gets_a_newline(self):
        result = self.run_job("-np", "1", "printf", "a\\nb")
        self.assertEqual(result.stdout, b"[0]<stdout>:a\n[0]<stdout>:b\n")

    def test_any_bytes_survive(self):
        result = self.run_job("-np", "1", "printf", "\\000\\377\\200\\001\\n")
        self.assertEqual(result.stdout, b"[0]<stdout>:\x00\xff\x80\x01\n")

    def test_lines_of_many_ranks_arrive_whole(self):
        script = "i=0; while [ $i -lt 300 ]; do printf '%s' $HOROVOD_RANK; printf '%0200d\\n' $i; i=$((i+1)); done"
        result = self.run_job("-np", "6", "sh", "-c", script)
        received = result.stdout.decode().splitlines()
        self.assertEqual(len(received), 1800)
        for rank in range(6):
            mine = [line for line in received if line.startswith(f"[{rank}]")]
            self.assertEqual(mine, [f"[{rank}]<stdout>:{rank}{i:0200d}" for i in range(300)])

    def test_a_stalled_reader_loses_nothing_and_holds_up_no_control(self):
        ready = tempfile.TemporaryDirectory()
        self.addCleanup(ready.cleanup)
        self.environment["READY"] = ready.name
        job = self.start_job(
            "-np",
            "2",
            "sh",
            "-c",
            "yes | head -c 3000000; : >$READY/$HOROVOD_RANK; "
            "until [ -e $READY/0 ] && [ -e $READY/1 ]; do sleep 0.02; done; "
            "[ $HOROVOD_RANK = 0 ] || exit 4; sleep 600",
        )
        self.assertTrue(wait_until(lambda: "yes" in self.programs()))

        def grows_no_more():
            before = resident_kib(job.pid)
            time.sleep(1)
            return resident_kib(job.pid) - before < 1024

        self.assertTrue(wait_until(grows_no_more))
        self.assertIn("yes", self.programs())
        out, err = job.communicate(timeout=TIMEOUT)
        self.assertEqual(job.returncode, 4, err)
        self.assertEqual(out.count(b"]<stdout>:y\n"), 3000000)

    def test_a_job_can_be_interrupted_while_its_reader_is_stalled(self):
        job = self.start_job("-np", "2", "--kill-grace", "120", "yes")
        self.assertTrue(wait_until(lambda: "yes" in self.programs()))
        self.assertTrue(job.stdout.peek())
        job.send_signal(signal.SIGINT)
        self.assertTrue(wait_until(lambda: "yes" not in self.programs()))
        job.send_signal(signal.SIGINT)
        self.assertEqual(job.wait(TIMEOUT), 130)
        self.assertEqual(job.stderr.read(), b"horovodrun: ended by SIGINT\n")

    def test_a_reader_that_goes_away_ends_the_job_quietly(self):
        job = self.start_job("-np", "2", "--kill-grace", "120", "yes")
        job.stdout.readline()
        job.stdout.close()
        self.assertEqual(job.wait(TIMEOUT), 128 + signal.SIGPIPE)
        self.assertEqual(job.stderr.read(), b"")
        job.stdout = None

    def test_standard_streams_may_be_closed(self):
        for closed in (">&-", "2>&-", "<&-", "<&- >&- 2>&-"):
            with self.subTest(closed), tempfile.TemporaryDirectory() as folder:
                command = f'"$0" -np 2 sh -c "echo out; echo >{folder}/\\$HOROVOD_RANK" {closed}'
                ended = subprocess.run(["sh", "-c", command, HOROVODRUN], timeout=TIMEOUT, capture_output=True)
                self.assertEqual((ended.returncode, ended.stderr), (0, b""))
                self.assertEqual(sorted(os.listdir(folder)), ["0", "1"])
                if ">&-" not in closed.replace("2>&-", ""):
                    self.assertEqual(lines(ended.stdout), ["[0]<stdout>:out", "[1]<stdout>:out"])

    def test_output_filename_keeps_a_copy_of_each_rank(self):
        with tempfile.TemporaryDirectory() as folder:
            target = os.path.join(folder, "deep", "logs")
            result = self.run_job(
                "-np", "11", "--output-filename", target, "sh", "-c", "echo out $HOROVOD_RANK; echo err >&2"
            )
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(sorted(os.listdir(target)), [".horovodrun.lock", *(f"rank.{r:02d}" for r in range(11))])
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


if __name__ == "__main__":
    main()
