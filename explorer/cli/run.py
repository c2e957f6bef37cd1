"""``explorer run``: execute a program for real on this machine's CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from explorer.cli import options
from explorer.cli.output import number, print_json
from explorer.errors import VerificationError

NAME = "run"
HELP = "Run an MSCCL XML program on CPU processes with real data and compare with numpy."
EXAMPLE = "explorer run ag.xml --size 1M"


def command(
    xml: Annotated[Path, typer.Argument(metavar="XML", help="Program to run.")],
    size: options.Size = None,
    placement: Annotated[
        str | None, typer.Option("--placement", help="in or out; default: all it serves.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Execute; a wrong result ends with exit code 4."""
    from explorer.evaluate.executed import execute_file

    document = execute_file(xml, options.one_size(size), placement)
    if as_json:
        print_json(document)
    else:
        places = {"in": "in place", "out": "out of place"}
        for run in document["runs"]:
            verdict = "right" if run["ok"] else "WRONG"
            print(
                f"{xml}: {verdict}, {document['collective']} on {document['ranks']} ranks,"
                f" {places[run['placement']]}, {number(run['size_bytes'])} bytes,"
                f" {number(run['seconds'])} s in {run['processes']} processes"
            )
            for text in run["problems"]:
                print(f"  {text}")
    if not document["ok"]:
        raise VerificationError("the executed program gave a wrong result")
