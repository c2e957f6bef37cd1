"""Arrays that the list scheduling kernel works on, and how it is compiled.

Named tuples, which numba passes as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from numba import njit

IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

NEVER = np.int64(1 << 62)
"""Arrival time of a chunk that is not on its way."""


_F = TypeVar("_F", bound=Callable[..., object])

# Arrays are only borrowed: without reference counts loops run twice as fast (numba issue 2350).
kernel: Callable[[_F], _F] = njit(cache=True, error_model="numpy", _nrt=False)
"""Compiles what Python calls."""

inner: Callable[[_F], _F] = njit(
    cache=True, error_model="numpy", _nrt=False, no_cpython_wrapper=True
)
"""Compiles what only compiled functions call: calling it from Python crashes; take ``.py_func``."""


class Machine(NamedTuple):
    """Edges and resources; times in ticks.

    ``slow`` marks edges to whose receiver a cheaper edge inside its node leads.
    ``out``, ``into`` and ``using`` list the edges out of a rank, into a rank and on a resource,
    each delimited by its ``_first``.
    """

    node_of: IntArray
    src: IntArray
    dst: IntArray
    alpha: LongArray
    unit: LongArray
    inter: npt.NDArray[np.bool_]
    slow: npt.NDArray[np.bool_]
    cost: FloatArray
    pipelined: bool
    res_first: LongArray
    res: IntArray
    out_first: LongArray
    out: IntArray
    into_first: LongArray
    into: IntArray
    using_first: LongArray
    using: IntArray


class Images(NamedTuple):
    """Symmetry: images of edges and chunks ``[G, …]``, representatives of edges and ranks."""

    edge: IntArray
    chunk: IntArray
    edge_rep: IntArray
    rank_rep: IntArray


class Plan(NamedTuple):
    """What may cross each edge: chunks ``chunk[first[e]:first[e+1]]``, each with an urgency.

    ``arrival`` is int64 ``[R, C]``: when a rank has (its part of) a chunk, NEVER where that is not
    known yet. ``waiting`` counts the sends that must arrive before a rank may send the chunk on,
    -1 once it has; used where chunks are summed. ``need`` counts the chunks a rank must get,
    ``leaving`` the inter-node sends to start at a rank (0: unknown).
    """

    first: LongArray
    chunk: IntArray
    tail: FloatArray
    source: IntArray
    arrival: LongArray
    waiting: IntArray
    need: LongArray
    leaving: LongArray

    def fresh(self) -> Plan:
        """Copy, since the kernel uses a plan up."""
        return Plan(
            self.first,
            self.chunk.copy(),
            self.tail.copy(),
            self.source,
            self.arrival.copy(),
            self.waiting.copy(),
            self.need.copy(),
            self.leaving.copy(),
        )


class Weights(NamedTuple):
    """How much each thing counts when chunks and edges compete; see :class:`Rule`."""

    tail: float
    copies: float
    need: float
    size: float
    cost: float
    noise: float
    own: float
    inter: float


class Options(NamedTuple):
    """What a rule switches; see :class:`explorer.synth.rules.Rule`."""

    take_fraction: float
    take_cap: int
    inside_cap: int
    reserve: int
    reserve_last_hops: bool
    wait_for: int
    max_entries: int
    own_events: bool
    refuse: bool
    sums: bool
    seed: int


class Sent(NamedTuple):
    """Output: edge, start, end and first chunk of each message, and the chunks."""

    edge: IntArray
    start: LongArray
    end: LongArray
    first: LongArray
    chunk: IntArray


class State(NamedTuple):
    """What changes as time goes on.

    When each resource is ``free_at``; ``copies`` and ``entries`` of each chunk in each node; the
    ``last`` of the plan's entries on each edge that is not used up; ``scores`` of ``useful`` plan
    entries, for one edge at a time; ``candidate`` edges and their ``ranking``; the event heap;
    ``dirty`` edges to look at, with a ``stamp`` of the round they were marked in, and the
    ``looking`` ones of this round; ranks with an ``own_event`` now.
    """

    free_at: LongArray
    copies: IntArray
    entries: IntArray
    last: LongArray
    scores: FloatArray
    useful: IntArray
    candidate: IntArray
    ranking: FloatArray
    heap_time: LongArray
    heap_item: LongArray
    dirty: IntArray
    looking: IntArray
    stamp: LongArray
    own_event: npt.NDArray[np.bool_]
    counters: LongArray


SCANNED, REFUSED, HEAP, DIRTY, ROUND, MESSAGES, SENDS, MAKESPAN = range(8)
"""Counters of a state."""


def initial_state(machine: Machine, plan: Plan, most: int) -> State:
    """State before anything is sent, for at most that many messages."""
    edges = len(machine.src)
    ranks, chunks = plan.arrival.shape
    nodes = int(machine.node_of.max()) + 1
    home = machine.node_of[plan.source]
    copies = np.zeros((nodes, chunks), np.int32)
    copies[home, np.arange(chunks)] = 1
    return State(
        free_at=np.zeros(len(machine.using_first) - 1, np.int64),
        copies=copies,
        entries=copies.copy(),
        last=plan.first[1:].copy(),
        scores=np.zeros(chunks, np.float64),
        useful=np.zeros(chunks, np.int32),
        candidate=np.zeros(edges, np.int32),
        ranking=np.zeros(edges, np.float64),
        # Pipelined messages leave their edge before they arrive: any number can be on the way.
        heap_time=np.zeros(2 * most + 2, np.int64),
        heap_item=np.zeros(2 * most + 2, np.int64),
        dirty=np.zeros(edges, np.int32),
        looking=np.zeros(edges, np.int32),
        stamp=np.full(edges, -1, np.int64),
        own_event=np.ones(ranks, np.bool_),
        counters=np.zeros(8, np.int64),
    )
