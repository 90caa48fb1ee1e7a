#!/usr/bin/python3 -B
"""Preparation of hosts before ranks start: an error names each difference and failure on a host."""

from harness import *

import network

TWO = ("-np", 4, "-H", "a:2,b:2")


def on_host(name, path, text, mode=0o755):
    """Writes a file in a host's own /run."""
    file = pathlib.Path(f"/proc/{host.pid_of(name)}/root/run/{path}")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)


@world()
def test_another_python_or_horovod_on_a_host_is_named_and_the_job_runs():
    on_host("a", "own/python3", f'#!/bin/sh\nexec {PYTHON} "$@"\n')
    on_host(
        "b",
        "own/python3",
        '#!/bin/sh\ncase "$*" in *find_spec*) '
        f'{PYTHON} "$@" | sed \'s/^Python .*/Python 3.9.1/\'; exit;; esac; exec {PYTHON} "$@"\n',
    )
    job = Job(*TWO, "/run/own/python3", "-c", "print('ran')")
    job.ends_with(0)
    expect(job.out.count("ran") == 4, job.describe())
    one_sentence(job, "host b has Python 3.9.1", r"host a has Python 3\.\d+\.\d+")
    for name, version in (("a", "1.0"), ("b", "1.1")):
        on_host(name, "packages/horovod/__init__.py", "raise SystemExit('imported')\n")
        on_host(name, "packages/horovod/_version.py", f'__version__ = "{version}"\n')
    job = Job(*TWO, PYTHON, "-c", "pass", environment=clean_environment(PYTHONPATH="/run/packages"))
    job.ends_with(0)
    one_sentence(job, r"host b has horovod 1\.1", r"host a has horovod 1\.0")
    job = Job(*TWO, PYTHON, "-c", "pass")
    job.ends_with(0)
    expect(job.said() == [], f"hosts that are alike\n{job.describe()}")


@world()
def test_a_python_that_does_not_run_on_a_host_is_refused_before_anything_starts():
    on_host("a", "own/python3", f'#!/bin/sh\nexec {PYTHON} "$@"\n')
    on_host("b", "own/python3", "#!/bin/sh\necho 'libpython3.11.so.1.0: no such file' >&2\nexit 127\n")
    job = Job(*TWO, "/run/own/python3", "-c", "print('ran')")
    job.ends_with(2)
    one_sentence(job, "host b", "/run/own/python3' does not run", "libpython3.11.so.1.0")
    expect(job.out == "", job.describe())


@world()
def test_remote_init_runs_once_on_each_host_and_its_environment_is_the_ranks():
    for name in "ab":
        on_host(
            name,
            "tools/train",
            "#!/bin/sh\necho $WHERE, $FROM_HERE, $(wc -l < /run/e2e-inits), $(ulimit -n) $(umask)\n",
        )
    init = (
        "echo noise; echo once >> /run/e2e-inits; PATH=/run/tools:$PATH; export WHERE=$(hostname); "
        'export FROM_HERE="$FROM_HERE and more"; ulimit -n 300; umask 027'
    )
    job = Job(*TWO, "--remote-init", init, "train", environment=clean_environment(FROM_HERE="two  words"))
    job.ends_with(0)
    expect(
        sorted(job.out.splitlines())
        == [f"[{r}]<stdout>:{'ab'[r // 2]}, two words and more, 1, 300 0027" for r in range(4)],
        job.describe(),
    )
    job.leaves_nothing()


@world()
def test_a_remote_init_that_fails_is_one_sentence_for_each_host():
    job = Job(
        *"-np 2 -H a:1,b:1".split(),
        "--remote-init",
        "[ $(hostname) = a ] || { echo 'module cray-python: not found' >&2; exit 3; }",
        "touch",
        "/tmp/e2e-started",
    )
    job.ends_with(2)
    one_sentence(job, "host b", "--remote-init", "failed with exit code 3: module cray-python: not found")
    expect(not os.path.exists("/tmp/e2e-started"), "a rank was started")
    job.leaves_nothing()


@world()
def test_an_error_of_remote_init_that_spans_lines_is_shown_on_one():
    """Lmod's error for an unknown module has more lines than the launcher shows."""
    error = (
        "Lmod has detected the following error: The following module(s) are unknown:\n"
        '"cray-python"\n\n' + "Please check the spelling or version number.\n" * 20 + "\tmodule --ignore_cache load\n"
    )
    job = Job("-np", 2, "-H", "a:1,b:1", "--remote-init", f"echo '{error}' >&2; exit 1", "true")
    job.ends_with(2)
    said = "\n".join(job.said())
    expect(
        re.search(
            'exit code 1: Lmod has detected .* are unknown:; "cray-python"; .*; module --ignore_cache load', said
        ),
        job.describe(),
    )
    expect("\\x" not in said, job.describe())


@world("a b", "--no-decoys")
def test_one_machine_under_two_names_is_named_and_machines_with_one_kernel_are_not():
    # The hosts of a world share one boot id and have separate namespaces, like pods of a node.
    address = network.address(0)
    for hosts, ranks, is_same in (
        (f"a:2,{address}:2", 4, True),
        (f"a:1,b:1,{address}:1", 3, True),
        ("a:2,b:2", 4, False),
    ):
        job = Job("-H", hosts, "echo", "ran")
        job.ends_with(0)
        found = [sentence for sentence in job.said() if "are one machine" in sentence]
        expect(len(found) == is_same and job.out.count("ran") == ranks, job.describe())
        expect(
            not is_same or re.match(f"hosts a and {address} are one machine: .*local ranks twice", found[0]),
            job.describe(),
        )


if __name__ == "__main__":
    main()
