"""Programs that a method offers for a design point, and the choice among them.

A synthesizer's schedule can be lowered in several ways, and what counts is the time of the
program, not of the plan: every lowering is simulated and the fastest that the target can load is
kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache

import numpy as np

from explorer.baselines.registry import build_baseline
from explorer.core.collective import Collective, Sizing, sizing
from explorer.core.costs import CostModel
from explorer.core.rank_graph import RankGraph
from explorer.core.schedule import Schedule
from explorer.core.sketch import Sketch
from explorer.errors import VerificationError
from explorer.evaluate.machine import Machine, sketched
from explorer.evaluate.network import network_for
from explorer.evaluate.simulated import simulate_program
from explorer.formats.dialects import dialect_of, exceeded
from explorer.lower.lower import lowerings
from explorer.lower.unfuse import unfused
from explorer.lower.variants import VARIANTS
from explorer.scenario.point import DesignPoint
from explorer.synth.registry import synthesize
from explorer.synth.result import NODE_LIMIT, SynthesisResult
from explorer.units import ELEMENT_BYTES
from explorer.verify.program import safe_max_bytes
from explorer.verify.runtimes import slot_bytes_of
from explorer.verify.schedule import verify_schedule
from sim.program import Op, Program

Progress = Callable[[str], None]

_BY_SIZE = ("fused", *(name for name in VARIANTS if name != "fused"))
"""Lowerings to try, the one with the fewest steps first: the first that meets its plan is kept."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """The program chosen for a design point.

    Parameters
    ----------
    program
        None when no lowering fits the target.
    not_lowered
        Why, then.
    plan_time_us
        Makespan of the schedule it was lowered from; None for a baseline, which has no plan.
    lowering
        Which lowering won; empty for a baseline.
    simulated
        Row of its simulation.
    stages
        Solver stages: name, status, objective, bound, gap, nodes, seconds.
    limited
        Whether a wall-clock limit cut the search.
    seconds
        Of synthesis, lowering and choice, simulation included.
    """

    program: Program | None
    not_lowered: str | None
    plan_time_us: float | None
    lowering: str
    simulated: dict[str, object]
    stages: tuple[dict[str, object], ...]
    limited: bool
    seconds: float


def baseline_candidate(point: DesignPoint, machine: Machine, chunks: int) -> Candidate:
    """Build a standard algorithm and simulate it."""
    started = time.perf_counter()
    collective = Collective(point.collective, machine.topology.ranks, chunks, point.root)
    program = build_baseline(
        point.method,
        machine.topology,
        collective,
        placement=point.placement,
        protocol=point.protocol,
        channels=point.channels,
        instances=point.instances,
    )
    program = _within_safe_sizes(_for_target(program, point.dialect), point.dialect)
    built = time.perf_counter() - started
    reason = _unfit(program, point)
    row = _simulated(program, point, machine)
    if reason:
        return Candidate(None, reason, None, "", row, (), False, built)
    return Candidate(program, None, None, "", row, (), False, built)


def synthesized_candidate(
    point: DesignPoint,
    machine: Machine,
    sketch: Sketch | None,
    chunks: int,
    progress: Progress | None,
) -> Candidate:
    """Synthesize, verify the plans, lower each in several ways and keep the fastest program."""
    started = time.perf_counter()
    left = sketched(machine, sketch)
    result = _synthesis(
        machine,
        sketch,
        Collective(point.collective, machine.topology.ranks, chunks, point.root),
        point.size_bytes,
        point.instances,
        CostModel(point.cost_model),
        point.method,
        point.time_limit_s,
        point.node_limit or NODE_LIMIT,
        progress,
    )
    stages = tuple(asdict(stage) for stage in result.stages)
    best: Candidate | None = None
    refusals: list[str] = []
    limited = result.limited
    try:
        for schedule in result.candidates:
            plan_us = schedule.makespan_us
            for name, lowered in _lowered(schedule, left.graph, point):
                if best is not None and _time_us(best) <= plan_us * (1 + 1e-9):
                    break  # a program follows its plan at best, and this plan promises no more
                program = _within_safe_sizes(lowered, point.dialect)
                reason = _unfit(program, point)
                if reason:
                    refusals.append(reason)
                    continue
                row = _simulated(program, point, left)
                if best is None or _rank(row, program) < _rank(best.simulated, best.program):
                    best = Candidate(program, None, plan_us, name, row, stages, limited, 0.0)
    except KeyboardInterrupt:
        if best is None:
            raise
        limited = True
    seconds = time.perf_counter() - started
    if best is None:
        plan = result.candidates[0].makespan_us
        reason = sorted(refusals)[0] if refusals else "no lowering was offered"
        return Candidate(None, reason, plan, "", {}, stages, result.limited, seconds)
    return replace(best, seconds=seconds, limited=limited)


@lru_cache(maxsize=8)
def _synthesis(
    machine: Machine,
    sketch: Sketch | None,
    collective: Collective,
    size_bytes: int | None,
    instances: int,
    cost_model: CostModel,
    method: str,
    time_limit_s: float | None,
    node_limit: int,
    progress: Progress | None,
) -> SynthesisResult:
    """Verified schedules; the last few are kept, since placements and protocols share them."""
    graph = sketched(machine, sketch).graph
    result = synthesize(
        graph,
        collective,
        plan_sizing(collective, size_bytes, instances),
        cost_model,
        sketch,
        method=method,
        time_limit_s=time_limit_s,
        node_limit=node_limit,
        progress=progress,
    )
    for schedule in result.candidates:
        findings = verify_schedule(schedule, graph)
        if findings:
            raise VerificationError("the synthesized schedule is wrong; it is not used", findings)
    return result


def plan_sizing(collective: Collective, size_bytes: int | None, instances: int) -> Sizing:
    """Size a schedule is planned for: each of its chunks is run as ``instances`` equal parts.

    Sizes too small for one element per chunk are planned for one element.
    """
    if size_bytes is None:
        return sizing(collective, None)
    fine = sizing(
        replace(collective, chunks_per_rank=collective.chunks_per_rank * instances), size_bytes
    )
    chunk = max(fine.chunk_bytes, ELEMENT_BYTES) * instances
    return Sizing(size_bytes, chunk * collective.nchunks, chunk)


def _lowered(
    schedule: Schedule, graph: RankGraph, point: DesignPoint
) -> Iterable[tuple[str, Program]]:
    target = dialect_of(point.dialect)
    return lowerings(
        schedule,
        graph,
        placement=point.placement,
        protocol=point.protocol,
        instances=point.instances,
        name=f"{point.method}-{point.collective}",
        limits=target.limits,
        fused_receives=Op.RECV_REDUCE_COPY in target.ops,
        variants=_BY_SIZE,
    )


def _simulated(program: Program, point: DesignPoint, machine: Machine) -> dict[str, object]:
    return simulate_program(
        program,
        network_for(machine.topology, program),
        point.size_bytes,
        cost_model=point.cost_model,
        fidelity=point.fidelity,
    )


def _time_us(candidate: Candidate) -> float:
    return float(str(candidate.simulated["time_us"]))


def _rank(row: dict[str, object], program: Program | None) -> tuple[float, int]:
    return (float(str(row["time_us"])), program.steps if program else 0)


def _unfit(program: Program, point: DesignPoint) -> str:
    """Why the target cannot run the program at the point's size; empty when it can."""
    findings = exceeded(program, point.dialect)
    if findings:
        return "; ".join(str(finding) for finding in findings[:3])
    size, safe = point.size_bytes or 0, program.max_bytes
    if safe is not None and size > safe:
        return f"deadlocks above {safe} bytes, where its messages no longer fit the FIFO slots"
    return ""


def _for_target(program: Program, dialect: str) -> Program:
    """The program, rewritten where the target lacks the fused receives of a baseline."""
    target = dialect_of(dialect)
    lacks = np.isin(program.op, sorted(target.ops), invert=True)
    return unfused(program, target.limits) if np.any(lacks) else program


def _within_safe_sizes(program: Program, dialect: str) -> Program:
    """Limit a program to the sizes at which it cannot deadlock on its target."""
    safe = safe_max_bytes(program, slot_bytes=slot_bytes_of(dialect))
    return program if safe is None else replace(program, max_bytes=safe)
