"""The package itself: effects, requirements and errors of its import. Runs as one process."""

import importlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import unittest

import rank_case
from rank_case import hvd

import horovod.common
from horovod import _elastic, _library, _redirect, _tested
from horovod.torch import _torch_calls


def run(program, **environment):
    """Runs `program` in a new interpreter."""
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        timeout=200,
        capture_output=True,
        text=True,
    )


class TestedVersionsTest(unittest.TestCase):
    def test_a_version_that_is_newer_than_the_newest_tested_has_a_note(self):
        major, minor = map(int, _tested.NEWEST["torch"].split("."))
        newer = f"{major}.{minor + 1}.0a0+git"
        self.assertIn(f"torch {newer} is newer than {major}.{minor}, the newest", _tested.note("torch", newer))
        for version in (f"{major}.{minor}.9+cu132", "1.13.1", f"{major}.{minor - 1}", "unknown", ""):
            self.assertIsNone(_tested.note("torch", version), version)

    def test_rank_0_says_once_that_the_framework_is_newer(self):
        start = "import horovod.torch as hvd; hvd.init(); hvd.shutdown(); hvd.init()"
        done = run(f"import torch; torch.__version__ = '99.1.0'; {start}")
        self.assertEqual(done.stderr.count("horovod: torch 99.1.0 is newer than "), 1, done.stderr)
        self.assertNotIn("is newer than", run(start).stderr)


class RedirectTest(unittest.TestCase):
    def make(self, first, second):
        def function(number, *, scale=2):
            return first + second + number * scale

        return function

    def test_a_function_with_free_variables_is_redirected_once(self):
        function, calls = self.make(1, 2), []

        def call(original, *args, **kwargs):
            calls.append((args, kwargs))
            return original(*args, **kwargs)

        _redirect.redirect(function, lambda *unused: self.fail("the first redirection is replaced"))
        _redirect.redirect(function, call)
        self.assertEqual((function(3), function(3, scale=4)), (9, 15))
        self.assertEqual(calls, [((3,), {}), ((3,), {"scale": 4})])
        self.assertEqual(function.__code__.co_freevars, ("first", "second"))

    def test_other_threads_may_call_the_function_meanwhile(self):
        def function(number=3, *, scale=2):
            return number * scale

        results = []

        def trace(frame, event, argument):
            results.append((function(), function(4, scale=3)))
            return trace

        sys.settrace(lambda frame, *_: trace if frame.f_code is _redirect.redirect.__code__ else None)
        try:
            _redirect.redirect(function, lambda original, *args, **kwargs: original(*args, **kwargs))
        finally:
            sys.settrace(None)
        self.assertGreater(len(results), 8)
        self.assertEqual(set(results), {(6, 12)})

    def test_torch_compiles_redirected_functions(self):
        if not hasattr(rank_case.torch, "compile"):
            self.skipTest("this torch compiles nothing")
        torch, function = rank_case.torch, self.make(1, 2)

        def call(original, *args):
            torch._dynamo.graph_break()
            return original(*args)

        _redirect.redirect(function, call)
        layer = torch.nn.Linear(3, 3)
        layer(torch.ones(2, 3)).sum().backward()

        def clipped(values):
            values = function(values)
            return values + torch.nn.utils.clip_grad_norm_(layer.parameters(), 1e9)

        compiled = torch.compile(clipped, backend="eager")
        self.assertTrue(torch.equal(compiled(torch.ones(2)), clipped(torch.ones(2))))

    def test_a_module_that_is_imported_again_reduces_once(self):
        class Reducer:
            def __init__(self):
                self.calls = []

            def begin_pass(self, thread):
                self.calls.append("begin")

            def end_pass(self, thread):
                self.calls.append("end")

            def owned(self, ids):
                return ids

            def reduce_early(self):
                self.calls.append("reduce")

            def record_step(self):
                pass

        reducer, model = Reducer(), rank_case.torch.nn.Linear(2, 1)
        _torch_calls.watch(reducer)
        importlib.reload(_torch_calls).install()
        model(rank_case.torch.ones(1, 2)).sum().backward()
        rank_case.torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        # In some versions, clipping calls other functions that read gradients.
        self.assertEqual(reducer.calls[:2] + sorted(set(reducer.calls[2:])), ["begin", "end", "reduce"])


