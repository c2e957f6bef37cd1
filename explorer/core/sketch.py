"""Sketch: what a person knows about a good algorithm, as restrictions on the search.

TACCL (NSDI'23), section 3: logical topology, switch-hyperedges, relays, symmetry, chunks.
Ranks in a sketch are local to a node (0 … GPUs per node - 1) and the same on every node.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from explorer.core.rank_graph import RankGraph
from explorer.errors import InputError, Problem

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
        ``relay`` (every node talks to every other) or ``round-robin``.
    time_limit_s, gap
        Solver limits the sketch asks for; None for the caller's.
    source
        File it was read from, for messages.
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
        If node sizes or counts do not fit the sketch, or it names a rank a node does not have, or
        some rank cannot reach another over the remaining edges; all problems at once.
    """
    problems = _shape_problems(graph, sketch)
    if problems:
        raise InputError(problems)
    per_node = _gpus_per_node(graph)
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
    kept = graph.subgraph(keep)
    unreachable = unreachable_ranks(kept)
    if unreachable:
        raise InputError(Problem(sketch.source or sketch.name, unreachable))
    return kept


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


def _gpus_per_node(graph: RankGraph) -> int:
    return int(np.bincount(graph.node_of).max())


def _shape_problems(graph: RankGraph, sketch: Sketch) -> list[Problem]:
    where = sketch.source or sketch.name
    counts = np.bincount(graph.node_of)
    counts = counts[counts > 0]
    if len(set(counts.tolist())) > 1 or np.any(np.diff(graph.node_of) < 0):
        return [
            Problem(
                where,
                f"nodes have {sorted(set(counts.tolist()))} GPUs; a sketch needs equal nodes with"
                " consecutive ranks",
            )
        ]
    problems = []
    if sketch.nodes is not None and sketch.nodes != len(counts):
        problems.append(
            Problem(
                f"{where}: nnodes",
                f"the sketch is for {sketch.nodes} nodes, the topology has {len(counts)}",
            )
        )
    per_node = int(counts[0])
    named = {
        "node_links": [r for pair in sketch.node_links or () for r in pair],
        "intranode_sketch.switches": [r for s in sketch.switches for r in s.ranks],
        "internode_sketch.internode_conn": [r for pair in sketch.senders or () for r in pair],
        "internode_sketch.gpus_to_sender_rev_map": list(sketch.relay_of or ()),
    }
    for key, ranks in named.items():
        problems += [
            Problem(
                f"{where}: {key}",
                f"local rank {rank} does not exist, a node has ranks 0-{per_node - 1}",
            )
            for rank in sorted(set(ranks))
            if not 0 <= rank < per_node
        ]
    if sketch.relay_of is not None and len(sketch.relay_of) != per_node:
        problems.append(
            Problem(
                f"{where}: internode_sketch.gpus_to_sender_rev_map",
                f"maps {len(sketch.relay_of)} of {per_node} local ranks",
            )
        )
    return problems
