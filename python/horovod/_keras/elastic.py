"""States and callbacks of `hvd.elastic` for Keras, and for variables of TensorFlow. `elastic_for` makes
the classes for one Keras.

See `horovod._elastic.run`, and docs/elastic.md.
"""

from __future__ import annotations

import importlib
from typing import Any, Callable, Dict, List, Optional, Sequence

import numpy

from horovod._elastic import ObjectState, source_rank
from horovod._keras._frameworks import backend_of, framework_of
from horovod._keras.callbacks import _share_state


class VariablesState(ObjectState):
    """A state of the variables that `variables` returns, and of attributes. `broadcast` copies rank 0's
    values of variables to all ranks."""

    def __init__(
        self, variables: Callable[[], Sequence[Any]], broadcast: Callable[[Sequence[Any]], None], **kwargs: Any
    ) -> None:
        self._variables, self._broadcast = variables, broadcast
        self._values: List[Any] = []
        super().__init__(**kwargs)
        self.save()

    def save(self) -> None:
        """Keeps copies of variables and attributes."""
        values = [numpy.array(variable.numpy()) for variable in self._variables()]
        super().save()
        self._values = values

    def restore(self) -> None:
        """Sets variables and attributes to the last saved copies."""
        for variable, value in zip(self._variables(), self._values):
            variable.assign(value)
        super().restore()

    def sync(self) -> None:
        """Sets variables and attributes to those of rank 0. All ranks must call it, with equal
        variables."""
        variables = list(self._variables())
        if variables:
            self._broadcast(variables)
        super().sync()
        self.save()  # last, so that a failure before this line returns to variables and attributes of the same commit


def variables_of_model(model: Any, optimizer: Any) -> List[Any]:
    """Returns the variables of the model and, once they exist, of its optimizer."""
    _share_state(model)
    optimizer = optimizer or getattr(model, "optimizer", None)
    found = list(model.weights)
    if optimizer is not None:
        trainable = list(model.trainable_variables)
        if trainable and hasattr(optimizer, "build") and not getattr(optimizer, "built", False):
            optimizer.build(trainable)
        own = optimizer.variables
        found += list(own() if callable(own) else own)
    return found


class ModelState(VariablesState):
    """Weights of `model`, which is built, variables of `optimizer` (the model's where it is None), and
    keyword arguments such as batch=0 and epoch=0 as attributes."""

    _keras: Any = None

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        self.model, self.optimizer = model, optimizer
        super().__init__(
            lambda: variables_of_model(model, optimizer),
            lambda variables: backend_of(self._keras).broadcast_variables(variables, source_rank()),
            **kwargs,
        )


class CommitState:
    """Commits the state after every `batches_per_commit` batches, and at the end of each epoch."""

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state, self.batches_per_commit = state, batches_per_commit
        self._remaining = batches_per_commit

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        """Begins to count batches, so that all ranks commit after the same batch."""
        self._remaining = self.batches_per_commit

    def on_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Counts batches."""
        self._remaining -= 1
        if self._remaining == 0:
            self.commit()
            self._remaining = self.batches_per_commit

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Commits."""
        self.commit()

    def commit(self) -> None:
        """Commits the state. Subclasses may do more."""
        self.state.commit()


class UpdateBatchState:
    """`state.batch` is the number of the batch that comes next in its epoch. Put this callback in front of
    CommitStateCallback. If `state.batch` is not 0 when `fit` begins, `fit` continues that epoch: the program skips the
    first `state.batch` batches of its data, and sets `steps_per_epoch` to the number of remaining batches.
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self._done = 0

    def on_epoch_begin(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Stores the number of batches of this epoch that earlier calls completed."""
        self._done = self.state.batch

    def on_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Sets the number of the next batch."""
        self.state.batch = self._done + batch + 1

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Resets the number of the next batch to 0."""
        self.state.batch = 0


class UpdateEpochState:
    """`state.epoch` is the number of the epoch that comes next, counted over all calls of `fit`. Put this callback in
    front of CommitStateCallback. Both `fit(initial_epoch=state.epoch, epochs=N)` and `fit(epochs=N - state.epoch)`
    begin with this epoch."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self._done = 0
        self._first: Optional[int] = None

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        """Stores the number of epochs completed before this call of `fit`."""
        self._done, self._first = self.state.epoch, None

    def on_epoch_begin(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Stores the number of this call's first epoch, which `initial_epoch` sets."""
        if self._first is None:
            self._first = epoch

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Sets the number of the next epoch."""
        self.state.epoch = self._done + epoch - (self._first or 0) + 1


def elastic_for(keras: Any, module: str) -> Dict[str, Any]:
    """Returns the names that the module `module` exports, with their values."""
    framework = framework_of(keras)
    runs = "horovod._elastic" if framework == "torch" else f"horovod.{framework}.elastic"
    made = {
        name: type(name, (what, *bases), {"__doc__": what.__doc__, "__module__": module, "_keras": keras})
        for name, what, bases in [
            ("KerasState", ModelState, ()),
            ("CommitStateCallback", CommitState, (keras.callbacks.Callback,)),
            ("UpdateBatchStateCallback", UpdateBatchState, (keras.callbacks.Callback,)),
            ("UpdateEpochStateCallback", UpdateEpochState, (keras.callbacks.Callback,)),
        ]
    }
    return {**made, "run": importlib.import_module(runs).run}
