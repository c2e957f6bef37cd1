"""Reader of our own topology YAML; ``docs/formats-topology.md`` describes it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from explorer.core.topology import DEVICE_KINDS, Topology, merge_parallel
from explorer.errors import InputError, Problem
from explorer.topologies.assembly import NETWORK
from explorer.topologies.draft import Draft
from explorer.topologies.fields import Fields
from explorer.topologies.source import Source
from explorer.topologies.yaml_shorthand import read_link_list, read_shorthand
from explorer.topologies.yaml_tree import Tree, parse_yaml

TOP_KEYS = (
    "name",
    "notes",
    "time_unit",
    "nics_per_node",
    "devices",
    "links",
    "node",
    "nodes",
    "network",
)
BLOCK_KEYS = ("name", "copies", "devices", "links")
MAX_COPIES = 4096
_LOOKS = re.compile(r"^(?:devices|node|nodes|links)\s*:", re.MULTILINE)


def looks_like_topology_yaml(source: Source) -> bool:
    """Whether a file is meant to be our YAML, however broken."""
    text = source.text.lstrip()
    return not text.startswith(("{", "<")) and bool(
        _LOOKS.search(text) or re.search(r"^-\s*\{", text, re.MULTILINE)
    )


def read_topology_yaml(source: Source, nodes: int | None, sized: bool) -> Topology:
    """Read a topology from YAML.

    Parameters
    ----------
    source
        The file.
    nodes
        Copies of a file that describes one node; None for what it says.
    sized
        Not used: costs are per byte unless the file says ``time_unit: profile``.

    Raises
    ------
    InputError
        With every problem at its line.
    """
    tree = parse_yaml(source)
    fields = Fields(source)
    if isinstance(tree.value, list):
        return read_link_list(fields, tree, nodes)
    table = fields.table(tree, "topology", TOP_KEYS)
    forms = [key for key in ("devices", "node", "nodes") if key in table]
    if len(forms) != 1:
        given = f"{' and '.join(forms)} are both given" if forms else "nothing describes the nodes"
        fields.problem(tree.line, f"{given}, expected one of devices, node, nodes")
        fields.check()
    if "nodes" in table and _is_shorthand(table["nodes"]):
        extra = [key for key in ("links", "network") if key in table]
        for key in extra:
            fields.problem(table[key].line, f"{key} does not go with the short form of nodes")
        topology = read_shorthand(fields, table["nodes"], nodes)
        return _finished(fields, table, source, topology)
    draft = _flat(fields, table, nodes) if "devices" in table else _blocks(fields, table, nodes)
    fields.check()
    bare = Topology(source.stem, tuple(draft.devices), merge_parallel(draft.links))
    return _finished(fields, table, source, bare)


def _finished(fields: Fields, table: dict[str, Tree], source: Source, bare: Topology) -> Topology:
    """Add the name, the notes and what a profile says."""
    name = fields.text(table["name"], "name") if "name" in table else source.stem
    notes = [
        fields.text(note, f"notes[{i}]")
        for i, note in enumerate(fields.items(table["notes"], "notes") if "notes" in table else ())
    ]
    unit = "us"
    if "time_unit" in table:
        unit = fields.word(table["time_unit"], "time_unit", ("us", "profile"))
    nics = 0
    if "nics_per_node" in table:
        nics = fields.whole(table["nics_per_node"], "nics_per_node", least=0)
    fields.check()
    every = (*notes, *bare.notes, *fields.notes)
    return Topology(name, bare.devices, bare.links, unit, nics, every)


def _is_shorthand(tree: Tree) -> bool:
    items = tree.value if isinstance(tree.value, list) else []
    return any(isinstance(item.value, dict) and "gpus" in item.value for item in items)


def _flat(fields: Fields, table: dict[str, Tree], nodes: int | None) -> Draft:
    draft = Draft(fields, 1)
    if "network" in table:
        fields.problem(table["network"].line, "network goes with node or nodes, not with devices")
    tree = table["devices"]
    if isinstance(tree.value, list):
        for i, item in enumerate(tree.value):
            what = f"devices[{i}]"
            entry = fields.table(item, what, ("name", "kind", "node"))
            if "name" not in entry or "kind" not in entry:
                fields.problem(item.line, f"{what}: expected name and kind")
                continue
            draft.add(
                fields.text(entry["name"], f"{what}.name"),
                fields.word(entry["kind"], f"{what}.kind", DEVICE_KINDS),
                fields.whole(entry["node"], f"{what}.node", NETWORK) if "node" in entry else 0,
                item.line,
            )
    else:
        for name, kind, line in draft.device_names(tree, "devices"):
            draft.add(name, kind, 0, line)
    gpus = [device.name for device in draft.devices if device.kind == "gpu"]
    for rank, name in enumerate(gpus):
        if name != f"gpu{rank}":
            fields.problem(
                tree.line, f"GPU {name!r}: expected gpu{rank}, GPUs are named by their rank"
            )
    own = len({device.node for device in draft.devices if device.kind == "gpu"})
    if nodes not in (None, own):
        raise InputError(
            Problem(
                "--nodes",
                f"got {nodes}, {fields.source.name} describes {own} nodes with their network; only"
                " a file with a node: block can be multiplied",
            )
        )
    if "links" in table:
        draft.read_links(table["links"], "links", lambda name: name)
    return draft


@dataclass(frozen=True, slots=True)
class _Names:
    """Final names of the devices of a block, others as they are."""

    final: dict[str, str]

    def __call__(self, name: str) -> str:
        return self.final.get(name, name)


@dataclass(frozen=True, slots=True)
class _Block:
    what: str
    copies: int
    table: dict[str, Tree]


def _blocks(fields: Fields, table: dict[str, Tree], nodes: int | None) -> Draft:
    if "links" in table:
        fields.problem(
            table["links"].line, "links belong into node or network, here they join nothing"
        )
    blocks = _read_blocks(fields, table, nodes)
    total = sum(block.copies for block in blocks)
    draft = Draft(fields, total)
    placed: list[tuple[_Block, dict[str, str]]] = []
    for block in blocks:
        names = (
            draft.device_names(block.table["devices"], f"{block.what}.devices")
            if "devices" in block.table
            else []
        )
        for _ in range(block.copies):
            placed.append((block, draft.node(names, len(placed))))
    network: dict[str, Tree] = {}
    if "network" in table:
        network = fields.table(table["network"], "network", ("devices", "links"))
    elif total > 1:
        fields.problem(1, f"{total} nodes but no network: block, so they cannot reach one another")
    if "devices" in network:
        draft.network(draft.device_names(network["devices"], "network.devices"))
    fields.check()
    for block, final in placed:
        if "links" in block.table:
            draft.read_links(block.table["links"], f"{block.what}.links", _Names(final))
            fields.check()
    if "links" in network and not (total == 1 and nodes in (None, 1) and _multiplies(blocks)):
        draft.read_links(network["links"], "network.links", draft.network_name)
    return draft


def _multiplies(blocks: list[_Block]) -> bool:
    """Whether the file is one node that ``--nodes`` may multiply."""
    return len(blocks) == 1 and "copies" not in blocks[0].table


def _read_blocks(fields: Fields, table: dict[str, Tree], nodes: int | None) -> list[_Block]:
    single = "node" in table
    trees = [table["node"]] if single else fields.items(table["nodes"], "nodes")
    blocks = []
    for i, tree in enumerate(trees):
        what = "node" if single else f"nodes[{i}]"
        block = fields.table(tree, what, BLOCK_KEYS)
        if "devices" not in block:
            fields.problem(tree.line, f"{what}: devices missing")
        copies = 1
        if "copies" in block:
            copies = fields.whole(block["copies"], f"{what}.copies", most=MAX_COPIES)
        blocks.append(_Block(what, copies, block))
    fields.check()
    total = sum(block.copies for block in blocks)
    if nodes is None or nodes == total:
        return blocks
    if not _multiplies(blocks) or not 1 <= nodes <= MAX_COPIES:
        raise InputError(
            Problem(
                "--nodes",
                f"got {nodes}, {fields.source.name} describes {total} nodes; only a file with one"
                f" node: block and no copies can be multiplied, up to {MAX_COPIES} times",
            )
        )
    return [_Block(blocks[0].what, nodes, blocks[0].table)]
