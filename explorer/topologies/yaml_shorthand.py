"""Short forms of our topology YAML: nodes by their counts, and a bare list of link rates."""

from __future__ import annotations

from explorer.core.topology import Device, Link, Topology
from explorer.errors import InputError, Problem
from explorer.topologies.assembly import Assembly
from explorer.topologies.fields import RATE_KEYS, Fields
from explorer.topologies.nvswitch import NvSwitchNode, build_nvswitch
from explorer.topologies.yaml_tree import Tree

NODE_KEYS = ("name", "gpus", "nics", "nic_gbps", "gpu_bandwidth")
PORT_GBS = 450.0
NETWORK_ALPHA_US = 2.6
MAX_GPUS = 1024


def read_shorthand(fields: Fields, tree: Tree, nodes: int | None) -> Topology:
    """Read ``nodes: [{name, gpus, nics, nic_gbps}, …]``.

    GPUs of a node are put on one switch; GPU i uses NIC ``i * nics // gpus``; all NICs meet in
    one fabric that does not block. What is assumed stands in the topology's notes.

    Raises
    ------
    InputError
        With every problem at its line.
    """
    items = fields.items(tree, "nodes")
    parts = [_read_node(fields, item, f"nodes[{i}]") for i, item in enumerate(items)]
    fields.check()
    names = [name for name, _ in parts]
    for name in sorted({n for n in names if names.count(n) > 1}):
        fields.problem(tree.line, f"nodes: name {name!r} is given twice")
    for item, (name, part) in zip(items, parts, strict=True):
        if len(parts) > 1 and part.nics == 0:
            fields.problem(item.line, f"node {name!r} has no NIC, so it cannot reach the others")
    fields.check()
    if nodes not in (None, len(parts)):
        raise InputError(
            Problem("--nodes", f"got {nodes}, {fields.source.name} lists {len(parts)} nodes")
        )
    machine = Assembly(fields.source.stem, len(parts))
    build_nvswitch(machine, [part for _, part in parts])
    notes = [
        f"node {name} is n{i}: {part.gpus} GPUs, {part.nics} NICs of {part.nic_gbs:g} GB/s"
        for i, (name, part) in enumerate(parts)
    ]
    rates = sorted({part.port_gbs for _, part in parts})
    notes += [
        "assumed: the GPUs of a node are on one switch, "
        + " or ".join(f"{rate:g}" for rate in rates)
        + " GB/s and 0.35 us per hop (450 as DGX H100 unless gpu_bandwidth says otherwise)",
        "assumed: GPU i uses NIC i*nics/gpus over PCIe as fast as the NIC; one network that does"
        f" not block; {NETWORK_ALPHA_US:g} us GPU to GPU between nodes",
    ]
    return machine.build(tuple(notes))


def _read_node(fields: Fields, tree: Tree, what: str) -> tuple[str, NvSwitchNode]:
    table = fields.table(tree, what, NODE_KEYS)
    for key in ("name", "gpus", "nics"):
        if key not in table:
            fields.problem(tree.line, f"{what}: {key} missing")
    name = fields.text(table["name"], f"{what}.name") if "name" in table else ""
    gpus = fields.whole(table["gpus"], f"{what}.gpus", most=MAX_GPUS) if "gpus" in table else 1
    nics = fields.whole(table["nics"], f"{what}.nics", 0, MAX_GPUS) if "nics" in table else 0
    gbs = 1.0
    if "nic_gbps" in table:
        gbs = fields.number(table["nic_gbps"], f"{what}.nic_gbps", "Gb/s") / 8
        if gbs <= 0:
            fields.problem(tree.line, f"{what}.nic_gbps: a NIC needs a rate above 0")
            gbs = 1.0
    elif nics:
        fields.problem(tree.line, f"{what}: nic_gbps missing")
    port = PORT_GBS
    if "gpu_bandwidth" in table:
        port = fields.rate_gbs(table["gpu_bandwidth"], f"{what}.gpu_bandwidth") or PORT_GBS
    return name, NvSwitchNode(gpus, nics, port, 1, gbs, gbs, NETWORK_ALPHA_US)


def read_link_list(fields: Fields, tree: Tree, nodes: int | None) -> Topology:
    """Read a bare list of link rates: link i joins GPU 2i to GPU 2i+1, one way.

    Raises
    ------
    InputError
        With every problem at its line.
    """
    devices: list[Device] = []
    links: list[Link] = []
    for i, item in enumerate(fields.items(tree, "links")):
        table = fields.table(item, f"[{i}]", ("alpha", "alpha_us", *RATE_KEYS))
        alpha = 0.0
        if "alpha" in table or "alpha_us" in table:
            alpha = fields.alpha_us(table, item.line, f"[{i}]")
        beta = fields.beta(table, item.line, f"[{i}]")
        devices += [Device(f"gpu{2 * i + side}", "gpu", 0) for side in (0, 1)]
        links.append(Link(2 * i, 2 * i + 1, "generic", alpha, beta))
    fields.check()
    if nodes not in (None, 1):
        raise InputError(Problem("--nodes", f"got {nodes}, a bare list of links is one node"))
    notes = ("assumed: link i of the list joins gpu2i to gpu2i+1; alpha 0 unless it says so",)
    return Topology(fields.source.stem, tuple(devices), tuple(links), notes=(*notes, *fields.notes))
