#!/usr/bin/python3 -B
"""Users' programs in C and C++: CMake and pkg-config find an installation, and the programs build and run."""

import contextlib
import shutil

from harness import *

EXAMPLES = ROOT / "examples/native"
WANTED = r"2 ranks: y = (3\.0|2\.9)\d x -(2\.0|1\.9)\d\n"


@contextlib.contextmanager
def installation():
    with tempfile.TemporaryDirectory() as folder:
        prefix = pathlib.Path(folder, "prefix")
        subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix], check=True, stdout=subprocess.DEVNULL)
        yield prefix, pathlib.Path(folder, "build")


def run(*command, **more):
    done = run_to_end(list(map(str, command)), **more)
    expect(done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def trains(prefix, program, **environment):
    job = Job("-np", 2, program, program=prefix / "bin/horovodrun", environment=clean_environment(**environment))
    job.ends_with(0)
    expect(re.search(WANTED, job.out), job.describe())


def test_cmake_finds_it_and_the_examples_train():
    with installation() as (prefix, build):
        run(
            "cmake",
            "-S",
            EXAMPLES,
            "-B",
            build,
            f"-DCMAKE_PREFIX_PATH={prefix}",
            "-DCMAKE_C_FLAGS=-Wall -Wextra -Werror",
            "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror",
        )
        run("cmake", "--build", build)
        trains(prefix, build / "linear_regression_c")
        trains(prefix, build / "linear_regression_cpp")


JOINED = """
import os, numpy, horovod.numpy as hvd
hvd.init()
if hvd.rank() == 1:
    hvd.join()
else:
    total = hvd.allreduce(numpy.full(3, 2, numpy.float32), op=hvd.Sum)
    handles = [hvd.allreduce_async(numpy.full(5, turn, numpy.float32), op=hvd.Average, name=f"t{turn}")
               for turn in range(40)]
    means = [float(hvd.synchronize(handle)[0]) for handle in handles]
    os.write(1, f"total {total[0]:g}, means right: "
             f"{numpy.allclose(means, numpy.arange(40) * 2 / 3)}\\n".encode())
    hvd.join()
"""


def test_a_plugin_from_outside_runs_and_bad_ones_are_left_out():
    with installation() as (prefix, build):
        build.mkdir()
        run(
            *"cc -std=c11 -Wall -Wextra -Werror -shared -fPIC".split(),
            "-I",
            prefix / "include",
            ROOT / "examples/plugin/store_sum.c",
            "-o",
            build / "store_sum.so",
        )
        (build / "cut.so").write_bytes((build / "store_sum.so").read_bytes()[:6000])
        for folder, name in (("plugins", "bad_abi"), ("plugins-crashing", "crashing")):
            shutil.copy(BUILD / "tests" / folder / f"{name}.so", build)
        job = Job(
            "-np",
            3,
            PYTHON,
            WORKERS / "foreign_rank.py",
            environment=clean_environment(HOROVOD_PLUGIN_PATH=f"{build}:/nowhere", HOROVOD_LOG_LEVEL="info"),
        )
        job.ends_with(0, 300)
        for rank in range(3):
            expect(re.search(rf"rank {rank} of 3, .* sum 6 ", job.out), job.describe())
        for words in (
            "small sums go through the store",
            r"bad_abi.so: .* speaks plugin ABI 99",
            "HOROVOD_PLUGIN_PATH names /nowhere, which is no folder",
            r"left out: .*cut\.so",
            r"left out: .*crashing\.so crashes",
        ):
            expect(re.search(words, job.err), f"{words!r}\n{job.describe()}")
        job = Job(
            "-np",
            3,
            PYTHON,
            "-c",
            JOINED,
            environment=clean_environment(HOROVOD_PLUGIN_PATH=build, HOROVOD_FUSION_THRESHOLD="0"),
        )
        job.ends_with(0)
        expect(job.out.count("total 4, means right: True") == 2, job.describe())


def test_a_program_in_rust_uses_the_c_abi():
    if shutil.which("rustc") is None:
        raise Skip("there is no rustc")
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder, "sum")
        run(
            "rustc",
            "-D",
            "warnings",
            EXAMPLES / "sum.rs",
            "-o",
            program,
            "-L",
            BUILD / "lib",
            "-C",
            f"link-arg=-Wl,-rpath,{BUILD / 'lib'}",
        )
        job = Job("-np", 3, program)
        job.ends_with(0)
        for rank in range(3):
            expect(f"rank {rank} of 3: the sum of the ranks is 3" in job.out, job.describe())


def test_pkg_config_finds_it_and_the_examples_train():
    with installation() as (prefix, build):
        build.mkdir()
        found = {**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}
        flags = run("pkg-config", "--cflags", "--libs", "horovod", env=found).split()
        run("cc", EXAMPLES / "linear_regression.c", "-o", build / "c", *flags, "-lm")
        run("c++", "-std=c++20", EXAMPLES / "linear_regression.cpp", "-o", build / "cpp", *flags)
        for name in ("c", "cpp"):
            trains(prefix, build / name, LD_LIBRARY_PATH=str(prefix / "lib"))


if __name__ == "__main__":
    main()
