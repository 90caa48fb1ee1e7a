"""Runs the examples of docs/tracking.md unchanged with the real packages, without a server.

tracking_test.py NAME [MODULE]

NAME: the heading of an example. MODULE: a framework's module, numpy by default.
"""

import glob
import importlib
import os
import pathlib
import re
import struct
import sys
import tempfile

import numpy

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "tracking.md"
KEYS = {"step_seconds", "waited_share", "bytes"}
NAMES = {f"horovod/{key}" for key in KEYS}


def example(heading):
    section = PAGE.read_text("utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```python\n(.*?)```", section, re.S)
    assert len(blocks) == 1, heading
    return blocks[0]


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def run(heading, hvd, **names):
    gradient = numpy.ones(25, "f4")
    exec(
        compile(example(heading), f"{PAGE.name}: {heading}", "exec"),
        {"hvd": hvd, "batches": range(150), "train": lambda _: hvd.allreduce(gradient, name="gradient"), **names},
    )


def scalars():
    """Returns the steps and last values of the scalars in `runs`, by tag."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    found = {}
    for folder in {os.path.dirname(path) for path in glob.glob("runs/**/events.*", recursive=True)}:
        events = EventAccumulator(folder, size_guidance={"tensors": 0})
        events.Reload()
        for tag in events.Tags()["tensors"]:
            values = events.Tensors(tag)
            found[tag] = ([each.step for each in values], make_ndarray(values[-1].tensor_proto))
    return found


def tensorboard(hvd):
    run("TensorBoard", hvd)
    hvd.barrier()
    if hvd.rank() == 0:
        seen = scalars()
        expect(NAMES <= seen.keys() and all(seen[name][0] == [49, 99, 149] for name in NAMES), seen)
        expect(seen["horovod/bytes"][1] == 100, seen)
        expect("NEGOTIATE_ALLREDUCE" in open("runs/timeline.json").read(), "no timeline")


def keras(hvd):
    import keras as package

    model = package.Sequential([package.layers.Dense(1)])
    model.compile(optimizer=hvd.DistributedOptimizer(package.optimizers.SGD(0.01)), loss="mse")
    images, labels = numpy.ones((160, 4), "f4"), numpy.ones((160, 1), "f4")
    run("Keras", hvd, keras=package, model=model, images=images, labels=labels)
    hvd.barrier()
    if hvd.rank() == 0:
        seen = scalars()
        expect({f"epoch_{name}" for name in NAMES} <= seen.keys(), seen)


def records_of(path):
    """Yields the records of a W&B file, which is a LevelDB log after a header of 7 bytes."""
    data = pathlib.Path(path).read_bytes()
    at, record = 7, b""
    while at < len(data):
        if at % 32768 > 32768 - 7:
            at += -at % 32768  # no header fits into the rest of the block
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        record += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # a full record, or its last part
            yield record
            record = b""


def wandb(hvd):
    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_DIR=os.getcwd())
    run("Weights & Biases", hvd)
    if hvd.rank() == 0:
        import wandb as package
        from wandb.proto.wandb_internal_pb2 import Record

        package.teardown()  # returns after W&B's service has written the file
        (path,) = glob.glob("wandb/offline-run-*/run-*.wandb")
        seen = {}
        for data in records_of(path):
            record = Record()
            record.ParseFromString(data)
            for item in record.history.item:
                seen.setdefault("/".join(item.nested_key) or item.key, []).append(float(item.value_json))
        expect(NAMES <= seen.keys() and seen["_step"] == [49, 99, 149], seen)
        expect(seen["horovod/bytes"] == [100] * 3, seen)
    else:
        expect(not os.path.exists("wandb"), "a rank other than 0 writes")


def mlflow(hvd):
    os.environ.update(MLFLOW_TRACKING_URI=pathlib.Path("mlruns").absolute().as_uri(), MLFLOW_ALLOW_FILE_STORE="true")
    run("MLflow", hvd)
    if hvd.rank() == 0:
        from mlflow.tracking import MlflowClient

        (found,) = MlflowClient().search_runs(["0"])
        for name in NAMES:
            steps = [each.step for each in MlflowClient().get_metric_history(found.info.run_id, name)]
            expect(steps == [49, 99, 149], (name, steps))
        expect(found.data.metrics["horovod/bytes"] == 100, found.data.metrics)


EXAMPLES = {"TensorBoard": tensorboard, "Keras": keras, "wandb": wandb, "mlflow": mlflow}


def main():
    hvd = importlib.import_module("horovod." + (sys.argv[2] if len(sys.argv) > 2 else "numpy"))
    hvd.init()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        EXAMPLES[sys.argv[1]](hvd)
        hvd.barrier()
        os.chdir("/")
    hvd.shutdown()


if __name__ == "__main__":
    main()