class PackageTest(unittest.TestCase):
    def test_importing_horovod_imports_no_framework_and_opens_no_library(self):
        done = run(
            "import sys, horovod; print(horovod.__version__);"
            "assert not {'torch', 'tensorflow', 'jax', 'numpy', 'ctypes'} & set(sys.modules)",
            HOROVOD_LIBRARY="/nonexistent/libhorovod.so",
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout.strip(), horovod.__version__)

    def test_importing_horovod_torch_imports_no_other_framework(self):
        done = run("import sys, horovod.torch;assert not {'tensorflow', 'keras', 'jax', 'mxnet'} & set(sys.modules)")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_the_version_is_0_28_or_later_and_the_library_s_own(self):
        self.assertGreaterEqual(tuple(map(int, horovod.__version__.split("."))), (0, 28))
        self.assertEqual(hvd.__version__, horovod.__version__)
        self.assertEqual(_library.library().hvd_version().decode(), horovod.__version__)

    def test_files_of_the_original_in_our_folder_are_refused(self):
        ours = os.path.dirname(horovod.__file__)
        with tempfile.TemporaryDirectory() as folder:
            mixed = os.path.join(folder, "horovod")
            os.makedirs(os.path.join(mixed, "runner"))
            for name in ("__init__.py", "_version.py"):
                shutil.copy(os.path.join(ours, name), mixed)
            program = f"import sys; sys.path.insert(0, {folder!r}); import horovod"
            self.assertEqual(run(program).stderr, "")
            open(os.path.join(mixed, "runner", "js_run.py"), "w").close()
            done = run(program)
        self.assertRegex(
            done.stderr.strip().splitlines()[-1],
            f"^ImportError: {mixed} holds files of the original Horovod .* remove that folder",
        )

    def test_a_missing_library_is_one_sentence_that_names_the_place(self):
        done = run("import horovod.torch", HOROVOD_LIBRARY="/nonexistent/libhorovod.so")
        last = done.stderr.strip().splitlines()[-1]
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(last, r"^ImportError: .*/nonexistent/libhorovod\.so.*HOROVOD_LIBRARY")

    def test_a_broken_library_is_one_sentence_that_names_it(self):
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(b"no library")
            file.flush()
            done = run("import horovod.torch", HOROVOD_LIBRARY=file.name)
        self.assertRegex(done.stderr.strip().splitlines()[-1], f"^ImportError: .*{file.name}")

    def test_a_missing_torch_is_one_sentence_that_says_how_to_get_it(self):
        done = run("import sys; sys.modules['torch'] = None; import horovod.torch")
        self.assertRegex(
            done.stderr.strip().splitlines()[-1],
            f"^ImportError: .*PyTorch, which {sys.executable} cannot import.*install",
        )

    def test_a_framework_that_is_broken_or_too_old_is_one_sentence_that_names_it(self):
        for module, name, least in [
            ("torch", "PyTorch", "1.13"),
            ("numpy", "numpy", "1.17"),
            ("tensorflow", "TensorFlow", "2.4"),
            ("jax", "JAX", "0.4"),
            ("mxnet", "MXNet", "1.9"),
            ("keras", "Keras", "2"),
        ]:
            for source, words in [
                (
                    "raise OSError('libx.so: cannot open')",
                    r"cannot import \(libx.so: cannot open\)"
                    ", though it is in {file}",
                ),
                ("__version__ = '0.1.2'", f"{least} or later, and .* has 0.1.2 in {{file}}"),
                ("pass", f"{least} or later, and what .* imports .* is none"),
            ]:
                with tempfile.TemporaryDirectory() as folder:
                    file = os.path.join(folder, module, "__init__.py")
                    os.mkdir(os.path.dirname(file))
                    with open(file, "w", encoding="utf-8") as code:
                        code.write(source)
                    done = run(f"import sys; sys.path.insert(0, {folder!r}); import horovod.{module}")
                self.assertRegex(
                    done.stderr.strip().splitlines()[-1],
                    f"^ImportError: horovod.{module} needs {name}.*{words.format(file=file)}.*install",
                )

    def test_names_are_where_scripts_import_them_from(self):
        from horovod.common import exceptions, process_sets, util
        from horovod.torch import mpi_ops

        self.assertIs(exceptions.HorovodInternalError, hvd.HorovodInternalError)
        self.assertTrue(issubclass(exceptions.HostsUpdatedInterrupt, RuntimeError))
        for name in process_sets.__all__:
            self.assertIs(getattr(process_sets, name), getattr(hvd, name))
        for name in util.__all__:
            if name.endswith("_built"):
                self.assertEqual(getattr(util, name)(verbose=True), bool(getattr(hvd, name)()), name)
        self.assertEqual(util.split_list(list("abcde"), 3), [["a", "b"], ["c", "d"], ["e"]])
        self.assertEqual(util.split_list(l=list("ab"), n=3), [["a"], ["b"], []])
        self.assertEqual([n for n in range(10) if util.num_rank_is_power_2(n)], [1, 2, 4, 8])
        self.assertEqual([util.is_iterable(each) for each in ([], "a", 3)], [True, True, False])
        for name in mpi_ops.__all__:
            self.assertIs(getattr(mpi_ops, name), getattr(hvd, name), name)
        self.assertTrue(issubclass(mpi_ops.HorovodAllreduce, rank_case.torch.autograd.Function))
        self.assertLessEqual(set(hvd.__all__), set(dir(hvd)))
        done = run(
            "import horovod.torch as hvd; print(hvd.mpi_ops.Sum, hvd.optimizer, hvd.elastic, "
            "hvd.functions.broadcast_parameters, hvd.compression.Compression)"
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_the_end_of_a_program_waits_for_work_that_is_not_submitted_unless_it_failed(self):
        program = (
            "import horovod.torch as hvd; from horovod import _ops; hvd.init();"
            "_ops.also_complete(lambda limit: print('waited'));"
        )
        self.assertEqual(run(program).stdout, "waited\n")
        failed = run(program + "raise KeyError('end')")
        self.assertIn("KeyError", failed.stderr)
        self.assertEqual(failed.stdout, "")

    def test_ctrl_c_ends_a_program_that_waits_in_shutdown(self):
        # The library may wait there without a limit; a Python handler would run only afterwards.
        for call in ("hvd.shutdown()", "pass"):
            done = run(
                "import os, signal, types, horovod.torch as hvd; from horovod import _basics; hvd.init();"
                "leave = lambda *unused: os.kill(os.getpid(), signal.SIGINT);"
                f"_basics.library = lambda: types.SimpleNamespace(hvd_shutdown=leave); {call}"
            )
            self.assertEqual((done.returncode, done.stderr), (-signal.SIGINT, ""), call)

    def test_modules_are_attributes_after_import_horovod(self):
        done = run(
            "import horovod; print(horovod.common.util.split_list([1], 1), horovod.runner.run, "
            "horovod.common.basics.HorovodBasics.size)"
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for package in (horovod, horovod.common):
            with self.assertRaises(AttributeError):
                package.missing  # noqa: B018

    def test_one_object_has_the_functions_of_hvd(self):
        from horovod.common.basics import HorovodBasics

        basics = HorovodBasics(__file__, "mpi_lib_v2")
        for name in dir(basics):
            if not name.startswith("_") and name != "MPI_LIB_CTYPES":
                self.assertEqual(getattr(basics, name), getattr(hvd, name), name)
        self.assertEqual(basics.MPI_LIB_CTYPES.hvd_is_initialized(), 0)
        self.assertEqual((basics.Average, basics.is_initialized()), (hvd.Average, False))

    def test_helpers_of_common_util(self):
        from horovod.common import util

        with util.env(HVD_SET="1", PATH=None, HVD_ABSENT=None):
            self.assertEqual((os.environ["HVD_SET"], os.environ.get("PATH")), ("1", None))
        self.assertTrue("PATH" in os.environ and "HVD_SET" not in os.environ)
        for name in ("torch", "mxnet", "nonesuch"):
            present = importlib.util.find_spec(name) is not None
            self.assertEqual(util.extension_available(name, verbose=True), present)
            if not present:
                with self.assertRaisesRegex(ImportError, f"horovod.{name} needs {name}, which"):
                    util.check_extension(f"horovod.{name}", "HOROVOD_WITH", __file__, "mpi_lib")
        util.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", hvd.__file__, "mpi_lib_v2")
        util.check_installed_version("torch", "0.1")
        self.assertEqual(util.gpu_available("torch"), rank_case.torch.cuda.is_available())
        self.assertFalse(util.gpu_available("nonesuch"))
        choose = util.get_average_backwards_compatibility_fun(hvd)
        self.assertEqual([choose(None, None), choose(hvd.Min, None)], [hvd.Average, hvd.Min])
        with self.assertWarns(DeprecationWarning):
            self.assertEqual(choose(None, False), hvd.Sum)
        self.assertRaises(ValueError, choose, hvd.Sum, True)
        newer = util.is_version_greater_equal_than
        self.assertTrue(newer("2.13.0", "2.4.0") and newer("1.13.1+cpu", "1.13.1") and newer("3", "3.0.0"))
        self.assertFalse(newer("2.4.9", "2.13.0"))
        self.assertRaises(ValueError, newer, "2.4.0", "2.4")
        path = util.get_extension_full_path("/x/horovod/__init__.py", "torch", "mpi_lib")
        self.assertEqual(path, "/x/horovod/torch/mpi_lib" + sysconfig.get_config_var("EXT_SUFFIX"))

    def test_the_error_of_another_version_has_its_parts(self):
        from horovod.common.exceptions import HorovodVersionMismatchError

        error = HorovodVersionMismatchError("torch", "1.0", "2.0")
        self.assertEqual((error.name, error.version, error.installed_version), ("torch", "1.0", "2.0"))
        self.assertRegex(str(error), "torch 1.0.*torch 2.0")
        self.assertIsInstance(error, ImportError)

    def test_a_process_set_is_made_of_its_ranks(self):
        made = hvd.ProcessSet([2, 0])
        self.assertEqual([hvd.ProcessSet(ranks=[0, 2]), hvd.ProcessSet(ranks_or_comm=[0, 2])], [made] * 2)
        self.assertIsNone(made.mpi_comm)
        made.ranks = range(3)
        self.assertEqual(made.ranks, [0, 1, 2])
        for wrong in (hvd.ProcessSet, lambda: hvd.ProcessSet([0], ranks=[0])):
            self.assertRaises(TypeError, wrong)
        with self.assertRaises(ValueError):
            hvd.global_process_set.ranks = [0]

    def test_modules_of_torch_have_the_names_that_the_original_imports_there(self):
        from horovod.torch import functions, mpi_ops, optimizer, sync_batch_norm

        for module, names in [
            (mpi_ops, ["Compression", "_basics", "gpu_available", "num_rank_is_power_2"]),
            (
                functions,
                [
                    "ProcessSet",
                    "allgather",
                    "broadcast_",
                    "broadcast_async_",
                    "global_process_set",
                    "rank",
                    "size",
                    "synchronize",
                ],
            ),
            (
                optimizer,
                [
                    "Adasum",
                    "Average",
                    "ProcessSet",
                    "Sum",
                    "_DistributedAdasumOptimizer",
                    "_DistributedOptimizer",
                    "allreduce_async_",
                    "broadcast_object",
                    "global_process_set",
                    "grouped_allreduce_async_",
                    "rocm_built",
                    "size",
                    "sparse_allreduce_async",
                    "split_list",
                    "synchronize",
                ],
            ),
            (sync_batch_norm, ["Sum", "allgather_async", "allreduce_async", "size", "synchronize"]),
        ]:
            for name in names:
                self.assertTrue(hasattr(module, name), f"{module.__name__}.{name}")
                self.assertIs(getattr(module, name), getattr(hvd, name, getattr(module, name)), name)
        self.assertEqual(mpi_ops._basics.is_initialized(), hvd.is_initialized())
        choose = mpi_ops.handle_average_backwards_compatibility
        self.assertEqual([choose(None, None), choose(hvd.Max, None)], [hvd.Average, hvd.Max])
        with self.assertWarns(DeprecationWarning):
            self.assertEqual(choose(None, False), hvd.Sum)
        with self.assertRaisesRegex(ValueError, "not both"):
            choose(hvd.Sum, True)

    def test_names_of_elastic_training_are_where_scripts_import_them_from(self):
        from horovod.common import elastic as common
        from horovod.torch.elastic import sampler, state

        for name in ["ObjectState", "State", "run_fn"]:
            self.assertIs(getattr(common, name), getattr(_elastic, name), name)
        self.assertIs(sampler.ElasticSampler, hvd.elastic.ElasticSampler)
        self.assertIs(hvd.elastic.ObjectState, common.ObjectState)
        self.assertEqual([hvd.elastic.init, hvd.elastic.shutdown], [hvd.init, hvd.shutdown])
        # The call also restarts the groups of torch.distributed.
        self.assertIs(hvd.elastic.run_fn.__wrapped__, common.run_fn)
        for name in ["TorchState", "get_handler_registry", "set_handler_registry"]:
            self.assertIs(getattr(state, name), getattr(hvd.elastic, name), name)
        kept = [handler for _, handler in state.get_handler_registry()]
        self.assertEqual(
            kept,
            [
                state.ModelStateHandler,
                state.OptimizerStateHandler,
                state.SamplerStateHandler,
                state.SamplerStateHandler,
                state.SchedulerStateHandler,
                state.SchedulerStateHandler,
                state.ScalerStateHandler,
            ],
        )


if __name__ == "__main__":
    rank_case.main()
