"""Start, identity and end of the runtime, in jobs of every size."""

import faulthandler
import os
import signal
import tempfile
import threading

import rank_case
from rank_case import RankCase, hvd, torch


class LifeTest(RankCase):
    def test_identity_agrees_with_the_launcher(self):
        for name, function in [
            ("RANK", hvd.rank),
            ("SIZE", hvd.size),
            ("LOCAL_RANK", hvd.local_rank),
            ("LOCAL_SIZE", hvd.local_size),
            ("CROSS_RANK", hvd.cross_rank),
            ("CROSS_SIZE", hvd.cross_size),
        ]:
            alone = 1 if name.endswith("SIZE") else 0
            self.assertEqual(function(), int(os.environ.get(f"HOROVOD_{name}", alone)), name)
        self.assertIs(hvd.is_homogeneous(), True)

    def test_initialising_twice_changes_nothing(self):
        hvd.init()
        self.assertEqual((hvd.rank(), hvd.size()), (self.rank, self.size))

    def test_before_init_and_after_shutdown_everything_says_so_and_init_starts_anew(self):
        for _ in range(2):
            hvd.shutdown()
            self.assertFalse(hvd.is_initialized())
            for function in [
                hvd.rank,
                hvd.size,
                hvd.local_rank,
                hvd.local_size,
                hvd.cross_rank,
                hvd.cross_size,
                hvd.is_homogeneous,
            ]:
                with self.assertRaisesRegex(ValueError, "not been initialized"):
                    function()
            with self.assertRaisesRegex(hvd.HorovodInternalError, "init|shut down"):
                hvd.allreduce(torch.ones(2))
            with self.assertRaisesRegex(hvd.HorovodInternalError, "init|shut down"):
                hvd.barrier()
            hvd.shutdown()
            hvd.init()
            self.assertEqual((hvd.rank(), hvd.size()), (self.rank, self.size))
            self.assert_equal_tensors(hvd.allreduce(torch.ones(2), op=hvd.Sum), torch.full((2,), float(self.size)))

    def test_handles_that_are_pending_at_a_shutdown_end_with_an_error_once(self):
        for init_before in (False, True):
            handle = hvd.allreduce_async(torch.ones(2), name="pending") if self.rank == 0 else None
            hvd.barrier()
            hvd.shutdown()
            if init_before:
                hvd.init()
            if handle is not None:
                self.assertTrue(hvd.poll(handle))
                with self.assertRaisesRegex(hvd.HorovodInternalError, r"before hvd.shutdown\(\)"):
                    hvd.synchronize(handle)
                self.assertIsNone(hvd.synchronize(handle))
            hvd.init()
            self.assertEqual(hvd.allgather_object(self.rank), list(range(self.size)))

    def test_ranks_that_comm_lists_are_a_job_of_their_own(self):
        hvd.init(comm=list(range(self.size)))
        with self.assertRaisesRegex(ValueError, "list of ranks"):
            hvd.init(comm=object())
        self.assertTrue(hvd.is_initialized())
        hvd.shutdown()
        first = list(range((self.size + 1) // 2))
        mine = (first if self.rank in first else list(range(len(first), self.size)))[::-1]
        hvd.init(comm=mine)
        self.assertEqual((hvd.rank(), hvd.size()), (mine.index(self.rank), len(mine)))
        self.assertEqual(hvd.allgather_object(self.rank), mine)
        hvd.shutdown()
        with self.assertRaisesRegex(ValueError, str(self.size + 3)):
            hvd.init(comm=[self.rank, self.size + 3])
        hvd.init()
        self.assertEqual(hvd.size(), self.size)

    def test_a_programs_own_signals_and_faulthandler_stay_as_they_are(self):
        heard = []
        number = signal.SIGRTMIN + 5
        with tempfile.TemporaryFile("w+") as file:
            faulthandler.register(signal.SIGUSR1, file=file, chain=False)
            signal.signal(number, lambda *_: heard.append(number))
            try:
                hvd.shutdown()
                hvd.init()
                signal.raise_signal(signal.SIGUSR1)
                signal.raise_signal(number)
            finally:
                faulthandler.unregister(signal.SIGUSR1)
                signal.signal(number, signal.SIG_DFL)
            file.seek(0)
            self.assertIn("life_test.py", file.read())
        self.assertEqual(heard, [number])

    def test_the_global_process_set_is_everybody(self):
        everybody = hvd.global_process_set
        self.assertEqual(everybody.ranks, list(range(self.size)))
        self.assertEqual((everybody.rank(), everybody.size()), (self.rank, self.size))
        self.assertTrue(everybody.included())
        self.assertFalse(hvd.remove_process_set(everybody))
        with self.assertRaisesRegex(ValueError, "not registered"):
            hvd.allreduce(torch.ones(1), process_set=hvd.ProcessSet([0]))

    def test_a_missing_part_is_not_claimed(self):
        for name in [
            "mpi_built",
            "gloo_built",
            "ddl_built",
            "ccl_built",
            "cuda_built",
            "rocm_built",
            "mpi_enabled",
            "gloo_enabled",
            "mpi_threads_supported",
        ]:
            self.assertIs(type(getattr(hvd, name)()), bool, name)
        self.assertIs(type(hvd.nccl_built()), int)
        self.assertFalse(hvd.mpi_threads_supported() and not hvd.mpi_built())

    def test_a_forked_child_knows_its_rank_but_takes_no_part(self):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                hvd.allreduce(torch.ones(1))
                answer = "it took part"
            except hvd.HorovodInternalError as error:
                answer = f"{hvd.rank()} {error}"
            except BaseException as error:
                answer = repr(error)
            os.write(writer, answer.encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as file:
            answer = file.read()
        os.waitpid(child, 0)
        self.assertRegex(answer, f"^{self.rank} .*forked")
        hvd.barrier()

    def test_every_thread_can_wait(self):
        results = {}

        def work(name):
            results[name] = hvd.allreduce(torch.ones(3), name=name, op=hvd.Sum)

        threads = [threading.Thread(target=work, args=(f"thread{i}",)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for name in ["thread0", "thread1", "thread2", "thread3"]:
            self.assert_equal_tensors(results[name], torch.full((3,), float(self.size)))

    def test_a_signal_reaches_python_while_the_main_thread_waits(self):
        # Other ranks submit "late" only after the wait of rank 0 was interrupted.
        if self.size == 1:
            self.skipTest("asks for a rank to wait for")
        tensor = torch.ones(1)
        if self.rank == 0:
            handle = hvd.allreduce_async_(tensor, name="late", op=hvd.Sum)
            before = signal.signal(signal.SIGALRM, self._interrupt)
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.2)
                with self.assertRaises(KeyboardInterrupt):
                    hvd.synchronize(handle)
            finally:
                signal.signal(signal.SIGALRM, before)
        hvd.broadcast(torch.ones(1), 0, name="interrupted")
        if self.rank != 0:
            handle = hvd.allreduce_async_(tensor, name="late", op=hvd.Sum)
        self.assertIs(hvd.synchronize(handle), tensor)
        self.assertEqual(tensor.item(), self.size)

    def _interrupt(self, *unused):
        raise KeyboardInterrupt


if __name__ == "__main__":
    rank_case.main()
