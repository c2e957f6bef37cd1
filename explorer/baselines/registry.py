"""Baselines by name: a new one is one file and one line here."""

from __future__ import annotations

from explorer.baselines.allpairs import ALLPAIRS
from explorer.baselines.baseline import Baseline
from explorer.baselines.hierarchical import HIERARCHICAL
from explorer.baselines.recursive import RECURSIVE
from explorer.baselines.ring import RING
from explorer.baselines.tree import TREE
from explorer.core.collective import Collective
from explorer.core.topology import Topology
from explorer.errors import InputError, Problem, nearest
from sim.program import Program

BASELINES: dict[str, Baseline] = {
    baseline.name: baseline for baseline in (ALLPAIRS, HIERARCHICAL, RECURSIVE, RING, TREE)
}
"""Every baseline."""


def find_baseline(name: str) -> Baseline:
    """Find a baseline.

    Raises
    ------
    InputError
        If there is none of that name; the nearest is named.
    """
    found = BASELINES.get(name)
    if found is None:
        raise InputError(Problem("baseline", f"got {name!r}, {nearest(name, BASELINES)}"))
    return found


def build_baseline(
    name: str,
    topology: Topology,
    collective: Collective,
    *,
    placement: str = "out",
    protocol: str = "Simple",
    channels: int = 1,
    instances: int = 1,
) -> Program:
    """Build the program of a baseline; see :meth:`~explorer.baselines.baseline.Baseline.build`."""
    return find_baseline(name).build(
        topology,
        collective,
        placement=placement,
        protocol=protocol,
        channels=channels,
        instances=instances,
    )


def supports(name: str, collective: Collective | str, topology: Topology) -> str | None:
    """Say why a baseline does not suit a collective on a machine; None when it does.

    Parameters
    ----------
    collective
        A collective, or a key for the collective on all ranks of the machine.
    """
    if isinstance(collective, str):
        collective = Collective(collective, topology.ranks)
    return find_baseline(name).supports(collective, topology)
