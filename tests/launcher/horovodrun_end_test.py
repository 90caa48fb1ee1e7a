"""The end of a job of the real horovodrun: exit codes, signals, and processes that stay behind."""

import os
import pathlib
import signal
import tempfile
import time

from horovodrun_case import TIMEOUT, Marked, main, processes_with, read_until, wait_until


class Ends(Marked):
    """A rank that stays would outlive the limit of every wait here, and so would a grace that is used up."""

    def setUp(self):
        super().setUp()
        self.environment["HOROVOD_KILL_GRACE"] = "120"

    def ended(self, command, code, sentence, ranks=3):
        result = self.run_job("-np", str(ranks), "sh", "-c", command)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stderr.decode(), f"horovodrun: {sentence}\n")

    def test_an_exit_code_ends_the_job_and_is_the_launchers(self):
        self.ended("[ $HOROVOD_RANK = 1 ] && exit 3; exec sleep 600", 3, "rank 1 on host localhost exited with code 3")

    def test_a_signal_ends_the_job_too(self):
        self.ended(
            "[ $HOROVOD_RANK = 2 ] && kill -9 $$; exec sleep 600",
            137,
            "rank 2 on host localhost was killed by signal 9 (SIGKILL)",
        )
        self.ended(
            "[ $HOROVOD_RANK = 0 ] && kill -SEGV $$; exec sleep 600",
            139,
            "rank 0 on host localhost was killed by signal 11 (SIGSEGV)",
        )

    def test_ranks_that_ignore_SIGTERM_are_killed_and_named(self):
        with tempfile.TemporaryDirectory() as folder:
            self.environment.update(READY=folder, HOROVOD_KILL_GRACE="2")
            self.ended(
                "trap '' TERM; if [ $HOROVOD_RANK = 1 ]; then "
                "until [ -e $READY/0 ] && [ -e $READY/2 ]; do sleep 0.02; done; exit 7; fi; "
                "(setsid sleep 600 &); : >$READY/$HOROVOD_RANK; while :; do sleep 1; done",
                7,
                "rank 1 on host localhost exited with code 7; ranks 0,2 on host localhost did "
                "not end within 2 s (--kill-grace) of SIGTERM and were killed",
            )

    def test_a_rank_that_ends_well_leaves_the_others_alone(self):
        result = self.run_job("-np", "2", "sh", "-c", "[ $HOROVOD_RANK = 0 ] && exit 0; sleep 0.5; echo done")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, b"[1]<stdout>:done\n", b""))

    def interrupted(self, number, code, name):
        job = self.start_job("-np", "2", "sh", "-c", "(setsid sleep 600 &) ; echo up; sleep 600")
        read_until(job, 2)
        job.send_signal(number)
        self.assertEqual(job.wait(TIMEOUT), code)
        self.assertEqual(job.stderr.read().decode(), f"horovodrun: ended by {name}\n")
        self.assertTrue(wait_until(lambda: not processes_with(self.marker)))

    def test_interrupt_terminate_and_hangup_end_the_job_and_leave_nothing(self):
        self.interrupted(signal.SIGINT, 130, "SIGINT")
        self.interrupted(signal.SIGTERM, 143, "SIGTERM")
        self.interrupted(signal.SIGHUP, 129, "SIGHUP")

    def test_a_second_interrupt_ends_it_at_once(self):
        job = self.start_job("-np", "2", "sh", "-c", "trap 'echo asked' TERM; echo up; while :; do sleep 0.1; done")
        read_until(job, 2)
        job.send_signal(signal.SIGINT)
        self.assertEqual(sorted(read_until(job, 2)), [b"[0]<stdout>:asked\n", b"[1]<stdout>:asked\n"])
        job.send_signal(signal.SIGINT)
        self.assertEqual(job.wait(TIMEOUT), 130)

    def test_an_interrupt_does_not_wait_for_scontrol(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (
                ("srun", ""),
                ("discovery", f"cat {folder}/hosts"),
                ("scontrol", f"[ -e {folder}/hang ] || exit 1\n: > {folder}/hangs; sleep 600"),
            ):
                with open(f"{folder}/{name}", "w") as script:
                    script.write(f"#!/bin/sh\n{text}\n")
                os.chmod(f"{folder}/{name}", 0o755)
            hosts = pathlib.Path(folder, "hosts")
            hosts.write_text("localhost:1\n")
            self.environment.update(PATH=f"{folder}:{os.environ['PATH']}", SLURM_CLUSTER_NAME="c", SLURM_JOB_ID="17")
            job = self.start_job(
                "--min-np", "1", "--host-discovery-script", f"{folder}/discovery", "sh", "-c", "echo up; exec sleep 600"
            )
            read_until(job, 1)
            pathlib.Path(folder, "hang").touch()
            hosts.write_text("localhost:1\nnode-17:1\n")
            self.assertTrue(wait_until(pathlib.Path(folder, "hangs").exists))
            begin = time.monotonic()
            job.send_signal(signal.SIGINT)
            self.assertEqual(job.wait(TIMEOUT), 130)
            # The time limit of scontrol is 10 s.
            self.assertLess(time.monotonic() - begin, 6)

    def test_a_killed_launcher_leaves_nothing(self):
        self.environment["HOROVOD_KILL_GRACE"] = "2"
        job = self.start_job("-np", "2", "sh", "-c", "trap '' TERM HUP; (setsid sleep 600 &) ; echo up; sleep 600")
        read_until(job, 2)
        job.kill()
        job.wait()
        self.assertTrue(wait_until(lambda: not processes_with(self.marker)))

    def test_a_stopped_launcher_goes_on_when_continued(self):
        job = self.start_job(
            "-np", "2", "--lease", "4", "sh", "-c", "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.5; done"
        )
        read_until(job, 2)
        job.send_signal(signal.SIGTSTP)
        _, status = os.waitpid(job.pid, os.WUNTRACED)
        self.assertTrue(os.WIFSTOPPED(status))
        time.sleep(9)  # a lease that must not end has no event
        job.send_signal(signal.SIGCONT)
        out, err = job.communicate(timeout=TIMEOUT)
        self.assertEqual((job.returncode, err), (0, b""))
        self.assertEqual(out.count(b":8\n"), 2)


if __name__ == "__main__":
    main()
