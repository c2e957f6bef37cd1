"""Anchors: dependencies that make a program follow the plan's order where memory does not.

Thread blocks run as soon as they can, so without further order a send may take a port before
another one that the plan has first, and one such theft delays everything behind it. An *anchor* is
a dependency of a send on a step of its own rank that the plan has done when the send starts:
another send, or a receive. Time then flows as in the plan: a rank that is on time at its events is
on time at its sends.

No anchor closes a cycle. It goes from a step that ends, in the plan, at or before the instant at
which the send starts; so do the data dependencies and the order of the lanes, and a message ends
after it starts. All edges lead from earlier to later; steps that end together are ordered by
their number. (:mod:`explorer.lower.cycles` checks the finished program all the same.)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from explorer.core.rank_graph import RankGraph
from explorer.lower.lanes import Lanes
from explorer.lower.messages import Messages
from explorer.lower.sends import edges_of
from explorer.lower.steps import Side, Steps
from sim.program import OP_RECEIVES, OP_SENDS, Op

Waits = list[list[int]]


_Event = tuple[bool, int, int]
"""A message that has arrived at its rank, or a send that is over: (arrival, step, message)."""


class Anchors:
    """Finds anchors for the sends of one layout.

    Parameters
    ----------
    messages, steps, lanes
        The layout.
    waits
        Dependencies that memory needs.
    graph
        Edges the plan was made on; tells which of several events freed what the send needs.
    """

    def __init__(
        self,
        messages: Messages,
        steps: Steps,
        lanes: Lanes,
        waits: Waits,
        graph: RankGraph | None = None,
    ) -> None:
        self._messages, self._steps = messages, steps
        self._reached = _reached(messages, steps, lanes, waits)
        self._resources = _resources(messages, graph)
        self._events = _events(messages, steps)

    def exact(self) -> dict[int, list[int]]:
        """Anchor every send to an event of its rank at the instant at which it starts, if any."""
        return self._anchored(latest=False)

    def latest(self) -> dict[int, list[int]]:
        """Anchor every send to the last event of its rank until it starts."""
        return self._anchored(latest=True)

    def given(self) -> dict[int, list[int]]:
        """Anchor every send to the event until which the plan holds it."""
        m, steps = self._messages, self._steps
        # no event, or (where slots are few) one that may come late
        message, arrival = np.divmod(m.hold, 2)
        over = np.where(arrival, m.end[message], m.release[message])
        some = np.flatnonzero((m.hold >= 0) & (over <= m.start))
        message, arrival = message[some], arrival[some]
        event = np.where(arrival, steps.receive[message], steps.send[message])
        send = steps.send[some].tolist()
        return {step: [other] for step, other in zip(send, event.tolist(), strict=True)}

    def egress(self) -> dict[int, list[int]]:
        """Chain the sends of a rank that share a resource in the order of the plan."""
        m, send = self._messages, self._steps.send
        found: dict[int, list[int]] = {}
        previous: dict[tuple[int, int], int] = {}
        for i, (src, start) in enumerate(zip(m.src.tolist(), m.start.tolist(), strict=True)):
            before = set()
            for resource in sorted(self._resources[i]):
                other = previous.get((src, resource))
                if other is not None and m.release[other] <= start:
                    before.add(int(send[other]))
                previous[src, resource] = i
            if before:
                found[int(send[i])] = sorted(before)
        return found

    def _anchored(self, *, latest: bool) -> dict[int, list[int]]:
        m, send = self._messages, self._steps.send.tolist()
        # a fused step starts its send when its data arrives
        free = (self._steps.op[self._steps.send] == Op.SEND).tolist()
        ticks = {key: sorted(at) for key, at in self._events.items()} if latest else {}
        found: dict[int, list[int]] = {}
        for i, (src, instance, tick) in enumerate(
            zip(m.src.tolist(), m.instance.tolist(), m.start.tolist(), strict=True)
        ):
            key, when = (src, instance), tick
            if latest:
                before = ticks.get(key, [])
                at = bisect_right(before, tick)
                when = before[at - 1] if at else -1
            if free[i] and self._reached[i] < when:
                event = self._best(i, send[i], self._events.get(key, {}).get(when, ()))
                if event is not None:
                    found[send[i]] = [event[1]]
        return found

    def _best(self, message: int, step: int, events: Sequence[_Event]) -> _Event | None:
        """The event that freed what the message needs, else a send, else an arrival."""
        needs = self._resources[message]
        return min(
            (e for e in events if e[1] < step),
            key=lambda e: (needs.isdisjoint(self._resources[e[2]]), e),
            default=None,
        )


def with_extra(waits: Waits, *extras: dict[int, list[int]]) -> Waits:
    """Add dependencies to a copy of the lists."""
    joined = list(waits)
    for extra in extras:
        for step, others in extra.items():
            joined[step] = sorted({*joined[step], *others})
    return joined


def _reached(messages: Messages, steps: Steps, lanes: Lanes, waits: Waits) -> list[int]:
    """Tick of the last event that every message waits for anyway; -1 for none."""
    reached = np.full(messages.count, -1, dtype=np.int64)
    order = np.argsort(lanes.connection, kind="stable")
    follows = np.diff(lanes.connection[order]) == 0
    reached[order[1:][follows]] = messages.release[order[:-1][follows]]
    latest: list[int] = reached.tolist()
    moves = (OP_SENDS | OP_RECEIVES)[steps.op].tolist()
    message, sender = steps.message.tolist(), (steps.side == Side.SENDER).tolist()
    # a local step happens when the last event before it does, whatever the plan wants it for
    happens = steps.tick.tolist()
    for step, others in enumerate(waits):
        last = max([happens[other] for other in others]) if others else -1
        if not moves[step]:
            happens[step] = last
        if sender[step]:
            latest[message[step]] = max(latest[message[step]], last)
    return latest


def _events(messages: Messages, steps: Steps) -> dict[tuple[int, int], dict[int, list[_Event]]]:
    """Arrivals and ends of sends, by (rank, instance) and tick."""
    m = messages
    # a fused receive is over when its send is
    apart = ~OP_SENDS[steps.op[steps.receive]]
    number = np.arange(m.count)
    events: dict[tuple[int, int], dict[int, list[_Event]]] = {}
    for arrival, which, ranks, ticks, at in (
        (False, number, m.src, m.release, steps.send),
        (True, number[apart], m.dst, m.end, steps.receive),
    ):
        for i, rank, instance, tick, step in zip(
            which.tolist(),
            ranks[which].tolist(),
            m.instance[which].tolist(),
            ticks[which].tolist(),
            at[which].tolist(),
            strict=True,
        ):
            of_rank = events.setdefault((rank, instance), {})
            of_rank.setdefault(tick, []).append((arrival, step, i))
    return events


def _resources(messages: Messages, graph: RankGraph | None) -> list[frozenset[int]]:
    """Resources that every message holds; none are known without a graph."""
    if graph is None:
        return [frozenset()] * messages.count
    edges = edges_of(graph, messages.src, messages.dst)
    held = {e: frozenset(graph.resources_of(e).tolist()) for e in np.unique(edges).tolist()}
    return [held[e] for e in edges.tolist()]
