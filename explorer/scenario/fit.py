"""Whether a method or sketch fits a machine, asked before anything runs."""

from __future__ import annotations

from explorer.core.collective import Collective
from explorer.core.topology import Topology
from explorer.errors import InputError
from explorer.scenario.words import Words


def method_misfit(method: str, collective: str, topology: Topology, words: Words) -> str:
    """Why a method cannot do a collective on a machine; empty when it can."""
    from explorer.baselines.registry import supports

    if method in words.synthesizers:
        return ""
    return supports(method, Collective(collective, topology.ranks), topology) or ""


def sketch_misfit(sketch: str, topology: Topology) -> str:
    """Why a sketch does not fit a machine; empty when it does."""
    from explorer.sketches.registry import load_sketch

    try:
        load_sketch(sketch, topology)
    except InputError as error:
        return "; ".join(str(problem) for problem in error.problems)
    return ""
