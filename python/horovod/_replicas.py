"""Compares the replicas of a model: checks that the ranks of a distributed optimizer have equal values and options.

A framework's optimizer has a Check, which sends a digest after some reductions and reads the result before the next
one. All ranks make the same decisions, which depend only on the number of reductions and on results that all ranks
receive. All exchanges are Max allreduces, in which ranks that have joined take part with neutral values.

No wait has a limit, because the other ranks would wait for a rank that gave up. Each rank that takes part in the next
reduction first calls `begin`, and therefore takes part in each exchange.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import math
import os
import sys
import warnings
import weakref
import zlib
from typing import Any, Callable, Dict, List, Optional, Protocol, Sequence, Tuple, Union

from horovod import _identity, _native, _objects, _ops
from horovod._ops import Dtype, Kind, Max
from horovod.exceptions import HorovodDisagreementError, HorovodInternalError
from horovod.process_sets import ProcessSet, id_of

_ACTION, _STEPS = "HOROVOD_CHECK_REPLICAS", "HOROVOD_CHECK_REPLICAS_STEPS"
_ACTIONS = ("off", "warn", "stop")
_TOLERANCE = 1e-3  # relative to the norm, because different processors round differently
_CLOSE = 1e-6  # the same for an option, relative to its value
PIECE = 1 << 20  # number of values compared at once
_NUMBERS = 8  # numbers that carry the first characters of a text, 6 bytes each
Options = List[Tuple[str, Union[float, str]]]
_Differences = List[Tuple[str, Dict[int, List[float]], str]]  # the elements are: cause, values by rank, message


class Model(Protocol):
    """Reads an optimizer of a framework. All lists have the same order on all ranks."""

    def order(self) -> List[List[str]]:
        """Returns the names of the parameters that the ranks reduce, by request."""

    def parameters(self) -> List[Tuple[str, Any]]:
        """Returns the parameters to compare, with their names."""

    def digest(self, parameter: Any, seed: int) -> int:
        """Returns the digest of the values, continued from the digest `seed`."""

    def length(self, parameter: Any) -> int:
        """Returns the number of real numbers in the values."""

    def reals(self, parameter: Any) -> Any:
        """Returns the values as real numbers, in a sequence that supports slices. May copy all values."""

    def doubled(self, reals: Any, start: int) -> Tuple[Any, int, int]:
        """Returns a copy of PIECE values from `start` on, as float64 in host memory, followed by the negated values;
        the address of the copy; and the number of its elements."""

    def squares(self, doubled: Any) -> Tuple[float, float]:
        """Takes the copy of `doubled` after a Max allreduce. Returns the sum of squares of maximum minus minimum, and
        the sum of squares of the larger absolute value."""

    def norm(self, parameter: Any) -> float: ...

    def options(self) -> Options:
        """Returns the options that must be equal, with their names. The first one is the optimizer's class, if it is
        known."""


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
    action = os.environ.get(_ACTION, "").strip().lower() or "warn"
    if action not in _ACTIONS:
        raise ValueError(f"{_ACTION} is {action!r}; give warn, stop or off.")
    return action


class Check:
    """The check of one optimizer. One thread at a time."""

    # Whether `before_reduction` waits in the first reduction, and not before the second one.
    waits_at_once = True
    subject = "hvd.DistributedOptimizer"  # the object of the program that sentences name
    remedy = (
        "Call hvd.broadcast_parameters(model.state_dict(), root_rank=0) when the model is complete and its checkpoint "
        "is loaded"
    )
    remedy_of_options = (
        "call hvd.broadcast_optimizer_state(optimizer, root_rank=0) after a checkpoint is loaded"  # after "or"
    )
    # The file and line that a warning names if no frame of this thread belongs to the program.
    line_of_program: Optional[Tuple[str, int]] = None

    def __init__(self, model: Model, process_set: ProcessSet) -> None:
        self._model, self._process_set = model, process_set
        self._action = _action()
        self._listed = _steps()
        self._order = self._sent = _Message()
        self._exchanges: Dict[str, _Message] = {}  # messages of the current comparison, by name
        self.restart()
        _checks.add(self)

    def restart(self) -> None:
        """Restarts the check on all ranks, because the ranks have changed or all of them have joined."""
        for message in (self._order, self._sent, *self._exchanges.values()):
            message.abandon()
        self.is_open = True  # whether `begin` has work to do
        self._is_due = False  # whether a digest of the weights must be sent
        self.count = 0
        self.next_count = self._following() if self._action != "off" else 0
        self._untold = {"values", "options"}
        self._rounds_until = 0  # the reduction from which values are compared again
        self._has_sent_order = False
        self._is_matched = False  # whether the other ranks' messages about the order came from this check
        self._order_name = self._name = ""  # names of the messages
        self._order_number = 0
        self._options: Options = []  # the options sent last
        self._forget_exchanges()

    def _forget_exchanges(self) -> None:
        self._sent = _Message()
        self._exchanges = {}
        self._squares: Dict[int, Tuple[int, float, float]] = {}  # per parameter: next value, and sums before it

    def _following(self) -> int:
        """Returns the number of the next reduction after which the ranks compare."""
        last = self._listed[-1]
        return next((each for each in self._listed if each > self.count), (self.count // last + 1) * last)

    def note_reduction(self) -> None:
        """Called when `count` reaches `next_count`: the caller increments `count` once it has sent a reduction's
        requests. Count a reduction even if this rank alone fails to use its results."""
        self.next_count = self._following()
        self._is_due = self.is_open = True

    def before_reduction(self) -> None:
        """Does all that a reduction needs, for a framework that can wait for the other ranks before it sends the
        requests."""
        if self.is_open:
            self.begin()
            if self.waits_at_once:
                self.read_order()
        self.count += 1
        if self.count == self.next_count:
            self.note_reduction()

    def note_step(self) -> None:
        """Called after the optimizer's own step, if the check `is_open`: weights may differ while gradients are
        computed."""
        if self._is_due:
            self._send()

    def begin(self) -> None:
        """Called before each reduction, except one that continues an interrupted reduction, if the check `is_open`. If
        a signal handler raises meanwhile, the next call continues. Raises HorovodDisagreementError if replicas differ
        and HOROVOD_CHECK_REPLICAS=stop."""
        if not self._has_sent_order:
            self._send_order()
        if self.count:  # in the first reduction, the caller calls `read_order`
            self.read_order()
        if self._is_due:  # the program has skipped the step
            self._send()
        if self._sent.wait():
            try:
                differences = self._compare(self._sent.agreements())
            except HorovodDisagreementError:
                differences = []  # for example, the parameters may be new
            self._forget_exchanges()
            self._tell(differences)
        self.is_open = self._order.handle is not None

    # The exchange in the first reduction.

    def _send_order(self) -> None:
        """Sends the names and order of this rank's parameters: if they differed, the ranks would wait for each other
        without end. The message has the number of this check in the order of first reductions: names may differ between
        ranks, and an optimizer that a rank never uses gets no number."""
        order = _number_of(self._model.order())
        process_set = id_of(self._process_set)
        if not self._order_name:
            self._order_name = _ops.auto_name("allreduce.replicas.order", process_set)
        self._order_number = order
        numbers = [_ACTIONS.index(self._action), 0, 0, int(_state["has_broadcast"])]
        if self._action != "off":
            numbers[1:3] = [zlib.crc32(repr(self._listed).encode()), order]
        self._order = self._submit(self._order_name, _pairs(numbers), Dtype.INT64)
        self._has_sent_order = True

    def read_order(self) -> None:
        """Called before the wait for the requests of a reduction, if the check `is_open`. Raises
        HorovodDisagreementError if the ranks reduce other parameters."""
        if self._order.handle is not None:
            self._read_order()

    def _read_order(self) -> None:
        self._order.wait()
        order, self._order = self._order, _Message()
        has_action, has_steps, has_order, has_broadcast = order.agreements()
        if not has_action or not has_steps:
            self.next_count = 0
            raise HorovodDisagreementError(f"{self.subject}: {self._words_about_settings(order)}")
        self._is_matched = has_order
        if not has_order:
            self._find_order()
        if self._is_matched and has_broadcast and order.numbers[6] == 1 and self.next_count and self.count < 2:
            self.next_count = 1
            if self.count == 1:
                self.note_reduction()

    def _words_about_settings(self, order: _Message) -> str:
        highest, lowest = order.numbers[0], ~order.numbers[1]
        if highest != lowest:
            return f"{_ACTION} is {_ACTIONS[lowest]} on some ranks and {_ACTIONS[highest]} on others; give all one."
        return f"{_STEPS} differs between ranks, and is {','.join(map(str, self._listed))} here; give all one."

    def _find_order(self) -> None:
        process_set = id_of(self._process_set)
        mine = self._model.order()
        # No rank waits for a check that is matched.
        new = [each for each in list(_checks) if each._process_set == self._process_set and not each._is_matched]
        mine_too = [each._model.order() for each in new]
        try:
            found = _objects.allgather_object((mine, mine_too), f"{self._order_name}.names", process_set)
        except HorovodInternalError:
            found = []  # a rank has joined
        if found and all(order in orders for order, _ in found for _, orders in found):
            return  # several optimizers may reduce in different orders, for example in threads
        lists = [[name for names in order for name in names] for order, _ in found]
        if not found or not self._are_alike(lists):
            raise HorovodDisagreementError(f"{self.subject}: {_words_about_order(lists, self._ranks())}")
        self._is_matched = True

    def _are_alike(self, lists: List[List[str]]) -> bool:
        """Returns whether the ranks can reduce although their parameters have other names or another order."""
        return False

    # The exchanges after some of the reductions.

    def _send(self) -> None:
        count, digest, options = self._read(self._digest, (0, 0, []))
        text = repr([value for _, value in options])
        numbers = [digest, zlib.crc32(text.encode()), count, len(options)]
        try:
            self._sent = self._submit(self._full_name("values"), _pairs(numbers), Dtype.INT64)
        except HorovodInternalError:
            return  # the next reduction raises the error
        self._options = options
        self._is_due, self.is_open = False, True

    def _digest(self) -> Tuple[int, int, Options]:
        parameters, options = self._model.parameters(), self._model.options()
        digest = functools.reduce(lambda seed, named: self._model.digest(named[1], seed), parameters, 0)
        return len(parameters), digest, options

    def _compare(self, agreements: List[bool]) -> _Differences:
        """Returns how replicas differ. All ranks call it after the same reduction, and get the same result."""
        has_values, has_options, has_parameters, has_lengths = agreements
        differences: _Differences = []
        are_readable = self._sent.numbers[7] != ~0  # the least number of options that a rank has is not 0
        if not has_options and are_readable and "options" in self._untold:
            differences += self._compare_options(self._options if has_lengths else self._options[:1])
        is_due = "values" in self._untold and self.count >= self._rounds_until
        if not has_values and has_parameters and is_due:
            differences += self._compare_values()
        return differences

    def _compare_options(self, options: Options) -> _Differences:
        lists = [_numbers_of(value) for _, value in options]
        rows = self._rows("options", [number for numbers in lists for number in numbers])
        start = 0
        for (name, _), numbers in zip(options, lists):
            groups = _groups({rank: row[start : start + len(numbers)] for rank, row in rows.items()})
            start += len(numbers)
            if len(groups) > 1 and not (len(numbers) == 1 and _are_close([row[start - 1] for row in rows.values()])):
                values = " and ".join(f"{_text_of(value)} on {_words(ranks)}" for value, ranks in groups)
                words = (
                    f"the ranks have other options: {name} is {values}, and so their steps differ. Give all ranks the "
                    f"same options and number of scheduler steps, or {self.remedy_of_options}"
                )
                return [("options", rows, words)]
        return []

    def _compare_values(self) -> _Differences:
        count = self._sent.numbers[4]  # of parameters, on all ranks
        parameters, numbers = self._read(self._digests, ([], []))
        is_unreadable = len(numbers) != 2 * count
        if is_unreadable:
            numbers = [0] * (2 * count)
        message = self._exchange("digests", lambda: (_pairs([*numbers, is_unreadable]), Dtype.INT64))
        if message.numbers[-2]:
            return []
        agreements = message.agreements()
        are_equal, have_lengths = agreements[:count], agreements[count:-1]
        different = [index for index, is_equal in enumerate(are_equal) if not is_equal]
        if not different:  # equal by now
            return []
        for index in different:
            name, parameter = parameters[index]
            if not have_lengths[index] or not self._differs_by_rounding(index, parameter, numbers[count + index]):
                break
        else:
            logging.getLogger("horovod").info(
                "%s: %d parameters differ between ranks by rounding, as on processors of other kinds.",
                self._place(),
                len(different),
            )
            self._rounds_until = 10 * self.count
            return []
        halves = [float(numbers[index] >> 32), float(numbers[index] & 0xFFFFFFFF)]
        rows = self._rows("norms", [*halves, self._read(lambda: self._model.norm(parameter), math.inf)])
        groups = _groups({rank: row[:2] for rank, row in rows.items()})
        values = " and ".join(f"{rows[ranks[0]][2]:.6g} on {_words(ranks)}" for _, ranks in groups)
        words = (
            f"the ranks have other weights: the norm of {name} is {values} ({len(different)} of {len(parameters)} "
            f"parameters differ). {self.remedy}, and let no rank change weights, options or schedulers alone"
        )
        return [("values", rows, words)]

    def _digests(self) -> Tuple[List[Tuple[str, Any]], List[int]]:
        parameters = self._model.parameters()
        digests = [self._model.digest(parameter, 0) for _, parameter in parameters]
        return parameters, [*digests, *(self._model.length(parameter) for _, parameter in parameters)]

    def _differs_by_rounding(self, index: int, parameter: Any, length: int) -> bool:
        """Returns whether the values differ by rounding only. Raises HorovodDisagreementError on all ranks if a rank
        cannot read its values."""
        start, distance, norm = self._squares.get(index, (0, 0.0, 0.0))
        reals = functools.lru_cache(maxsize=None)(lambda: self._model.reals(parameter))
        while start < length:
            name = f"values.{index}.{start}"
            message = self._exchange(name, functools.partial(self._piece, reals, start, length))
            if message.numbers[0] == math.inf:
                raise HorovodDisagreementError(f"{self._place()}: a rank cannot read its values.")
            more, of_norm = self._model.squares(message.numbers)
            start, distance, norm = start + PIECE, distance + more, norm + of_norm
            self._squares[index] = (start, distance, norm)
            del self._exchanges[name]
        return distance <= _TOLERANCE**2 * norm

    def _piece(self, reals: Callable[[], Any], start: int, length: int) -> Tuple[Any, Dtype, int, int]:
        read = self._read(lambda: self._model.doubled(reals(), start), None)
        if read is None:
            doubled = (ctypes.c_double * (2 * min(PIECE, length - start)))(math.inf)  # the values of all ranks are less
            return doubled, Dtype.FLOAT64, 0, 0
        doubled, address, count = read
        return doubled, Dtype.FLOAT64, address, count

    def _read(self, read: Callable[[], Any], otherwise: Any) -> Any:
        """Returns the result of `read`, or `otherwise` if it fails: after an exception, the other ranks would wait for
        this rank. Raises what a signal handler of the program raises: the next call of `begin` continues."""
        try:
            return read()
        except Exception as error:
            if _is_of_signal(error):
                raise
            words = "%s: the ranks do not compare, because this rank cannot read its replica: %s: %s"
            logging.getLogger("horovod").info(words, self._place(), type(error).__name__, error)
            return otherwise

    def _tell(self, differences: _Differences) -> None:
        for cause, rows, words in differences:
            self._untold.discard(cause)
            sentence = f"{self._place()}: {words}. {_ACTION}=stop ends the training here, off checks nothing."
            if self._action == "stop":
                raise HorovodDisagreementError(sentence)
            if _identity.rank() == min(rows):  # the other ranks have found the same differences
                try:
                    warnings.warn_explicit(sentence, RuntimeWarning, *self._line())
                except RuntimeWarning:  # by `python -W error`; the other ranks would wait for this one
                    logging.getLogger("horovod").warning(sentence)

    def _line(self) -> Tuple[str, int]:
        """Returns the file and line at which the program called the step."""
        frame: Any = sys._getframe(1)
        while frame is not None:
            if frame.f_globals.get("__name__", "").partition(".")[0] not in _FRAMEWORKS:
                return frame.f_code.co_filename, frame.f_lineno
            frame = frame.f_back
        return self.line_of_program or (__file__, 0)

    def _place(self) -> str:
        return f"{self.subject}, after reduction {self.count}"

    # The messages of the exchanges.

    def _ranks(self) -> List[int]:
        return list(self._process_set.ranks or range(self._process_set.size()))

    def _rows(self, name: str, values: List[float]) -> Dict[int, List[float]]:
        """Returns the values of each rank that has not joined."""
        ranks, width = self._ranks(), len(values)
        own = ranks.index(_identity.rank())
        table = (ctypes.c_double * (len(ranks) * width))(
            *[-math.inf] * (own * width), *values, *[-math.inf] * ((len(ranks) - own - 1) * width)
        )
        table = self._exchange(name, lambda: (table, Dtype.FLOAT64)).numbers
        rows = {rank: list(table[place * width : (place + 1) * width]) for place, rank in enumerate(ranks)}
        return {rank: row for rank, row in rows.items() if max(row) > -math.inf or _identity.rank() == rank}

    def _full_name(self, name: str) -> str:
        if not self._name:  # not earlier: a check that compares nothing may have other parameters on each rank
            name_of_order = f"allreduce.replicas.{self._order_number:08x}"
            self._name = _ops.auto_name(name_of_order, id_of(self._process_set))
        return f"{self._name}.{name}.{self.count}"

    def _submit(self, name: str, numbers: Any, dtype: Dtype, address: int = 0, count: int = 0) -> _Message:
        address = address or ctypes.addressof(numbers)
        handle = _ops.submit(
            Kind.ALLREDUCE,
            name,
            [_ops.Tensor(address, address, dtype, (count or len(numbers),))],
            keep=numbers,
            finish=lambda handle: None,
            reduce_op=Max,
            process_set=id_of(self._process_set),
        )
        return _Message(handle, numbers)

    def _exchange(self, name: str, make: Callable[[], tuple]) -> _Message:
        """Returns the maxima of the numbers over all ranks. A comparison that a signal interrupted starts again, and
        reuses its sent messages."""
        message = self._exchanges.get(name)
        if message is None:
            message = self._exchanges[name] = self._submit(self._full_name(name), *make())
        message.wait()
        return message


class _Message:
    """Numbers that a Max allreduce replaces."""

    def __init__(self, handle: Optional[int] = None, numbers: Any = None) -> None:
        self.handle, self.numbers = handle, numbers

    def wait(self) -> bool:
        """Waits for the message. Returns False if no message was sent."""
        if self.handle is not None:
            _ops.wait(self.handle)
            self.handle = None
        return self.numbers is not None

    def abandon(self) -> None:
        if self.handle is not None:
            _native.abandon(self.handle)
            self.handle = None

    def agreements(self) -> List[bool]:
        """Returns for each number given to `_pairs` whether all ranks sent the same number."""
        return [high == ~negated for high, negated in zip(self.numbers[::2], self.numbers[1::2])]


_checks: weakref.WeakSet[Check] = weakref.WeakSet()
_state = {"has_broadcast": False}  # whether parameters were broadcast since the ranks last changed
_FRAMEWORKS = {"horovod", "torch", "jax", "optax", "mxnet", "keras", "tensorflow", "tf_keras", "contextlib"}


def note_broadcast() -> None:
    """Called by a framework when all ranks have received parameters."""
    _state["has_broadcast"] = True


def _restart(process_set: int) -> None:
    if process_set in (-1, 0):
        _state["has_broadcast"] = False
    for check in list(_checks):
        if process_set in (-1, check._process_set.process_set_id):
            check.restart()


_ops.also_restart(_restart)


def _is_of_signal(error: Exception) -> bool:
    """Returns whether a signal handler raised the error. Python calls a handler with the interrupted frame, on top of
    that frame."""
    trace = error.__traceback__
    while trace is not None:
        frame, trace = trace.tb_frame, trace.tb_next
        for value in frame.f_locals.values():
            arguments = value if isinstance(value, tuple) else (value,)  # of a handler(*arguments)
            if frame.f_back is not None and any(each is frame.f_back for each in arguments):
                return True
    return False


def _number_of(order: List[List[str]]) -> int:
    return zlib.crc32("\n".join("\t".join(names) for names in order).encode())


def _pairs(numbers: Sequence[int]) -> Any:
    """Returns a message that shows whether the numbers of all ranks are equal: ~x grows as x falls."""
    signed = [ctypes.c_int64(number).value for number in numbers]
    return (ctypes.c_int64 * (2 * len(signed)))(*[each for number in signed for each in (number, ~number)])


def _groups(rows: Dict[int, List[float]]) -> List[Tuple[List[float], List[int]]]:
    """Returns at most four of the distinct rows, each with its ranks, in descending order of the number of ranks."""
    groups: Dict[str, Tuple[List[float], List[int]]] = {}
    for rank in sorted(rows):
        groups.setdefault(repr(rows[rank]), (rows[rank], []))[1].append(rank)
    return sorted(groups.values(), key=lambda group: -len(group[1]))[:4]


def _numbers_of(value: Union[float, str]) -> List[float]:
    """Returns the numbers that carry an option in a message of floating-point numbers."""
    if not isinstance(value, str):
        return [float(value)]
    text = value.encode()[: 6 * _NUMBERS].ljust(6 * _NUMBERS, b"\0")
    return [float(int.from_bytes(text[6 * index : 6 * index + 6], "big")) for index in range(_NUMBERS)]


def _text_of(numbers: List[float]) -> str:
    if len(numbers) == 1:
        return f"{numbers[0]:.6g}"
    return b"".join(int(number).to_bytes(6, "big") for number in numbers).rstrip(b"\0").decode(errors="replace")


def _are_close(numbers: Sequence[float]) -> bool:
    """Returns whether the numbers differ by rounding at most, as those of a schedule on different processors."""
    return max(numbers) - min(numbers) <= _CLOSE * max(map(abs, numbers))


def _words(ranks: Sequence[int]) -> str:
    listed = ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
    return f"rank {listed}" if len(ranks) == 1 else f"ranks {listed}"


def _words_about_order(lists: Sequence[List[str]], ranks: Sequence[int]) -> str:
    what = "the ranks reduce the same parameters by other requests, as with another compression or other groups"
    if not lists:
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
        f"{what}; the ranks would wait for each other without end. Give all ranks the same "
        "parameters in the same order, and freeze the same ones."
    )
