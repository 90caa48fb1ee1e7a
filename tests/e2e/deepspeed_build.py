"""DeepSpeed compiles a part of itself at its first start. This module compiles it once, for all tests."""

import fcntl

from harness import *

FOLDER = BUILD / "torch-extensions"
COMPILE = "from deepspeed.comm.torch import build_shm_op; build_shm_op()"
LONGEST_CHECK = 60  # seconds for which a start may hold the lock of a compiled part


def environment_of_deepspeed(python):
    """Returns the variables with which this interpreter's DeepSpeed finds the compiled part."""
    variables = {"TORCH_EXTENSIONS_DIR": str(FOLDER)}
    variables["PATH"] = f"{pathlib.Path(python).parent}:{clean_environment()['PATH']}"  # it runs ninja
    FOLDER.mkdir(exist_ok=True)
    with open(FOLDER / "tests.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        is_compiled = (FOLDER / "compiled").exists()
        for lock in FOLDER.glob("**/lock"):
            # An interrupted start leaves its lock.
            if not is_compiled or time.time() - lock.stat().st_mtime > LONGEST_CHECK:
                lock.unlink()
        if not is_compiled:
            subprocess.run([python, "-c", COMPILE], env=clean_environment(**variables), timeout=800, check=True)
            (FOLDER / "compiled").touch()
    return variables
