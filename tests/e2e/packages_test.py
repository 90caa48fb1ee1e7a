#!/usr/bin/python3 -B
"""Packages of this build, without other files of the project: tarball, modules, EasyBuild, Debian packages, image,
wheel.

HVD_TEST_RELEASE=FOLDER tests the files of a release in that folder, and also its wheel, sdist and image. For the sdist,
HVD_TEST_WHEEL names an interpreter that has scikit-build-core.
"""

import contextlib
import hashlib
import json
import shlex
import stat
import tarfile
import zipfile

from harness import *
from roots import call, download, make_root, mirrors

DEBIAN = ROOT / "packaging/debian.sh"
TARBALL = ROOT / "packaging/tarball.sh"
RELEASE = pathlib.Path(os.environ["HVD_TEST_RELEASE"]).resolve() if "HVD_TEST_RELEASE" in os.environ else None
IMAGE = ROOT / "packaging/oci/image.sh"
LMOD = "/usr/share/lmod/lmod/init/bash"
# The wheel for this machine's processor.
WHEEL = f"horovodrun-*-cp38-abi3-manylinux_*_{os.uname().machine}.whl"
BUILDER = os.environ.get("HVD_TEST_WHEEL", "")
EASYBUILD = os.environ.get("HVD_TEST_EASYBUILD", "")
RATTLER = os.environ.get("HVD_TEST_RATTLER", "")
# The packages that a job needs; horovod-doc and libhorovod-dev depend on no other Debian package.
OURS = ("horovod-doc", "horovodrun", "libhorovod-dev", "libhorovod1", "python3-horovod")
# Files that every package installation changes.
RECORDS = ("var/lib/dpkg/", "var/lib/apt/", "var/cache/", "var/log/", "tmp/", "run/")


def need_roots():
    """Skips the test if a clean root cannot be made."""
    if os.getuid() != 0:
        raise Skip("only root makes a clean root")
    if "VERSION_CODENAME=bookworm" not in pathlib.Path("/etc/os-release").read_text():
        raise Skip("the packages are those of Debian 12")
    for program in ("mmdebstrap", "dh", "dh_python3", "dpkg-buildpackage"):
        if not shutil.which(program):
            raise Skip(f"there is no {program}; packaging/packages-test.txt names the packages")
    code, words = call(
        *"unshare --mount --net --pid --fork".split(),
        "sh",
        "-c",
        "ip link set lo up && mount -t proc proc /proc && mount -t tmpfs tmpfs /tmp",
        seconds=60,
    )
    if code != 0:
        raise Skip(f"no namespaces: {words.strip()}")


@contextlib.contextmanager
def folder():
    with tempfile.TemporaryDirectory(prefix="e2e-", ignore_cleanup_errors=True) as path:
        yield pathlib.Path(path)


def release_file(pattern):
    """Returns the file of the release, or None if this is a test of the build folder."""
    if RELEASE is None:
        return None
    found = list(RELEASE.glob(pattern))
    if not found:
        raise Skip(f"{RELEASE} has no {pattern}")
    expect(len(found) == 1, f"{RELEASE}: {pattern}: {found}")
    return found[0]


def debian_packages(path):
    if RELEASE is None:
        code, words = call(DEBIAN, BUILD, path, seconds=600)
        expect(code == 0, words[-4000:])
    debs = (RELEASE or path).glob("*.deb")
    packages = {deb.name.split("_")[0]: deb for deb in debs if "-dbgsym" not in deb.name}
    expect(sorted(packages) == sorted(OURS), packages)
    return packages


def dependencies(deb):
    """Returns the Debian packages that a package needs, the first of each list of alternatives."""
    fields = run_to_end(["dpkg-deb", "-f", deb, "Pre-Depends", "Depends"], check=True).stdout
    wanted = re.sub(r"(?m)^[\w-]+:", ",", fields).replace("\n", " ").split(",")
    names = {re.split(r"[\s:(|]", each.strip())[0] for each in wanted}
    return names - {""} - set(OURS)


def inside(root, *command, seconds=300):
    """Runs a command in a root without a network; all its processes end with it."""
    mounts = (
        'set -e; ip link set lo up; mount -t proc proc "$0/proc"; mount --rbind /dev "$0/dev"; '
        'mount --rbind /sys "$0/sys"; mount -t tmpfs tmpfs "$0/tmp"; exec chroot "$0" "$@"'
    )
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "AUTOPKGTEST_TMP": "/tmp",
        "HOROVOD_STATE_DIR": "none",  # records would remain after a job
    }
    return call(
        *"unshare --mount --net --pid --fork --kill-child".split(),
        "sh",
        "-c",
        mounts,
        root,
        *command,
        seconds=seconds,
        env=environment,
    )


