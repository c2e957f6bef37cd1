"""The simulator's view of a machine: paths between the rank pairs a program uses."""

from __future__ import annotations

import numpy as np

from explorer.core.rank_graph import rank_graph
from explorer.core.topology import Topology
from explorer.errors import InputError, Problem
from explorer.units import MIB
from sim.network import Network
from sim.program import Program


def program_pairs(program: Program) -> list[tuple[int, int]]:
    """Sorted (src, dst) rank pairs between which a program sends."""
    sends = program.tb_send >= 0
    pairs = np.unique(np.stack([program.tb_rank[sends], program.tb_send[sends]], axis=1), axis=0)
    return [(int(a), int(b)) for a, b in pairs]


def network_for(topology: Topology, program: Program) -> Network:
    """Network with the paths of a program.

    Parameters
    ----------
    topology
        The machine; pairs that no switch connects are routed over other GPUs, at the price of all
        links on the way.
    program
        Whose connections need paths.

    Raises
    ------
    InputError
        If a pair has no path; all such pairs are named.
    """
    pairs = program_pairs(program)
    absent = sorted({r for pair in pairs for r in pair if r >= topology.ranks})
    if absent or program.ranks != topology.ranks:
        raise InputError(
            f"the program is for {program.ranks} ranks, topology {topology.name!r} has"
            f" {topology.ranks}"
        )
    routed = rank_graph(topology, pairs)
    if routed.edges < len(pairs):
        found = set(zip(routed.src.tolist(), routed.dst.tolist(), strict=True))
        missing = [pair for pair in pairs if pair not in found]
        raise InputError(
            [Problem(topology.name, f"no path from rank {a} to rank {b}") for a, b in missing]
        )
    return Network(
        topology.ranks,
        routed.resources,
        routed.src,
        routed.dst,
        routed.alpha_us,
        routed.beta_us_per_mib / MIB,
        routed.resource_first,
        routed.resource,
    )
