"""Wiring: which host's NIC is cabled to which switch, and switches to one another."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from explorer.errors import InputError, Problem
from explorer.topologies.generations import SPINE_ALPHA_US

_DIGITS = re.compile(r"(\d{1,12})")


@dataclass(frozen=True, slots=True)
class Port:
    """A NIC of a host and the cable to its switch.

    Parameters
    ----------
    nic
        Its name on the host.
    switch
        Where the cable ends.
    gbs
        Its rate; None where the source does not say.
    nics
        How many NICs it stands for, where a host's are counted as one.
    """

    nic: str
    switch: str
    gbs: float | None = None
    nics: int = 1


@dataclass(frozen=True, slots=True)
class Wiring:
    """A network without what is inside its hosts.

    Parameters
    ----------
    name
        For notes and problems.
    hosts
        Ports of every host, in the order of ranks.
    trunks
        (switch, switch) in sorted order -> rate of every cable between them.
    notes
        What the source cannot know, and what was assumed.
    hop_alpha_us
        What a cable between switches adds to a message.
    """

    name: str
    hosts: Mapping[str, tuple[Port, ...]]
    trunks: Mapping[tuple[str, str], tuple[float | None, ...]]
    notes: tuple[str, ...] = ()
    hop_alpha_us: float = SPINE_ALPHA_US

    @property
    def switches(self) -> list[str]:
        """Every switch, in natural order."""
        found = {port.switch for ports in self.hosts.values() for port in ports}
        found |= {switch for pair in self.trunks for switch in pair}
        return sorted(found, key=natural)


def natural(name: str) -> tuple[tuple[int, int | str], ...]:
    """Sort key by which ``node10`` comes after ``node9``."""
    return tuple(
        (0, int(part)) if part.isdecimal() else (1, part) for part in _DIGITS.split(name) if part
    )


def components(wiring: Wiring) -> list[tuple[list[str], list[str]]]:
    """Hosts and switches of every part that no cable joins to the others; parts with hosts."""
    near: dict[str, set[str]] = {f"s {switch}": set() for switch in wiring.switches}
    for host, ports in wiring.hosts.items():
        own = near.setdefault(f"h {host}", set())
        for port in ports:
            own.add(f"s {port.switch}")
            near[f"s {port.switch}"].add(f"h {host}")
    for a, b in wiring.trunks:
        near[f"s {a}"].add(f"s {b}")
        near[f"s {b}"].add(f"s {a}")
    parts = []
    seen: set[str] = set()
    for host in wiring.hosts:
        if f"h {host}" in seen:
            continue
        stack, part = [f"h {host}"], {f"h {host}"}
        while stack:
            for other in near[stack.pop()]:
                if other not in part:
                    part.add(other)
                    stack.append(other)
        seen |= part
        hosts = [name for name in wiring.hosts if f"h {name}" in part]
        switches = [name for name in wiring.switches if f"s {name}" in part]
        parts.append((hosts, switches))
    return parts


def check_connected(wiring: Wiring) -> None:
    """Refuse a network in parts.

    Raises
    ------
    InputError
        With the hosts and switches of every part.
    """
    if not wiring.hosts:
        raise InputError(
            Problem(
                wiring.name,
                f"names {len(wiring.switches)} switches but no host, so there is nothing to place"
                " GPUs on; give the file that cables the hosts beside it",
            )
        )
    parts = components(wiring)
    if len(parts) == 1:
        return
    lines = [
        f"{_top(switches)}: {len(hosts)} {'node' if len(hosts) == 1 else 'nodes'}"
        f" ({short_list(hosts)})"
        for hosts, switches in parts[:20]
    ]
    more = f"; and {len(parts) - 20} more" if len(parts) > 20 else ""
    raise InputError(
        Problem(
            wiring.name,
            f"no cable joins its {len(parts)} parts, so their hosts cannot reach one another:"
            f" {'; '.join(lines)}{more}",
        )
    )


def _top(switches: list[str]) -> str:
    return switches[0] if len(switches) == 1 else f"{switches[0]} … {switches[-1]}"


def short_list(names: Iterable[str], most: int = 4) -> str:
    """Write some names, and how many more."""
    every = list(names)
    shown = ", ".join(every[:most])
    return shown if len(every) <= most else f"{shown} and {len(every) - most} more"


def expand_hosts(text: str, where: str, most: int = 1 << 16) -> list[str]:
    """Expand a host list as SLURM writes it: ``a[01-03,7],b2``.

    Raises
    ------
    InputError
        If brackets do not match, a range runs backwards, or it names more than ``most`` hosts.

    Examples
    --------
    >>> expand_hosts("n[08-10,2],m", "file:1")
    ['n08', 'n09', 'n10', 'n2', 'm']
    """
    names: list[str] = []
    for part in _split_outside(text, where):
        found = [""]
        for piece in re.split(r"(\[[^\[\]]*\])", part):
            if piece.startswith("["):
                ends = _ranges(piece[1:-1], where, most)
                if len(found) * len(ends) > most:
                    raise InputError(Problem(where, f"{text[:60]!r} names over {most} hosts"))
                found = [head + end for head in found for end in ends]
            elif "[" in piece or "]" in piece:
                raise InputError(Problem(where, f"{text[:60]!r}: brackets do not match"))
            else:
                found = [head + piece for head in found]
        names += found
        if len(names) > most:
            raise InputError(Problem(where, f"{text[:60]!r} names over {most} hosts"))
    return names


def _split_outside(text: str, where: str) -> list[str]:
    """Split at commas outside brackets."""
    parts, depth, current = [], 0, ""
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += letter
    parts.append(current)
    if any(not part for part in parts):
        raise InputError(Problem(where, f"{text[:60]!r}: a name is missing"))
    return parts


def _ranges(text: str, where: str, most: int) -> list[str]:
    ends: list[str] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if (
            not first.isdecimal()
            or (dash and not last.isdecimal())
            or len(first) > 9
            or len(last) > 9
        ):
            raise InputError(
                Problem(where, f"got range [{text[:40]}], expected numbers such as [1-8,10]")
            )
        low, high = int(first), int(last) if dash else int(first)
        if high < low or high - low >= most:
            raise InputError(Problem(where, f"got range {part}, which names no usable hosts"))
        ends += [f"{k:0{len(first)}d}" for k in range(low, high + 1)]
    return ends
