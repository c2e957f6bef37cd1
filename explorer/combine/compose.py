"""Compose: AllReduce as ReduceScatter followed by AllGather, overlapped where the order allows.

Chunk ids of the two coincide (owner · C + k), so nothing is renumbered: the owner's reduced chunk
is what the AllGather spreads.
"""

from __future__ import annotations

import numpy as np

from explorer.combine.retime import backfill, retime
from explorer.core.collective import Collective
from explorer.core.rank_graph import RankGraph
from explorer.core.schedule import Schedule, Symmetry
from explorer.errors import InputError, Problem


def compose(reduce_scatter: Schedule, all_gather: Schedule, graph: RankGraph) -> Schedule:
    """Join a ReduceScatter and an AllGather to an AllReduce.

    The AllGather of a chunk may begin as soon as its owner has the whole sum. Three schedules are
    tried: one after the other; the same order on every resource with each message as early as it
    can be; and messages of the AllGather in gaps that the ReduceScatter leaves. The shortest is
    returned, of equals the first.

    Parameters
    ----------
    reduce_scatter, all_gather
        Valid schedules of equal ranks, chunks per rank, chunk size and cost model.
    graph
        Edges both run on.

    Raises
    ------
    InputError
        If the two do not fit together, or not on the graph.
    """
    problems = _problems(reduce_scatter, all_gather)
    if problems:
        raise InputError(problems)
    sequential = _concatenated(reduce_scatter, all_gather)
    tried = (sequential, retime(sequential, graph), backfill(sequential, graph))
    return min(tried, key=lambda schedule: schedule.makespan_us)


def _problems(first: Schedule, second: Schedule) -> list[Problem]:
    problems = [
        Problem(where, f"got {schedule.collective.name}, expected {expected}")
        for where, schedule, expected in (
            ("first schedule", first, "reducescatter"),
            ("second schedule", second, "allgather"),
        )
        if schedule.collective.name != expected
    ]
    for what, one, other in (
        ("ranks", first.collective.ranks, second.collective.ranks),
        ("chunks per rank", first.collective.chunks_per_rank, second.collective.chunks_per_rank),
        ("chunk bytes", first.chunk_bytes, second.chunk_bytes),
        ("cost model", first.cost_model, second.cost_model),
    ):
        if one != other:
            problems.append(Problem("schedules", f"differ in {what}: {one} and {other}"))
    return problems


def _concatenated(first: Schedule, second: Schedule) -> Schedule:
    kind = first.collective
    offset = first.makespan_us
    groups = int(first.group.max(initial=-1)) + 1
    return Schedule(
        Collective("allreduce", kind.ranks, kind.chunks_per_rank),
        first.chunk_bytes,
        first.cost_model,
        np.concatenate((first.src, second.src)),
        np.concatenate((first.dst, second.dst)),
        np.concatenate((first.chunk, second.chunk)),
        np.concatenate((first.group, second.group + groups)).astype(np.int32),
        np.concatenate((first.reduce, second.reduce)),
        np.concatenate((first.start_us, second.start_us + offset)),
        np.concatenate((first.end_us, second.end_us + offset)),
        tuple(g for g in first.symmetry if any(_same(g, other) for other in second.symmetry)),
    ).sorted()


def _same(one: Symmetry, other: Symmetry) -> bool:
    return np.array_equal(one.rank, other.rank) and np.array_equal(one.chunk, other.chunk)
