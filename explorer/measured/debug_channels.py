"""Rings, trees, NVLS heads and connections of NCCL_DEBUG lines."""

from __future__ import annotations

import re
from collections import Counter

from explorer.measured.debug import Ring, Tree
from explorer.measured.row import Remark

_RING = re.compile(r"^Channel (\d{1,4})/(\d{1,4}) :((?:\s+\d{1,7})+)\s*$")
_HOP = re.compile(r"^Ring (\d{1,4}) : (\d{1,7}) -> (\d{1,7}) -> (\d{1,7})(?!\d|\[)")
_TREE = re.compile(r"\[(\d{1,4})\] (-?\d[-\d/]*(?:->-?\d[-\d/]*){2})(?![\d/])")
_CONNECTION = re.compile(
    r"^(?:Channel|Ring) \d{1,4}(?:/-?\d+)? : (\d{1,7})\[\S*\] -> (\d{1,7})\[\S*\]"
    r"(?: \[(?:send|receive)\])? via ([A-Za-z0-9]+(?:/[A-Za-z]+)?)(?:/(\w+))?"
)
_PATH = re.compile(r"^\s*\d{1,3} : ((?:[A-Z]{3}/\S+\s*)+)$")
_HEAD = re.compile(r"^NVLS Head\s+(\d{1,4}):((?:\s+\d{1,7})+)\s*$")
_COMM = re.compile(
    r"\bcomm 0x[0-9a-f]+ rank (\d{1,7}) n[rR]anks (\d{1,7})(?: nNodes (\d+) localRanks (\d+))?"
)


