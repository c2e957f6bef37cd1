"""Draft: a topology while a YAML file is read into it."""

from __future__ import annotations

import re
from collections.abc import Callable

from explorer.core.topology import DEVICE_KINDS, LINK_KINDS, Device, Link
from explorer.errors import nearest
from explorer.topologies.assembly import NETWORK
from explorer.topologies.fields import RATE_KEYS, Fields
from explorer.topologies.yaml_tree import Tree

LINK_KEYS = ("from", "to", "kind", "alpha", "alpha_us", *RATE_KEYS, "lanes", "both")
MAX_DEVICES = 1 << 16
_RANGE = re.compile(r"(.*?)(\d{1,6})\.\.(.*?)(\d{1,6})")


class Draft:
    """Devices and links so far, by name.

    Parameters
    ----------
    fields
        Where problems go.
    nodes
        Number of nodes in the end: with more than one, names get the prefix ``n<k>/``.
    """

    def __init__(self, fields: Fields, nodes: int) -> None:
        self.fields = fields
        self.nodes = nodes
        self.devices: list[Device] = []
        self.links: list[Link] = []
        self.index: dict[str, int] = {}
        self.first_gpu: list[int] = []
        self._gpus = 0

    def add(self, name: str, kind: str, node: int, line: int) -> None:
        """Add a device under its final name."""
        if name in self.index:
            self.fields.problem(line, f"device {name!r} is given twice")
        elif len(self.devices) >= MAX_DEVICES:
            self.fields.problem(line, f"more than {MAX_DEVICES} devices")
            self.fields.check()
        else:
            self.index[name] = len(self.devices)
            self.devices.append(Device(name, kind, node))

    def device_names(self, tree: Tree, what: str) -> list[tuple[str, str, int]]:
        """Take ``devices`` of a block: kind -> names; (name, kind, line) in their order."""
        return [
            (name, kind, names.line)
            for kind, names in self.fields.table(tree, what, DEVICE_KINDS).items()
            for name in self.names(names, f"{what}.{kind}")
        ]

    def names(self, tree: Tree, what: str) -> list[str]:
        """Take a name, a range such as ``gpu0..7``, or a list of them."""
        if isinstance(tree.value, list):
            return [name for item in tree.value for name in self.names(item, what)]
        text = self.fields.text(tree, what)
        match = _RANGE.fullmatch(text)
        if match is None:
            return [text] if text else []
        stem, first, again, last = match.groups()
        if again not in ("", stem) or int(last) < int(first):
            self.fields.problem(tree.line, f"{what}: got {text!r}, expected e.g. gpu0..7")
            return []
        if int(last) - int(first) >= MAX_DEVICES:
            self.fields.problem(tree.line, f"{what}: {text!r} names over {MAX_DEVICES} devices")
            return []
        return [f"{stem}{i}" for i in range(int(first), int(last) + 1)]

    def node(self, names: list[tuple[str, str, int]], node: int) -> dict[str, str]:
        """Add the devices of one node; returns their final names by their names in the block."""
        final = {}
        local = 0
        self.first_gpu.append(self._gpus)
        for name, kind, line in names:
            if kind == "gpu":
                if name != f"gpu{local}":
                    self.fields.problem(
                        line, f"GPU {name!r}: expected gpu{local}, GPUs are named by their rank"
                    )
                final[name] = f"gpu{self._gpus}"
                local += 1
                self._gpus += 1
            else:
                final[name] = f"n{node}/{name}" if self.nodes > 1 else name
            self.add(final[name], kind, node, line)
        return final

    def network(self, names: list[tuple[str, str, int]]) -> None:
        """Add the devices between the nodes."""
        for name, kind, line in names:
            if kind == "gpu":
                self.fields.problem(line, f"network.devices: GPU {name!r} stands in no node")
            self.add(name, kind, NETWORK, line)

    def read_links(self, tree: Tree, what: str, final: Callable[[str], str]) -> None:
        """Take a list of links.

        Parameters
        ----------
        tree, what
            The list and its key.
        final
            Final name of an end named there.
        """
        for i, item in enumerate(self.fields.items(tree, what)):
            self._read_link(item, f"{what}[{i}]", final)

    def _read_link(self, tree: Tree, what: str, final: Callable[[str], str]) -> None:
        fields = self.fields
        table = fields.table(tree, what, LINK_KEYS)
        missing = [key for key in ("from", "to") if key not in table]
        if missing:
            fields.problem(tree.line, f"{what}: {' and '.join(missing)} missing")
            return
        alpha = fields.alpha_us(table, tree.line, what)
        beta = fields.beta(table, tree.line, what)
        kind = fields.word(table["kind"], what, LINK_KINDS) if "kind" in table else "generic"
        lanes = fields.whole(table["lanes"], f"{what}.lanes") if "lanes" in table else 1
        both = "both" in table and fields.flag(table["both"], f"{what}.both")
        for one, other in self._pairs(table, tree.line, what):
            ends = [self._find(final(name), name, tree.line, what) for name in (one, other)]
            if None in ends:
                continue
            src, dst = (int(end) for end in ends if end is not None)
            self.links.append(Link(src, dst, kind, alpha, beta, lanes))
            if both:
                self.links.append(Link(dst, src, kind, alpha, beta, lanes))

    def _pairs(self, table: dict[str, Tree], line: int, what: str) -> list[tuple[str, str]]:
        starts = self.names(table["from"], f"{what}.from")
        ends = self.names(table["to"], f"{what}.to")
        starred = any("n*/" in name for name in (*starts, *ends))
        pairs: list[tuple[str, str]] = []
        if not starts or not ends:
            self.fields.problem(line, f"{what}: {'to' if starts else 'from'} names no device")
            return []
        if len(starts) == 1 or len(ends) == 1:
            count = max(len(starts), len(ends))
            starts, ends = (
                (starts * count)[:count],
                (ends * count)[:count],
            )
        elif len(starts) != len(ends):
            self.fields.problem(
                line,
                f"{what}: from names {len(starts)} devices and to {len(ends)}; expected one on a"
                " side, or as many on both",
            )
            return []
        for node in range(self.nodes) if starred else (0,):
            prefix = f"n{node}/"
            pairs += [
                (a.replace("n*/", prefix), b.replace("n*/", prefix))
                for a, b in zip(starts, ends, strict=True)
            ]
        return pairs

    def _find(self, final: str, name: str, line: int, what: str) -> int | None:
        if final in self.index:
            return self.index[final]
        self.fields.problem(line, f"{what}: no device {name!r}, {nearest(final, self.index)}")
        return None

    def network_name(self, name: str) -> str:
        """Final name of a device named in ``network``: ``n1/nic0``, ``n1/gpu3`` or its own."""
        prefix, slash, local = name.partition("/")
        if not slash or not prefix[1:].isdigit():
            return name
        node, digits = int(prefix[1:]), local.removeprefix("gpu")
        if local.startswith("gpu") and digits.isdigit() and node < len(self.first_gpu):
            return f"gpu{self.first_gpu[node] + int(digits)}"
        return name if self.nodes > 1 else local
