#!/usr/bin/python3 -B
"""A program that imports the original Horovod instead of this package is refused before it starts."""

from harness import *

OURS = BUILD / "python"


def install_original(folder):
    """Makes a package with the original's name and the file that identifies it."""
    common = folder / "horovod" / "common"
    common.mkdir(parents=True)
    (common.parent / "__init__.py").touch()
    (common / "basics.py").touch()
    return folder


def run(folder, code, *flags, path):
    script = folder / "train.py"
    script.write_text(f"{code}\nprint('started')\n")
    return Job("-np", 2, *flags, PYTHON, script, environment=clean_environment(PYTHONPATH=":".join(map(str, path))))


def test_an_original_that_shadows_ours_is_refused_with_its_folder():
    folder = scratch()
    original = install_original(folder / "other")
    job = run(folder, "import horovod", path=(original, OURS))
    job.ends_with(2)
    expect("started" not in job.out, job.describe())
    one_sentence(
        job,
        rf"{PYTHON} finds the original Horovod first, in {original}, which cannot join this "
        rf"job: uninstall it there \({PYTHON} -m pip uninstall horovod\), or put the folder of this "
        "horovodrun's package before it on PYTHONPATH, or give --insecure-compat for ranks of the original",
    )


def test_an_original_beside_the_script_is_refused():
    folder = install_original(scratch())
    job = run(folder, "from horovod import run", path=(OURS,))
    job.ends_with(2)
    one_sentence(job, f"finds the original Horovod first, in {folder}, ")


def test_programs_that_do_not_import_the_original_start():
    folder = scratch()
    original = install_original(folder / "other")
    for code, flags, path in (
        ("import horovod.common.basics", (), (OURS, original)),
        ("import json", (), (original, OURS)),
        ("import horovod", ("--insecure-compat",), (original, OURS)),
    ):
        job = run(folder, code, *flags, path=path)
        job.ends_with(0)
        expect(job.out.count("started") == 2, job.describe())


if __name__ == "__main__":
    main()
