"""Reader of htsim's fat-tree ``.topo`` files, which ASTRA-sim uses too.

``datacenter/fat_tree_topology.cpp``: per tier the radix up and down, the speed and latency of the
links below it, and how many parallel links a bundle has. Hosts are ranks.
"""

from __future__ import annotations

import re

from explorer.core.topology import Topology
from explorer.errors import InputError, Problem, nearest
from explorer.topologies import generations
from explorer.topologies.assembly import Assembly
from explorer.topologies.fabric import rewire
from explorer.topologies.source import Source
from explorer.topologies.wiring import Port, Wiring

MAX_HOSTS = 1 << 14
_TOP = ("nodes", "tiers", "podsize")
_TIER = (
    "downlink_speed_gbps",
    "radix_down",
    "radix_up",
    "downlink_latency_ns",
    "switch_latency_ns",
    "bundle",
    "oversubscribed",
    "queue_up",
    "queue_down",
)
_LOOKS = re.compile(r"^[ \t]*Tier[ \t]+0[ \t]*$", re.IGNORECASE | re.MULTILINE)


def looks_like_htsim(source: Source) -> bool:
    """Whether a line says ``Tier 0`` and another names ``Nodes``."""
    return bool(_LOOKS.search(source.text)) and bool(
        re.search(r"^[ \t]*Nodes[ \t]+\d", source.text, re.IGNORECASE | re.MULTILINE)
    )


def read_htsim_topo(source: Source, nodes: int | None, sized: bool) -> Topology:
    """Read a fat tree.

    Raises
    ------
    InputError
        If a key is unknown or missing, or the numbers do not fit one another; with the line.
    """
    top, tiers = _values(source)
    wiring, alpha = _fat_tree(source, top, tiers)
    hosts = len(wiring.hosts)
    if nodes not in (None, hosts):
        raise InputError(Problem("--nodes", f"got {nodes}, {source.name} describes {hosts} hosts"))
    machine = Assembly(source.stem, max(2, hosts))
    fabric = machine.device("fabric", "switch")
    for node, ports in enumerate(wiring.hosts.values()):
        gpu = machine.gpu(node)
        nic = machine.device("nic0", "nic", node)
        gbs = ports[0].gbs or 0.0
        machine.both(gpu, nic, "pcie", generations.GPU_PCIE_ALPHA_US, gbs)
        machine.both(nic, fabric, "network", alpha, gbs)
    return rewire(machine.build(), wiring)


def _values(source: Source) -> tuple[dict[str, int], list[dict[str, int]]]:
    problems: list[Problem] = []
    top: dict[str, int] = {}
    tiers: list[dict[str, int]] = []
    for number, raw in enumerate(source.text.splitlines(), 1):
        words = raw.split("#", 1)[0].split()
        if not words:
            continue
        where = source.at(number)
        key = words[0].lower()
        if len(words) != 2 or not re.fullmatch(r"\d{1,9}", words[1]):
            problems.append(
                Problem(where, f"got {raw.strip()[:40]!r}, expected a key and a number")
            )
            continue
        value = int(words[1])
        if key == "tier":
            if value != len(tiers):
                problems.append(Problem(where, f"Tier {value}, expected Tier {len(tiers)}"))
            tiers.append({})
            continue
        allowed, into = (_TIER, tiers[-1]) if tiers else (_TOP, top)
        if key not in allowed:
            problems.append(Problem(where, f"unknown key {words[0]!r}, {nearest(key, allowed)}"))
        elif key in into:
            problems.append(Problem(where, f"{words[0]} is given twice"))
        into[key] = value
    missing = [key for key in ("nodes", "tiers") if key not in top]
    problems += [Problem(source.name, f"{key.capitalize()} is missing") for key in missing]
    if not missing and (top["tiers"] != len(tiers) or len(tiers) not in (2, 3)):
        problems.append(
            Problem(
                source.name, f"Tiers {top['tiers']}, the file has {len(tiers)}, expected 2 or 3"
            )
        )
    for i, tier in enumerate(tiers):
        needed = ["downlink_speed_gbps", "radix_down"] + ["radix_up"] * (i < len(tiers) - 1)
        problems += [
            Problem(source.name, f"Tier {i}: {key} missing or 0")
            for key in needed
            if not tier.get(key)
        ]
    if problems:
        raise InputError(problems)
    return top, tiers


def _fat_tree(
    source: Source, top: dict[str, int], tiers: list[dict[str, int]]
) -> tuple[Wiring, float]:
    count, pod = top["nodes"], top.get("podsize", top["nodes"])
    tor, agg = tiers[0], tiers[1]
    per_tor = tor["radix_down"]
    if not 0 < count <= MAX_HOSTS or pod < 1 or count % pod or pod % per_tor:
        raise InputError(
            Problem(
                source.name,
                f"{count} hosts in pods of {pod} below switches of {per_tor}: expected each to"
                f" divide the one before, up to {MAX_HOSTS} hosts",
            )
        )
    hosts = {
        f"host{h}": (Port("nic0", f"tor{h // per_tor}", tor["downlink_speed_gbps"] / 8),)
        for h in range(count)
    }
    trunks: dict[tuple[str, str], tuple[float | None, ...]] = {}
    rates = [tier["downlink_speed_gbps"] / 8 for tier in tiers]
    tors, pods = count // per_tor, count // pod
    whole = pod if len(tiers) == 3 else count
    # Bundles of parallel links: a switch has radix_up / bundle neighbours above it.
    aggs = tor["radix_up"] // max(1, agg.get("bundle", 1))
    for t in range(tors):
        first = t * per_tor // whole * aggs
        for k in range(aggs):
            pair = f"agg{first + k}", f"tor{t}"
            trunks[pair] = (rates[1],) * max(1, agg.get("bundle", 1))
    if len(tiers) == 3:
        bundle = max(1, tiers[2].get("bundle", 1))
        above = agg.get("radix_up", 0) // bundle
        for a in range(aggs * pods):
            for k in range(above):
                core = a % aggs + aggs * k
                trunks[f"agg{a}", f"core{core}"] = (rates[2],) * bundle
    alphas = [
        (t.get("downlink_latency_ns", 0) + t.get("switch_latency_ns", 0)) / 1e3 for t in tiers
    ]
    notes = [
        "htsim's .topo knows tiers, speeds and latencies; hosts are ranks, what is inside them is"
        " unknown",
        f"{count} hosts in {pods} pods, {tors} leaf switches; links below the tiers"
        f" {', '.join(f'{8 * r:g}' for r in rates)} Gb/s",
    ]
    if rates[-1] < rates[0]:
        notes.append(
            f"the spine's links have {8 * rates[-1]:g} Gb/s, the hosts' {8 * rates[0]:g}: a message"
            " keeps to one link, so between pods it runs at the spine's rate"
        )
    return Wiring(source.name, hosts, trunks, tuple(notes), max(alphas[1:])), alphas[0]
