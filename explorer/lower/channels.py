"""Channels: cut lanes into thread blocks that a runtime can hold, and number their connections.

Where a lane has more steps than a block may have, both ends of its connection go on in another
block on another channel. The first step there waits for the last one before, so the order of the
lane holds, and so does everything that was left out because the lane's order implies it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from explorer.lower.lanes import Lanes
from explorer.lower.limits import Limits, step_weight
from explorer.lower.messages import Messages
from explorer.lower.steps import Side, Steps

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Thread blocks of a layout.

    Parameters
    ----------
    block
        int64 ``[S]``: block of every step; in a block, steps are in their order.
    rank, send, receive, channel
        int64 ``[T]``: rank, peers (-1: none) and channel, sorted by rank, local blocks last.
    waits
        Dependencies of every step, with those that tie the parts of a lane together.
    """

    block: IntArray
    rank: IntArray
    send: IntArray
    receive: IntArray
    channel: IntArray
    waits: list[list[int]]


def blocks_of(
    messages: Messages,
    steps: Steps,
    lanes: Lanes,
    waits: list[list[int]],
    limits: Limits,
    max_channels: int,
) -> Blocks:
    """Assign every step to a thread block.

    Parameters
    ----------
    messages, steps, lanes
        The layout.
    waits
        Dependencies of every step.
    limits
        Sizes of thread blocks, and how many may share a channel.
    max_channels
        Channels to use; where they do not suffice, the last block of a lane exceeds the limit.
    """
    part = _parts(messages, steps, lanes, waits, limits.steps, max_channels)
    channel_of = _channels(messages, lanes, part[steps.send], limits.blocks_per_channel)
    # a lane's parts are its blocks; a lane may serve two connections when receives are fused
    key = lanes.lane * (int(part.max()) + 1) + part
    keys, first, block = np.unique(key, return_index=True, return_inverse=True)
    waits = _tied(lanes.lane, part, waits)
    send = np.full(len(keys), -1, dtype=np.int64)
    receive, channel = send.copy(), np.zeros(len(keys), dtype=np.int64)
    for number, ranks, peers in (
        (steps.send, messages.dst, send),
        (steps.receive, messages.src, receive),
    ):
        peers[block[number]] = ranks
        channel[block[number]] = channel_of
    rank = steps.rank[first]
    kind = np.where(send >= 0, 0, np.where(receive >= 0, 1, 2))
    order = np.lexsort((keys, receive, send, channel, kind, rank))
    place = np.empty(len(keys), dtype=np.int64)
    place[order] = np.arange(len(keys))
    return Blocks(place[block], rank[order], send[order], receive[order], channel[order], waits)


def _parts(
    messages: Messages,
    steps: Steps,
    lanes: Lanes,
    waits: list[list[int]],
    longest: int | None,
    max_channels: int,
) -> IntArray:
    """Part of its lane that every step is in."""
    part = np.zeros(steps.count, dtype=np.int64)
    if longest is None:
        return part
    count = np.array([len(w) for w in waits], dtype=np.int64)
    weight = np.array([step_weight(n) for n in count.tolist()], dtype=np.int64)
    local = steps.side == Side.LOCAL
    cut = _message_parts(messages, steps, lanes, weight, count > 0, longest, max_channels)
    part[~local] = cut[steps.message[~local]]
    for mine in _by(lanes.lane, np.flatnonzero(local)):
        if weight[mine].sum() > longest:
            seams = (count[mine, None] > 0).tolist()
            part[mine] = _cut(weight[mine, None].tolist(), seams, longest, None)
    return part


