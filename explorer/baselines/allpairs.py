"""All-pairs: every rank exchanges with every other one directly.

ReduceScatter receives all contributions side by side in scratch and adds them; AllReduce is
ReduceScatter and AllGather (the two-phase all-pairs of msccl-tools,
``examples/mscclang/allreduce_allpairs.py``). No step both receives and sends.
"""

from __future__ import annotations

from explorer.baselines.baseline import Baseline
from explorer.baselines.direct import collect, copy_own, rounds, runs_of, spread
from explorer.baselines.writer import Writer
from explorer.core.collective import Collective
from explorer.core.topology import Topology
from sim.program import Buffer


def _refuses(collective: Collective, topology: Topology) -> str | None:
    del collective, topology
    return None


def _write(writer: Writer, topology: Topology) -> None:
    del topology
    kind = writer.collective
    group = range(kind.ranks)
    parts = {r: runs_of([r], writer.per_rank) for r in group}
    if kind.name == "alltoall":
        _all_to_all(writer)
    elif kind.name == "broadcast":
        _broadcast(writer)
    elif kind.name == "reduce":
        _reduce(writer)
    else:
        buffers = writer.buffers
        if kind.reduces:
            collect(writer, group, parts, buffers.source, buffers.result)
        if kind.name != "reducescatter":
            spread(writer, group, parts)
        if kind.name == "allgather":
            copy_own(writer)


def _broadcast(writer: Writer) -> None:
    kind, buffers = writer.collective, writer.buffers
    root, count = kind.root, kind.nchunks
    for d in range(1, kind.ranks):
        peer = (root + d) % kind.ranks
        writer.move(root, peer, buffers.held(root, 0), buffers.result(peer, 0), count)
    writer.copy(root, buffers.source(root, 0), buffers.result(root, 0), count)


def _reduce(writer: Writer) -> None:
    kind, buffers = writer.collective, writer.buffers
    root, count = kind.root, kind.nchunks
    writer.copy(root, buffers.source(root, 0), buffers.result(root, 0), count)
    peers = [(root - d) % kind.ranks for d in range(1, kind.ranks)]
    slots = [(int(Buffer.SCRATCH), writer.scratch(root, count)) for _ in peers]
    for peer, slot in zip(peers, slots, strict=True):
        writer.move(peer, root, buffers.source(peer, 0), slot, count)
    writer.gather_sum(root, peers, slots, buffers.result(root, 0), count)


def _all_to_all(writer: Writer) -> None:
    """Exchange blocks; in place they land in scratch until the block they replace is sent."""
    kind, buffers = writer.collective, writer.buffers
    c = writer.per_rank
    landed = []
    for u, v in rounds(range(kind.ranks)):
        target = buffers.result(v, u * c)
        if writer.placement != "out":
            scratch = (int(Buffer.SCRATCH), writer.scratch(v, c))
            landed.append((u, v, scratch, target))
            target = scratch
        writer.move(u, v, buffers.source(u, v * c), target, c)
    for u, v, scratch, target in landed:
        writer.copy(v, scratch, target, c, recv=u)
    for r in range(kind.ranks):
        writer.copy(r, buffers.source(r, r * c), buffers.result(r, r * c), c)


ALLPAIRS = Baseline(
    "allpairs",
    "direct exchange between all pairs, one hop",
    _refuses,
    _write,
)
