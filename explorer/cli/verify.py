"""``explorer verify``: whether a program file is right, and a runtime would load it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli import options
from explorer.cli.output import print_json
from explorer.errors import VerificationError

if TYPE_CHECKING:
    from explorer.verify.report import Report

NAME = "verify"
HELP = (
    "Check MSCCL XML files: structure, limits, deadlock, races, and the values they deliver; "
    "or tables of which algorithm runs at which size: ranges and pairs."
)
EXAMPLE = "explorer verify ag.xml --dialect executor --size 64M"


def command(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="MSCCL XML, tuner tables.")],
    dialect: Annotated[
        str | None,
        typer.Option("--dialect", help="Also: would this runtime run it? executor, msccl or rccl."),
    ] = None,
    size: options.Size = None,
    as_json: options.Json = False,
) -> None:
    """Verify files; any bad one ends with exit code 4."""
    from explorer.formats.tuner_table import looks_like_tuner_table
    from explorer.verify.xml import verify_xml

    wanted = options.one_size(size)
    reports = [
        _tuner_report(path)
        if looks_like_tuner_table(path)
        else verify_xml(path, dialect=dialect, size_bytes=wanted)
        for path in files
    ]
    if as_json:
        print_json(
            [
                {
                    "file": str(path),
                    "ok": report.ok,
                    "errors": [_finding(f) for f in report.errors],
                    "warnings": [_finding(f) for f in report.warnings],
                }
                for path, report in zip(files, reports, strict=True)
            ]
        )
    else:
        for path, report in zip(files, reports, strict=True):
            print(f"{path}: {'ok' if report.ok else 'WRONG'}")
            for finding in report.errors:
                print(f"  error {finding}")
            for finding in report.warnings:
                print(f"  warning {finding}")
    if not all(report.ok for report in reports):
        raise VerificationError("at least one file is wrong")


def _tuner_report(path: Path) -> Report:
    """Check a table of which algorithm runs at which size."""
    from explorer.formats.tuner_table import check_tuner_table, read_tuner_table
    from explorer.verify.report import Report

    table, unread = read_tuner_table(path)
    errors, warnings = check_tuner_table(table)
    return Report(str(path), errors=(*unread, *errors), warnings=tuple(warnings))


def _finding(finding: object) -> dict[str, object]:
    return {key: getattr(finding, key) for key in ("code", "where", "message")}
