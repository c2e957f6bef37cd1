"""An interpreter of programs for the tests of baselines, written from the runtimes' rules alone.

Every block does one chunk at a time; which block goes next is random. A connection holds two
messages of one chunk, the least any protocol has at large sizes. The buffer is run in two loop
iterations of disjoint bytes, without a barrier between them.
"""

from __future__ import annotations

from collections import defaultdict, deque

import numpy as np

from explorer.core.collective import Collective
from sim.program import Op, Program

SLOTS = 2
LOOPS = 2
SENDS = {Op.SEND, Op.RECV_COPY_SEND, Op.RECV_REDUCE_SEND, Op.RECV_REDUCE_COPY_SEND}
RECEIVES = {
    Op.RECV,
    Op.RECV_COPY_SEND,
    Op.RECV_REDUCE_SEND,
    Op.RECV_REDUCE_COPY,
    Op.RECV_REDUCE_COPY_SEND,
}
READS = {Op.SEND, Op.RECV_REDUCE_SEND, Op.RECV_REDUCE_COPY, Op.RECV_REDUCE_COPY_SEND}
READS |= {Op.COPY, Op.REDUCE}
WRITES = {Op.RECV, Op.RECV_COPY_SEND, Op.RECV_REDUCE_COPY, Op.RECV_REDUCE_COPY_SEND}
WRITES |= {Op.COPY, Op.REDUCE}


class Memory:
    """Addresses of all ranks as cells; the caller's buffers filled, all else garbage."""

    def __init__(self, program: Program, kind: Collective, *, in_place: bool, seed: int) -> None:
        rng = np.random.default_rng(seed)
        ranks, n, c = kind.ranks, kind.nchunks, kind.chunks_per_rank
        self.inputs = rng.integers(1, 1 << 40, (ranks, LOOPS, max(n, c)))
        self.size_in = c if kind.name == "allgather" else n
        self.size_out = c if kind.name == "reducescatter" else n
        self.kind, self.in_place = kind, in_place
        self.user = rng.integers(-(1 << 50), -(1 << 49), (ranks, LOOPS, 2 * n))
        self.scratch = rng.integers(
            -(1 << 50), -(1 << 49), (ranks, LOOPS, 1 + program.s_chunks.max(initial=0))
        )
        for rank in range(ranks):
            if kind.name != "broadcast" or rank == kind.root:
                for k in range(self.size_in):
                    self.user[rank, :, self.cell(rank, 0, k)[1]] = self.inputs[rank, :, k]
        self.before = self.user.copy()

    def cell(self, rank: int, buffer: int, offset: int) -> tuple[int, int]:
        """(0 user or 1 scratch, index)."""
        if buffer == 2:
            return 1, offset
        assert offset < (self.size_out if buffer else self.size_in), "out of the buffer"
        if not self.in_place:
            return 0, offset + buffer * self.kind.nchunks
        gathers, scatters = self.kind.name == "allgather", self.kind.name == "reducescatter"
        shifted = (gathers and buffer == 0) or (scatters and buffer == 1)
        return 0, offset + (rank * self.kind.chunks_per_rank if shifted else 0)

    def array(self, rank: int, where: int) -> np.ndarray:
        return (self.scratch if where else self.user)[rank]

    def wanted(self, rank: int) -> np.ndarray | None:
        """What the output must hold, [loops, size]; None where it does not matter."""
        kind, x = self.kind, self.inputs
        c = kind.chunks_per_rank
        if kind.name == "allgather":
            return np.concatenate([x[r, :, :c] for r in range(kind.ranks)], axis=1)
        if kind.name == "alltoall":
            block = slice(rank * c, (rank + 1) * c)
            return np.concatenate([x[r, :, block] for r in range(kind.ranks)], axis=1)
        if kind.name == "broadcast":
            return x[kind.root]
        if kind.name == "reduce" and rank != kind.root:
            return None
        total = x.sum(axis=0)
        return total[:, rank * c : (rank + 1) * c] if kind.name == "reducescatter" else total

    def check(self) -> None:
        """Outputs are right, and nothing else of the caller's memory has changed."""
        kind = self.kind
        for rank in range(kind.ranks):
            free = np.zeros(2 * kind.nchunks, dtype=np.bool_)
            wanted = self.wanted(rank)
            if wanted is not None:
                cells = [self.cell(rank, 1, k)[1] for k in range(self.size_out)]
                assert np.array_equal(self.user[rank][:, cells], wanted), f"rank {rank}"
                free[cells] = True
            kept = self.user[rank][:, ~free] == self.before[rank][:, ~free]
            assert kept.all(), f"rank {rank} changed memory that is not its result"


