"""The ranks of a job of the real horovodrun: their number, identity and environment."""

import os
import pathlib
import signal
import sys
import tempfile

from horovodrun_case import HOROVODRUN, TIMEOUT, Marked, lines, main, read_until, wait_until

sys.path.append(os.path.join(os.path.dirname(__file__), "../hosts"))
from idle import idle


class Ranks(Marked):
    def test_a_hostfile_may_come_from_standard_input(self):
        with tempfile.TemporaryFile() as hosts:
            hosts.write(b"localhost slots=2\n")
            hosts.seek(0)
            result = self.run_job("--hostfile", "-", "sh", "-c", "echo $HOROVOD_SIZE; cat", stdin=hosts)
        self.assertEqual(lines(result.stdout), ["[0]<stdout>:2", "[1]<stdout>:2"])

    def test_a_schedulers_hosts_are_found_but_not_within_a_rank(self):
        self.environment.update(SLURM_JOB_ID="7", SLURM_JOB_NODELIST="localhost", SLURM_TASKS_PER_NODE="2")
        self.environment.pop("HOROVOD_JOB_ID", None)
        result = self.run_job("sh", "-c", "echo $HOROVOD_SIZE")
        self.assertEqual(lines(result.stdout), ["[0]<stdout>:2", "[1]<stdout>:2"])
        result = self.run_job("-H", "localhost", HOROVODRUN, "-np", "3", "sh", "-c", "echo x")
        self.assertEqual(result.stdout.count(b"x"), 3)

    def test_a_job_inside_a_rank_is_a_job_of_its_own(self):
        inner = (HOROVODRUN, "-np", "2", "sh", "-c", "echo $HOROVOD_RANK/$HOROVOD_SIZE")
        result = self.run_job("-np", "2", *inner)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("leave horovodrun out: horovodrun -np 4 sh -c echo", result.stderr.decode())
        result = self.run_job("-np", "2", "--independent", *inner)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(
            lines(result.stdout),
            [f"[{outer}]<stdout>:[{inner}]<stdout>:{inner}/2" for outer in range(2) for inner in range(2)],
        )

    def test_identities_of_other_launchers_do_not_reach_ranks(self):
        self.environment.update(
            OMPI_COMM_WORLD_RANK="5",
            PMI_RANK="5",
            SLURM_PROCID="5",
            HOROVOD_GLOO_RENDEZVOUS_ADDR="10.0.0.1",
            NCCL_DEBUG="WARN",
        )
        # Removes the variables that give ranks their identity.
        result = self.run_job("-np", "1", "--no-pmix", "sh", "-c", "env | grep -E 'OMPI_|PMI_|SLURM_|GLOO_R|NCCL'")
        self.assertEqual(lines(result.stdout), ["[0]<stdout>:NCCL_DEBUG=WARN"])

    def test_a_job_of_flux_is_named_unless_hosts_are(self):
        self.environment.update(FLUX_URI="local:///run/flux/local", FLUX_JOB_ID="ƒ2x")
        for where, is_named in (((), True), (("-H", "localhost:1"), False)):
            result = self.run_job("-np", "1", *where, "true")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(b'write -H "$(flux hostlist local)"' in result.stderr, is_named, result.stderr)

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
            begin = idle()
            job.send_signal(signal.SIGINT)
            self.assertEqual(job.wait(TIMEOUT), 130)
            # The time limit of scontrol is 10 s.
            self.assertLess(idle() - begin, 6)

    def test_standard_input_is_empty(self):
        result = self.run_job("-np", "2", "cat", stdin=None)
        self.assertEqual((result.returncode, result.stdout), (0, b""))


if __name__ == "__main__":
    main()