def under_mpirun(root, *command):
    """Runs two ranks in a root with this machine's mpirun, which shares /tmp with it."""
    mounts = (
        'set -e; ip link set lo up; mount --rbind "$0" /mnt; mount -t proc proc /mnt/proc; '
        "mount --rbind /dev /mnt/dev; mount -t tmpfs tmpfs /tmp; mount --bind /tmp /mnt/tmp; "
        'exec mpirun --allow-run-as-root --oversubscribe -np 2 chroot /mnt "$@"'
    )
    return call(
        *"unshare --mount --net --pid --fork --kill-child".split(),
        "sh",
        "-c",
        mounts,
        root,
        *command,
        seconds=300,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"},
    )


def files_of(root):
    found = {str(path.relative_to(root)) for path in root.rglob("*")}
    return {name for name in found if not f"{name}/".startswith(RECORDS)}


def install(root, packages):
    """Installs the Debian packages in the root, and returns the files that existed before."""
    before = files_of(root)
    for deb in packages.values():
        shutil.copy(deb, root / "var/cache")
    code, words = inside(root, "sh", "-c", "dpkg -i /var/cache/*.deb")
    expect(code == 0, words)
    return before


def remove(root, before):
    for verb in ("--remove", "--purge"):
        code, words = inside(root, "dpkg", verb, *OURS)
        expect(code == 0, words)
    expect((left := files_of(root) - before) == set(), f"left behind: {sorted(left)[:20]}")
    code, words = inside(root, "sh", "-c", "dpkg-query -W 'horovod*' 'libhorovod*' 'python3-horovod*'")
    expect(code != 0 and "no packages found" in words, words)


def run_script(root, name, seconds=300):
    shutil.copy(ROOT / "debian/tests" / name, root / "var/cache/test")
    (root / "var/cache/test").chmod(stat.S_IRWXU)
    code, words = inside(root, "/var/cache/test", seconds=seconds)
    expect(code == 0, words)
    return words


SUM = (
    "import numpy, horovod.numpy as hvd; hvd.init(); "
    "print('the sum is', hvd.allreduce(numpy.array([1.0 + hvd.rank()]), op=hvd.Sum)[0])"
)
# The Debian packages for an interpreter that pyenv compiled.
LIBRARIES_OF_PYTHON = {
    "libbz2-1.0",
    "libexpat1",
    "libffi8",
    "liblzma5",
    "libncursesw6",
    "libreadline8",
    "libsqlite3-0",
    "libssl3",
    "libuuid1",
    "zlib1g",
}
# Each channel must find PyTorch, and train the digits with two ranks. $examples is the folder of the examples.
DIGITS = """set -e
export PYTHONDONTWRITEBYTECODE=1
horovodrun --check-build --require Gloo,PyTorch python3
horovodrun -np 2 python3 "$examples/torch_digits.py" --epochs 4 2>&1 | tee /tmp/output
grep -Eq 'test accuracy 0\\.9' /tmp/output
"""
# The Debian packages for the digits example, without files of this project and without a compiler.
FOR_DIGITS = {"python3-cloudpickle", "python3-numpy", "python3-torch"}


def trains_the_digits(root, examples, before="", shell="sh"):
    code, words = inside(root, shell, "-c", f"{before}\nexamples={examples}\n{DIGITS}")
    expect(code == 0, words[-4000:])
    expect("2 ranks" in words or "epoch 4/4" in words, words[-4000:])


def unpack_tarball(path, place):
    """Unpacks the tarball into `place` and returns its folder."""
    tarball = release_file("horovod-*-linux-*.tar.gz")
    if tarball is None:
        code, words = call(TARBALL, BUILD, path, seconds=300)
        expect(code == 0, words)
        tarball = words.strip()
    place.mkdir()
    code, words = call("tar", "-xzf", tarball, "-C", place, seconds=60)
    expect(code == 0, words)
    (prefix,) = place.iterdir()
    has_the_manifest(prefix / "share/doc/horovod")
    return prefix


def has_the_manifest(folder):
    """The folder of the examples has the manifest under the name that Horovod guides use."""
    name = "k8s/horovod-job.yaml"
    expect((folder / name).read_text() == (ROOT / name).read_text(), f"{folder / name} is another file")


