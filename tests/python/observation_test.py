"""Timelines and metrics at the request of any rank."""

import json
import os
import tempfile
import time

import rank_case
from rank_case import RankCase, hvd, torch

# All ranks have the same path, since they run on one machine.
PATH = os.path.join(tempfile.gettempdir(), f"hvd-timeline-{os.environ.get('HOROVOD_JOB_ID', os.getpid())}")


def samples(text):
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            found[name] = float(value)
    return found


class ObservationTest(RankCase):
    def test_a_timeline_that_the_last_rank_starts_shows_all_ranks(self):
        if self.rank == self.size - 1:
            hvd.start_timeline(PATH, mark_cycles=True)
        hvd.barrier()
        for _ in range(3):
            hvd.allreduce(torch.ones(2, 3), name="a")
        hvd.grouped_allreduce([torch.ones(2), torch.ones(3)], name="g")
        hvd.barrier()
        if self.rank == 0:
            hvd.stop_timeline()
            with open(PATH) as file:
                events = json.load(file)
            os.unlink(PATH)
            names = {
                event["pid"]: event["args"]["name"]
                for event in events
                if event["name" if "name" in event else "ph"] == "process_name"
            }
            self.assertIn("allreduce.a", names.values())
            ends = [
                (names[event["pid"]], event["tid"], event["args"]["shape"])
                for event in events
                if event["ph"] == "E" and "args" in event
            ]
            for rank in range(self.size):
                self.assertEqual(ends.count(("allreduce.a", rank, "[2, 3]")), 3)
            members = {name for name in names.values() if "of2" in name}
            self.assertEqual(len(members), 2, members)
            self.assertTrue(any(event.get("name") == "CYCLE_START" for event in events))
        hvd.barrier()

    def test_every_rank_may_start_and_stop_the_same_timeline(self):
        for _ in range(2):
            hvd.start_timeline(PATH)
            hvd.allreduce(torch.ones(2), name="everybody")
            with self.assertRaisesRegex(hvd.HorovodInternalError, "is being written; stop it"):
                hvd.start_timeline(PATH + ".other")
            hvd.barrier()
            hvd.stop_timeline()
            hvd.barrier()
            if self.rank == 0:
                with open(PATH) as file:
                    events = json.load(file)
                os.unlink(PATH)
                names = [event["args"]["name"] for event in events if event.get("name") == "process_name"]
                self.assertIn("allreduce.everybody", names)
            hvd.barrier()

    def test_a_timeline_that_cannot_be_written_raises_and_work_goes_on(self):
        if self.rank == 0:
            with self.assertRaisesRegex(hvd.HorovodInternalError, "/nowhere/x: "):
                hvd.start_timeline("/nowhere/x")
        self.assert_equal_tensors(hvd.allreduce(torch.ones(1), op=hvd.Sum), torch.full((1,), float(self.size)))

    def test_metrics_of_the_job_name_every_rank_and_count(self):
        hvd.barrier()
        before = samples(hvd.metrics())
        for _ in range(4):
            hvd.allreduce(torch.ones(25), name="counted")
        own = samples(hvd.metrics("rank"))
        key = next(
            name for name in own if name.startswith("horovod_operations_total") and 'operation="allreduce"' in name
        )
        self.assertEqual(own[key] - before[key], 4)
        self.assertIn(f'rank="{self.rank}"', key)
        of_bytes = key.replace("operations_total", "bytes_total")
        self.assertEqual(own[of_bytes] - before[of_bytes], 400)
        hvd.barrier()
        if self.rank == self.size - 1:
            # Other ranks sleep meanwhile.
            everybody = hvd.metrics("job")
            for rank in range(self.size):
                self.assertIn(f'horovod_batches_total{{rank="{rank}",', everybody)
        else:
            time.sleep(0.05)  # the progress thread replies meanwhile
        hvd.barrier()

    def test_the_last_steps_of_a_rank_are_a_dictionary(self):
        for _ in range(60):
            hvd.allreduce(torch.ones(25), name="stepped")
        steps = hvd.metrics("step")
        self.assertLessEqual(steps.keys() - {"late_ms"}, {"step_seconds", "waited_share", "bytes"})
        self.assertEqual(steps["bytes"], 100)
        self.assertTrue(0 < steps["step_seconds"] < 1 and 0 < steps["waited_share"] <= 1, steps)

    def test_prometheus_reads_the_metrics(self):
        try:
            from prometheus_client.parser import text_string_to_metric_families
        except ImportError as error:
            self.skipTest(f"no prometheus_client: {error}")
        families = {family.name: family for family in text_string_to_metric_families(hvd.metrics())}
        self.assertEqual(families["horovod_operations"].type, "counter")
        self.assertEqual(families["horovod_negotiation_seconds"].type, "histogram")

    def test_another_scope_is_refused(self):
        with self.assertRaisesRegex(ValueError, "scope"):
            hvd.metrics("world")

    def test_before_init_is_said(self):
        hvd.shutdown()
        for function in [hvd.metrics, hvd.stop_timeline, lambda: hvd.start_timeline("x")]:
            with self.assertRaisesRegex(ValueError, "not been initialized"):
                function()
        hvd.init()


if __name__ == "__main__":
    rank_case.main()
