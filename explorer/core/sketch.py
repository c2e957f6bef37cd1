"""Sketch: what a person knows about a good algorithm, as restrictions on the search.

TACCL (NSDI'23), section 3: logical topology, switch-hyperedges, relays, symmetry, chunks.
Ranks in a sketch are local to a node (0 … GPUs per node - 1) and the same on every node.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from explorer.core.rank_graph import RankGraph
from explorer.core.sketch_clashes import clashes
from explorer.errors import InputError, Problem

_TACCL_KEYS = {
    "nodes": "nnodes",
    "node_links": "intranode_sketch",
    "switches": "intranode_sketch.switches",
    "senders": "internode_sketch.internode_conn",
    "relay": "internode_sketch.gpus_to_sender_rev_map",
    "symmetry": "symmetry_offsets",
    "multi_node": "internode_sketch.strategy",
}

HYPEREDGE_POLICIES = ("uc-min", "uc-max", "free")
"""How many of a switch's links to use: as few (``uc-min``) or as many (``uc-max``) as possible."""


@dataclass(frozen=True, slots=True)
class SwitchGroup:
    """GPUs on one switch and the policy for the links over it.

    Parameters
    ----------
    ranks
        Local ranks.
    policy
        One of :data:`HYPEREDGE_POLICIES`.
    """

    ranks: tuple[int, ...]
    policy: str = "free"


@dataclass(frozen=True, slots=True)
class Sketch:
    """A communication sketch.

    Parameters
    ----------
    name
        Built-in name or file stem.
    nodes
        Node count it is made for; None for any.
    node_links
        Local (src, dst) pairs that may be used inside a node; None for all.
    switches
        Switches inside a node with their policies; pairs that share a switch may talk, other
        pairs as ``node_links`` says.
    senders
        Local (sender, receiver) pairs that may talk between nodes: sender on one node, receiver
        on another; None for all pairs, empty for none.
    relay_of
        For every local rank the local sender its chunks leave the node through; None when free.
    enforce_ordering
        Chunks leave a sender in the order of their owners.
    symmetry
        (offset, span) pairs: ranks of each block of ``span`` ranks are rotated by ``offset``;
        TACCL's ``symmetry_offsets``.
    chunks_per_rank
        Chunks per rank; None when the caller decides.
    multi_node
        ``relay`` (every node talks to every other) or ``round-robin`` (every node talks to the next
        one, the last to the first).
    time_limit_s, gap
        Solver limits the sketch asks for; None for the caller's.
    source
        File it was read from, for messages.
    taccl
        Whether that is TACCL's JSON, whose keys messages then name.
    """

    name: str
    nodes: int | None = None
    node_links: tuple[tuple[int, int], ...] | None = None
    switches: tuple[SwitchGroup, ...] = ()
    senders: tuple[tuple[int, int], ...] | None = None
    relay_of: tuple[int, ...] | None = None
    enforce_ordering: bool = False
    symmetry: tuple[tuple[int, int], ...] = ()
    chunks_per_rank: int | None = None
    multi_node: str = "relay"
    time_limit_s: float | None = None
    gap: float | None = None
    source: str = ""
    taccl: bool = False

    def where(self, item: str) -> str:
        """Key path of an item in the file the sketch was read from."""
        key = _TACCL_KEYS[item] if self.taccl else item
        return f"{self.source or self.name}: {key}"


