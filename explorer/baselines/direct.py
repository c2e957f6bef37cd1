"""Direct exchange in a group of ranks: everybody sends to everybody, nothing is forwarded.

In round d rank i of the group talks to rank i + d, so that no two senders meet at one receiver.
A *run* is (first chunk, number of chunks), chunk ids that follow each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from explorer.baselines.buffers import Address
from explorer.baselines.writer import Writer
from sim.program import Buffer

Run = tuple[int, int]
Place = Callable[[int, int], Address]
"""Address of a chunk on a rank."""


def runs_of(owners: Sequence[int], per_rank: int) -> list[Run]:
    """Chunks of some owners as runs.

    Examples
    --------
    >>> runs_of([0, 1, 3], 2)
    [(0, 4), (6, 2)]
    """
    runs: list[Run] = []
    for owner in owners:
        chunk = owner * per_rank
        if runs and sum(runs[-1]) == chunk:
            runs[-1] = (runs[-1][0], runs[-1][1] + per_rank)
        else:
            runs.append((chunk, per_rank))
    return runs


def rounds(group: Sequence[int]) -> list[tuple[int, int]]:
    """Ordered pairs of a group, round by round.

    Examples
    --------
    >>> rounds([4, 5, 6])
    [(4, 5), (5, 6), (6, 4), (4, 6), (5, 4), (6, 5)]
    """
    n = len(group)
    return [(group[i], group[(i + d) % n]) for d in range(1, n) for i in range(n)]


def copy_own(writer: Writer) -> None:
    """Copy every rank's own chunks of AllGather from its input to its output."""
    buffers, count = writer.buffers, writer.per_rank
    for r in range(writer.collective.ranks):
        writer.copy(r, buffers.source(r, r * count), buffers.result(r, r * count), count)


def spread(writer: Writer, group: Sequence[int], parts: Mapping[int, Sequence[Run]]) -> None:
    """Give every rank of the group the runs of all others."""
    buffers = writer.buffers
    for u, v in rounds(group):
        for chunk, count in parts[u]:
            writer.move(u, v, buffers.held(u, chunk), buffers.result(v, chunk), count)


def collect(
    writer: Writer,
    group: Sequence[int],
    parts: Mapping[int, Sequence[Run]],
    partial: Place,
    into: Place,
) -> None:
    """Give every rank the sums over the group of its runs.

    Parameters
    ----------
    partial
        Where a rank has its part of a sum.
    into
        Where a rank adds up its runs; where that is not ``partial``, its own part is copied there.
    """
    slots: dict[tuple[int, int], int] = {}
    for v in group:
        size = sum(count for _, count in parts[v])
        for u in group:
            if u != v:
                slots[u, v] = writer.scratch(v, size)
        for chunk, count in parts[v]:
            writer.copy(v, partial(v, chunk), into(v, chunk), count)
    for u, v in rounds(group):
        at = slots[u, v]
        for chunk, count in parts[v]:
            writer.move(u, v, partial(u, chunk), (Buffer.SCRATCH, at), count)
            at += count
    n = len(group)
    for i, v in enumerate(group if n > 1 else ()):
        peers = [group[i - d] for d in range(1, n)]
        at = 0
        for chunk, count in parts[v]:
            where = [(int(Buffer.SCRATCH), slots[u, v] + at) for u in peers]
            writer.gather_sum(v, peers, where, into(v, chunk), count)
            at += count
