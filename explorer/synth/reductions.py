"""Reductions: collectives that sum, made of spreading ones on the reversed graph.

ReduceScatter is an AllGather read backwards, Reduce a Broadcast, AllReduce a ReduceScatter and an
AllGather joined (TACCL, NSDI'23, section 5.3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from explorer.combine.compose import compose
from explorer.combine.reverse import REVERSE, reverse
from explorer.core.collective import Collective, Sizing
from explorer.core.costs import CostModel
from explorer.core.rank_graph import RankGraph
from explorer.core.schedule import Schedule
from explorer.core.sketch import Sketch
from explorer.synth.instance import spreading_instance
from explorer.synth.ordering import Search, standard_rules
from explorer.synth.result import Limits, SynthesisResult
from explorer.synth.routes import collecting_routes
from explorer.synth.scheduler import Scheduler
from explorer.synth.timing import schedule_of


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """What a synthesizer is asked for."""

    graph: RankGraph
    collective: Collective
    sizing: Sizing
    cost_model: CostModel
    sketch: Sketch | None


Spread = Callable[[Problem, Limits], SynthesisResult]

MAX_PAIRS = 4
"""Candidates of each half that an AllReduce combines."""

MAX_TREES = 2
"""Reversed schedules whose trees are list scheduled again."""

MAX_CANDIDATES = 6

COLLECT_WORK = 10_000_000
"""Budget of those list schedules, as in :mod:`explorer.synth.milp`."""


def by_spreading(problem: Problem, limits: Limits, seed: int, spread: Spread) -> SynthesisResult:
    """Synthesize any collective, given a synthesizer of those that only spread."""
    collective = problem.collective
    if not collective.reduces:
        return spread(problem, limits)
    if collective.name == "allreduce":
        return _all_reduce(problem, limits, seed, spread)
    return _collecting(problem, limits, seed, spread)


def _collecting(problem: Problem, limits: Limits, seed: int, spread: Spread) -> SynthesisResult:
    """Schedules read backwards, and list schedules of their trees in the right direction.

    Starting at own events only does not survive the reversal, hence the second kind.
    """
    graph, name = problem.graph, problem.collective.name
    backwards = replace(
        problem,
        graph=reversed_graph(graph),
        collective=replace(problem.collective, name=REVERSE[name]),
    )
    found = spread(backwards, limits)
    schedules = [reverse(schedule, graph) for schedule in found.candidates]
    limited = found.limited
    if schedules[0].sends and not limited:
        try:
            schedules += _listed(problem, schedules[:MAX_TREES], seed)
        except KeyboardInterrupt:
            limited = True
    schedules.sort(key=lambda schedule: schedule.makespan_us)
    return replace(found, candidates=tuple(schedules[:MAX_CANDIDATES]), limited=limited)


def _listed(problem: Problem, known: list[Schedule], seed: int) -> list[Schedule]:
    instance = spreading_instance(
        problem.graph,
        problem.collective,
        problem.sizing,
        problem.cost_model,
        problem.sketch,
        check=False,
    )
    scheduler = Scheduler(instance)
    search = Search(scheduler, goal_us=known[0].makespan_us)
    edges = problem.graph.edge_index()
    for schedule in known:
        routes = collecting_routes(instance, edges[schedule.src, schedule.dst], schedule.chunk)
        symmetric = scheduler.symmetric and bool(schedule.symmetry)
        rules = standard_rules(instance)
        search.offer(routes, rules, COLLECT_WORK, COLLECT_WORK // 2, symmetric=symmetric)
    search.climb(COLLECT_WORK, COLLECT_WORK // 2, seed)
    return [schedule_of(instance, found.order.messages) for found in search.found]


def reversed_graph(graph: RankGraph) -> RankGraph:
    """The graph whose edge u → v is the given graph's edge v → u, with its costs and resources."""
    order = np.lexsort((graph.src, graph.dst))
    counts = np.diff(graph.resource_first)[order]
    parts = [graph.resources_of(int(e)) for e in order]
    return RankGraph(
        graph.ranks,
        graph.node_of,
        graph.dst[order],
        graph.src[order],
        graph.alpha_us[order],
        graph.beta_us_per_mib[order],
        np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        np.concatenate(parts) if parts else np.zeros(0, np.int32),
        graph.resources,
    )


def _all_reduce(problem: Problem, limits: Limits, seed: int, spread: Spread) -> SynthesisResult:
    half = limits
    if limits.time_limit_s is not None:
        half = replace(limits, time_limit_s=limits.time_limit_s / 2)
    parts = {
        name: replace(problem, collective=replace(problem.collective, name=name))
        for name in ("reducescatter", "allgather")
    }
    collecting = _collecting(parts["reducescatter"], half, seed, spread)
    if any(stage.status == "interrupted" for stage in collecting.stages):
        # Ctrl-C is no reason to end with half an AllReduce, but to be quick about the rest.
        half = replace(half, time_limit_s=0.01)
    spreading = spread(parts["allgather"], half)
    pairs = product(collecting.candidates[:MAX_PAIRS], spreading.candidates[:MAX_PAIRS])
    joined = [compose(first, second, problem.graph) for first, second in pairs]
    joined.sort(key=lambda schedule: schedule.makespan_us)
    stages = [
        replace(stage, name=f"{part}/{stage.name}")
        for part, result in (("reducescatter", collecting), ("allgather", spreading))
        for stage in result.stages
    ]
    return SynthesisResult(
        tuple(joined[:MAX_CANDIDATES]),
        tuple(stages),
        spreading.limited or collecting.limited,
    )
