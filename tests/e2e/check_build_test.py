#!/usr/bin/python3 -B
"""--check-build marks the parts that work: without a part, its mark disappears."""

import json
import shutil

from harness import *

# The rows of the original's output, in its order, with this build's name for each.
LAYOUT = """\
Horovod v{version}:

Available Frameworks:
    [{tensorflow}] TensorFlow
    [{torch}] PyTorch
    [{mxnet}] MXNet

Available Controllers:
    [{mpi}] MPI
    [{gloo}] Gloo

Available Tensor Operations:
    [{nccl}] NCCL
    [{ddl}] DDL
    [{ccl}] CCL
    [{mpi}] MPI
    [{gloo}] Gloo    
"""  # noqa: W291, the original's text
ABOUT_INTERPRETER = (
    "horovodrun: frameworks are looked for by {}; --verbose says why a row is empty, and what fills it\n"
)
BACKENDS = ("mpi", "nccl", "ddl", "ccl")
ROWS = ("tensorflow", "torch", "mxnet", "gloo", *BACKENDS)


def check_build(*flags, launcher=None, code=0, **environment):
    done = run_to_end(
        [launcher or LAUNCHER, "--check-build", *flags],
        timeout=300,
        env=clean_environment(**environment),
        stdin=subprocess.DEVNULL,
    )
    expect(done.returncode == code, done)
    return done.stdout if code == 0 else done.stderr


def marks(launcher=None, **environment):
    """Returns the marked rows; fails unless the text equals the original's, including each blank."""
    text = check_build(launcher=launcher, **environment)
    version = run_to_end([LAUNCHER, "-v"], check=True).stdout.strip()
    pattern = re.escape(LAYOUT).replace(re.escape("{version}"), re.escape(version))
    for row in ROWS:
        pattern = pattern.replace(re.escape(f"{{{row}}}"), f"(?P<{row}>[X ])", 1)
        pattern = pattern.replace(re.escape(f"{{{row}}}"), f"(?P={row})")
    match = re.fullmatch(pattern, text)
    expect(match, f"got\n{text}expected\n{LAYOUT}")
    return {row for row in ROWS if match[row] == "X"}


def installation(folder):
    """A copy of the build from which a test can remove parts: its launcher and its Python packages."""
    subprocess.run(["cmake", "--install", BUILD, "--prefix", folder], check=True, stdout=subprocess.DEVNULL)
    return (pathlib.Path(folder, "bin/horovodrun"), str(pathlib.Path(folder, "lib/python3/dist-packages")))


def test_all_that_is_here_is_marked():
    found = marks()
    expect({"torch", "gloo"} <= found, found)
    expect(not found & {"mxnet", "ddl"}, found)
    done = run_to_end([LAUNCHER, "-cb"], check=True, timeout=300, env=clean_environment())
    expect(done.stdout == check_build(), done)


def test_a_hidden_framework_loses_its_mark():
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "torch.py").write_text("raise ImportError('hidden')\n")
        found = marks(PYTHONPATH=f"{folder}:{BUILD / 'python'}")
        expect("torch" not in found and "gloo" in found, found)


def test_a_framework_whose_import_ends_the_process_has_no_mark():
    with tempfile.TemporaryDirectory() as folder:
        torch = pathlib.Path(folder, "torch.py")
        for code, words in (
            ("import sys; sys.exit(0)", "its import ended the process, without an error"),
            ("import os; os.abort()", "it crashed by SIGABRT"),
        ):
            torch.write_text(code)
            text = check_build("--verbose", PYTHONPATH=f"{folder}:{BUILD / 'python'}")
            expect(re.search(rf"\[ \] PyTorch: {words}\n +fix: move {torch} away", text), text)


def test_a_framework_that_is_newer_than_those_of_the_tests_is_named():
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "mxnet.py").write_text("__version__ = '9.0.1'\n")
        package = pathlib.Path(folder, "horovod")
        (package / "mxnet").mkdir(parents=True)
        for name in ("__init__.py", "_version.py", "_tested.py"):
            (package / name).write_text((BUILD / "python/horovod" / name).read_text() if name != "__init__.py" else "")
        (package / "mxnet/__init__.py").write_text("")
        job = Job("--check-build", environment=clean_environment(PYTHONPATH=folder))
        job.ends_with(0)
        expect("[X] MXNet" in job.out, job.describe())
        expect(re.search(r"horovodrun: mxnet 9\.0\.1 is newer than [\d.]+, the newest that", job.err), job.describe())


