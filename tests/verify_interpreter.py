"""Brute force: run all blocks of a program in random interleavings on real numbers.

Independent of the verifier: no symbols, no vector clocks, outputs compared with numpy's own
concatenations and sums. A chunk is one integer.
"""

from __future__ import annotations

import random
from collections import deque

import numpy as np

from sim.program import (
    OP_READS_DST,
    OP_READS_SRC,
    OP_RECEIVES,
    OP_SENDS,
    OP_WRITES_DST,
    Op,
    Program,
)


class Hang(Exception):
    """Nothing can go on."""


def definition(program: Program, inputs: list[np.ndarray]) -> dict[int, np.ndarray]:
    """What the output of each rank must be."""
    ranks, name = program.ranks, program.collective
    total = np.sum(inputs, axis=0) if name not in ("allgather", "alltoall") else None
    share = program.nchunks // ranks
    if name == "allgather":
        return dict.fromkeys(range(ranks), np.concatenate(inputs))
    if name == "alltoall":
        parts = [np.split(x, ranks) for x in inputs]
        return {r: np.concatenate([parts[s][r] for s in range(ranks)]) for r in range(ranks)}
    if name == "allreduce":
        return dict.fromkeys(range(ranks), total)
    if name == "reducescatter":
        return {r: total[r * share : (r + 1) * share] for r in range(ranks)}
    if name == "broadcast":
        return dict.fromkeys(range(ranks), inputs[program.root])
    return {program.root: total}


def execute(program: Program, *, in_place: bool, group: int, slots: int, seed: int) -> bool:
    """Run once; whether every output is right.

    Raises
    ------
    Hang
        If it deadlocks.
    """
    rng = random.Random(seed)
    numbers = np.random.default_rng(seed)
    ranks, n = program.ranks, program.nchunks
    share = n // ranks
    sizes = {
        "allgather": (share, n),
        "reducescatter": (n, share),
    }.get(program.collective, (n, n))
    fresh = lambda size: numbers.integers(1, 1 << 50, size=size)  # noqa: E731
    inputs = [fresh(sizes[0]) for _ in range(ranks)]
    memory = []
    for r in range(ranks):
        scratch = fresh(int(program.s_chunks[r]))
        real = program.collective != "broadcast" or r == program.root
        data = inputs[r] if real else fresh(sizes[0])
        if not in_place:
            memory.append((data.copy(), fresh(sizes[1]), scratch))
            continue
        whole = fresh(n)
        i = whole[r * share : (r + 1) * share] if program.collective == "allgather" else whole
        o = whole[r * share : (r + 1) * share] if program.collective == "reducescatter" else whole
        i[:] = data
        memory.append((i, o, scratch))
    machine = _Machine(program, memory, group, slots)
    weights = [rng.random() ** 4 + 1e-3 for _ in range(program.blocks)]
    while True:
        ready = [t for t in range(program.blocks) if machine.can_go(t)]
        if not ready:
            break
        machine.go(rng.choices(ready, [weights[t] for t in ready])[0])
    if not machine.finished():
        raise Hang
    right = definition(program, inputs)
    return all(np.array_equal(memory[r][1][: len(want)], want) for r, want in right.items())


class _Machine:
    def __init__(self, program, memory, group, slots):
        self.p, self.memory, self.group, self.slots = program, memory, group, slots
        self.at = [int(x) for x in program.tb_first[:-1]]
        self.part = [0] * program.blocks
        self.block = program.step_block()
        self.fifo: dict[tuple[int, int, int], deque] = {}

    def _link(self, t, out):
        p = self.p
        rank, channel = int(p.tb_rank[t]), int(p.tb_channel[t])
        ends = (rank, int(p.tb_send[t])) if out else (int(p.tb_recv[t]), rank)
        return self.fifo.setdefault((*ends, channel), deque())

    def can_go(self, t):
        p, s = self.p, self.at[t]
        if s >= p.tb_first[t + 1]:
            return False
        if self.part[t] == 0:
            for d in p.dep_step[p.dep_first[s] : p.dep_first[s + 1]]:
                if self.at[self.block[d]] <= d:
                    return False
        if OP_RECEIVES[p.op[s]] and not self._link(t, False):
            return False
        return not (OP_SENDS[p.op[s]] and len(self._link(t, True)) >= self.slots)

    def go(self, t):
        """One message of a transfer, or one chunk of a local step."""
        p, s = self.p, self.at[t]
        op = Op(int(p.op[s]))
        moves = OP_SENDS[op] or OP_RECEIVES[op]
        size = self.group if moves else 1
        first = self.part[t] * size
        last = min(first + size, int(p.cnt[s]))
        mine = self.memory[int(p.tb_rank[t])]
        incoming = self._link(t, False).popleft() if OP_RECEIVES[op] else None
        outgoing = []
        for c in range(first, last):
            value = 0
            if OP_RECEIVES[op]:
                value += incoming[c - first]
            if OP_READS_SRC[op]:
                value += mine[p.src_buf[s]][self._offset(p.src_off[s] + c)]
            if OP_READS_DST[op]:
                value += mine[p.dst_buf[s]][self._offset(p.dst_off[s] + c)]
            if OP_WRITES_DST[op]:
                mine[p.dst_buf[s]][self._offset(p.dst_off[s] + c)] = value
            outgoing.append(value)
        if OP_SENDS[op]:
            self._link(t, True).append(outgoing)
        self.part[t] += 1
        if last >= p.cnt[s]:
            self.part[t] = 0
            self.at[t] += 1

    def _offset(self, offset):
        if offset < 0:
            raise IndexError(offset)
        return offset

    def finished(self):
        ends = [int(x) for x in self.p.tb_first[1:]]
        return self.at == ends and not any(self.fifo.values())


def harmful(program: Program, *, runs: int, seed: int = 0) -> str | None:
    """How some run goes wrong: ``hang``, ``wrong`` or ``crash``; None when none does."""
    slots = {"Simple": 2, "LL": 8, "LL128": 8}[program.protocol]
    slot_bytes = {"Simple": 2 << 20, "LL": 32 << 10, "LL128": 576_000}[program.protocol]
    group = 1
    if program.max_bytes is not None:
        group = max(1, min(71, slot_bytes // max(program.max_bytes // program.nchunks, 1)))
    for in_place in (False, True):
        if not (program.in_place if in_place else program.out_of_place):
            continue
        for run in range(runs):
            try:
                ok = execute(
                    program, in_place=in_place, group=group, slots=slots, seed=1000 * seed + run
                )
            except Hang:
                return "hang"
            except IndexError:
                return "crash"
            if not ok:
                return "wrong"
    return None
