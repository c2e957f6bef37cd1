"""The machine and the channel searches of NCCL_DEBUG_SUBSYS=GRAPH lines."""

from __future__ import annotations

import re

from explorer.measured.debug import GraphLink, Pattern
from explorer.measured.row import Remark

PATTERNS = {
    1: "balanced tree",
    2: "split tree",
    3: "tree",
    4: "ring",
    5: "nvls",
    6: "collnet direct",
}
"""``NCCL_TOPO_PATTERN_*`` of NCCL's ``src/include/graph.h``."""

SLOWEST_PCIE_GBS = 0.9
"""A x4 slot of the first generation; a GPU or NIC below that is behind a wrongly told link."""

FASTEST_GBS = 5000.0
"""Beyond every NVSwitch port; NCCL itself writes 5000 for a link inside one device (LOC)."""

_SYSTEM = re.compile(r"^=== System : max(?:Bw|Width) ([\d.]{1,20}) total(?:Bw|Width) ([\d.]{1,20})")
_ROOT = re.compile(r"^([A-Z]{3}/\S+)(?: \(|$)")
_BRANCH = re.compile(r"^(\s*)\+ ([A-Z]{2,4})\[([\d.]{1,20})\] - ([A-Z]{3}/\S+)")
_PATTERN = re.compile(
    r"^Pattern (\d{1,3}), crossNic \d+, nChannels (\d{1,5}), (?:bw|speed) ([\d.]{1,20})"
    r"/([\d.]{1,20}), type (\w{1,8})/(\w{1,8})"
)


class GraphLines:
    """Collects the tree of devices and the results of searches."""

    def __init__(self) -> None:
        self.patterns: dict[Pattern, None] = {}
        self.links: list[GraphLink] = []
        self.remarks: list[Remark] = []
        self._open: list[tuple[int, str]] = []
        self._seen: set[tuple[str, str, str, float]] = set()
        self._patterns_seen: set[tuple[object, ...]] = set()

    def read(self, number: int, text: str) -> bool:
        """Take a line, from behind ``NCCL INFO``; whether it said anything."""
        if _SYSTEM.match(text):
            self._open = []
            return True
        pattern, branch, root = _PATTERN.match(text), _BRANCH.match(text), _ROOT.match(text)
        if pattern:
            self._pattern(number, pattern)
        elif branch:
            self._branch(number, branch)
        elif root:
            self._open = [(-1, root.group(1))]
        return bool(pattern or branch or root)

    def _pattern(self, number: int, match: re.Match[str]) -> None:
        kind, channels, intra, inter, path, between = match.groups()
        bandwidths = _number(intra), _number(inter)
        if None in bandwidths:
            self.remarks.append(Remark(number, "refused", "bandwidths are no numbers"))
            return
        key = match.groups()
        if key not in self._patterns_seen:
            self._patterns_seen.add(key)
            name = PATTERNS.get(int(kind), f"pattern {kind}")
            found = Pattern(
                name, int(channels), bandwidths[0] or 0, bandwidths[1] or 0, path, between, number
            )
            self.patterns[found] = None

    def _branch(self, number: int, match: re.Match[str]) -> None:
        indent, kind, rate, node = len(match.group(1)), match.group(2), *match.groups()[2:]
        gbs = _number(rate)
        while self._open and self._open[-1][0] >= indent:
            self._open.pop()
        if not self._open or gbs is None:
            what = "a branch without trunk" if gbs is not None else f"{rate!r} is no bandwidth"
            self.remarks.append(Remark(number, "refused", f"{what}: {node} is not used"))
            return
        link = GraphLink(self._open[-1][1], node, kind, gbs, number)
        self._open.append((indent, node))
        key = (link.src, link.dst, kind, gbs)
        if key in self._seen:  # every rank of a node prints the same tree
            return
        self._seen.add(key)
        self.links.append(link)
        self._plausible(link)

    def _plausible(self, link: GraphLink) -> None:
        name = f"{link.kind}[{link.gbs:g}] from {link.src} to {link.dst}"
        if link.kind == "PCI" and link.gbs < SLOWEST_PCIE_GBS:
            message = f"{name}: implausible, a virtual machine or a bridge reports a wrong speed"
            self.remarks.append(Remark(link.line, "conflict", message))
        elif link.gbs <= 0 or link.gbs > FASTEST_GBS:
            self.remarks.append(Remark(link.line, "conflict", f"{name}: implausible bandwidth"))


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d+(?:\.\d*)?", text) else None