def test_a_tarball_runs_where_it_is_unpacked_and_after_a_move():
    with folder() as path:
        first, second = path / "a place with spaces", path / "another place"
        unpack_tarball(path, first)
        for place in (first, second):
            if place != first:
                first.rename(place)
            (prefix,) = place.iterdir()
            package = prefix / "lib/python3/dist-packages"
            program = "import horovod, horovod.numpy as hvd; hvd.init(); print(hvd.size(), horovod.__file__)"
            job = Job(
                "-np",
                2,
                PYTHON,
                "-c",
                program,
                program=prefix / "bin/horovodrun",
                cwd=path,
                environment=clean_environment(PYTHONPATH=str(package)),
            )
            job.ends_with(0)
            expect(job.out.count(f"2 {package}/horovod/__init__.py") == 2, job.describe())


def with_modules(prefix, script):
    """Runs a bash script with lmod and the module files of an installation."""
    environment = {
        name: value
        for name, value in clean_environment().items()
        if not name.startswith(("LMOD", "MODULE", "_ModuleTable", "PYTHONPATH"))
    }
    return call(
        "bash",
        "--norc",
        "-c",
        f". {LMOD}; module use '{prefix}/share/modulefiles'; {script}",
        seconds=120,
        env=environment,
    )


def test_lmod_loads_the_module_and_unloads_all_of_it():
    """Runs the commands of docs/installing.md."""
    if not pathlib.Path(LMOD).exists():
        raise Skip("there is no lmod; packaging/packages-test.txt names it")
    alias = "Horovod/0.28.1-foss-2022a-CUDA-11.7.0-TensorFlow-2.11.0"
    with folder() as path:
        prefix = unpack_tarball(path, path / "opt")
        for name in ("Horovod", alias):
            code, words = with_modules(
                prefix,
                f"""set -e
                env | sort >'{path}/before'
                module load {name}
                [[ $(command -v horovodrun) == '{prefix}/bin/horovodrun' ]]
                horovodrun -np 2 {PYTHON} -c 'import horovod.numpy as hvd; hvd.init(); print("of", hvd.size())'
                module unload {name}
                env | sort >'{path}/after'""",
            )
            expect(code == 0 and words.count("of 2") == 2, words)
            expect(("is an alias: it loads horovodrun" in " ".join(words.split())) == (name == alias), words)
            noise = re.compile(r"^(_=|LMOD_|__LMOD|_ModuleTable|SHLVL|BASH_FUNC)")
            before, after = (
                [line for line in (path / when).read_text().splitlines() if not noise.match(line)]
                for when in ("before", "after")
            )
            expect(before == after, f"{set(before) ^ set(after)}")
        code, words = call(
            "/usr/share/lmod/lmod/libexec/check_module_tree_syntax", prefix / "share/modulefiles", seconds=60
        )
        expect("No errors found" in words, words)
        code, words = with_modules(prefix, "module help Horovod")
        expect("horovodrun -np 4" in words and "aliases" in words, words)
        (prefix / "lib/libhorovod.so.1").unlink()
        code, words = with_modules(prefix, "module load Horovod")
        said = " ".join(words.split())
        expect(code != 0 and "lib/libhorovod.so.1 is missing" in said and "install horovodrun again" in said, words)


def tarball_in_a_root(package, init):
    """Trains from the tarball by its variables and by its module, with a Debian package for modules."""
    need_roots()
    with folder() as path:
        root = path / "root"
        make_root(root, FOR_DIGITS | {package})
        prefix = unpack_tarball(path, root / "opt" / "a place")
        name = f"/opt/a place/{prefix.name}"
        expect(not list(root.glob("usr/bin/*g++*")), "there is a compiler")
        examples = f"'{name}/share/doc/horovod/examples'"
        trains_the_digits(
            root, examples, f"PATH='{name}/bin':$PATH\nexport PYTHONPATH='{name}/lib/python3/dist-packages'"
        )
        load = f". {init}; module use '{name}/share/modulefiles'; module load Horovod"
        trains_the_digits(root, examples, load, shell="bash")
        (prefix / "lib/libhorovod.so.1").unlink()
        code, words = inside(root, "bash", "-c", f"{load} && command -v horovodrun")
        said = " ".join(words.split())
        expect(code != 0 and "lib/libhorovod.so.1 is missing" in said and "install horovodrun again" in said, words)


def test_a_tarball_and_its_lua_module_train_the_digits_in_a_clean_root():
    tarball_in_a_root("lmod", LMOD)


def test_a_tarball_and_its_tcl_module_train_the_digits_in_a_clean_root():
    # Debian's two packages of modules conflict with each other.
    tarball_in_a_root("environment-modules", "/usr/share/modules/init/bash")


