#!/usr/bin/python3 -B
"""`cmake --install`: its components, its manual pages, and a relocated installation."""

import contextlib
import shutil

from harness import *

COMPONENTS = ("runtime", "launcher", "devel", "python", "modules")


def install(prefix, *more):
    done = run_to_end(["cmake", "--install", BUILD, "--prefix", prefix, *more])
    expect(done.returncode == 0, done.stdout + done.stderr)


def files_in(prefix):
    return {str(path.relative_to(prefix)) for path in prefix.rglob("*") if not path.is_dir()}


@contextlib.contextmanager
def folder():
    with tempfile.TemporaryDirectory() as path:
        yield pathlib.Path(path)


def test_each_file_belongs_to_one_component():
    with folder() as path:
        install(path / "all")
        parts = {}
        for component in COMPONENTS:
            install(path / component, "--component", component)
            parts[component] = files_in(path / component)
        whole = files_in(path / "all")
    together = [name for part in parts.values() for name in part]
    expect(
        sorted(together) == sorted(whole),
        f"twice or nowhere: {sorted(set(together) ^ whole)} of {len(together)} and {len(whole)}",
    )
    for component, name in (
        ("runtime", "lib/libhorovod.so.1"),
        ("devel", "lib/libhorovod.so"),
        ("devel", "include/horovod/version.h"),
        ("launcher", "bin/horovodrun"),
        ("launcher", "share/man/man1/horovod-rendezvous.1"),
        ("python", "lib/python3/dist-packages/horovod/__init__.py"),
    ):
        expect(name in parts[component], f"{name} is not in {component}: {sorted(parts[component])}")


def test_an_installation_that_was_moved_finds_its_parts():
    with folder() as path:
        install(path / "before")
        moved = path / "moved here"
        (path / "before").rename(moved)
        (moved / "lib/libhorovod.so").unlink()  # belongs to the headers; jobs do not need it
        package = moved / "lib/python3/dist-packages"
        program = "import horovod, horovod.numpy as hvd; hvd.init(); print(hvd.size(), horovod.__file__)"
        job = Job(
            "-np",
            2,
            PYTHON,
            "-c",
            program,
            program=moved / "bin/horovodrun",
            environment=clean_environment(PYTHONPATH=str(package)),
        )
        job.ends_with(0)
        expect(job.out.count(f"2 {package}/horovod/__init__.py") == 2, job.describe())
        job = Job(
            "--check-build",
            "--require",
            "Gloo",
            program=moved / "bin/horovodrun",
            environment=clean_environment(PYTHONPATH=str(package)),
        )
        job.ends_with(0)


def build_without_libssh():
    """Returns the programs of a build with HVD_LIBSSH=OFF: of this build, if it is one."""
    if "HVD_LIBSSH:STRING=OFF" in (BUILD / "CMakeCache.txt").read_text():
        return BUILD / "bin"
    build = scratch()
    flags = ["-DCMAKE_BUILD_TYPE=Release", "-DHVD_LIBSSH=OFF", "-DBUILD_TESTING=OFF"]
    for command in (
        ["cmake", "-S", ROOT, "-B", build, "-G", "Ninja", *flags],
        ["ninja", "-C", build, "horovodrun", "horovod-agent", "horovod-agent-tls"],
    ):
        done = run_to_end(command, timeout=1700)
        expect(done.returncode == 0, done.stdout + done.stderr)
    return build / "bin"


@world()
def test_a_launcher_built_without_libssh_reaches_hosts_by_ssh():
    launcher = build_without_libssh() / "horovodrun"
    job = Job(
        "-np", 2, "-H", "a:1,b:1", "--verbose", "sh", "-c", "echo rank $HOROVOD_RANK of $HOROVOD_SIZE", program=launcher
    )
    job.ends_with(0)
    job.leaves_nothing()
    expect(sorted(re.findall(r"rank . of .", job.out)) == ["rank 0 of 2", "rank 1 of 2"], job.describe())
    expect(
        "b: by the system's ssh instead of libssh, because of HVD_LIBSSH=OFF in this build" in job.err, job.describe()
    )
    done = run_to_end([launcher, "--check-build", "--require", "libssh"], timeout=300, env=clean_environment())
    expect(done.returncode == 1 and "built without libssh (HVD_LIBSSH of CMake)" in done.stderr, done)
    # Without an ssh program, no host is reachable.
    job = Job("-np", 1, "-H", "b:1", "/bin/true", program=launcher, environment=clean_environment(PATH=str(scratch())))
    expect(job.wait() != 0, job.describe())
    one_sentence(
        job, "^host b: .*this machine has no ssh program, ", "HVD_LIBSSH=OFF in this build: install OpenSSH's client$"
    )


def options_of(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))


def test_manual_pages_name_every_flag():
    with folder() as path:
        install(path, "--component", "launcher")
        for name, page in (
            ("horovod-agent", "horovod-agent"),
            ("horovod-agent-tls", "horovod-agent"),
            ("horovod-rendezvous", "horovod-rendezvous"),
        ):
            usage = run_to_end([path / "bin" / name, "--help"], check=True).stdout
            written = (path / f"share/man/man1/{page}.1").read_text().replace("\\-", "-")
            flags = re.findall(r"^ +(?:-\w,)?(--[a-z-]+)", usage, re.M)
            entries = re.findall(r"^\.B (?:-\w, )?(--[a-z-]+)", written, re.M)
            expect(len(flags) >= 8 and sorted(flags) == sorted(entries), f"{name}: {flags} and {entries}")
        alias = (path / "share/man/man1/horovod-agent-tls.1").read_text()
        expect(alias == ".so man1/horovod-agent.1\n", alias)


SECTIONS = (
    "NAME",
    "SYNOPSIS",
    "DESCRIPTION",
    "OPTIONS",
    "EXIT STATUS",
    "ENVIRONMENT",
    "FILES",
    "NOTES",
    "BUGS",
    "EXAMPLES",
    "SEE ALSO",
)


def check_sections(page):
    """Checks that a page has its sections in the order of man-pages(7), and a program's page all of them."""
    found = re.findall(r"^\.SH (.*)$", page.read_text(), re.M)
    if page.stem == "horovod-agent-tls":  # this page refers to another page
        return
    expect(found == [each for each in SECTIONS if each in found], f"{page.name}: {found}")
    expect(page.suffix != ".1" or len(found) == len(SECTIONS), f"{page.name}: {found}")


def test_manual_pages_have_no_fault():
    with folder() as path:
        install(path, "--component", "launcher")
        pages = sorted((path / "share/man").rglob("*.[1-9]"))
        expect(
            [page.name for page in pages]
            == [
                "horovod-agent-tls.1",
                "horovod-agent.1",
                "horovod-rendezvous.1",
                "horovodrun.1",
                "horovod-config.5",
                "horovod-hostfile.5",
                "horovod-environment.7",
                "horovod-plugin.7",
            ],
            pages,
        )
        for page in pages:
            check_sections(page)
        if not shutil.which("mandoc"):
            raise Skip("there is no mandoc (packaging/packages-test.txt)")
        for page in (each for each in pages if each.stem != "horovod-agent-tls"):  # this page refers to another page
            found = subprocess.run(
                ["mandoc", "-T", "lint", "-W", "warning", page],
                cwd=path / "share/man",
                stdout=subprocess.PIPE,
                text=True,
                check=False,
                timeout=LONG,
            ).stdout
            expect(found == "", found)


if __name__ == "__main__":
    main()
