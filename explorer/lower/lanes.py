"""Lanes: the ordered step lists that become thread blocks.

A connection has a lane at each end: one sends, one receives, so neither ever holds up the other
direction. Local copies that belong to no connection have a lane per rank and instance.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from explorer.errors import InputError, Problem
from explorer.lower.messages import Messages
from explorer.lower.steps import Side, Steps

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Lanes:
    """Connections of the messages and lanes of the steps.

    Parameters
    ----------
    src, dst, instance, number
        int64 ``[K]``: ends of every connection, its instance, and its number among those of this
        pair and instance.
    connection
        int64 ``[M]``: connection of every message; on each, messages are in planned order.
    lane
        int64 ``[S]``: lane of every step. Lane 2k sends on connection k, lane 2k+1 receives on it,
        later ones are local.
    position
        int64 ``[S]``: place of every step in its lane.
    whole
        bool ``[K]``: connections that must stay in one block at each end.
    """

    src: IntArray
    dst: IntArray
    instance: IntArray
    number: IntArray
    connection: IntArray
    lane: IntArray
    position: IntArray
    whole: npt.NDArray[np.bool_]

    @property
    def connections(self) -> int:
        """Number of connections K."""
        return len(self.src)


def lanes_of(messages: Messages, steps: Steps, *, parallel: int = 1, slots: int = 2) -> Lanes:
    """Put messages on connections and steps into lanes.

    Parameters
    ----------
    messages, steps
        In planned order.
    parallel
        Connections a pair of ranks may have per instance. A further one is used where the plan has
        more messages on their way than a connection has slots, which happens when alpha does not
        occupy the link.
    slots
        Messages on their way on one connection.

    Raises
    ------
    InputError
        If messages between two ranks overtake one another.
    """
    pair = (messages.src * messages.collective.ranks + messages.dst) * messages.instances
    pair = pair + messages.instance
    number = _spread(messages, pair, parallel, slots) if parallel > 1 else np.zeros_like(pair)
    keys, connection = np.unique(pair * parallel + number, return_inverse=True)
    pairs, number = np.divmod(keys, parallel)
    ranks, instance = np.divmod(pairs, messages.instances)
    src, dst = np.divmod(ranks, messages.collective.ranks)
    _check_order(messages, connection)
    lane = lane_of(steps, connection, len(keys), messages.instances)
    whole = np.zeros(len(keys), dtype=np.bool_)
    return Lanes(src, dst, instance, number, connection, lane, positions(lane), whole)


def lane_of(steps: Steps, connection: IntArray, connections: int, instances: int) -> IntArray:
    """Lane of every step."""
    local = 2 * connections + steps.rank * instances + steps.instance
    return np.where(
        steps.side == Side.LOCAL,
        local,
        2 * connection[np.maximum(steps.message, 0)] + (steps.side == Side.RECEIVER),
    )


def positions(lane: IntArray) -> IntArray:
    """Place of every step in its lane, in step order."""
    order = np.argsort(lane, kind="stable")
    counts = np.bincount(lane)
    place = np.empty(len(lane), dtype=np.int64)
    place[order] = np.arange(len(lane)) - np.repeat(np.cumsum(counts) - counts, counts)
    return place


def _spread(messages: Messages, pair: IntArray, parallel: int, slots: int) -> IntArray:
    """First connection of each pair with a free sender and a free slot when a message starts."""
    chosen = np.zeros_like(pair)
    open_: dict[int, list[_OnWay]] = {}
    start, release, end = (x.tolist() for x in (messages.start, messages.release, messages.end))
    for m, key in enumerate(pair.tolist()):
        existing = open_.setdefault(key, [])
        free = (q for q, on_way in enumerate(existing) if on_way.free_at(slots) <= start[m])
        q = next(free, len(existing))
        if q == parallel:
            q = min(range(q), key=[on_way.free_at(slots) for on_way in existing].__getitem__)
        elif q == len(existing):
            existing.append(_OnWay())
        existing[q].arrivals.append(end[m])
        existing[q].released = release[m]
        chosen[m] = q
    return chosen


@dataclass(slots=True)
class _OnWay:
    """What one connection has been given so far."""

    arrivals: list[int] = field(default_factory=list)
    released: int = -1

    def free_at(self, slots: int) -> int:
        """Tick at which the sender is free and so is one of its slots."""
        drained = self.arrivals[-slots] if len(self.arrivals) >= slots else -1
        return max(self.released, drained)


def _check_order(messages: Messages, connection: IntArray) -> None:
    order = np.argsort(connection, kind="stable")
    back = (np.diff(messages.end[order]) < 0) & (np.diff(connection[order]) == 0)
    if back.any():
        m = int(order[1:][back][0])
        raise InputError(
            Problem(
                "schedule",
                f"messages from rank {messages.src[m]} to rank {messages.dst[m]} overtake one"
                " another, expected them to arrive in the order in which they start",
            )
        )
