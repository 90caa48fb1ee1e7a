"""Optimizers of Keras that reduce gradients over all ranks before they use them."""

from __future__ import annotations

import collections
import itertools
import warnings
from typing import Any, DefaultDict, Dict, Iterator, List, Optional, Sequence, Tuple, Type

from horovod import _basics, _ops
from horovod._keras import loss_scale
from horovod._keras._frameworks import backend_of, is_allreduced, is_reduced, major_of
from horovod._ops import Product, Sum
from horovod.process_sets import ProcessSet, id_of

# Programs detect a distributed optimizer by the name horovod in its repr() or in the module of its class.
_MODULE = "horovod._keras"
# The next number of an optimizer, by class. Ranks may use several optimizers in different orders or threads, so each
# optimizer puts its number into the names of its requests.
_numbers: DefaultDict[str, Iterator[int]] = collections.defaultdict(itertools.count)


def _restart_numbers(process_set: int) -> None:
    # New processes of an elastic job begin with number 0, so all other processes must do so too.
    if process_set == -1:
        _numbers.clear()


_ops.also_forget(_restart_numbers)


class Distributed:
    """The base of all distributed optimizers. `_hvd`, an attribute of the class, is the plan: see
    `make_class`. All reductions go through `_allreduce` and `_allreduce_grads`, which programs replace."""

    _hvd: Dict[str, Any]

    def __repr__(self) -> str:
        # Saved models contain the module of the optimizer's class, so most classes keep the module of their base.
        return f"<{_MODULE}.{type(self).__name__} object at {id(self):#x}>"

    @property
    def process_set(self) -> ProcessSet:
        """The ranks that reduce. Functions that TensorFlow or JAX has compiled keep the previous set."""
        return self._hvd["reduction"].process_set

    @process_set.setter
    def process_set(self, value: ProcessSet) -> None:
        id_of(value)
        self._hvd["reduction"] = self._hvd["reduction"]._replace(process_set=value)

    @property
    def scale_local_gradients(self) -> bool:
        """Returns whether gradients of local variables are divided by the number of ranks."""
        return self._hvd["reduction"].scale_local_gradients

    @scale_local_gradients.setter
    def scale_local_gradients(self, value: bool) -> None:
        self._hvd["reduction"] = self._hvd["reduction"]._replace(scale_local_gradients=bool(value))

    def register_local_var(self, var: Any) -> None:
        """Keeps the gradients of this variable local to this rank."""
        self._hvd["local"].add(self._hvd["key_of"](var))

    def _allreduce(self, grads: Sequence[Any], vars: Sequence[Any]) -> List[Any]:
        """Returns gradients reduced over all ranks. Gradients of local variables stay local, and None stays None."""
        plan, results, variables = self._hvd, list(grads), list(vars)
        own: List[int] = []
        shared: List[int] = []
        for i, variable in enumerate(variables):
            if results[i] is not None:
                (own if plan["key_of"](variable) in plan["local"] else shared).append(i)
        for chosen, reduce in [
            (own, lambda *pairs: plan["reduction"](*pairs, plan["local"])),
            (shared, self._allreduce_grads),
        ]:
            if chosen:
                reduced = reduce([results[i] for i in chosen], [variables[i] for i in chosen])
                for i, grad in zip(chosen, reduced):
                    results[i] = grad
        return results

    def _allreduce_grads(self, grads: Sequence[Any], vars: Optional[Sequence[Any]] = None) -> List[Any]:
        """Returns these gradients reduced over all ranks."""
        reduction = self._hvd["reduction"]
        if hasattr(reduction, "name"):  # TensorFlow names gradients by tensors
            reduction = reduction._replace(name=f"keras.gradients.{self._hvd_name()}")
        return reduction(grads, vars, optimizer=self)

    def _hvd_name(self) -> str:
        """Returns the name of this optimizer in requests: its class name, followed by a number unless the optimizer is
        the first of its class. The first call, when the optimizer is built or reduces, chooses the number. Therefore an
        optimizer that only one rank makes, and never uses, takes no number."""
        if "_hvd_named" not in self.__dict__:
            name = type(self).__name__
            number = next(_numbers[name])
            # Write to __dict__: __setattr__ would track the value as a part of the model.
            self.__dict__["_hvd_named"] = f"{name}.{number}" if number else name
        return self.__dict__["_hvd_named"]


