"""Prints the version of this interpreter's TensorFlow, such as 2.21, without importing it."""

from importlib import metadata

for name in ("tensorflow-cpu", "tensorflow"):
    try:
        print(".".join(metadata.version(name).split(".")[:2]), end="")
        break
    except metadata.PackageNotFoundError:
        pass