# Prints the names of a recipe that rattler-build renders, and an error for each planted fault that it refuses.
RENDERS = """
import sys, rattler_build
text = open(sys.argv[1]).read().replace("@VERSION@", "1.2.3").replace("@SDIST_SHA256@", 64 * "0")
read = rattler_build.Stage0Recipe.from_yaml
variants = rattler_build.VariantConfig({"c_stdlib": ["sysroot"], "c_stdlib_version": ["2.34"]})
(made,) = read(text).render(variants)
print(made.recipe.package.name, made.recipe.package.version)
faults = {"requirements:": "requires:", "package_contents:": "contents:", "license_file": "licence_file"}
for right, wrong in faults.items():
    assert right in text
    try:
        read(text.replace(right, wrong))
    except rattler_build.RecipeParseError:
        print("refused", wrong)
"""


def test_rattler_build_reads_the_recipe_of_conda():
    if not RATTLER:
        raise Skip("HVD_TEST_RATTLER names no Python that has py-rattler-build")
    code, words = call(RATTLER, "-c", RENDERS, ROOT / "packaging/conda/recipe.yaml.in", seconds=60)
    expect(code == 0 and words.splitlines()[0] == "horovod 1.2.3" and words.count("refused") == 3, words)


def test_easybuild_installs_the_tarball_and_refuses_another_one():
    """Runs the commands of docs/installing.md, with the easyconfig that packaging/release.sh writes."""
    if not EASYBUILD:
        raise Skip("HVD_TEST_EASYBUILD names no Python that has easybuild")
    if not pathlib.Path(LMOD).exists():
        raise Skip("there is no lmod; packaging/packages-test.txt names it")
    with folder() as path:
        files = RELEASE or path / "files"
        if RELEASE is None:
            files.mkdir()
            version = re.search(r"project\(horovod VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]
            # A dummy file, whose checksum the easyconfig for the source gets.
            (files / f"horovodrun-{version}.tar.gz").write_bytes(b"")
            code, words = call(
                ROOT / "packaging/release.sh",
                "--rehearse",
                "--build",
                BUILD,
                "--only",
                "tarball,recipes",
                files,
                seconds=300,
            )
            expect(code == 0, words)
        (easyconfig,) = (each for each in files.glob("Horovod-*.eb") if "foss" not in each.name)
        (tarball,) = files.glob("horovod-*-linux-*.tar.gz")
        lmod = pathlib.Path(LMOD).parents[1] / "libexec"
        environment = clean_environment(EB_PYTHON=EASYBUILD, LMOD_CMD=str(lmod / "lmod"), HOME=str(path))
        environment["PATH"] = f"{pathlib.Path(EASYBUILD).parent}:{lmod}:{environment['PATH']}"

        def build(sources, prefix):
            return call(
                "eb",
                "--allow-use-as-root-and-accept-consequences",
                "--modules-tool=Lmod",
                sources / easyconfig.name,
                f"--prefix={path / prefix}",
                f"--sourcepath={sources}",
                seconds=300,
                env=environment,
            )

        code, words = build(files, "installed")
        expect(code == 0 and "COMPLETED: Installation ended successfully" in words, words[-4000:])
        program = 'import horovod.numpy as hvd; hvd.init(); print("of", hvd.size())'
        code, words = call(
            "bash",
            "--norc",
            "-c",
            f""". {LMOD} && module use '{path}/installed/modules/all' &&
            module load Horovod && horovodrun -np 2 {PYTHON} -c '{program}'""",
            seconds=120,
            env={**environment, "PYTHONPATH": ""},
        )
        expect(code == 0 and words.count("of 2") == 2, words)
        # From source: compiles nothing, but EasyBuild knows easyconfigs of all dependencies.
        (source,) = files.glob("Horovod-*-foss-*.eb")
        command = (
            "eb",
            "--allow-use-as-root-and-accept-consequences",
            "--modules-tool=Lmod",
            source,
            f"--prefix={path / 'source'}",
            f"--sourcepath={files}",
        )
        for flags in (("-D", "--robot"), ("--check-style",), ("--check-contrib",)):
            code, words = call(*command, *flags, seconds=300, env=environment)
            expect(code == 0, words[-4000:])
            if "-D" in flags:
                expect(re.search(r"\[ \] .*Horovod-.*-foss", words) and "GCCcore" in words, words[-4000:])
        # A file of another release, or a damaged file.
        (path / "damaged").mkdir()
        shutil.copy(easyconfig, path / "damaged")
        (path / "damaged" / tarball.name).write_bytes(tarball.read_bytes() + b"x")
        code, words = build(path / "damaged", "refused")
        said, page = (" ".join(text.split()) for text in (words, (ROOT / "docs/installing.md").read_text()))
        expect(code != 0 and re.search(rf"Checksum verification for \S*{tarball.name} using .* failed", said), words)
        expect("`Checksum verification … failed`" in page and "take both files from one release" in page, "no advice")
        expect(not list((path / "refused").glob("modules/all/Horovod/*")), "there is a module")


def test_a_wheel_of_a_release_trains_the_digits_without_compilers():
    wheel = release_file(WHEEL)
    if wheel is None:
        raise Skip("HVD_TEST_RELEASE names no folder with the files of a release")
    need_roots()
    with folder() as path:
        root = path / "root"
        make_root(root, FOR_DIGITS | {"python3-venv"})
        expect(not list(root.glob("usr/bin/*g++*")) and not (root / "usr/bin/cc").exists(), "there is a compiler")
        shutil.copy(wheel, root / "var/cache")
        shutil.copytree(ROOT / "examples", root / "examples", ignore=shutil.ignore_patterns("__pycache__"))
        for command in (
            ("python3", "-m", "venv", "--system-site-packages", "/opt/horovod"),
            ("/opt/horovod/bin/pip", "install", "--no-index", "--no-deps", f"/var/cache/{wheel.name}"),
        ):
            code, words = inside(root, *command)
            expect(code == 0, words)
        trains_the_digits(root, "/examples", "PATH=/opt/horovod/bin:$PATH")


def test_a_wheel_for_64_bit_arm_runs_two_ranks_by_an_emulator():
    """pip accepts its tag for that processor; the programs run by qemu-user, in the sysroot of tests/cross.sh."""
    wheel = release_file("horovodrun-*-cp38-abi3-manylinux_*_aarch64.whl")
    if wheel is None:
        raise Skip("HVD_TEST_RELEASE names no folder with the files of a release")
    sysroot = ROOT / "build-aarch64/sysroot"
    if not sysroot.exists():
        raise Skip(f"there is no {sysroot}; packaging/wheel.sh --aarch64 makes it")
    with folder() as path:
        tag = re.search(r"manylinux_\w+", wheel.name)[0]
        for command in (
            (PYTHON, "-m", "venv", path / "venv"),
            (path / "venv/bin/pip", "install", "--no-index", "--no-deps", "--only-binary", ":all:", "--platform", tag)
            + ("--target", path / "target", wheel),
        ):
            code, words = call(*command, seconds=300)
            expect(code == 0, words)
        python = sysroot / "usr/bin/python3"
        for command, expected in (
            (("--check-build", "--require", "Gloo", python), "[X] Gloo"),
            (("-np", 2, python, "-c", f"{SUM}; import platform; print(platform.machine())"), "the sum is 3.0"),
        ):
            code, words = call(
                ROOT / "tests/emulate.sh",
                sysroot,
                path / "target/bin/horovodrun",
                *command,
                seconds=600,
                env=clean_environment(PYTHONPATH=""),
            )
            print(words)
            if code == SKIPPED:
                raise Skip(words.strip())
            expect(code == 0 and expected in words, words)
        expect(words.count("the sum is 3.0") == 2 and words.count("aarch64") == 2, words)


def files_in(wheel):
    return sorted(name for name in zipfile.ZipFile(wheel).namelist() if not name.endswith("/"))


def test_the_sdist_of_a_release_makes_the_same_wheel():
    wheel = release_file(WHEEL)
    if wheel is None:
        raise Skip("HVD_TEST_RELEASE names no folder with the files of a release")
    sdist = release_file(f"horovodrun-{wheel.name.split('-')[1]}.tar.gz")
    if not BUILDER:
        raise Skip("HVD_TEST_WHEEL names no Python that has scikit-build-core")
    with folder() as path:
        code, words = call(
            BUILDER,
            *"-m pip wheel --no-index --no-deps --no-build-isolation".split(),
            "--wheel-dir",
            path,
            sdist,
            seconds=1500,
        )
        expect(code == 0, words[-4000:])
        (built,) = path.glob("*.whl")
        different = set(files_in(wheel)) ^ set(files_in(built))
        expect(not different, f"not in both wheels: {sorted(different)}")
        for command in (
            (PYTHON, "-m", "venv", "--system-site-packages", path / "venv"),
            (path / "venv/bin/pip", "install", "--no-index", "--no-deps", built),
        ):
            code, words = call(*command, seconds=300)
            expect(code == 0, words)
        code, words = call(
            path / "venv/bin/horovodrun",
            "-np",
            2,
            path / "venv/bin/python3",
            "-c",
            SUM,
            seconds=120,
            env=clean_environment(),
        )
        expect(code == 0 and words.count("the sum is 3.0") == 2, words)


def test_a_wheel_of_a_release_runs_with_the_oldest_python():
    """A clean root without compilers, with the libraries that pyenv's interpreters need."""
    wheel = release_file(WHEEL)
    if wheel is None:
        raise Skip("HVD_TEST_RELEASE names no folder with the files of a release")
    need_roots()
    found = sorted(pathlib.Path.home().glob(".pyenv/versions/3.8.*/bin/python3"))
    if not found:
        raise Skip("~/.pyenv has no Python 3.8")
    with folder() as path:
        root = path / "root"
        make_root(root, LIBRARIES_OF_PYTHON)
        expect(not list(root.glob("usr/bin/*g++*")) and not (root / "usr/bin/cc").exists(), "there is a compiler")
        cache, prefix = root / "var/cache/wheels", found[0].parents[1]
        words = (found[0], "-m", "pip", "download", "--quiet", "--only-binary", ":all:", "--dest", cache)
        code, words = download(*words, "numpy", "cloudpickle")
        if code != 0:
            raise Skip(f"pip download for Python 3.8: {words.strip().splitlines()[-1]}")
        shutil.copy(wheel, cache)
        shutil.copytree(
            prefix,
            root / str(prefix).lstrip("/"),
            symlinks=True,
            ignore=shutil.ignore_patterns("__pycache__", "test", "*.a", "site-packages"),
        )
        code, words = inside(
            root,
            "sh",
            "-ec",
            f"""{found[0]} -m venv /opt/python
            /opt/python/bin/pip install --no-index --no-deps /var/cache/wheels/*.whl
            PATH=/opt/python/bin:$PATH
            python3 --version
            horovodrun --check-build --require Gloo python3
            horovodrun -np 2 python3 -c "{SUM}" """,
        )
        expect(code == 0 and "Python 3.8." in words and words.count("the sum is 3.0") == 2, words)


def in_time(what, started):
    """Prints the duration of the steps; more than 10 minutes are a failure."""
    seconds = time.monotonic() - started
    print(f"{what}: {seconds:.0f} s")
    expect(seconds <= 600, f"{what}: {seconds:.0f} s; a new user has it in 600 s")


def test_a_new_user_trains_on_two_hosts_and_on_slurm_by_the_pages_and_the_wheel():
    """Each user's steps begin with the command of docs/installing.md for the wheel."""
    wheel = release_file(WHEEL)
    if wheel is None:
        raise Skip("HVD_TEST_RELEASE names no folder with the files of a release")
    # The hosts of a test have their own /tmp.
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="e2e-") as path:
        environment = pathlib.Path(path) / "venv"
        started = time.monotonic()
        code, words = call(PYTHON, "-m", "venv", "--system-site-packages", environment, seconds=300)
        expect(code == 0, words)
        page = (ROOT / "docs/installing.md").read_text()
        (command,) = re.findall(r"`(pip install \./horovodrun-VERSION-\S+\.whl)`", page)
        # The dependencies of the wheel come from Debian here.
        code, words = call(
            "bash",
            "-c",
            command.replace("VERSION", wheel.name.split("-")[1]),
            seconds=300,
            cwd=RELEASE,
            env=clean_environment(
                PATH=f"{environment / 'bin'}:{os.environ['PATH']}", PIP_NO_INDEX="1", PIP_NO_DEPS="1"
            ),
        )
        expect(code == 0, words)
        in_time("pip install", started)
        installed = time.monotonic() - started
        for page in ("installing", "tutorials/pytorch", "tutorials/two-machines", "tutorials/slurm"):
            started = time.monotonic() - installed
            code, words = call(
                PYTHON,
                "-B",
                ROOT / "tests/docs/blocks.py",
                ROOT / f"docs/{page}.md",
                seconds=700,
                env=clean_environment(HVD_TEST_INSTALLED=str(environment)),
            )
            if code == SKIPPED:
                raise Skip(words.strip())
            expect(code == 0, words[-4000:])
            in_time(f"pip install and {page}.md", started)


