"""A program file executed for real, as a row of ``explorer run``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from explorer.errors import InputError, Problem
from explorer.execute.run import run_program
from explorer.formats.msccl_xml_read import read_msccl_xml


def execute_file(path: Path, size_bytes: int | None, placement: str | None) -> dict[str, Any]:
    """Execute a file for every placement it serves, or the one asked for.

    Parameters
    ----------
    path
        MSCCL XML.
    size_bytes
        nccl-tests' size; None for the largest the program serves, in small slots.
    placement
        ``in``, ``out`` or None.

    Raises
    ------
    InputError
        If the file cannot be read or does not serve the placement.
    """
    program = read_msccl_xml(path)
    served = [p for p, s in (("in", program.in_place), ("out", program.out_of_place)) if s]
    if placement is not None:
        if placement not in served:
            raise InputError(
                Problem(
                    "--placement", f"got {placement!r}, the program serves {' and '.join(served)}"
                )
            )
        served = [placement]
    runs = []
    for place in served:
        report = run_program(program, size_bytes=size_bytes, placement=place)
        runs.append(
            {
                "placement": place,
                "ok": report.ok,
                "size_bytes": report.size_bytes,
                "elements": report.elements,
                "seconds": report.seconds,
                "processes": report.processes,
                "problems": [str(finding) for finding in report.findings],
            }
        )
    return {
        "file": str(path),
        "ok": all(run["ok"] for run in runs),
        "collective": program.collective,
        "ranks": program.ranks,
        "requested_bytes": size_bytes,
        "runs": runs,
    }