class ChannelLines:
    """Collects what the lines say about who talks to whom."""

    def __init__(self) -> None:
        self.ranks: int | None = None
        self.nodes: int | None = None
        self.local_ranks: int | None = None
        self.channels: int | None = None
        self.heads: dict[int, tuple[int, ...]] = {}
        self.transports: Counter[str] = Counter()
        self.nics: set[str] = set()
        self._orders: dict[tuple[int, tuple[int, ...]], int] = {}
        self._next: dict[int, dict[int, int]] = {}
        self._hop_line: dict[int, int] = {}
        self._parents: dict[int, dict[int, int]] = {}
        self._tree_line: dict[int, int] = {}
        self.remarks: list[Remark] = []

    def read(self, number: int, text: str) -> bool:
        """Take a line, from behind ``NCCL INFO``; whether it said anything."""
        if text.startswith("Trees "):
            return self._trees(number, text)
        ring, hop, head = _RING.match(text), _HOP.match(text), _HEAD.match(text)
        if ring:
            order = tuple(int(word) for word in ring.group(3).split())
            self._orders.setdefault((int(ring.group(1)), order), number)
            self.channels = max(self.channels or 0, int(ring.group(2)))
        elif hop:
            channel, before, rank, after = (int(part) for part in hop.groups())
            chain = self._next.setdefault(channel, {})
            chain[rank] = after
            chain.setdefault(before, rank)
            self._hop_line.setdefault(channel, number)
        elif head:
            self.heads[int(head.group(1))] = tuple(int(word) for word in head.group(2).split())
        return bool(ring or hop or head) or self._rest(text)

    def _rest(self, text: str) -> bool:
        comm, path = _COMM.search(text), _PATH.match(text)
        connection = _CONNECTION.match(text)
        if comm and int(comm.group(2)) >= (self.ranks or 0):
            self.ranks = int(comm.group(2))
            if comm.group(3):
                self.nodes, self.local_ranks = int(comm.group(3)), int(comm.group(4))
        if connection:
            name, device = connection.group(3), connection.group(4)
            self.transports[name] += 1
            if device and name.startswith("NET"):
                self.nics.add(f"{name}/{device}")
        if path:
            self.nics.update(word for word in path.group(1).split() if word.startswith("NET/"))
        return bool(comm or connection or path)

    def _trees(self, number: int, text: str) -> bool:
        found = list(_TREE.finditer(text))
        for match in found:
            channel = int(match.group(1))
            parts = match.group(2).split("->")
            # parent->rank->children until 2.5, children->rank->parent since
            up = parts[2] if "/" not in parts[2] else parts[0]
            try:
                rank, parent = int(parts[1]), int(up)
            except ValueError:
                self.remarks.append(Remark(number, "refused", f"no tree: {match.group()[:60]!r}"))
                continue
            known = self._parents.setdefault(channel, {})
            if known.setdefault(rank, parent) != parent:
                message = f"rank {rank} has parents {known[rank]} and {parent} in tree {channel}"
                self.remarks.append(Remark(number, "conflict", message))
            self._tree_line.setdefault(channel, number)
        return bool(found)

    def rings(self) -> tuple[Ring, ...]:
        """Rings said in one line, and those put together from the ranks' own lines."""
        rings = [
            Ring(channel, order, self._whole(order), line)
            for (channel, order), line in self._orders.items()
        ]
        told = {ring.channel for ring in rings}
        for channel, chain in sorted(self._next.items()):
            if channel not in told:
                order = _walk(chain)
                rings.append(Ring(channel, order, self._closed(chain), self._hop_line[channel]))
        return tuple(sorted(rings, key=lambda ring: (ring.channel, ring.line)))

    def _closed(self, chain: dict[int, int]) -> bool:
        order = _walk(chain)
        return self._whole(order) and chain.get(order[-1]) == order[0]

    def _whole(self, order: tuple[int, ...]) -> bool:
        expected = self.ranks or max((max(o) + 1 for _, o in self._orders), default=len(order))
        return sorted(order) == list(range(expected))

    def trees(self) -> tuple[Tree, ...]:
        """Trees, each from the lines of its ranks."""
        trees = []
        for channel, parents in sorted(self._parents.items()):
            whole = self.ranks is not None and sorted(parents) == list(range(self.ranks))
            complete = whole and _one_root(parents)
            pairs = tuple(sorted(parents.items()))
            trees.append(Tree(channel, pairs, complete, self._tree_line[channel]))
        return tuple(trees)

    def complain(self) -> list[Remark]:
        """Say what is cut, contradictory or lopsided."""
        said = list(self.remarks)
        for ring in self.rings():
            if not ring.complete and ring.channel not in self._next:
                expected = self.ranks or max(max(order) + 1 for _, order in self._orders)
                message = f"ring {ring.channel} names {len(set(ring.order))} of {expected} ranks"
                said.append(Remark(ring.line, "note", f"{message}: cut, or a smaller group"))
        heads, local = len(self.heads), self.local_ranks
        if heads and local and heads < local:
            message = f"{heads} NVLS heads for {local} GPUs of a node: not every rail is used"
            said.append(Remark(0, "note", message))
        told = {channel for channel, _ in self._orders}
        if self.channels and told and len(told) < self.channels:
            message = f"{len(told)} of {self.channels} rings are in this text"
            said.append(Remark(0, "note", message))
        return said


def _walk(chain: dict[int, int]) -> tuple[int, ...]:
    """Follow a ring from its smallest rank, or a piece of one from its start."""
    starts = sorted(set(chain) - set(chain.values())) or [min(chain)]
    order, seen = [starts[0]], {starts[0]}
    while order[-1] in chain and chain[order[-1]] not in seen:
        order.append(chain[order[-1]])
        seen.add(order[-1])
    return tuple(order)


def _one_root(parents: dict[int, int]) -> bool:
    roots = [rank for rank, parent in parents.items() if parent < 0]
    if len(roots) != 1:
        return False
    sound = {roots[0]}
    for start in parents:
        path, rank = [], start
        while rank not in sound:
            if rank in path or rank not in parents:
                return False
            path.append(rank)
            rank = parents[rank]
        sound.update(path)
    return True