def test_a_check_that_is_ended_leaves_nothing():
    with tempfile.TemporaryDirectory() as folder:
        began = pathlib.Path(folder, "began")
        pathlib.Path(folder, "torch.py").write_text(
            f"import os, time\nwith open({str(began)!r}, 'w') as file: file.write(str(os.getpid()))\ntime.sleep(3000)\n"
        )
        job = Job("--check-build", environment=clean_environment(PYTHONPATH=f"{folder}:{BUILD / 'python'}"))
        wait_until(lambda: began.exists() and began.read_text(), 60, job.describe)
        job.process.terminate()
        job.wait()
        job.leaves_nothing()


def test_a_hidden_library_loses_its_marks():
    found = marks(HOROVOD_LIBRARY="/nowhere/libhorovod.so")
    expect(not found, found)


def test_an_installation_without_a_part_loses_its_marks():
    with tempfile.TemporaryDirectory() as folder:
        launcher, packages = installation(folder)
        whole = marks(launcher=launcher, PYTHONPATH=packages)
        expect({"torch", "gloo"} <= whole, whole)
        # Without one backend's plugins, only that backend's marks disappear.
        for backend in sorted(whole & set(BACKENDS)):
            for path in pathlib.Path(folder, "lib/horovod").glob(f"*/*{backend}*"):
                path.unlink()
            left = marks(launcher=launcher, PYTHONPATH=packages)
            expect(left == whole - {backend}, f"without {backend}: {left}")
            whole = left
        for path in pathlib.Path(folder, "lib").glob("libhorovod.so*"):
            path.unlink()
        left = marks(launcher=launcher, PYTHONPATH=packages)
        expect(not left, left)
        shutil.rmtree(pathlib.Path(packages, "horovod"))
        left = marks(launcher=launcher, PYTHONPATH=packages)
        expect(not left, left)


def test_backends_whose_libraries_are_broken_lose_their_marks():
    names = {
        "mpi": ("libmpi.so.40", "libmpi.so.12", "libmpich.so.12"),
        "nccl": ("libnccl.so.2",),
        "ccl": ("libccl.so.1",),
    }
    whole = marks()
    for backend in sorted(whole & set(names)):
        with tempfile.TemporaryDirectory() as folder:
            for name in names[backend]:
                pathlib.Path(folder, name).write_text("no library\n")
            left = marks(LD_LIBRARY_PATH=folder)
            expect(backend not in left and "gloo" in left, f"without lib{backend}: {left}")


def row_marks(folder, *rows):
    """Returns the marks of these rows if the dynamic linker searches this folder first, without a Python."""
    text = check_build("--verbose", LD_LIBRARY_PATH=folder, PATH=folder)
    return [re.search(rf"\[([X ])\] {row}\b", text)[1] == "X" for row in rows]


def test_mpi_says_which_it_is():
    row = next(row for row in json.loads(check_build("--json"))["rows"] if row["name"] == "MPI")
    if not row["works"]:
        raise Skip(row["why"])
    expect(re.match(r"(Open MPI v|MPICH )\d", row["version"]), row)
    name = "libmpich.so.12" if row["version"].startswith("MPICH") else "libmpi.so.40"
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, name).write_text("no library\n")
        other = next(
            row for row in json.loads(check_build("--json", LD_LIBRARY_PATH=folder))["rows"] if row["name"] == "MPI"
        )
    if other["works"]:
        expect(f"({other['version']} is here too)" in row["version"], (row, other))


def test_other_libraries_that_are_broken_lose_their_marks():
    with tempfile.TemporaryDirectory() as folder:
        (had,) = row_marks(folder, "PMIx")
        if not had:
            raise Skip("there is no libpmix.so.2 here: packaging/packages.txt names its package")
        pathlib.Path(folder, "libpmix.so.2").write_text("no library\n")
        expect(row_marks(folder, "PMIx", "TCP") == [False, True], "PMIx kept its mark")
        launcher, _ = installation(pathlib.Path(folder, "installed"))
        pathlib.Path(folder, "installed/lib/horovod/bootstraps/pmix.so").unlink()
        text = check_build("--verbose", launcher=launcher, PATH=folder)
        expect("[ ] PMIx: this installation has no bootstrap plugin pmix" in text, text)


