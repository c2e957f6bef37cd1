"""Synthesizers by name: a new one is one file and one line here."""

from __future__ import annotations

from dataclasses import replace

from explorer.core.collective import Collective, Sizing
from explorer.core.costs import CostModel
from explorer.core.rank_graph import RankGraph
from explorer.core.sketch import Sketch, unreachable_ranks
from explorer.errors import InfeasibleError, InputError, Problem, nearest
from explorer.synth.milp import milp
from explorer.synth.result import NODE_LIMIT, Limits, Progress, SynthesisResult, Synthesizer

SYNTHESIZERS: dict[str, Synthesizer] = {
    "milp": milp,
}
"""Methods that search; baselines are elsewhere."""


def synthesize(
    graph: RankGraph,
    collective: Collective,
    sizing: Sizing,
    cost_model: CostModel,
    sketch: Sketch | None,
    *,
    method: str = "milp",
    time_limit_s: float | None = None,
    node_limit: int = NODE_LIMIT,
    seed: int = 0,
    progress: Progress | None = None,
) -> SynthesisResult:
    """Find schedules for a collective.

    Parameters
    ----------
    graph
        The edges that may be used; with a sketch, those that
        :func:`explorer.core.sketch.apply_sketch` has left.
    collective, sizing, cost_model
        What is to be done, with which chunk size, and what messages cost.
    sketch
        For what edges cannot say: symmetry, relays, switch policies, solver limits.
    method
        One of :data:`SYNTHESIZERS`.
    time_limit_s
        Wall clock for the whole synthesis; the sketch's when None, else none.
    node_limit
        Branch-and-bound nodes of each solver run.
    seed
        Of the local search; the same seed gives the same schedules.
    progress
        Called with one line of text now and then.

    Raises
    ------
    InputError
        If there is no such method, or the sketch's symmetry is none of the graph.
    InfeasibleError
        If no schedule exists or none was found, with the reason.
    """
    synthesizer = SYNTHESIZERS.get(method)
    if synthesizer is None:
        raise InputError(Problem("method", f"got {method!r}, {nearest(method, SYNTHESIZERS)}"))
    if collective.ranks != graph.ranks:
        raise InputError(f"the collective has {collective.ranks} ranks, the graph {graph.ranks}")
    if not collective.rooted:
        unreachable = unreachable_ranks(graph)
        if unreachable:
            raise InfeasibleError(unreachable)
    limits = Limits(time_limit_s, node_limit)
    if sketch is not None:
        if time_limit_s is None:
            limits = replace(limits, time_limit_s=sketch.time_limit_s)
        if sketch.gap is not None:
            limits = replace(limits, gap=sketch.gap)
    return synthesizer(
        graph,
        collective,
        sizing,
        cost_model,
        sketch,
        limits=limits,
        seed=seed,
        progress=progress or _quiet,
    )


def _quiet(_text: str) -> None:
    """Say nothing."""
