"""Selection: the part of a ranked table somebody asked for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from explorer.compare.algorithm import setting_of
from explorer.errors import InputError, Problem, nearest
from explorer.units import format_size, parse_size


def select(
    rows: Sequence[dict[str, Any]],
    *,
    collective: str | None = None,
    size: str | int | None = None,
    top: int | None = None,
) -> list[dict[str, Any]]:
    """Filter ranked rows; their order and places stay.

    Parameters
    ----------
    rows
        From :func:`explorer.compare.ranking.rank`.
    collective
        Keep this one.
    size
        Keep this size, as requested or as run.
    top
        Keep the first so many of every setting and size.

    Raises
    ------
    InputError
        If the rows have nothing of that collective or size, with what they have; or ``top`` is
        not positive.
    """
    kept = list(rows)
    if collective is not None:
        have = sorted({row["collective"] for row in kept})
        kept = [row for row in kept if row["collective"] == collective]
        if not kept:
            raise InputError(
                Problem(
                    "--collective", f"no result for {collective!r}, {nearest(collective, have)}"
                )
            )
    if size is not None:
        kept = _of_size(kept, parse_size(size, "--size"))
    if top is None:
        return kept
    if top < 1:
        raise InputError(Problem("--top", f"got {top}, expected at least 1"))
    return [
        row
        for _, group in groupby(kept, key=lambda r: (setting_of(r), r.get("requested_bytes")))
        for row in list(group)[:top]
    ]


def _of_size(rows: list[dict[str, Any]], wanted: int) -> list[dict[str, Any]]:
    found = [r for r in rows if wanted in (r.get("requested_bytes"), r.get("size_bytes"))]
    if found:
        return found
    have = sorted({r["requested_bytes"] for r in rows if r.get("requested_bytes") is not None})
    sizes = ", ".join(format_size(size) for size in have) or "no sizes"
    raise InputError(Problem("--size", f"no result for {format_size(wanted)}; there are {sizes}"))
