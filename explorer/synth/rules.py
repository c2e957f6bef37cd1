"""Rules: how chunks and edges compete for a start in list scheduling."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from explorer.synth.kernel_types import Options, Weights

ALL = 1 << 30
"""No cap."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One priority rule.

    Chunks on an edge compete by ``tail`` (urgency), few ``copies`` in the receiver's node, ``own``
    (the sender's own chunks leave the node first) and ``noise``; edges by their best chunk, the
    receiver's ``need``, the ``size`` of the message, low ``cost`` and ``inter`` (edges between
    nodes first). These are weights of values up to 1.

    Parameters
    ----------
    take_fraction
        Part of the waiting chunks that one message takes, where messages cost latency.
    take_cap, inside_cap
        Most chunks of a message between nodes and inside one.
    reserve
        Chunks kept for the last message of a sender between nodes, so that the last thing to
        arrive is short.
    reserve_last_hops
        Keep the chunks that end at the receiver for the last message instead.
    wait_for
        Chunks to wait for before a message between nodes starts, unless fewer are left.
    own_events
        Start a send only when its rank has just finished a send or receive: such schedules
        survive as programs, which can wait for nothing else.
    refuse
        Leave a chunk to another edge that could bring it sooner.
    """

    tail: float = 100.0
    copies: float = 3.0
    need: float = 1.0
    size: float = 0.0
    cost: float = 1.0
    noise: float = 0.1
    own: float = 50.0
    inter: float = 200.0
    take_fraction: float = 1.0
    take_cap: int = ALL
    inside_cap: int = 1
    reserve: int = 1
    reserve_last_hops: bool = False
    wait_for: int = 1
    own_events: bool = False
    refuse: bool = True

    def weights(self, chunks: int, per_node: int) -> Weights:
        """Weights for the kernel, whose copies, needs and sizes are counts."""
        return Weights(
            self.tail,
            self.copies / per_node,
            self.need / chunks,
            self.size / chunks,
            self.cost,
            self.noise,
            self.own,
            self.inter,
        )

    def options(self, entries: int, seed: int, *, refuse: bool, sums: bool) -> Options:
        """Options of the kernel.

        Parameters
        ----------
        entries
            How often a chunk may enter a node.
        refuse
            Whether routes leave a choice at all.
        sums
            Whether chunks are collected instead of spread.
        """
        return Options(
            self.take_fraction,
            self.take_cap,
            self.inside_cap,
            self.reserve,
            self.reserve_last_hops,
            self.wait_for,
            entries,
            self.own_events,
            self.refuse and refuse,
            sums,
            seed,
        )


PRIORITIES: tuple[dict[str, Any], ...] = (
    {},
    {"copies": 0.0, "need": 0.0},
    {"need": 20.0},
    {"copies": 20.0},
    {"cost": 30.0},
    {"size": 100.0},
    {"refuse": False},
    {"refuse": False, "cost": 0.0, "need": 20.0},
)
"""Weights that differ in kind."""

GROUPINGS: tuple[dict[str, Any], ...] = (
    {},
    {"reserve": 0, "reserve_last_hops": True},
    {"take_cap": 1},
    {"reserve": 2},
    {"reserve": 0, "wait_for": ALL},
    {"take_fraction": 0.5},
    {"take_fraction": 0.5, "reserve": 0, "reserve_last_hops": True},
    {"take_cap": 2},
    {"take_cap": 4},
    {"reserve": 0},
)
"""Ways to cut the chunks that wait between nodes into messages."""

INSIDE_CAPS = (1, ALL, 2, 4)
"""Messages inside nodes."""

SMALL_LATENCY = 0.02
"""Below this share of a chunk's cost latency is hardly worth waiting for a larger message."""


def portfolio(between: float, inside: float) -> Iterator[Rule]:
    """All rules to try once, the likeliest first; each without and with own events only.

    Parameters
    ----------
    between, inside
        Largest share that latency has in the cost of one chunk between and inside nodes; 0 where
        there is none, so that groupings do not differ.
    """
    caps = INSIDE_CAPS if inside > SMALL_LATENCY else INSIDE_CAPS[: 1 if inside == 0 else 3]
    groupings: tuple[dict[str, Any], ...] = GROUPINGS if between > 0 else GROUPINGS[:1]
    if 0 < between <= SMALL_LATENCY:
        groupings = ({"take_cap": 1}, {"take_cap": 2}, *GROUPINGS)
    for grouping in groupings:
        for cap in caps:
            for priority in PRIORITIES:
                for own_events in (False, True):
                    yield replace(
                        Rule(inside_cap=cap, own_events=own_events), **grouping, **priority
                    )


def mutated(rule: Rule, random: np.random.Generator) -> Rule:
    """A rule near another one, for a local search over rules."""
    factors = np.exp(random.normal(0.0, 1.0, 5))
    changes: dict[str, Any] = {
        "copies": rule.copies * factors[0] + 0.01 * factors[4],
        "need": rule.need * factors[1] + 0.01 * factors[4],
        "cost": rule.cost * factors[2],
        "noise": min(rule.noise * factors[3] + 0.02, 30.0),
    }
    pick = int(random.integers(9))
    if pick == 0:
        changes["own_events"] = not rule.own_events
    elif pick == 1:
        changes["refuse"] = not rule.refuse
    elif pick == 2:
        changes["reserve"] = int(random.integers(4))
    elif pick == 3:
        changes["inside_cap"] = int(random.choice((1, 2, 3, 4, 6, 8, ALL)))
    elif pick == 4:
        changes["take_cap"] = int(random.choice((1, 2, 3, 4, 6, 8, 12, ALL)))
    elif pick == 5:
        changes["size"] = float(random.choice((0.0, 10.0, 100.0)))
    elif pick == 7:
        changes["wait_for"] = int(random.choice((1, 2, 3, 4, 6, 8, 12, ALL)))
    elif pick == 6:
        changes["take_fraction"] = float(random.choice((0.34, 0.5, 0.67, 1.0)))
    return replace(rule, **changes)
