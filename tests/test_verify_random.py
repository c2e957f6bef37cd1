"""Random programs: deadlocks, races and results agree with independent computations."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from test_verify_mutants import take
from verify_interpreter import Hang, execute

from explorer.verify.program import verify_program
from sim.program import (
    OP_READS_DST,
    OP_READS_SRC,
    OP_RECEIVES,
    OP_SENDS,
    OP_WRITES_DST,
    Buffer,
    Op,
    Program,
    ProgramBuilder,
)

CHUNKS = 3


def random_program(seed: int) -> Program:
    """Journeys of messages both ways around a ring, local work between, then some reordering."""
    rng = random.Random(seed)
    ranks = rng.choice([2, 3])
    b = ProgramBuilder(ranks)
    blocks, last = {}, {}
    for r in range(ranks):
        for way in (1, -1):
            peers = ((r + way) % ranks, (r - way) % ranks)
            blocks[r, way] = b.block(r, send=peers[0], recv=peers[1], channel=way == -1)
        blocks[r, 0] = b.block(r)

    def step(rank: int, way: int, op: Op, cnt: int) -> None:
        addresses = {}
        if OP_READS_SRC[op]:
            addresses["src"] = (rng.choice(list(Buffer)), rng.randint(0, CHUNKS - cnt))
        if OP_WRITES_DST[op]:
            addresses["dst"] = (rng.choice(list(Buffer)), rng.randint(0, CHUNKS - cnt))
        after = [s for s in last.get(rank, []) if rng.random() < 0.5]
        last.setdefault(rank, []).append(
            b.step(blocks[rank, way], op, cnt=cnt, after=after, **addresses)
        )

    for _ in range(rng.randint(2, 6)):
        at, cnt = rng.randrange(ranks), rng.randint(1, CHUNKS)
        if rng.random() < 0.3:
            step(at, 0, rng.choice([Op.COPY, Op.REDUCE]), cnt)
            continue
        way, hops = rng.choice([1, -1]), rng.randint(1, ranks)
        step(at, way, Op.SEND, cnt)
        for hop in range(1, hops):
            op = rng.choice([Op.RECV_COPY_SEND, Op.RECV_REDUCE_SEND, Op.RECV_REDUCE_COPY_SEND])
            step((at + hop * way) % ranks, way, op, cnt)
        step((at + hops * way) % ranks, way, rng.choice([Op.RECV, Op.RECV_REDUCE_COPY]), cnt)
    program = b.build(
        name=f"random {seed}",
        collective="allreduce",
        nchunks=CHUNKS,
        in_place=rng.random() < 0.5,
        buffer_chunks=(CHUNKS, CHUNKS),
        # Chunks of 2 MiB, 1 MiB or a third of it: messages of 1, 2 or 3 chunks.
        max_bytes=rng.choice([None, CHUNKS << 20, 2 << 20]),
    )
    program = replace(program, out_of_place=not program.in_place)
    order = list(range(program.steps))
    block = program.step_block()
    for _ in range(rng.choice([0, 0, 1, 2])):
        s = rng.randrange(max(program.steps - 1, 1))
        if s + 1 < program.steps and block[s] == block[s + 1]:
            order[s], order[s + 1] = order[s + 1], order[s]
    if rng.random() < 0.4:  # sends before receives: FIFOs fill
        order.sort(key=lambda s: (block[s], not OP_SENDS[program.op[s]]))
    return take(program, order)


def group_of(program: Program) -> int:
    return {None: 1, CHUNKS << 20: 2, 2 << 20: 3}[program.max_bytes]


def races(program: Program, group: int) -> bool:
    """Whether some conflicting accesses are unordered, by closure over all messages."""
    block = program.step_block()
    parts = [
        max(1, -(-int(program.cnt[s]) // group))
        if OP_SENDS[program.op[s]] or OP_RECEIVES[program.op[s]]
        else 1
        for s in range(program.steps)
    ]
    nodes = [(s, p) for s in range(program.steps) for p in range(parts[s])]
    number = {node: i for i, node in enumerate(nodes)}
    before = np.zeros((len(nodes), len(nodes)), dtype=bool)
    for s, p in nodes:
        if p:
            before[number[s, p - 1], number[s, p]] = True
        elif s and block[s - 1] == block[s]:
            before[number[s - 1, parts[s - 1] - 1], number[s, 0]] = True
        for d in program.dep_step[program.dep_first[s] : program.dep_first[s + 1]]:
            before[number[d, parts[d] - 1], number[s, 0]] = True
    for sent, received in messages(program):
        for p in range(parts[sent]):
            before[number[sent, p], number[received, p]] = True
    for k in range(len(nodes)):
        before |= np.outer(before[:, k], before[k])
    reads, writes = accesses(program, nodes, parts, group)
    for a, b in combinations(range(len(nodes)), 2):
        if nodes[a][0] == nodes[b][0] or before[a, b] or before[b, a]:
            continue
        if writes[a] & (reads[b] | writes[b]) or reads[a] & writes[b]:
            return True
    return any(overlaps_itself(program, s) for s in range(program.steps))


def messages(program: Program) -> Iterator[tuple[int, int]]:
    """Matching (send, receive) steps."""
    block = program.step_block()
    for a in range(program.blocks):
        for b in range(program.blocks):
            ends = (program.tb_send[a], program.tb_rank[a], program.tb_channel[a])
            if ends == (program.tb_rank[b], program.tb_recv[b], program.tb_channel[b]):
                sent = [s for s in np.flatnonzero(block == a) if OP_SENDS[program.op[s]]]
                taken = [s for s in np.flatnonzero(block == b) if OP_RECEIVES[program.op[s]]]
                yield from zip(sent, taken, strict=True)


def accesses(program, nodes, parts, group):
    """Chunks that each message or local step reads and writes."""
    block = program.step_block()
    reads, writes = [], []
    for s, p in nodes:
        op, rank = program.op[s], int(program.tb_rank[block[s]])
        first = p * group if parts[s] > 1 else 0
        last = min(first + group, int(program.cnt[s])) if parts[s] > 1 else int(program.cnt[s])

        def chunks(buffer, offset, rank=rank, first=first, last=last):
            shared = program.in_place and buffer == Buffer.OUTPUT
            name = int(Buffer.INPUT if shared else buffer)
            return {(rank, name, int(offset) + c) for c in range(first, last)}

        source = chunks(program.src_buf[s], program.src_off[s])
        target = chunks(program.dst_buf[s], program.dst_off[s])
        reads.append(
            (source if OP_READS_SRC[op] else set()) | (target if OP_READS_DST[op] else set())
        )
        writes.append(target if OP_WRITES_DST[op] else set())
    return reads, writes


def overlaps_itself(program: Program, s: int) -> bool:
    op = program.op[s]
    if not (OP_READS_SRC[op] and OP_WRITES_DST[op]):
        return False
    outside = {Buffer.INPUT, Buffer.OUTPUT} if program.in_place else set()
    same = program.src_buf[s] == program.dst_buf[s] or (
        program.src_buf[s] in outside and program.dst_buf[s] in outside
    )
    distance = abs(int(program.src_off[s]) - int(program.dst_off[s]))
    return bool(same and 0 < distance < program.cnt[s])


@settings(max_examples=400)
@given(st.integers(0, 1 << 30))
def test_random_programs(seed: int) -> None:
    program = random_program(seed)
    report = verify_program(program)
    codes = {e.code for e in report.errors}
    assume(not codes & {"PAIRING"})
    group = group_of(program)
    try:
        right = execute(program, in_place=program.in_place, group=group, slots=2, seed=seed)
        hangs = False
    except Hang:
        hangs = True
    assert ("DEADLOCK" in codes) == hangs, report.errors
    if hangs and any("with any number of slots" in e.message for e in report.errors):
        return
    assert ("RACE" in codes) == races(program, group), report.errors
    if not hangs and "RACE" not in codes:
        assert ("RESULT" in codes) == (not right), report.errors


def test_random_programs_show_everything() -> None:
    """The generator reaches every verdict, so the test above can fail on each."""
    seen = set()
    for seed in range(300):
        program = random_program(seed)
        report = verify_program(program)
        seen |= {e.code for e in report.errors}
        if "RACE" not in {e.code for e in report.errors}:
            seen.add("no race")
        for e in report.errors:
            if e.code == "DEADLOCK":
                seen.add("any number" if "any number" in e.message else "slots")
    assert {"DEADLOCK", "RACE", "RESULT", "UNSET", "no race", "any number", "slots"} <= seen
