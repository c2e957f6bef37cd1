"""Design point: one machine, collective, size, method and setting, the unit of every sweep."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DesignPoint:
    """What one evaluation is asked to do.

    Parameters
    ----------
    topology
        Builder name (``ndv2``, ``ring:5``) or a file.
    nodes
        Node count for builders and one-node files; None for their own.
    collective
        Key of the collective.
    size_bytes
        nccl-tests' size; None for a profile's own units.
    method
        ``milp`` or a baseline's name.
    root
        Root of a rooted collective.
    placement
        ``in``, ``out`` or ``both``: which calls the program serves.
    sketch
        Built-in name or file; None for no restriction.
    chunks
        Chunks per rank; None for the sketch's, else 1.
    cost_model, fidelity
        How schedules are planned and programs are simulated.
    protocol, channels, instances
        Lowering.
    dialect
        Runtime whose limits the program must respect; ``unlimited`` for none.
    time_limit_s
        Wall-clock limit of synthesis; None for limits in nodes and iterations only.
    node_limit
        Branch-and-bound nodes of each solver run; None for the synthesizer's own.
    """

    topology: str
    nodes: int | None
    collective: str
    size_bytes: int | None
    method: str
    root: int = 0
    placement: str = "out"
    sketch: str | None = None
    chunks: int | None = None
    cost_model: str = "exclusive"
    fidelity: str = "ideal"
    protocol: str = "Simple"
    channels: int = 1
    instances: int = 1
    dialect: str = "executor"
    time_limit_s: float | None = None
    node_limit: int | None = None
