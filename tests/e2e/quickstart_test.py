#!/usr/bin/python3 -B
"""The first command of README.md and of docs/installing.md trains on each possible machine, and reports its choice."""

import zipfile

from harness import *

sys.path.insert(0, str(ROOT / "packaging"))
import wheel_files

QUICKSTART = ROOT / "packaging/quickstart.sh"
INSTALL = ROOT / "packaging/install-packages.sh"


def quickstart(*around, folder=None):
    if BUILD != ROOT / "build":
        raise Skip(f"it builds into build/, and this is a test of {BUILD}")
    done = run_to_end([*around, QUICKSTART, *([folder] if folder else [])], stdin=subprocess.DEVNULL, timeout=170)
    expect(done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}{done.stderr}")
    last = done.stdout.splitlines()[-1]
    expect(re.fullmatch(r"==> test accuracy 0\.9[5-9]\d*, \d+ s in all", last), last)
    return done.stdout


def test_it_trains_on_two_hosts():
    try_hosts = run_to_end([HOSTS, "try"])
    if try_hosts.returncode != 0:
        raise Skip(try_hosts.stderr.strip().removeprefix("hosts: no: "))
    folder = scratch()
    (folder / f"horovodrun-0.1-cp38-abi3-linux_{os.uname().machine}.whl").write_text("of another version")
    output = quickstart(folder=folder)
    expect("on two hosts" in output and "-H a:4,b:4" in output, output)
    expect(re.search(rf"{folder} has no wheel of horovodrun [\d.]+ for \w+: the compiler builds", output), output)
    expect(re.search(r"^==> building into build/ \[\d+ s\]$", output, re.M), output)


def of_this_build(folder):
    """Returns the wheel of this build, in a folder."""
    return wheel_files.of_build(BUILD, folder, f"linux_{os.uname().machine}", zipfile.ZIP_STORED)


def test_it_trains_by_a_wheel_and_on_two_local_slots_where_hosts_cannot_be_made():
    without = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]
    wheel = of_this_build(scratch())
    output = quickstart(*(without if os.getuid() == 0 else []), folder=wheel.parent)
    expect(re.search(rf"^==> installing {wheel.name} in place of a build \[\d+ s\]$", output, re.M), output)
    expect("building" not in output and "build/venv-quickstart/bin/horovodrun -np 2 build/venv" in output, output)
    expect("on two slots of this machine" in output, output)
    expect(re.search(r"cannot make hosts \(.*(permitted|root)", output), output)


def test_it_builds_every_plugin_and_program_that_this_machine_can_build():
    made = [path for pattern in ("bin/*", "lib/horovod/*/*.so") for path in BUILD.glob(pattern)]
    words = re.search(r"^ *ninja -C build ((?:.*\\\n)*.*)$", QUICKSTART.read_text(), re.MULTILINE)[1]
    done = run_to_end(["ninja", "-C", BUILD, "-t", "commands", *words.replace("\\", "").split()], check=True)
    left_out = [str(path) for path in made if f" -o {path.relative_to(BUILD)} " not in done.stdout]
    expect(made and not left_out, f"quickstart.sh does not build {left_out}")


def test_packages_that_are_missing_are_named_where_nobody_may_install_them():
    with tempfile.NamedTemporaryFile("w") as packages:
        packages.write("# a list\nbash\nno-such-package # really\n")
        packages.flush()
        os.chmod(packages.name, 0o644)
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        done = run_to_end(
            [
                *(nobody if os.getuid() == 0 else []),
                "env",
                "PATH=/usr/bin:/bin",
                "/bin/bash",
                "-c",
                'cat "$0" | bash -s "$1"',
                INSTALL,
                packages.name,
            ],
            stdin=subprocess.DEVNULL,
        )
    if "sudo" in done.stderr and "password" in done.stderr:
        raise Skip("sudo asks for a password here")
    expect(done.returncode == 1, done)
    expect("no-such-package" in done.stderr and "bash" not in done.stderr.split(":")[1], done)


def test_a_contributor_builds_the_launcher_alone_and_one_test_again():
    """Runs the commands of CONTRIBUTING.md without a compiler cache; prints their duration."""
    tree = scratch() / "tree"
    words = ["cmake", "--preset", "dev"], ["cmake", "--build", "--preset", "dev"]
    tests = ["build-dev/tests/launcher_test", "-sf=*hostfile_test*"]

    def seconds_of(*commands):
        begin = time.monotonic()
        for command in commands:
            environment = {**os.environ, "CCACHE_DISABLE": "1"}
            done = run_to_end(command, cwd=tree.parent, env=environment, timeout=None)
            expect(done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        return round(time.monotonic() - begin)

    copy = ["git", "-C", ROOT, "worktree", "list"]
    if run_to_end(copy).returncode != 0:
        raise Skip("this tree is no clone of git")
    first = seconds_of(["git", "clone", "-q", ROOT, tree], *(["env", "-C", tree, *each] for each in (*words, tests)))
    (tree / "launcher/plan/slot_plan.cpp").touch()
    again = seconds_of(*(["env", "-C", tree, *each] for each in (words[1], tests)))
    print(f"from a clone to the first test of the launcher: {first} s; from an edit to its result: {again} s")


if __name__ == "__main__":
    main()
