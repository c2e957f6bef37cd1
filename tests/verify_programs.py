"""Small right programs of every collective, for the tests of verification."""

from __future__ import annotations

from typing import Any

from sim.program import Buffer, Op, Program, ProgramBuilder

I, O, S = Buffer.INPUT, Buffer.OUTPUT, Buffer.SCRATCH  # noqa: E741 - as in the files


def allgather_ring(ranks: int, *, chunks: int = 1, in_place: bool = False, **how: Any) -> Program:
    """One block per rank; ``chunks`` travel together as one message of a fused step."""
    b = ProgramBuilder(ranks)
    for r in range(ranks):
        t = b.block(r, send=(r + 1) % ranks, recv=(r - 1) % ranks)
        if in_place:
            b.step(t, Op.SEND, src=(O, r * chunks), cnt=chunks)
        else:
            b.step(t, Op.COPY, src=(I, 0), dst=(O, r * chunks), cnt=chunks)
            b.step(t, Op.SEND, src=(I, 0), cnt=chunks)
        for turn in range(1, ranks - 1):
            b.step(t, Op.RECV_COPY_SEND, dst=(O, (r - turn) % ranks * chunks), cnt=chunks)
        if ranks > 1:
            b.step(t, Op.RECV, dst=(O, (r + 1) % ranks * chunks), cnt=chunks)
    return b.build(
        name="ag_ring",
        collective="allgather",
        nchunks=ranks * chunks,
        in_place=in_place,
        out_of_place=not in_place,
        buffer_chunks=(chunks, ranks * chunks),
        **how,
    )


def allreduce_ring(ranks: int, **how: Any) -> Program:
    """In place: sums go around once (rrs), then the results (rcs)."""
    b = ProgramBuilder(ranks)
    for r in range(ranks):
        t = b.block(r, send=(r + 1) % ranks, recv=(r - 1) % ranks)
        b.step(t, Op.SEND, src=(I, r))
        for turn in range(1, ranks - 1):
            b.step(t, Op.RECV_REDUCE_SEND, src=(I, (r - turn) % ranks))
        own = (r + 1) % ranks
        b.step(t, Op.RECV_REDUCE_COPY_SEND, src=(I, own), dst=(I, own))
        for turn in range(1, ranks - 1):
            b.step(t, Op.RECV_COPY_SEND, dst=(I, (own - turn) % ranks))
        b.step(t, Op.RECV, dst=(I, (own + 1) % ranks))
    return b.build(
        name="ar_ring",
        collective="allreduce",
        nchunks=ranks,
        in_place=True,
        out_of_place=False,
        buffer_chunks=(ranks, ranks),
        **how,
    )


def allreduce_pairs(ranks: int, **how: Any) -> Program:
    """Two steps over all pairs: chunk r is summed on rank r in a block of its own."""
    b = ProgramBuilder(ranks)
    for r in range(ranks):
        peers = [p for p in range(ranks) if p != r]
        send = {p: b.block(r, send=p) for p in peers}
        receive = {p: b.block(r, recv=p) for p in peers}
        local = b.block(r)
        for p in peers:
            b.step(send[p], Op.SEND, src=(I, p))
        got = [b.step(receive[p], Op.RECV, dst=(S, k)) for k, p in enumerate(peers)]
        last = b.step(local, Op.COPY, src=(I, r), dst=(O, r))
        for k, arrived in enumerate(got):
            last = b.step(local, Op.REDUCE, src=(S, k), dst=(O, r), after=[arrived])
        for p in peers:
            b.step(send[p], Op.SEND, src=(O, r), after=[last])
            b.step(receive[p], Op.RECV, dst=(O, p))
    return b.build(
        name="ar_pairs",
        collective="allreduce",
        nchunks=ranks,
        buffer_chunks=(ranks, ranks),
        **how,
    )


def reducescatter_direct(ranks: int, *, chunks: int = 1, **how: Any) -> Program:
    """Everybody sends to everybody; blocks with a receive add what came to the output (rrc)."""
    b = ProgramBuilder(ranks)
    for r in range(ranks):
        before = b.step(b.block(r), Op.COPY, src=(I, r * chunks), dst=(O, 0), cnt=chunks)
        for distance in range(1, ranks):
            to, origin = (r + distance) % ranks, (r - distance) % ranks
            b.step(b.block(r, send=to), Op.SEND, src=(I, to * chunks), cnt=chunks)
            t = b.block(r, recv=origin)
            before = b.step(
                t, Op.RECV_REDUCE_COPY, src=(O, 0), dst=(O, 0), cnt=chunks, after=[before]
            )
    return b.build(
        name="rs_direct",
        collective="reducescatter",
        nchunks=ranks * chunks,
        in_place=False,
        buffer_chunks=(ranks * chunks, chunks),
        **how,
    )


def reducescatter_in_place(ranks: int, **how: Any) -> Program:
    """Ring in place: chunk c ends in input chunk c of rank c, which is its output."""
    b = ProgramBuilder(ranks)
    for r in range(ranks):
        t = b.block(r, send=(r + 1) % ranks, recv=(r - 1) % ranks)
        b.step(t, Op.SEND, src=(I, (r - 1) % ranks))
        for turn in range(2, ranks):
            b.step(t, Op.RECV_REDUCE_SEND, src=(I, (r - turn) % ranks))
        b.step(t, Op.RECV_REDUCE_COPY, src=(I, r), dst=(I, r))
    return b.build(
        name="rs_ring",
        collective="reducescatter",
        nchunks=ranks,
        in_place=True,
        out_of_place=False,
        buffer_chunks=(ranks, 1),
        **how,
    )


