"""Retime: recompute the times of a schedule from its order alone.

A schedule fixes three orders: of the messages on every resource, of what a rank has received
before it sends, and (where chunks are summed) of what it has sent before it receives more. The
earliest times that keep them are longest paths. One pass over the old events in their order finds
them: every event depends on earlier ones only.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from explorer.combine.messages import SHOWN, Messages, messages
from explorer.combine.walk import walk
from explorer.core.collective import Collective
from explorer.core.rank_graph import RankGraph
from explorer.core.schedule import Schedule, Symmetry
from explorer.errors import InputError, Problem

AnyIntArray = npt.NDArray[np.integer]
LongArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]

TOLERANCE = 1e-9
"""Share of the makespan within which an arrival counts as before a start, and times as equal."""


def retime(schedule: Schedule, graph: RankGraph) -> Schedule:
    """Compute the earliest times that keep the order of a schedule.

    Kept are the order of the messages on each resource of the graph and what has arrived at a rank
    before each of its sends. Costs are the graph's, at the schedule's cost model and chunk size.
    Symmetries that the new times do not have are dropped.

    Parameters
    ----------
    schedule
        Valid, apart from its times: those only tell the order.
    graph
        Edges, costs and resources.

    Raises
    ------
    InputError
        If the graph lacks an edge, a rank sends a chunk that it does not hold, or no times keep
        the order of what is summed.
    """
    return _timed(schedule, graph, fill=False)


def backfill(schedule: Schedule, graph: RankGraph) -> Schedule:
    """Let every message, in the order of the schedule, take the first gap it fits in.

    As :func:`retime`, but a message may overtake others on its resources where that delays none
    of them. What has arrived before each send stays.
    """
    return retime(_timed(schedule, graph, fill=True), graph)


def _timed(schedule: Schedule, graph: RankGraph, *, fill: bool) -> Schedule:
    found = messages(schedule, graph)
    start, end = _earliest(schedule, found, graph, fill=fill)
    of_send = found.of_send
    timed = replace(schedule, start_us=start[of_send], end_us=end[of_send])
    kept = tuple(g for g in schedule.symmetry if _invariant(timed, g))
    return replace(timed, symmetry=kept).sorted()


def conflicts(schedule: Schedule, graph: RankGraph) -> bool:
    """Whether times contradict the graph's costs, or two messages hold a resource at once."""
    found = messages(schedule, graph)
    slack = TOLERANCE * max(schedule.makespan_us, 1e-9)
    if (np.abs(found.end_us - found.start_us - found.span_us) > slack).any():
        return True
    held, resource = _held(found, graph)
    order = np.lexsort((found.start_us[held], resource))
    held, resource = held[order], resource[order]
    same = resource[1:] == resource[:-1]
    free = (found.start_us + found.busy_us)[held[:-1]]
    return bool((same & (found.start_us[held[1:]] < free - slack)).any())


def initial_holders(collective: Collective, rank: AnyIntArray, chunk: AnyIntArray) -> BoolArray:
    """Whether ranks hold (a contribution to) chunks at the start, elementwise."""
    c = collective.chunks_per_rank
    if collective.reduces:
        return np.ones(len(rank), dtype=np.bool_)
    if collective.name == "broadcast":
        owner: AnyIntArray = np.full(len(chunk), collective.root, dtype=np.int64)
    elif collective.name == "alltoall":
        owner = chunk // (collective.ranks * c)
    else:
        owner = chunk // c
    held: BoolArray = np.equal(rank, owner)
    return held


def _held(found: Messages, graph: RankGraph) -> tuple[LongArray, LongArray]:
    """Pairs (message, resource) of everything that is held."""
    counts = np.diff(graph.resource_first)[found.edge]
    held = np.repeat(np.arange(found.count), counts)
    first = np.concatenate(([0], np.cumsum(counts)))
    index = np.arange(first[-1]) - first[held] + graph.resource_first[found.edge[held]]
    return held, graph.resource[index].astype(np.int64)


