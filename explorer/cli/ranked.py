"""The ranked table that ``sweep`` and ``show`` print."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from explorer.cli.output import number, print_table

_COLUMNS = [
    ("size", "right"),
    ("place", "right"),
    ("algorithm", "left"),
    ("time us", "right"),
    ("plan us", "right"),
    ("bound us", "right"),
    ("optimality", "right"),
    ("busbw GB/s", "right"),
    ("busiest", "left"),
]

_PLACES = {"in": "in place", "out": "out of place", "both": "in and out of place"}


def print_ranked(rows: Sequence[dict[str, Any]]) -> None:
    """Print one table per machine and call, best first at every size."""
    from explorer.compare.algorithm import algorithm_of, setting_of
    from explorer.units import format_size

    for setting, group in groupby(rows, key=setting_of):
        cells = []
        last: object = object()
        for row in group:
            size = row["requested_bytes"]
            text = "profile" if size is None else format_size(size)
            worst = row.get("bottleneck")
            busiest = f"{worst['resource']} {worst['utilisation']:.0%}" if worst else "-"
            if row["place"] is None:
                busiest = str(row.get("not_lowered") or "-")[:60]
            cells.append(
                [
                    text if size != last else "",
                    number(row["place"]),
                    algorithm_of(row).label,
                    number(row["time_us"]),
                    number(row["plan_time_us"]),
                    number(row["bound_us"]),
                    number(row["optimality"], 3),
                    number(row["busbw_gbs"]),
                    busiest,
                ]
            )
            last = size
        title = (
            f"{setting.collective}, {_PLACES[setting.placement]}, on {setting.machine}"
            f" ({setting.ranks} ranks; {setting.fidelity}, {setting.cost_model})"
        )
        print_table(title, _COLUMNS, cells)
