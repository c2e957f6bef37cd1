"""Builders by name: a new machine is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from explorer.core.topology import Topology
from explorer.errors import InputError, Problem, nearest
from explorer.topologies import generic
from explorer.topologies.dgx1 import dgx1
from explorer.topologies.dgx2 import dgx2
from explorer.topologies.dgx_a100 import dgx_a100
from explorer.topologies.dgx_h100 import dgx_h100
from explorer.topologies.mi250 import mi250
from explorer.topologies.mi300x import mi300x
from explorer.topologies.ndv2 import ndv2

MAX_NODES = 4096


@dataclass(frozen=True, slots=True)
class Builder:
    """A machine that can be asked for by name.

    Parameters
    ----------
    summary
        One line for ``explorer topology list``.
    of_nodes
        Builds that many nodes; None for a generic machine.
    of_shape
        Builds a generic machine of a shape; None for a machine of nodes.
    shape_help
        The shape as help writes it; empty for a machine of nodes.
    """

    summary: str
    of_nodes: Callable[[int], Topology] | None = None
    of_shape: Callable[[str], Topology] | None = None
    shape_help: str = ""


BUILDERS = {
    "dgx1": Builder("8 V100, NVLink hybrid cube mesh, 4 NICs of 100 Gb/s", dgx1),
    "dgx2": Builder("16 V100 on NVSwitch, 8 NICs of 100 Gb/s", dgx2),
    "dgx_a100": Builder("8 A100 on NVSwitch, 8 NICs of 200 Gb/s", dgx_a100),
    "dgx_h100": Builder("8 H100 on NVSwitch, 8 NICs of 400 Gb/s on rails", dgx_h100),
    "mi250": Builder("8 MI250 (16 GCDs) on xGMI, 8 NICs of 200 Gb/s", mi250),
    "mi300x": Builder("8 MI300X, xGMI full mesh, 8 NICs of 400 Gb/s", mi300x),
    "ndv2": Builder("8 V100 as in dgx1, one NIC of 100 Gb/s (Azure NDv2)", ndv2),
    "full": Builder("a link for every pair", None, generic.full, "N"),
    "hypercube": Builder("2^D ranks, linked along bits", None, generic.hypercube, "D"),
    "mesh": Builder("grid without wrap-around", None, generic.mesh, "AxB[xC]"),
    "ring": Builder("ring, both directions", None, generic.ring, "N"),
    "switch": Builder("one port per rank on one switch", None, generic.switch, "N"),
    "torus": Builder("grid with wrap-around", None, generic.torus, "AxB[xC]"),
}
"""Every builder; a generic one takes its shape after a colon."""

EXAMPLE_SHAPES = {"full": "6", "hypercube": "3", "mesh": "4x4", "ring": "8", "switch": "8"} | {
    "torus": "4x4x4"
}
"""A shape for every generic builder, for listings."""


def systems_folder() -> Path:
    """Folder of the shipped machine files: in the checkout, or inside an installed package."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "_scenarios" / "systems"
    return installed if installed.is_dir() else package.parent / "scenarios" / "systems"


def system_names() -> list[str]:
    """Names of the shipped machine files, sorted."""
    return sorted(path.stem for path in systems_folder().glob("*.yaml"))


def topology_names() -> list[str]:
    """Every name a topology can be asked for by, generic ones without their shape; sorted."""
    return sorted([*BUILDERS, *system_names()])


def build_topology(name: str, shape: str, nodes: int | None) -> Topology:
    """Build a machine by name.

    Parameters
    ----------
    name
        Key of :data:`BUILDERS`.
    shape
        What stood after the colon; empty for none.
    nodes
        Number of nodes; None for one.

    Raises
    ------
    InputError
        If there is no such builder, its shape is missing or wrong, or the nodes do not fit.
    """
    builder = BUILDERS.get(name)
    if builder is None:
        raise InputError(
            Problem(
                "--topology",
                f"got {name!r}, {nearest(name, topology_names())}"
                " (`explorer topology list` shows all; a file needs its suffix or a slash)",
            )
        )
    if builder.of_shape is not None:
        return _of_shape(name, builder.of_shape, shape, nodes)
    if shape:
        raise InputError(
            Problem("--topology", f"{name} takes no shape, got {shape!r} (nodes go in --nodes)")
        )
    count = 1 if nodes is None else nodes
    if not 1 <= count <= MAX_NODES:
        raise InputError(Problem("--nodes", f"got {count}, expected 1 to {MAX_NODES}"))
    if builder.of_nodes is None:
        raise InputError(f"builder {name!r} builds nothing")
    return builder.of_nodes(count)


def _of_shape(
    name: str, build: Callable[[str], Topology], shape: str, nodes: int | None
) -> Topology:
    if nodes not in (None, 1):
        raise InputError(
            Problem(
                "--nodes",
                f"got {nodes}, but {name}:{shape} is a single machine without a network; use a"
                " machine such as dgx_a100, or a file with a network",
            )
        )
    return build(shape)
