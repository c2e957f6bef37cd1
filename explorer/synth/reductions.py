"""Reductions: collectives that sum, made of spreading ones on the reversed graph.

ReduceScatter is an AllGather read backwards, Reduce a Broadcast, AllReduce a ReduceScatter and an
AllGather joined (TACCL, NSDI'23, section 5.3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np

from explorer.combine.compose import compose
from explorer.combine.reverse import REVERSE, reverse
from explorer.core.collective import Collective
from explorer.core.rank_graph import RankGraph
from explorer.core.schedule import Schedule
from explorer.synth.result import Limits, SynthesisResult

Spread = Callable[[RankGraph, Collective, Limits], SynthesisResult]

MAX_PAIRS = 3
"""Candidates of each half that an AllReduce combines."""


def by_spreading(
    graph: RankGraph, collective: Collective, limits: Limits, spread: Spread
) -> SynthesisResult:
    """Synthesize any collective, given a synthesizer of those that only spread."""
    if not collective.reduces:
        return spread(graph, collective, limits)
    if collective.name == "allreduce":
        return _all_reduce(graph, collective, limits, spread)
    found = spread(
        reversed_graph(graph), replace(collective, name=REVERSE[collective.name]), limits
    )
    return replace(found, candidates=_reversed(found, graph))


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


def _reversed(found: SynthesisResult, graph: RankGraph) -> tuple[Schedule, ...]:
    schedules = [reverse(schedule, graph) for schedule in found.candidates]
    return tuple(sorted(schedules, key=lambda schedule: schedule.makespan_us))


def _all_reduce(
    graph: RankGraph, collective: Collective, limits: Limits, spread: Spread
) -> SynthesisResult:
    gather = replace(collective, name="allgather")
    half = limits
    if limits.time_limit_s is not None:
        half = replace(limits, time_limit_s=limits.time_limit_s / 2)
    spreading = spread(graph, gather, half)
    collecting = spread(reversed_graph(graph), gather, half)
    pairs = product(_reversed(collecting, graph)[:MAX_PAIRS], spreading.candidates[:MAX_PAIRS])
    joined = sorted(
        (compose(first, second, graph) for first, second in pairs),
        key=lambda schedule: schedule.makespan_us,
    )
    stages = [
        replace(stage, name=f"{part}/{stage.name}")
        for part, result in (("reducescatter", collecting), ("allgather", spreading))
        for stage in result.stages
    ]
    return SynthesisResult(tuple(joined), tuple(stages), spreading.limited or collecting.limited)
