"""What synthesis returns, and the protocol every synthesizer follows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from explorer.core.collective import Collective, Sizing
from explorer.core.costs import CostModel
from explorer.core.rank_graph import RankGraph
from explorer.core.schedule import Schedule
from explorer.core.sketch import Sketch

Progress = Callable[[str], None]
"""Called with one line of text when a stage starts or improves."""

LIMITED = ("time limit", "interrupted")
"""Statuses of a stage that something other than its own node or iteration budget ended."""


NODE_LIMIT = 2000
"""Branch-and-bound nodes of each solver run, unless the caller says otherwise."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a synthesis.

    Parameters
    ----------
    name
        ``start``, ``stepped``, ``routing``, ``ordering`` or ``scheduling``; with a prefix where a
        collective is made of two (``reducescatter/routing``).
    status
        ``optimal`` (of what the stage may choose from), ``feasible`` (a budget ended it with a
        solution), ``no solution`` (a budget ended it without one), ``infeasible``, ``heuristic``
        (nothing is proved), ``time limit``, ``interrupted``, ``solver error``, or
        ``skipped: reason``.
    objective
        Value it reached in us; None without a solution.
    bound
        Lower bound in us that it proved on what it may choose from; None where it proves none.
    gap
        (objective - bound) / objective; None where either is.
    nodes
        Branch-and-bound nodes, or schedules tried by a heuristic.
    seconds
        Wall-clock time.
    """

    name: str
    status: str
    objective: float | None = None
    bound: float | None = None
    gap: float | None = None
    nodes: int = 0
    seconds: float = 0.0


def relative_gap(objective: float | None, bound: float | None) -> float | None:
    """Gap between a value and its lower bound, relative to the value; never negative."""
    if objective is None or bound is None:
        return None
    return max(0.0, (objective - bound) / objective) if objective > 0 else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class SynthesisResult:
    """Schedules found for a collective.

    Parameters
    ----------
    candidates
        Different schedules, the shortest plan first. A program does not follow its plan exactly,
        so the caller lowers and simulates each.
    stages
        What was tried, in order.
    limited
        Whether a wall-clock limit or an interrupt cut the search, so that a rerun may differ.
    """

    candidates: tuple[Schedule, ...]
    stages: tuple[Stage, ...]
    limited: bool

    @property
    def schedule(self) -> Schedule:
        """The candidate with the shortest plan."""
        return self.candidates[0]


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop.

    Parameters
    ----------
    time_limit_s
        Wall clock of the whole synthesis; None for no limit but a generous guard around each
        solver run.
    node_limit
        Branch-and-bound nodes of each solver run.
    work_limit
        Times that each solver run may look at its limits, times nonzeros of the model: a budget
        that does not depend on the clock, since a single node may take seconds.
    gap
        Relative gap at which a solver run may stop.
    """

    time_limit_s: float | None = None
    node_limit: int = NODE_LIMIT
    work_limit: int = 300_000
    gap: float = 1e-4


class Synthesizer(Protocol):
    """A way to find schedules; one file and one line in :mod:`explorer.synth.registry` each."""

    def __call__(
        self,
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
        """Find schedules for one collective on the edges a sketch has left.

        Raises
        ------
        InputError
            If the sketch does not fit the graph.
        InfeasibleError
            If no schedule exists.
        """
        ...
