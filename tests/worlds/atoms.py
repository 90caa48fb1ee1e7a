"""Data and settings for DeePMD-kit, and the weights that it has trained:

python3 atoms.py make FOLDER         writes 0.json, 1.json and both.json, each with its own data
python3 atoms.py weights CHECKPOINT  prints the weights in a checkpoint of TensorFlow
"""

import json
import os
import pathlib
import sys

import numpy

ATOMS = 6


def frames(folder, scales):
    """Writes a system with a frame for each scale. All have one geometry, from which the model takes its statistics."""
    rows = numpy.random.default_rng(1)
    box, places = 8 * numpy.eye(3).ravel(), 8 * rows.random(3 * ATOMS)
    forces = rows.standard_normal(3 * ATOMS)
    (folder / "set.000").mkdir(parents=True)
    (folder / "type.raw").write_text("0\n" * (ATOMS // 2) + "1\n" * (ATOMS - ATOMS // 2))
    (folder / "type_map.raw").write_text("O\nH\n")
    values = {"box": [box] * len(scales), "coord": [places] * len(scales), "energy": [-3.0] * len(scales)}
    for name, value in {**values, "force": [forces * scale for scale in scales]}.items():
        numpy.save(folder / "set.000" / f"{name}.npy", numpy.array(value))


def make(folder):
    for name, scales in {"0": [1.0], "1": [0.3], "both": [1.0, 0.3]}.items():
        frames(folder / name, scales)
        net = {"neuron": [8, 8], "resnet_dt": False, "seed": 1}
        descriptor = {"type": "se_e2_a", "sel": [6, 6], "rcut_smth": 0.5, "rcut": 6.0, "axis_neuron": 4, **net}
        rate = {"type": "exp", "decay_steps": 10, "start_lr": 0.01, "stop_lr": 1e-4, "scale_by_worker": "none"}
        prefactors = {"start_pref_e": 0.02, "limit_pref_e": 1, "start_pref_f": 1000, "limit_pref_f": 1}
        training = {"systems": [str(folder / name)], "batch_size": len(scales)}
        settings = {
            "model": {"type_map": ["O", "H"], "descriptor": descriptor, "fitting_net": net},
            "learning_rate": rate,
            "loss": {**prefactors, "start_pref_v": 0, "limit_pref_v": 0},
            "training": {"training_data": training, "numb_steps": 20, "seed": 1, "disp_freq": 10, "save_freq": 20},
        }
        (folder / f"{name}.json").write_text(json.dumps(settings))


def weights(checkpoint):
    import tensorflow

    saved = tensorflow.train.load_checkpoint(str(checkpoint))
    found = [saved.get_tensor(name) for name in sorted(saved.get_variable_to_shape_map())]
    numbers = [float(value) for tensor in found if tensor.dtype.kind == "f" for value in tensor.ravel()]
    os.write(1, f"weights {json.dumps(numbers)}\n".encode())


if __name__ == "__main__":
    {"make": make, "weights": weights}[sys.argv[1]](pathlib.Path(sys.argv[2]).resolve())
