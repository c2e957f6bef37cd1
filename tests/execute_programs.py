"""Small programs written by hand, for the tests of file formats and of execution."""

from __future__ import annotations

from sim.program import Buffer, Op, Program, ProgramBuilder

IN, OUT, TMP = Buffer.INPUT, Buffer.OUTPUT, Buffer.SCRATCH


def allgather_ring(ranks: int, protocol: str = "Simple", **kwargs: object) -> Program:
    """One block per rank: own chunk to the output, then ranks - 1 turns around the ring."""
    b = ProgramBuilder(ranks)
    for r in range(ranks):
        t = b.block(r, send=(r + 1) % ranks, recv=(r - 1) % ranks)
        b.step(t, Op.COPY, src=(IN, 0), dst=(OUT, r))
        b.step(t, Op.SEND, src=(IN, 0))
        for turn in range(1, ranks - 1):
            b.step(t, Op.RECV_COPY_SEND, dst=(OUT, (r - turn) % ranks))
        b.step(t, Op.RECV, dst=(OUT, (r + 1) % ranks))
    return build(b, "ag_ring", "allgather", ranks, protocol, **kwargs)


def allreduce_ring(ranks: int, protocol: str = "Simple", **kwargs: object) -> Program:
    """The ring of NCCL: reduce around once, then pass the sums around."""
    b = ProgramBuilder(ranks)
    for r in range(ranks):
        t = b.block(r, send=(r + 1) % ranks, recv=(r - 1) % ranks)
        b.step(t, Op.SEND, src=(IN, r))
        for turn in range(1, ranks - 1):
            b.step(t, Op.RECV_REDUCE_SEND, src=(IN, (r - turn) % ranks))
        own = (r + 1) % ranks
        b.step(t, Op.RECV_REDUCE_COPY_SEND, src=(IN, own), dst=(OUT, own))
        for turn in range(1, ranks - 1):
            b.step(t, Op.RECV_COPY_SEND, dst=(OUT, (own - turn) % ranks))
        b.step(t, Op.RECV, dst=(OUT, (own + 1) % ranks))
    return build(b, "ar_ring", "allreduce", ranks, protocol, **kwargs)


def reducescatter_direct(ranks: int, protocol: str = "Simple", **kwargs: object) -> Program:
    """Everybody sends to everybody; a local block waits for all and adds scratch to the output."""
    b = ProgramBuilder(ranks)
    for r in range(ranks):
        received = []
        for distance in range(1, ranks):
            to, origin = (r + distance) % ranks, (r - distance) % ranks
            b.step(b.block(r, send=to), Op.SEND, src=(IN, to))
            t = b.block(r, recv=origin)
            received.append(b.step(t, Op.RECV, dst=(TMP, distance - 1)))
        local = b.block(r)
        b.step(local, Op.COPY, src=(IN, r), dst=(OUT, 0))
        for k in range(ranks - 1):
            after = received if k == 0 else []
            b.step(local, Op.REDUCE, src=(TMP, k), dst=(OUT, 0), after=after)
    return build(b, "rs_direct", "reducescatter", ranks, protocol, **kwargs)


def alltoall_direct(ranks: int, protocol: str = "Simple", **kwargs: object) -> Program:
    """One block per peer that sends and receives, and one for the own chunk."""
    b = ProgramBuilder(ranks)
    for r in range(ranks):
        for peer in range(ranks):
            if peer == r:
                b.step(b.block(r), Op.COPY, src=(IN, r), dst=(OUT, r))
                continue
            b.step(b.block(r, send=peer), Op.SEND, src=(IN, peer))
            b.step(b.block(r, recv=peer), Op.RECV, dst=(OUT, peer))
    kwargs.setdefault("in_place", False)
    return build(b, "a2a_direct", "alltoall", ranks, protocol, **kwargs)


def broadcast_chain(
    ranks: int, root: int = 0, protocol: str = "Simple", chunks: int = 2, **kwargs: object
) -> Program:
    """From the root to its right neighbour and on, all chunks in one step."""
    b = ProgramBuilder(ranks)
    for place in range(ranks):
        r = (root + place) % ranks
        t = b.block(
            r,
            send=(r + 1) % ranks if place < ranks - 1 else -1,
            recv=(r - 1) % ranks if place else -1,
        )
        if place == 0:
            b.step(t, Op.SEND, src=(IN, 0), cnt=chunks)
            b.step(t, Op.COPY, src=(IN, 0), dst=(OUT, 0), cnt=chunks)
        else:
            op = Op.RECV_COPY_SEND if place < ranks - 1 else Op.RECV
            b.step(t, op, dst=(OUT, 0), cnt=chunks)
    return build(b, "bc_chain", "broadcast", chunks, protocol, root=root, **kwargs)


def reduce_chain(
    ranks: int, root: int = 0, protocol: str = "Simple", chunks: int = 2, **kwargs: object
) -> Program:
    """Towards the root, each rank adding its own."""
    b = ProgramBuilder(ranks)
    for place in range(ranks):
        r = (root + place) % ranks
        t = b.block(
            r,
            send=(r - 1) % ranks if place else -1,
            recv=(r + 1) % ranks if place < ranks - 1 else -1,
        )
        if place == ranks - 1:
            b.step(t, Op.SEND, src=(IN, 0), cnt=chunks)
        elif place:
            b.step(t, Op.RECV_REDUCE_SEND, src=(IN, 0), cnt=chunks)
        else:
            b.step(t, Op.RECV_REDUCE_COPY, src=(IN, 0), dst=(OUT, 0), cnt=chunks)
    return build(b, "red_chain", "reduce", chunks, protocol, root=root, **kwargs)


def build(
    b: ProgramBuilder, name: str, collective: str, nchunks: int, protocol: str, **kwargs: object
) -> Program:
    """Freeze for both placements unless said otherwise."""
    kwargs.setdefault("in_place", True)
    return b.build(name=name, collective=collective, nchunks=nchunks, protocol=protocol, **kwargs)


def samples(ranks: int = 4) -> dict[str, Program]:
    """A right program for each collective."""
    return {
        "allgather": allgather_ring(ranks),
        "allreduce": allreduce_ring(ranks, "LL"),
        "reducescatter": reducescatter_direct(ranks),
        "alltoall": alltoall_direct(ranks, "LL128"),
        "broadcast": broadcast_chain(ranks, root=1),
        "reduce": reduce_chain(ranks, root=2),
    }