class _OfKeras3(Distributed):
    """Reduces gradients before it applies them, since Keras 3 has no method that computes gradients."""

    def build(self, *args: Any, **kwargs: Any) -> Any:
        result = super().build(*args, **kwargs)
        self._hvd_name()
        return result

    def _note(self, grads: List[Any], variables: Sequence[Any]) -> None:
        _refuse_allreduced(self._hvd, grads, variables)
        # Write to __dict__: __setattr__ would track the value as a part of the model.
        self.__dict__["_hvd_reduced"] = {
            self._hvd["key_of"](variable) for grad, variable in zip(grads, variables) if is_reduced(grad)
        }

    def _reduce(self, grads: List[Any], variables: Sequence[Any]) -> None:
        """Reduces all gradients over the ranks, except those that a tape has already reduced. Raises ValueError for
        gradients computed from reduced gradients if a second reduction would give another result."""
        plan, reduced = self._hvd, self.__dict__.get("_hvd_reduced", ())
        rest = [i for i, variable in enumerate(variables) if plan["key_of"](variable) not in reduced]
        if plan["record"] is not None:
            _refuse_twice(plan, [grads[i] for i in rest], [variables[i] for i in rest])
        results = self._allreduce([grads[i] for i in rest], [variables[i] for i in rest])
        for i, grad in zip(rest, results):
            grads[i] = grad
        if plan["record"] is not None:
            plan["record"].forget(variables)


def _refuse_allreduced(plan: Dict[str, Any], grads: Sequence[Any], variables: Sequence[Any]) -> None:
    """Raises ValueError if the script has reduced a gradient by allreduce and a second reduction over the same ranks
    would give another result."""
    reduction = plan["reduction"]
    if reduction.op not in (Sum, Product) or reduction.process_set.size() == 1:
        return
    for grad, variable in zip(grads, variables):
        if (
            is_allreduced(grad, reduction.process_set)
            and not is_reduced(grad)
            and plan["key_of"](variable) not in plan["local"]
        ):
            raise ValueError(
                f"{variable.name}: hvd.allreduce has reduced this gradient, and the optimizer would reduce it a "
                f"second time. Leave out hvd.allreduce, or give such gradients to an optimizer without "
                f"hvd.DistributedOptimizer."
            )


def _refuse_twice(plan: Dict[str, Any], grads: Sequence[Any], variables: Sequence[Any]) -> None:
    """Raises ValueError if the optimizer would again reduce gradients that a distributed tape has reduced and the
    program has changed since, and the result would differ."""
    reduction, record = plan["reduction"], plan["record"]
    if reduction.process_set.size() == 1:
        return
    for variable, grad in zip(variables, grads):
        if grad is None:
            continue
        kind = record.kind_of(variable, grads)
        if kind == record.LOCAL or (kind == record.REDUCED and reduction.op in (Sum, Product)):
            record.forget(variables)  # the next step may use another tape
            raise ValueError(
                f"{variable.name}: the optimizer would reduce this gradient a second time, since it is not the "
                f"tensor that DistributedGradientTape returned, but one computed from it (clipped, scaled). Give such "
                f"gradients to an optimizer without hvd.DistributedOptimizer, or use tf.GradientTape."
            )


