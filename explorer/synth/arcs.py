"""Arcs: the sends a model may choose from, one variable per orbit of the symmetry."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from explorer.synth.instance import Instance
from explorer.synth.paths import INFINITE
from explorer.synth.symmetry import orbit_minimum

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]

STRETCHES = (INFINITE, 2.0, 1.5, 1.2, 1.05, 1.0)
"""How much longer than the shortest a path may be; the first that keeps the model small is used."""

MAX_PAIRS = 5_000_000
"""Pairs of chunk and edge above which none are looked at: no model would be small enough."""


@dataclass(frozen=True, slots=True, eq=False)
class Arcs:
    """Pairs of chunk and edge.

    Parameters
    ----------
    chunk, edge
        int32 ``[P]``.
    variable
        int64 ``[P]``: orbit of each pair, numbered from 0.
    orbits
        Number of orbits.
    whole
        Whether every pair is there that a schedule within the horizon could use.
    """

    chunk: IntArray
    edge: IntArray
    variable: LongArray
    orbits: int
    whole: bool


def candidate_arcs(
    instance: Instance,
    horizon_us: float,
    most: int,
    include: tuple[IntArray, IntArray] | None = None,
) -> Arcs:
    """Collect the sends a model should know, near-shortest paths only where all are too many.

    Parameters
    ----------
    horizon_us
        Nothing that arrives later is of use.
    most
        Orbits a model may have. If even the shortest paths have more, those are returned, and
        :attr:`Arcs.orbits` tells.
    include
        Edges and chunks of a known schedule that must not be missing; invariant under the group.
    """
    if instance.chunks * instance.graph.edges > MAX_PAIRS:
        none = np.zeros(0, dtype=np.int32)
        return Arcs(none, none, np.zeros(0, np.int64), most + 1, whole=False)
    via = _via(instance)
    for stretch in STRETCHES:
        arcs = _arcs(instance, via, stretch, horizon_us, include)
        if arcs.orbits <= (most if instance.relayed or stretch < INFINITE else most // 2):
            break
    return arcs


def orbit_numbers(ids: LongArray) -> tuple[LongArray, int]:
    """Number orbits from 0 in the order of their smallest member."""
    unique, number = np.unique(ids, return_inverse=True)
    return number.astype(np.int64), len(unique)


def _via(instance: Instance) -> npt.NDArray[np.float64]:
    """Least time at which each chunk can be through each edge, float64 ``[C, E]``."""
    via: npt.NDArray[np.float64] = instance.reach_us[:, instance.graph.src] + instance.arrive_us
    return via


def _arcs(
    instance: Instance,
    via: npt.NDArray[np.float64],
    stretch: float,
    horizon_us: float,
    include: tuple[IntArray, IntArray] | None,
) -> Arcs:
    graph = instance.graph
    wanted: BoolArray = np.logical_or.reduce(instance.needs, axis=1)
    keep: BoolArray = instance.exits & wanted[:, None]
    keep &= graph.dst[None, :] != instance.source[:, None]
    slack = 1.0 + 1e-9
    if instance.relayed:
        target = instance.needs.argmax(axis=1)
        least = instance.reach_us[np.arange(instance.chunks), target]
        through = via + instance.distance[graph.dst][:, target].T
        keep &= graph.src[None, :] != target[:, None]
        limit = np.minimum(least * stretch, horizon_us)
        keep &= through <= limit[:, None] * slack
    else:
        limit = np.minimum(instance.reach_us[:, graph.dst] * stretch, horizon_us)
        keep &= via <= limit * slack
    if include is not None:
        keep[include[1], include[0]] = True
    chunk, edge = (axis.astype(np.int32) for axis in np.nonzero(keep))
    ids = orbit_minimum(chunk, edge, graph.edges, (instance.group.chunk, instance.group.edge))
    variable, orbits = orbit_numbers(ids)
    return Arcs(chunk, edge, variable, orbits, stretch >= INFINITE)
