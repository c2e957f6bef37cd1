"""A replay of programs for the tests of lowering, written without looking at the verifier.

Blocks run interleaved at random, one message of a transfer at a time, over FIFOs with the
protocol's slots. Every cell is checked for races with vector clocks.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from explorer.core.collective import Collective
from sim.program import (
    OP_READS_DST,
    OP_READS_SRC,
    OP_RECEIVES,
    OP_SENDS,
    OP_WRITES_DST,
    Buffer,
    Op,
    Program,
)
from sim.protocols import PROTOCOLS


class Failure(AssertionError):
    """The program is wrong."""


def check(
    program: Program, collective: Collective, *, in_place: bool, seed: int, group: int
) -> None:
    """Run a program and raise Failure unless every output is right and nothing races."""
    Replay(program, collective, in_place=in_place, seed=seed, group=group).run()


class Replay:
    def __init__(
        self, program: Program, collective: Collective, *, in_place: bool, seed: int, group: int
    ) -> None:
        self.p, self.c, self.in_place, self.group = program, collective, in_place, group
        self.rng = np.random.default_rng(seed)
        self.slots = PROTOCOLS[program.protocol].slots
        r, per = collective.ranks, collective.chunks_per_rank
        rooted = collective.name in ("broadcast", "reduce")
        whole = per if rooted else r * per
        assert program.nchunks == whole
        self.n_in = per if collective.name == "allgather" else whole
        self.n_out = per if collective.name == "reducescatter" else whole
        self.share = per
        self.memory = []
        for rank in range(r):
            garbage = self.rng.integers(1 << 40, 1 << 41, size=self.n_in + self.n_out + whole)
            if in_place:
                at = rank * per
                i0 = at if collective.name == "allgather" else 0
                o0 = at if collective.name == "reducescatter" else 0
            else:
                i0, o0 = 0, self.n_in
            scratch = int(program.s_chunks[rank])
            cells = np.concatenate((garbage, self.rng.integers(1 << 40, 1 << 41, size=scratch)))
            self.memory.append((cells, (i0, o0, len(garbage))))
        self.inputs = self.rng.integers(0, 1 << 20, size=(r, self.n_in))
        for rank in range(r):
            cells, base = self.memory[rank]
            if collective.name != "broadcast" or rank == collective.root:
                cells[base[0] : base[0] + self.n_in] = self.inputs[rank]
        self.before = [cells.copy() for cells, _ in self.memory]
        t = program.blocks
        self.pc = program.tb_first[:-1].copy()
        self.sub = np.zeros(t, int)
        self.clock = np.zeros((t, t), int)
        self.done_clock: dict[int, np.ndarray] = {}
        self.fifo: dict[tuple[int, int, int], deque] = {}
        self.writer: dict[tuple[int, int], tuple[int, int]] = {}
        self.readers: dict[tuple[int, int], list[tuple[int, int]]] = {}

    def run(self) -> None:
        p = self.p
        active = [b for b in range(p.blocks) if self.pc[b] < p.tb_first[b + 1]]
        while active:
            order = self.rng.permutation(len(active))
            moved = False
            for i in order.tolist():
                b = active[i]
                for _ in range(int(self.rng.integers(1, 4))):
                    if self.pc[b] < p.tb_first[b + 1] and self.advance(b):
                        moved = True
            if not moved:
                raise Failure("deadlock at " + ", ".join(p.where(int(self.pc[b])) for b in active))
            active = [b for b in active if self.pc[b] < p.tb_first[b + 1]]
        if any(self.fifo.values()):
            raise Failure("messages nobody received")
        self.outcome()

    def advance(self, b: int) -> bool:
        """One message of the block's present step; False when it must wait."""
        p, s = self.p, int(self.pc[b])
        op, rank, channel = p.op[s], int(p.tb_rank[b]), int(p.tb_channel[b])
        if self.sub[b] == 0:
            deps = p.dep_step[p.dep_first[s] : p.dep_first[s + 1]].tolist()
            if any(d not in self.done_clock for d in deps):
                return False
            assert all(int(p.tb_rank[block_of(p, d)]) == rank for d in deps)
            for d in deps:
                np.maximum(self.clock[b], self.done_clock[d], out=self.clock[b])
        moves = bool(OP_SENDS[op] or OP_RECEIVES[op])
        count = int(p.cnt[s])
        part = range(int(self.sub[b]), min(int(self.sub[b]) + self.group, count))
        part = part if moves else range(count)
        into = self.fifo.setdefault((int(p.tb_recv[b]), rank, channel), deque())
        out = self.fifo.setdefault((rank, int(p.tb_send[b]), channel), deque())
        if OP_RECEIVES[op] and not into:
            return False
        if OP_SENDS[op] and len(out) >= self.slots:
            return False
        if OP_RECEIVES[op]:
            data, clock, length = into.popleft()
            if length != count:
                raise Failure(f"{p.where(s)} receives {count} chunks, sent were {length}")
            np.maximum(self.clock[b], clock, out=self.clock[b])
        self.clock[b, b] += 1
        values = np.zeros(len(part), np.int64)
        if OP_READS_SRC[op]:
            values += self.access(b, s, int(p.src_buf[s]), int(p.src_off[s]), part, write=None)
        if OP_READS_DST[op]:
            values += self.access(b, s, int(p.dst_buf[s]), int(p.dst_off[s]), part, write=None)
        if OP_RECEIVES[op]:
            values = values + data if op != Op.RECV_COPY_SEND else data
        if OP_WRITES_DST[op]:
            self.access(b, s, int(p.dst_buf[s]), int(p.dst_off[s]), part, write=values)
        if OP_SENDS[op]:
            out.append((values, self.clock[b].copy(), count))
        self.sub[b] = part.stop
        if part.stop == count:
            self.sub[b] = 0
            self.pc[b] += 1
            self.done_clock[s] = self.clock[b].copy()
        return True

    def access(
        self, b: int, s: int, buffer: int, offset: int, part: range, write: np.ndarray | None
    ) -> np.ndarray:
        rank = int(self.p.tb_rank[b])
        cells, base = self.memory[rank]
        limit = (self.n_in, self.n_out, int(self.p.s_chunks[rank]))[buffer]
        if offset < 0 or offset + part.stop > limit:
            raise Failure(f"{self.p.where(s)} is outside of buffer {buffer}")
        if write is not None and buffer == Buffer.INPUT and not self.in_place:
            raise Failure(f"{self.p.where(s)} writes the input")
        at = np.array([base[buffer] + offset + i for i in part])
        for a in at.tolist():
            wrote = self.writer.get((rank, a))
            others = [wrote] if wrote else []
            if write is not None:
                others += self.readers.pop((rank, a), [])
                self.writer[rank, a] = (b, int(self.clock[b, b]))
            else:
                self.readers.setdefault((rank, a), []).append((b, int(self.clock[b, b])))
            for other, when in others:
                if self.clock[b, other] < when:
                    raise Failure(f"{self.p.where(s)} races with gpu {rank} block {other}")
        if write is not None:
            cells[at] = write
        return cells[at].copy()

    def outcome(self) -> None:
        for rank, (cells, base) in enumerate(self.memory):
            if self.c.name == "reduce" and rank != self.c.root:
                if (cells[: base[2]] != self.before[rank][: base[2]]).any():
                    raise Failure(f"rank {rank} is no root and its buffers changed")
                continue
            got = cells[base[1] : base[1] + self.n_out]
            want = self.expected(rank)
            if (got != want).any():
                raise Failure(f"rank {rank} outputs {np.flatnonzero(got != want).tolist()} wrong")

    def expected(self, rank: int) -> np.ndarray:
        x, per = self.inputs, self.share
        if self.c.name == "allgather":
            return x.ravel()
        if self.c.name == "alltoall":
            return x[:, rank * per : (rank + 1) * per].ravel()
        if self.c.name == "broadcast":
            return x[self.c.root]
        total = x.sum(axis=0)
        if self.c.name == "reducescatter":
            return total[rank * per : (rank + 1) * per]
        return total


def block_of(program: Program, step: int) -> int:
    return int(np.searchsorted(program.tb_first, step, side="right")) - 1