def alltoall_direct(ranks: int, *, chunks: int = 1, **how: Any) -> Program:
    """One block per peer that sends and receives, one for the own chunk."""
    b = ProgramBuilder(ranks)
    for r in range(ranks):
        b.step(b.block(r), Op.COPY, src=(I, r * chunks), dst=(O, r * chunks), cnt=chunks)
        for p in range(ranks):
            if p != r:
                t = b.block(r, send=p, recv=p)
                b.step(t, Op.SEND, src=(I, p * chunks), cnt=chunks)
                b.step(t, Op.RECV, dst=(O, p * chunks), cnt=chunks)
    return b.build(
        name="a2a_direct",
        collective="alltoall",
        nchunks=ranks * chunks,
        buffer_chunks=(ranks * chunks, ranks * chunks),
        **how,
    )


def chain(ranks: int, collective: str, root: int, *, chunks: int = 2, **how: Any) -> Program:
    """Broadcast from or reduce to a root along a line, chunk after chunk."""
    b = ProgramBuilder(ranks)
    line = [(root + k) % ranks for k in range(ranks)]
    if collective == "reduce":
        line.reverse()
    for k, r in enumerate(line):
        to = line[k + 1] if k + 1 < ranks else -1
        t = b.block(r, send=to, recv=line[k - 1] if k else -1)
        for c in range(chunks):
            if collective == "broadcast":
                if k == 0:
                    b.step(t, Op.SEND, src=(I, c))
                    b.step(t, Op.COPY, src=(I, c), dst=(O, c))
                else:
                    b.step(t, Op.RECV_COPY_SEND if to >= 0 else Op.RECV, dst=(O, c))
            elif k == 0:
                b.step(t, Op.SEND, src=(I, c))
            elif to >= 0:
                b.step(t, Op.RECV_REDUCE_SEND, src=(I, c))
            else:
                b.step(t, Op.RECV_REDUCE_COPY, src=(I, c), dst=(O, c))
    return b.build(
        name=f"{collective}_chain",
        collective=collective,
        nchunks=chunks,
        root=root,
        buffer_chunks=(chunks, chunks),
        **how,
    )


def allgather_doubling(ranks: int, **how: Any) -> Program:
    """Recursive doubling in place: in every round both of a pair send before they receive."""
    b = ProgramBuilder(ranks)
    for r in range(ranks):
        before: list[int] = []
        half = 1
        while half < ranks:
            peer = r ^ half
            t = b.block(r, send=peer, recv=peer)
            b.step(t, Op.SEND, src=(O, r // half * half), cnt=half, after=before)
            before = [*before, b.step(t, Op.RECV, dst=(O, peer // half * half), cnt=half)]
            half *= 2
    return b.build(
        name="ag_doubling",
        collective="allgather",
        nchunks=ranks,
        in_place=True,
        out_of_place=False,
        buffer_chunks=(1, ranks),
        **how,
    )


def allreduce_pairs_measured(ranks: int, instances: int, **how: Any) -> Program:
    """The all-pairs AllReduce measured on 8 MI300X: every send of 8 chunks before a receive of 8.

    Shape from ROCm/rccl ``tools/msccl-algorithms/allreduce-allpairs-8n-simple.xml``.
    """
    b = ProgramBuilder(ranks)
    own = ranks  # chunks a rank sums, one per block
    for r in range(ranks):
        peers = [p for p in range(ranks) if p != r]
        for j in range(instances):
            first, scratch = j * own * ranks, j * own * (ranks - 1)
            blocks = [b.block(r, send=p, recv=p, channel=j) for p in peers] + [b.block(r)]
            got = []
            for k, p in enumerate(peers):
                b.step(blocks[k], Op.SEND, src=(I, first + p * own), cnt=own)
                at = (S, scratch + k * own)
                got.append(b.step(blocks[k], Op.RECV, dst=at, cnt=own))
            sums = []
            for c, t in enumerate(blocks):
                for k in range(ranks - 1):
                    src, dst = (S, scratch + k * own + c), (I, first + r * own + c)
                    done = b.step(t, Op.REDUCE, src=src, dst=dst, after=got if k == 0 else [])
                sums.append(done)
            for t, p in zip(blocks, peers, strict=False):
                b.step(t, Op.SEND, src=(I, first + r * own), cnt=own, after=sums)
                b.step(t, Op.RECV, dst=(I, first + p * own), cnt=own)
    size = instances * own * ranks
    return b.build(
        name="ar_pairs_measured",
        collective="allreduce",
        nchunks=size,
        in_place=True,
        out_of_place=False,
        buffer_chunks=(size, size),
        **how,
    )


def right_programs() -> list[Program]:
    """One small right program of each kind."""
    return [
        allgather_ring(3, chunks=2, max_bytes=6 << 20),
        allgather_ring(4, in_place=True, protocol="LL"),
        allreduce_ring(4),
        allreduce_pairs(3),
        reducescatter_direct(3, chunks=2),
        reducescatter_in_place(4),
        alltoall_direct(3, chunks=2),
        chain(3, "broadcast", 1),
        chain(4, "reduce", 2),
        allgather_doubling(4, max_bytes=4 << 20),
    ]
