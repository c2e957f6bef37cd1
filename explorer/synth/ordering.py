"""Ordering: try many list schedules of some routes and keep the best."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from explorer.core.costs import CostModel
from explorer.core.rank_graph import RankGraph
from explorer.synth.instance import Instance
from explorer.synth.kernel_types import NEVER, Images, Machine, Plan
from explorer.synth.list_scheduling import schedule
from explorer.synth.routes import Routes
from explorer.synth.rules import Rule, mutated
from explorer.synth.symmetry import SymmetryGroup
from explorer.synth.timing import Messages

IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]

TICKS = 10**12
"""Ticks of the largest cost, at most: sums of a few million of them fit into 63 bits."""

MIN_TRIES = 32
"""Rules that are tried before patience ends, however long each takes."""

WORTH_KEEPING = 1.35
"""A plan this much longer than the best is not worth lowering, even if no other starts its sends at
own events only."""

OVERHEAD = 3000
"""Work of a run beside the plan entries it looks at, in entries."""


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """A complete list schedule.

    Parameters
    ----------
    messages
        Its messages.
    makespan
        In ticks.
    makespan_us
        Nearly exact: the order's exact time may differ by rounding to ticks, or be lower.
    rule, seed
        What made it.
    """

    messages: Messages
    makespan: int
    makespan_us: float
    rule: Rule
    seed: int


class Scheduler:
    """The list scheduling kernel, with its inputs prepared once per instance."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        graph = instance.graph
        largest = float(instance.arrive_us.max(initial=0.0))
        # A power of ten keeps costs with few decimals exact.
        exponent = int(np.floor(np.log10(TICKS / largest))) if largest > 0 else 0
        self.ticks_per_us = 10.0**exponent
        self.machine = _machine(instance, self.ticks_per_us)
        self.images = {False: _images(graph, instance.chunks, None)}
        if instance.group.order > 1 and _acts_freely(instance.group, graph):
            self.images[True] = _images(graph, instance.chunks, instance.group)
        self.per_node = int(np.bincount(graph.node_of).max())

    @property
    def symmetric(self) -> bool:
        """Whether whole orbits can be scheduled."""
        return True in self.images

    def run(
        self, plan: Plan, routes: Routes, rule: Rule, seed: int, *, symmetric: bool, limit: int
    ) -> tuple[Order | None, int]:
        """Make one list schedule.

        Parameters
        ----------
        plan
            From :meth:`plan`; kept as it is.
        limit
            Give up when the makespan would reach this tick.

        Returns
        -------
        tuple
            The order (None when given up or incomplete) and the work done, in plan entries.
        """
        plan = Plan(
            plan.first,
            plan.chunk.copy(),
            plan.tail.copy(),
            plan.source,
            plan.arrival.copy(),
            plan.need.copy(),
            plan.leaving.copy(),
        )
        most = int(self.instance.needs.sum()) if not routes.fixed else len(routes.edge)
        sent = (
            np.zeros(most + 1, np.int32),
            np.zeros(most + 1, np.int64),
            np.zeros(most + 1, np.int64),
            np.zeros(most + 2, np.int64),
            np.zeros(most + 1, np.int32),
        )
        count, makespan, work = schedule(
            self.machine,
            self.images[symmetric],
            plan,
            rule.weights(self.instance.chunks, self.per_node),
            rule.options(routes.entries, seed, refuse=not routes.fixed),
            np.int64(limit),
            sent,
        )
        if makespan == NEVER or (plan.arrival.T[self.instance.needs] == NEVER).any():
            return None, int(work)
        edge, start, end, first, chunk = sent
        release = end[:count]
        if self.machine.pipelined:
            release = release - self.machine.alpha[edge[:count]]
        messages = Messages(
            edge[:count],
            first[: count + 1],
            chunk[: first[count]],
            start[:count],
            release,
            end[:count],
            rule.own_events,
            symmetric,
        )
        return Order(messages, int(makespan), int(makespan) / self.ticks_per_us, rule, seed), int(
            work
        )

    def plan(self, routes: Routes) -> Plan:
        """Kernel form of some routes."""
        instance, graph = self.instance, self.instance.graph
        order = np.lexsort((routes.chunk, -routes.tail, routes.edge))
        counts = np.bincount(routes.edge, minlength=graph.edges)
        tail = routes.tail[order]
        arrival = np.full((graph.ranks, instance.chunks), NEVER, dtype=np.int64)
        arrival[instance.source, np.arange(instance.chunks)] = 0
        return Plan(
            np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
            routes.chunk[order].astype(np.int32),
            tail / max(float(tail.max(initial=0.0)), 1e-300),
            _plain(instance.source, np.int32),
            arrival,
            instance.needs.sum(axis=0).astype(np.int64),
            _leaving(instance, routes),
        )


