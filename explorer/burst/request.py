"""Request: what ``explorer plan`` is asked for, from options or a training scenario."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

from explorer.burst.collective_times import CollectiveTimes
from explorer.burst.cost_tables import CostTables, cost_tables
from explorer.burst.counts import gpu_counts
from explorer.burst.network_times import (
    DEEPPOOL_GBS,
    DEEPPOOL_LATENCY_US,
    NetworkTimes,
    flat_times,
)
from explorer.burst.planner import Planner
from explorer.burst.profile import Profile
from explorer.burst.read_profile import load_profile
from explorer.burst.simulated_times import simulated_times
from explorer.errors import InputError, Problem
from explorer.topologies.load import load_topology
from sim.network import COST_MODELS

DEFAULT_MEMORY_BYTES = 40e9
"""Memory of the smaller A100; the authors do not state theirs."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What to plan.

    Parameters
    ----------
    profile
        Shipped name or file.
    gpus, batch
        GPUs of the machine and global batch; None for the profile's own.
    limit
        Amplification limit; None for none.
    price
        lambda of the priced mode.
    counts
        ``powers`` or ``divisors``.
    topology, nodes
        Machine whose collectives are simulated; None for the flat formula.
    cost_model
        Of that simulation.
    collectives
        File that keeps simulated times.
    bandwidth_gbs, latency_us
        The flat formula's.
    memory_bytes
        Of a GPU.
    step_us
        Rest of an iteration; None for the profile's.
    exempt_us
        Layers this short on one GPU are exempt from the limit.
    extrapolate
        Allow local batches above the measured ones.
    """

    profile: str
    gpus: int | None = None
    batch: int | None = None
    limit: float | None = None
    price: float = 0.0
    counts: str = "powers"
    topology: str | None = None
    nodes: int | None = None
    cost_model: str = "exclusive"
    collectives: Path | None = None
    bandwidth_gbs: float = DEEPPOOL_GBS
    latency_us: float = DEEPPOOL_LATENCY_US
    memory_bytes: float = DEFAULT_MEMORY_BYTES
    step_us: float | None = None
    exempt_us: float = 0.0
    extrapolate: bool = False

    def __post_init__(self) -> None:
        problems = [
            Problem(where, f"got {got}, expected {text}")
            for where, got, fine, text in (
                ("--limit", self.limit, self.limit is None or self.limit >= 1, _LIMIT),
                ("--price", self.price, 0 <= self.price < math.inf, "a number >= 0"),
                ("--bandwidth", self.bandwidth_gbs, 0 < self.bandwidth_gbs < math.inf, _RATE),
                ("--latency", self.latency_us, 0 <= self.latency_us < math.inf, "a number >= 0"),
                ("--memory", self.memory_bytes, self.memory_bytes > 0, "a number > 0"),
                ("--exempt-us", self.exempt_us, self.exempt_us >= 0, "a number >= 0"),
                ("--step-us", self.step_us, _step_fine(self.step_us), "a number >= 0"),
                (
                    "--cost-model",
                    self.cost_model,
                    self.cost_model in COST_MODELS,
                    f"one of {', '.join(COST_MODELS)}",
                ),
            )
            if not fine
        ]
        if self.collectives is not None and self.topology is None:
            problems.append(Problem("--collectives", "needs --topology: nothing is simulated"))
        if self.nodes is not None and self.topology is None:
            problems.append(Problem("--nodes", "goes with --topology"))
        if problems:
            raise InputError(problems)


_LIMIT = "at least 1 (a layer on one GPU has amplification 1)"
_RATE = "a rate above 0"


def _step_fine(step_us: float | None) -> bool:
    return step_us is None or 0 <= step_us < math.inf


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A planner ready to search.

    Parameters
    ----------
    planner
        Its tables are filled.
    table_seconds
        Wall-clock seconds it took to fill them, without simulations.
    simulated, simulation_seconds
        Collectives that were simulated for it (the others were kept), and how long that took.
    """

    planner: Planner
    table_seconds: float
    simulated: int
    simulation_seconds: float


def prepare(request: PlanRequest, times: CollectiveTimes | None = None) -> Prepared:
    """Load the profile and fill the tables of costs.

    Parameters
    ----------
    times
        Simulated times to use and add to; None to load the request's topology.

    Raises
    ------
    InputError
        With everything that is wrong with the request.
    """
    profile = load_profile(request.profile)
    gpus = profile.gpus if request.gpus is None else request.gpus
    batch = profile.batch if request.batch is None else request.batch
    missing = [
        Problem(option, f"is needed: the profile {profile.model!r} does not say it")
        for option, value in (("--gpus", gpus), ("--batch", batch))
        if value is None
    ]
    if gpus is None or batch is None:
        raise InputError(missing)
    counts = gpu_counts(batch, gpus, request.counts)
    network, simulated, seconds = _network(request, profile, counts, batch, gpus, times)
    began = perf_counter()
    tables = _tables(request, profile, batch, gpus, network)
    planner = Planner(tables, request.step_us, request.memory_bytes)
    return Prepared(planner, perf_counter() - began, simulated, seconds)


def _tables(
    request: PlanRequest, profile: Profile, batch: int, gpus: int, network: NetworkTimes
) -> CostTables:
    tables = cost_tables(
        profile,
        batch,
        gpus,
        network,
        limit=math.inf if request.limit is None else request.limit,
        exempt_us=request.exempt_us,
        extrapolate=request.extrapolate,
    )
    notes = []
    if batch < gpus:
        notes.append(
            f"batch {batch} is smaller than {gpus} GPUs: at most {tables.counts[-1]} get a sample"
        )
    dropped = [2**k for k in range(gpus.bit_length()) if 2**k <= gpus and batch % 2**k]
    if dropped and batch >= dropped[0]:
        notes.append(f"GPU counts {dropped} do not divide batch {batch} and are not offered")
    if profile.step_us is None and request.step_us is None:
        notes.append("step_us (loss, optimiser) is unknown for this profile and counted as 0")
    if request.exempt_us:
        notes.append(
            f"layers of at most {request.exempt_us:g} us on one GPU are exempt from limits"
        )
    return replace(tables, notes=(*tables.notes, *notes))


def _network(
    request: PlanRequest,
    profile: Profile,
    counts: tuple[int, ...],
    batch: int,
    gpus: int,
    times: CollectiveTimes | None,
) -> tuple[NetworkTimes, int, float]:
    if request.topology is None and times is None:
        flat = flat_times(counts, batch, request.bandwidth_gbs, request.latency_us)
        return flat, 0, 0.0
    if times is None:
        topology = load_topology(str(request.topology), request.nodes)
        times = CollectiveTimes(topology, request.cost_model, request.collectives)
    began, before = perf_counter(), times.simulated
    branching = any(len(layer.prev) > 1 for layer in profile.layers)
    network = simulated_times(
        times, counts, batch, gpus, profile.params * profile.param_bytes, far=branching
    )
    times.save()
    return network, times.simulated - before, perf_counter() - began


KEYS: Mapping[str, str] = {
    "profile": "profile",
    "gpus": "gpus",
    "batch": "batch",
    "limit": "limit",
    "price": "price",
    "counts": "counts",
    "topology": "topology",
    "nodes": "nodes",
    "cost_model": "cost_model",
    "bandwidth": "bandwidth_gbs",
    "latency_us": "latency_us",
    "memory": "memory_bytes",
    "step_us": "step_us",
    "exempt_us": "exempt_us",
    "extrapolate": "extrapolate",
}
"""Keys of a training scenario, and the request's field for each."""