def test_pip_refuses_a_wheel_for_a_newer_glibc():
    """docs/installing.md explains this error: the tag of the wheel names the glibc that it needs."""
    with folder() as path:
        code, words = call(PYTHON, "-m", "venv", path / "venv", seconds=120)
        if code != 0:
            raise Skip(f"python3-venv is missing: {words.strip().splitlines()[-1]}")
        wheel = path / "horovodrun-1.0-cp38-abi3-manylinux_2_999_x86_64.whl"
        wheel.write_bytes(b"")
        code, words = call(path / "venv/bin/pip", "install", "--no-index", wheel, seconds=120)
        sentence = "is not a supported wheel on this platform"
        page = " ".join((ROOT / "docs/installing.md").read_text().split())
        expect(code != 0 and sentence in words and f"`{sentence}`" in page, words)


def unpack_image(archive, path):
    """Checks the image files that podman and docker read, and returns the folder of its files."""
    layout, bundle = path / "oci", path / "bundle"
    layout.mkdir()
    call("tar", "-xf", archive, "-C", layout, seconds=300)

    def blob(thing):
        return json.loads((layout / "blobs" / thing["digest"].replace(":", "/")).read_text())

    # podman load refuses an archive with two images, so two tags belong to one image.
    (described,) = json.loads((layout / "index.json").read_text())["manifests"]
    names = described["annotations"]
    tag = names["org.opencontainers.image.ref.name"]
    expect(re.fullmatch(r"\d[\d.]*-torch[\d.]+-py3\.\d+-cpu", tag), tag)
    expect(names["io.containerd.image.name"] == f"localhost/horovod:{tag}", names)
    for page in ("containers", "kubernetes"):
        file = f"horovod-VERSION-{tag.partition('-')[2]}.oci.tar"
        expect(file in (ROOT / f"docs/tutorials/{page}.md").read_text(), f"{page}.md does not name {file}")
    config = blob(blob(described)["config"])["config"]
    labels = {"title": "horovodrun", "version": tag.partition("-")[0], "licenses": "Apache-2.0"}
    expect(config["Labels"] == {f"org.opencontainers.image.{name}": value for name, value in labels.items()}, config)
    expect(config["Cmd"] == ["horovodrun", "--check-build"] and config["WorkingDir"] == "/examples", config)
    code, words = call("umoci", "unpack", "--image", f"{layout}:{tag}", bundle, seconds=600)
    expect(code == 0, words)
    return bundle / "rootfs"


