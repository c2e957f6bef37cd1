"""Cuts: through which links a set of ranks receives and sends, and at what cost at least.

Two views of a machine share this shape. :class:`MachineCuts` sees every physical link, whatever
route is taken; :class:`EdgeCuts` only the edges of a :class:`RankGraph`, which a sketch left over
and whose costs it may have changed.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from explorer.core.collective import Collective
from explorer.core.costs import CostModel
from explorer.core.distances import Arcs, FloatArray, IntArray
from explorer.core.min_cut import min_cut
from explorer.core.rank_graph import RankGraph, rank_graph
from explorer.core.topology import Topology

MAX_ROUTED = 512
"""Most ranks whose routes are all looked at; larger machines get the links' own costs."""


MAX_MEASURED = 256
"""Most ranks of a machine between all pairs of which alphas are added up."""

TIE = 1e-9
"""Share by which links are widened that should not be named where others limit as much."""


@dataclass(frozen=True, slots=True)
class CutLink:
    """A link in a cut.

    Parameters
    ----------
    link
        Index into the topology's links.
    alpha_us
        Least time before anything has arrived over it.
    beta_us_per_mib
        Least inverse bandwidth of what crosses it.
    """

    link: int
    alpha_us: float
    beta_us_per_mib: float


class MachineCuts:
    """Cuts through the physical links.

    Where every pair of ranks has its own route, messages take no other: a link then costs what
    the cheapest route over it costs. Else messages may be routed over GPUs in ways of their own,
    and a link costs what it is.

    Parameters
    ----------
    topology
        The machine.
    collective
        For a rooted one, nothing crosses a link before it came from the root, or goes on to it.
    cost_model
        Whether alphas of several messages overlap on a link.
    """

    def __init__(self, topology: Topology, collective: Collective, cost_model: CostModel) -> None:
        self.topology = topology
        self._collective = collective
        self._overlap = cost_model is CostModel.PIPELINED
        links = topology.links
        self.arcs = Arcs(
            len(topology.devices),
            np.array([k.src for k in links], dtype=np.int32),
            np.array([k.dst for k in links], dtype=np.int32),
            np.array(topology.gpus, dtype=np.int32),
        )
        self.alphas = np.array([k.alpha_us for k in links], dtype=np.float64)
        self.betas = np.array([k.beta_us_per_mib for k in links], dtype=np.float64)
        self._into: list[list[int]] = [[] for _ in topology.devices]
        for i, link in enumerate(links):
            self._into[link.dst].append(i)
        self._before = self._nearest(backward=False)
        self._after = self._nearest(backward=True)
        self._routed = _routed_costs(topology)
        self._from_root = self._to_root = np.zeros(len(topology.devices))
        root = np.array([collective.root], dtype=np.int32)
        if collective.name == "broadcast":
            self._from_root = self.arcs.distances(self.alphas, root)[0]
        elif collective.name == "reduce":
            self._to_root = self.arcs.reversed().distances(self.alphas, root)[0]

    def usable(self) -> npt.NDArray[np.bool_]:
        """Whether each link can carry anything from a GPU to a GPU, bool ``[links]``."""
        if self._routed is not None:
            return np.isfinite(self._routed[1])
        ends = zip(self.arcs.src.tolist(), self.arcs.dst.tolist(), strict=True)
        return np.array([bool(self._before[a] and self._after[b]) for a, b in ends], np.bool_)

    def cut(self, ranks: Sequence[int], inward: bool) -> list[CutLink]:
        """Links of a narrow cut between a set and the rest: a GPU's ports, or a minimum cut."""
        gpus = self.topology.gpus
        if len(ranks) == 1:
            gpu = gpus[ranks[0]]
            ports = self._into[gpu] if inward else self.topology.out_links(gpu)
            found = [self._cut_link(i, besides=gpu) for i in ports]
        else:
            found = [self._cut_link(i) for i in self._min_cut(ranks, inward)]
        return [link for link in found if math.isfinite(link.alpha_us)]

    def ends(
        self, ranks: Sequence[int], inward: bool, cut: Sequence[CutLink]
    ) -> tuple[float, float]:
        """Time before the first useful crossing and after the last one; see :func:`_ends`.

        Known where the links of the cut end at GPUs; over switches a message may come from and
        go to any rank. Alphas only, since a route over GPUs does not store what it passes. Under
        ``pipelined`` the alphas before the crossing overlap with other messages and do not count.
        """
        topology = self.topology
        if topology.ranks > MAX_MEASURED:
            return 0.0, 0.0
        exits = [topology.rank_of(int(self.arcs.src[k.link])) for k in cut]
        entries = [topology.rank_of(int(self.arcs.dst[k.link])) for k in cut]
        name = self._collective.name
        if self._overlap or name == "broadcast":  # the way from the root is in the cut's alphas
            exits = [-1]
        if name == "reduce":
            entries = [-1]
        return _ends(self._collective, self._distance, ranks, inward, exits, entries)

    @cached_property
    def _distance(self) -> FloatArray:
        every = np.arange(self.topology.ranks, dtype=np.int32)
        return self.arcs.distances(self.alphas, every)[:, self.arcs.rank_vertex]

    def _cut_link(self, i: int, besides: int = -1) -> CutLink:
        """Cost of a link; data of the GPU ``besides`` itself does not come in at its ports."""
        src, dst = int(self.arcs.src[i]), int(self.arcs.dst[i])
        before = 0.0 if src == besides else self._alpha(self._before[src], besides)
        after = 0.0 if dst == besides else self._alpha(self._after[dst], besides)
        before = max(before, float(self._from_root[src]))
        after = max(after, float(self._to_root[dst]))
        alpha, beta = before + float(self.alphas[i]) + after, float(self.betas[i])
        if self._routed is not None:
            alpha, beta = max(alpha, float(self._routed[0][i])), float(self._routed[1][i])
        return CutLink(i, alpha, beta)

    @staticmethod
    def _alpha(nearest: list[tuple[float, int]], besides: int) -> float:
        return min((alpha for alpha, gpu in nearest if gpu != besides), default=math.inf)

    def _min_cut(self, ranks: Sequence[int], inward: bool) -> list[int]:
        """Minimum cut among the devices of the set's nodes and the network; all else is one."""
        topology = self.topology
        own = {topology.gpus[rank] for rank in ranks}
        nodes = {topology.devices[gpu].node for gpu in own} | {-1}
        inside, outside = 0, 1
        vertex = [
            (inside if i in own else outside)
            if device.kind == "gpu" or device.node not in nodes
            else 2 + i
            for i, device in enumerate(topology.devices)
        ]
        betas = self.betas if self._routed is None else self._routed[1]
        arcs, names = [], []
        for i in np.flatnonzero(self.usable()).tolist():
            a, b = vertex[self.arcs.src[i]], vertex[self.arcs.dst[i]]
            if a != b:
                # Of equally narrow cuts the one through links that are narrow themselves, and
                # through the network, says best what limits.
                odd = (self.betas[i] < betas[i]) + (topology.links[i].kind != "network")
                arcs.append((a, b, (1.0 + TIE * odd) / float(betas[i])))
                names.append(i)
        ends = (outside, inside) if inward else (inside, outside)
        found = min_cut(2 + len(topology.devices), arcs, *ends, near_sink=inward)
        return [names[i] for i in found]

    def _nearest(self, *, backward: bool) -> list[list[tuple[float, int]]]:
        """For every device the two GPUs, at most, nearest by alpha with no GPU between.

        Forward, GPUs whose data reaches the device; backward, GPUs that the device reaches. A GPU
        is its own nearest and only one.
        """
        topology = self.topology
        found: list[list[tuple[float, int]]] = [[] for _ in topology.devices]
        heap = [(0.0, gpu, gpu) for gpu in topology.gpus]
        while heap:
            alpha, gpu, device = heapq.heappop(heap)
            labels = found[device]
            known = len(labels) == 2 or any(other == gpu for _, other in labels)
            if known or (topology.devices[device].kind == "gpu" and device != gpu):
                continue
            labels.append((alpha, gpu))
            for i in self._into[device] if backward else topology.out_links(device):
                end = self.arcs.src[i] if backward else self.arcs.dst[i]
                heapq.heappush(heap, (alpha + float(self.alphas[i]), gpu, int(end)))
        return found