def _earliest(
    schedule: Schedule, found: Messages, graph: RankGraph, *, fill: bool
) -> tuple[FloatArray, FloatArray]:
    """New start and end of every message."""
    kind = schedule.collective
    place, source, target = _places(schedule)
    ready = np.full(len(place), -1.0)
    ready[initial_holders(kind, place // kind.chunk_count, place % kind.chunk_count)] = 0.0
    message, resource = _held(found, graph)
    uses = np.bincount(resource, minlength=len(graph.resources))
    start, end, bad, clash = walk(
        _event_order(found),
        found.first,
        source[found.send],
        target[found.send],
        np.searchsorted(message, np.arange(found.count + 1)),
        resource,
        found.busy_us,
        found.span_us,
        ready,
        np.concatenate(([0], np.cumsum(uses))),
        kind.reduces,
        fill,
    )
    if bad.any():
        raise InputError([_unheld(schedule, int(i)) for i in found.send[bad][:SHOWN]])
    if clash.any():
        raise InputError([_clash(schedule, int(i)) for i in found.send[clash][:SHOWN]])
    return start, end


def _places(schedule: Schedule) -> tuple[LongArray, LongArray, LongArray]:
    """The (rank, chunk) pairs that occur, and those every send reads and writes."""
    chunks = schedule.collective.chunk_count
    source = schedule.src.astype(np.int64) * chunks + schedule.chunk
    target = schedule.dst.astype(np.int64) * chunks + schedule.chunk
    place, index = np.unique(np.concatenate((source, target)), return_inverse=True)
    return place, index[: schedule.sends], index[schedule.sends :]


def _event_order(found: Messages) -> LongArray:
    """Starts (m) and ends (m + M) of all messages in their old order, ends first at equal times.

    A message without length ends right after it starts.
    """
    count = found.count
    span = float(found.end_us.max(initial=0.0))
    early = np.maximum(found.end_us - TOLERANCE * span, found.start_us)
    instant = early <= found.start_us
    time = np.concatenate((found.start_us, early))
    number = np.concatenate((np.arange(count), np.arange(count)))
    rank = np.concatenate((np.ones(count), np.where(instant, 1, 0)))
    is_end = np.concatenate((np.zeros(count), np.ones(count)))
    return np.lexsort((is_end, number, rank, time))


def _unheld(schedule: Schedule, send: int) -> Problem:
    return Problem(
        f"send at {schedule.start_us[send]:g} us",
        f"rank {schedule.src[send]} sends chunk {schedule.chunk[send]} to {schedule.dst[send]}"
        " but does not hold it then",
    )


def _clash(schedule: Schedule, send: int) -> Problem:
    return Problem(
        f"send at {schedule.start_us[send]:g} us",
        f"chunk {schedule.chunk[send]} would reach rank {schedule.dst[send]} from"
        f" {schedule.src[send]} before that rank has sent its own sum on; no times keep this order"
        " at the graph's costs",
    )


def _invariant(schedule: Schedule, generator: Symmetry) -> bool:
    """Whether sends and times are mapped onto themselves."""
    slack = TOLERANCE * max(schedule.makespan_us, 1e-9)
    plain = _table(schedule.src, schedule.dst, schedule.chunk, schedule)
    image = _table(
        generator.rank[schedule.src],
        generator.rank[schedule.dst],
        generator.chunk[schedule.chunk],
        schedule,
    )
    sends_agree = all(np.array_equal(a, b) for a, b in zip(plain[:4], image[:4], strict=True))
    return sends_agree and all(
        np.allclose(a, b, rtol=0.0, atol=slack) for a, b in zip(plain[4:], image[4:], strict=True)
    )


def _table(
    src: AnyIntArray, dst: AnyIntArray, chunk: AnyIntArray, schedule: Schedule
) -> tuple[npt.NDArray[np.generic], ...]:
    order = np.lexsort((schedule.end_us, schedule.start_us, schedule.reduce, chunk, dst, src))
    columns = (src, dst, chunk, schedule.reduce, schedule.start_us, schedule.end_us)
    return tuple(column[order] for column in columns)
