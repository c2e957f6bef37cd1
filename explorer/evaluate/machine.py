"""A machine ready for evaluation: its topology and the direct edges between its ranks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from explorer.core.nic_lanes import nic_lanes
from explorer.core.rank_graph import RankGraph, rank_graph
from explorer.core.sketch import Sketch, apply_sketch
from explorer.core.topology import Topology
from explorer.errors import InputError
from explorer.topologies.load import load_topology


@dataclass(frozen=True, slots=True, eq=False)
class Machine:
    """Topology and edges.

    Parameters
    ----------
    topology
        Devices and links.
    graph
        Every rank pair that switches alone connect.
    """

    topology: Topology
    graph: RankGraph


def load_machine(spec: str, nodes: int | None, *, sized: bool) -> Machine:
    """Load a machine; the last few are kept, since sweeps ask for the same one many times.

    Parameters
    ----------
    spec
        Builder name or file.
    nodes
        Node count for builders and one-node files.
    sized
        Whether sizes are in bytes; otherwise a TACCL profile's own units.

    Raises
    ------
    InputError
        If it does not exist, is malformed, or has no costs without a size.
    """
    path = Path(spec)
    stamp = path.stat().st_mtime_ns if path.is_file() else 0
    return _load(spec, nodes, sized, stamp)


@lru_cache(maxsize=16)
def _load(spec: str, nodes: int | None, sized: bool, stamp: int) -> Machine:
    topology = load_topology(spec, nodes, sized=sized)
    if not sized and topology.time_unit != "profile":
        raise InputError(
            f"--size is needed: {topology.name!r} has costs per byte (only a TACCL profile has"
            " costs per chunk and can do without)"
        )
    return Machine(topology, rank_graph(topology))


@lru_cache(maxsize=32)
def sketched(machine: Machine, sketch: Sketch | None) -> Machine:
    """A machine as a sketch leaves it: only the edges it allows.

    Raises
    ------
    InputError
        If the sketch does not fit the machine or leaves it disconnected.
    """
    if sketch is None:
        return machine
    topology = nic_lanes(machine.topology, sketch)
    graph = machine.graph if topology is machine.topology else rank_graph(topology)
    return Machine(topology, apply_sketch(graph, sketch))
