#!/usr/bin/python3 -B
"""Jobs that Python programs start, and the wheel that pip installs."""

import glob
import shutil
import zipfile

from harness import *

PYTHONS = os.environ.get("HVD_TEST_PYTHONS", PYTHON).split(":")
PIP = os.environ.get("HVD_TEST_WHEEL", "")  # an interpreter with scikit-build-core
CALLER = """
import socket
import horovod

def work(scale):
    import numpy
    import horovod.numpy as hvd
    hvd.init()
    total = hvd.allreduce(numpy.full(3, hvd.rank() * scale), op=hvd.Sum)
    return hvd.rank(), socket.gethostname(), total.tolist()

for result in horovod.run(work, (2.0,), num_proc=4, hosts="a:2,b:2"):
    print(result, flush=True)

def fails():
    import os
    if os.environ["HOROVOD_RANK"] == "3":
        raise LookupError("nothing on " + socket.gethostname())
    import threading
    threading.Event().wait()

try:
    horovod.run(fails, num_proc=4, hosts="a:2,b:2")
except RuntimeError as error:
    print(repr(error.__cause__), "in fails" in str(error), flush=True)
"""


def command(*words, environment=None, seconds=170, cwd=ROOT):
    done = run_to_end(
        list(map(str, words)),
        timeout=seconds,
        stdin=subprocess.DEVNULL,
        cwd=cwd,
        env=environment or clean_environment(),
    )
    expect(done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


@world()
def test_a_function_runs_on_two_hosts_and_its_results_come_back():
    before = Inventory()
    said = command(PYTHON, "-c", CALLER).splitlines()
    wanted = [str((rank, "ab"[rank // 2], [12.0] * 3)) for rank in range(4)]
    expect(said == wanted + ["LookupError('nothing on b') True"], said)
    before.wait_for_ends()


# After a failure while the library uses the tensors, Python still owns them: tensors of handles that a program waits
# for, and of other handles.
KEEPS = """
import gc, sys, time, weakref
import {name} as tensors, horovod.{name} as hvd
seen = []
for waits in (True, False):
    for submit in (hvd.allreduce_async, hvd.allgather_async, hvd.allreduce_async_):
        hvd.init()
        tensor = tensors.ones(1000)
        seen.append(weakref.ref(tensor))
        try:
            handle = submit(tensor, name=f"x{{len(seen)}}")
            if waits:
                hvd.synchronize(handle)
                sys.exit("the work has not failed")
            while not hvd.poll(handle):
                time.sleep(0.01)
        except hvd.HorovodInternalError as error:
            print(error)
        tensor = handle = None
        hvd.shutdown()
gc.collect()
print("kept", sum(one() is not None for one in seen), "of", len(seen))
"""


def test_tensors_that_a_library_uses_after_a_failure_are_kept():
    for name in ("torch", "numpy"):
        job = Job(
            "-np",
            2,
            PYTHON,
            "-c",
            KEEPS.format(name=name),
            environment=clean_environment(HOROVOD_PLUGIN_PATH=BUILD / "tests" / "plugins-failing"),
        )
        job.ends_with(0)
        expect(job.out.count("kept 6 of 6") == 2 and "the library uses tensors" in job.out, job.describe())


def packages_of(python):
    """Returns the folder in which this interpreter has torch."""
    return command(python, "-c", "import pathlib, torch; print(pathlib.Path(torch.__file__).parent.parent)").strip()


def fresh_environment(folder):
    """Makes an interpreter with no packages but pip."""
    command(PYTHON, "-m", "venv", folder)
    return folder / "bin/python3"


def meets_frameworks_that_come_later(python, folder):
    """The package next to this interpreter works without a framework, with one, and with another version of the
    framework."""
    binaries = python.parent
    launcher = binaries / "horovodrun"

    def installed(*words, path=""):
        return command(*words, environment=clean_environment(PYTHONPATH=path), cwd=folder)

    # Without a framework.
    version = installed(launcher, "--version").strip()
    said = installed(
        python,
        "-c",
        "import horovod, horovod.data, horovod.runner as r;"
        "print(horovod.__version__, horovod.data.__version__, r.__version__)",
    )
    expect(said.split() == [version] * 3, said)
    said = installed(launcher, "--check-build")
    expect("[ ] PyTorch" in said and "[X] Gloo" in said, said)
    done = run_to_end([python, "-c", "import horovod.torch"], env=clean_environment(PYTHONPATH=""))
    expect("horovod.torch needs PyTorch" in done.stderr, done.stderr)
    expect(installed(binaries / "horovod-rendezvous", "--help"), "no help")
    # With one version of torch, then with another.
    train = ROOT / "examples/torch_digits.py"
    for other in PYTHONS:
        packages = packages_of(other)
        said = installed(launcher, "--check-build", path=packages)
        expect("[X] PyTorch" in said, said)
        said = installed(launcher, "-np", 2, python, train, "--epochs", 1, path=packages)
        expect("test accuracy" in said, said)


def expect_all(held):
    """Checks that these names, relative to the package, include all files that a wheel needs. Wheels of pip lack the
    plugin that is linked with Debian's libgloo."""
    expect({"py.typed", "_native.abi3.so", "libhorovod.so", "tensorflow/_async_kernels.cpp"} <= held, held)
    built = BUILD / "lib"
    for plugin in built.glob("horovod/*/*.so"):
        expect(
            str(plugin.relative_to(built)) in held or plugin.name == "gloo.so", f"{plugin} is not in the wheel: {held}"
        )


def test_a_wheel_has_all_parts():
    with tempfile.TemporaryDirectory() as folder:
        command("cmake", "--install", BUILD, "--component", "wheel", "--prefix", folder)
        package = pathlib.Path(folder) / "horovodrun/site/horovod"
        expect_all({str(path.relative_to(package)) for path in package.rglob("*")})


def test_a_wheel_brings_everything_and_meets_frameworks_that_come_later():
    if not PIP:
        raise Skip("HVD_TEST_WHEEL names no Python that has scikit-build-core")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        environment = clean_environment(CC="/usr/bin/cc", CXX="/usr/bin/c++")
        command(
            PIP,
            *"-m pip wheel -q --no-build-isolation --no-deps".split(),
            "-w",
            folder,
            ".",
            environment=environment,
            seconds=850,
        )
        (wheel,) = glob.glob(f"{folder}/horovodrun-*-cp38-abi3-linux_*.whl")
        expect_all({name.removeprefix("horovodrun/site/horovod/") for name in zipfile.ZipFile(wheel).namelist()})
        python = fresh_environment(folder / "fresh")
        command(
            python,
            *"-m pip install -q --no-index".split(),
            "--no-deps",
            wheel,
            environment=clean_environment(PYTHONPATH=""),
        )
        meets_frameworks_that_come_later(python, folder)
    shutil.rmtree(ROOT / "build-wheel", ignore_errors=True)


if __name__ == "__main__":
    main()
