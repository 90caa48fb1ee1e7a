"""Models trained with a distributed optimizer and saved; loaded by Keras with and without Horovod, and by
hvd.load_model.

keras_saving_test.py [--all] [tensorflow | torch | jax]    the backend, for Keras 3

--all: each optimizer in each format. By default, one optimizer of each kind if a format or a backend is slow.
"""

import inspect
import json
import os
import subprocess
import sys
import tempfile

LOADS = sys.argv[1:2] == ["--load"]  # a process without Horovod
ALL = sys.argv[1:2] == ["--all"]
del sys.argv[1 : 1 + (LOADS or ALL)]
os.environ.setdefault("HVD_TEST_SECONDS", "300")  # all ranks trace functions at the same time
import keras_backend
import rank_base
from keras_backend import BACKEND, KERAS_3, LEGACY, SCALED, keras

hvd = None if LOADS else keras_backend.import_horovod()

import numpy

FORMATS = ["model.keras", "model.h5"] + ([] if KERAS_3 else ["model"])
FEW = rank_base.some(["AdamW", "Adafactor", "Lion", "Renamed", "around SGD", "Registered", "inside SGD"])


@keras.utils.register_keras_serializable("tests")
class Registered(keras.optimizers.SGD):
    """A user's optimizer in its own package."""


@keras.utils.register_keras_serializable("tests", "another_name")
class Renamed(keras.optimizers.Adam):
    """A user's optimizer under a name that differs from its class."""


class Unregistered(keras.optimizers.SGD):
    """An optimizer that the caller of load_model names."""


def makers():
    """Returns by name pairs of a function that makes an optimizer, and one that makes a distributed one."""
    made = {"Registered": Registered, "Renamed": Renamed, "Unregistered": Unregistered}
    for module, prefix in [(keras.optimizers, "")] + ([(LEGACY, "legacy ")] if LEGACY else []):
        for name, each in vars(module).items():
            # MultiOptimizer and its OptimizerMap hold optimizers that the user makes.
            if inspect.isclass(each) and name not in ("Optimizer", "MultiOptimizer", "OptimizerMap", SCALED.__name__):
                made[prefix + name] = each
    pairs = {name: (make, lambda make=make: hvd.DistributedOptimizer(make())) for name, make in made.items()}
    for name in ("SGD", "AdamW", "Registered", "legacy SGD"):
        if name in made:

            def plain(make=made[name]):
                return SCALED(make())

            pairs[f"around {name}"] = plain, lambda plain=plain: hvd.DistributedOptimizer(plain())
            pairs[f"inside {name}"] = plain, lambda make=made[name]: SCALED(hvd.DistributedOptimizer(make()))
    return pairs


def is_chosen(name, file):
    return ALL or name in (FEW if file != "model" else ["AdamW", "Renamed", "inside SGD"])


def network():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    model.set_weights([numpy.array([[1.0, 2.0], [3.0, 4.0]]), numpy.array([0.5, -0.5])])
    return model


def trained(optimizer):
    model = network()
    model.compile(optimizer, keras.losses.MeanSquaredError())  # Keras 3 cannot load "mse" from .h5
    step(model)
    return model


def step(model):
    x = numpy.arange(8.0, dtype="float32").reshape(4, 2)
    model.train_on_batch(x, x[:, ::-1])


def describe(load, path):
    """Returns the optimizer's class, its state, and the weights after one more step; or the error."""
    try:
        model = load(path, custom_objects={"Unregistered": Unregistered})
    except (TypeError, ValueError) as error:
        return [type(error).__name__, str(error)]
    variables = model.optimizer.variables
    found = list(variables() if callable(variables) else variables)  # a function in legacy optimizers
    state = [numpy.asarray(keras.ops.convert_to_numpy(each) if KERAS_3 else each).tolist() for each in found]
    try:
        step(model)
    except ValueError as error:  # Keras 3 loads models from .h5 that it cannot train
        assert KERAS_3 and path.endswith(".h5") and "Unknown variable" in str(error), error
    return [type(model.optimizer).__name__, state + [weight.tolist() for weight in model.get_weights()]]


class SavingTest(rank_base.RankBase):
    def test_models_are_loaded_as_those_of_keras(self):
        scratch = tempfile.TemporaryDirectory() if self.rank == 0 else None
        folder = hvd.broadcast_object(scratch and scratch.name)
        paths = []
        for name, makes in makers().items():
            for file in FORMATS:
                if is_chosen(name, file):
                    both = [os.path.join(folder, f"{kind} {name} {file}") for kind in ("plain", "our")]
                    models = [trained(make()) for make in makes]
                    if self.rank == 0 and not self.is_saved(models, both):
                        both = []
                    both = hvd.broadcast_object(both)
                    if both:
                        paths.append(both)
        self.assertGreater(len(paths), len(FEW))
        loaded = [describe(hvd.load_model, ours) for _, ours in paths]
        if self.rank:
            return
        reference = self.loaded_without_horovod(folder)
        for (theirs, ours), by_us in zip(paths, loaded):
            with self.subTest(os.path.basename(ours)):
                want = reference[theirs]
                for got in (reference[ours], by_us, describe(keras.models.load_model, ours)):
                    self.assertEqual(got[0], want[0], got[1])
                    if not isinstance(want[1], str):  # Keras itself can load the file
                        numpy.testing.assert_allclose(
                            numpy.concatenate([numpy.ravel(one) for one in got[1]]),
                            numpy.concatenate([numpy.ravel(one) for one in want[1]]),
                            rtol=1e-6,
                        )
        failed = sorted({os.path.basename(theirs) for theirs, _ in paths if isinstance(reference[theirs][1], str)})
        # Keras 2 cannot find all optimizer classes in a LossScaleOptimizer; Keras 3.15 cannot find Lamb by its name.
        self.assertTrue(
            all("around" in name or "inside" in name or name == "plain Lamb model.h5" for name in failed),
            [(name, reference[os.path.join(folder, name)]) for name in failed],
        )
        self.assertFalse([name for name in failed if "SGD" in name])
        scratch.cleanup()

    def is_saved(self, models, paths):
        """Saves the models. Returns whether Keras can, which fails if variables have equal names."""
        for model, path in zip(models, paths):
            try:
                model.save(path)
            except ValueError as error:
                self.assertIn("name already exists", str(error))
                self.assertIn("h5", path)
                if os.path.exists(path):
                    os.remove(path)
                path = ""
            self.assertEqual(bool(path), os.path.exists(paths[0]), "our model and the plain one differ")
        return os.path.exists(paths[1])

    def loaded_without_horovod(self, folder):
        """Returns by path what a process without Horovod loads from the files."""
        done = subprocess.run(
            [sys.executable, __file__, "--load", BACKEND, folder], stdout=subprocess.PIPE, check=True, text=True
        )
        return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    if LOADS:
        folder = sys.argv[1]
        found = {
            os.path.join(folder, name): describe(keras.models.load_model, os.path.join(folder, name))
            for name in sorted(os.listdir(folder))
        }
        assert not any(name.split(".")[0] == "horovod" for name in sys.modules)
        print(json.dumps(found))
    else:
        rank_base.main()
