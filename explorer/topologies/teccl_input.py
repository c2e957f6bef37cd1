"""Reader of TE-CCL's input JSON: the topology its ``TopologyParams`` ask for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from explorer.core.topology import Link, Topology
from explorer.errors import InputError, Problem, nearest
from explorer.topologies.assembly import Assembly
from explorer.topologies.dgx1v import DOUBLE, SINGLE
from explorer.topologies.json_text import parse_json, where_of
from explorer.topologies.mi250 import LANES
from explorer.topologies.source import Source
from explorer.units import beta_us_per_mib

MAX_SIDE = 64
NAMES = ("AMD", "DGX1", "DGX2", "Mesh", "NDv2")


def looks_like_teccl(source: Source) -> bool:
    """Whether it is JSON with ``TopologyParams``."""
    return source.text.lstrip().startswith("{") and '"TopologyParams"' in source.text


def read_teccl_input(source: Source, nodes: int | None, sized: bool) -> Topology:
    """Build the graph TE-CCL would.

    Parameters
    ----------
    source
        The file.
    nodes
        Instead of its ``chassis``.
    sized
        Not used: TE-CCL's rates are GB/s, its chunk size only sets how long a chunk takes.

    Raises
    ------
    InputError
        If the topology is not one of TE-CCL's, or not for that many chassis.
    """
    data: Any = parse_json(source)
    params = data.get("TopologyParams") if isinstance(data, dict) else None
    if not isinstance(params, dict):
        raise InputError(Problem(source.name, "TopologyParams: expected an object"))
    name = params.get("name")
    if name not in NAMES:
        raise InputError(
            Problem(where_of(source, "name"), f"got {name!r}, {nearest(str(name), NAMES)}")
        )
    chassis = params.get("chassis", 1) if nodes is None else nodes
    if not isinstance(chassis, int) or isinstance(chassis, bool) or not 1 <= chassis <= 64:
        where = where_of(source, "chassis") if nodes is None else "--nodes"
        raise InputError(Problem(where, f"chassis {chassis!r}, expected 1 to 64"))
    topology = _build(source, params, name, chassis)
    size = params.get("chunk_size")
    return replace(
        topology,
        notes=(
            f"TE-CCL {name} with {chassis} chassis: teccl/topologies/{name.lower()}.py",
            *topology.notes,
            f"chunk_size {size!r} is in GB and belongs to the collective, not to the links; solver"
            " and instance parameters are left out",
        ),
    )


def _build(source: Source, params: dict[str, Any], name: str, chassis: int) -> Topology:
    if name == "DGX2":
        _only(source, name, chassis, (2,))
        return _dgx2(source.stem)
    if name in ("DGX1", "Mesh"):
        _only(source, name, chassis, (1,))
    if name == "NDv2":
        _only(source, name, chassis, (1, 2))
    machine = Assembly(source.stem, chassis)
    if name == "AMD":
        return _amd(source, params, machine)
    if name == "Mesh":
        return _mesh(source, params, machine)
    for node in range(chassis):
        gpus = [machine.gpu(node) for _ in range(8)]
        alpha = 0.7 if name == "NDv2" else _alpha(source, params, 0)
        for lanes, pairs in ((2, DOUBLE), (1, SINGLE)):
            for a, b in pairs:
                machine.both(gpus[a], gpus[b], "nvlink", alpha, 25.0 * lanes, lanes)
    if chassis == 2:
        for a, b in ((0, 9), (8, 1)):
            machine.link(Link(a, b, "network", 1.3, beta_us_per_mib(12.5)))
        return machine.build(
            ("GPU 0 to 9 and GPU 8 to 1 are the only links between the chassis, as TE-CCL has it",)
        )
    return machine.build(())


def _only(source: Source, name: str, chassis: int, known: tuple[int, ...]) -> None:
    if chassis not in known:
        words = " or ".join(map(str, known))
        raise InputError(
            Problem(
                where_of(source, "chassis"),
                f"{name} with {chassis} chassis; this reader knows {words} (TE-CCL's other forms"
                " have a switch in place of a GPU, or none)",
            )
        )


def _alpha(source: Source, params: dict[str, Any], which: int) -> float:
    """One of ``alpha``, in seconds there; TE-CCL gives NVLink 0.7 us where the file has none."""
    alphas = params.get("alpha", [])
    if not isinstance(alphas, list) or not alphas:
        return (0.7, 1.3)[which]
    value = alphas[min(which, len(alphas) - 1)]
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < 1:
        raise InputError(
            Problem(where_of(source, "alpha"), f"got {value!r}, expected seconds such as 7e-7")
        )
    return float(value) * 1e6


def _dgx2(name: str) -> Topology:
    machine = Assembly(name, 2)
    ranks: list[list[int]] = []
    for node in range(2):
        ranks.append([machine.gpu(node) for _ in range(16)])
        plane = machine.device("nvswitch0", "nvswitch", node)
        for gpu in ranks[node]:
            machine.both(gpu, plane, "nvlink", 0.35, 125.0, 6)
    for here, there in ((0, 1), (1, 0)):
        for i in range(1, 16, 2):
            src, dst = ranks[here][i], ranks[there][i - 1]
            machine.link(Link(src, dst, "network", 2.6, beta_us_per_mib(12.5)))
    return machine.build(
        (
            "odd GPU i has a link to GPU i-1 of the other chassis, as TE-CCL has it; TE-CCL lets"
            " switches copy, here they do not",
        )
    )


def _amd(source: Source, params: dict[str, Any], machine: Assembly) -> Topology:
    alpha = _alpha(source, params, 0)
    switches: list[int] = []
    for node in range(machine.nodes):
        gpus = [machine.gpu(node) for _ in range(16)]
        for (a, b), lanes in LANES.items():
            machine.both(gpus[a], gpus[b], "xgmi", alpha, 50.0 * lanes, lanes)
        for i in range(8 if machine.nodes > 1 else 0):
            switch = machine.device(f"nic{i}", "nic", node)
            for gpu in gpus[2 * i : 2 * i + 2]:
                machine.both(gpu, switch, "pcie", _alpha(source, params, 1), 25.0)
            switches.append(switch)
    if switches:
        fabric = machine.device("fabric", "switch")
        for switch in switches:
            machine.both(switch, fabric, "network", _alpha(source, params, 1), 25.0)
    given = "alpha" in params
    return machine.build(
        () if given else ("assumed: 0.7 us inside, 1.3 us outside; the file has no alpha",)
    )


def _mesh(source: Source, params: dict[str, Any], machine: Assembly) -> Topology:
    side = params.get("side_length")
    if not isinstance(side, int) or isinstance(side, bool) or not 1 < side <= MAX_SIDE:
        raise InputError(
            Problem(where_of(source, "side_length"), f"got {side!r}, expected 2 to {MAX_SIDE}")
        )
    gpus = [machine.gpu(0) for _ in range(side * side)]
    for i in range(side * side):
        for j in (i + 1, i + side):
            if j < side * side:
                machine.both(gpus[i], gpus[j], "generic", _alpha(source, params, 0), 100.0)
    return machine.build(
        ("TE-CCL's mesh also joins the end of a row to the start of the next (mesh.py)",)
    )
