"""``explorer export``: winners per size range as files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from explorer.cli import options
from explorer.cli.output import note, number, print_json, print_table

NAME = "export"
HELP = "Write the winner of every size range as verified MSCCL XML."
EXAMPLE = "explorer export out/demo -o kit --dialect msccl"


def command(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Result folder of a sweep.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder to write; default OUT/export.")
    ] = None,
    dialect: options.Dialect = "executor",
    as_json: options.Json = False,
) -> None:
    """Export."""
    from explorer.report.winners import FILES, TABLE, export_winners
    from explorer.store.store import Store
    from explorer.units import format_size

    folder = output or out / "export"
    with Store(out, read_only=True) as store:
        written = export_winners(store, folder, dialect)
    if as_json:
        files = [name for item in written for name in item.file.split()]
        rows = [asdict(item) for item in written]
        print_json({"folder": str(folder), "dialect": dialect, "files": files, "rows": rows})
        return
    cells = [
        [
            item.setting,
            "profile"
            if item.min_bytes is None
            else f"{format_size(item.min_bytes)} .. {format_size(item.max_bytes or 0)}",
            item.algorithm,
            number(item.time_us),
            "-" if item.margin is None else f"{item.margin:.1%}",
            item.file or item.problem[:80],
        ]
        for item in written
    ]
    columns = [("call", "left"), ("sizes", "right"), ("winner", "left")]
    columns += [("time us", "right"), ("ahead by", "right"), ("file", "left")]
    print_table(f"Winners for {dialect}, in {folder / FILES}", columns, cells)
    missing = sum(not item.file for item in written)
    if missing:
        note(f"{missing} ranges have no file: the target cannot load their program")
    print(f"{len(written) - missing} ranges written, table in {folder / TABLE}")
