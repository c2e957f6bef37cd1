"""Reader of the text that HPCC, ns-3 and SimAI share: a header, switch ids, ``a b rate latency``.

Headers: ``nodes switches links`` (HPCC, ns-3) or ``nodes gpus_per_server nvswitches switches links
type`` (SimAI). Then the switch ids, NVSwitches first, then the links. Everything that is no switch
is a GPU.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from explorer.core.topology import Device, Link, Topology, merge_parallel
from explorer.errors import InputError, Problem
from explorer.topologies.fabric import rewire
from explorer.topologies.fields import TOO_FAST_GBS
from explorer.topologies.source import Source
from explorer.topologies.wiring import Port, Wiring
from explorer.units import beta_us_per_mib, gbs_of_beta, parse_rate_gbs, parse_time_us

MAX_NODES = 1 << 16
_LINK = re.compile(
    r"^[ \t]*\d+[ \t]+\d+[ \t]+\d[\d.eE+]{0,20}[ \t]*[kKmMgGtT]?i?[bB](?:ps|/s|it/s)", re.MULTILINE
)


def looks_like_link_text(source: Source) -> bool:
    """Whether a line says two numbers and a rate."""
    return bool(_LINK.search(source.text))


@dataclass(frozen=True, slots=True)
class _Header:
    """Counts a file promises; ``per_server`` 0 where it does not say."""

    line: int
    nodes: int
    per_server: int
    nvswitches: int
    switches: int
    links: int
    model: str


@dataclass(frozen=True, slots=True)
class _Entry:
    line: int
    a: int
    b: int
    gbs: float
    alpha_us: float


def read_link_text(source: Source, nodes: int | None, sized: bool) -> Topology:
    """Read a topology.

    Parameters
    ----------
    source
        The file.
    nodes
        ``--nodes``; must be what the file says if given.
    sized
        Not used: costs are per byte.

    Raises
    ------
    InputError
        If the file has fewer links than it promises, names nodes that do not exist, or a rate or
        latency has no unit; with the line.

    Notes
    -----
    A line is a full-duplex link. Where a file has both ``a b`` and ``b a``, the two are its
    directions, each with its own cost; the same pair in the same order again is a parallel link.
    """
    lines = [
        (number, text.split("#", 1)[0].split())
        for number, text in enumerate(source.text.splitlines(), 1)
        if text.split("#", 1)[0].strip()
    ]
    header = _header(source, *lines[0]) if lines else None
    if header is None:
        raise InputError(Problem(source.name, "has no header line of counts"))
    ids, rest = _switch_ids(source, header, lines[1:])
    entries, notes = _entries(source, header, rest)
    found = _Graph(source, header, ids, entries)
    topology = found.build(
        (
            "ns-3 and SimAI text knows every link with its rate and latency; it knows no NICs, no"
            " PCIe, and not what stands in which machine beyond GPUs per server",
            *notes,
        )
    )
    if nodes not in (None, topology.nodes):
        raise InputError(
            Problem("--nodes", f"got {nodes}, {source.name} describes {topology.nodes} nodes")
        )
    return topology


def _header(source: Source, line: int, words: list[str]) -> _Header:
    where = source.at(line)
    numbers = [int(w) for w in words if w.isascii() and w.isdecimal() and len(w) < 8]
    plain = all(w.isascii() and w.isdecimal() and len(w) < 8 for w in words[:5])
    if len(words) == 3 and len(numbers) == 3:
        header = _Header(line, numbers[0], 0, 0, numbers[1], numbers[2], "")
    elif len(words) >= 5 and plain:
        total, per_server, nvswitches, switches, links = numbers[:5]
        model = words[5] if len(words) > 5 else ""
        header = _Header(line, total, per_server, nvswitches, switches, links, model)
    else:
        raise InputError(
            Problem(
                where,
                f"got {' '.join(words)[:50]!r}, expected `nodes switches links` or `nodes"
                " gpus_per_server nvswitches switches links type`",
            )
        )
    switches = header.nvswitches + header.switches
    if not 0 < header.nodes - switches <= MAX_NODES or header.nodes > MAX_NODES:
        raise InputError(
            Problem(
                where,
                f"{header.nodes} nodes with {switches} switches leave {header.nodes - switches}"
                f" GPUs, expected 1 to {MAX_NODES}",
            )
        )
    return header


def _switch_ids(
    source: Source, header: _Header, lines: list[tuple[int, list[str]]]
) -> tuple[list[int], list[tuple[int, list[str]]]]:
    """Take the switch ids; they may stand on several lines."""
    count = header.nvswitches + header.switches
    ids: list[int] = []
    at = 0
    while len(ids) < count and at < len(lines) and not _is_link(lines[at][1]):
        line, words = lines[at]
        for word in words:
            if not (word.isascii() and word.isdecimal() and int(word[:9]) < header.nodes):
                raise InputError(
                    Problem(
                        source.at(line),
                        f"switch id {word!r}, expected numbers below {header.nodes}",
                    )
                )
            ids.append(int(word))
        at += 1
    if len(ids) != count or len(set(ids)) != count:
        line = lines[at - 1][0] if at else header.line
        raise InputError(
            Problem(
                source.at(line),
                f"{len(set(ids))} different switch ids, line {header.line} promises {count}",
            )
        )
    return ids, lines[at:]


def _is_link(words: list[str]) -> bool:
    return len(words) > 3 and not words[2].isdecimal()


def _entries(
    source: Source, header: _Header, lines: list[tuple[int, list[str]]]
) -> tuple[list[_Entry], list[str]]:
    problems: list[Problem] = []
    entries: list[_Entry] = []
    lossy: list[int] = []
    for line, words in lines:
        try:
            entries.append(_entry(source.at(line), line, words, header.nodes))
        except InputError as error:
            problems += error.problems
        if len(words) > 4 and words[4].strip("0.") and not problems:
            lossy.append(line)
    if problems:
        raise InputError(problems)
    notes = []
    if len(entries) < header.links:
        raise InputError(
            Problem(
                source.at(lines[-1][0] if lines else header.line),
                f"{len(entries)} links, line {header.line} promises {header.links}; the file is"
                " cut",
            )
        )
    if len(entries) > header.links:
        notes.append(
            f"line {header.line} promises {header.links} links, the file has {len(entries)}; all"
            f" {len(entries)} are used (simulators that trust the header lose the last"
            f" {len(entries) - header.links})"
        )
    if lossy:
        notes.append(f"line {lossy[0]}: error rates are left out")
    return entries, notes


def _entry(where: str, line: int, words: list[str], nodes: int) -> _Entry:
    if len(words) < 4:
        raise InputError(
            Problem(where, f"got {' '.join(words)[:40]!r}, expected `a b rate latency [error]`")
        )
    ends = []
    for word in words[:2]:
        if not (word.isascii() and word.isdecimal() and len(word) < 8 and int(word) < nodes):
            raise InputError(Problem(where, f"node {word[:20]!r}, expected 0 to {nodes - 1}"))
        ends.append(int(word))
    if ends[0] == ends[1]:
        raise InputError(Problem(where, f"a link from {ends[0]} to itself"))
    gbs = parse_rate_gbs(words[2], where)
    if not 0 < gbs < TOO_FAST_GBS:
        raise InputError(Problem(where, f"{words[2]} is {gbs:g} GB/s, which no link carries"))
    return _Entry(line, ends[0], ends[1], gbs, parse_time_us(words[3], where))


class _Graph:
    """Devices and links of a file."""

    def __init__(
        self, source: Source, header: _Header, ids: list[int], entries: list[_Entry]
    ) -> None:
        self.source = source
        self.header = header
        self.entries = entries
        self.nv = set(ids[: header.nvswitches])
        self.switches = [i for i in ids if i not in self.nv]
        apart = set(ids)
        self.gpus = [i for i in range(header.nodes) if i not in apart]
        self.rank = {i: r for r, i in enumerate(self.gpus)}
        # HPCC's hosts are machines of their own; without switches all is one machine.
        self.per_server = header.per_server or (1 if self.switches else len(self.gpus))

    def node_of(self, i: int) -> int:
        """Machine of a device; -1 for the network."""
        if i in self.rank:
            return self.rank[i] // self.per_server
        if i not in self.nv:
            return -1
        near = {self.node_of(g) for g in self._neighbours(i) if g in self.rank}
        return near.pop() if len(near) == 1 else -1

    def _neighbours(self, i: int) -> list[int]:
        return [e.b if e.a == i else e.a for e in self.entries if i in (e.a, e.b)]

    def build(self, notes: tuple[str, ...]) -> Topology:
        directed = {(e.a, e.b) for e in self.entries}
        both = sorted({(e.a, e.b) for e in self.entries if (e.b, e.a) in directed and e.a < e.b})
        if both:
            names = ", ".join(f"{a}-{b}" for a, b in both[:6])
            notes = (*notes, f"given in both directions, each with its own cost: {names}")
        one_way: list[_Entry] = []
        for e in self.entries:
            one_way.append(e)
            if (e.b, e.a) not in directed:
                one_way.append(replace(e, a=e.b, b=e.a))
        plain = self._plain(one_way, notes)
        trunks: dict[tuple[int, int], list[_Entry]] = {}
        for e in one_way:
            if e.a in self.switches and e.b in self.switches and e.a < e.b:
                trunks.setdefault((e.a, e.b), []).append(e)
        count = sum(len(found) for found in trunks.values())
        if count < len(self.switches) or not trunks:
            return plain
        return self._spread(plain, trunks)

    def _plain(self, one_way: list[_Entry], notes: tuple[str, ...]) -> Topology:
        """The graph as it is."""
        devices = []
        for i in range(self.header.nodes):
            kind = "gpu" if i in self.rank else "nvswitch" if i in self.nv else "switch"
            name = f"gpu{self.rank[i]}" if i in self.rank else f"{kind}{i}"
            devices.append(Device(name, kind, self.node_of(i)))
        links = [Link(e.a, e.b, self._kind(e), e.alpha_us, beta_us_per_mib(e.gbs)) for e in one_way]
        return Topology(
            self.source.stem, tuple(devices), merge_parallel(links), notes=(*notes, *self._model())
        )

    def _kind(self, e: _Entry) -> str:
        if e.a in self.nv or e.b in self.nv:
            return "nvlink"
        inside = self.node_of(e.a) == self.node_of(e.b) >= 0
        return "generic" if inside else "network"

    def _model(self) -> list[str]:
        notes = []
        if self.header.model:
            notes.append(f"GPU type {self.header.model!r} in the header adds nothing to the links")
        if not self.nv and not self.switches:
            notes.append("no switches: pairs without a link are relayed over GPUs, and pay for it")
        return notes

    def _spread(self, plain: Topology, trunks: dict[tuple[int, int], list[_Entry]]) -> Topology:
        """Several ways between switches: give every NIC its share of the cables."""
        devices, links = list(plain.devices), []
        hosts: dict[str, list[Port]] = {}
        for link in plain.links:
            src, dst = plain.devices[link.src], plain.devices[link.dst]
            if src.kind != "gpu" or dst.kind != "switch":
                if not (dst.kind == "gpu" and src.kind == "switch"):
                    links.append(link)
                continue
            devices.append(Device(f"{src.name}.nic{len(devices)}", "nic", src.node))
            nic = len(devices) - 1
            gbs = gbs_of_beta(link.beta_us_per_mib)
            links += [
                replace(link, dst=nic, alpha_us=0.0),
                replace(link, src=nic, dst=link.src, alpha_us=0.0),
            ]
            links += [replace(link, src=nic), replace(link, src=link.dst, dst=nic)]
            hosts.setdefault(str(src.node), []).append(Port(f"nic{nic}", dst.name, gbs))
        wiring = Wiring(
            self.source.name,
            {host: tuple(hosts[host]) for host in sorted(hosts, key=int)},
            {
                (min(a, b), max(a, b)): tuple(e.gbs for e in found)
                for (x, y), found in sorted(trunks.items())
                for a, b in [(f"switch{x}", f"switch{y}")]
            },
            hop_alpha_us=max(e.alpha_us for found in trunks.values() for e in found),
        )
        return rewire(replace(plain, devices=tuple(devices), links=merge_parallel(links)), wiring)
