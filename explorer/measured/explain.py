"""What a busbw means: formula, ranks, the bound of the links, and why it can lie above it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from explorer.measured.collective_words import FACTOR_ONE, FACTOR_TWO, factor
from explorer.measured.row import Row

FORMULAS = {2: "2(n-1)/n", 1: "(n-1)/n", 0: "1"}
"""By how often a byte crosses a rank's link: twice, once, or as the size itself."""

ABOVE = {
    "allreduce": (
        "the factor 2(n-1)/n is what a ring sends; in-switch reduction (NVLS, SHARP) sends each "
        "byte once, so busbw may reach almost 2x what a rank's link carries",
        "between nodes a tree or a hierarchy sends less than a ring per NIC: the sums of a node "
        "cross once",
    ),
    "alltoall": (
        "of N nodes' traffic only (N-1)/N leaves a node: busbw may reach N/(N-1) x the NIC rate "
        "per GPU, 2x on two nodes",
    ),
    "allgather": (
        "in-switch multicast (NVLS, SHARP) sends a byte once for all its receivers",
        "between nodes a byte may cross once and be copied inside the node",
    ),
    "reducescatter": ("in-switch reduction (NVLS, SHARP) adds on the way",),
}
"""Reasons for a busbw above the bound of the links alone."""

ALWAYS = (
    "relaying over NVLink (PXN) lets one GPU use the NICs of the others",
    "the topology's rates may be lower than the machine's",
)
"""Reasons that hold for every collective."""

ROOM = 1.02
"""Ratio from which on a measurement counts as above a bound: timers and rounding."""


@dataclass(frozen=True, slots=True)
class LinkBound:
    """What the links of a machine allow for a collective and size.

    ``missing`` says why there is none.
    """

    busbw_gbs: float | None = None
    bottleneck: str = ""
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The best busbw of one collective on one number of ranks in one file.

    ``lines`` is the text; the rest are its figures.
    """

    file: str
    collective: str | None
    ranks: int | None
    formula: str
    factor: float | None
    row: Row
    bound_busbw_gbs: float | None
    bottleneck: str
    lines: tuple[str, ...]


def explain(
    rows: Iterable[Row], bound_of: Callable[[Row], LinkBound] | None = None
) -> list[Explanation]:
    """Explain the best row of every file, collective and rank count.

    Parameters
    ----------
    rows
        Measurements; rows that mean nothing are passed over unless there is nothing else.
    bound_of
        Gives the bound of the links for a row, None without a machine.
    """
    groups: dict[tuple[str, str, int, str], list[Row]] = {}
    for row in rows:
        key = (row.file, row.collective or "", row.ranks or 0, row.variant or "")
        groups.setdefault(key, []).append(row)
    return [_explained(groups[key], bound_of) for key in sorted(groups)]


def _explained(rows: list[Row], bound_of: Callable[[Row], LinkBound] | None) -> Explanation:
    good = [row for row in rows if row.usable] or rows
    best = max(good, key=lambda r: (r.busbw_gbs or 0.0, r.size_bytes, -r.line))
    scale = factor(best.collective, best.ranks)
    formula = _formula(best.collective)
    bound = bound_of(best) if bound_of is not None else None
    lines = [_head(best, formula, scale), *_figures(best, scale)]
    if bound is not None:
        lines.extend(_against(best, bound))
    elif best.ranks != 1:
        reasons = "; ".join((*ABOVE.get(best.collective or "", ()), ALWAYS[0]))
        lines.append(f"it can exceed a link's rate: {reasons}")
        lines.append("--topology compares it with what the links of a machine allow")
    return Explanation(
        best.file,
        best.collective,
        best.ranks,
        formula,
        scale,
        best,
        bound.busbw_gbs if bound else None,
        bound.bottleneck if bound else "",
        tuple(lines),
    )


def _formula(collective: str | None) -> str:
    if collective in FACTOR_TWO:
        return f"algbw x {FORMULAS[2]}"
    if collective in FACTOR_ONE:
        return "algbw"
    return f"algbw x {FORMULAS[1]}" if collective else "unknown"


def _head(row: Row, formula: str, scale: float | None) -> str:
    who = f"{row.collective or 'unknown collective'}, {row.ranks or 'unknown'} ranks"
    variant = f" ({row.variant})" if row.variant else ""
    if scale is None:
        return f"{row.file}: {who}{variant}: busbw = {formula}, not determined"
    return f"{row.file}: {who}{variant}: busbw = {formula} = algbw x {scale:.6g}"


def _figures(row: Row, scale: float | None) -> list[str]:
    place = {"in": "in-place", "out": "out-of-place"}.get(row.placement or "", "unstated placement")
    if row.ranks == 1:
        return [f"line {row.line}: one rank moves nothing over a link, so busbw means nothing"]
    if not row.algbw_gbs or not row.busbw_gbs:
        return [f"line {row.line}: {row.size_bytes} bytes in {row.time_us:g} us, no bandwidth"]
    shown = f" x {scale:.6g}" if scale is not None else ""
    lines = [
        f"best at line {row.line}, {place}: {row.size_bytes} B / {row.time_us:g} us = "
        f"{row.algbw_gbs:.6g} GB/s algbw{shown} = {row.busbw_gbs:.6g} GB/s busbw"
    ]
    if row.collective not in FACTOR_ONE:
        lines.append("busbw is what each rank's link carries if every byte takes the ring's way")
    if row.marks:
        lines.append(f"this row is marked {', '.join(row.marks)}")
    return lines


def _against(row: Row, bound: LinkBound) -> list[str]:
    if bound.busbw_gbs is None or not row.busbw_gbs:
        return [f"no bound: {bound.missing or 'no bandwidth to compare'}"]
    share = row.busbw_gbs / bound.busbw_gbs
    lines = [
        f"the links allow {bound.busbw_gbs:.6g} GB/s busbw, set by {bound.bottleneck}: "
        f"measured is {share:.0%} of that"
    ]
    if share > ROOM:
        reasons = [*ABOVE.get(row.collective or "", ()), *ALWAYS]
        if row.nodes == 1:
            reasons = [reason for reason in reasons if "node" not in reason and "NIC" not in reason]
        lines.extend(f"above the bound because: {reason}" for reason in reasons)
    return lines
