"""RankGraph: which rank can send to which directly, at what cost, holding which resources.

This is what synthesizers and bounds see: the topology's switch-only routes between GPUs, or the
part of them that a sketch allows. Arrays, sorted by (src, dst).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from explorer.core.topology import Topology


@dataclass(frozen=True, slots=True, eq=False)
class RankGraph:
    """Directed edges between ranks.

    Parameters
    ----------
    ranks
        Number of ranks R.
    node_of
        int32 ``[R]``: node of each rank.
    src, dst
        int32 ``[E]``: the edges, sorted by (src, dst), no pair twice.
    alpha_us, beta_us_per_mib
        float64 ``[E]``: cost of a message is alpha + MiB * beta.
    resource_first, resource
        int64 ``[E+1]`` and int32: edge e holds the resources
        ``resource[resource_first[e]:resource_first[e+1]]``, indices into ``resources``.
    resources
        Names.
    """

    ranks: int
    node_of: npt.NDArray[np.int32]
    src: npt.NDArray[np.int32]
    dst: npt.NDArray[np.int32]
    alpha_us: npt.NDArray[np.float64]
    beta_us_per_mib: npt.NDArray[np.float64]
    resource_first: npt.NDArray[np.int64]
    resource: npt.NDArray[np.int32]
    resources: tuple[str, ...]

    @property
    def edges(self) -> int:
        """Number of edges E."""
        return len(self.src)

    @property
    def inter_node(self) -> npt.NDArray[np.bool_]:
        """Whether each edge leaves its node, bool ``[E]``."""
        return np.not_equal(self.node_of[self.src], self.node_of[self.dst])

    def edge_index(self) -> npt.NDArray[np.int32]:
        """Edge of every rank pair, int32 ``[R, R]``, -1 where there is none."""
        table = np.full((self.ranks, self.ranks), -1, dtype=np.int32)
        table[self.src, self.dst] = np.arange(self.edges, dtype=np.int32)
        return table

    def resources_of(self, edge: int) -> npt.NDArray[np.int32]:
        """Resources that edge holds."""
        return self.resource[self.resource_first[edge] : self.resource_first[edge + 1]]

    def subgraph(self, keep: npt.NDArray[np.bool_]) -> RankGraph:
        """The edges where ``keep`` (bool ``[E]``) is true."""
        chosen = np.flatnonzero(keep)
        counts = np.diff(self.resource_first)[chosen]
        parts = [self.resources_of(int(e)) for e in chosen]
        return RankGraph(
            self.ranks,
            self.node_of,
            self.src[chosen],
            self.dst[chosen],
            self.alpha_us[chosen],
            self.beta_us_per_mib[chosen],
            np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
            np.concatenate(parts) if parts else np.zeros(0, np.int32),
            self.resources,
        )


def rank_graph(topology: Topology, pairs: Iterable[tuple[int, int]] | None = None) -> RankGraph:
    """Edges of a topology: every rank pair that switches alone connect.

    Parameters
    ----------
    topology
        The machine.
    pairs
        Only these (src, dst) pairs, which may then also be routed over other GPUs; all direct
        pairs when None.
    """
    if pairs is None:
        routes = [
            route
            for src in range(topology.ranks)
            for _, route in sorted(topology.routes_from(src).items())
        ]
    else:
        found = [topology.route(src, dst) for src, dst in sorted(set(pairs))]
        routes = [route for route in found if route is not None]
    counts = [len(r.links) for r in routes]
    return RankGraph(
        topology.ranks,
        topology.node_of,
        np.array([r.src for r in routes], dtype=np.int32),
        np.array([r.dst for r in routes], dtype=np.int32),
        np.array([r.alpha_us for r in routes], dtype=np.float64),
        np.array([r.beta_us_per_mib for r in routes], dtype=np.float64),
        np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        np.array([i for r in routes for i in r.links], dtype=np.int32),
        topology.link_names,
    )
