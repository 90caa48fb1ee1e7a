"""Runs a type checker on a script that uses the package, installed as by pip.

types_test.py MYPY PACKAGE PYTHON...

MYPY: an interpreter with mypy; PACKAGE: the folder of the package; PYTHON: interpreters with torch.
"""

import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
# Wrong lines, and the expected error for each.
WRONG = {
    "hvd.allreduce(torch.ones(2), name=3)": '"name" to "allreduce"',
    "hvd.broadcast(torch.ones(2))": '"root_rank"',
    "hvd.alltoall(torch.ones(2)).tolist() + hvd.alltoall(torch.ones(2), [1, 1]).tolist()": (
        '"tuple[Tensor, Tensor]" has no attribute "tolist"'
    ),
    "hvd.alreduce(torch.ones(2))": 'has no attribute "alreduce"',
    "hvd.rank() + 'a'": "operand",
    "horovod.run(print, num_proc='two')": '"num_proc" to "run"',
}


def environment(python, folder, package):
    """Makes an interpreter with the package and the packages of `python`."""
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    made = folder / "bin/python3"
    places = [
        subprocess.run([each, "-c", code], capture_output=True, text=True, check=True).stdout
        for each, code in [
            (made, "import sysconfig; print(sysconfig.get_path('purelib'))"),
            (python, "import sys; print(*[p for p in sys.path if 'packages' in p], sep='\\n')"),
        ]
    ]
    pathlib.Path(places[0].strip(), "seen.pth").write_text(f"{package}\n{places[1]}")
    return made


def check(mypy, python, folder, script):
    done = subprocess.run(
        [
            mypy,
            *"-m mypy --strict --no-pretty".split(),
            "--python-executable",
            python,
            "--cache-dir",
            folder / "cache",
            script,
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    return done.returncode, done.stdout + done.stderr


def main(mypy, package, *pythons):
    for python in pythons:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            seeing = environment(python, folder / "venv", package)
            code, said = check(mypy, seeing, folder, HERE / "typed_script.py")
            assert code == 0, said
            wrong = folder / "wrong.py"
            wrong.write_text("import horovod\nimport horovod.torch as hvd\nimport torch\n" + "\n".join(WRONG) + "\n")
            code, said = check(mypy, seeing, folder, wrong)
            heard = {int(line.split(":")[1]): line for line in said.splitlines() if ": error:" in line}
            for number, (line, words) in enumerate(WRONG.items(), 4):
                assert words in heard.get(number, ""), f"{line}: {words} is not in\n{said}"
            print(f"{python}: the script passes, and {len(WRONG)} wrong lines are found")


main(*sys.argv[1:])
