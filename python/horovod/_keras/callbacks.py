"""The callbacks of `horovod.keras.callbacks` and `horovod.tensorflow.keras.callbacks`. `callbacks_for` derives the
classes for one Keras, which the classes store as `_keras`."""

from __future__ import annotations

import functools
import numbers
import warnings
from typing import Any, Callable, Dict, List, Optional, Union

import numpy

from horovod import _basics
from horovod._keras import loss_scale
from horovod._keras._frameworks import backend_of
from horovod._keras.optimizer import Distributed
from horovod._ops import Average
from horovod.numpy import _collectives as host


def _share_state(model: Any) -> None:
    # On JAX, the compiled step holds the model's variables during training, so copy them back first.
    sync = getattr(model, "jax_state_sync", None)
    if sync is not None and getattr(model, "_jax_state", None) is not None:
        sync()


def _sums_of_passes(optimizer: Any) -> List[Any]:
    """Returns the sums of gradients that an optimizer of Keras 3 accumulates, and reduces after the last pass of a
    step."""
    sums: List[Any] = []
    while optimizer is not None:
        sums += [each for each in getattr(optimizer, "_accumulated_gradients", ()) if each is not None]
        optimizer = getattr(optimizer, "inner_optimizer", None)
    return sums


def _about_batches(callback: Any, consequence: str) -> str:
    """Returns a sentence with the consequence if ranks whose optimizer reduces gradients have different numbers of
    batches in an epoch, else an empty string. Skips ranks where Keras does not know the size of the data."""
    optimizers = loss_scale.wrapped(getattr(callback.model, "optimizer", None))
    distributed = next((each for each in optimizers if isinstance(each, Distributed)), None)
    if distributed is None:
        return ""
    steps = numpy.array([(callback.params or {}).get("steps") or 0], numpy.int64)
    known = sorted(set(host.allgather(steps, "keras.batches", distributed.process_set).tolist()) - {0})
    if len(known) < 2:
        return ""
    return (
        f"{type(callback).__name__}: the ranks have {known[0]} to {known[-1]} batches in an epoch, {consequence}; "
        f"give fit {known[0]} batches on all ranks, or steps_per_epoch={known[0]} and data that repeats."
    )


class BroadcastGlobalVariables:
    """Sets the model's and the optimizer's variables to their values on the rank `root_rank`, once, after the first
    batch, when all variables exist.

    `local_variables`: a variable that keeps this rank's value, or a list of them. `device` is accepted
    for existing scripts.
    """

    _keras: Any = None

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        self.root_rank = root_rank
        is_one = hasattr(local_variables, "assign")
        self._local = [local_variables] if is_one else list(local_variables or [])
        self._is_done = False

    def register_local_var(self, var: Any) -> None:
        """Keeps this rank's value of the variable."""
        self._local.append(var)

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        warning = _about_batches(self, "so gradients of different epochs meet, and ranks that end last fail")
        if warning and _basics.rank() == 0:
            warnings.warn(warning, stacklevel=2)

    # Keras calls on_batch_* from on_train_batch_*. Programs that wrap callbacks replace on_batch_*.
    def on_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if self._is_done:
            return
        backend = backend_of(self._keras)
        _share_state(self.model)
        optimizer = self.model.optimizer
        own = optimizer.variables if optimizer is not None else []
        # Each rank keeps the sums of its own passes, because the first pass has already run.
        local = {backend.key_of(variable) for variable in self._local + _sums_of_passes(optimizer)}
        variables = [
            variable
            for variable in list(self.model.weights) + list(own() if callable(own) else own)
            if backend.key_of(variable) not in local
        ]
        backend.broadcast_variables(variables, self.root_rank)
        self._is_done = True


