"""The step of a distributed optimizer: where its gradients are, as states and a table of moves.

    zero_grad    +-> IDLE ----+                        +-> READY --+
                 |            |  a pass adds           |           |  a request starts
    step         +-> STEPPED -+--------------> PASS ---+-----------+--------> IN_FLIGHT
                 |            |                 ^ |                             |   |
    clipping     +-> READ ----+                 | |     failed or waited for    |   |  a signal's handler
                 |            |                 +-|-----------------------------+   v  raises
    synchronize  +-> REDUCED -+                 | |                            INTERRUPTED
                 |                              +-|---- the wait goes on -----------+
                 |         all are reduced        |
                 +--------------------------------+

A rank that has no gradients when the ranks reduce them takes part with zeros, and then moves to PASS.
"""

from __future__ import annotations

import enum
import threading
from typing import Any, Dict, FrozenSet


class State(enum.IntEnum):
    """The states in ascending order: up to REDUCED no gradient waits for its reduction; from READY on, some are
    complete."""

    IDLE = 0  # no gradients, or zeros
    STEPPED = 1  # gradients of the last step, which has reduced them
    READ = 2  # reduced for GradScaler or a clipping function
    REDUCED = 3  # reduced by synchronize()
    PASS = 4  # some gradients are not reduced
    READY = 5  # the gradients of a bucket are complete, but its request has not started
    IN_FLIGHT = 6  # the gradients of a bucket are in reduction
    INTERRUPTED = 7  # a signal handler has raised during the wait for these gradients


IDLE, STEPPED, READ, REDUCED, PASS, READY, IN_FLIGHT, INTERRUPTED = State

_END = (IDLE, STEPPED)
_lock = threading.Lock()  # not an attribute, because optimizers copy their steps
MOVES: Dict[State, FrozenSet[State]] = {
    IDLE: frozenset((PASS, *_END)),
    STEPPED: frozenset((PASS, *_END)),
    READ: frozenset((PASS, *_END)),
    REDUCED: frozenset((PASS, *_END)),
    PASS: frozenset((READY, IN_FLIGHT, INTERRUPTED, READ, REDUCED, *_END)),
    READY: frozenset((PASS, IN_FLIGHT, INTERRUPTED)),
    IN_FLIGHT: frozenset((PASS, INTERRUPTED)),
    INTERRUPTED: frozenset((PASS, INTERRUPTED)),
}


class Step:
    """The state of one optimizer's gradients, with the data that belongs to the state. The threads of backward passes
    call rise(), and the thread of the step calls the rest."""

    def __init__(self) -> None:
        self.state = self._before = IDLE
        self._begin()

    def _begin(self) -> None:
        # Only in STEPPED: the gradients that the step left (SteppedGradients); whether a pass has added nothing to them
        # since; whether a clipping function has found none.
        self.stepped: Any = None
        self.has_passed = self.has_read_none = False

    def to(self, state: State) -> None:
        """Moves to the state. Raises AssertionError if the table has no such move."""
        if state not in MOVES[self.state]:
            raise AssertionError(
                f"Gradients of hvd.DistributedOptimizer that are {_word(self.state)} cannot become {_word(state)}: "
                "call optimizer.synchronize() before, on all ranks."
            )
        if state is PASS and self.state < PASS:
            self._before = self.state
        self.state = state

    def rise(self, state: State) -> None:
        """Moves to the state unless the step has reached it or a later one: backward passes of several threads do so at
        once."""
        if self.state >= state:
            return
        with _lock:
            if self.state < state:
                self.to(state)

    def end(self, state: State) -> None:
        """Ends the step with IDLE or STEPPED. Later gradients belong to another step."""
        self.to(state)
        self._begin()

    def reduced(self) -> State:
        """Returns READ or REDUCED if the gradients were reduced before the step, even if later passes have added to
        them; otherwise another state."""
        return self.state if self.state < PASS else self._before


def _word(state: State) -> str:
    return state.name.lower().replace("_", " ")