def pip_installs(root):
    """`RUN pip install` in a Dockerfile from this image installs next to Debian's packages."""
    name = "one-1.0.dist-info"
    with zipfile.ZipFile(root / "var/cache/one-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("one.py", "")
        wheel.writestr(f"{name}/METADATA", "Metadata-Version: 2.1\nName: one\nVersion: 1.0\n")
        wheel.writestr(f"{name}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{name}/RECORD", "")
    code, words = inside(
        root,
        "sh",
        "-c",
        "pip install --no-index /var/cache/one-1.0-py3-none-any.whl && python -c 'import one, numpy, horovod.torch'",
    )
    expect(code == 0, words)


def need_umoci():
    if not shutil.which("umoci"):
        raise Skip("there is no umoci; packaging/packages-release.txt names it")


def make_image(debs, place):
    options, lines = mirrors()
    code, words = download(IMAGE, debs, place, *lines, *options)
    if "mmdebstrap failed" in words or "Failed to fetch" in words:
        raise Skip(f"mmdebstrap: {words.strip().splitlines()[-1]}")
    expect(code == 0, words)
    (archive,) = place.glob("horovod-*-cpu.oci.tar")
    return archive


def test_two_images_have_the_same_packages_and_files():
    """Compares this image, or the release's, with another build. The lists show whether a mirror has changed."""
    need_roots()
    need_umoci()
    with folder() as path:
        first = release_file("horovod-*-cpu.oci.tar")
        debs = RELEASE or path / "packages"
        if first is None:
            debian_packages(debs)
            first = make_image(debs, path / "first")
        second = make_image(debs, path / "second")
        one, other = (set(list_of(each).read_text().splitlines()) for each in (first, second))
        expect(one == other, "\n".join(sorted(one ^ other)))
        expect({"packages", "-rwxr-xr-x 0/0 ./usr/bin/horovodrun"} < one and len(one) > 10_000, sorted(one)[:50])
        expect(any(line.startswith("python3-torch ") for line in one), "no packages")
        theirs, ours = contents_of(first), contents_of(second)
        expect("./usr/bin/horovodrun" in theirs, "no program")
        differ = {name for name in theirs | ours if theirs.get(name) != ours.get(name)}
        # The image names the mirrors, and each builder of a release may choose others.
        expect(differ <= ({"./etc/apt/sources.list"} if RELEASE else set()), f"files differ: {sorted(differ)[:20]}")
        sums = {hashlib.sha256(each.read_bytes()).hexdigest() for each in (first, second)}
        expect(RELEASE or len(sums) == 1, "two images of the same packages and files have different bytes")


def contents_of(image):
    """Returns the kind, mode, owner, date, and target or hash of each file of an image."""
    found = {}
    with tarfile.open(image) as archive:
        layer = max(archive.getmembers(), key=lambda each: each.size)
        with tarfile.open(fileobj=archive.extractfile(layer)) as files:
            for each in files:
                data = files.extractfile(each).read() if each.isreg() else b""
                about = (each.type, each.mode, each.uid, each.gid, each.mtime, each.linkname)
                found[each.name] = (*about, hashlib.sha256(data).hexdigest())
    return found


def list_of(image):
    return image.parent / image.name.replace(".oci.tar", ".txt")


def test_an_image_trains_the_digits():
    need_roots()
    need_umoci()
    with folder() as path:
        archive = release_file("horovod-*-cpu.oci.tar")
        if archive is None:
            debian_packages(path / "packages")
            archive = make_image(path / "packages", path)
        root = unpack_image(archive, path)
        expect(not list(root.glob("etc/ssh/ssh_host_*")), "the image has keys of hosts")
        pip_installs(root)
        trains_the_digits(root, "/examples")
        # The hybrid model: this machine's mpirun starts ranks in the image, which find each other by libpmix.
        if not shutil.which("mpirun"):
            return
        program = "import horovod.numpy as hvd; hvd.init(); print('of', hvd.size())"
        code, words = under_mpirun(root, "python", "-c", program)
        expect(code == 0 and words.count("of 2") == 2, words)
        for library in root.glob("usr/lib/*/**/libpmix.so*"):
            library.unlink()
        code, words = under_mpirun(root, "python", "-c", program)
        expect(code != 0 and "of 1" not in words and "libpmix" in words, words)


# docker exec -i NAME COMMAND..., for the single container of a host, on the host's network.
DOCKER = """#!/bin/sh
shift 3
exec unshare --mount sh -ec 'mount -t proc proc "$0/proc"; mount --rbind /dev "$0/dev"; mount -t tmpfs tmpfs "$0/tmp"
exec chroot "$0" "$@"' {root} "$@"
"""


@world("a b")
def test_containers_of_the_image_of_a_release_are_the_hosts_of_a_job():
    """Runs the command of docs/tutorials/containers.md, with a program in place of Docker."""
    archive = release_file("horovod-*-cpu.oci.tar")
    if archive is None:
        raise Skip("HVD_TEST_RELEASE names no folder with the files of a release")
    need_umoci()
    # The hosts have their own /tmp.
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="e2e-", ignore_cleanup_errors=True) as path:
        docker = pathlib.Path(path) / "docker"
        docker.write_text(DOCKER.format(root=unpack_image(archive, docker.parent)))
        docker.chmod(stat.S_IRWXU)
        page = (ROOT / "docs/tutorials/containers.md").read_text().replace("\\\n", "")
        (line,) = re.findall(r"(?m)^horovodrun (.*--launch-agent 'ssh \{host\} docker exec .*)$", page)
        (hosts,) = re.findall(r"(?m)^HOSTS=(\S+) .*\nfor .*\n  ssh .* docker run ", page)
        job = Job(*shlex.split(line.replace("$HOSTS", hosts).replace("docker", str(docker))), "--epochs", 4)
        job.ends_with(0, 300)
        expect(re.search(r"test accuracy 0\.9\d* after .* on 4 processes", job.out), job.describe())
        job.before.wait_for_ends()


