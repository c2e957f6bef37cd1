"""Messages of a schedule: its groups as arrays, in the order of their starts, with their edges."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from explorer.core.costs import CostModel
from explorer.core.rank_graph import RankGraph
from explorer.core.schedule import Schedule
from explorer.errors import InputError, Problem
from explorer.units import MIB

LongArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

SHOWN = 5
"""Problems of one kind that an error lists."""


@dataclass(frozen=True, slots=True, eq=False)
class Messages:
    """The messages of a schedule, sorted by (start, end, src, dst, group).

    Parameters
    ----------
    src, dst
        int32 ``[M]``.
    reduce
        bool ``[M]``.
    start_us, end_us
        float64 ``[M]``: times in the schedule.
    first, send
        int64 ``[M+1]`` and ``[N]``: the sends of message m are ``send[first[m]:first[m+1]]``,
        indices into the schedule, sorted by chunk.
    edge
        int64 ``[M]``: edge of the graph.
    busy_us, span_us
        float64 ``[M]``: how long the message holds its resources, and until it has arrived, at
        the graph's costs.
    """

    src: npt.NDArray[np.int32]
    dst: npt.NDArray[np.int32]
    reduce: npt.NDArray[np.bool_]
    start_us: FloatArray
    end_us: FloatArray
    first: LongArray
    send: LongArray
    edge: LongArray
    busy_us: FloatArray
    span_us: FloatArray

    @property
    def count(self) -> int:
        """Number of messages M."""
        return len(self.src)

    @property
    def of_send(self) -> LongArray:
        """Message of every send, int64 ``[N]``."""
        message = np.empty(len(self.send), dtype=np.int64)
        message[self.send] = np.repeat(np.arange(self.count), np.diff(self.first))
        return message


def messages(schedule: Schedule, graph: RankGraph) -> Messages:
    """Collect the messages of a schedule.

    Raises
    ------
    InputError
        If the graph has another rank count or lacks an edge, or sends of one group differ in more
        than their chunk.
    """
    if graph.ranks != schedule.collective.ranks:
        raise InputError(
            f"the schedule is for {schedule.collective.ranks} ranks, the graph has {graph.ranks}"
        )
    _, sample, group = np.unique(schedule.group, return_index=True, return_inverse=True)
    order = np.lexsort(
        (
            schedule.group[sample],
            schedule.dst[sample],
            schedule.src[sample],
            schedule.end_us[sample],
            schedule.start_us[sample],
        )
    )
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.arange(len(order))
    sample = sample[order]
    message = number[group]
    _check_groups(schedule, sample[message])
    counts = np.bincount(message, minlength=len(order))
    edge = _edges(schedule, graph, sample)
    transfer = graph.beta_us_per_mib[edge] * (counts * schedule.chunk_bytes / MIB)
    alpha = graph.alpha_us[edge]
    span = alpha + transfer
    return Messages(
        schedule.src[sample],
        schedule.dst[sample],
        schedule.reduce[sample],
        schedule.start_us[sample],
        schedule.end_us[sample],
        np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        np.lexsort((schedule.chunk, message)),
        edge,
        transfer if schedule.cost_model is CostModel.PIPELINED else span,
        span,
    )


def _check_groups(schedule: Schedule, sample: LongArray) -> None:
    same = np.ones(schedule.sends, dtype=np.bool_)
    for field in (
        schedule.src,
        schedule.dst,
        schedule.reduce,
        schedule.start_us,
        schedule.end_us,
    ):
        same &= field == field[sample]
    if not same.all():
        bad = np.unique(schedule.group[~same])[:SHOWN]
        raise InputError(
            [
                Problem(
                    f"group {g}",
                    "its sends differ in src, dst, reduce, start or end; one message has"
                    " one of each",
                )
                for g in bad.tolist()
            ]
        )


def _edges(schedule: Schedule, graph: RankGraph, sample: LongArray) -> LongArray:
    src, dst = schedule.src[sample].astype(np.int64), schedule.dst[sample]
    wanted = src * graph.ranks + dst
    keys = graph.src.astype(np.int64) * graph.ranks + graph.dst
    edge = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
    absent = keys[edge] != wanted if len(keys) else np.ones(len(wanted), dtype=np.bool_)
    if absent.any():
        pairs = np.unique(wanted[absent])[:SHOWN]
        raise InputError(
            [
                Problem(
                    "schedule",
                    f"sends from {p // graph.ranks} to {p % graph.ranks}, the graph"
                    " has no such edge",
                )
                for p in pairs.tolist()
            ]
        )
    return edge.astype(np.int64)