@dataclass(slots=True)
class Search:
    """Best orders found so far, under a budget of work.

    Parameters
    ----------
    scheduler
        Kernel.
    goal_us
        Makespan that cannot be beaten: the search ends when it is reached.
    keep
        Orders kept, of each kind (with own events only or not, symmetric or not).
    deadline
        ``time.perf_counter`` value after which nothing more is tried.
    """

    scheduler: Scheduler
    goal_us: float = 0.0
    keep: int = 2
    deadline: float = float("inf")
    tried: int = 0
    late: bool = False
    found: tuple[Found, ...] = ()

    @property
    def best(self) -> Order | None:
        """The shortest order."""
        return self.found[0].order if self.found else None

    @property
    def best_us(self) -> float:
        """Its makespan in us; infinite without one."""
        return self.found[0].order.makespan_us if self.found else float("inf")

    @property
    def done(self) -> bool:
        """Whether the goal is reached, with own events only too, or the time is over."""
        if time.perf_counter() > self.deadline:
            self.late = True
        reached = {
            f.order.rule.own_events
            for f in self.found
            if f.order.makespan_us <= self.goal_us * (1 + 1e-9)
        }
        return self.late or len(reached) == 2

    def offer(
        self, routes: Routes, rules: Iterable[Rule], budget: int, stale: int, *, symmetric: bool
    ) -> None:
        """Try rules on some routes.

        Schedules far above the best of their kind are given up early; those near it are kept,
        since the program of a slightly longer plan may be the faster one.

        Parameters
        ----------
        budget, stale
            Plan entries to look at (3e7 a second), and without an improvement; but
            :data:`MIN_TRIES` rules are tried anyway within the budget.
        symmetric
            Whether to schedule whole orbits.
        """
        plan = self.scheduler.plan(routes)
        patience = _Patience(budget, stale)
        for rule in rules:
            if patience.out or self.done:
                return
            before = self.best_us
            work = self._try(plan, routes, rule, 0, symmetric=symmetric)
            patience.spend(work, improved=self.best_us < before)

    def climb(self, budget: int, stale: int, seed: int) -> None:
        """Local search: change the rules and seeds of the best orders, on their routes."""
        random = np.random.default_rng(seed)
        plans: dict[int, Plan] = {}
        patience = _Patience(budget, stale)
        while self.found and not patience.out and not self.done:
            base = self.found[int(random.integers(len(self.found)) * random.random())]
            routes = base.routes
            if id(routes) not in plans:
                plans[id(routes)] = self.scheduler.plan(routes)
            before = self.best_us
            work = self._try(
                plans[id(routes)],
                routes,
                mutated(base.order.rule, random),
                int(random.integers(1 << 30)),
                symmetric=base.order.messages.symmetric,
            )
            patience.spend(work, improved=self.best_us < before)

    def _try(self, plan: Plan, routes: Routes, rule: Rule, seed: int, *, symmetric: bool) -> int:
        limit = self._limit(rule.own_events, symmetric)
        order, work = self.scheduler.run(plan, routes, rule, seed, symmetric=symmetric, limit=limit)
        self.tried += 1
        if order is not None:
            self._insert(Found(order, routes))
        return work + OVERHEAD + len(plan.chunk) // 8 + plan.arrival.size // 8

    def _limit(self, own_events: bool, symmetric: bool) -> int:
        """Tick from which on a schedule of a kind is of no interest."""
        if not self.found:
            return int(NEVER) - 1
        limit = int(self.found[0].order.makespan * WORTH_KEEPING) + 1
        for found in self.found:
            if found.kind == (own_events, symmetric):
                return min(limit, found.order.makespan * 51 // 50 + 1)
        return limit

    def _insert(self, new: Found) -> None:
        alike = [f for f in self.found if f.kind == new.kind]
        if any(f.order.makespan == new.order.makespan for f in alike):
            return
        kept = sorted((*alike, new), key=lambda f: f.order.makespan)[: self.keep]
        others = [f for f in self.found if f.kind != new.kind]
        # Of equal plans the one that survives as a program comes first, then the symmetric one.
        self.found = tuple(
            sorted(
                (*others, *kept),
                key=lambda f: (f.order.makespan, not f.kind[0], not f.kind[1]),
            )
        )


@dataclass(slots=True)
class _Patience:
    """What is left to spend, in all and until something improves."""

    budget: int
    stale: int
    idle: int = 0
    tries: int = 0

    @property
    def out(self) -> bool:
        return self.budget <= 0 or (self.idle >= self.stale and self.tries >= MIN_TRIES)

    def spend(self, work: int, *, improved: bool) -> None:
        self.tries += 1
        self.budget -= work
        self.idle = 0 if improved else self.idle + work


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """An order and the routes it was made on."""

    order: Order
    routes: Routes

    @property
    def kind(self) -> tuple[bool, bool]:
        """Whether it starts at own events only, and whether it is symmetric."""
        return (self.order.messages.own_events, self.order.messages.symmetric)


def _machine(instance: Instance, ticks_per_us: float) -> Machine:
    graph = instance.graph
    alpha = np.rint(graph.alpha_us * ticks_per_us).astype(np.int64)
    unit = np.rint(instance.transfer_us * ticks_per_us).astype(np.int64)
    cost = instance.arrive_us / max(float(instance.arrive_us.max(initial=0.0)), 1e-300)
    edges = np.arange(graph.edges, dtype=np.int32)
    users = np.repeat(edges, np.diff(graph.resource_first))
    return Machine(
        _plain(graph.node_of, np.int32),
        _plain(graph.src, np.int32),
        _plain(graph.dst, np.int32),
        alpha,
        unit,
        instance.inter,
        _slow(instance),
        cost,
        instance.cost_model is CostModel.PIPELINED,
        _plain(graph.resource_first, np.int64),
        _plain(graph.resource, np.int32),
        *_grouped(graph.src, edges, graph.ranks),
        *_grouped(graph.dst, edges, graph.ranks),
        *_grouped(graph.resource, users, len(graph.resources)),
    )


def _slow(instance: Instance) -> npt.NDArray[np.bool_]:
    graph = instance.graph
    cheapest = np.full(graph.ranks, np.inf)
    inside = ~instance.inter
    np.minimum.at(cheapest, graph.dst[inside], instance.arrive_us[inside])
    slow: npt.NDArray[np.bool_] = instance.arrive_us > cheapest[graph.dst] * (1 + 1e-9)
    return slow


def _plain(array: npt.NDArray[Any], dtype: type) -> npt.NDArray[Any]:
    """Copy an array to the one layout the kernel is compiled for: contiguous and writable."""
    return np.array(array, dtype=dtype, order="C")


def _grouped(key: IntArray, value: IntArray, keys: int) -> tuple[LongArray, IntArray]:
    counts = np.bincount(key, minlength=keys)
    return (
        np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        _plain(value[np.argsort(key, kind="stable")], np.int32),
    )


def _images(graph: RankGraph, chunks: int, group: SymmetryGroup | None) -> Images:
    if group is None:
        edges = np.arange(graph.edges, dtype=np.int32)
        ranks = np.arange(graph.ranks, dtype=np.int32)
        group_edge, group_chunk = edges[None], np.arange(chunks, dtype=np.int32)[None]
        return Images(_plain(group_edge, np.int32), _plain(group_chunk, np.int32), edges, ranks)
    return Images(
        _plain(group.edge, np.int32),
        _plain(group.chunk, np.int32),
        group.edge.min(axis=0),
        group.rank.min(axis=0),
    )


def _acts_freely(group: SymmetryGroup, graph: RankGraph) -> bool:
    """Whether all images of a message can be under way together: none share a resource."""
    ranks = np.arange(graph.ranks)
    if (group.rank[1:] == ranks).any():
        return False
    for edge in np.unique(group.edge.min(axis=0)).tolist():
        held = np.concatenate([graph.resources_of(int(e)) for e in group.edge[:, edge]])
        if len(np.unique(held)) < len(held):
            return False
    return True


def _leaving(instance: Instance, routes: Routes) -> LongArray:
    """Sends between nodes that start at each rank; zero where routes leave that open."""
    graph = instance.graph
    crossing = instance.inter[routes.edge]
    edge, chunk = routes.edge[crossing], routes.chunk[crossing]
    if not routes.fixed:
        nodes = int(graph.node_of.max()) + 1
        into = graph.node_of[graph.dst[edge]]
        pair = chunk.astype(np.int64) * nodes + into
        options = np.bincount(pair, minlength=instance.chunks * nodes)
        entered = into != graph.node_of[instance.source[chunk]]
        if routes.entries == 1:
            edge, pair = edge[entered], pair[entered]
        if (options[pair] > routes.entries).any():
            return np.zeros(graph.ranks, dtype=np.int64)
    return np.bincount(graph.src[edge], minlength=graph.ranks).astype(np.int64)
