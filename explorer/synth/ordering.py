"""Ordering: try many list schedules of some routes and keep the best."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from explorer.synth.instance import Instance
from explorer.synth.kernel_types import NEVER, Plan
from explorer.synth.routes import Routes
from explorer.synth.rules import Rule, mutated, portfolio
from explorer.synth.scheduler import Order, Scheduler

MIN_TRIES = 32
"""Rules that are tried before patience ends, however long each takes."""

WORTH_KEEPING = 1.35
"""A plan this much longer than the best is not worth lowering, even if no other starts its sends at
own events only."""

OVERHEAD = 3000
"""Work of a run beside the plan entries it looks at, in entries."""


def standard_rules(instance: Instance) -> Iterator[Rule]:
    """The portfolio of rules for an instance's latencies."""
    share = instance.alpha_us / np.maximum(instance.arrive_us, 1e-300)
    inter = instance.inter
    return portfolio(float(share[inter].max(initial=0.0)), float(share[~inter].max(initial=0.0)))


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
        """Whether the goal is reached, with own events only too, or the time is over.

        One schedule is found in any case.
        """
        if self.found and time.perf_counter() > self.deadline:
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
