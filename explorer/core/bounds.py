"""Lower bounds on the time of a collective, and what sets them.

Three arguments, of which the strongest counts. *Path*: data takes at least the alphas of the
quickest way to the rank that waits longest for it. *Cut*: what must enter or leave a GPU, a node
or another set of ranks goes over the links that join it to the rest. *Total*: every chunk is sent
a least number of times over all. They hold for switches, which do not copy, for routes over other
GPUs, and for both cost models: under ``exclusive`` a link is busy for at least one alpha before
its bytes, under ``pipelined`` the last bytes arrive alpha after it.

Without chunks of a given size (see ``whole_chunks``) data is divisible, so the bound is one of the
machine and holds however the buffer is cut.

References
----------
Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC
2009, for the 2(R-1) sends per chunk of an AllReduce.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from explorer.core.bottleneck import all_links_text, cut_text, path_text, total_text
from explorer.core.collective import Collective, Sizing, bandwidths_gbs
from explorer.core.costs import CostModel
from explorer.core.cuts import CutLink, EdgeCuts, MachineCuts
from explorer.core.distances import FloatArray, IntArray
from explorer.core.rank_graph import RankGraph
from explorer.core.rank_sets import Partition, partitions, rate_levels
from explorer.core.sketch import rank_ranges
from explorer.core.topology import Topology
from explorer.errors import InputError, Problem
from explorer.units import MIB

MAX_STARTS = 256
"""Ranks that all paths are measured from; on larger machines a sample, which is still a bound."""

MAX_PAIRED = 1024
"""Most ranks of an AllToAll whose pairs are all measured; beyond, that argument is left out."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What no algorithm can beat.

    Parameters
    ----------
    latency_us
        Time of the longest of the quickest paths that data must take.
    bandwidth_us
        Time that the narrowest cut, or all links together, need for the bytes.
    bound_us
        The strongest bound; it may exceed both, since data also has to get to a cut and on from
        it.
    bottleneck
        What sets it: path, port or cut, with its links and direction.
    algbw_gbs, busbw_gbs
        Bandwidths at ``bound_us``; None where there are no bytes or no time.
    """

    latency_us: float
    bandwidth_us: float
    bound_us: float
    bottleneck: str
    algbw_gbs: float | None
    busbw_gbs: float | None


def bounds(
    topology: Topology,
    collective: Collective,
    sizing: Sizing,
    cost_model: CostModel = CostModel.EXCLUSIVE,
    graph: RankGraph | None = None,
    *,
    whole_chunks: bool | None = None,
) -> Bound:
    """Bound the time of a collective from below.

    Parameters
    ----------
    topology
        The machine.
    collective, sizing
        What runs on it, and how many bytes.
    cost_model
        Makes a difference only where alphas add up on the way to a cut.
    graph
        Edges that may be used, for the bound of a sketch; any route when None.
    whole_chunks
        Count chunks of the collective's own size as indivisible; the bound then holds for this
        number of chunks only. Default: in a profile's own units, where a chunk is the unit.

    Raises
    ------
    InputError
        If some rank cannot get what it must; the ranks are named.

    Examples
    --------
    >>> from explorer.core.collective import sizing
    >>> from explorer.topologies.load import load_topology
    >>> ag = Collective("allgather", 4)
    >>> bound = bounds(load_topology("switch:4,1GB/s,0us"), ag, sizing(ag, 4000))
    >>> round(bound.bound_us, 9), bound.bottleneck
    (3.0, 'into gpu0: 3 of 4 chunks over switch0->gpu0 at 1 GB/s')
    """
    if collective.ranks != topology.ranks:
        raise ValueError(f"{collective.ranks} ranks in the collective, {topology.ranks} here")
    whole = sizing.size_bytes is None if whole_chunks is None else whole_chunks
    search = _Search(topology, collective, sizing, cost_model, graph, whole)
    if collective.ranks > 1:
        search.check_reachable()
    if collective.ranks < 2 or sizing.chunk_bytes == 0:
        return Bound(0.0, 0.0, 0.0, "nothing to move", None, None)
    search.run()
    algbw, busbw = bandwidths_gbs(collective, sizing.size_bytes, search.best)
    return Bound(search.latency, search.bandwidth, search.best, search.bottleneck, algbw, busbw)


class _Search:
    """Tries all arguments and keeps the strongest."""

    def __init__(
        self,
        topology: Topology,
        collective: Collective,
        sizing: Sizing,
        cost_model: CostModel,
        graph: RankGraph | None,
        whole: bool,
    ) -> None:
        self.topology = topology
        self.collective = collective
        self.whole = whole
        self.chunk = Fraction(sizing.chunk_bytes, MIB)
        chunk_mib = float(self.chunk) if whole else 0.0
        self.cuts: MachineCuts | EdgeCuts = (
            MachineCuts(topology, collective, cost_model)
            if graph is None
            else EdgeCuts(topology, graph, collective, chunk_mib)
        )
        self.latency = self.bandwidth = self.best = 0.0
        self.bottleneck = "nothing to move"

    def run(self) -> None:
        """Collect every argument, the simplest first: of equal ones the first is named."""
        self._path()
        every = partitions(self.topology)
        for partition in every:
            found = self._sets(partition)
            self._total(partition, found)
        if self.collective.name == "alltoall" and isinstance(self.cuts, MachineCuts):
            self._all_links(self.cuts)

    def check_reachable(self) -> None:
        """Refuse a machine on which some rank cannot get what it must."""
        name, root = self.collective.name, self.collective.root
        start = root if self.collective.rooted else 0
        for backward in (False, True):
            if name == ("reduce" if not backward else "broadcast"):
                continue
            reached = self.cuts.arcs.reached(start, backward=backward)
            if not reached.all():
                some = rank_ranges(np.flatnonzero(reached).tolist())
                rest = rank_ranges(np.flatnonzero(~reached).tolist())
                text = f"{rest} cannot reach {some}" if backward else f"{some} cannot reach {rest}"
                raise InputError(Problem(self.topology.name, f"ranks {text}"))

    def _offer(self, time_us: float, bottleneck: str) -> None:
        if time_us > self.best * (1 + 1e-12):
            self.best, self.bottleneck = time_us, bottleneck

    def _path(self) -> None:
        """Bound by the rank that is farthest from one whose data it needs."""
        ranks, rooted = self.collective.ranks, self.collective.rooted
        backward = self.collective.name == "reduce"
        starts = np.arange(ranks, dtype=np.int32)
        if rooted:
            starts = np.array([self.collective.root], dtype=np.int32)
        elif ranks > MAX_STARTS:
            starts = np.linspace(0, ranks - 1, MAX_STARTS // 8).astype(np.int32)
        times = self._way(starts, backward)
        if not rooted and ranks > MAX_STARTS:
            # The farthest from the farthest: on regular machines the farthest pair of all.
            starts = np.unique(times.argmax(axis=1)).astype(np.int32)
            times = self._way(starts, backward)
        row, rank = np.unravel_index(int(times.argmax()), times.shape)
        pair = (int(starts[row]), int(rank))
        self.latency = float(times[row, rank])
        self._offer(self.latency, path_text(pair[::-1] if backward else pair))

    def _way(self, starts: IntArray, backward: bool) -> FloatArray:
        """Least time from some ranks (backward: to them) to all, ``[len(starts), R]``."""
        arcs = self.cuts.arcs.reversed() if backward else self.cuts.arcs
        times = arcs.distances(self.cuts.alphas, starts)[:, arcs.rank_vertex]
        if self.whole and isinstance(self.cuts, MachineCuts):
            times += float(self.chunk) * _widest(self.topology)[starts]
            times[np.arange(len(starts)), starts] = 0.0
        return times

    def _sets(self, partition: Partition) -> list[tuple[list[CutLink], list[CutLink]]]:
        """Bound by what every set of a partition must get and give; returns their cuts."""
        found = []
        for part in partition.parts:
            both = []
            for inward in (True, False):
                cut = self.cuts.cut(part, inward)
                both.append(cut)
                chunks = _crossings(self.collective, part, inward)
                if not chunks:
                    continue
                time = float(self._fill(chunks, cut))
                head, tail = self.cuts.ends(part, inward, cut)
                self.bandwidth = max(self.bandwidth, time)
                time = head + time + tail
                if time > self.best:
                    what = (partition.what, part, inward, head + tail > 0)
                    total = self.collective.chunk_count
                    self._offer(time, cut_text(self.topology, *what, chunks, total, cut))
            found.append((both[0], both[1]))
        return found

    def _total(
        self, partition: Partition, found: list[tuple[list[CutLink], list[CutLink]]]
    ) -> None:
        """Bound by the sends between all sets of a partition together."""
        chunks = _sends(self.collective, partition.parts)
        for side, inward in ((0, True), (1, False)):
            links = [link for cuts in found for link in cuts[side]]
            time = float(self._fill(chunks, links))
            self.bandwidth = max(self.bandwidth, time)
            if links:
                self._offer(time, total_text(self.topology, partition.what, inward, chunks, links))

    def _all_links(self, cuts: MachineCuts) -> None:
        """Bound an AllToAll by the link time that all its chunks need on their quickest ways."""
        ranks = self.collective.ranks
        if ranks > MAX_PAIRED:
            return
        usable = int(cuts.usable().sum())
        starts = np.arange(ranks, dtype=np.int32)
        way = cuts.arcs.distances(cuts.betas, starts)[:, cuts.arcs.rank_vertex]
        chunk = float(self.chunk) * self.collective.chunks_per_rank
        time = float(way.sum()) * chunk / usable
        self.bandwidth = max(self.bandwidth, time)
        self._offer(time, all_links_text(usable))

    def _fill(self, chunks: int, links: Iterable[CutLink]) -> Fraction:
        """Least time in which so many chunks cross some links side by side."""
        classes = Counter((Fraction(k.alpha_us), Fraction(k.beta_us_per_mib)) for k in links)
        ways = sorted((a, b * self.chunk, count) for (a, b), count in classes.items())
        time = fill(chunks, ways)
        return fill_whole(chunks, ways, time) if self.whole else time


def fill(amount: int, ways: list[tuple[Fraction, Fraction, int]]) -> Fraction:
    """Time until an amount has arrived over ways that start at alpha and then take b per unit.

    Parameters
    ----------
    amount
        Units, at least 0.
    ways
        (alpha, b, how many of them), sorted by alpha.

    Returns
    -------
    Fraction
        The least T with sum of count * max(0, T - alpha) / b = amount; 0 without ways.

    Examples
    --------
    >>> fill(3, [(Fraction(0), Fraction(1), 1), (Fraction(1), Fraction(1), 1)])
    Fraction(2, 1)
    """
    rate = offset = time = Fraction(0)
    for i, (alpha, b, count) in enumerate(ways):
        rate += count / b
        offset += count * alpha / b
        time = (amount + offset) / rate
        if i + 1 < len(ways) and time <= ways[i + 1][0]:
            break
    return time


def fill_whole(amount: int, ways: list[tuple[Fraction, Fraction, int]], time: Fraction) -> Fraction:
    """As :func:`fill`, where a unit has arrived only as a whole; ``time`` is a lower bound.

    Examples
    --------
    >>> two = [(Fraction(0), Fraction(23), 2), (Fraction(0), Fraction(46), 2)]
    >>> fill_whole(7, two, fill(7, two))
    Fraction(69, 1)
    """
    while ways:
        open_ways = [(a, b, n) for a, b, n in ways if a <= time]
        arrived = sum(n * ((time - a) // b) for a, b, n in open_ways)
        if arrived >= amount:
            break
        time = min(a + (max(time - a, Fraction(0)) // b + 1) * b for a, b, _ in ways)
    return time


def _crossings(collective: Collective, part: tuple[int, ...], inward: bool) -> int:
    """Chunks that must at least enter a set, or leave it, as such or as one partial sum."""
    every, own = collective.nchunks, len(part) * collective.chunks_per_rank
    gathered, scattered = (every - own, own) if inward else (own, every - own)
    if collective.name == "allgather":
        return gathered
    if collective.name == "reducescatter":
        return scattered
    if collective.name == "allreduce":
        return every
    if collective.name == "alltoall":
        return own * (collective.ranks - len(part))
    starts_inside = collective.root in part
    return every if starts_inside == (inward == (collective.name == "reduce")) else 0


def _sends(collective: Collective, parts: tuple[tuple[int, ...], ...]) -> int:
    """Sends between sets that the collective needs at least, over all chunks."""
    if collective.name == "alltoall":
        return sum(_crossings(collective, part, True) for part in parts)
    rounds = 2 if collective.name == "allreduce" else 1
    return rounds * (len(parts) - 1) * collective.nchunks


def _widest(topology: Topology) -> FloatArray:
    """Beta of the widest way between any two ranks at least, were all links two-way, ``[R, R]``."""
    widest = np.full((topology.ranks, topology.ranks), np.inf)
    beta = 0.0
    for beta, labels in rate_levels(topology):
        label = np.array(labels)
        widest[(label[:, None] == label) & np.isinf(widest)] = beta
    widest[np.isinf(widest)] = beta
    return widest
