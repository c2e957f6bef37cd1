"""Fuse: let one block receive and send on, where the plan's times allow it.

A runtime spends no flag and no extra read on a fused step, but it is one step: what waits for its
data waits for its send too, and its block does nothing else meanwhile. So two lanes become one
only where no planned receive falls into a planned send, and a receive becomes one step with a
forward only where the plan forwards at once and nobody needs the data before the forward is over.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from explorer.lower.channels import busiest
from explorer.lower.lanes import Lanes, positions
from explorer.lower.limits import Limits
from explorer.lower.messages import Messages
from explorer.lower.steps import Side, Steps
from sim.program import Op

IntArray = npt.NDArray[np.int64]

FORWARDING = {
    int(Op.RECV): Op.RECV_COPY_SEND,
    int(Op.RECV_REDUCE_COPY): Op.RECV_REDUCE_COPY_SEND,
}
"""What a receive becomes together with its forward."""


def fused(
    messages: Messages,
    steps: Steps,
    lanes: Lanes,
    waits: list[list[int]],
    limits: Limits,
) -> tuple[Steps, Lanes]:
    """Join lanes and fuse steps.

    Parameters
    ----------
    messages, steps, lanes
        The layout, one connection per pair and instance.
    waits
        Dependencies that memory needs.
    limits
        Lanes that would be too long, or that need not start on channel 0, stay as they are.

    Returns
    -------
    Steps, Lanes
        The same objects when nothing is gained.
    """
    pairs = lanes.src * messages.collective.ranks + lanes.dst
    per_channel = limits.blocks_per_channel
    if (
        per_channel is not None
        and busiest(np.unique(pairs), messages.collective.ranks) > per_channel
    ):
        return steps, lanes
    forwards = _forwards(messages, steps, waits)
    joined = _joined(messages, steps, lanes, forwards, limits.steps)
    if not joined:
        return steps, lanes
    connection = lanes.connection.tolist()
    chosen = {y: x for y, x in forwards.items() if joined.get(connection[y]) == connection[x]}
    return _rewritten(messages, steps, lanes, waits, chosen, joined)


def _forwards(messages: Messages, steps: Steps, waits: list[list[int]]) -> dict[int, int]:
    """For received messages the one message that may be sent on in the same step."""
    sides = np.zeros((2, messages.count), dtype=np.int64)
    for side in (Side.SENDER, Side.RECEIVER):
        np.add.at(sides[side], steps.message[steps.side == side], 1)
    received = {step: m for m, step in enumerate(steps.receive.tolist())}
    waiters: dict[int, list[int]] = {}
    for step, others in enumerate(waits):
        for other in others:
            if other in received:
                waiters.setdefault(other, []).append(step)
    needed = _needed(messages, steps)
    found: dict[int, int] = {}
    for x, send in enumerate(steps.send.tolist()):
        source = received.get(waits[send][0]) if len(waits[send]) == 1 else None
        if source is None or source in found or sides[0, x] > 1 or sides[1, source] > 1:
            continue
        receive = int(steps.receive[source])
        others = [w for w in waiters[receive] if w != send]
        if (
            messages.end[source] == messages.start[x]
            and messages.instance[source] == messages.instance[x]
            and steps.cnt[receive] == steps.cnt[send]
            and steps.dst_buf[receive] == steps.src_buf[send]
            and steps.dst_off[receive] == steps.src_off[send]
            and all(needed[w] >= messages.release[x] for w in others)
        ):
            found[source] = x
    return found


def _needed(messages: Messages, steps: Steps) -> IntArray:
    """Tick at which every step, in the plan, must have what it waits for."""
    tick = steps.tick.copy()
    tick[steps.send] = messages.start
    return tick


def _joined(
    messages: Messages,
    steps: Steps,
    lanes: Lanes,
    forwards: dict[int, int],
    longest: int | None,
) -> dict[int, int]:
    """Receiving connections that share a block with a sending one, those with most forwards."""
    connection = lanes.connection.tolist()
    count = Counter((connection[y], connection[x]) for y, x in forwards.items())
    length = np.bincount(lanes.lane, minlength=2 * lanes.connections)
    longest_lane = length[: 2 * lanes.connections].reshape(-1, 2).max(axis=1)
    joined: dict[int, int] = {}
    taken: set[int] = set()
    for (a, b), _ in sorted(count.items(), key=lambda item: (-item[1], item[0])):
        if a in joined or b in taken:
            continue
        # a quarter is left for the nops of dependencies
        if longest is not None and 8 * max(longest_lane[a], longest_lane[b]) > 3 * longest:
            continue
        if _apart(messages, lanes, a, b):
            joined[a] = b
            taken.add(b)
    return joined


def _apart(messages: Messages, lanes: Lanes, a: int, b: int) -> bool:
    """Whether no message arrives on connection a while one is being sent on connection b."""
    arrivals = messages.end[lanes.connection == a]
    mine = lanes.connection == b
    start, release = messages.start[mine], messages.release[mine]
    at = np.searchsorted(start, arrivals) - 1  # the last send that starts before the arrival
    return not bool(((at >= 0) & (release[np.maximum(at, 0)] > arrivals)).any())


def _rewritten(
    messages: Messages,
    steps: Steps,
    lanes: Lanes,
    waits: list[list[int]],
    chosen: dict[int, int],
    joined: dict[int, int],
) -> tuple[Steps, Lanes]:
    """Steps with every chosen pair as one, lanes joined."""
    op, dst_buf, dst_off = steps.op.copy(), steps.dst_buf.copy(), steps.dst_off.copy()
    tick, send, lane = steps.tick.copy(), steps.send.copy(), lanes.lane.copy()
    keep = np.ones(steps.count, dtype=np.bool_)
    waited = Counter(other for some in waits for other in some)
    ends_here = np.zeros(messages.count, dtype=np.bool_)
    owner = np.repeat(np.arange(messages.count), messages.sizes)
    np.logical_or.at(ends_here, owner, messages.last & (messages.target_output >= 0))
    for y, x in chosen.items():
        receive = int(steps.receive[y])
        op[receive] = FORWARDING[int(op[receive])]
        if op[receive] == Op.RECV_REDUCE_COPY_SEND:
            if waited[receive] == 1 and not ends_here[y]:
                # only the forward reads the sum: it need not be stored
                op[receive] = Op.RECV_REDUCE_SEND
                dst_buf[receive], dst_off[receive] = 0, -1
        keep[send[x]] = False
        send[x] = receive
        tick[receive] = messages.release[x]
    whole = lanes.whole.copy()
    for a, b in joined.items():
        lane[lane == 2 * a + 1] = 2 * b
        whole[[a, b]] = True
    number = np.cumsum(keep) - 1
    shorter = replace(
        steps,
        op=op[keep],
        rank=steps.rank[keep],
        cnt=steps.cnt[keep],
        src_buf=steps.src_buf[keep],
        src_off=steps.src_off[keep],
        dst_buf=dst_buf[keep],
        dst_off=dst_off[keep],
        message=steps.message[keep],
        instance=steps.instance[keep],
        side=steps.side[keep],
        tick=tick[keep],
        send=number[send],
        receive=number[steps.receive],
    )
    lane = lane[keep]
    return shorter, replace(lanes, lane=lane, position=positions(lane), whole=whole)
