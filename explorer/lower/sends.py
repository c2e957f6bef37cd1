"""Sends: a schedule with one row per message and one per chunk of it, cut and copied as needed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from explorer.core.collective import Collective
from explorer.core.costs import CostModel
from explorer.core.rank_graph import RankGraph
from explorer.core.schedule import Schedule
from explorer.errors import InputError, Problem

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

SAME_TIME = 1e-6
"""Instants closer than this part of the shortest message are one: planners add up floats."""


@dataclass(frozen=True, slots=True, eq=False)
class Sends:
    """Messages and their chunks.

    Parameters
    ----------
    src, dst, instance
        int64 ``[M]``.
    reduce
        bool ``[M]``.
    hold
        int64 ``[M]``: event of the sender's rank until which the plan holds a message, 2m for the
        end of sending message m and 2m+1 for its arrival; -1 where the plan only gives times.
    start_us, release_us, end_us
        float64 ``[M]``: when a message starts, its sender is free again, its chunks have arrived.
    message
        int64 ``[N]``: message of every chunk, sorted.
    chunk
        int64 ``[N]``.
    """

    src: IntArray
    dst: IntArray
    instance: IntArray
    reduce: npt.NDArray[np.bool_]
    hold: IntArray
    start_us: FloatArray
    release_us: FloatArray
    end_us: FloatArray
    message: IntArray
    chunk: IntArray


def grouped(schedule: Schedule, graph: RankGraph | None = None) -> Sends:
    """Sends by message, in planned order.

    Chunks that arrive where they already are, in collectives that do not reduce, are left out:
    they change nothing at their receiver.

    Parameters
    ----------
    schedule
        Valid, with at least one send.
    graph
        Edges the schedule was planned on, for the alpha that ``pipelined`` adds after a send.

    Raises
    ------
    InputError
        If a send is out of range or a message is not one, or nothing is left; the first ten
        problems.
    """
    order = np.lexsort(
        (schedule.chunk, schedule.group, schedule.dst, schedule.src, schedule.start_us)
    )
    problems = _out_of_range(schedule, order)
    if problems:
        raise InputError(problems)
    order = order[_news(schedule, order)]
    if not len(order):
        raise InputError(Problem("schedule", "no send brings a chunk where it is not yet"))
    _, head, inverse = np.unique(schedule.group[order], return_index=True, return_inverse=True)
    message = np.argsort(np.argsort(head))[inverse].astype(np.int64)
    head = np.sort(head)
    for column in (schedule.src, schedule.dst, schedule.reduce, schedule.start_us, schedule.end_us):
        uneven = np.flatnonzero(column[order] != column[order][head][message])
        if len(uneven):
            group = schedule.group[order[uneven[0]]]
            text = "its sends differ in src, dst, start, end or reduce, expected one message"
            raise InputError(Problem(f"schedule.group[{group}]", text))
    first = order[head]
    src, dst = schedule.src[first].astype(np.int64), schedule.dst[first].astype(np.int64)
    start, end = schedule.start_us[first], schedule.end_us[first]
    release = end
    if graph is not None and schedule.cost_model is CostModel.PIPELINED:
        release = np.maximum(end - graph.alpha_us[edges_of(graph, src, dst)], start)
    by_message = np.argsort(message, kind="stable")
    return Sends(
        src=src,
        dst=dst,
        instance=np.zeros(len(src), dtype=np.int64),
        reduce=schedule.reduce[first],
        hold=np.full(len(src), -1, dtype=np.int64),
        start_us=start,
        release_us=release,
        end_us=end,
        message=message[by_message],
        chunk=schedule.chunk[order][by_message].astype(np.int64),
    )


def _news(schedule: Schedule, order: IntArray) -> npt.NDArray[np.bool_]:
    """Whether each send brings its receiver something it does not have."""
    c = schedule.collective
    keep = np.ones(len(order), dtype=np.bool_)
    if c.reduces:
        return keep
    keys = schedule.dst[order].astype(np.int64) * c.chunk_count + schedule.chunk[order]
    arrival = np.lexsort((np.arange(len(order)), schedule.end_us[order], keys))
    keep[arrival[1:][np.diff(keys[arrival]) == 0]] = False
    home = np.concatenate([r * c.chunk_count + _own(c, r) for r in range(c.ranks)])
    return keep & ~np.isin(keys, home)


def _own(collective: Collective, rank: int) -> IntArray:
    """Chunks that a rank has at the start, for collectives that do not reduce."""
    given = not collective.rooted or rank == collective.root
    return collective.input_chunks(rank).astype(np.int64)[: None if given else 0]


def edges_of(graph: RankGraph, src: IntArray, dst: IntArray) -> IntArray:
    """Edge of every (src, dst) pair.

    Raises
    ------
    InputError
        If a pair has no edge; the pair is named.
    """
    keys = graph.src.astype(np.int64) * graph.ranks + graph.dst
    wanted = src * graph.ranks + dst
    at = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
    bad = keys[at] != wanted if len(keys) else np.ones(len(wanted), dtype=np.bool_)
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        raise InputError(
            Problem("schedule", f"sends from rank {src[first]} to rank {dst[first]}, no such edge")
        )
    return at


def cut(table: Sends, largest: int | None) -> Sends:
    """Cut messages of more than ``largest`` chunks into parts, each with its share of the time."""
    size = np.bincount(table.message, minlength=len(table.src))
    if largest is None or int(size.max()) <= largest:
        return table
    parts = -(-size // largest)
    whole = np.repeat(np.arange(len(size)), parts)
    share = (np.arange(len(whole)) - np.repeat(np.cumsum(parts) - parts, parts)).astype(float)
    held = (table.release_us - table.start_us)[whole] / parts[whole]
    start = table.start_us[whole] + share * held
    final = share + 1 == parts[whole]
    release = np.where(final, table.release_us[whole], start + held)
    end = table.end_us[whole] - (table.release_us[whole] - release)
    local = np.arange(len(table.message)) - (np.cumsum(size) - size)[table.message]
    base, extra = np.divmod(size, parts)  # the first `extra` parts have one chunk more
    big = (base + 1) * extra
    base_, extra_ = base[table.message], extra[table.message]
    part = np.where(
        local < big[table.message],
        local // (base_ + 1),
        extra_ + (local - big[table.message]) // base_,
    )
    message = (np.cumsum(parts) - parts)[table.message] + part
    cut = Sends(
        table.src[whole],
        table.dst[whole],
        table.instance[whole],
        table.reduce[whole],
        table.hold[whole],
        start,
        release,
        end,
        message.astype(np.int64),
        table.chunk,
    )
    order = np.argsort(start, kind="stable")
    return renumbered(cut, order)


def renumbered(table: Sends, order: IntArray) -> Sends:
    """Messages in another order."""
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    message, hold = position[table.message], table.hold[order]
    columns = np.argsort(message, kind="stable")
    return Sends(
        table.src[order],
        table.dst[order],
        table.instance[order],
        table.reduce[order],
        np.where(hold < 0, -1, 2 * position[hold // 2] + hold % 2),
        table.start_us[order],
        table.release_us[order],
        table.end_us[order],
        message[columns],
        table.chunk[columns],
    )


def copied(table: Sends, instances: int, chunks_per_rank: int) -> Sends:
    """Repeat every message once per instance, on the instance's share of each block of chunks."""
    if instances == 1:
        return table
    copies = np.arange(instances)

    def spread(column: npt.NDArray) -> npt.NDArray:
        return np.repeat(column, instances)

    block, k = np.divmod(table.chunk, chunks_per_rank)
    wide = block * (chunks_per_rank * instances) + k
    chunk = wide[:, None] + copies * chunks_per_rank
    message = table.message[:, None] * instances + copies
    hold, part = spread(table.hold), np.tile(copies, len(table.src))
    order = np.argsort(message.ravel(), kind="stable")
    return Sends(
        spread(table.src),
        spread(table.dst),
        part,
        spread(table.reduce),
        np.where(hold < 0, -1, 2 * (hold // 2 * instances + part) + hold % 2),
        spread(table.start_us),
        spread(table.release_us),
        spread(table.end_us),
        message.ravel()[order],
        chunk.ravel()[order],
    )


def _out_of_range(schedule: Schedule, order: IntArray) -> list[Problem]:
    c = schedule.collective
    bad = (
        (schedule.src == schedule.dst)
        | (np.minimum(schedule.src, schedule.dst) < 0)
        | (np.maximum(schedule.src, schedule.dst) >= c.ranks)
        | (schedule.chunk < 0)
        | (schedule.chunk >= c.chunk_count)
        | ~(schedule.end_us > schedule.start_us)
    )
    return [
        Problem(
            "schedule",
            f"chunk {schedule.chunk[i]} from rank {schedule.src[i]} to rank {schedule.dst[i]} at"
            f" {schedule.start_us[i]:g} to {schedule.end_us[i]:g} us is no send of {c.name} on"
            f" {c.ranks} ranks with {c.chunk_count} chunks",
        )
        for i in order[bad[order]][:10].tolist()
    ]
