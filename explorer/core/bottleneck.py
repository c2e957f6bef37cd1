"""Words for what sets a bound."""

from __future__ import annotations

from collections.abc import Sequence

from explorer.core.cuts import CutLink
from explorer.core.sketch import rank_ranges
from explorer.core.topology import Topology
from explorer.units import gbs_of_beta

SHOWN = 3
"""Links of a cut that are named."""

ODD = 1.01
"""Factor from which two rates count as different."""


def path_text(pair: tuple[int, int]) -> str:
    """Name a path between two ranks."""
    return f"latency from gpu{pair[0]} to gpu{pair[1]}"


def total_text(
    topology: Topology, what: str, inward: bool, chunks: int, links: Sequence[CutLink]
) -> str:
    """Name all cuts of a partition together, and the slowest link where they differ."""
    way = "entering" if inward else "leaving"
    text = f"{chunks} sends in all over the {len(links)} links {way} the {what}s"
    slowest = max(links, key=lambda k: (k.beta_us_per_mib, -k.link))
    if slowest.beta_us_per_mib > min(k.beta_us_per_mib for k in links) * ODD:
        text += f", the slowest {_link_text(topology, slowest)}"
    return text


def all_links_text(links: int) -> str:
    """Name all links together."""
    return f"way of all chunks over all {links} links together"


def cut_text(
    topology: Topology,
    what: str,
    ranks: Sequence[int],
    inward: bool,
    onward: bool,
    chunks: int,
    total: int,
    cut: Sequence[CutLink],
) -> str:
    """Name a cut: the set, the direction, the chunks and the slowest links.

    Parameters
    ----------
    what
        ``gpu``, ``node`` or ``group``.
    ranks
        The set.
    inward
        Whether chunks enter it.
    onward
        Whether the way to and from the cut counts too.
    chunks, total
        How many cross, of how many.
    cut
        The links.
    """
    name = f"gpu{ranks[0]}" if what == "gpu" else f"gpus {rank_ranges(list(ranks))}"
    if what == "node":
        name = f"node {topology.node_of[ranks[0]]}"
    slowest = sorted(cut, key=lambda k: (-k.beta_us_per_mib, k.link))
    links = ", ".join(_link_text(topology, k) for k in slowest[:SHOWN])
    more = f" and {len(cut) - SHOWN} more" if len(cut) > SHOWN else ""
    way = ", and the way to and from there" if onward else ""
    return (
        f"{'into' if inward else 'out of'} {name}: {chunks} of {total} chunks over"
        f" {links}{more}{way}"
    )


def _link_text(topology: Topology, cut_link: CutLink) -> str:
    """Name a link with its rate, and how much slower it is than its other direction."""
    name = topology.link_names[cut_link.link]
    beta = cut_link.beta_us_per_mib
    rate = f"{beta:.4g} per chunk"
    if topology.time_unit == "us":
        rate = f"{gbs_of_beta(beta):.4g} GB/s"
    link = topology.links[cut_link.link]
    back = next(
        (i for i in topology.out_links(link.dst) if topology.links[i].dst == link.src), None
    )
    if back is None:
        return f"{name} at {rate}"
    ratio = link.beta_us_per_mib / topology.links[back].beta_us_per_mib
    slower = f" ({ratio:.3g} times slower than {topology.link_names[back]})"
    return f"{name} at {rate}{slower if ratio > ODD else ''}"
