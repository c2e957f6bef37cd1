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
from explorer.lower.memory import Memory

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Sends:
    """Messages and their chunks.

    Parameters
    ----------
    src, dst, instance
        int64 ``[M]``.
    reduce
        bool ``[M]``.
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
    start_us: FloatArray
    release_us: FloatArray
    end_us: FloatArray
    message: IntArray
    chunk: IntArray


def grouped(schedule: Schedule, memory: Memory, graph: RankGraph | None) -> Sends:
    """Sends by message, in planned order, without those that bring nothing new."""
    c = schedule.collective
    order = np.lexsort(
        (schedule.chunk, schedule.group, schedule.dst, schedule.src, schedule.start_us)
    )
    src, dst = schedule.src[order].astype(np.int64), schedule.dst[order].astype(np.int64)
    chunk, group = schedule.chunk[order].astype(np.int64), schedule.group[order]
    reduce, start = schedule.reduce[order], schedule.start_us[order]
    end = schedule.end_us[order]
    problems = _out_of_range(c, src, dst, chunk, start, end)
    if problems:
        raise InputError(problems)
    keep = np.ones(len(src), dtype=np.bool_)
    if not c.reduces:
        keys = dst * c.chunk_count + chunk
        arrival = np.lexsort((np.arange(len(src)), end, keys))
        keep[arrival[1:][np.diff(keys[arrival]) == 0]] = False
        # the table of `memory` is of split chunks; part 0 of a chunk stands for all its parts
        part = chunk // c.chunks_per_rank * memory.collective.chunks_per_rank
        part = part + chunk % c.chunks_per_rank
        keep &= memory.input_cell(dst, part) < 0
        if not keep.any():
            raise InputError(Problem("schedule", "no send brings a chunk where it is not yet"))
    src, dst, chunk, group = src[keep], dst[keep], chunk[keep], group[keep]
    reduce, start, end = reduce[keep], start[keep], end[keep]
    _, head, inverse = np.unique(group, return_index=True, return_inverse=True)
    rank_of = np.argsort(np.argsort(head))
    message = rank_of[inverse].astype(np.int64)
    head = np.sort(head)
    uneven = np.zeros(len(src), dtype=np.bool_)
    for column in (src, dst, reduce, start, end):
        uneven |= column != column[head][message]
    if uneven.any():
        bad = int(np.flatnonzero(uneven)[0])
        raise InputError(
            Problem(
                f"schedule.group[{group[bad]}]",
                "its sends differ in src, dst, start, end or reduce, expected one message",
            )
        )
    by_message = np.argsort(message, kind="stable")
    src, dst, reduce, start, end = src[head], dst[head], reduce[head], start[head], end[head]
    release = end
    if graph is not None and schedule.cost_model is CostModel.PIPELINED:
        release = end - graph.alpha_us[edges_of(graph, src, dst)]
    return Sends(
        src,
        dst,
        np.zeros(len(src), dtype=np.int64),
        reduce,
        start,
        np.maximum(release, start),
        end,
        message[by_message],
        chunk[by_message],
    )


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
        start,
        release,
        end,
        message.astype(np.int64),
        table.chunk,
    )
    order = np.argsort(start, kind="stable")
    return _renumbered(cut, order)


def _renumbered(table: Sends, order: IntArray) -> Sends:
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    message = position[table.message]
    columns = np.argsort(message, kind="stable")
    return Sends(
        table.src[order],
        table.dst[order],
        table.instance[order],
        table.reduce[order],
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
    order = np.argsort(message.ravel(), kind="stable")
    return Sends(
        spread(table.src),
        spread(table.dst),
        np.tile(copies, len(table.src)),
        spread(table.reduce),
        spread(table.start_us),
        spread(table.release_us),
        spread(table.end_us),
        message.ravel()[order],
        chunk.ravel()[order],
    )


def _out_of_range(
    c: Collective,
    src: IntArray,
    dst: IntArray,
    chunk: IntArray,
    start: FloatArray,
    end: FloatArray,
) -> list[Problem]:
    bad = (
        (src == dst)
        | (np.minimum(src, dst) < 0)
        | (np.maximum(src, dst) >= c.ranks)
        | (chunk < 0)
        | (chunk >= c.chunk_count)
        | ~(end > start)
    )
    return [
        Problem(
            "schedule",
            f"chunk {chunk[i]} from rank {src[i]} to rank {dst[i]} at {start[i]:g} to {end[i]:g} us"
            f" is no send of {c.name} on {c.ranks} ranks with {c.chunk_count} chunks",
        )
        for i in np.flatnonzero(bad)[:10].tolist()
    ]
