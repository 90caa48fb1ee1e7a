"""Compares the replicas of a model: whether the ranks of a distributed optimizer have equal values and options.

A framework's optimizer has a Check, which sends a digest after some reductions and reads the result before the next
one. The ranks take each decision alike: it follows from the number of reductions and from results that all ranks get.
All exchanges are Max allreduces, in which ranks that have joined take part with neutral values.
"""

from __future__ import annotations

import ctypes
import logging
import math
import os
import threading
import warnings
import zlib
from typing import Any, Dict, List, Optional, Protocol, Sequence, Tuple

from horovod import _identity, _native, _objects, _ops
from horovod._ops import Dtype, Kind, Max
from horovod.exceptions import HorovodDisagreementError, HorovodInternalError
from horovod.process_sets import ProcessSet, id_of

_STEPS = "HOROVOD_CHECK_REPLICAS_STEPS"
_TOLERANCE = 1e-3  # of the norm: processors of other kinds round differently
# A rank that has taken another number of steps, after an error that its program caught, sends nothing.
_LIMIT = 30.0
_lock = threading.Lock()  # of no object: checks are copied with their optimizers


class Model(Protocol):
    """Reads an optimizer of a framework. All lists have one order on all ranks."""

    def order(self) -> List[List[str]]:
        """Returns the names of the parameters that travel, by request."""

    def names(self) -> List[str]:
        """Returns the names of all parameters."""

    def parameters(self) -> List[Tuple[str, Any]]:
        """Returns the parameters to compare, with names."""

    def digest(self, parameter: Any, seed: int) -> int:
        """Returns the digest of the values after that of others."""

    def doubled(self, parameter: Any) -> Tuple[Any, int, int]:
        """Returns a copy of the values as float64 in host memory, with the negative values behind them, the address of
        the copy, and the number of its elements."""

    def spread(self, doubled: Any) -> Tuple[float, float]:
        """Returns the norms of the difference between the maxima and minima that a Max has made of such copies, and of
        the larger ones of their absolute values."""

    def norm(self, parameter: Any) -> float: ...

    def options(self) -> List[Tuple[str, float]]: ...


def _steps() -> List[int]:
    text = os.environ.get(_STEPS, "").strip() or "2,10,100,1000"
    try:
        steps = [int(part) for part in text.split(",")]
    except ValueError:
        steps = []
    if not steps or steps[0] < 1 or steps != sorted(set(steps)):
        raise ValueError(f"{_STEPS} is {text!r}; give ascending numbers of reductions, such as 2,10,100,1000.")
    return steps


def _action() -> str:
    action = os.environ.get("HOROVOD_CHECK_REPLICAS", "").strip().lower() or "warn"
    if action not in ("warn", "stop", "off"):
        raise ValueError(f"HOROVOD_CHECK_REPLICAS is {action!r}; give warn, stop or off.")
    return action