class MetricAverage:
    """Replaces each metric at the end of an epoch by its average over the ranks, for the callbacks after this one. All
    ranks must have the same metrics, and the same number of batches in an epoch: ValueError before the first batch if
    Keras detects a difference. `device` is accepted for existing scripts."""

    def __init__(self, device: str = "") -> None:
        super().__init__()

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        error = _about_batches(self, "so each rank would wait for the others at its end")
        if error:
            raise ValueError(error)

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        names = sorted(
            name
            for name, value in (logs or {}).items()
            if isinstance(value, (numbers.Number, numpy.number)) or (hasattr(value, "shape") and len(value.shape) == 0)
        )
        if logs is None or not names:
            return
        values = numpy.array([float(logs[name]) for name in names])
        averaged = host.allreduce(values, None, f"metrics.{'.'.join(names)}", Average)
        for name, value in zip(names, averaged):
            logs[name] = float(value)


def _constant(value: float, epoch: float) -> float:
    return value


@functools.lru_cache(maxsize=None)  # runs once per process
def _warn_of_constant() -> None:
    if not _basics.is_initialized() or _basics.rank() == 0:
        warnings.warn(
            "LearningRateScheduleCallback: a number m as multiplier gives the learning rate "
            "initial_lr * m in all epochs. Horovod 0.28 gives initial_lr * m ** (epoch - start_epoch); "
            "multiplier=lambda epoch: m ** (epoch - start_epoch) does the same.",
            stacklevel=3,
        )


