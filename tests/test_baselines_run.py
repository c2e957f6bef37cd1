"""Every baseline's programs, run by an interpreter of the tests' own and by the project's verifier.

Random orders of execution, both kinds of calls, an exact search for races, and many rank counts and
machines: rings, switches, meshes, nodes with rails, with one NIC, of unequal size, with interleaved
ranks.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from baselines_interpreter import races, run
from hypothesis import given
from hypothesis import strategies as st

from explorer.baselines.registry import BASELINES, build_baseline, supports
from explorer.core.collective import COLLECTIVES, Collective
from explorer.core.topology import Topology
from explorer.execute.run import run_program
from explorer.topologies.assembly import Assembly
from explorer.topologies.load import load_topology
from explorer.verify.program import verify_program

PLACEMENTS = ("in", "out", "both")


def cluster(
    sizes: tuple[int, ...], *, nics: int, switched: bool = True, interleaved: bool = False
) -> Topology:
    """Nodes of GPUs on a switch, or in a ring, with NICs on one fabric."""
    machine = Assembly("cluster", len(sizes))
    places = [(k, i) for k, size in enumerate(sizes) for i in range(size)]
    if interleaved:
        places.sort(key=lambda place: place[1])
    gpus = {place: machine.gpu(place[0]) for place in places}
    fabric = machine.device("fabric", "switch")
    for k, size in enumerate(sizes):
        mine = [gpus[k, i] for i in range(size)]
        own = [machine.device(f"nic{i}", "nic", k) for i in range(nics)]
        hub = machine.device("nvswitch0", "nvswitch", k)
        for i, gpu in enumerate(mine):
            if switched or size < 3:
                machine.both(gpu, hub, "nvlink", 0.3, 100.0)
            else:
                machine.both(gpu, mine[(i + 1) % size], "nvlink", 0.6, 50.0)
            machine.both(gpu, own[i * nics // size], "pcie", 0.4, 13.0)
        for nic in own:
            machine.both(nic, fabric, "network", 1.0, 12.5)
    return machine.build()


MACHINES = {
    **{f"full:{n}": lambda n=n: load_topology(f"full:{n}", None) for n in (1, 2, 3, 5, 6, 8)},
    "ring:5": lambda: load_topology("ring:5", None),
    "mesh:3x3": lambda: load_topology("mesh:3x3", None),
    "ndv2x1": lambda: load_topology("ndv2", 1),
    "ndv2x2": lambda: load_topology("ndv2", 2),
    "switch:16": lambda: load_topology("switch:16", None),
    "rails2x3": lambda: cluster((3, 3), nics=3),
    "rails3x2": lambda: cluster((2, 2, 2), nics=2, interleaved=True),
    "ringrails2x4": lambda: cluster((4, 4), nics=2, switched=False),
    "door2x4": lambda: cluster((4, 4), nics=1, switched=False),
    "door3x2": lambda: cluster((2, 2, 2), nics=1, interleaved=True),
    "unequal3+1+2": lambda: cluster((3, 1, 2), nics=1),
}
SETTINGS = [(1, 1, 1), (2, 1, 1), (1, 2, 2), (5, 3, 1)]
"""Chunks per rank, channels, instances."""


def calls(placement: str) -> list[bool]:
    return {"in": [True], "out": [False], "both": [True, False]}[placement]


@pytest.mark.parametrize("machine", MACHINES)
def test_all_programs_verify_without_a_warning(machine: str) -> None:
    topology = MACHINES[machine]()
    seen = 0
    for name in sorted(BASELINES):
        for collective in COLLECTIVES:
            if supports(name, collective, topology):
                continue
            for chunks, channels, instances in SETTINGS if topology.ranks < 16 else SETTINGS[1:3]:
                kind = Collective(collective, topology.ranks, chunks, topology.ranks // 2)
                kind = kind if kind.rooted else replace(kind, root=0)
                for placement in PLACEMENTS:
                    program = build_baseline(
                        name,
                        topology,
                        kind,
                        placement=placement,
                        channels=channels,
                        instances=instances,
                    )
                    asked = replace(kind, chunks_per_rank=chunks * instances)
                    report = verify_program(program, asked, strict=True)
                    assert not report.errors, (name, collective, placement, report.errors[:3])
                    assert not report.warnings, (name, placement, report.warnings[:3])
                    seen += 1
    assert seen >= 2 * 3 * 12


SMALL = ["full:1", "full:2", "full:3", "full:5", "full:6", "rails2x3", "rails3x2", "door2x4"]
SMALL += ["door3x2", "unequal3+1+2", "ringrails2x4"]


@pytest.mark.parametrize("machine", SMALL)
def test_no_races_and_right_values_in_random_order(machine: str) -> None:
    topology = MACHINES[machine]()
    for name in sorted(BASELINES):
        for collective in COLLECTIVES:
            if supports(name, collective, topology):
                continue
            kind = Collective(collective, topology.ranks, 2)
            for seed, placement in enumerate(PLACEMENTS):
                program = build_baseline(
                    name, topology, kind, placement=placement, channels=1 + seed % 2
                )
                for in_place in calls(placement):
                    where = (name, collective, placement, in_place)
                    assert races(program, kind, in_place=in_place) == [], where
                    run(program, kind, in_place=in_place, seed=seed)


@given(
    machine=st.sampled_from(["full:8", "ring:5", "mesh:3x3", "ndv2x1", *SMALL]),
    name=st.sampled_from(sorted(BASELINES)),
    collective=st.sampled_from(COLLECTIVES),
    placement=st.sampled_from(PLACEMENTS),
    chunks=st.integers(1, 4),
    channels=st.integers(1, 3),
    instances=st.integers(1, 3),
    seed=st.integers(0, 1 << 16),
)
def test_any_setting_runs_right_in_any_order(
    machine: str,
    name: str,
    collective: str,
    placement: str,
    chunks: int,
    channels: int,
    instances: int,
    seed: int,
) -> None:
    topology = MACHINES[machine]()
    if supports(name, collective, topology):
        return
    kind = Collective(collective, topology.ranks, chunks)
    if kind.rooted:
        kind = replace(kind, root=seed % topology.ranks)
    program = build_baseline(
        name, topology, kind, placement=placement, channels=channels, instances=instances
    )
    kind = replace(kind, chunks_per_rank=chunks * instances)
    assert program.nchunks == kind.nchunks
    for in_place in calls(placement):
        run(program, kind, in_place=in_place, seed=seed)


def test_the_interpreter_finds_what_is_wrong() -> None:
    # the tests above are worth as much as this: a lost dependency is a race, and sometimes wrong
    kind = Collective("alltoall", 3)
    good = build_baseline("allpairs", MACHINES["full:3"](), kind, placement="in")
    assert len(good.dep_step)
    bad = replace(good, dep_first=good.dep_first * 0, dep_step=good.dep_step[:0])
    assert races(bad, kind, in_place=True)
    wrong = 0
    for seed in range(20):
        try:
            run(bad, kind, in_place=True, seed=seed)
        except AssertionError:
            wrong += 1
    assert wrong > 0
    short = replace(good, tb_send=good.tb_send[::-1].copy())
    with pytest.raises((AssertionError, KeyError)):
        run(short, kind, in_place=True, seed=0)


@pytest.mark.parametrize("name", sorted(BASELINES))
def test_runs_for_real(name: str) -> None:
    topology = MACHINES["rails2x3" if name == "hierarchical" else "full:3"]()
    kind = Collective("allreduce", topology.ranks)
    program = build_baseline(name, topology, kind, placement="both")
    report = run_program(program, kind, size_bytes=4 * 3 * kind.nchunks)
    assert report.ok, report