def test_debian_packages_run_two_ranks_and_leave_nothing_behind():
    need_roots()
    with folder() as path:
        packages = debian_packages(path / "packages")
        needed = {name for deb in packages.values() for name in dependencies(deb)}
        expect("libc6" in needed and "python3-cloudpickle" in needed, needed)
        root = path / "root"
        make_root(root, needed | {"python3-numpy"}, is_kept=True)
        before = install(root, packages)
        words = run_script(root, "numpy")
        expect(len(re.findall(r"rank [01] of 2 has the sum 3", words)) == 2, words)
        has_the_manifest(root / "usr/share/doc/horovod-doc")
        code, words = inside(root, "horovodrun", "--version")
        expect(code == 0, words)
        remove(root, before)


def test_debian_packages_train_the_digits_and_compile_a_program():
    need_roots()
    with folder() as path:
        packages = debian_packages(path / "packages")
        needed = {name for deb in packages.values() for name in dependencies(deb)}
        root = path / "root"
        make_root(root, needed | {"python3-numpy", "python3-torch", "g++", "pkg-config"})
        before = install(root, packages)
        words = run_script(root, "train")
        expect("epoch 16/16" in words, words)
        words = run_script(root, "native")
        expect(sorted(re.findall(r"rank (\d) of 2", words)) == ["0", "1"], words)
        remove(root, before)


if __name__ == "__main__":
    main()
