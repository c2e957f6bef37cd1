"""One design point from machine and method to a verified program, its time and its bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from explorer.baselines.registry import BASELINES
from explorer.core.bounds import bounds
from explorer.core.collective import Collective, bandwidths_gbs, sizing
from explorer.core.costs import CostModel
from explorer.core.sketch import Sketch
from explorer.errors import InputError, Problem, VerificationError, nearest
from explorer.evaluate.candidates import Candidate, baseline_candidate, synthesized_candidate
from explorer.evaluate.machine import Machine, load_machine, sketched
from explorer.scenario.point import DesignPoint
from explorer.sketches.registry import load_sketch
from explorer.synth.registry import SYNTHESIZERS
from explorer.verify.program import verify_program
from sim.program import Program


@dataclass(frozen=True, slots=True)
class PointResult:
    """What one evaluation gives.

    Parameters
    ----------
    row
        JSON-able values under the keys of ``explorer synth``, with the planned time as
        ``plan_time_us`` and its seconds as ``synth_seconds``, and those of ``explorer simulate``
        for the ranked ``time_us``, its seconds as ``sim_seconds``.
    program
        The verified program; None when none fits the target, see ``not_lowered`` in the row.
    """

    row: dict[str, object]
    program: Program | None


def evaluate_point(
    point: DesignPoint, progress: Callable[[str], None] | None = None
) -> PointResult:
    """Evaluate one design point.

    Raises
    ------
    InputError
        If the point asks for something that does not exist or does not fit.
    InfeasibleError
        If no schedule exists, or none was found.
    VerificationError
        If a schedule or program turned out wrong: a bug in what made it, never a result.
    """
    _check_words(point)
    machine = load_machine(point.topology, point.nodes, sized=point.size_bytes is not None)
    sketch = _sketch(point, machine)
    chunks = point.chunks or (sketch.chunks_per_rank if sketch else None) or 1
    if point.method in SYNTHESIZERS:
        candidate = synthesized_candidate(point, machine, sketch, chunks, progress)
    else:
        candidate = baseline_candidate(point, machine, chunks)
    if candidate.program is not None:
        _prove(candidate.program, point)
    return PointResult(_row(point, machine, sketch, chunks, candidate), candidate.program)


def _row(
    point: DesignPoint, machine: Machine, sketch: Sketch | None, chunks: int, candidate: Candidate
) -> dict[str, object]:
    collective = Collective(
        point.collective, machine.topology.ranks, chunks * point.instances, point.root
    )
    amount = sizing(collective, point.size_bytes)
    cost_model = CostModel(point.cost_model)
    bound = bounds(machine.topology, collective, amount, cost_model)
    sketch_bound = None
    if sketch is not None:
        left = sketched(machine, sketch)
        sketch_bound = bounds(
            left.topology, collective, amount, cost_model, graph=left.graph
        ).bound_us
    nothing = amount.chunk_bytes == 0
    measured = candidate.simulated if candidate.program is not None else {}
    program_us = _number(measured.get("time_us"))
    plan_us = candidate.plan_time_us if candidate.plan_time_us is not None else program_us
    algbw, busbw = bandwidths_gbs(collective, amount.size_bytes, program_us or plan_us)
    return {
        "topology": machine.topology.name,
        "nodes": machine.topology.nodes,
        "ranks": machine.topology.ranks,
        "collective": point.collective,
        "placement": point.placement,
        "requested_bytes": amount.requested_bytes,
        "size_bytes": amount.size_bytes,
        "time_unit": machine.topology.time_unit,
        "method": point.method,
        "sketch": point.sketch,
        "chunks_per_rank": chunks,
        "protocol": point.protocol,
        "channels": candidate.program.channels if candidate.program is not None else None,
        "instances": point.instances,
        "dialect": point.dialect,
        "cost_model": point.cost_model,
        "fidelity": point.fidelity,
        "plan_time_us": 0.0 if nothing else plan_us,
        "program_time_us": program_us,
        "not_lowered": candidate.not_lowered,
        "lowering": candidate.lowering,
        "time_us": program_us,
        "bound_us": bound.bound_us,
        "sketch_bound_us": sketch_bound,
        "bound_limit": bound.bottleneck,
        "optimality": bound.bound_us / program_us if program_us else None,
        "algbw_gbs": algbw,
        "busbw_gbs": busbw,
        "synth_seconds": candidate.seconds,
        "stages": list(candidate.stages),
        "limited": candidate.limited,
        "verified": True,
        "engine": measured.get("engine"),
        "transfers": measured.get("transfers"),
        "sim_seconds": measured.get("seconds"),
        "bottleneck": measured.get("bottleneck"),
    }


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _check_words(point: DesignPoint) -> None:
    problems = []
    methods = [*BASELINES, *SYNTHESIZERS]
    words: list[tuple[str, str, list[str]]] = [
        ("--method", point.method, methods),
        ("--placement", point.placement, ["in", "out", "both"]),
        ("--cost-model", point.cost_model, list(CostModel)),
        ("--protocol", point.protocol, ["Simple", "LL", "LL128"]),
    ]
    for option, value, allowed in words:
        if value not in allowed:
            problems.append(Problem(option, f"got {value!r}, {nearest(value, allowed)}"))
    for option, number in (("--channels", point.channels), ("--instances", point.instances)):
        if not 1 <= number <= 64:
            problems.append(Problem(option, f"got {number}, expected 1 to 64"))
    if point.chunks is not None and not 1 <= point.chunks <= 1024:
        problems.append(Problem("--chunks", f"got {point.chunks}, expected 1 to 1024"))
    if problems:
        raise InputError(problems)


def _sketch(point: DesignPoint, machine: Machine) -> Sketch | None:
    if point.sketch is None:
        return None
    if point.method not in SYNTHESIZERS:
        raise InputError(
            f"method {point.method!r} is a fixed algorithm and takes no sketch; sketches guide"
            f" {', '.join(sorted(SYNTHESIZERS))}"
        )
    return load_sketch(point.sketch, machine.topology)


def _prove(program: Program, point: DesignPoint) -> None:
    report = verify_program(program)
    if not report.ok:
        raise VerificationError(
            f"the program made by {point.method!r} is wrong; it is not used", report.errors
        )