def run(program: Program, kind: Collective, *, in_place: bool, seed: int) -> None:
    """Run to the end in a random order and check the result."""
    memory = Memory(program, kind, in_place=in_place, seed=seed)
    rng = np.random.default_rng(seed)
    block_of = program.step_block()
    first = program.tb_first.tolist()
    fifo: dict[tuple[int, int, int], deque[int]] = defaultdict(deque)
    state = [[0, first[t], 0] for t in range(program.blocks)]
    live = [t for t in range(program.blocks) if first[t] < first[t + 1]]
    while live:
        moved = False
        for t in rng.permutation(live).tolist():
            for _ in range(int(rng.integers(1, 6))):
                if state[t][0] == LOOPS or not _act(program, memory, t, state, block_of, fifo):
                    break
                moved = True
        live = [t for t in live if state[t][0] < LOOPS]
        waiting = [program.where(state[t][1]) for t in live]
        assert moved or not live, f"deadlock: {waiting}"
    assert not any(fifo.values()), "messages left over"
    memory.check()


def _act(
    program: Program,
    memory: Memory,
    t: int,
    state: list[list[int]],
    block_of: np.ndarray,
    fifo: dict[tuple[int, int, int], deque[int]],
) -> bool:
    """One chunk of the current step of a block, if it can go on."""
    loop, step, at = state[t]
    op, rank, channel = Op(program.op[step]), int(program.tb_rank[t]), int(program.tb_channel[t])
    if at == 0:
        for d in program.dep_step[program.dep_first[step] : program.dep_first[step + 1]].tolist():
            other = state[block_of[d]]
            if (other[0], other[1]) <= (loop, d):
                return False
    source = fifo[int(program.tb_recv[t]), rank, channel] if op in RECEIVES else None
    target = fifo[rank, int(program.tb_send[t]), channel] if op in SENDS else None
    if (source is not None and not source) or (target is not None and len(target) == SLOTS):
        return False
    value = source.popleft() if source is not None else 0
    if op in READS:
        where, cell = memory.cell(rank, int(program.src_buf[step]), int(program.src_off[step]) + at)
        value += int(memory.array(rank, where)[loop, cell])
    if op in WRITES:
        where, cell = memory.cell(rank, int(program.dst_buf[step]), int(program.dst_off[step]) + at)
        old = int(memory.array(rank, where)[loop, cell])
        memory.array(rank, where)[loop, cell] = value = value + (old if op == Op.REDUCE else 0)
    if target is not None:
        target.append(value)
    at += 1
    if at == program.cnt[step]:
        step, at = step + 1, 0
        if step == program.tb_first[t + 1]:
            loop, step = loop + 1, int(program.tb_first[t])
    state[t][:] = loop, step, at
    return True


def races(program: Program, kind: Collective, *, in_place: bool) -> list[str]:
    """Pairs of accesses to one cell, one of them a write, that nothing orders.

    Order comes from blocks, dependencies and messages; back-pressure does not count.
    """
    memory = Memory(program, kind, in_place=in_place, seed=0)
    block_of = program.step_block().tolist()
    queues: dict[tuple[int, int, int, bool], list[int]] = defaultdict(list)
    before: list[list[int]] = [[] for _ in range(program.steps)]
    for s in range(program.steps):
        t, op = block_of[s], Op(program.op[s])
        if s > program.tb_first[t]:
            before[s].append(s - 1)
        before[s] += program.dep_step[program.dep_first[s] : program.dep_first[s + 1]].tolist()
        rank, channel = int(program.tb_rank[t]), int(program.tb_channel[t])
        if op in SENDS:
            queues[rank, int(program.tb_send[t]), channel, True].append(s)
        if op in RECEIVES:
            queues[int(program.tb_recv[t]), rank, channel, False].append(s)
    for (u, v, channel, sends), steps in list(queues.items()):
        if sends:
            received = queues[u, v, channel, False]
            assert program.cnt[steps].tolist() == program.cnt[received].tolist()
            for s, r in zip(steps, received, strict=True):
                before[r].append(s)
    reach = _closure(before)
    accesses: dict[tuple[int, int, int], list[tuple[int, bool]]] = defaultdict(list)
    for s in range(program.steps):
        op, rank = Op(program.op[s]), int(program.tb_rank[block_of[s]])
        for used, write, buffer, offset in (
            (op in READS, False, program.src_buf[s], program.src_off[s]),
            (op in WRITES, True, program.dst_buf[s], program.dst_off[s]),
        ):
            for i in range(int(program.cnt[s]) if used else 0):
                cell = memory.cell(rank, int(buffer), int(offset) + i)
                accesses[rank, *cell].append((s, write))
    return [
        f"{program.where(a)} and {program.where(b)} on {cell}"
        for cell, uses in accesses.items()
        for i, (a, writes) in enumerate(uses)
        for b, also in uses[:i]
        if a != b and (writes or also) and not (reach[a] >> b & 1 or reach[b] >> a & 1)
    ]


def _closure(before: list[list[int]]) -> list[int]:
    """Bit set of all that comes before each step."""
    reach = [-1] * len(before)
    most = len(before) + sum(map(len, before))
    for root in range(len(before)):
        stack = [root]
        while stack:
            s = stack[-1]
            missing = [p for p in before[s] if reach[p] < 0]
            if missing:
                assert len(stack) <= most, "the steps wait in a circle"
                stack += missing
                continue
            stack.pop()
            reach[s] = 0
            for p in before[s]:
                reach[s] |= reach[p] | 1 << p
    return reach
