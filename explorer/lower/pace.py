"""Pace: re-time a plan so that its program can keep to it.

A thread block can wait for what happens on its own GPU, not for a port of another one to become
free. Where a plan starts sends at such instants (a reversed plan does, since its ends have become
starts), the program cannot follow: sends that are ready early take ports out of turn. A paced plan
keeps the routes, messages and sums of a plan and gives up its times: it is what the runtime itself
will do when every send is held until an event of its own rank that suits it.

A held send is let go at an event of its rank when it can start at once, or when no preferred send
still wants what it needs, or when there may be no other event that wakes its rank later. Once let
go it waits in line as in the simulator, with the simulator's own floats, so that times come out
the same there. Instants that rounding alone keeps apart count as one when something is decided: a
send that cannot start only because a port is freed a last bit later must not wait for the next
event.

Which rule suits a plan differs; running one is quick, so all are tried.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from explorer.core.costs import CostModel
from explorer.core.rank_graph import RankGraph
from explorer.lower.precedence import Precedence, precedence
from explorer.lower.sends import Sends, edges_of, renumbered
from explorer.lower.waiting_room import Costs, Rule, WaitingRoom
from explorer.units import MIB

IntArray = npt.NDArray[np.int64]

RULES = (
    Rule(),
    Rule(in_order=True),
    Rule(eager=True),
    Rule(in_order=True, eager=True),
    Rule(by_tail=True),
    Rule(by_tail=True, eager=True),
)
"""Rules that are tried; of equally good ones the first is kept."""

MANY_MESSAGES = 20_000
"""Beyond this many only the first rules are tried: each takes about 10 us per message."""

FEW_RULES = RULES[:2]


def paced(
    sends: Sends, graph: RankGraph, *, cost_model: CostModel, chunk_bytes: int, slots: int
) -> Sends | None:
    """Re-time a plan.

    Parameters
    ----------
    sends
        Messages in planned order.
    graph
        Edges, their costs and the resources they hold.
    cost_model, chunk_bytes
        Of the plan.
    slots
        Messages on their way on one connection.

    Returns
    -------
    Sends | None
        Messages in their new order, with new times and the events until which they are held; None
        when sends read what messages on their way are about to overwrite, so that no other times
        are safe.
    """
    order = precedence(sends)
    if order is None:
        return None
    edges = edges_of(graph, sends.src, sends.dst)
    costs = _costs(sends, graph, edges, cost_model, chunk_bytes)
    planned = np.arange(len(edges))
    by_tail = np.argsort(-_tails(order, costs), kind="stable")
    best: WaitingRoom | None = None
    shortest = float("inf")
    for rule in RULES if len(edges) <= MANY_MESSAGES else FEW_RULES:
        preferred = by_tail if rule.by_tail else planned
        room = WaitingRoom(sends, graph, edges, costs, order, preferred, rule, slots)
        if room.run():
            end = float((np.array(room.start) + costs.hold_us + costs.delay_us).max())
            if end < shortest:
                best, shortest = room, end
    return None if best is None else _timed(sends, best, costs)


def _costs(
    sends: Sends, graph: RankGraph, edges: IntArray, cost_model: CostModel, chunk_bytes: int
) -> Costs:
    """Times of every message, in the simulator's expressions."""
    count = np.bincount(sends.message, minlength=len(edges))
    alpha = graph.alpha_us[edges]
    hold = count * float(chunk_bytes) * (graph.beta_us_per_mib / MIB)[edges]
    if cost_model is CostModel.EXCLUSIVE:
        return Costs(alpha + hold, np.zeros(len(edges)))
    return Costs(hold, alpha)


def _tails(order: Precedence, costs: Costs) -> npt.NDArray[np.float64]:
    """Longest time from the start of each message to the last arrival that depends on it."""
    tail: list[float] = (costs.hold_us + costs.delay_us).tolist()
    for m in range(len(tail) - 1, -1, -1):
        tail[m] += max((tail[x] for x in order.feeds[m]), default=0.0)
    return np.array(tail)


def _timed(sends: Sends, room: WaitingRoom, costs: Costs) -> Sends:
    start = np.array(room.start)
    timed = replace(
        sends,
        hold=np.array(room.let_go),
        start_us=start,
        release_us=start + costs.hold_us,
        end_us=start + costs.hold_us + costs.delay_us,
    )
    return renumbered(timed, np.argsort(start, kind="stable"))
