#!/usr/bin/env python3
"""The example trains to a test accuracy of 0.95 and more.

    python3 tests/e2e/training_digits.py horovodrun -np 8 -H a:4,b:4

The arguments are the launcher's command line; the example and this interpreter are added. Checks
the lines that rank 0 prints, the checkpoint, and that all ranks end with the same weights.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "torch_digits.py"
ENOUGH = 0.95


def main():
    try:
        import torch
    except ImportError as error:
        print(f"SKIP: {sys.executable} has no torch: {error}")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "digits.pt"
        done = subprocess.run(
            sys.argv[1:]
            + [
                sys.executable,
                str(EXAMPLE),
                "--checkpoint",
                str(checkpoint),
                "--save-weights",
                f"{folder}/weights.{{rank}}.pt",
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        print(done.stdout, end="")
        if done.returncode != 0:
            print(f"the launcher exited with {done.returncode}", file=sys.stderr)
            return 1
        final = re.search(r"test accuracy (\d\.\d+) after (\d+\.\d+) s of training on (\d+) processes", done.stdout)
        assert final, "rank 0 ends with accuracy and time"
        assert float(final[1]) >= ENOUGH, f"test accuracy {final[1]} is below {ENOUGH}"
        assert len(re.findall(r"epoch \d+/", done.stdout)) == 16, "a line per epoch, from one rank"
        assert set(torch.load(checkpoint)) == {"epoch", "model", "optimizer"}
        weights = [torch.load(path) for path in sorted(Path(folder).glob("weights.*.pt"))]
        assert len(weights) == int(final[3]), "every rank saves its weights"
        for others in weights[1:]:
            for name, value in weights[0].items():
                assert torch.equal(value, others[name]), f"{name} differs between ranks"
    return 0


if __name__ == "__main__":
    sys.exit(main())
