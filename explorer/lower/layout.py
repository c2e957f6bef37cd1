"""Layout: walk through the plan and decide which step moves which cells.

Every event of the plan becomes steps: a message's start reads cells of its sender, its end writes
cells of its receiver. One message is one step at each end; what does not lie side by side goes
through scratch.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from explorer.lower.holdings import Holdings
from explorer.lower.memory import Memory
from explorer.lower.messages import Messages
from explorer.lower.steps import Side, StepList, Steps, placed
from explorer.lower.windows import pieces
from sim.program import Op

# plain numbers: an enum's members take longer to look up than a step to append
_SEND, _RECV, _RECV_REDUCE_COPY, _COPY, _REDUCE = (
    int(op) for op in (Op.SEND, Op.RECV, Op.RECV_REDUCE_COPY, Op.COPY, Op.REDUCE)
)
_SENDER, _RECEIVER, _LOCAL = (int(side) for side in Side)

INLINE_COPIES = 24
"""Copies a message may have in the blocks of its connection; more go to a block of their own,
since a runtime's block holds few steps."""


def lay_out(
    messages: Messages,
    memory: Memory,
    *,
    slots: int,
    fused_receives: bool = True,
    largest: int | None = None,
    share_copies: bool = True,
) -> Steps:
    """Decide the steps of every message and copy.

    Parameters
    ----------
    messages
        In planned order.
    memory
        Addresses of the caller's buffers.
    slots
        Messages a connection holds before its sender waits.
    fused_receives
        Whether a receive may reduce (``rrc``); else it is a receive into scratch and ``re``.
    largest
        Chunks of one copy step.
    share_copies
        Whether a message may be sent from where chunks were copied together for another one.
    """
    layout = _Layout(messages, memory, slots, fused_receives, largest, share_copies)
    layout.run()
    return layout.frozen()


