"""Unfused steps: what a program's steps are where receives neither add nor send on."""

from __future__ import annotations

from dataclasses import dataclass

from explorer.core.collective import Collective
from sim.program import (
    OP_READS_SRC,
    OP_RECEIVES,
    OP_SENDS,
    Buffer,
    Op,
    Program,
)

Address = tuple[int, int]
Cell = tuple[int, int]

FUSED = OP_RECEIVES & (OP_SENDS | OP_READS_SRC)
"""Whether an op is a receive that adds or sends on, by value."""

_NONE: Address = (int(Buffer.INPUT), -1)


@dataclass(frozen=True, slots=True)
class UnfusedStep:
    """One step without fused receive.

    Parameters
    ----------
    old
        Step of the program it is (a part of).
    op, src, dst, cnt
        As in the program; addresses are (buffer, offset).
    """

    old: int
    op: Op
    src: Address
    dst: Address
    cnt: int

    @property
    def sends(self) -> bool:
        """Whether it sends."""
        return self.op == Op.SEND

    @property
    def moves(self) -> bool:
        """Whether it sends or receives."""
        return bool(OP_SENDS[self.op] or OP_RECEIVES[self.op])


class UnfusedSteps:
    """The unfused steps of a program in their old order, and the memory they touch.

    Parameters
    ----------
    program
        The program.

    Attributes
    ----------
    steps
        All of them, block by block.
    of_old
        Which of them every old step has become.
    waiter
        Which of them has to wait for what an old step waits for: not a receive into scratch of its
        own.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.block_of: list[int] = program.step_block().tolist()
        self.rank_of: list[int] = program.tb_rank.tolist()
        self._scratch: list[int] = program.s_chunks.tolist()
        self._shift = _shifts(program)
        self.steps: list[UnfusedStep] = []
        self.of_old: list[range] = []
        self.waiter: list[int] = []
        for old in range(program.steps):
            first = len(self.steps)
            found, private = self._unfused(old)
            self.steps += found
            self.of_old.append(range(first, len(self.steps)))
            self.waiter.append(first + private)

    def cells(self, rank: int, address: Address, cnt: int) -> set[Cell]:
        """Memory of a range, input and output as one where the program serves in-place calls."""
        buffer, offset = address
        if self.program.in_place and buffer != Buffer.SCRATCH:
            offset += self._shift[rank][buffer]
            buffer = int(Buffer.INPUT)
        return {(buffer, offset + i) for i in range(cnt)}

    def _unfused(self, old: int) -> tuple[list[UnfusedStep], bool]:
        """What a step becomes, and whether the first of that is private to its block."""
        p = self.program
        op, cnt = Op(int(p.op[old])), int(p.cnt[old])
        src = int(p.src_buf[old]), int(p.src_off[old])
        dst = int(p.dst_buf[old]), int(p.dst_off[old])
        if not FUSED[op]:
            return [UnfusedStep(old, op, src, dst, cnt)], False
        rank = self.rank_of[self.block_of[old]]
        aside: Address | None = None
        if op == Op.RECV_COPY_SEND:
            kept = [UnfusedStep(old, Op.RECV, _NONE, dst, cnt)]
        elif op == Op.RECV_REDUCE_SEND:
            aside = dst = self._aside(rank, cnt)
            kept = _added(old, src, dst, cnt)
        elif not self.cells(rank, src, cnt) & self.cells(rank, dst, cnt):
            kept = _added(old, src, dst, cnt)
        else:
            aside = self._aside(rank, cnt)
            kept = _added(old, src, aside, cnt)
            if src == dst:
                kept[1] = UnfusedStep(old, Op.REDUCE, aside, dst, cnt)
            else:
                # one memory in some calls only, or shifted: the operand is read before
                kept.append(UnfusedStep(old, Op.COPY, aside, dst, cnt))
        if OP_SENDS[op]:
            kept.append(UnfusedStep(old, Op.SEND, dst, _NONE, cnt))
        return kept, aside is not None

    def _aside(self, rank: int, cnt: int) -> Address:
        offset = self._scratch[rank]
        self._scratch[rank] += cnt
        return int(Buffer.SCRATCH), offset


def _added(old: int, src: Address, dst: Address, cnt: int) -> list[UnfusedStep]:
    return [
        UnfusedStep(old, Op.RECV, _NONE, dst, cnt),
        UnfusedStep(old, Op.REDUCE, src, dst, cnt),
    ]


def _shifts(program: Program) -> list[tuple[int, int]]:
    if program.collective not in ("allgather", "reducescatter"):
        return [(0, 0)] * program.ranks
    kind = Collective(program.collective, program.ranks, max(1, program.nchunks // program.ranks))
    return [kind.in_place_shift(rank) for rank in range(program.ranks)]
