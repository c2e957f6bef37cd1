"""Timing: exact start and end of ordered messages, as early as their order allows.

The order of a list schedule or of a solver is trusted, its times are not: they are computed again
from the costs, by the longest path over the messages on every resource and the chunks they carry.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from explorer.core.costs import CostModel
from explorer.core.schedule import Schedule, Symmetry
from explorer.synth.instance import Instance

IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Messages:
    """Messages in an order in which they can start.

    Parameters
    ----------
    edge
        int32 ``[M]``.
    first, chunk
        int64 ``[M+1]`` and int32: chunks of message m are ``chunk[first[m]:first[m+1]]``.
    start, release, end
        int64 ``[M]``: planned start, end of the occupation and arrival in any unit, not decreasing
        in start; only their order counts.
    own_events
        Whether a message also waits for the last planned send or receive of its sender that ends
        by its planned start.
    symmetric
        Whether the messages come in orbits of the instance's group.
    sums
        Whether receivers add what arrives; all ranks hold their part of every chunk at the start.
    """

    edge: IntArray
    first: LongArray
    chunk: IntArray
    start: LongArray
    release: LongArray
    end: LongArray
    own_events: bool
    symmetric: bool
    sums: bool = False

    @property
    def count(self) -> int:
        """Number of messages M."""
        return len(self.edge)


def exact_times(instance: Instance, messages: Messages) -> tuple[FloatArray, FloatArray]:
    """Start and arrival of every message, float64 ``[M]`` each.

    Raises
    ------
    ValueError
        If a message carries a chunk that its sender never gets before it: a bug in the order.
    """
    graph = instance.graph
    alpha, transfer = graph.alpha_us.tolist(), instance.transfer_us.tolist()
    src, dst = graph.src.tolist(), graph.dst.tolist()
    resources = [graph.resources_of(e).tolist() for e in range(graph.edges)]
    exclusive = instance.cost_model is CostModel.EXCLUSIVE
    free = [0.0] * len(graph.resources)
    at = _holders(instance, sums=messages.sums)
    events: list[list[tuple[int, float]]] = [[] for _ in range(graph.ranks)]
    last_event = [0.0] * graph.ranks
    starts, ends = np.zeros(messages.count), np.zeros(messages.count)
    edges, first, chunks = messages.edge.tolist(), messages.first.tolist(), messages.chunk.tolist()
    planned = messages.start.tolist()
    planned_release, planned_end = messages.release.tolist(), messages.end.tolist()
    for m, edge in enumerate(edges):
        carried = chunks[first[m] : first[m + 1]]
        u, v = src[edge], dst[edge]
        start = max([free[r] for r in resources[edge]], default=0.0)
        for c in carried:
            if (c, u) not in at:
                raise ValueError(f"message {m} carries chunk {c}, which rank {u} never gets")
            start = max(start, at[c, u])
        if messages.own_events:
            waiting = events[u]
            while waiting and waiting[0][0] <= planned[m]:
                last_event[u] = max(last_event[u], heapq.heappop(waiting)[1])
            start = max(start, last_event[u])
        length = len(carried) * transfer[edge]
        end = start + alpha[edge] + length
        released = end if exclusive else start + length
        for r in resources[edge]:
            free[r] = released
        for c in carried:
            at[c, v] = max(end, at.get((c, v), 0.0))
        if messages.own_events:
            heapq.heappush(events[u], (planned_release[m], released))
            heapq.heappush(events[v], (planned_end[m], end))
        starts[m], ends[m] = start, end
    return starts, ends


def _holders(instance: Instance, *, sums: bool) -> dict[tuple[int, int], float]:
    """Chunks that ranks hold at the start, and since when."""
    if sums:
        return {(c, r): 0.0 for c in range(instance.chunks) for r in range(instance.graph.ranks)}
    return dict.fromkeys(enumerate(instance.source.tolist()), 0.0)


def schedule_of(instance: Instance, messages: Messages) -> Schedule:
    """Schedule of ordered messages, with exact times."""
    starts, ends = exact_times(instance, messages)
    counts = np.diff(messages.first)
    edge = np.repeat(messages.edge, counts)
    symmetry: tuple[Symmetry, ...] = instance.group.generators if messages.symmetric else ()
    return Schedule(
        instance.collective,
        instance.chunk_bytes,
        instance.cost_model,
        instance.graph.src[edge],
        instance.graph.dst[edge],
        messages.chunk,
        np.repeat(np.arange(messages.count, dtype=np.int32), counts),
        np.full(len(edge), messages.sums, dtype=np.bool_),
        np.repeat(starts, counts),
        np.repeat(ends, counts),
        symmetry,
    ).sorted()
