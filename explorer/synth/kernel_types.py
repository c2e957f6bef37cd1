"""Arrays that the list scheduling kernel works on; named tuples, which numba passes as they are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

NEVER = np.int64(1 << 62)
"""Arrival time of a chunk that is not on its way."""


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

    ``arrival`` is int64 ``[R, C]``, 0 at the source and NEVER elsewhere; ``need`` counts the
    chunks a rank must get, ``leaving`` the inter-node sends to start at a rank (0: unknown).
    """

    first: LongArray
    chunk: IntArray
    tail: FloatArray
    source: IntArray
    arrival: LongArray
    need: LongArray
    leaving: LongArray


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
    max_entries: int
    own_events: bool
    refuse: bool
    seed: int


class State(NamedTuple):
    """What changes as time goes on.

    When each resource is ``free_at``; ``copies`` and ``entries`` of each chunk in each node; the
    ``last`` of the plan's entries on each edge that is not used up; ``scores`` of ``useful`` plan
    entries, for one edge at a time; the event heap; ``dirty`` edges to look at, with a ``stamp``
    of the round they were marked in; ranks with an ``own_event`` now.
    """

    free_at: LongArray
    copies: IntArray
    entries: IntArray
    last: LongArray
    scores: FloatArray
    useful: IntArray
    heap_time: LongArray
    heap_item: LongArray
    dirty: IntArray
    stamp: LongArray
    own_event: npt.NDArray[np.bool_]
    counters: LongArray


SCANNED, REFUSED, HEAP, DIRTY, ROUND, MESSAGES, SENDS, MAKESPAN = range(8)
"""Counters of a state."""
