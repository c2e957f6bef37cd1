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
from dataclasses import dataclass

import numpy as np

from explorer.core.rank_graph import RankGraph
from explorer.lower.lanes import Lanes
from explorer.lower.messages import Messages
from explorer.lower.sends import edges_of
from explorer.lower.steps import Side, Steps
from sim.program import OP_RECEIVES, OP_SENDS, Op

Waits = list[list[int]]


@dataclass(frozen=True, slots=True)
class _Event:
    """A send that is over or a message that has arrived, at its rank."""

    message: int
    step: int
    is_send: bool


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
        ticks = {key: sorted(at) for key, at in self._events.items()}
        found: dict[int, list[int]] = {}
        for i, (src, instance, start) in enumerate(
            zip(m.src.tolist(), m.instance.tolist(), m.start.tolist(), strict=True)
        ):
            if self._steps.op[send[i]] != Op.SEND:
                continue  # a fused step starts its send when its data arrives
            key, tick = (src, instance), start
            if latest:
                at = bisect_right(ticks.get(key, []), start)
                if at == 0:
                    continue
                tick = ticks[key][at - 1]
            if self._reached[i] >= tick:
                continue
            events = self._events.get(key, {}).get(tick, ())
            event = self._best(i, send[i], events)
            if event is not None:
                found[send[i]] = [event.step]
        return found

    def _best(self, message: int, step: int, events: Sequence[_Event]) -> _Event | None:
        """The event that freed what the message needs, else a send, else an arrival."""
        needs = self._resources[message]
        earlier = [e for e in events if e.step < step]
        return min(
            earlier,
            key=lambda e: (needs.isdisjoint(self._resources[e.message]), not e.is_send, e.step),
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
    message, side = steps.message.tolist(), steps.side.tolist()
    # a local step happens when the last event before it does, whatever the plan wants it for
    happens = steps.tick.tolist()
    for step, others in enumerate(waits):
        last = max((happens[other] for other in others), default=-1)
        if not moves[step]:
            happens[step] = last
        if side[step] == Side.SENDER:
            latest[message[step]] = max(latest[message[step]], last)
    return latest


def _events(messages: Messages, steps: Steps) -> dict[tuple[int, int], dict[int, list[_Event]]]:
    """Ends of sends and arrivals, by (rank, instance) and tick."""
    m = messages
    events: dict[tuple[int, int], dict[int, list[_Event]]] = {}
    for ranks, ticks, numbers, is_send in (
        (m.src, m.release, steps.send, True),
        (m.dst, m.end, steps.receive, False),
    ):
        for i, (rank, instance, tick, step) in enumerate(
            zip(ranks.tolist(), m.instance.tolist(), ticks.tolist(), numbers.tolist(), strict=True)
        ):
            if not is_send and OP_SENDS[steps.op[step]]:
                continue  # a fused step is over when its send is
            at = events.setdefault((rank, instance), {})
            at.setdefault(tick, []).append(_Event(i, step, is_send))
    return events


def _resources(messages: Messages, graph: RankGraph | None) -> list[frozenset[int]]:
    """Resources that every message holds; none are known without a graph."""
    if graph is None:
        return [frozenset()] * messages.count
    edges = edges_of(graph, messages.src, messages.dst)
    held = {e: frozenset(graph.resources_of(e).tolist()) for e in np.unique(edges).tolist()}
    return [held[e] for e in edges.tolist()]
