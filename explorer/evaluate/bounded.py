"""Bounds of a machine as a row of ``explorer bound``."""

from __future__ import annotations

from explorer.core.bounds import bounds
from explorer.core.collective import Collective, bandwidths_gbs, sizing
from explorer.core.costs import CostModel
from explorer.errors import InputError, Problem, nearest
from explorer.evaluate.machine import load_machine, sketched
from explorer.sketches.registry import load_sketch


def bound_row(
    topology: str,
    nodes: int | None,
    collective: str,
    size_bytes: int | None,
    root: int,
    sketch: str | None,
    cost_model: str,
) -> dict[str, object]:
    """Bounds of one collective at one size, of the topology or of what a sketch leaves of it.

    Raises
    ------
    InputError
        If the machine, collective or sketch does not exist or they do not fit.
    """
    if cost_model not in list(CostModel):
        raise InputError(
            Problem("--cost-model", f"got {cost_model!r}, {nearest(cost_model, CostModel)}")
        )
    machine = load_machine(topology, nodes, sized=size_bytes is not None)
    limits, graph = machine.topology, None
    chunks = 1
    if sketch is not None:
        loaded = load_sketch(sketch, machine.topology)
        chunks = loaded.chunks_per_rank or 1
        left = sketched(machine, loaded)
        limits, graph = left.topology, left.graph
    kind = Collective(collective, machine.topology.ranks, chunks, root)
    amount = sizing(kind, size_bytes)
    bound = bounds(limits, kind, amount, CostModel(cost_model), graph=graph)
    algbw, busbw = bandwidths_gbs(kind, amount.size_bytes, bound.bound_us)
    return {
        "topology": machine.topology.name,
        "ranks": machine.topology.ranks,
        "collective": collective,
        "requested_bytes": amount.requested_bytes,
        "size_bytes": amount.size_bytes,
        "time_unit": machine.topology.time_unit,
        "cost_model": cost_model,
        "sketch": sketch,
        "latency_us": bound.latency_us,
        "bandwidth_us": bound.bandwidth_us,
        "bound_us": bound.bound_us,
        "bottleneck": bound.bottleneck,
        "algbw_gbs": algbw,
        "busbw_gbs": busbw,
    }
