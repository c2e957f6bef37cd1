"""Waiting room: the simulator's rules for sends, with a hand on each one before it is let go.

Times are the simulator's to the last bit: the same sums of the same numbers, the same order among
sends that are ready (:mod:`sim.engine`).
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from explorer.core.rank_graph import RankGraph
from explorer.lower.precedence import Precedence
from explorer.lower.sends import SAME_TIME, Sends

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rule:
    """When held messages are let go.

    Parameters
    ----------
    by_tail
        Prefer the message with the longest way still to go for its chunks, else the first planned.
    in_order
        Never let a message overtake a preferred one on a resource, else let go what can start.
    eager
        Let a message go whose rank has nothing on its way that will wake it, else only when the
        plan has nothing either.
    """

    by_tail: bool = False
    in_order: bool = False
    eager: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Costs:
    """How long messages hold what they need, and how long after that they arrive: float64 ``[M]``.

    Parameters
    ----------
    hold_us, delay_us
        Both times.
    """

    hold_us: FloatArray
    delay_us: FloatArray


@dataclass(slots=True)
class _Row:
    """Messages by preference, of which those at the front have started."""

    messages: list[int] = field(default_factory=list)
    started: int = 0

    def first(self, start: list[float]) -> int:
        """First message that has not started, -1 for none."""
        while self.started < len(self.messages) and start[self.messages[self.started]] >= 0:
            self.started += 1
        return self.messages[self.started] if self.started < len(self.messages) else -1


_Entry = tuple[float, int, int, int, int]
"""Place of a send in line: ready time, (dst - src) mod R, number on its edge, src, message."""


class WaitingRoom:
    """One run of a plan under a rule.

    Parameters
    ----------
    sends
        Messages in planned order.
    graph, edges
        Edges with their resources, and the edge of every message.
    costs
        Times of every message.
    order
        What must come before what.
    preferred
        Messages by preference; nothing precedes what it must come after.
    rule
        When messages are let go.
    slots
        Messages on their way on one connection.
    """

    def __init__(
        self,
        sends: Sends,
        graph: RankGraph,
        edges: IntArray,
        costs: Costs,
        order: Precedence,
        preferred: IntArray,
        rule: Rule,
        slots: int,
    ) -> None:
        self.order, self.rule, self.slots = order, rule, slots
        self.src: list[int] = sends.src.tolist()
        self.dst: list[int] = sends.dst.tolist()
        self.hold: list[float] = costs.hold_us.tolist()
        self.delay: list[float] = costs.delay_us.tolist()
        self.slack = SAME_TIME * float((costs.hold_us + costs.delay_us).min())
        self.edge: list[int] = edges.tolist()
        self.needs = {e: graph.resources_of(e).tolist() for e in np.unique(edges).tolist()}
        self.offset: list[int] = ((sends.dst - sends.src) % graph.ranks).tolist()
        self.by: list[int] = preferred.tolist()
        self.turn: list[int] = np.argsort(preferred).tolist()
        self.arrivals, self.starts = list(order.arrivals), list(order.starts)
        count = len(self.src)
        self.start = [-1.0] * count
        # event at which each message was let go, as in Sends; -2: it is still held
        self.let_go = [-2] * count
        # place in line of every message that was let go
        self.ready: list[_Entry] = [(0.0, 0, 0, 0, 0)] * count
        # of every resource: the message that holds it, -1 for none, and when it was freed last
        self.holder = [-1] * len(graph.resources)
        self.freed = [0.0] * len(graph.resources)
        self.on_way: defaultdict[int, int] = defaultdict(int)  # by edge
        self.drained: defaultdict[int, float] = defaultdict(float)  # last arrival, by edge
        self.taken: defaultdict[int, int] = defaultdict(int)  # messages let go, by edge
        self.sending: set[int] = set()  # edges with a message let go and not yet sent
        self.full: dict[int, int] = {}  # messages let go that wait for a slot, by edge
        self.moving = [0] * graph.ranks  # messages let go and not yet there, by either rank
        # turns of held messages whose data is there, by rank and edge
        self.held: list[dict[int, list[int]]] = [{} for _ in range(graph.ranks)]
        self.line: list[_Entry] = []
        self.events: list[tuple[float, int, bool]] = []
        self.wanting = [_Row() for _ in graph.resources]
        self.touching = [_Row() for _ in range(graph.ranks)]
        for m in self.by:
            for r in self.needs[self.edge[m]]:
                self.wanting[r].messages.append(m)
            self.touching[self.src[m]].messages.append(m)
            self.touching[self.dst[m]].messages.append(m)

    def run(self) -> bool:
        """Run to the end; whether all messages have been sent."""
        for m in range(len(self.src)):
            if not self.arrivals[m] and not self.starts[m]:
                self.offer(m)
        self.decide(0.0, dict.fromkeys(range(len(self.held)), (0.0, -1)))
        while self.events:
            begin = self.events[0][0]
            awake: dict[int, tuple[float, int]] = {}
            while self.events and self.events[0][0] <= begin + self.slack:
                now = self.events[0][0]
                while self.events and self.events[0][0] == now:
                    _, m, arrives = heapq.heappop(self.events)
                    rank = self.arrived(now, m) if arrives else self.released(now, m)
                    awake[rank] = now, 2 * m + arrives
                self.start_line(now)
            self.decide(begin, awake)
        return min(self.start) >= 0

    def offer(self, m: int) -> None:
        """Hold a message whose data is there."""
        heapq.heappush(self.held[self.src[m]].setdefault(self.edge[m], []), self.turn[m])

    # decisions

    def decide(self, begin: float, awake: dict[int, tuple[float, int]]) -> None:
        """Let held messages of ranks with an event go, the preferred ones first.

        Parameters
        ----------
        begin
            First of the instants that count as this one.
        awake
            Ranks and their last events: when and which.
        """
        turns = sorted(
            queue[0]
            for rank in awake
            for edge, queue in self.held[rank].items()
            if queue and edge not in self.sending
        )
        # what would start by itself, and by resource who that is
        claims: dict[int, _Entry] = {}
        going, waiting = [], []
        for m in [self.by[turn] for turn in turns]:
            needs = self.needs[self.edge[m]]
            free = self.can_start(m) and claims.keys().isdisjoint(needs)
            if free and not (self.rule.in_order and self.overtakes(m)):
                entry = self.let_it_go(m, *awake[self.src[m]])
                claims.update(dict.fromkeys(needs, entry))
                going.append(entry)
            else:
                waiting.append(m)
        for m in waiting:
            when, event = awake[self.src[m]]
            if not self.overtakes(m) and self.stays_behind(begin, self.entry(when, m), claims):
                going.append(self.let_it_go(m, when, event))
        going += [self.let_it_go(m, *awake[self.src[m]]) for m in waiting if self.must_go(m)]
        for entry in sorted(going, key=lambda entry: (self.could_start(entry), entry)):
            if self.can_start(entry[-1]):
                self.begin(self.could_start(entry), entry[-1])
            else:
                self.stand(entry[0], entry[-1])

    def let_it_go(self, m: int, when: float, event: int) -> _Entry:
        """Let a message go at an event; its place in line."""
        edge = self.edge[m]
        heapq.heappop(self.held[self.src[m]][edge])
        self.let_go[m] = event
        self.ready[m] = self.entry(when, m)
        self.taken[edge] += 1
        self.sending.add(edge)
        self.moving[self.src[m]] += 1
        self.moving[self.dst[m]] += 1
        return self.ready[m]

    def entry(self, ready: float, m: int) -> _Entry:
        """Place in line of a message that is let go."""
        return (ready, self.offset[m], self.taken[self.edge[m]], self.src[m], m)

    def could_start(self, entry: _Entry) -> float:
        """When the simulator starts a message that is let go now and finds its needs free."""
        edge = self.edge[entry[-1]]
        freed: list[float] = [self.freed[r] for r in self.needs[edge]]
        return max(entry[0], self.drained[edge], *freed)

    def stays_behind(self, begin: float, entry: _Entry, claims: dict[int, _Entry]) -> bool:
        """Whether a message that is let go now waits for one that starts now or has started.

        The simulator, which tells instants apart that count as one here, must not find all that
        it needs free for a moment before the other one takes it.
        """
        soonest = self.could_start(entry)
        if any(
            self.start[h] < begin or (self.start[h], self.ready[h]) < (soonest, entry)
            for h in self.holders(entry[-1])
        ):
            return True
        claiming = [claims[r] for r in self.needs[self.edge[entry[-1]]] if r in claims]
        return any((self.could_start(other), other) < (soonest, entry) for other in claiming)

    def holders(self, m: int) -> list[int]:
        """Messages that hold what a message needs."""
        found = [self.holder[r] for r in self.needs[self.edge[m]]]
        return [h for h in found if h >= 0]

    def can_start(self, m: int) -> bool:
        """Whether a slot and all resources are free."""
        return self.on_way[self.edge[m]] < self.slots and not self.holders(m)

    def must_go(self, m: int) -> bool:
        """Whether a held message may not be able to go later, for want of an event of its rank."""
        rank = self.src[m]
        if self.let_go[m] != -2 or self.moving[rank]:
            return False
        return self.rule.eager or self.touching[rank].first(self.start) == m

    def overtakes(self, m: int) -> bool:
        """Whether a preferred message still wants what this one needs."""
        return any(self.wanting[r].first(self.start) != m for r in self.needs[self.edge[m]])

    # the simulator's part

    def stand(self, now: float, m: int) -> None:
        """Put a message in line, or let it wait for a slot."""
        if self.on_way[self.edge[m]] == self.slots:
            self.full[self.edge[m]] = m
        else:
            self.ready[m] = (now, *self.ready[m][1:])
            heapq.heappush(self.line, self.ready[m])

    def start_line(self, now: float) -> None:
        """Start what is in line and can start, in the simulator's order."""
        waiting = []
        while self.line:
            entry = heapq.heappop(self.line)
            if self.holders(entry[-1]):
                waiting.append(entry)
            else:
                self.begin(now, entry[-1])
        self.line = waiting

    def begin(self, now: float, m: int) -> None:
        """Start a message."""
        for r in self.needs[self.edge[m]]:
            self.holder[r] = m
        self.start[m] = now
        self.on_way[self.edge[m]] += 1
        heapq.heappush(self.events, (now + self.hold[m], m, False))
        for y in self.order.follows[m]:
            self.starts[y] -= 1
            if not self.arrivals[y] and not self.starts[y]:
                self.offer(y)

    def released(self, now: float, m: int) -> int:
        """End the hold of a message; the rank that notices."""
        for r in self.needs[self.edge[m]]:
            self.holder[r] = -1
            self.freed[r] = now
        self.sending.discard(self.edge[m])
        self.moving[self.src[m]] -= 1
        heapq.heappush(self.events, (now + self.delay[m], m, True))
        return self.src[m]

    def arrived(self, now: float, m: int) -> int:
        """Let a message arrive; the rank that notices."""
        edge = self.edge[m]
        self.on_way[edge] -= 1
        self.drained[edge] = now
        self.moving[self.dst[m]] -= 1
        if edge in self.full:
            self.stand(now, self.full.pop(edge))
        for x in self.order.feeds[m]:
            self.arrivals[x] -= 1
            if not self.arrivals[x] and not self.starts[x]:
                self.offer(x)
        return self.dst[m]