class LearningRateSchedule:
    """Multiplies `initial_lr` by `multiplier`, a number or a function of the epoch, from `start_epoch`
    until before `end_epoch` (None: no end).

    `staircase`: once per epoch; otherwise with each batch, by fractions of epochs. `steps_per_epoch`:
    the number of batches in an epoch; None: detected. `momentum_correction`: scales the momentum of SGD
    and RMSprop when the learning rate changes. `lr`: an older name of `initial_lr`. Raises ValueError
    for invalid arguments.
    """

    _keras: Any = None

    def __init__(
        self,
        initial_lr: Optional[float] = None,
        multiplier: Union[float, Callable[[float], float], None] = None,
        start_epoch: int = 0,
        end_epoch: Optional[int] = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: Optional[int] = None,
        lr: Optional[float] = None,
    ) -> None:
        super().__init__()
        if (initial_lr is None) == (lr is None):
            raise ValueError(
                f"{type(self).__name__} needs initial_lr, the learning rate to begin "
                "with, or lr, its older name, and not both."
            )
        if multiplier is None:
            raise ValueError(f"{type(self).__name__} needs multiplier, a number or a function of the epoch.")
        if not callable(multiplier) and multiplier != 1:
            _warn_of_constant()
        self.initial_lr: Any = initial_lr if initial_lr is not None else lr
        self.multiplier = multiplier if callable(multiplier) else functools.partial(_constant, multiplier)
        # A number as multiplier implies a staircase.
        self.staircase = staircase if callable(multiplier) else True
        self.start_epoch: int = start_epoch
        self.end_epoch: Any = end_epoch
        self.momentum_correction = momentum_correction
        self.steps_per_epoch: Any = steps_per_epoch
        self._finds_steps = not steps_per_epoch
        self.current_epoch = 0
        self._momentum: Any = None

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        if self.staircase or not self._finds_steps:
            return
        # The next call of `fit` may continue an epoch with fewer batches.
        self.steps_per_epoch = (self.params or {}).get("steps")
        if not self.steps_per_epoch:
            raise ValueError(
                f"{type(self).__name__} cannot tell how many batches an epoch has; give it steps_per_epoch."
            )

    def on_epoch_begin(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        self.current_epoch = epoch

    def on_batch_begin(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        epoch = self.current_epoch
        if epoch < self.start_epoch or (self.end_epoch is not None and epoch >= self.end_epoch):
            return
        if self.staircase and batch == 0:
            self._adjust(epoch)
        elif not self.staircase:
            self._adjust(epoch + batch / self.steps_per_epoch)

    def on_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if self._momentum is not None:
            self.model.optimizer.momentum = self._momentum
            self._momentum = None

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if logs is not None:
            logs["lr"] = self._learning_rate()

    def _learning_rate(self) -> float:
        rate = self.model.optimizer.learning_rate
        return float(rate.numpy() if hasattr(rate, "numpy") else numpy.asarray(rate))

    def _adjust(self, epoch: float) -> None:
        old, new = self._learning_rate(), self.initial_lr * self.multiplier(epoch)
        if old == numpy.float32(new):
            return
        _share_state(self.model)
        self.model.optimizer.learning_rate = new
        if self.momentum_correction and old > 0:
            self._correct(self.model.optimizer, new / old)

    def _correct(self, optimizer: Any, factor: float) -> None:
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        momentum: Any = getattr(optimizer, "momentum", None)
        if hasattr(momentum, "assign"):  # older optimizers keep momentum in a variable: change it for one batch
            self._momentum = float(momentum.numpy())
            optimizer.momentum = self._momentum * factor
        elif isinstance(optimizer, (self._keras.optimizers.SGD, self._keras.optimizers.RMSprop)):
            # In other versions the compiled step contains the momentum as a constant. Scale the velocity, which the
            # step multiplies by this constant, instead.
            for name in ("momentums", "_momentums"):
                for gathered in getattr(optimizer, name, None) or []:
                    gathered.assign(gathered * factor)


class LearningRateWarmup(LearningRateSchedule):
    """Raises the learning rate with each batch, from `initial_lr` divided by the number of ranks to
    `initial_lr`, over `warmup_epochs` epochs. `verbose`: 1 prints a line on rank 0 at the end. The other
    arguments are those of LearningRateScheduleCallback."""

    def __init__(
        self,
        initial_lr: Optional[float] = None,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: Optional[int] = None,
        verbose: int = 0,
        lr: Optional[float] = None,
    ) -> None:
        if warmup_epochs <= 0:
            raise ValueError(f"warmup_epochs must be above 0, not {warmup_epochs}.")
        super().__init__(initial_lr, self._share, 0, warmup_epochs, False, momentum_correction, steps_per_epoch, lr)
        self.verbose = verbose

    def _share(self, epoch: float) -> float:
        # The last batch of the last epoch gets the full rate.
        epoch += 1.0 / self.steps_per_epoch
        size = _basics.size()
        return 1.0 / size * (epoch * (size - 1) / self.end_epoch + 1)

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        super().on_epoch_end(epoch, logs)
        if epoch == self.end_epoch - 1 and self.verbose > 0 and _basics.rank() == 0:
            print(f"\nEpoch {epoch + 1}: the learning rate has been raised to {self._learning_rate():g}.")


class BestModel:
    """Keras's ModelCheckpoint that keeps only the best model, on rank 0 only.

    `filepath` may be set later, as an attribute, before training.
    """

    _keras: Any = None

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        mode: str = "auto",
        save_freq: Any = "epoch",
        save_weights_only: bool = False,
        filepath: Optional[str] = None,
    ) -> None:
        suffix = ".weights.h5" if save_weights_only else ".keras"
        super().__init__(
            filepath=filepath or f"best_model{suffix}",
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if _basics.rank() == 0:
            super().on_epoch_end(epoch, logs)

    def on_train_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if _basics.rank() == 0:
            super().on_train_batch_end(batch, logs)


class BestModelOfTensorFlow(BestModel):
    __doc__ = BestModel.__doc__

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: Any = "epoch",
        filepath: Optional[str] = None,
    ) -> None:
        super().__init__(monitor, verbose, mode, save_freq, save_weights_only, filepath)


def callbacks_for(keras: Any, module: str, best: Any = BestModel) -> Dict[str, Any]:
    """Returns the classes of the module `module`, by name. `best`: the base of BestModelCheckpoint."""
    return {
        name: type(name, (what, base), {"__doc__": what.__doc__, "__module__": module, "_keras": keras})
        for name, what, base in [
            ("BroadcastGlobalVariablesCallback", BroadcastGlobalVariables, keras.callbacks.Callback),
            ("MetricAverageCallback", MetricAverage, keras.callbacks.Callback),
            ("LearningRateScheduleCallback", LearningRateSchedule, keras.callbacks.Callback),
            ("LearningRateWarmupCallback", LearningRateWarmup, keras.callbacks.Callback),
            ("BestModelCheckpoint", best, keras.callbacks.ModelCheckpoint),
        ]
    }
