"""Runs test files one after the other, each in a process that is forked after the import of a framework and of our
package for it, because imports take longer than most files.

python3 files.py MODULE FILE[,ARGUMENT...]...

Each rank of a job runs it with the same words. It exits with the code of the first file that fails, and names the files
that did not run. It names each file that skips (exit code 77); if all files skip, the exit code is 77.
"""

import contextlib
import gc
import importlib
import os
import sys

SKIPPED = 77
# Modules that a framework imports at its first use.
LAZY = {"torch": "torch._dynamo", "tensorflow": "keras", "jax": "optax"}

module, *files = sys.argv[1:]
here = os.path.dirname(os.path.abspath(__file__))
rank = int(os.environ.get("HOROVOD_RANK", "0"))
skipped = []
importlib.import_module(f"horovod.{module}")
with contextlib.suppress(ImportError):  # not in each version
    importlib.import_module(LAZY[module])
gc.freeze()  # the collections of a child would copy all of the parent's memory


def verdict(number):
    """Forks a child. Returns None in the child, and the child's exit code in the parent."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    # Each file has its own key prefix for the rendezvous of its ranks; the first file has none, as in a plain job.
    os.environ["HOROVOD_GENERATION"] = str(number)
    return None


for number, words in enumerate(files):
    file, *arguments = words.split(",")
    if rank == 0:
        print(f"== {file} {' '.join(arguments)}", flush=True)
    code = verdict(number)
    if code is None:
        break
    if code == SKIPPED:
        skipped.append(file)
    elif code:
        print(f"{file} failed with {code}; not run: {', '.join(files[number + 1 :]) or 'none'}", flush=True)
        # Exit at once, so that the launcher ends the job: other ranks wait for this rank.
        sys.exit(code if code > 0 else 128 - code)
else:
    if skipped and rank == 0:
        print(f"skipped: {', '.join(skipped)}")
    sys.exit(SKIPPED if len(skipped) == len(files) else 0)

# The child continues as the main program of its file.
path = os.path.join(here, file)
sys.argv = [path, *arguments]
sys.path[0] = os.path.dirname(path)
with open(path, "rb") as text:
    program = compile(text.read(), path, "exec")
for name in [name for name in globals() if not name.startswith("__") and name != "program"]:
    del globals()[name]
__file__ = program.co_filename
exec(program)
