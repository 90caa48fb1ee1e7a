#!/usr/bin/python3 -B
"""--check-build tells what works here: take a thing away, and its mark goes."""
import shutil

from harness import *  # noqa: F403

LAYOUT = """\
Horovod v{version}:

Available Frameworks:
    [ ] TensorFlow
    [{torch}] PyTorch
    [ ] MXNet

Available Controllers:
    [ ] MPI
    [{library}] Gloo

Available Tensor Operations:
    [ ] NCCL
    [ ] DDL
    [ ] CCL
    [ ] MPI
    [{library}] Gloo    
"""


def check(torch, library, flag="--check-build", launcher=None, **environment):
    done = subprocess.run([launcher or LAUNCHER, flag], capture_output=True, text=True, timeout=120,
                          env=clean_environment(**environment), stdin=subprocess.DEVNULL,
                          check=False)
    version = subprocess.run([LAUNCHER, "-v"], capture_output=True, text=True,
                             check=True).stdout.strip()
    expect(done.returncode == 0, done)
    wanted = LAYOUT.format(version=version, torch=torch, library=library)
    expect(done.stdout == wanted, f"got\n{done.stdout}expected\n{wanted}{done.stderr}")


def test_all_that_is_here_is_marked():
    check("X", "X")
    check("X", "X", flag="-cb")


def test_a_hidden_framework_loses_its_mark():
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "torch.py").write_text("raise ImportError('hidden')\n")
        check(" ", "X", PYTHONPATH=f"{folder}:{BUILD / 'python'}")


def test_a_hidden_library_loses_its_marks():
    check(" ", " ", HOROVOD_LIBRARY="/nowhere/libhorovod.so")


def test_an_installation_without_its_library_loses_its_marks():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["cmake", "--install", BUILD, "--prefix", folder], check=True,
                       stdout=subprocess.DEVNULL)
        launcher = pathlib.Path(folder, "bin/horovodrun")
        packages = str(pathlib.Path(folder, "lib/python3/dist-packages"))
        check("X", "X", launcher=launcher, PYTHONPATH=packages)
        pathlib.Path(folder, "lib/libhorovod.so").unlink()
        check(" ", " ", launcher=launcher, PYTHONPATH=packages)
        shutil.rmtree(pathlib.Path(packages, "horovod"))
        check(" ", " ", launcher=launcher, PYTHONPATH=packages)


def test_without_python_no_framework_is_marked():
    with tempfile.TemporaryDirectory() as folder:
        check(" ", "X", PATH=folder)


if __name__ == "__main__":
    main()
