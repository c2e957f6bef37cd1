"""What verbs print: one JSON document, or rich tables."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def print_json(document: object) -> None:
    """Print one JSON document; numbers that are not finite become null."""
    json.dump(_finite(document), sys.stdout, indent=2, ensure_ascii=False)
    print()


def _finite(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return value


def number(value: object, digits: int = 4) -> str:
    """Write a number with ``digits`` significant digits; a dash for none.

    Examples
    --------
    >>> number(1234.567), number(0.01234), number(None), number(12)
    ('1,235', '0.01234', '-', '12')
    """
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(places, 6)}f}"


def print_table(
    title: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]]
) -> None:
    """Print a table.

    Parameters
    ----------
    title
        Above it.
    columns
        (heading, ``left`` or ``right``).
    rows
        Cells as text; markup in them is not interpreted.
    """
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=False, highlight=False)
    if not sys.stdout.isatty():
        console = Console(width=200, highlight=False)
    table = _table(title, columns)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def _table(title: str, columns: Sequence[tuple[str, str]]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD)
    for heading, side in columns:
        table.add_column(heading, justify="right" if side == "right" else "left", no_wrap=True)
    return table


def note(text: str) -> None:
    """Say something beside the result, on stderr."""
    print(text, file=sys.stderr)
