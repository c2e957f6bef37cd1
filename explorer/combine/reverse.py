"""Reverse: run a schedule backwards in time and direction.

A tree that spreads a chunk, read backwards, collects it: every send (chunk, u → v, [s, e]) becomes
(chunk, v → u, [T − e, T − s]), T the makespan. AllGather and ReduceScatter turn into one another,
and so do Broadcast and Reduce; an optimal schedule stays optimal where links are symmetric
(E. Chan et al., "Collective communication: theory, practice, and experience", CCPE 2007,
section 3).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from explorer.combine.messages import SHOWN
from explorer.combine.retime import conflicts, initial_holders, retime
from explorer.core.collective import Collective
from explorer.core.rank_graph import RankGraph
from explorer.core.schedule import IntArray, Schedule
from explorer.errors import InputError, Problem

REVERSE = {
    "allgather": "reducescatter",
    "reducescatter": "allgather",
    "broadcast": "reduce",
    "reduce": "broadcast",
}
"""What each collective becomes."""


def reverse(schedule: Schedule, graph: RankGraph) -> Schedule:
    """Reverse a schedule in time and direction.

    The mirrored times are kept where they fit the reversed edges; otherwise (asymmetric links, or
    latencies that differ under ``pipelined``) the mirrored order is re-timed.

    Parameters
    ----------
    schedule
        AllGather, ReduceScatter, Broadcast or Reduce.
    graph
        Where the reversed schedule runs.

    Raises
    ------
    InputError
        If the collective has no reverse, the chunks do not travel along trees (a rank receives a
        chunk twice or receives its own), or the graph lacks a reversed edge.
    """
    kind = schedule.collective
    name = REVERSE.get(kind.name)
    if name is None:
        raise InputError(f"{kind.name} cannot be reversed; only {', '.join(sorted(REVERSE))} can")
    _check_trees(schedule)
    spread = kind.reduces
    end = schedule.makespan_us
    mirrored = replace(
        schedule,
        collective=Collective(name, kind.ranks, kind.chunks_per_rank, kind.root),
        src=schedule.dst,
        dst=schedule.src,
        reduce=np.full(schedule.sends, not spread, dtype=np.bool_),
        # of symmetric schedules exact zeros stay exact
        start_us=end - schedule.end_us,
        end_us=end - schedule.start_us,
    ).sorted()
    return retime(mirrored, graph) if conflicts(mirrored, graph) else mirrored


def _check_trees(schedule: Schedule) -> None:
    """Each rank receives a chunk at most once (sums: sends it at most once), and never its own."""
    kind = schedule.collective
    leaf, verb = (schedule.src, "sends") if kind.reduces else (schedule.dst, "receives")
    place = leaf.astype(np.int64) * kind.chunk_count + schedule.chunk
    again, count = np.unique(place, return_counts=True)
    again = again[count > 1][:SHOWN]
    problems = [
        Problem(
            "schedule",
            f"rank {p // kind.chunk_count} {verb} chunk {p % kind.chunk_count} more than once; only"
            " trees can be reversed",
        )
        for p in again.tolist()
    ]
    spreading = Collective(
        REVERSE[kind.name] if kind.reduces else kind.name,
        kind.ranks,
        kind.chunks_per_rank,
        kind.root,
    )
    own = initial_holders(spreading, leaf, schedule.chunk)
    problems += [
        Problem(
            "schedule", f"rank {r} {verb} chunk {c}, which is its own; only trees can be reversed"
        )
        for r, c in _pairs(leaf[own], schedule.chunk[own])
    ]
    if problems:
        raise InputError(problems)


def _pairs(rank: IntArray, chunk: IntArray) -> list[tuple[int, int]]:
    return sorted(set(zip(rank.tolist(), chunk.tolist(), strict=True)))[:SHOWN]
