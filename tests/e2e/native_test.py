#!/usr/bin/python3 -B
"""What users write in C and C++ against an installation: found, built and run by its own tools."""
import contextlib

from harness import *  # noqa: F403

EXAMPLES = ROOT / "examples/native"
WANTED = r"2 ranks: y = (3\.0|2\.9)\d x -(2\.0|1\.9)\d\n"


@contextlib.contextmanager
def installation():
    with tempfile.TemporaryDirectory() as folder:
        prefix = pathlib.Path(folder, "prefix")
        subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix], check=True,
                       stdout=subprocess.DEVNULL)
        yield prefix, pathlib.Path(folder, "build")


def run(*command, **more):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False,
                          timeout=120, **more)
    expect(done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def trains(prefix, program, **environment):
    job = Job("-np", 2, program, program=prefix / "bin/horovodrun",
              environment=clean_environment(**environment))
    job.ends_with(0)
    expect(re.search(WANTED, job.out), job.describe())


def test_cmake_finds_it_and_the_examples_train():
    with installation() as (prefix, build):
        run("cmake", "-S", EXAMPLES, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}",
            "-DCMAKE_C_FLAGS=-Wall -Wextra -Werror", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
        run("cmake", "--build", build)
        trains(prefix, build / "linear_regression_c")
        trains(prefix, build / "linear_regression_cpp")


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