def _message_parts(
    messages: Messages,
    steps: Steps,
    lanes: Lanes,
    weight: IntArray,
    waits: npt.NDArray[np.bool_],
    longest: int,
    max_channels: int,
) -> IntArray:
    """Part of their connection's lanes that messages are in, the same at both ends."""
    sides = np.zeros((messages.count, 2), dtype=np.int64)
    # whether the first step of a message at a side waits already, so that one more wait is a nop
    seams = np.zeros((messages.count, 2), dtype=np.bool_)
    for side in (Side.SENDER, Side.RECEIVER):
        mine = np.flatnonzero(steps.side == side)
        np.add.at(sides[:, side], steps.message[mine], weight[mine])
        of_message, first = np.unique(steps.message[mine], return_index=True)
        seams[of_message, side] = waits[mine[first]]
    pair = lanes.src * messages.collective.ranks + lanes.dst
    _, which, shared = np.unique(pair, return_inverse=True, return_counts=True)
    allowed = np.where(lanes.whole, 1, np.maximum(max_channels // shared[which], 1))
    part = np.zeros(messages.count, dtype=np.int64)
    for on_connection in _by(lanes.connection, np.arange(messages.count)):
        weights = sides[on_connection]
        if weights.sum(axis=0).max() > longest:
            connection = int(lanes.connection[on_connection[0]])
            part[on_connection] = _cut(
                weights.tolist(),
                seams[on_connection].tolist(),
                longest,
                int(allowed[connection]),
            )
    return part


def _by(key: IntArray, items: IntArray) -> list[IntArray]:
    """Items grouped by their key, in their order."""
    order = items[np.argsort(key[items], kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(key[order])) + 1) if len(order) else []


def _cut(
    weights: list[list[int]], seams: list[list[bool]], longest: int, allowed: int | None
) -> list[int]:
    """Cut a list of messages so that every part weighs at most ``longest`` on each side.

    The first step of a part also waits for the part before: one more where it waits already.
    """
    parts, part = [], 0
    totals = [0] * len(weights[0])
    for some, seam in zip(weights, seams, strict=True):
        grown = [t + w for t, w in zip(totals, some, strict=True)]
        if max(totals) and max(grown) > longest and (allowed is None or part + 1 < allowed):
            part += 1
            grown = [w + more for w, more in zip(some, seam, strict=True)]
        totals = grown
        parts.append(part)
    return parts


def _tied(lane: IntArray, part: IntArray, waits: list[list[int]]) -> list[list[int]]:
    """Add a dependency from the first step of every part on the last one of the part before."""
    if not part.any():
        return waits
    tied = list(waits)
    order = np.argsort(lane, kind="stable")
    seam = (np.diff(lane[order]) == 0) & (np.diff(part[order]) != 0)
    for at in np.flatnonzero(seam).tolist():
        before, after = int(order[at]), int(order[at + 1])
        tied[after] = sorted({*tied[after], before})
    return tied


def _channels(
    messages: Messages, lanes: Lanes, part: IntArray, per_channel: int | None
) -> IntArray:
    """Channel of every message: a pair's connections count from 0, instances before parts.

    Where a rank has more peers than may share a channel, each further group of offsets
    (dst - src) mod R has channels of its own; both ends then have few enough blocks on each.
    """
    ranks = messages.collective.ranks
    k = lanes.connection
    pair = messages.src * ranks + messages.dst
    size = (int(part.max()) + 1, int(lanes.number.max()) + 1, messages.instances)
    key = np.ravel_multi_index((part, lanes.number[k], messages.instance), size)
    keys, where = np.unique(pair * np.prod(size) + key, return_inverse=True)
    pairs = keys // np.prod(size)
    first = np.concatenate(([True], np.diff(pairs) != 0))
    start = np.maximum.accumulate(np.where(first, np.arange(len(keys)), 0))
    index: IntArray = (np.arange(len(keys)) - start)[where]
    if per_channel is None or busiest(pairs[first], ranks) <= per_channel:
        return index
    group = (messages.dst - messages.src) % ranks // per_channel
    return index + group * (int(index.max()) + 1)


def busiest(pairs: IntArray, ranks: int) -> int:
    """Most peers that a rank sends to or receives from; pairs are ``src * ranks + dst``."""
    src, dst = np.divmod(pairs, ranks)
    return max(int(np.bincount(src).max()), int(np.bincount(dst).max()))
