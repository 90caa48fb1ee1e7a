#!/usr/bin/python3 -B
"""The distributions horovodrun and horovod, installed over others with these names and removed, by pip and uv.

HVD_TEST_INSTALLERS names an interpreter that has the newest pip, uv and pipx.
"""

import zipfile

import packages_test
from harness import *
from roots import call, download, make_root, mirrors, run_on_another_debian

sys.path.insert(0, str(ROOT / "packaging"))
import wheel_files

INSTALLERS = os.environ.get("HVD_TEST_INSTALLERS", "")
# The setuptools of Debian's python3-venv.
PIP = pathlib.Path("/usr/share/python-wheels")
IMPORT = "import horovod, os; print(os.path.dirname(os.path.dirname(horovod.__file__)))"
RANKS = "import os, horovod; print('rank', os.environ['HOROVOD_RANK'], 'imports', horovod.__file__)"
BACKEND = """
import importlib.metadata
found = importlib.metadata.entry_points()
found = found.select(group="torch.backends") if hasattr(found, "select") else found.get("torch.backends", ())
print({each.name for each in found}, all(callable(each.load()) for each in found))
"""
ORIGINAL_COMMAND = b"#!python\nprint('the original starts')\n"


def stand_ins(folder):
    """Makes wheels of other projects: the dependency, an extra, Horovod 0.28.1, and this project's before the split."""
    info = "Metadata-Version: 2.1\nName: {}\nVersion: {}\n"

    def write(name, version, files):
        files = {file: (data, 0o755 if "/scripts/" in file else 0o644) for file, data in files.items()}
        wheel_files.write_wheel(folder, name, version, "py3-none-any", files, info.format(name, version))

    write("cloudpickle", "3.0", {"cloudpickle/__init__.py": b""})
    write("py_spy", "0.4.3", {"py_spy-0.4.3.data/scripts/py-spy": b"#!/bin/sh\n"})
    write("ray", "2.0", {"ray/__init__.py": b""})
    write(
        "horovod",
        "0.28.1",
        {
            "horovod/__init__.py": b"",
            "horovod/common/__init__.py": b"",
            "horovod/common/basics.py": b"class HorovodBasics(object):\n    pass\n",
            "horovod-0.28.1.data/scripts/horovodrun": ORIGINAL_COMMAND,
        },
    )
    write(
        "horovod",
        "0.28.9",
        {
            "horovod/__init__.py": b"",
            "horovod/_version.py": b"",
            "horovod/libhorovod.so": b"",
            **{
                f"horovod-0.28.9.data/scripts/{name}": b"#!/bin/sh\n"
                for name in ("horovodrun", "horovod-agent", "horovod-agent-tls", "horovod-rendezvous")
            },
        },
    )


MADE = []


def wheels():
    """Returns a folder with the wheels of the release, or of this build, and of other projects."""
    if not MADE or not MADE[-1].exists():
        MADE.append(scratch())
        ours = packages_test.release_file(packages_test.WHEEL)
        if ours is None:
            ours = wheel_files.of_build(BUILD, MADE[-1], f"linux_{os.uname().machine}", zipfile.ZIP_STORED)
            wheel_files.of_wheel(ours, MADE[-1])
        else:
            for each in (ours, packages_test.release_file("horovod-*.whl")):
                shutil.copy(each, MADE[-1])
        stand_ins(MADE[-1])
    return MADE[-1]


def version():
    (wheel,) = wheels().glob("horovodrun-*.whl")
    return wheel.name.split("-")[1]