class Check:
    """The check of one optimizer. The thread of the step calls its functions, and `send_order` any thread."""

    def __init__(self, model: Model, process_set: ProcessSet) -> None:
        self._model, self._process_set = model, process_set
        self._action = _action()
        self._listed = _steps()
        self.restart()

    def restart(self) -> None:
        """Begins anew, on all ranks: other ranks are there, or all have joined."""
        is_on = self._action != "off"
        self.is_open = is_on  # `begin` has something to do
        self._is_due = False  # the weights are to be sent
        self.count = 0
        self.next_count = self._following() if is_on else 0
        self._untold = {"values", "options"}
        self.has_sent_order = not is_on
        self._order = self._sent = _Message()
        self._name = ""  # of the message that was sent

    def _following(self) -> int:
        """Returns the next reduction after which the ranks compare."""
        last = self._listed[-1]
        return next((each for each in self._listed if each > self.count), (self.count // last + 1) * last)

    def note_reduction(self) -> None:
        """Called after a reduction, if the `count`, which the caller increments, is `next_count`."""
        self.next_count = self._following()
        self._is_due = self.is_open = True

    def note_step(self) -> None:
        """Called after the optimizer's own step, if the check `is_open`: weights may be others while gradients are
        computed."""
        if self._is_due:
            self._send()

    def begin(self) -> None:
        """Called before each reduction, if the check `is_open`. If a signal's handler raises meanwhile, the next call
        goes on. Raises HorovodDisagreementError if replicas differ and HOROVOD_CHECK_REPLICAS=stop."""
        self.send_order()
        if self.count:  # in the first reduction, `read_order` follows the start of its requests
            self.read_order()
        if self._is_due:  # the step was skipped
            self._send()
        if self._sent.is_complete():
            _unread.pop(self._name, None)
            sent, self._sent = self._sent, _Message()
            self._compare(sent.agreements())
        self.is_open = self._order.handle is not None

    # Before the first reduction.

    def send_order(self) -> None:
        """Sends what this rank will reduce, unless it has: with other names, or in another order, the ranks would wait
        for each other without end."""
        with _lock:
            if self.has_sent_order:
                return
            self.has_sent_order = True
        text = "\n".join("\t".join(names) for names in self._model.order())
        self._order = self._submit("order", _pairs([zlib.crc32(text.encode())]), Dtype.INT64)

    def read_order(self) -> None:
        """Called before the requests of a reduction are waited for, if the check `is_open`. Raises
        HorovodDisagreementError if the ranks reduce other parameters."""
        if self._order.handle is not None:
            self._read_order(self._order.handle)

    def _read_order(self, handle: int) -> None:
        _ops.wait(handle)
        order, self._order = self._order, _Message()
        if not all(order.agreements()):
            mine = [name for names in self._model.order() for name in names]
            try:
                lists = _objects.allgather_object(mine, "replicas.order", id_of(self._process_set))
            except HorovodInternalError:
                lists = []  # a rank has joined
            raise HorovodDisagreementError(_sentence_about_order(lists, self._ranks()))

    # After some reductions.

    def _send(self) -> None:
        self._is_due = False
        parameters, options = self._model.parameters(), self._model.options()
        digest = 0
        for _, parameter in parameters:
            digest = self._model.digest(parameter, digest)
        text = repr([value for _, value in options])
        numbers = [digest, zlib.crc32(text.encode()), len(parameters), len(options)]
        self._name = self._full_name("values")
        try:
            other = _unread.pop(self._name, None)
            if other is not None and other is not self:
                other._sent.is_complete()  # two optimizers with equal names
            self._sent = self._submit("values", _pairs(numbers), Dtype.INT64)
        except HorovodInternalError:
            return  # the next reduction says why
        self.is_open = True
        _unread[self._name] = self

    def _compare(self, agreements: List[bool]) -> None:
        """Tells of replicas that differ. All ranks do so after the same reduction."""
        has_values, has_options, has_parameters, has_lengths = agreements or [True] * 4
        try:
            if not has_options and has_lengths and "options" in self._untold:
                self._tell_of_options()
            if not has_values and has_parameters and "values" in self._untold:
                self._tell_of_values()
        except TimeoutError:
            pass  # another rank is elsewhere

    def _tell_of_options(self) -> None:
        options = self._model.options()
        rows = self._rows("options", [value for _, value in options])
        for index, (name, _) in enumerate(options):
            groups = _groups({rank: row[index : index + 1] for rank, row in rows.items()})
            if len(groups) > 1:
                values = " and ".join(f"{value[0]:.6g} on {_words(ranks)}" for value, ranks in groups)
                self._tell(
                    "options",
                    rows,
                    f"the ranks have other options: {name} is {values}, and so their steps differ. Give all ranks the "
                    "same options and number of scheduler steps, or call hvd.broadcast_optimizer_state(optimizer, "
                    "root_rank=0) after a checkpoint is loaded",
                )
                return

    def _tell_of_values(self) -> None:
        parameters = self._model.parameters()
        digests = [self._model.digest(parameter, 0) for _, parameter in parameters]
        equal = self._max("digests", _pairs(digests), Dtype.INT64).agreements()
        different = [index for index, is_equal in enumerate(equal) if not is_equal]
        for index in different:
            name, parameter = parameters[index]
            doubled, address, count = self._model.doubled(parameter)
            self._max(f"values.{index}", doubled, Dtype.FLOAT64, address, count)
            distance, norm = self._model.spread(doubled)
            if distance > _TOLERANCE * norm:
                break
        else:
            logging.getLogger("horovod").info(
                "%s: %d parameters differ between ranks by rounding, as on processors of other kinds.",
                self._place(),
                len(different),
            )
            return
        halves = [float(digests[index] >> 32), float(digests[index] & 0xFFFFFFFF)]
        rows = self._rows("norms", [*halves, self._model.norm(parameter)])
        groups = _groups({rank: row[:2] for rank, row in rows.items()})
        values = " and ".join(f"{rows[ranks[0]][2]:.6g} on {_words(ranks)}" for _, ranks in groups)
        self._tell(
            "values",
            rows,
            f"the ranks have other weights: the norm of {name} is {values} ({len(different)} of {len(parameters)} "
            "parameters differ). Call hvd.broadcast_parameters(model.state_dict(), root_rank=0) when the model is "
            "complete and its checkpoint is loaded, and let no rank change weights, options or schedulers alone",
        )

    def _tell(self, cause: str, rows: Dict[int, List[float]], words: str) -> None:
        self._untold.discard(cause)
        sentence = f"{self._place()}: {words}. HOROVOD_CHECK_REPLICAS=stop ends the training here, off checks nothing."
        if self._action == "stop":
            raise HorovodDisagreementError(sentence)
        if _identity.rank() == min(rows):  # the others have found the same
            warnings.warn(sentence, RuntimeWarning, stacklevel=2)

    def _place(self) -> str:
        return f"hvd.DistributedOptimizer, after reduction {self.count}"

    # Messages.

    def _ranks(self) -> List[int]:
        return list(self._process_set.ranks or range(self._process_set.size()))

    def _rows(self, name: str, values: List[float]) -> Dict[int, List[float]]:
        """Returns the values of each rank that has not joined."""
        ranks, width = self._ranks(), len(values)
        own = ranks.index(_identity.rank())
        table = (ctypes.c_double * (len(ranks) * width))(
            *[-math.inf] * (own * width), *values, *[-math.inf] * ((len(ranks) - own - 1) * width)
        )
        self._max(name, table, Dtype.FLOAT64)
        rows = {rank: list(table[place * width : (place + 1) * width]) for place, rank in enumerate(ranks)}
        return {rank: row for rank, row in rows.items() if max(row) > -math.inf or _identity.rank() == rank}

    def _full_name(self, name: str) -> str:
        return f"allreduce.replicas.{name}.{self.count}.{min(self._model.names(), default='')}"

    def _submit(self, name: str, numbers: Any, dtype: Dtype, address: int = 0, count: int = 0) -> _Message:
        address = address or ctypes.addressof(numbers)
        handle = _ops.submit(
            Kind.ALLREDUCE,
            self._full_name(name),
            [_ops.Tensor(address, address, dtype, (count or len(numbers),))],
            keep=numbers,
            finish=lambda handle: None,
            reduce_op=Max,
            process_set=id_of(self._process_set),
        )
        return _Message(handle, numbers)

    def _max(self, name: str, numbers: Any, dtype: Dtype, address: int = 0, count: int = 0) -> _Message:
        """Replaces the numbers by the maxima of all ranks. Raises TimeoutError if a rank does not take part."""
        message = self._submit(name, numbers, dtype, address, count)
        if not message.is_complete():
            raise TimeoutError
        return message


class _Message:
    """Numbers that a Max of the ranks replaces."""

    def __init__(self, handle: Optional[int] = None, numbers: Any = ()) -> None:
        self.handle, self.numbers = handle, numbers
        self._is_complete = False

    def is_complete(self) -> bool:
        """Waits for the message. Returns False if there is none, or a rank did not send it in time."""
        if self.handle is not None:
            try:
                _native.wait_for(self.handle, _LIMIT)
                self._is_complete = True
            except TimeoutError:
                _native.abandon(self.handle)
            except HorovodDisagreementError:
                pass  # as of another number of parameters
            self.handle = None
        return self._is_complete

    def agreements(self) -> List[bool]:
        """Returns whether the ranks have sent one number, for each of the numbers of `_pairs`."""
        return [high == ~negated for high, negated in zip(self.numbers[::2], self.numbers[1::2])]


_unread: Dict[str, Check] = {}  # checks whose message is not read, by its name


def _restart(process_set: int) -> None:
    if process_set == -1:
        _unread.clear()


_ops.also_restart(_restart)


def _pairs(numbers: Sequence[int]) -> Any:
    """Returns a message that shows whether the numbers of all ranks are equal: ~x grows as x falls."""
    signed = [ctypes.c_int64(number).value for number in numbers]
    return (ctypes.c_int64 * (2 * len(signed)))(*[each for number in signed for each in (number, ~number)])


def _groups(rows: Dict[int, List[float]]) -> List[Tuple[List[float], List[int]]]:
    """Returns the different rows, each with its ranks: first the one that most ranks have."""
    groups: Dict[str, Tuple[List[float], List[int]]] = {}
    for rank in sorted(rows):
        groups.setdefault(repr(rows[rank]), (rows[rank], []))[1].append(rank)
    return sorted(groups.values(), key=lambda group: -len(group[1]))[:4]


def _words(ranks: Sequence[int]) -> str:
    listed = ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
    return f"rank {listed}" if len(ranks) == 1 else f"ranks {listed}"


def _sentence_about_order(lists: Sequence[List[str]], ranks: Sequence[int]) -> str:
    what = "the ranks reduce other parameters, or in another order"
    for rank, names in zip(ranks[1:], lists[1:]):
        if names != lists[0]:
            alone = sorted(set(names) ^ set(lists[0]))
            if alone:
                has = rank if alone[0] in names else ranks[0]
                what = f"rank {has} alone of ranks {ranks[0]} and {rank} reduces {alone[0]}"
            else:
                place = next(index for index, name in enumerate(names) if name != lists[0][index])
                what = f"parameter {place} is {lists[0][place]} on rank {ranks[0]} and {names[place]} on rank {rank}"
            break
    return (
        f"hvd.DistributedOptimizer: {what}; the ranks would wait for each other without end. Give all ranks the same "
        "parameters in the same order, and freeze the same ones."
    )