def test_rocm_is_marked_by_whichever_version_is_here():
    code = (
        "int hipGetDeviceCount(int* n) { *n = 2; return 0; }\nint hipRuntimeGetVersion(int* v) { *v = 6; return 0; }\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "hip.c")
        source.write_text(code)
        made = pathlib.Path(folder, "made")
        subprocess.run(["cc", "-shared", "-fPIC", source, "-o", made], check=True)
        if row_marks(folder, "ROCm")[0]:
            raise Skip("this machine has ROCm's own")
        for name in ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"):
            library = pathlib.Path(folder, name)
            shutil.copy(made, library)
            expect(row_marks(folder, "ROCm") == [True], f"no mark by {name}")
            library.write_text("no library\n")
            expect(row_marks(folder, "ROCm") == [False], f"a mark by a broken {name}")
            library.unlink()


def test_nccl_is_marked_where_a_sum_on_a_gpu_is_right():
    # Uses a test library in place of NCCL and CUDA: see tests/plugins/nccl.
    double = str(BUILD / "tests" / "libnccl_double.so")
    here = {"HOROVOD_NCCL_LIBRARY": double, "HOROVOD_CUDA_LIBRARY": double}
    expect("nccl" in marks(**here), "no mark")
    text = check_build("--verbose", **here)
    expect(f"[X] NCCL: 2.18.5, {double}" in text, text)
    for taken, words in (
        ({"HVD_DOUBLE_DEVICES": "0"}, "finds no GPU"),
        ({"HVD_DOUBLE_VERSION": "2804"}, "2.10 is the oldest"),
        ({"HVD_DOUBLE_FAILS_AFTER": "0"}, "remote process exited"),
        ({"HOROVOD_CUDA_LIBRARY": "/nowhere/libcudart.so"}, "/nowhere/libcudart.so"),
    ):
        text = check_build("--verbose", **{**here, **taken})
        expect(re.search(rf"\[ \] NCCL: .*{words}.*\n +fix: \S", text), f"{taken}:\n{text}")
    text = check_build("--verbose")
    expect(re.search(r"\[ \] DDL: .*discontinued", text), text)


def test_without_python_no_framework_is_marked():
    with tempfile.TemporaryDirectory() as folder:
        found = marks(PATH=folder)
        expect("torch" not in found and "gloo" in found, found)


def test_verbose_adds_paths_and_remedies():
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "torch.py").write_text("raise ImportError('hidden')\n")
        hidden = {"PYTHONPATH": f"{folder}:{BUILD / 'python'}"}
        text = check_build("--verbose", **hidden)
        expect(re.search(r"\[ \] PyTorch: .*\(hidden\).*\n +fix: \S", text), text)
        expect(re.search(r"\[X\] Gloo: \S.*, /\S+", text), text)
        for row in ("JAX", "PMIx", "libssh", "shared memory", "TCP", "CUDA", "ROCm"):
            expect(re.search(rf"\[[X ]\] {row}\b", text), f"no row {row} in\n{text}")
        answer = json.loads(check_build("--json", **hidden))
        rows = {(row["section"], row["name"]): row for row in answer["rows"]}
        torch = rows["Available Frameworks", "PyTorch"]
        expect(torch["works"] is False and "hidden" in torch["why"] and torch["fix"], torch)
        expect(rows["Also Looked For", "TCP"]["works"] is True, rows)
        check_build("--require", "gloo,TCP", **hidden)
        words = check_build("--require", "Gloo,PyTorch", code=1, **hidden)
        expect(re.search(r"PyTorch \(Available Frameworks\): .*hidden", words), words)
        for flags in ((), ("-H", "nobody.invalid")):
            words = check_build("--require", "Torch", *flags, code=2, **hidden)
            expect(words.startswith("horovodrun: --require: 'Torch' is not one of: TensorFlow, PyTorch"), words)


def test_the_commands_interpreter_is_asked_and_named():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([PYTHON, "-m", "venv", "--without-pip", f"{folder}/bare"], check=True)
        bare = f"{folder}/bare/bin/python3"
        script = pathlib.Path(folder, "train.py")
        script.write_text(f"#!{bare}\n")
        script.chmod(0o755)
        path = clean_environment()["PATH"]
        for command, more, asked in (
            ([], {}, PYTHON),
            ([bare, "train.py"], {}, bare),
            ([script], {}, bare),
            ([], {"VIRTUAL_ENV": f"{folder}/bare"}, bare),
            ([], {"PATH": f"{folder}/bare/bin:{path}"}, bare),
            ([PYTHON, "train.py"], {"VIRTUAL_ENV": f"{folder}/bare"}, PYTHON),
        ):
            done = run_to_end(
                [LAUNCHER, "--check-build", *command], check=True, timeout=300, env=clean_environment(**more)
            )
            mark = "X" if asked == PYTHON else " "
            expect(f"[{mark}] PyTorch\n" in done.stdout, (command, more, done))
            expect(done.stderr == ABOUT_INTERPRETER.format(asked), done)
        text = check_build("--verbose", bare, "train.py")
        expect(re.search(rf"\[X\] Python: 3\.[0-9.]+, {bare}\n", text), text)
        expect(f"fix: {bare} -m pip install torch\n" in text, text)
        answer = json.loads(check_build("--json", f"{folder}/none/python3", "train.py"))
        python = next(row for row in answer["rows"] if row["name"] == "Python")
        expect(f"cannot run {folder}/none/python3" in python["why"] and python["fix"], python)