def _routed_costs(topology: Topology) -> tuple[FloatArray, FloatArray] | None:
    """Least alpha and beta of the routes over every link, infinite where there is none.

    None where some pair has no route of its own, or there are too many to look at.
    """
    if topology.ranks > MAX_ROUTED:
        return None
    graph = rank_graph(topology)
    if graph.edges < topology.ranks * (topology.ranks - 1):
        return None
    counts = np.diff(graph.resource_first)
    costs = []
    for values in (graph.alpha_us, graph.beta_us_per_mib):
        least = np.full(len(topology.links), np.inf)
        np.minimum.at(least, graph.resource, np.repeat(values, counts))
        costs.append(least)
    return costs[0], costs[1]


class EdgeCuts:
    """Cuts through the edges of a graph.

    Parameters
    ----------
    topology
        The machine whose links are the graph's resources.
    graph
        Edges that may be used.
    collective
        Decides what the ends of a cut cost.
    chunk_mib
        Size of a chunk where chunks travel whole, else 0.
    """

    def __init__(
        self, topology: Topology, graph: RankGraph, collective: Collective, chunk_mib: float
    ) -> None:
        if graph.resources != topology.link_names:
            raise ValueError("the graph's resources are not the topology's links")
        self.topology = topology
        self.graph = graph
        self._collective = collective
        self.arcs = Arcs(graph.ranks, graph.src, graph.dst, np.arange(graph.ranks, dtype=np.int32))
        self.alphas = graph.alpha_us + chunk_mib * graph.beta_us_per_mib
        self._by_dst = np.argsort(graph.dst, kind="stable")
        every = np.arange(graph.ranks, dtype=np.int32)
        self._distance = self.arcs.distances(self.alphas, every)

    def cut(self, ranks: Sequence[int], inward: bool) -> list[CutLink]:
        """Links of a narrow cut between a set and the rest: ports of a GPU, or a minimum cut."""
        edges = self._crossing(ranks, inward)
        first = self.graph.resource_first
        if len(ranks) == 1:
            resource = self.graph.resource[first[edges + 1] - 1 if inward else first[edges]]
            return self._cut_links(resource, edges)
        held = [self.graph.resources_of(int(e)) for e in edges]
        counts = [len(h) for h in held]
        every = self._cut_links(
            np.concatenate(held) if held else np.zeros(0, np.int32), np.repeat(edges, counts)
        )
        own = {self.topology.gpus[rank] for rank in ranks}
        inside, outside = 0, 1
        arcs = []
        for cut_link in every:
            link = self.topology.links[cut_link.link]
            ends = [
                2 + end
                if self.topology.devices[end].kind != "gpu"
                else (inside if end in own else outside)
                for end in (link.src, link.dst)
            ]
            arcs.append((ends[0], ends[1], 1.0 / cut_link.beta_us_per_mib))
        between = (outside, inside) if inward else (inside, outside)
        found = min_cut(2 + len(self.topology.devices), arcs, *between, near_sink=inward)
        return [every[i] for i in found]

    def ends(
        self, ranks: Sequence[int], inward: bool, cut: Sequence[CutLink]
    ) -> tuple[float, float]:
        """Time before the first useful crossing and after the last one; see :func:`_ends`."""
        del cut
        edges = self._crossing(ranks, inward)
        exits, entries = (
            np.unique(end[edges]).tolist() for end in (self.graph.src, self.graph.dst)
        )
        return _ends(self._collective, self._distance, ranks, inward, exits, entries)

    def _crossing(self, ranks: Sequence[int], inward: bool) -> IntArray:
        """Edges that enter or leave a set, int32."""
        graph = self.graph
        if len(ranks) == 1:
            rank = ranks[0]
            if inward:
                low, high = np.searchsorted(graph.dst[self._by_dst], (rank, rank + 1))
                return self._by_dst[low:high].astype(np.int32)
            low, high = np.searchsorted(graph.src, (rank, rank + 1))
            return np.arange(low, high, dtype=np.int32)
        own = np.zeros(graph.ranks, dtype=np.bool_)
        own[list(ranks)] = True
        sends, gets = own[graph.src], own[graph.dst]
        return np.flatnonzero(gets & ~sends if inward else sends & ~gets).astype(np.int32)

    def _cut_links(self, resource: IntArray, edges: IntArray) -> list[CutLink]:
        """Least costs of every resource over the edges that hold it, sorted by resource."""
        links, index = np.unique(resource, return_inverse=True)
        costs: list[FloatArray] = []
        for values in (self.graph.alpha_us, self.graph.beta_us_per_mib):
            least = np.full(len(links), np.inf)
            np.minimum.at(least, index, values[edges])
            costs.append(least)
        return [
            CutLink(int(link), float(alpha), float(beta))
            for link, alpha, beta in zip(links, *costs, strict=True)
        ]


