"""Ring: chunks travel round the ranks, fused steps receive, add and forward in one go.

The steps are NCCL's (``src/collectives/device/all_reduce.h``, ``all_gather.h``,
``reduce_scatter.h``, ``broadcast.h``, ``reduce.h``): one block per channel sends and receives.
Round after round each rank has sent at most one message more than its successor has received, so
two slots suffice at any size as long as a step moves a single chunk, which all steps here do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from explorer.baselines.baseline import Baseline
from explorer.baselines.direct import Place, copy_own
from explorer.baselines.ring_exchange import exchange
from explorer.baselines.ring_order import ring_orders
from explorer.baselines.writer import Writer
from explorer.core.collective import Collective
from explorer.core.topology import Topology
from sim.program import Op

Steps = Iterator[tuple[Op, int]]
"""Ops and, in positions behind the own one, the owners of their chunks."""

Phase = Callable[[int], Steps]
"""Steps of one round on so many ranks."""


def _refuses(collective: Collective, topology: Topology) -> str | None:
    del collective, topology
    return None


def _write(writer: Writer, topology: Topology) -> None:
    kind, buffers = writer.collective, writer.buffers
    orders = ring_orders(topology, writer.channels)
    if kind.rooted:
        _chains(writer, orders)
        return
    if kind.name == "alltoall":
        exchange(writer, orders[0])
        return
    owned = {r: range(r * writer.per_rank, (r + 1) * writer.per_rank) for r in range(kind.ranks)}
    phases = {
        "allgather": gather_steps,
        "reducescatter": scatter_steps,
        "allreduce": reduce_steps,
    }
    go_round(writer, orders, owned, phases[kind.name], buffers.source, buffers.result)
    if kind.name == "allgather":
        copy_own(writer)


def gather_steps(ranks: int) -> Steps:
    """Steps of AllGather: the own chunk is sent, the others are passed on, the last one kept."""
    yield Op.SEND, 0
    for back in range(1, ranks - 1):
        yield Op.RECV_COPY_SEND, back
    yield Op.RECV, ranks - 1


def scatter_steps(ranks: int) -> Steps:
    """Steps of ReduceScatter: the sum for the predecessor starts here, the own one ends here."""
    yield Op.SEND, 1
    for back in range(2, ranks):
        yield Op.RECV_REDUCE_SEND, back
    yield Op.RECV_REDUCE_COPY, 0


def reduce_steps(ranks: int) -> Steps:
    """Steps of AllReduce: ReduceScatter and AllGather, fused where the one ends."""
    yield Op.SEND, 1
    for back in range(2, ranks):
        yield Op.RECV_REDUCE_SEND, back
    yield Op.RECV_REDUCE_COPY_SEND, 0
    for back in range(1, ranks - 1):
        yield Op.RECV_COPY_SEND, back
    yield Op.RECV, ranks - 1


def go_round(
    writer: Writer,
    orders: Sequence[Sequence[int]],
    owned: Mapping[int, Iterable[int]],
    phase: Phase,
    partial: Place,
    into: Place,
) -> None:
    """Send chunks round rings.

    Parameters
    ----------
    orders
        A ring for every channel; all of the same ranks.
    owned
        Chunks of every rank of the rings.
    phase
        Steps of a round.
    partial, into
        Where a rank has its part of a sum or its own chunk, and where results go.
    """
    lanes: list[dict[int, list[int]]] = [{r: [] for r in owned} for _ in range(writer.lanes)]
    for owner, chunks in owned.items():
        for chunk in chunks:
            lanes[writer.lane_of(chunk)][owner].append(chunk)
    for lane, chunks_of in enumerate(lanes):
        order = orders[lane % writer.channels]
        steps = list(phase(len(order)))
        for i, rank in enumerate(order):
            block = _block(writer, order, i, lane)
            for turn in range(max(map(len, chunks_of.values()))):
                for op, back in steps:
                    chunks = chunks_of[order[i - back]]
                    if turn < len(chunks):
                        _step(writer, rank, block, op, chunks[turn], partial, into)


def _chains(writer: Writer, orders: Sequence[Sequence[int]]) -> None:
    """Broadcast from the root once round the ring, or Reduce along it to the root."""
    kind, buffers = writer.collective, writer.buffers
    root = kind.root
    for chunk in range(kind.nchunks):
        lane = writer.lane_of(chunk)
        ring = orders[lane % writer.channels]
        at = ring.index(root)
        if kind.name == "broadcast":
            order = [*ring[at:], *ring[:at]]
            ops = (Op.SEND, Op.RECV_COPY_SEND, Op.RECV)
        else:
            order = [*ring[at + 1 :], *ring[: at + 1]]
            ops = (Op.SEND, Op.RECV_REDUCE_SEND, Op.RECV_REDUCE_COPY)
        for i, rank in enumerate(order):
            op = ops[0] if i == 0 else ops[1] if i < kind.ranks - 1 else ops[2]
            block = _block(writer, order, i, lane)
            _step(writer, rank, block, op, chunk, buffers.source, buffers.result)
    if kind.name == "broadcast":
        writer.copy(root, buffers.source(root, 0), buffers.result(root, 0), kind.nchunks)


def _block(writer: Writer, order: Sequence[int], i: int, lane: int) -> int:
    send, recv = order[(i + 1) % len(order)], order[i - 1]
    return writer.block(order[i], send=send, recv=recv, channel=lane)


def _step(
    writer: Writer, rank: int, block: int, op: Op, chunk: int, partial: Place, into: Place
) -> None:
    writer.step(rank, block, op, src=partial(rank, chunk), dst=into(rank, chunk))


RING = Baseline("ring", "rings along the widest links, fused steps, as NCCL's", _refuses, _write)
