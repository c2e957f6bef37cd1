"""Clashes: items of a sketch that contradict the machine or each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from explorer.core.rank_graph import RankGraph
from explorer.errors import Problem

if TYPE_CHECKING:
    from explorer.core.sketch import Sketch

NAMED = 4
"""Pairs that a message names."""

Pair = tuple[int, int]


def clashes(graph: RankGraph, sketch: Sketch) -> list[Problem]:
    """Find what a sketch names and the machine does not have, and items that exclude each other.

    Parameters
    ----------
    graph
        All direct edges; nodes of equal size with consecutive ranks, which are those of the sketch.

    Returns
    -------
    list
        Each at the key path of an item, with the ranks or links it clashes with.
    """
    per_node = int(np.bincount(graph.node_of).max())
    inter = graph.inter_node
    inside, between = (
        set(
            zip((graph.src[k] % per_node).tolist(), (graph.dst[k] % per_node).tolist(), strict=True)
        )
        for k in (~inter, inter)
    )
    found = [*_missing_inside(sketch, inside), *_policies(sketch)]
    if graph.ranks > per_node:
        found += _missing_between(sketch, between)
    return found + list(_asymmetric(sketch, graph.ranks, per_node))


def _missing_inside(sketch: Sketch, inside: set[Pair]) -> Iterator[Problem]:
    missing = [p for p in sketch.node_links or () if p not in inside and p[::-1] not in inside]
    if missing:
        text = _named({(min(p), max(p)) for p in missing}, "and")
        yield Problem(sketch.where("node_links"), f"no link inside a node joins {text}")
    for i, switch in enumerate(sketch.switches):
        where = f"{sketch.where('switches')}[{i}]"
        members = sorted(set(switch.ranks))
        if len(members) < len(switch.ranks):
            twice = sorted(r for r in members if switch.ranks.count(r) > 1)
            yield Problem(where, f"names local ranks {_listed(twice)} more than once")
        if len(members) < 2:
            yield Problem(
                where, f"joins {_listed(members) or 'nothing'}, expected two ranks or more"
            )
        apart = [p for p in combinations(members, 2) if not {p, p[::-1]} & inside]
        if apart:
            text = _named(apart, "and")
            yield Problem(where, f"no link or switch inside a node joins {text}")


def _missing_between(sketch: Sketch, between: set[Pair]) -> Iterator[Problem]:
    missing = [p for p in sketch.senders or () if p not in between]
    if missing:
        text = _named(missing, "to")
        yield Problem(sketch.where("senders"), f"no link goes between nodes from {text}")


def _policies(sketch: Sketch) -> Iterator[Problem]:
    """Pairs whose links one switch shall use as much and another as little as possible."""
    for (i, one), (j, other) in combinations(enumerate(sketch.switches), 2):
        both = sorted(set(one.ranks) & set(other.ranks))
        if len(both) > 1 and one.policy != other.policy:
            key = sketch.where("switches")
            text = f"policy {other.policy} for ranks {_listed(both)}, {one.policy} in switches[{i}]"
            yield Problem(f"{key}[{j}]", text)


def _asymmetric(sketch: Sketch, ranks: int, per_node: int) -> Iterator[Problem]:
    """Symmetries that do not map relays to relays and switches to switches of their policy."""
    rank = np.arange(ranks)
    policy = _policy_of(sketch, per_node)
    for index, (offset, span) in enumerate(sketch.symmetry):
        if ranks % span:
            continue
        image = rank // span * span + (rank % span + offset) % span
        where = f"{sketch.where('symmetry')}[{index}]"
        if sketch.relay_of is not None and ranks > per_node:
            relay = rank // per_node * per_node + np.asarray(sketch.relay_of)[rank % per_node]
            wrong = np.flatnonzero(image[relay] != relay[image])
            if len(wrong):
                a = int(wrong[0])
                yield Problem(
                    where,
                    f"takes rank {a}, whose chunks leave through {relay[a]}, to rank {image[a]},"
                    f" whose chunks leave through {relay[image[a]]} and not {image[relay[a]]},"
                    f" by {sketch.where('relay').rsplit(': ', maxsplit=1)[-1]}",
                )
        pairs = np.argwhere(policy >= 0) if policy.size else np.zeros((0, 2), dtype=np.int64)
        for a, b in pairs.tolist():
            # the images of the first node tell: a symmetry of the links repeats on the others
            c, d = int(image[a]), int(image[b])
            if (
                c // per_node == d // per_node
                and policy[c % per_node, d % per_node] != policy[a, b]
            ):
                yield Problem(
                    where,
                    f"takes the switch of ranks {a} and {b} to ranks {c} and {d}, which have none"
                    f" of its policy in {sketch.where('switches').rsplit(': ', maxsplit=1)[-1]}",
                )
                break


def _policy_of(sketch: Sketch, per_node: int) -> npt.NDArray[np.int64]:
    """Number of the policy of each local pair, -1 where no switch joins it."""
    words = sorted({switch.policy for switch in sketch.switches})
    found = np.full((per_node, per_node), -1, dtype=np.int64)
    for switch in sketch.switches:
        found[np.ix_(switch.ranks, switch.ranks)] = words.index(switch.policy)
    np.fill_diagonal(found, -1)
    return found


def _named(pairs: Iterable[Pair], word: str) -> str:
    """Name some pairs of local ranks.

    Examples
    --------
    >>> _named([(0, 5), (1, 4)], "and")
    'local ranks 0 and 5, 1 and 4'
    """
    listed = sorted(pairs)
    text = ", ".join(f"{a} {word} {b}" for a, b in listed[:NAMED])
    more = f" ({len(listed) - NAMED} more pairs)" if len(listed) > NAMED else ""
    return f"local ranks {text}{more}"


def _listed(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks))