def test_rows_are_tried_side_by_side():
    # Each of the two imports ends only after the other has begun.
    code = """
import os, time
folder, own, other = os.path.dirname(__file__), {own!r}, {other!r}
open(os.path.join(folder, own + '-began'), 'w').close()
while not os.path.exists(os.path.join(folder, other + '-began')):
    time.sleep(0.01)
raise ImportError('both began')
"""
    with tempfile.TemporaryDirectory() as folder:
        for own, other in (("torch", "jax"), ("jax", "torch")):
            pathlib.Path(folder, f"{own}.py").write_text(code.format(own=own, other=other))
        answer = json.loads(check_build("--json", PYTHONPATH=f"{folder}:{BUILD / 'python'}"))
        whys = {row["name"]: row.get("why", "") for row in answer["rows"]}
        expect("both began" in whys["PyTorch"] and "both began" in whys["JAX"], whys)


@world("a b")
def test_hosts_need_no_present_directory():
    with tempfile.TemporaryDirectory() as folder:
        # Only host b lacks it: an empty file system covers the place.
        own = pathlib.Path(folder, "own")
        own.mkdir()
        subprocess.run(
            ["nsenter", "-t", str(host.pid_of("b")), "-m", "mount", "-t", "tmpfs", "none", folder], check=True
        )
        done = run_to_end([LAUNCHER, "--check-build", "-H", "a,b"], cwd=own, timeout=300, env=clean_environment())
        expect(done.returncode == 0 and " on a, b:\n" in done.stdout, done)
        # A directory that the user names is checked, too.
        done = run_to_end([LAUNCHER, "--check-build", "-H", "a,b", "--wdir", own], timeout=300, env=clean_environment())
        expect(done.returncode == 1 and "\nb: prepare: the working directory" in done.stdout, done)


@world("a b")
def test_hosts_are_compared():
    text = check_build("-H", "a,b")
    expect(text.startswith("Horovod v") and " on a, b:\n" in text, text)
    expect("    [X] PyTorch\n" in text and text.endswith("\nThe hosts agree.\n"), text)
    # Only host b has another torch, which does not work.
    torch = pathlib.Path("/usr/lib/python3/dist-packages/torch/__init__.py")
    if not torch.exists():
        raise Skip("torch is not Debian's")
    with tempfile.TemporaryDirectory() as folder:
        hidden = pathlib.Path(folder, "hidden.py")
        hidden.write_text("raise ImportError('hidden on b')\n")
        subprocess.run(["nsenter", "-t", str(host.pid_of("b")), "-m", "mount", "--bind", hidden, torch], check=True)
        # Each host searches for the command's interpreter by itself.
        done = run_to_end(
            [LAUNCHER, "--check-build", "-H", "a,b", PYTHON, "train.py"],
            check=True,
            timeout=300,
            env=clean_environment(),
        )
        expect(re.search(r"\[ \] PyTorch: on a: \S+; on b: .*hidden on b", done.stdout), done)
        expect("\nThe hosts differ in PyTorch.\n" in done.stdout, done)
        expect(done.stderr == ABOUT_INTERPRETER.format(f"{PYTHON} on a, b"), done)
        done = run_to_end(
            [LAUNCHER, "--check-build", "-H", "a,b", "--json", "--require", "PyTorch"],
            timeout=300,
            env=clean_environment(),
        )
        expect(done.returncode == 1 and set(json.loads(done.stdout)["hosts"]) == {"a", "b"}, done)
        expect("horovodrun: b: --require: PyTorch" in done.stderr, done)
        expect("horovodrun: a:" not in done.stderr, done)
        # A silent host must not suppress another host's answer.
        faults.end("b")
        done = run_to_end([LAUNCHER, "--check-build", "-H", "a,b"], timeout=300, env=clean_environment())
        expect(done.returncode == 1 and re.search(r" on a:\n(?s:.*)\[X\] Gloo\n\nb: connect: \S", done.stdout), done)


if __name__ == "__main__":
    main()
