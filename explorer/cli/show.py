"""``explorer show``: the ranked table of a store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from explorer.cli import options
from explorer.cli.output import note, print_json

NAME = "show"
HELP = "Ranked table from the results of a sweep."
EXAMPLE = "explorer show out/demo --collective allgather --size 1M --top 3"


def command(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Result folder of a sweep.")],
    collective: Annotated[
        str | None, typer.Option("--collective", "-c", help="Only this one.")
    ] = None,
    size: options.Size = None,
    top: Annotated[int | None, typer.Option("--top", help="Best N of each size only.")] = None,
    as_json: options.Json = False,
) -> None:
    """Show."""
    from explorer.compare.ranking import rank
    from explorer.compare.selection import select
    from explorer.store.store import Store

    with Store(out, read_only=True) as store:
        records = list(store.records())
        skipped = store.skipped()
    done = [record.flat() for record in records if record.status == "done"]
    failed = [record for record in records if record.status == "failed"]
    rows = select(rank(done), collective=collective, size=size, top=top)
    if as_json:
        print_json(
            {
                "points": len(records),
                "done": len(done),
                "failed": len(failed),
                "skipped": sum(entry[2] for entry in skipped),
                "rows": rows,
            }
        )
        return
    from explorer.cli.ranked import print_ranked

    print_ranked(rows)
    for record in failed:
        note(f"failed: {record.point['method']} {record.point['collective']}: {record.error}")
