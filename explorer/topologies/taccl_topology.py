"""A TACCL profile as a topology, in the profile's own units or in microseconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from explorer.core.topology import Link, Topology
from explorer.errors import InputError, Problem
from explorer.topologies.assembly import Assembly
from explorer.topologies.source import Source
from explorer.topologies.taccl_profile import LinkCost, TacclProfile, read_taccl_profile

MAX_NODES = 4096


def read_taccl_topology(source: Source, nodes: int | None, sized: bool) -> Topology:
    """Read a TACCL topology file.

    Parameters
    ----------
    source
        The file; it describes one node.
    nodes
        How many of them; None for one.
    sized
        True: alpha in us and beta in us per MiB, for which the profile's chunk size must be
        known. False: costs per chunk as TACCL's last stage counts them, a chunk on a node link
        ``invbw``, a NIC ``remote_alpha`` and ``remote_beta``; ``time_unit`` is ``profile``.

    Raises
    ------
    InputError
        With every problem of the file; if several nodes are asked for and the file has no
        ``remote_*`` costs; if sizes are asked for and the chunk size is not known.
    """
    profile = read_taccl_profile(source)
    count = 1 if nodes is None else nodes
    if not 1 <= count <= MAX_NODES:
        raise InputError(Problem("--nodes", f"got {count}, expected 1 to {MAX_NODES}"))
    if count > 1 and (profile.remote is None or profile.nics == 0):
        raise InputError(
            Problem(
                source.name,
                f"--nodes {count}: the file says nothing of the way between nodes, expected"
                " nics_per_node, remote_alpha and remote_beta",
            )
        )
    costs = _sized_costs(source, profile) if sized else _profile_costs(profile)
    machine = Assembly(profile.name, count)
    fabric = machine.device("fabric", "switch") if count > 1 else -1
    for node in range(count):
        gpus = [machine.gpu(node) for _ in range(profile.gpus)]
        _join(machine, profile, node, gpus, costs)
        if costs.remote is not None and count > 1:
            _add_nics(machine, profile.nics, node, gpus, fabric, costs.remote)
    notes = (*profile.notes, costs.note)
    if sized:
        return machine.build(notes)
    return machine.build(notes, time_unit="profile", nics_per_node=profile.nics)


@dataclass(frozen=True, slots=True)
class _Costs:
    """(alpha, beta) of node links by link class, and of the way over a NIC."""

    links: Callable[[LinkCost], tuple[float, float]]
    remote: tuple[float, float] | None
    note: str


def _profile_costs(profile: TacclProfile) -> _Costs:
    """One chunk takes ``invbw``; what of it is not ``beta`` is paid once by a group.

    In the 1MB files the two are equal, and grouping saves nothing.
    """
    return _Costs(
        lambda cost: (round(max(0.0, cost.invbw - cost.beta), 9), min(cost.beta, cost.invbw)),
        profile.remote,
        "costs per chunk in the profile's own units, as TACCL's last stage counts them",
    )


def _sized_costs(source: Source, profile: TacclProfile) -> _Costs:
    if profile.chunk_kib is None or profile.scale is None:
        unknown = "the chunk size" if profile.chunk_kib is None else "the factor on its times"
        raise InputError(
            Problem(
                "--size",
                f"{source.name}: {unknown} of profile {profile.name!r} is not known, so sizes in"
                ' bytes have no cost; leave out --size, or add "chunk_size": "1MB" and "scale": 1'
                " to the file",
            )
        )
    mib, scale = profile.chunk_kib / 1024, profile.scale
    alpha = profile.alpha / scale
    remote = None
    if profile.remote is not None:
        remote = (profile.remote[0] / scale, profile.remote[1] / scale / mib)
    return _Costs(
        lambda cost: (alpha, cost.beta / scale / mib),
        remote,
        f"costs of {profile.chunk_kib} KiB chunks times {scale:g}, turned into us and us per MiB",
    )


def _join(
    machine: Assembly, profile: TacclProfile, node: int, gpus: list[int], costs: _Costs
) -> None:
    """Links between the GPUs of a node; on a switch, alpha stands on the way to it."""
    for (src, dst), cost in sorted(profile.links.items()):
        machine.link(Link(gpus[src], gpus[dst], "nvlink", *costs.links(cost)))
    if profile.port is not None:
        plane = machine.device("nvswitch0", "nvswitch", node)
        alpha, beta = costs.links(profile.port)
        for gpu in gpus:
            machine.link(Link(gpu, plane, "nvlink", alpha, beta))
            machine.link(Link(plane, gpu, "nvlink", 0.0, beta))


def _add_nics(
    machine: Assembly,
    nics: int,
    node: int,
    gpus: list[int],
    fabric: int,
    remote: tuple[float, float],
) -> None:
    """NICs of a node, their sending and receiving sides apart so that no route turns in one.

    GPU i uses NIC ``i * nics // gpus``. The whole remote alpha stands on the sending side.
    """
    alpha, beta = remote
    for i in range(nics):
        out = machine.device(f"nic{i}.tx", "nic", node)
        into = machine.device(f"nic{i}.rx", "nic", node)
        machine.link(Link(out, fabric, "network", alpha, beta))
        machine.link(Link(fabric, into, "network", 0.0, beta))
        for j, gpu in enumerate(gpus):
            if j * nics // len(gpus) == i:
                machine.link(Link(gpu, out, "pcie", 0.0, beta))
                machine.link(Link(into, gpu, "pcie", 0.0, beta))