class Environment:
    """A virtual environment, and the installer that changes it."""

    def __init__(self, installer, python=PYTHON):
        self.folder = scratch() / "venv"
        code, words = call(python, "-m", "venv", "--without-pip", self.folder, seconds=60)
        expect(code == 0, words)
        self.python, self.bin = self.folder / "bin/python3", self.folder / "bin"
        (self.site,) = (self.folder / "lib").glob("python3*/site-packages")
        self.installer = installer
        self.environment = clean_environment(
            PYTHONPATH="",
            UV_CACHE_DIR=str(self.folder.parent / "cache"),
            PIP_CONFIG_FILE="/dev/null",
            PIP_DISABLE_PIP_VERSION_CHECK="1",
            UV_OFFLINE="1",
            UV_PYTHON_DOWNLOADS="never",
        )

    def run(self, *words, expected=0):
        done = run_to_end(list(map(str, words)), cwd=self.folder, stdin=subprocess.DEVNULL, env=self.environment)
        expect(done.returncode == expected, f"exit code {done.returncode}: {words}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def pip(self, command, *words):
        if self.installer == "uv":
            return self.run(pathlib.Path(INSTALLERS).parent / "uv", "pip", command, "--python", self.python, *words)
        return self.run(self.python, self.installer, command, *words)

    def install(self, *words):
        self.pip("install", "--quiet", "--no-index", "--find-links", wheels(), *words)

    def uninstall(self, name):
        self.pip("uninstall", "--quiet", *(() if self.installer == "uv" else ("--yes",)), name)

    def imports(self, folder):
        said = self.run(self.python, "-c", IMPORT).strip()
        expect(said == str(folder), f"horovod is imported from {said}, expected {folder}")

    def has_backend(self):
        said = self.run(self.python, "-c", BACKEND).strip()
        expect(said == "{'horovod'} True", f"torch does not find the backend: {said}")

    def trains(self):
        """Expects this project's program, modules and package, its backend in torch, and no complaint of pip."""
        self.imports(self.site / "horovodrun/site")
        self.has_backend()
        expect(self.run(self.bin / "horovodrun", "--version").strip() == version(), "another program")
        expect(self.run(self.python, "-m", "horovodrun", "--version").strip() == version(), "a sentence")
        self.pip("check")
        listed = self.pip("list")
        expect(len(re.findall(r"(?m)^horovodrun\b", listed)) == 1, listed)
        said = self.run(self.bin / "horovodrun", "-np", 2, self.python, "-c", RANKS)
        expect(said.count(f"imports {self.site}/horovodrun/site/horovod/__init__.py") == 2, said)

    def has_pages(self):
        """Expects the manual page and the completions of three shells."""
        share = self.folder / "share"
        page = (share / "man/man1/horovodrun.1").read_text()
        expect(page.startswith(".TH") or "\n.TH" in page, page[:200])
        places = ("bash-completion/completions/horovodrun", "zsh/site-functions/_horovodrun")
        for place in (*places, "fish/vendor_completions.d/horovodrun.fish"):
            expect("num-proc" in (share / place).read_text(), place)

    def restores_the_command(self):
        """`python3 -m horovodrun` works without the command, and names the command that restores it."""
        said = self.run(self.python, "-m", "horovodrun", "--version")
        expect(version() in said.splitlines(), said)
        (sentence,) = (line for line in said.splitlines() if line.startswith("horovodrun: "))
        expect(sentence.startswith(f"horovodrun: {self.bin}/horovodrun is missing, since another"), sentence)
        self.run("sh", "-c", sentence.partition("restore it: ")[2])
        self.trains()

    def is_empty(self):
        """Expects that nothing of the removed distributions is left."""
        left = [path for path in self.site.rglob("horovod*") if not str(path).endswith(".pyc")]
        left += self.bin.glob("horovod*")
        expect(not left, left)


def over_the_original(installer, python=PYTHON):
    environment = Environment(installer, python)
    environment.install("horovod==0.28.1")
    environment.imports(environment.site)
    environment.install("--upgrade", f"horovod[ray]=={version()}")
    environment.trains()
    environment.has_pages()
    environment.run(environment.python, "-c", "import ray, cloudpickle")
    expect(not (environment.site / "horovod").exists(), "files of the original")
    environment.uninstall("horovod")
    expect(not (environment.bin / "horovodrun").exists(), "the command is there")
    environment.restores_the_command()
    environment.uninstall("horovodrun")
    environment.is_empty()


def over_ours_of_before(installer, python=PYTHON):
    environment = Environment(installer, python)
    environment.install("horovod==0.28.9")
    environment.install("--upgrade", f"horovod=={version()}")
    environment.trains()
    environment.uninstall("horovodrun")
    environment.uninstall("horovod")
    environment.is_empty()


def replaced_by_the_original(installer, python=PYTHON):
    environment = Environment(installer, python)
    environment.install(f"horovod=={version()}")
    environment.trains()
    environment.install("horovod<0.28.2")
    environment.imports(environment.site)
    expect("the original starts" in environment.run(environment.bin / "horovodrun"), "another command")
    said = environment.run(
        environment.python, "-m", "horovodrun", "-np", 1, environment.python, "-c", RANKS, expected=2
    )
    expect(
        "which cannot join this job: uninstall it there "
        f"({environment.python} -m pip uninstall horovod, then {environment.python} -m horovodrun --version, which "
        "prints how to restore the command horovodrun)" in said,
        said,
    )
    expect(f"{environment.bin}/horovodrun is a program of another distribution: uninstall the original" in said, said)
    environment.uninstall("horovod")
    environment.restores_the_command()


def beside_the_original(installer, python=PYTHON):
    environment = Environment(installer, python)
    environment.install("horovod==0.28.1")
    environment.install(f"horovodrun=={version()}")
    environment.imports(environment.site)
    said = environment.run(
        environment.python, "-m", "horovodrun", "-np", 1, environment.python, "-c", RANKS, expected=2
    )
    expect("finds the original Horovod first" in said, said)
    environment.uninstall("horovod")
    environment.restores_the_command()
    environment.uninstall("horovodrun")
    environment.is_empty()


def in_a_target_folder(installer, python=PYTHON):
    """If Python reads no .pth file, jobs find the package, and a message names its folder."""
    environment = Environment(installer, python)
    target = environment.folder.parent / "target"
    environment.install("--target", target, f"horovod=={version()}")
    site = target / "horovodrun/site"
    said = environment.run(target / "bin/horovodrun", "-np", 2, environment.python, "-c", RANKS)
    expect(said.count(f"imports {site}/horovod/__init__.py") == 2, said)
    environment.environment["PYTHONPATH"] = str(target)
    said = environment.run(environment.python, "-m", "horovodrun", "--version")
    expect(
        f"this Python does not read {target}/horovodrun.pth: jobs of horovodrun find the package horovod, and "
        f"other programs need PYTHONPATH={site}\n" in said,
        said,
    )
    environment.environment["PYTHONPATH"] = str(site)
    environment.imports(site)
    environment.has_backend()


ORDERS = (over_the_original, over_ours_of_before, replaced_by_the_original, beside_the_original, in_a_target_folder)


def pip_of_debian():
    found = sorted(PIP.glob("pip-*.whl"))
    if not found:
        raise Skip(f"{PIP} has no pip: packaging/packages-test.txt has python3-venv")
    return found[-1] / "pip"


def test_pip_installs_ours_over_the_original_and_names_what_its_removal_takes():
    over_the_original(pip_of_debian())


def test_the_extra_accepts_the_torch_of_debian_12():
    environment, folder = Environment(pip_of_debian()), scratch()
    about = "Metadata-Version: 2.1\nName: {}\nVersion: {}\n"
    for name, number in (("torch", "1.13.0a0"), ("numpy", "1.24.2")):
        wheel_files.write_wheel(folder, name, number, "py3-none-any", {}, about.format(name, number))
    environment.pip("install", "--quiet", "--no-index", *folder.glob("*.whl"))
    environment.install(f"horovod[pytorch]=={version()}")
    environment.pip("check")
    expect(re.search(r"(?m)^torch +1\.13\.0a0$", environment.pip("list")), "another torch")


def test_pip_installs_and_removes_in_each_order():
    for order in ORDERS[1:]:
        order(pip_of_debian())


def need_installers():
    if not INSTALLERS:
        raise Skip("HVD_TEST_INSTALLERS names no Python that has pip, uv and pipx")


def test_uv_installs_and_removes_in_each_order():
    need_installers()
    for order in ORDERS:
        order("uv")


def test_the_newest_and_the_oldest_pip_install_and_remove_in_each_order():
    """pip 20.3 is the first that knows manylinux_2_34, and Python 3.8 the oldest supported version."""
    need_installers()
    folder, skipped = scratch(), []
    pairs = [("pip", PYTHON)]
    for python in sorted(pathlib.Path.home().glob(".pyenv/versions/3.8.*/bin/python3"))[:1]:
        pairs.append(("pip==20.3", python))
    for name, python in pairs:
        code, words = download(
            INSTALLERS, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder / name, name
        )
        if code != 0:
            skipped.append(f"pip download {name}: {words.strip().splitlines()[-1]}")
            continue
        (wheel,) = (folder / name).iterdir()
        for order in ORDERS:
            order(wheel / "pip", python)
    if len(pairs) == 1:
        skipped.append("~/.pyenv has no Python 3.8; the others passed")
    if skipped:
        raise Skip(skipped[0])


# The commands of docs/environments.md. Each prints the path of its Python.
IN_A_ROOT = """set -e
cd /work
export UV_OFFLINE=1 UV_PYTHON_DOWNLOADS=never PIP_NO_INDEX=1 PIP_FIND_LINKS=/var/cache/wheels
export UV_NO_INDEX=1 UV_FIND_LINKS=/var/cache/wheels PATH=/root/.local/bin:/var/cache/uv:$PATH
step() { echo "== $*"; }
step uvx
uvx --from horovodrun==VERSION horovodrun -np 2 python3 train.py
uvx --from horovodrun==VERSION horovodrun -np 2 train.py
step uvx in a project
uv venv --quiet --python /usr/bin/python3 --system-site-packages .venv
uvx --from horovodrun==VERSION horovodrun -np 2 python train.py
uvx --from horovodrun==VERSION horovodrun -np 2 train.py
step uvx in an active environment
(uv venv --quiet --python /usr/bin/python3 --system-site-packages /opt/active && . /opt/active/bin/activate &&
  uvx --from horovodrun==VERSION horovodrun -np 2 python train.py)
rm -rf .venv
step uv tool
uv tool install --quiet horovodrun==VERSION
horovodrun -np 2 python3 train.py
horovodrun -np 2 train.py
uv tool uninstall --quiet horovodrun
step pipx
pipx install horovodrun==VERSION
horovodrun -np 2 python3 train.py
horovodrun -np 2 train.py
pipx uninstall horovodrun
step pipx run
pipx run horovodrun==VERSION -np 2 python3 train.py
step uv run
mkdir project
cd project
cat >pyproject.toml <<'END'
[project]
name = "training"
version = "0"
requires-python = ">=3.8"
dependencies = ["horovod==VERSION"]
[tool.uv]
find-links = ["/var/cache/wheels"]
END
env -u UV_FIND_LINKS uv run --quiet horovodrun -np 2 python -c 'import horovod, sys; print("rank of", sys.prefix)'
uv run --quiet python -m horovodrun --version
uv run --quiet python -c 'import horovod; print("package", horovod.__file__)'
rm -rf .venv uv.lock
sed -i 's/"horovod==VERSION"//' pyproject.toml
step uv run --with
uv run --quiet --with horovodrun==VERSION horovodrun -np 2 python -c 'import horovod, sys; print("rank of", sys.prefix)'
"""
TRAIN = """import sys
import numpy, horovod.numpy as hvd
hvd.init()
print("rank", hvd.rank(), "of", hvd.size(), "by", sys.prefix, flush=True)
"""


def test_uvx_uv_run_and_pipx_start_jobs_in_a_clean_root():
    """uvx, uv tool and pipx install only horovodrun: the ranks use another Python, with a framework."""
    need_installers()
    packages_test.need_roots()
    with packages_test.folder() as path:
        root = path / "root"
        # A build that is not portable needs the last two.
        make_root(root, {"python3-venv", "python3-numpy", "pipx", "libssl3", "libyaml-cpp0.7"}, is_kept=True)
        shutil.copytree(wheels(), root / "var/cache/wheels")
        (root / "var/cache/uv").mkdir()
        for name in ("uv", "uvx"):
            shutil.copy(pathlib.Path(INSTALLERS).parent / name, root / "var/cache/uv")
        (root / "work").mkdir()
        (root / "work/train.py").write_text(TRAIN)
        code, words = packages_test.inside(root, "sh", "-c", IN_A_ROOT.replace("VERSION", version()), seconds=600)
        expect(code == 0, words)
        print(words)
        parts = dict(re.findall(r"(?ms)^== (.*?)\n(.*?)(?=^== |\Z)", words))
        for name, jobs, place in (
            ("uvx", 2, "/usr"),
            ("uvx in a project", 2, "/work/.venv"),
            ("uvx in an active environment", 1, "/opt/active"),
            ("uv tool", 2, "/usr"),
            ("pipx", 2, "/usr"),
            ("pipx run", 1, "/usr"),
        ):
            ranks = re.findall(rf"rank [01] of 2 by {place}$", parts[name], re.M)
            expect(len(ranks) == 2 * jobs, f"{name}: {parts[name]}")
        expect(parts["uv run"].count("rank of /work/project/.venv") == 2, parts["uv run"])
        expect(
            re.search("package /work/project/.venv/lib/.*/horovodrun/site/horovod/__init__.py", parts["uv run"]),
            parts["uv run"],
        )
        expect(parts["uv run --with"].count("rank of ") == 2, parts["uv run --with"])


# A build that is not portable needs these packages of Debian 12.
LIBRARIES = set() if packages_test.RELEASE else {"libssl3", "libyaml-cpp0.7"}
# The first command of the README, with a script that needs no framework, and the newest NumPy.
FIRST = """{lines}
horovodrun --check-build --require Gloo
times
pip install --quiet --upgrade --find-links /var/cache/numpy numpy
cat >train.py <<'END'
import sys
import horovod, numpy
import horovod.numpy as hvd
hvd.init()
found = hvd.allreduce(numpy.ones(1) + hvd.rank(), op=hvd.Sum)[0]
print("rank", hvd.rank(), "imports", horovod.__file__, "and sums", found, "by", sys.version, "and", numpy.__version__)
END
{first}
"""


def need_root_of(suite):
    packages_test.need_roots()
    if suite != "bookworm" and packages_test.RELEASE is None:
        raise Skip("HVD_TEST_RELEASE names no folder with the portable wheel of a release")


def in_a_bare_root(suite, python, package="python3-venv"):
    """Runs the README's commands in a root of Debian with this version of Python and venv, and a stub of PyTorch."""
    need_root_of(suite)
    readme = (ROOT / "README.md").read_text()
    (lines,) = re.findall(r"(?ms)^## Install\n\n```sh [^\n]*\n(.*?)^```", readme)
    (first,) = re.findall(r"(?m)^horovodrun -np 2 python3 train.py$", readme)
    script = FIRST.format(lines=lines.replace("FOLDER", "/var/cache/wheels"), first=first)
    about = "Metadata-Version: 2.1\nName: {0}\nVersion: 2.0\n"
    with packages_test.folder() as path:
        root = path / "root"
        make_root(root, {package, *LIBRARIES}, is_kept=True, suite=suite)
        if not (root / "usr/bin/python3").exists():
            (root / "usr/bin/python3").symlink_to(f"python{python}")
        download_wheels(root / "var/cache/numpy", python, "numpy")
        shutil.copytree(wheels(), root / "var/cache/wheels")
        for name in ("torch", "numpy"):
            files = {f"{name}/__init__.py": (b"", 0o644)}
            wheel_files.write_wheel(root / "var/cache/wheels", name, "2.0", "py3-none-any", files, about.format(name))
        about = "python3 --version; ldd --version | head -n 1"
        code, words = packages_test.inside(
            root, "sh", "-ec", f"{about}; cd /root; export PIP_NO_INDEX=1 PIP_PROGRESS_BAR=off\n{script}", seconds=1500
        )
        print(f"{suite}: {words}")
        expect(code == 0, f"{suite}: {words}")
        by = rf"by {re.escape(python)}\..* and 2\.[4-9]\."  # NumPy 2.5 needs Python 3.12
        found = re.findall(rf"rank [01] imports /root/venv/lib/.* and sums 3\.0 {by}", words)
        expect(len(found) == 2, words)
        # A machine without other work needs no more than its processor time: there is no network.
        seconds = sum(int(m) * 60 + float(s) for m, s in re.findall(r"(\d+)m([\d.]+)s", words))
        expect(seconds <= 10, f"from the wheel to --check-build: {seconds:.1f} s; a user has it in 10 s")


def test_the_install_lines_of_the_readme_work_in_a_bare_root_of_debian_12():
    in_a_bare_root("bookworm", "3.11")


def test_the_install_lines_of_the_readme_work_in_a_bare_root_of_debian_13():
    in_a_bare_root("trixie", "3.13")


def test_the_install_lines_of_the_readme_work_in_a_bare_root_of_unstable():
    """A machine with the newest glibc."""
    in_a_bare_root("sid", "3.14")


def test_the_install_lines_of_the_readme_work_with_python_3_15():
    in_a_bare_root("sid", "3.15", "python3.15-venv")


# Dependencies of this project, and of PyTorch except CUDA.
BESIDE_TORCH = "numpy filelock typing-extensions setuptools sympy networkx jinja2 fsspec cloudpickle py-spy"
CUDA = r"(?m)^Requires-Dist: ((?:nvidia|cuda|triton)[\w-]*)(?:\[.*?\])?[^;]*?(\d[\w.]*)\s*(?:;|$)"


def download_wheels(folder, python, *packages):
    """Fills a folder with the newest wheels of PyPI for this version of Python."""
    need_installers()
    tags = ["2_28", "2_27", "2_17", "2_5", "2014", "1"]
    code, words = download(
        *("env", "PIP_CONSTRAINT=/dev/null", INSTALLERS, "-m", "pip", "download", "--quiet"),
        *("--only-binary", ":all:", "--python-version", python, "--dest", folder),
        *(f"--platform=manylinux{'_' * ('_' in tag)}{tag}_{os.uname().machine}" for tag in tags),
        *packages,
    )
    if code != 0:
        raise Skip(f"pip download {packages[-1]}: {words.strip().splitlines()[-1]}")


def newest_torch(folder, python):
    """Fills a folder with the newest PyTorch and all its dependencies, with stubs in place of 2 GB for CUDA. Returns
    the version."""
    download_wheels(folder, python, "--no-deps", "torch")
    download_wheels(folder, python, *BESIDE_TORCH.split())
    (torch,) = folder.glob("torch-*.whl")
    with zipfile.ZipFile(torch) as archive:
        (about,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        needs = re.findall(CUDA, archive.read(about).decode())
    for name, number in needs:
        words = f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n"
        wheel_files.write_wheel(folder, name.replace("-", "_"), number, "py3-none-any", {}, words)
    return torch.name.split("-")[1]


# README.md from its top to its bottom, as far as its blocks run on one machine, and the first tutorials.
BEFORE = """set -e
cd /root/horovod
{lines}
"""
AFTER = """set -e
cd /root/horovod
. venv/bin/activate
{completion}
{check}
python3 -c 'import torch; print("torch", torch.__version__)'
cd examples/tutorials
python3 train.py
{first}
{tutorial}
"""


def readme_in_a_bare_root(suite, python):
    """A user of a root with git, Python and venv: the quick start with the wheel, then the install line and the
    tutorials, which find no module of the system."""
    need_root_of(suite)
    readme, page = (text.read_text() for text in (ROOT / "README.md", ROOT / "docs/tutorials/pytorch.md"))
    (lines,) = re.findall(r"(?ms)^## Install\n\n```sh [^\n]*\n(.*?)^```", readme)
    (quick,) = re.findall(r"(?m)^\./packaging/quickstart\.sh$", readme)
    (first,) = re.findall(r"(?m)^horovodrun -np 2 python3 train.py$", readme)
    (completion,) = re.findall(r'`(eval "\$\(horovodrun --completion bash\)")`', readme)
    (check,) = re.findall(r"`(horovodrun --check-build)`", readme)
    tutorial = "\n".join(re.findall(r"(?ms)^```sh run\n(.*?)^```", page)).replace("cd examples/tutorials\n", "")
    expect("torch_one.py" in tutorial and "torch_many.py" in tutorial, tutorial)
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="e2e-", ignore_cleanup_errors=True) as name:
        root = pathlib.Path(name) / "root"
        make_root(root, {"git", "python3-venv", "ca-certificates", *LIBRARIES}, is_kept=True, suite=suite)
        kept = root / "var/cache/wheels"
        kept.mkdir()
        version_of_torch = newest_torch(kept, python)
        for wheel in (*wheels().glob("horovodrun-*.whl"), *wheels().glob(f"horovod-{version()}-*.whl")):
            shutil.copy(wheel, kept)
        shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
        options, _ = mirrors(suite)
        (root / "etc/apt/apt.conf.d/90proxy").write_text("".join(f"{each[9:]}\n" for each in options))
        code, words = call("git", "clone", "--quiet", ROOT, root / "root/horovod", seconds=120)
        expect(code == 0, words)

        def run(script):
            began = time.monotonic()
            settings = "export PIP_NO_INDEX=1 PIP_FIND_LINKS=/var/cache/wheels PIP_PROGRESS_BAR=off\n"
            code, words = run_on_another_debian(
                root, "bash", "-c", settings + script.replace("FOLDER", "/var/cache/wheels"), seconds=1500, mounts=()
            )
            print(f"{suite}, {time.monotonic() - began:.0f} s: {words}", flush=True)
            expect(code == 0, words)
            return words

        said = run(f"cd /root/horovod; {quick} FOLDER")
        expect(re.search(r"installing \d+ Debian packages, with what they need \d+, \d+ MB to load: ", said), said)
        expect(re.search(r"\n  \d+ s: \d+ of \d+ unpacked, \d+ set up\n", said), said)
        expect("in place of a build" in said and "==> test accuracy 0.9" in said, said)
        run(BEFORE.format(lines=lines))
        (libraries_of_torch,) = (root / "root/horovod/venv/lib").glob("python3*/site-packages/torch/lib")
        code, words = call(PYTHON, "-B", ROOT / "tests/python/cuda_stand_ins.py", libraries_of_torch, seconds=300)
        expect(code == 0, words)
        said = run(AFTER.format(completion=completion, check=check, first=first, tutorial=tutorial))
        expect(f"torch {version_of_torch.partition('+')[0]}" in said and "[X] PyTorch" in said, said)
        expect("rank 1 of 2: sum 1" in said and said.count("test accuracy 0.9") == 2, said)
        expect("newer than" not in said, said)


def test_readme_and_its_tutorials_work_in_a_bare_root_of_debian_12():
    readme_in_a_bare_root("bookworm", "3.11")


def test_readme_and_its_tutorials_work_in_a_bare_root_of_debian_13():
    readme_in_a_bare_root("trixie", "3.13")


# The script bin/activate of conda-pack sets these variables, among others.
ACTIVATE = """export CONDA_PREFIX=$(cd "$(dirname "$BASH_SOURCE")/.." && pwd)
export PATH=$CONDA_PREFIX/bin:$PATH
"""
GATHER = """import sys, horovod._common as hvd
hvd.init()
print(sys.prefix, "gathers", hvd.allgather_object(hvd.rank()), flush=True)
"""


def pack_environment(archive):
    """Makes a relocatable Python with horovod, in the form that conda-pack gives an environment of conda."""
    found = sorted(pathlib.Path.home().glob(".pyenv/versions/3.11.*/bin/python3.11"))
    if not found:
        raise Skip("~/.pyenv has no Python 3.11, which stands for that of conda")
    prefix, made = found[0].parents[1], scratch() / "made"
    shutil.copytree(
        prefix,
        made,
        symlinks=True,
        ignore=shutil.ignore_patterns("__pycache__", "test", "*.a", "site-packages", "config-*"),
    )
    (made / "lib/python3.11/site-packages").mkdir()
    # conda's Python finds its library next to it.
    library, beside = f"{prefix}/lib\0".encode(), b"$ORIGIN/../lib\0"
    program = (made / "bin/python3.11").read_bytes()
    expect(program.count(library) == 1, f"{found[0]} does not look for its library in {prefix}/lib")
    (made / "bin/python3.11").write_bytes(program.replace(library, beside.ljust(len(library), b"\0")))
    (made / "bin/activate").write_text(ACTIVATE)
    (made / "conda-meta").mkdir()
    (made / "conda-meta/history").write_text("")
    index = ("--quiet", "--no-index", "--find-links", wheels())
    code, words = call(made / "bin/python3.11", pip_of_debian(), "install", *index, "horovod", seconds=120)
    expect(code == 0, words)
    code, words = call("tar", "-cf", archive, "-C", made, ".", seconds=120)
    expect(code == 0, words)
    shutil.rmtree(made)


ON_TWO_HOSTS = """set -e
mkdir /tmp/work
cd /tmp/work
printf '%s' "$GATHER" >train.py
for host in a b; do
  ssh $host 'mkdir /tmp/place && tar -x -C /tmp/place' <"$ARCHIVE"
done
mkdir /tmp/place
tar -x -C /tmp/place <"$ARCHIVE"
. /tmp/place/bin/activate
horovodrun -np 2 -H a:1,b:1 --stage . python train.py
"""


def test_an_environment_in_the_form_of_conda_pack_runs_where_each_host_unpacks_it():
    """conda cannot be installed here. Runs the commands of docs/environments.md on hosts without a shared disk."""
    with tempfile.NamedTemporaryFile(dir=BUILD, prefix="e2e-", suffix=".tar") as archive:
        pack_environment(archive.name)
        environment = clean_environment(GATHER=GATHER, ARCHIVE=archive.name)
        del environment["PYTHONPATH"]
        hosts = (HOSTS, "run", "--names", "a b", "--bare", "--")
        code, words = call(*hosts, "bash", "-c", ON_TWO_HOSTS, seconds=120, env=environment)
    if code == NO_WORLD:
        raise Skip(words.strip())
    expect(code == 0 and words.count("/tmp/place gathers [0, 1]") == 2, words)
    expect("have no horovod" not in words, words)


if __name__ == "__main__":
    main()
