"""Layout: walk through the plan and decide which step moves which cells.

Every event of the plan becomes steps: a message's start reads cells of its sender, its end writes
cells of its receiver. What a rank holds of a chunk is a *version*: its own contribution, then what
every arrival makes of it. A version can be read from the cells listed for it.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from explorer.lower.memory import Memory
from explorer.lower.messages import Messages
from explorer.lower.runs import Runs
from explorer.lower.steps import Side, StepList, Steps, placed
from explorer.lower.windows import in_any_order, in_order, pieces
from sim.program import Op

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
    """
    layout = _Layout(messages, memory, slots, fused_receives, largest)
    layout.run()
    return layout.frozen()


class _Layout:
    def __init__(
        self, messages: Messages, memory: Memory, slots: int, fused: bool, largest: int | None
    ) -> None:
        self.messages, self.memory = messages, memory
        self.slots, self.fused, self.largest = slots, fused, largest
        self.steps = StepList()
        self.runs = Runs(memory.collective.ranks)
        self.reduces = memory.collective.reduces
        self.src: list[int] = messages.src.tolist()
        self.dst: list[int] = messages.dst.tolist()
        self.start: list[int] = messages.start.tolist()
        self.release: list[int] = messages.release.tolist()
        self.end: list[int] = messages.end.tolist()
        self.adds: list[bool] = messages.reduce.tolist()
        self.first: list[int] = messages.first.tolist()
        self.source_key: list[int] = messages.source_key.tolist()
        self.target_key: list[int] = messages.target_key.tolist()
        self.source_input: list[int] = messages.source_input.tolist()
        self.target_input: list[int] = messages.target_input.tolist()
        self.target_output: list[int] = messages.target_output.tolist()
        self.alias_busy: list[int] = messages.alias_busy.tolist()
        self.last: list[bool] = messages.last.tolist()
        self.forward: list[int] = messages.forward.tolist()
        # cells the present version of a (rank, chunk) can be read from
        self.cells: dict[int, list[int]] = {}
        # last tick at which a cell that may be overwritten is still being sent
        self.busy: dict[int, int] = {}
        # copies to the output that wait until a tick: (tick, number, rank, message, moves, keys)
        self.due: list[tuple[int, int, int, int, list[tuple[int, int]], list[int]]] = []
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
                self.cells[key] = [source, target]
        for (rank, instance), moves in groups.items():
            for source, target, count in pieces(moves, self.largest):
                self.steps.add(Op.COPY, rank, source, target, count, -1 - instance, Side.LOCAL, -1)

    def held(self, key: int, initial: int) -> list[int]:
        """Cells a rank's version of a chunk can be read from."""
        cells = self.cells.get(key)
        if cells is None:
            cells = self.cells[key] = [initial]
        return cells

    # starts of messages

    def leave(self, m: int) -> None:
        """Send the chunks of a message from consecutive cells."""
        a, b = self.first[m], self.first[m + 1]
        if b - a == 1:
            columns = [a]
            cells = [self.held(self.source_key[a], self.source_input[a])[0]]
        else:
            columns, cells = self.window(m, a, b)
        if self.reduces:
            until = self.release[m]
            for cell in cells:
                self.busy[cell] = max(self.busy.get(cell, -1), until)
        self.order[m] = columns
        self.send[m] = self.steps.add(
            Op.SEND, self.src[m], cells[0], -1, b - a, m, Side.SENDER, self.release[m]
        )

    def window(self, m: int, a: int, b: int) -> tuple[list[int], list[int]]:
        """Columns of a message in the order they travel in, and the cells they are sent from.

        The order is the receiver's where it has one, so that chunks land where they belong, else
        the one in which the sender has them. When the sender has them apart, they are copied
        together.
        """
        columns = sorted(range(a, b), key=self.wish)
        cells = [self.held(self.source_key[c], self.source_input[c]) for c in columns]
        places = [[self.runs.place(cell) for cell in some] for some in cells]
        chosen = in_order(places)
        if chosen is not None:
            return columns, [cells[i][j] for i, j in enumerate(chosen)]
        found = in_any_order(places) or self.join(m, places)
        if found is not None:
            return (
                [columns[i] for i in found[0]],
                [cells[i][j] for i, j in zip(*found, strict=True)],
            )
        return columns, self.gather(m, columns, cells)

    def wish(self, column: int) -> tuple[int, int, int]:
        """Sort key of a chunk in its message: its place at the receiver, else what it is for."""
        cell = self.target_output[column]
        if cell < 0:
            cell = self.target_input[column]
        return (0, cell, column) if cell >= 0 else (1, self.forward[column], column)

    def join(self, m: int, places: list[list[int]]) -> tuple[list[int], list[int]] | None:
        """Lay the runs that hold a message's chunks beside one another, if they hold no others."""
        parts: dict[int, list[tuple[int, int, int]]] = {}
        for i, some in enumerate(places):
            scratch = [(cell, j) for j, cell in enumerate(some) if self.runs.holds(cell)]
            if not scratch:
                return None
            cell, j = scratch[0]
            parts.setdefault(cell >> 32 << 32, []).append((cell, i, j))
        if any(self.runs.size(first) != len(part) for first, part in parts.items()):
            return None
        # dictionaries keep the order of the receiver's wishes
        self.runs.join(self.src[m], list(parts))
        held = [entry for part in parts.values() for entry in sorted(part)]
        return [i for _, i, _ in held], [j for _, _, j in held]

    def gather(self, m: int, columns: list[int], cells: list[list[int]]) -> list[int]:
        """Copy chunks into a new run of the sender, from where later messages may send too."""
        rank = self.src[m]
        run = self.runs.new(rank, len(columns))
        moves: list[tuple[int, int]] = []
        for i, some in enumerate(cells):
            after = moves[-1][0] + 1 if moves else -1
            moves.append((after if after in some else some[0], run + i))
        for i, c in enumerate(columns):
            self.cells[self.source_key[c]].append(run + i)
        self.emit(Op.COPY, rank, m, moves, Side.SENDER, self.start[m])
        return [run + i for i in range(len(columns))]

    # arrivals

    def arrive(self, m: int) -> None:
        """Store or add the chunks of a message at its receiver."""
        columns = self.order[m]
        # A receive of more messages than the slots hold must be reached before its send can end,
        # so it may not wait for a send that ends with it: that one may wait for us in turn.
        latest = self.end[m] - (1 if len(columns) > self.slots else 0)
        if self.adds[m]:
            self.add(m, columns, latest)
        else:
            self.store(m, columns, latest)

    def store(self, m: int, columns: list[int], latest: int) -> None:
        """Receive into the output where the chunks belong there side by side, else into scratch."""
        if self.outputs_free(columns, latest):
            target = self.target_output[columns[0]]
            cells = [target + i for i in range(len(columns))]
        else:
            target = self.runs.new(self.dst[m], len(columns))
            cells = [target + i for i in range(len(columns))]
        self.receive[m] = self.steps.add(
            Op.RECV, self.dst[m], -1, target, len(columns), m, Side.RECEIVER, self.end[m]
        )
        self.new_version(m, columns, cells)

    def add(self, m: int, columns: list[int], latest: int) -> None:
        """Add a message to what the receiver has."""
        held = [self.held(self.target_key[c], self.target_input[c]) for c in columns]
        chosen = None
        if self.fused:
            chosen = in_order([[self.runs.place(cell) for cell in some] for some in held])
        if chosen is None:
            self.add_apart(m, columns, held)
            return
        operand = [some[j] for some, j in zip(held, chosen, strict=True)]
        if self.outputs_free(columns, latest):
            cells = [self.target_output[c] for c in columns]
        elif self.runs.holds(operand[0]) and self.all_free(operand, latest):
            cells = operand
        else:
            run = self.runs.new(self.dst[m], len(columns))
            cells = [run + i for i in range(len(columns))]
        self.receive[m] = self.steps.add(
            Op.RECV_REDUCE_COPY,
            self.dst[m],
            operand[0],
            cells[0],
            len(columns),
            m,
            Side.RECEIVER,
            self.end[m],
        )
        self.new_version(m, columns, cells)

    def add_apart(self, m: int, columns: list[int], held: list[list[int]]) -> None:
        """Receive into scratch, then add chunk by chunk, there or where the sum is already."""
        rank, now = self.dst[m], self.end[m]
        run = self.runs.new(rank, len(columns))
        self.receive[m] = self.steps.add(
            Op.RECV, rank, -1, run, len(columns), m, Side.RECEIVER, now
        )
        moves, cells = [], []
        for i, (c, some) in enumerate(zip(columns, held, strict=True)):
            output = self.target_output[c]
            if output in some and self.free_at(c) <= now:
                moves.append((run + i, output))
                cells.append(output)
            else:
                moves.append((some[0], run + i))
                cells.append(run + i)
        self.emit(Op.REDUCE, rank, m, moves, Side.RECEIVER, now)
        self.new_version(m, columns, cells)

    def new_version(self, m: int, columns: list[int], cells: list[int]) -> None:
        """Note where chunks are now; the last version of an output chunk is copied there."""
        now = self.end[m]
        later: dict[int, tuple[list[tuple[int, int]], list[int]]] = {}
        for c, cell in zip(columns, cells, strict=True):
            key, output = self.target_key[c], self.target_output[c]
            self.cells[key] = [cell]
            if self.last[c] and output not in (-1, cell):
                moves, keys = later.setdefault(max(now, self.free_at(c)), ([], []))
                moves.append((cell, output))
                keys.append(key)
        for tick, (moves, keys) in sorted(later.items()):
            if tick == now:
                self.copy_out(self.dst[m], m, moves, keys, Side.RECEIVER, now)
            else:
                heappush(self.due, (tick, len(self.steps.op), self.dst[m], m, moves, keys))

    def copy_due(self) -> None:
        """Copy to the output what had to wait until its place was free."""
        tick, _, rank, m, moves, keys = heappop(self.due)
        self.copy_out(rank, m, moves, keys, Side.LOCAL, tick)

    def copy_out(
        self,
        rank: int,
        m: int,
        moves: list[tuple[int, int]],
        keys: list[int],
        side: Side,
        tick: int,
    ) -> None:
        self.emit(Op.COPY, rank, m, moves, side, tick)
        for key, (_, output) in zip(keys, moves, strict=True):
            self.cells[key].append(output)

    def emit(
        self, op: Op, rank: int, m: int, moves: list[tuple[int, int]], side: Side, tick: int
    ) -> None:
        """Local steps of a message, in its connection's block or, if many, in a local one."""
        merged = pieces(moves, self.largest)
        if len(merged) > INLINE_COPIES:
            side = Side.LOCAL
        for source, target, count in merged:
            self.steps.add(op, rank, source, target, count, m, side, tick)

    def outputs_free(self, columns: list[int], latest: int) -> bool:
        """Whether chunks belong side by side in the output and may be written there now."""
        first = self.target_output[columns[0]]
        return first >= 0 and all(
            self.target_output[c] == first + i and self.free_at(c) <= latest
            for i, c in enumerate(columns)
        )

    def all_free(self, cells: list[int], latest: int) -> bool:
        """Whether nobody reads cells after a tick."""
        return all(self.busy.get(cell, -1) <= latest for cell in cells)

    def free_at(self, column: int) -> int:
        """Tick from which on nobody reads what an output cell still holds."""
        return max(self.alias_busy[column], self.busy.get(self.target_output[column], -1))
