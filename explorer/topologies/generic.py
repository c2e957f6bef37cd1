"""Generic single-node machines of equal links: ring, full, switch, mesh, torus, hypercube.

Ranks of grids are numbered with the last dimension fastest. Links are bidirectional.
"""

from __future__ import annotations

import itertools

import numpy as np

from explorer.core.topology import Topology
from explorer.errors import InputError, Problem
from explorer.topologies.assembly import Assembly
from explorer.topologies.shape import MAX_PAIRS, MAX_RANKS, Shape, parse_shape


def ring(text: str) -> Topology:
    """Build ``ring:N``: every rank joined to the next and the last to the first."""
    shape = parse_shape("ring", text, (1, 1), "16")
    (n,) = shape.dims
    return _joined("ring", shape, _wrapped(n, wrap=True))


def full(text: str) -> Topology:
    """Build ``full:N``: a link of its own for every pair."""
    shape = parse_shape("full", text, (1, 1), "6")
    (n,) = shape.dims
    if n * n > MAX_PAIRS:
        raise InputError(
            Problem(f"topology full:{text}", f"has {n * (n - 1)} links, at most {MAX_PAIRS}")
        )
    return _joined("full", shape, list(itertools.combinations(range(n), 2)))


def switch(text: str) -> Topology:
    """Build ``switch:N``: one port per rank on a switch that does not block."""
    shape = parse_shape("switch", text, (1, 1), "8")
    machine = Assembly(f"switch:{shape.text}", 1)
    gpus = [machine.gpu(0) for _ in range(shape.ranks)]
    hub = machine.device("switch0", "switch", 0)
    for gpu in gpus:
        machine.both(gpu, hub, "generic", shape.alpha_us / 2, shape.gbs)
    return machine.build((shape.note + " from GPU to GPU, half of it per hop",))


def mesh(text: str) -> Topology:
    """Build ``mesh:AxB`` or ``mesh:AxBxC``: a grid without wrap-around."""
    return _grid("mesh", text, wrap=False)


def torus(text: str) -> Topology:
    """Build ``torus:AxB`` or ``torus:AxBxC``: a grid whose lines close to rings.

    A dimension of extent 2 has one link, not two, as in TACOS and TACCL's torus files.
    """
    return _grid("torus", text, wrap=True)


def hypercube(text: str) -> Topology:
    """Build ``hypercube:D``: 2^D ranks, joined where their numbers differ in one bit."""
    shape = parse_shape("hypercube", text, (1, 1), "10")
    (dimensions,) = shape.dims
    if 1 << dimensions > MAX_RANKS:
        raise InputError(
            Problem(f"topology hypercube:{text}", f"has 2^{dimensions} ranks, at most {MAX_RANKS}")
        )
    cube = Shape((2,) * dimensions, shape.gbs, shape.alpha_us)
    return _joined("hypercube", cube, grid_pairs(cube.dims, (False,) * dimensions), shape.text)


def _grid(name: str, text: str, *, wrap: bool) -> Topology:
    shape = parse_shape(name, text, (2, 3), "4x4[x4]")
    return _joined(name, shape, grid_pairs(shape.dims, (wrap,) * len(shape.dims)))


def grid_pairs(dims: tuple[int, ...], wrap: tuple[bool, ...]) -> list[tuple[int, int]]:
    """Neighbours on a grid, the last dimension fastest; ``wrap`` closes a dimension to rings."""
    ranks = np.arange(int(np.prod(dims, dtype=np.int64))).reshape(dims)
    pairs: list[tuple[int, int]] = []
    for axis, extent in enumerate(dims):
        lines = np.moveaxis(ranks, axis, -1).reshape(-1, extent)
        for a, b in _wrapped(extent, wrap=wrap[axis]):
            pairs += zip(lines[:, a].tolist(), lines[:, b].tolist(), strict=True)
    return pairs


def _wrapped(extent: int, *, wrap: bool) -> list[tuple[int, int]]:
    """Neighbours on a line, and its ends where it closes to a ring of three or more."""
    line = [(i, i + 1) for i in range(extent - 1)]
    return [*line, (extent - 1, 0)] if wrap and extent > 2 else line


def _joined(
    name: str, shape: Shape, pairs: list[tuple[int, int]], text: str | None = None
) -> Topology:
    machine = Assembly(f"{name}:{text or shape.text}", 1)
    gpus = [machine.gpu(0) for _ in range(shape.ranks)]
    for a, b in pairs:
        machine.both(gpus[a], gpus[b], "generic", shape.alpha_us, shape.gbs)
    return machine.build((shape.note,))