class _Keras3Around(_OfKeras3):
    """Wraps an optimizer such as LossScaleOptimizer. Reduces gradients before the optimizer tests them, so that they
    are finite on all ranks or on none, except gradients of local variables."""

    def has_reduced_all(self) -> bool:
        """Returns whether this optimizer has reduced all gradients of the step: none of them stays local, and no tape
        has reduced one."""
        return not self._hvd["local"] and not self.__dict__.get("_hvd_reduced")

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        grads, variables = list(grads), list(trainable_variables or self._trainable_variables)
        self._note(grads, variables)
        self._reduce(grads, variables)
        return super().apply(grads, trainable_variables and variables)

    def stateless_apply(self, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        grads = list(grads)
        self._reduce(grads, self._trainable_variables)
        return super().stateless_apply(optimizer_variables, grads, trainable_variables)


class _Keras3(_OfKeras3):
    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        grads = list(grads)
        if trainable_variables is not None:
            trainable_variables = list(trainable_variables)
        self._note(grads, trainable_variables or self._trainable_variables)
        if self.gradient_accumulation_steps:
            if trainable_variables is None and self.built and len(grads) == len(self._trainable_variables):
                trainable_variables = list(self._trainable_variables)
            if trainable_variables:
                self._add_earlier(grads, trainable_variables)
        return super().apply(grads, trainable_variables)

    def _add_earlier(self, grads: List[Any], variables: List[Any]) -> None:
        """Adds the variables with gradients in earlier passes of this step but not in its last pass, because Keras
        would drop their sums. In a compiled function all passes have gradients of the same variables."""
        plan = self._hvd
        if plan["is_traced"](self._iterations.value):
            return
        had = self.__dict__.setdefault("_hvd_had", {})  # writes to __dict__, because __setattr__ would track the value
        if (int(self._iterations.value) + 1) % self.gradient_accumulation_steps:
            had.update(
                (plan["key_of"](variable), variable) for grad, variable in zip(grads, variables) if grad is not None
            )
            return
        at = {plan["key_of"](variable): i for i, variable in enumerate(variables)}
        for key, variable in had.items():
            i = at.get(key)
            if i is None:
                grads.append(plan["zeros_of"](variable))
                variables.append(variable)
            elif grads[i] is None:
                grads[i] = plan["zeros_of"](variable)
        had.clear()

    def _backend_apply_gradients(self, grads: Any, trainable_variables: Any) -> Any:
        # Write to __dict__: __setattr__ would track the list as a part of the model.
        self.__dict__["_hvd_variables"] = list(trainable_variables)
        return super()._backend_apply_gradients(grads, trainable_variables)

    def _clip_gradients(self, grads: Any) -> Any:
        # Keras calls this method once per step, before it uses the gradients, even if it accumulates gradients.
        grads = list(grads)
        variables = self.__dict__.get("_hvd_variables")
        if variables is None or len(variables) != len(grads):
            variables = list(self._trainable_variables)
        plan = self._hvd
        if plan["factor"] != 1:
            grads = [grad if grad is None else grad * plan["factor"] for grad in grads]
        if not plan["reduction"].takes_steps:
            self._reduce(grads, variables)
        return super()._clip_gradients(grads)

    def _apply_weight_decay(self, variables: Any) -> None:
        # Keras calls this method once per step, before any other change of the variables.
        if self._hvd["reduction"].takes_steps:
            copy = self._hvd["copy"]
            self.__dict__["_hvd_starts"] = {id(each): copy(each) for each in variables}
        super()._apply_weight_decay(variables)

    def _backend_update_step(self, grads: Any, trainable_variables: Any, learning_rate: Any) -> None:
        super()._backend_update_step(grads, trainable_variables, learning_rate)
        plan = self._hvd
        if not plan["reduction"].takes_steps:
            return
        found = self.__dict__.pop("_hvd_starts")
        starts = [found[id(variable)] for variable in trainable_variables]
        changes = [variable - start for variable, start in zip(trainable_variables, starts)]
        reduced = self._allreduce(changes, trainable_variables)
        for variable, start, change in zip(trainable_variables, starts, reduced):
            variable.assign(start + change)


class _Keras2(Distributed):
    """Reduces gradients when it computes them, including in `minimize` and `Model.fit`. Applies gradients unchanged."""

    def compute_gradients(self, *args: Any, **kwargs: Any) -> List[Tuple[Any, Any]]:
        """Returns the optimizer's gradients, reduced over all ranks; all ranks must call it."""
        own = super()  # older optimizers call this method _compute_gradients
        pairs = list((getattr(own, "compute_gradients", None) or own._compute_gradients)(*args, **kwargs))
        variables = [variable for _, variable in pairs]
        self._hvd["record"].note()
        return list(zip(self._allreduce([grad for grad, _ in pairs], variables), variables))

    _compute_gradients = compute_gradients

    def get_gradients(self, loss: Any, params: Any) -> List[Any]:
        """Returns the optimizer's gradients, reduced over all ranks, in graphs of TensorFlow 1."""
        self._hvd["record"].note()
        return self._allreduce(super().get_gradients(loss, params), list(params))

    def _allreduce(self, grads: Sequence[Any], vars: Sequence[Any]) -> List[Any]:
        from horovod.tensorflow import _adasum

        return self._hvd_passes().reduce(
            grads, vars, _adasum.keep if self._hvd["reduction"].takes_steps else super()._allreduce
        )

    def _hvd_passes(self) -> Any:
        # Write to __dict__: __setattr__ would track the value as a part of the model.
        if "_hvd_aggregation" not in self.__dict__:
            self.__dict__["_hvd_aggregation"] = self._hvd["aggregate"]()
        return self.__dict__["_hvd_aggregation"]

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """Applies gradients as the optimizer does, once all passes of a step are computed. Reduces nothing, except the
        changes of the step with op=hvd.Adasum."""
        import tensorflow as tf

        from horovod.tensorflow import _adasum
        from horovod.tensorflow._pass_count import count_of

        pairs, original = list(grads_and_vars), super().apply_gradients
        self._hvd_check_reduced([pair for pair in pairs if pair[0] is not None])
        passes, reduce = self._hvd_passes(), super()._allreduce

        def make_state(pairs: List[Tuple[Any, Any]]) -> List[Any]:
            variables = [variable for grad, variable in pairs if grad is not None]
            if passes.steps > 1:
                with tf.init_scope():
                    if hasattr(self, "_create_all_weights"):
                        self._create_all_weights(variables)
                    else:  # such an optimizer accepts no other variables later
                        self.build([variable for _, variable in pairs])
            return variables

        def apply(pairs: List[Tuple[Any, Any]]) -> Any:
            variables = make_state(pairs)
            if not variables or not self._hvd["reduction"].takes_steps:
                return original(pairs, *args, **kwargs)
            return _adasum.step(
                lambda: original(pairs, *args, **kwargs), variables, lambda changes: reduce(changes, variables)
            )

        make_state(pairs)
        return passes.apply(apply, pairs, count_of(self, passes.steps))

    def _hvd_check_reduced(self, pairs: Sequence[Tuple[Any, Any]]) -> None:
        """Warns once if no reduction ran for these gradients, in which case this rank trains alone."""
        plan, record = self._hvd, self._hvd["record"]
        if (
            "_hvd_warned" in self.__dict__
            or plan["reduction"].takes_steps
            or not _basics.is_initialized()
            or self.process_set.size() == 1
        ):
            return
        applied = self.__dict__.setdefault("_hvd_applied", {})  # bypasses __setattr__, which would track the value
        shared = [(grad, variable) for grad, variable in pairs if plan["key_of"](variable) not in plan["local"]]
        keys = [id(variable) for _, variable in shared]
        before = max((applied.get(key, 0) for key in keys), default=-1)
        if (
            shared
            and not all(is_reduced(grad) for grad, _ in shared)
            and not record.may_have_run(*zip(*shared), before)
        ):
            self.__dict__["_hvd_warned"] = True
            warnings.warn(
                f"{type(self).__name__}.apply_gradients: nothing has reduced these gradients over the ranks, so each "
                f"rank trains alone. In Keras 2 a DistributedOptimizer reduces in minimize and compute_gradients. "
                f"Compute the gradients with hvd.DistributedGradientTape(tape) of horovod.tensorflow, or call "
                f"optimizer.minimize(loss, variables, tape=tape).",
                stacklevel=3,
            )
        applied.update(dict.fromkeys(keys, record.calls()))
        record.forget([variable for _, variable in pairs])


def make_class(keras: Any, base: Type[Any], plan: Dict[str, Any]) -> Type[Any]:
    """Returns a class like `base`, with its name, that follows `plan`: reduction, local (keys of
    variables whose gradients stay local), key_of (a variable), factor (of summed gradients), record (of reductions, on
    TensorFlow), and others: see `plan_of`."""
    loss_scale.prepare(keras)
    if _is_around(keras, base) and major_of(keras) >= 3:
        loss_scale.prepare_class(keras, base)
    more: Dict[str, Any] = {"_hvd": plan, "__doc__": base.__doc__, "__module__": base.__module__}
    if major_of(keras) >= 3:
        mixin: Type[Any] = _Keras3Around if _is_around(keras, base) else _Keras3
    else:
        mixin = _Keras2
        # Keras 2 saves an optimizer under the name by which Keras exports the optimizer's class.
        exported = {key: vars(base)[key] for key in ("_keras_api_names", "_keras_api_names_v1") if key in vars(base)}
        if exported:
            more.update(exported, __module__=_MODULE)
    made = type(base.__name__, (mixin, base), more)
    _register(keras, base, made)
    return made


def _register(keras: Any, base: Type[Any], made: Type[Any]) -> None:
    """Registers a derived class under the name by which `base` is registered, so that saved models contain this name.
    Loaded models get `base`."""
    registered = keras.utils.get_registered_name(base)
    package, separator, name = registered.partition(">")
    if separator:
        objects = keras.utils.get_custom_objects()
        before = objects.pop(registered, None)  # some versions refuse a name that is taken
        keras.utils.register_keras_serializable(package, name)(made)
        del objects[registered]
        if before is not None:
            objects[registered] = before


def _is_around(keras: Any, base: Type[Any]) -> bool:
    return issubclass(base, loss_scale.class_of(keras))


def is_distributed(optimizer: Any) -> bool:
    """Returns whether the optimizer is distributed, or wraps one that is."""
    return any(isinstance(each, Distributed) for each in loss_scale.wrapped(optimizer))


def plan_of(
    keras: Any,
    compression: Any,
    sparse_as_dense: bool,
    factor: float,
    op: int,
    steps: int,
    average: bool,
    num_groups: int,
    groups: Any,
    process_set: Any,
    scale_local: bool,
    local: Sequence[Any] = (),
) -> Dict[str, Any]:
    """Returns the plan of a distributed optimizer: its reduction and its steps. Raises ValueError for
    invalid arguments."""
    backend = backend_of(keras)
    if not isinstance(steps, int) or steps < 1:
        raise ValueError(f"backward_passes_per_step must be a number above 0, not {steps}.")
    reduction = backend.Reduction(
        compression if compression is not None else backend.Compression.none,
        sparse_as_dense,
        op,
        factor,
        groups,
        process_set,
        scale_local,
    ).checked(num_groups)
    plan = {
        "reduction": reduction,
        "local": {backend.key_of(variable) for variable in local},
        "key_of": backend.key_of,
        "factor": 1 if average else steps,
        "steps": steps,
        "record": getattr(backend, "reduced", None),
    }
    if major_of(keras) >= 3:
        plan.update(
            copy=keras.ops.copy,
            is_traced=backend.is_traced,
            zeros_of=lambda variable: keras.ops.zeros(variable.shape, variable.dtype),
        )
    else:
        plan["aggregate"] = lambda: backend.LocalAggregation(steps, average, sparse_as_dense)
    return plan


def distribute(keras: Any, optimizer: Any, name: Optional[str], plan: Dict[str, Any]) -> Any:
    """Returns an optimizer like `optimizer`, without its state. Raises ValueError unless it is one of
    Keras."""
    if isinstance(optimizer, str) or not hasattr(optimizer, "get_config"):
        raise ValueError(
            f"DistributedOptimizer takes an optimizer of Keras, not {optimizer!r} of type {type(optimizer).__name__}."
        )
    if isinstance(optimizer, Distributed):
        raise ValueError("This optimizer is distributed already.")
    config = optimizer.get_config()
    if name:
        config["name"] = name
    made = make_class(keras, type(optimizer), plan)
    if not _is_around(keras, type(optimizer)):
        if major_of(keras) >= 3 and plan["steps"] > 1:
            if config.get("gradient_accumulation_steps"):
                raise ValueError(
                    "Give either backward_passes_per_step or Keras's own gradient_accumulation_steps, not both."
                )
            config["gradient_accumulation_steps"] = plan["steps"]
        return made.from_config(config)
    if major_of(keras) < 3:
        config.pop("name", None)  # the configuration sets no name
    elif plan["steps"] > 1 or plan["reduction"].takes_steps:
        raise ValueError(
            f"DistributedOptimizer cannot combine several passes or changes (op=hvd.Adasum) around a "
            f"{type(optimizer).__name__}; give it the optimizer inside, and make a "
            f"{type(optimizer).__name__} of the result."
        )
    # from_config would find the inner optimizer's class by name, but Keras does not know the names of all classes.
    inner = optimizer.inner_optimizer
    config["inner_optimizer"] = type(inner).from_config(inner.get_config())
    return made(**config)


def distribute_in_place(keras: Any, optimizer: Any, plan: Dict[str, Any]) -> None:
    """Makes a restored optimizer distributed, and keeps its state."""
    if not isinstance(optimizer, Distributed):
        optimizer.__class__ = make_class(keras, type(optimizer), plan)