def _ends(
    collective: Collective,
    distance: FloatArray,
    ranks: Sequence[int],
    inward: bool,
    exits: Sequence[int],
    entries: Sequence[int],
) -> tuple[float, float]:
    """Time before the first useful crossing of a cut and after the last one.

    What reduces must first come from the farthest rank on the sending side: no message that has
    its contribution leaves before. What is gathered must then reach the farthest rank on the
    receiving side: the chunk whose first arrival is the last has not come in before.

    Parameters
    ----------
    distance
        float64 ``[R, R]``.
    ranks, inward
        The set, and whether it receives.
    exits, entries
        Ranks at the two ends of the cut; -1 stands for any.
    """
    own = np.zeros(len(distance), dtype=np.bool_)
    own[list(ranks)] = True
    senders, receivers = (~own, own) if inward else (own, ~own)
    head = tail = 0.0
    if min(exits, default=-1) >= 0 and collective.name not in ("allgather", "alltoall"):
        leave = distance[:, exits].min(axis=1)
        head = float(leave[collective.root if collective.name == "broadcast" else senders].max())
    if min(entries, default=-1) >= 0 and collective.name not in ("reducescatter", "alltoall"):
        arrive = distance[entries].min(axis=0)
        tail = float(arrive[collective.root if collective.name == "reduce" else receivers].max())
    return head, tail
