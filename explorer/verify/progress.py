"""Progress: whether every thread block comes to its end with bounded FIFOs.

Blocks run their steps in order; a step waits for its dependencies, a receive for a message, a send
for a free slot (msccl_interpreter.h; prims_simple.h ``waitPeer``, prims_ll.h ``waitSend``). Nobody
ever chooses between two things to wait for, so whatever can go on still can after any other block
has gone on: one untimed execution decides for all. The loop over tiles needs no second look
either, since one iteration leaves all FIFOs empty.

A transfer of cnt chunks is ``ceil(cnt/g)`` messages, ``g = max(1, floor(C/B))`` capped at 71, for
chunks of B bytes and slots of C bytes. Smaller g never cures a deadlock: every wait among the
messages of a coarse split is also a wait of the fine one. So there is a largest safe chunk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numba
import numpy as np
import numpy.typing as npt

from explorer.verify.names import Names
from explorer.verify.structure import MAX_COUNT, Links
from sim.program import OP_RECEIVES, OP_SENDS, Program
from sim.protocols import PROTOCOLS

IntArray = npt.NDArray[np.int64]

UNBOUNDED = 1 << 40
"""Slots of a FIFO that never fills."""

_REASON = ("", "a dependency", "a message", "a free slot")


def group_size(program: Program, size_bytes: int | None, slot_bytes: int) -> int:
    """Chunks per message g when ``size_bytes`` run; at any size when None."""
    if size_bytes is None:
        return 1
    chunk = max(size_bytes // program.nchunks, 1)
    return max(1, min(MAX_COUNT, slot_bytes // chunk))


def slot_size(program: Program, slot_bytes: Mapping[str, int] | None = None) -> int:
    """Payload of one slot of the program's protocol, of ``slot_bytes`` where that is given."""
    if slot_bytes is not None:
        return slot_bytes[program.protocol]
    return PROTOCOLS[program.protocol].slot_bytes


@dataclass(frozen=True, slots=True, eq=False)
class Progress:
    """How far an execution came.

    Parameters
    ----------
    order
        int64: the steps that completed, in an order in which they can.
    head
        int64 ``[T]``: step each block stands at; its end when it is done.
    waits_for, reason
        int64 ``[T]``: block each block waits for and why, -1 when it is done.
    """

    order: IntArray
    head: IntArray
    waits_for: IntArray
    reason: IntArray

    @property
    def stuck(self) -> bool:
        """Whether some block did not come to its end."""
        return bool((self.waits_for >= 0).any())

    def cycle(self) -> list[int]:
        """Blocks that wait for one another in a ring, the lowest first."""
        block = int(np.flatnonzero(self.waits_for >= 0)[0])
        seen: dict[int, int] = {}
        path: list[int] = []
        while block not in seen:
            seen[block] = len(path)
            path.append(block)
            block = int(self.waits_for[block])
        ring = path[seen[block] :]
        lowest = ring.index(min(ring))
        return ring[lowest:] + ring[:lowest]

    def describe(self, names: Names) -> tuple[str, str]:
        """Where the waiting cycle starts, and the cycle: ``gpu0 tb0 step0 <-> gpu1 tb0 step0``."""
        ring = self.cycle()
        heads = [int(self.head[b]) for b in ring]
        shorts = [names.short(h) for h in heads]
        if len(shorts) == 2:
            text = " <-> ".join(shorts)
        elif len(shorts) <= 12:
            text = " -> ".join([*shorts, shorts[0]])
        else:
            text = " -> ".join([*shorts[:10], f"… {len(shorts) - 10} more", shorts[0]])
        reasons = sorted({_REASON[int(self.reason[b])] for b in ring})
        return names.step(heads[0]), f"{text} (waiting for {' and '.join(reasons)})"


