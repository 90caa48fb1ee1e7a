"""A task of Flyte that its plugin kfmpi starts as a Horovod job of two workers:

python3 flyte_task.py INPUTS OUTPUTS  writes no inputs to the file INPUTS, and prints the task's command, a word a line
"""

import os
import sys

import horovod.numpy as hvd
import numpy
from flytekit import task
from flytekitplugins.kfmpi import HorovodJob, Launcher, Worker


@task(
    task_config=HorovodJob(
        launcher=Launcher(replicas=1), worker=Worker(replicas=2), discovery_script_path=os.environ["DISCOVERY"]
    )
)
def train() -> float:
    hvd.init()
    total = hvd.allreduce(numpy.ones(1) * (hvd.rank() + 1), op=hvd.Sum, name="total")
    os.write(1, f"rank {hvd.rank()} of {hvd.size()}, sum {total[0]:g}\n".encode())
    return float(total[0])


def command(inputs, outputs):
    """Returns the command with the values by which Flyte replaces its placeholders."""
    from flytekit.configuration import ImageConfig, SerializationSettings
    from flytekit.models.literals import LiteralMap

    with open(inputs, "wb") as file:
        file.write(LiteralMap({}).to_flyte_idl().SerializeToString())
    values = {"input": inputs, "outputPrefix": outputs, "rawOutputDataPrefix": f"{outputs}/raw"}
    values |= {"checkpointOutputPrefix": f"{outputs}/checkpoint", "prevCheckpointPrefix": ""}
    settings = SerializationSettings(image_config=ImageConfig.auto_default_image())
    return [values[word[3:-2]] if word.startswith("{{.") else word for word in train.get_command(settings)]


if __name__ == "__main__":
    import flyte_task

    print("\n".join(flyte_task.command(*sys.argv[1:])))