def apply_sketch(graph: RankGraph, sketch: Sketch) -> RankGraph:
    """Keep the edges a sketch allows.

    Parameters
    ----------
    graph
        All direct edges; every node must have the same number of ranks in consecutive order.
    sketch
        The restrictions.

    Raises
    ------
    InputError
        If node sizes or counts do not fit the sketch, or it names a rank a node does not have or a
        link that the machine does not have, or its items contradict each other; all problems at
        once. If some rank cannot reach another over the remaining edges.
    """
    problems = _shape_problems(graph, sketch) or clashes(graph, sketch)
    if problems:
        raise InputError(problems)
    per_node = gpus_per_node(graph)
    local_src, local_dst = graph.src % per_node, graph.dst % per_node
    inter = graph.inter_node
    allowed = np.ones((per_node, per_node), dtype=np.bool_)
    if sketch.node_links is not None:
        allowed[:] = False
        for src, dst in sketch.node_links:
            allowed[src, dst] = True
        for switch in sketch.switches:
            allowed[np.ix_(switch.ranks, switch.ranks)] = True
    crossing = np.full((per_node, per_node), sketch.senders is None, dtype=np.bool_)
    for src, dst in sketch.senders or ():
        crossing[src, dst] = True
    keep = np.where(inter, crossing[local_src, local_dst], allowed[local_src, local_dst])
    if sketch.multi_node == "round-robin":
        ahead = (graph.dst // per_node - graph.src // per_node) % (graph.ranks // per_node)
        keep &= ~inter | (ahead == 1)
    kept = graph.subgraph(keep)
    unreachable = unreachable_ranks(kept)
    if unreachable:
        raise InputError(Problem(_cutting_item(kept, sketch), unreachable))
    return kept


def _cutting_item(graph: RankGraph, sketch: Sketch) -> str:
    """Key path of the item that leaves ranks unreachable: in a node, or between them."""
    per_node = gpus_per_node(graph)
    inside = ~graph.inter_node
    node = graph.src // per_node
    for k in range(graph.ranks // per_node):
        of_node = inside & (node == k)
        ways = set(zip(graph.src[of_node].tolist(), graph.dst[of_node].tolist(), strict=True))
        for turned in (ways, {(b, a) for a, b in ways}):
            out: list[list[int]] = [[] for _ in range(graph.ranks)]
            for a, b in sorted(turned):
                out[a].append(b)
            if len(_reach(out, k * per_node)) < per_node:
                return sketch.where("switches" if sketch.switches else "node_links")
    return sketch.where("senders")


def unreachable_ranks(graph: RankGraph) -> str:
    """Say which ranks cannot reach which, or return an empty text."""
    out: list[list[int]] = [[] for _ in range(graph.ranks)]
    into: list[list[int]] = [[] for _ in range(graph.ranks)]
    for src, dst in zip(graph.src.tolist(), graph.dst.tolist(), strict=True):
        out[src].append(dst)
        into[dst].append(src)
    ahead = _reach(out, 0)
    if len(ahead) < graph.ranks:
        rest = sorted(set(range(graph.ranks)) - ahead)
        return f"ranks {rank_ranges(sorted(ahead))} cannot reach {rank_ranges(rest)}"
    behind = _reach(into, 0)
    if len(behind) < graph.ranks:
        rest = sorted(set(range(graph.ranks)) - behind)
        return f"ranks {rank_ranges(rest)} cannot reach {rank_ranges(sorted(behind))}"
    return ""


def rank_ranges(ranks: list[int]) -> str:
    """Write sorted ranks as ranges.

    Examples
    --------
    >>> rank_ranges([0, 1, 2, 5])
    '0-2, 5'
    """
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and parts[-1][-1] == rank - 1:
            parts[-1].append(rank)
        else:
            parts.append([rank])
    return ", ".join(f"{p[0]}-{p[-1]}" if len(p) > 1 else str(p[0]) for p in parts)


def _reach(neighbours: list[list[int]], start: int) -> set[int]:
    seen = {start}
    stack = [start]
    while stack:
        for other in neighbours[stack.pop()]:
            if other not in seen:
                seen.add(other)
                stack.append(other)
    return seen


def gpus_per_node(graph: RankGraph) -> int:
    """Most ranks that a node has."""
    return int(np.bincount(graph.node_of).max())


def _shape_problems(graph: RankGraph, sketch: Sketch) -> list[Problem]:
    counts = np.bincount(graph.node_of)
    counts = counts[counts > 0]
    if len(set(counts.tolist())) > 1 or np.any(np.diff(graph.node_of) < 0):
        return [
            Problem(
                sketch.source or sketch.name,
                f"nodes have {sorted(set(counts.tolist()))} GPUs; a sketch needs equal nodes with"
                " consecutive ranks",
            )
        ]
    problems = []
    if sketch.nodes is not None and sketch.nodes != len(counts):
        problems.append(
            Problem(
                sketch.where("nodes"),
                f"the sketch is for {sketch.nodes} nodes, the topology has {len(counts)}",
            )
        )
    per_node = int(counts[0])
    named = {
        "node_links": [r for pair in sketch.node_links or () for r in pair],
        "switches": [r for s in sketch.switches for r in s.ranks],
        "senders": [r for pair in sketch.senders or () for r in pair],
        "relay": list(sketch.relay_of or ()),
    }
    for item, ranks in named.items():
        problems += [
            Problem(
                sketch.where(item),
                f"local rank {rank} does not exist, a node has ranks 0-{per_node - 1}",
            )
            for rank in sorted(set(ranks))
            if not 0 <= rank < per_node
        ]
    if sketch.relay_of is not None and len(sketch.relay_of) != per_node:
        problems.append(
            Problem(sketch.where("relay"), f"maps {len(sketch.relay_of)} of {per_node} local ranks")
        )
    return problems