class _Layout:
    def __init__(
        self,
        messages: Messages,
        memory: Memory,
        slots: int,
        fused: bool,
        largest: int | None,
        share_copies: bool,
    ) -> None:
        self.messages, self.memory, self.share_copies = messages, memory, share_copies
        self.slots, self.fused, self.largest = slots, fused, largest
        self.steps = StepList()
        self.held = Holdings(messages, memory.collective.ranks)
        self.runs, self.output = self.held.runs, self.held.output
        self.src: list[int] = messages.src.tolist()
        self.dst: list[int] = messages.dst.tolist()
        self.start: list[int] = messages.start.tolist()
        self.release: list[int] = messages.release.tolist()
        self.end: list[int] = messages.end.tolist()
        self.adds: list[bool] = messages.reduce.tolist()
        self.first: list[int] = messages.first.tolist()
        self.last: list[bool] = messages.last.tolist()
        # copies to the output that wait for a tick: (tick, number, message, (column, cell)s)
        self.due: list[tuple[int, int, int, list[tuple[int, int]]]] = []
        self.order: list[list[int]] = [[] for _ in self.src]
        self.send = [-1] * len(self.src)
        self.receive = [-1] * len(self.src)

    def run(self) -> None:
        """Go through all events: at one tick arrivals, then copies that are due, then starts."""
        m = self.messages
        self.copy_own()
        number = np.arange(m.count)
        tick = np.concatenate((m.end, m.start))
        starts = np.repeat([0, 1], m.count)
        message = np.concatenate((number, number))
        events = np.lexsort((message, starts, tick))
        due = self.due
        for now, is_start, i in zip(
            tick[events].tolist(), starts[events].tolist(), message[events].tolist(), strict=True
        ):
            while due and due[0][0] < now + is_start:
                self.copy_due()
            if is_start:
                self.leave(i)
            else:
                self.arrive(i)
        while due:
            self.copy_due()

    def frozen(self) -> Steps:
        """Fix the places of all runs."""
        s, ranks = self.steps, self.memory.collective.ranks
        src_buf, src_off = placed(np.array(s.src, dtype=np.int64), ranks, self.runs)
        dst_buf, dst_off = placed(np.array(s.dst, dtype=np.int64), ranks, self.runs)
        message = np.array(s.message, dtype=np.int64)
        instance = np.where(message < 0, -1 - message, self.messages.instance[message])
        return Steps(
            op=np.array(s.op, dtype=np.int64),
            rank=np.array(s.rank, dtype=np.int64),
            cnt=np.array(s.cnt, dtype=np.int64),
            src_buf=src_buf,
            src_off=src_off,
            dst_buf=dst_buf,
            dst_off=dst_off,
            message=np.maximum(message, -1),
            instance=instance,
            side=np.array(s.side, dtype=np.int64),
            tick=np.array(s.tick, dtype=np.int64),
            send=np.array(self.send, dtype=np.int64),
            receive=np.array(self.receive, dtype=np.int64),
            order=np.array([c for columns in self.order for c in columns], dtype=np.int64),
        )

    def copy_own(self) -> None:
        """Copy chunks that start where they end, first of all; both cells can then be read."""
        if not self.memory.copies_own:
            return
        own = self.messages.own
        groups: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for rank, instance, source, target, key in zip(
            own.rank.tolist(),
            own.instance.tolist(),
            own.input.tolist(),
            own.output.tolist(),
            own.key.tolist(),
            strict=True,
        ):
            groups.setdefault((rank, instance), []).append((source, target))
            if key >= 0:
                self.held.preset(key, [source, target])
        for (rank, instance), moves in groups.items():
            for source, target, count in pieces(moves, self.largest):
                self.steps.add(_COPY, rank, source, target, count, -1 - instance, _LOCAL, -1)

    # starts of messages

    def leave(self, m: int) -> None:
        """Send the chunks of a message from consecutive cells."""
        a, b = self.first[m], self.first[m + 1]
        columns, cells = [a], []
        if b - a == 1:
            cells = [self.held.at_source(a)[0]]
        else:
            found = self.held.window(self.src[m], range(a, b))
            if isinstance(found, tuple):
                columns, cells = found
            else:
                columns, cells = found, self.gather(m, found)
        self.held.sending(cells, self.release[m])
        self.order[m] = columns
        self.send[m] = self.steps.add(
            _SEND, self.src[m], cells[0], -1, b - a, m, _SENDER, self.release[m]
        )

    def gather(self, m: int, columns: list[int]) -> list[int]:
        """Copy chunks into a new run of the sender."""
        rank = self.src[m]
        run = self.runs.new(rank, len(columns))
        moves: list[tuple[int, int]] = []
        for i, c in enumerate(columns):
            cells = self.held.at_source(c)
            after = moves[-1][0] + 1 if moves else -1
            moves.append((after if after in cells else cells[0], run + i))
            if self.share_copies:
                cells.append(run + i)
        self.emit(_COPY, rank, m, moves, _SENDER, self.start[m])
        return [target for _, target in moves]

    # arrivals

    def arrive(self, m: int) -> None:
        """Store or add the chunks of a message at its receiver."""
        columns = self.order[m]
        # A receive of more messages than the slots hold must be reached before its send can end,
        # so it may not wait for a send that ends with it: that one may wait for us in turn.
        latest = self.end[m] - (1 if len(columns) > self.slots else 0)
        operand = self.held.operand(columns) if self.fused and self.adds[m] else None
        if self.adds[m] and operand is None:
            cells = self.add_apart(m, columns)
        else:
            cells = self.receive_into(m, columns, operand, latest)
        self.new_version(m, columns, cells)

    def receive_into(
        self, m: int, columns: list[int], operand: list[int] | None, latest: int
    ) -> list[int]:
        """Receive, adding to an operand if there is one; where to, is the result.

        That is the output where the chunks belong there side by side and nobody reads what it
        holds, else the operand's own place in scratch, else new scratch.
        """
        if self.held.outputs_free(columns, latest):
            cells = [self.output[c] for c in columns]
        elif operand and self.runs.holds(operand[0]) and self.held.all_free(operand, latest):
            cells = operand
        else:
            run = self.runs.new(self.dst[m], len(columns))
            cells = [run + i for i in range(len(columns))]
        self.receive[m] = self.steps.add(
            _RECV_REDUCE_COPY if operand else _RECV,
            self.dst[m],
            operand[0] if operand else -1,
            cells[0],
            len(columns),
            m,
            _RECEIVER,
            self.end[m],
        )
        return cells

    def add_apart(self, m: int, columns: list[int]) -> list[int]:
        """Receive into scratch, then add chunk by chunk, there or where the sum is already."""
        rank, now = self.dst[m], self.end[m]
        run = self.runs.new(rank, len(columns))
        self.receive[m] = self.steps.add(_RECV, rank, -1, run, len(columns), m, _RECEIVER, now)
        moves = []
        for i, c in enumerate(columns):
            held = self.held.at_target(c)
            if self.output[c] in held and self.held.free_at(c) <= now:
                moves.append((run + i, self.output[c]))
            else:
                moves.append((held[0], run + i))
        self.emit(_REDUCE, rank, m, moves, _RECEIVER, now)
        return [target for _, target in moves]

    def new_version(self, m: int, columns: list[int], cells: list[int]) -> None:
        """Note where chunks are now; the last version of an output chunk is copied there."""
        now = self.end[m]
        copies: dict[int, list[tuple[int, int]]] = {}
        for c, cell in zip(columns, cells, strict=True):
            self.held.replace(c, cell)
            if self.last[c] and self.output[c] not in (-1, cell):
                copies.setdefault(max(now, self.held.free_at(c)), []).append((c, cell))
        for tick, moves in copies.items():
            if tick == now:
                self.copy_out(m, moves, _RECEIVER, now)
            else:
                heappush(self.due, (tick, len(self.steps.op), m, moves))

    def copy_due(self) -> None:
        """Copy to the output what had to wait until its place was free."""
        tick, _, m, moves = heappop(self.due)
        self.copy_out(m, moves, _LOCAL, tick)

    def copy_out(self, m: int, moves: list[tuple[int, int]], side: int, tick: int) -> None:
        """Copy chunks (column, cell) of a message to the receiver's output."""
        self.emit(_COPY, self.dst[m], m, [(cell, self.output[c]) for c, cell in moves], side, tick)
        for c, _ in moves:
            self.held.at_target(c).append(self.output[c])

    def emit(
        self, op: int, rank: int, m: int, moves: list[tuple[int, int]], side: int, tick: int
    ) -> None:
        """Local steps of a message, in its connection's block or, if many, in a local one."""
        merged = pieces(moves, self.largest)
        if len(merged) > INLINE_COPIES:
            side = _LOCAL
        for source, target, count in merged:
            self.steps.add(op, rank, source, target, count, m, side, tick)