def run(program: Program, links: Links, *, group: int, slots: int) -> Progress:
    """Execute without times, ``group`` chunks a message and ``slots`` messages a connection."""
    messages = np.maximum(-(-program.cnt.astype(np.int64) // group), 1)
    order, head, waits_for, reason = _run(
        program.tb_first,
        program.step_block().astype(np.int64),
        OP_SENDS[program.op],
        OP_RECEIVES[program.op],
        messages,
        program.dep_first,
        program.dep_step,
        links.out_of,
        links.into,
        links.sender_block,
        links.receiver_block,
        slots,
    )
    return Progress(order, head, waits_for, reason)


def largest_group_that_hangs(program: Program, links: Links, *, slots: int) -> int:
    """Largest g with which the program hangs, 0 when it hangs with none."""
    low, high = 0, MAX_COUNT
    while low < high:
        middle = (low + high + 1) // 2
        if run(program, links, group=middle, slots=slots).stuck:
            low = middle
        else:
            high = middle - 1
    return low


def fewest_slots(program: Program, links: Links) -> int | None:
    """Slots per connection a program needs at its largest size; None: no number helps."""
    group = group_size(program, program.max_bytes, slot_size(program))
    if run(program, links, group=group, slots=UNBOUNDED).stuck:
        return None
    slots = 1
    while run(program, links, group=group, slots=slots).stuck:
        slots += 1
    return slots


def split(program: Program, links: Links, group: int) -> tuple[Program, Links, IntArray]:
    """Replace every transfer of more than ``group`` chunks by its messages.

    Fused steps alternate message by message, so for races a fused step is as many steps as it has
    messages.

    Returns
    -------
    Program, Links, int64 array
        The split program, and the original step of each of its steps.
    """
    moves = OP_SENDS[program.op] | OP_RECEIVES[program.op]
    messages = np.where(moves, np.maximum(-(-program.cnt.astype(np.int64) // group), 1), 1)
    first = np.concatenate(([0], np.cumsum(messages)))
    origin = np.repeat(np.arange(program.steps), messages)
    part = np.arange(len(origin)) - first[origin]
    shift = (part * group).astype(np.int32)
    several = messages[origin] > 1
    cnt = np.where(several, np.minimum(program.cnt[origin] - shift, group), program.cnt[origin])
    deps = np.where(part == 0, np.diff(program.dep_first)[origin], 0)
    parts = replace(
        program,
        tb_first=first[program.tb_first],
        op=program.op[origin],
        src_buf=program.src_buf[origin],
        src_off=np.where(program.src_off[origin] < 0, -1, program.src_off[origin] + shift),
        dst_buf=program.dst_buf[origin],
        dst_off=np.where(program.dst_off[origin] < 0, -1, program.dst_off[origin] + shift),
        cnt=cnt.astype(np.int32),
        dep_first=np.concatenate(([0], np.cumsum(deps))).astype(np.int64),
        dep_step=first[program.dep_step + 1] - 1,
    )
    sender = links.sender[origin]
    sender = np.where(sender < 0, -1, first[sender] + part)
    return parts, replace(links, sender=sender), origin


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _run(  # noqa: PLR0912, PLR0915 - one kernel, so that nothing is boxed between its parts
    tb_first: IntArray,
    block_of: IntArray,
    sends: npt.NDArray[np.bool_],
    receives: npt.NDArray[np.bool_],
    messages: IntArray,
    dep_first: IntArray,
    dep_step: IntArray,
    out_of: IntArray,
    into: IntArray,
    sender_block: IntArray,
    receiver_block: IntArray,
    slots: int,
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    blocks, steps = len(tb_first) - 1, len(messages)
    head = tb_first[:-1].copy()
    moved = np.zeros(blocks, np.int64)  # messages of the head step that are through
    sent = np.zeros(len(sender_block), np.int64)
    received = np.zeros(len(sender_block), np.int64)
    waits_for = np.full(blocks, -1, np.int64)
    reason = np.full(blocks, -1, np.int64)
    waiter_of_step = np.full(steps, -1, np.int64)  # blocks that wait for a step, linked lists
    next_waiter = np.full(blocks, -1, np.int64)
    order = np.empty(steps, np.int64)
    done = 0
    todo = np.arange(blocks - 1, -1, -1)  # a stack; every block is in it at most once
    in_todo = np.ones(blocks, np.bool_)
    top = blocks
    while top > 0:
        top -= 1
        block = todo[top]
        in_todo[block] = False
        waits_for[block] = -1
        while head[block] < tb_first[block + 1]:
            step = head[block]
            if moved[block] == 0:
                blocking = -1
                for d in range(dep_first[step], dep_first[step + 1]):
                    if head[block_of[dep_step[d]]] <= dep_step[d]:
                        blocking = dep_step[d]
                        break
                if blocking >= 0:
                    waits_for[block] = block_of[blocking]
                    reason[block] = 1
                    next_waiter[block] = waiter_of_step[blocking]
                    waiter_of_step[blocking] = block
                    break
            link_in = into[block] if receives[step] else -1
            link_out = out_of[block] if sends[step] else -1
            if link_in >= 0 and sent[link_in] == received[link_in]:
                waits_for[block] = sender_block[link_in]
                reason[block] = 2
                break
            if link_out >= 0 and sent[link_out] - received[link_out] >= slots:
                waits_for[block] = receiver_block[link_out]
                reason[block] = 3
                break
            woken = -1
            if link_in >= 0:
                received[link_in] += 1
                woken = sender_block[link_in]
            if woken >= 0 and not in_todo[woken] and waits_for[woken] >= 0:
                if reason[woken] == 3:
                    in_todo[woken] = True
                    todo[top] = woken
                    top += 1
            woken = -1
            if link_out >= 0:
                sent[link_out] += 1
                woken = receiver_block[link_out]
            if woken >= 0 and not in_todo[woken] and waits_for[woken] >= 0:
                if reason[woken] == 2:
                    in_todo[woken] = True
                    todo[top] = woken
                    top += 1
            moved[block] += 1
            if (link_in < 0 and link_out < 0) or moved[block] == messages[step]:
                moved[block] = 0
                head[block] += 1
                order[done] = step
                done += 1
                woken = waiter_of_step[step]
                waiter_of_step[step] = -1
                while woken >= 0:
                    if not in_todo[woken]:
                        in_todo[woken] = True
                        todo[top] = woken
                        top += 1
                    woken = next_waiter[woken]
    return order[:done], head, waits_for, reason
