"""Method ``milp``: list schedules for a start, HiGHS for the routes, list schedules of those.

TACCL (NSDI'23), section 5, splits synthesis into routing, ordering and exact scheduling; so does
this, but every stage starts from the best schedule of the one before, stages that cannot improve
it any more are skipped, and where costs allow it one step-indexed model replaces all three.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from explorer.core.collective import Collective, Sizing
from explorer.core.costs import CostModel
from explorer.core.rank_graph import RankGraph
from explorer.core.schedule import Schedule
from explorer.core.sketch import Sketch
from explorer.errors import InfeasibleError
from explorer.synth.instance import Instance, spreading_instance
from explorer.synth.least_time import least_makespan
from explorer.synth.ordering import Search, standard_rules
from explorer.synth.reductions import Problem, by_spreading
from explorer.synth.result import (
    LIMITED,
    Limits,
    Progress,
    Stage,
    SynthesisResult,
    relative_gap,
)
from explorer.synth.routes import (
    Routes,
    free_routes,
    guided_routes,
    shortest_routes,
    tree_routes,
)
from explorer.synth.routing import solve_routing
from explorer.synth.scheduler import Scheduler, compiled
from explorer.synth.scheduling import solve_scheduling
from explorer.synth.stepped import solve_stepped
from explorer.synth.timing import Messages, schedule_of

IntArray = npt.NDArray[np.int32]

OFFER_WORK = 90_000_000
CLIMB_WORK = 90_000_000
STALE_WORK = 8_000_000
"""Budgets of the list scheduling stages, in plan entries: about 3e7 are looked at in a second. A
stage also ends when this much has brought nothing."""

CLOSE = 1.01
"""A schedule this close to its lower bound is not cut anew: there is little to gain."""

MAX_POLISHED = 2
POLISH_NODES = 100
"""Orders that the scheduling stage works on, and nodes for each."""

MAX_CANDIDATES = 6


def milp(
    graph: RankGraph,
    collective: Collective,
    sizing: Sizing,
    cost_model: CostModel,
    sketch: Sketch | None,
    *,
    limits: Limits,
    seed: int,
    progress: Progress,
) -> SynthesisResult:
    """Synthesize by routing MILP and list scheduling; see the module."""

    def spread(problem: Problem, limits: Limits) -> SynthesisResult:
        instance = spreading_instance(
            problem.graph,
            problem.collective,
            problem.sizing,
            problem.cost_model,
            problem.sketch,
        )
        return _Run(instance, limits, seed, progress).result()

    problem = Problem(graph, collective, sizing, cost_model, sketch)
    return by_spreading(problem, limits, seed, spread)


class _Run:
    """One synthesis of a spreading collective."""

    def __init__(self, instance: Instance, limits: Limits, seed: int, progress: Progress) -> None:
        self.instance, self.seed, self.progress = instance, seed, progress
        self.limits = limits
        self.began = time.perf_counter()
        self.stages: list[Stage] = []
        self.schedules: list[Schedule] = []
        self.bound = least_makespan(instance)
        self.scheduler = Scheduler(instance)
        self.search = Search(self.scheduler, goal_us=self.bound, deadline=self._deadline())
        self.interrupted = False

    def result(self) -> SynthesisResult:
        """Run the stages; Ctrl-C ends them with the best so far."""
        if not self.instance.needs.any():
            return SynthesisResult((_empty(self.instance),), (), limited=False)
        try:
            self._start()
            self._stepped()
            self._route()
            self._schedule()
        except KeyboardInterrupt:
            if not self.search.found and not self.schedules:
                raise
            self.interrupted = True
            if all(stage.status != "interrupted" for stage in self.stages):
                self.stages.append(Stage("ordering", "interrupted", self._best_us()))
        candidates = self._candidates()
        if not candidates:
            raise InfeasibleError(
                "no schedule was found: "
                + "; ".join(f"{stage.name} {stage.status}" for stage in self.stages)
            )
        limited = self.interrupted or self.search.late
        limited |= any(stage.status in LIMITED for stage in self.stages)
        return SynthesisResult(candidates, tuple(self.stages), limited)

    def _start(self) -> None:
        """List schedules of all routes (AlltoAll: of balanced shortest paths)."""
        if not compiled():
            self.progress("list scheduling: the first run of an installation compiles for 10 s")
        relayed = self.instance.relayed
        routes = shortest_routes(self.instance) if relayed else free_routes(self.instance)
        with self._listing("start"):
            self._offer(routes)
            if not self.search.found and not relayed:
                self._offer(free_routes(self.instance, direct=False))
            self._climb(self.seed)

    def _stepped(self) -> None:
        if self.search.done or self.instance.inter.any():
            return
        found = solve_stepped(self.instance, self._remaining(), self._best_us(), self.progress)
        self._note(found.stage)
        if found.messages is not None:
            self._keep(found.messages)

    def _note(self, stage: Stage) -> None:
        """Record a stage and what it proved."""
        self.stages.append(stage)
        self.bound = max(self.bound, stage.bound or 0.0)
        self.search.goal_us = self.bound
        if stage.status == "interrupted":
            raise KeyboardInterrupt

    def _route(self) -> None:
        """Routes by MILP, then list schedules of the trees, and of the trees between nodes only."""
        if self._proven():
            self.stages.append(Stage("routing", "skipped: the schedule meets the lower bound"))
            return
        found = solve_routing(
            self.instance,
            replace(self._remaining(), gap=max(self.limits.gap, 1e-3)),
            self._best_us(),
            self._symmetric_sends(),
            self.progress,
        )
        self._note(found.stage)
        if found.trees is None or self.search.done:
            return
        with self._listing("ordering"):
            if not self.instance.relayed:
                self._offer(guided_routes(self.instance, *found.trees))
            self._offer(tree_routes(self.instance, *found.trees))
            self._climb(self.seed + 1)

    def _schedule(self) -> None:
        """Cut the sends of the best order of each kind into messages anew, by a small MILP."""
        if self._best_us() <= self.bound * CLOSE:
            if not self._proven():
                self.stages.append(Stage("scheduling", "skipped: close to the lower bound"))
            return
        tried: set[tuple[bool, bool]] = set()
        for found in self.search.found:
            if found.kind in tried or len(tried) == MAX_POLISHED or self.search.late:
                continue
            tried.add(found.kind)
            order = found.order
            limits = replace(
                self._remaining(),
                node_limit=min(self.limits.node_limit, POLISH_NODES),
                work_limit=self.limits.work_limit // 2,
            )
            result = solve_scheduling(
                self.instance, order.messages, order.makespan_us, limits, self.progress
            )
            if result.messages is not None:
                self._keep(result.messages)
            self._note(result.stage)

    def _climb(self, seed: int) -> None:
        self.search.climb(CLIMB_WORK, STALE_WORK, seed)

    def _offer(self, routes: Routes) -> None:
        symmetric = self.scheduler.symmetric
        self.search.offer(
            routes, standard_rules(self.instance), OFFER_WORK, STALE_WORK, symmetric=symmetric
        )
        if symmetric:
            work = STALE_WORK // 2
            self.search.offer(routes, standard_rules(self.instance), work, work, symmetric=False)

    @contextmanager
    def _listing(self, name: str) -> Iterator[None]:
        """Record what list scheduling does to the best schedule."""
        began, tried = time.perf_counter(), self.search.tried
        self.progress(f"{name}: best so far {self._best_us():.6g} us")
        try:
            yield
        finally:
            best = self._best_us()
            objective = best if np.isfinite(best) else None
            proven = objective is not None and objective <= self.bound * (1 + 1e-9)
            status = "optimal" if proven else "heuristic"
            if objective is None:
                status = "no solution"
            if self.search.late:
                status = "time limit"
            self.stages.append(
                Stage(
                    name,
                    status,
                    objective,
                    self.bound,
                    relative_gap(objective, self.bound),
                    self.search.tried - tried,
                    time.perf_counter() - began,
                )
            )

    def _keep(self, messages: Messages) -> None:
        self.schedules.append(schedule_of(self.instance, messages))

    def _best_us(self) -> float:
        return min(
            [self.search.best_us, *(s.makespan_us for s in self.schedules)], default=float("inf")
        )

    def _proven(self) -> bool:
        return self._best_us() <= self.bound * (1 + 1e-9)

    def _symmetric_sends(self) -> tuple[IntArray, IntArray] | None:
        """Sends of the shortest schedule that is invariant under the whole group."""
        for found in self.search.found:
            messages = found.order.messages
            if messages.symmetric or self.instance.group.order == 1:
                return np.repeat(messages.edge, np.diff(messages.first)), messages.chunk
        return None

    def _candidates(self) -> tuple[Schedule, ...]:
        """Different schedules, the shortest first; of equal ones, in the order they were kept."""
        listed = [schedule_of(self.instance, found.order.messages) for found in self.search.found]
        best = sorted((*self.schedules, *listed), key=lambda s: s.makespan_us)
        different = {_signature(schedule): schedule for schedule in reversed(best)}
        kept = [s for s in best if different[_signature(s)] is s]
        return tuple(kept[:MAX_CANDIDATES])

    def _deadline(self) -> float:
        limit = self.limits.time_limit_s
        return float("inf") if limit is None else self.began + limit

    def _remaining(self) -> Limits:
        if self.limits.time_limit_s is None:
            return self.limits
        left = self._deadline() - time.perf_counter()
        return replace(self.limits, time_limit_s=max(left, 0.01))


def _signature(schedule: Schedule) -> tuple[bytes, ...]:
    """What makes two schedules the same program."""
    return (
        schedule.src.tobytes(),
        schedule.dst.tobytes(),
        schedule.chunk.tobytes(),
        schedule.group.tobytes(),
    )


def _empty(instance: Instance) -> Schedule:
    """Schedule of a collective in which nothing has to move (a single rank)."""
    none = np.zeros(0, dtype=np.int32)
    times = np.zeros(0)
    return Schedule(
        instance.collective,
        instance.chunk_bytes,
        instance.cost_model,
        none,
        none,
        none,
        none,
        np.zeros(0, dtype=np.bool_),
        times,
        times,
        instance.group.generators,
    )
