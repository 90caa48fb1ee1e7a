"""The lines about training: two ranks against two processes that share only a barrier.

Each round is compared with the barrier round next to it, because both meet the same disturbances.
"""

import pathlib
import statistics

from driver import teams
from driver.lines import Line, Result

MODELS = {"cnn": "CNN, 21,840 parameters", "mlp": "MLP, 669,706 parameters", "deep": "62 tensors, 171,530 parameters"}


def efficiencies(bench, model, barrier, others):
    """Returns each team's speed in per cent of the barrier pair's, and the milliseconds of a barrier step."""
    found = bench.rounds_of([barrier, *others], "train", model, "ITERATIONS")
    base = found.pop(barrier.name)
    step = statistics.median(row[0] for row in base) / 1000
    return {
        name: 100 * statistics.median(one[0] / own[0] for one, own in zip(base, rows)) for name, rows in found.items()
    }, step


def _asides(bench, bounds, make, *arguments, **options):
    """Returns the teams to compare with: the build before, and the upper bounds."""
    found = []
    if bench.before:
        build = pathlib.Path(bench.before).resolve()
        found.append(bench.need(make, *arguments, build=build, **options))
    if bench.bounds:
        found += [bench.need(make, *arguments, bound=bound, **options) for bound in bounds]
    return found


def _result(ours, asides, found, step, must, least):
    notes = [f"a step at a barrier only takes {step:.2f} ms"]
    notes += [f"{team.name} {found.pop(team.name):.1f} %" for team in asides]
    efficiency = found.pop(ours.name)
    return Result("%", efficiency, found, must, efficiency >= least, "; ".join(notes))


def training(model):
    def measure(bench):
        barrier = bench.need(teams.plain_torch, 2, python=bench.python)
        ours = bench.need(teams.ours, 2, python=bench.python)
        asides = _asides(bench, ("word", "registered"), teams.ours, 2, python=bench.python)
        ddp = bench.team(teams.torch_gloo, 2, python=bench.python)
        found, step = efficiencies(bench, model, barrier, [ours, *asides, ddp])
        return _result(ours, asides, found, step, "≥ 97 %", 97)

    return measure


def training_tensorflow(model):
    """Measures TensorFlow; the target also includes MultiWorkerMirroredStrategy."""

    def measure(bench):
        python = bench.tensorflow
        barrier = bench.need(teams.tensorflow_plain, 2, python)
        ours = bench.need(teams.tensorflow_ours, 2, python)
        asides = _asides(bench, ("word",), teams.tensorflow_ours, 2, python)
        others = [bench.team(teams.tensorflow_mirrored, 2, python), bench.team(teams.tensorflow_plain, 1, python)]
        found, step = efficiencies(bench, model, barrier, [ours, *asides, *others])
        return _result(ours, asides, found, step, "≥ 97 %, and ≥ MWMS", max(97, found.get("MWMS", float("inf"))))

    return measure


def gradients_of_jax(count, width):
    """Measures a jitted step that averages its gradients in one call, against one call per gradient. The calls of a
    program run one after the other."""

    def measure(bench):
        contenders = [bench.need(teams.jax_ours, 2, bench.jax)]
        if bench.before:
            contenders.append(bench.need(teams.jax_ours, 2, bench.jax, build=pathlib.Path(bench.before).resolve()))
        found = bench.medians(contenders, "gradients", count, width, "ITERATIONS")
        each, one, alone = found.pop("ours")
        notes = [f"a step without averages takes {alone:.0f} µs"]
        notes += [
            f"{name}: {a:.0f} µs by a call for each, {b:.0f} by one, {c:.0f}" for name, (a, b, c) in found.items()
        ]
        most = 1.1 * each  # separate calls for large gradients start earlier in the backward pass
        return Result("µs", one, {"a call for each": each}, "≤ 1.1 × a call for each", one <= most, "; ".join(notes))

    return measure


LINES = (
    [Line(f"training-{model}", f"{what}, against a barrier only", training(model)) for model, what in MODELS.items()]
    + [
        Line(f"training-tensorflow-{model}", f"{model} as above, in TensorFlow", training_tensorflow(model))
        for model in MODELS
    ]
    + [
        Line(
            f"training-jax-{kib}KiB",
            f"16 gradients of {kib} KiB, averaged in one call in JAX",
            gradients_of_jax(16, width),
        )
        for kib, width in ((1, 16), (64, 128))
    ]
)
