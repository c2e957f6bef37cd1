"""A program file executed for real, as a row of ``explorer run``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from explorer.core.collective import sizing
from explorer.errors import InputError, Problem
from explorer.evaluate.simulated import collective_of
from explorer.execute.run import run_program
from explorer.formats.msccl_xml_read import read_msccl_xml


def execute_file(path: Path, size_bytes: int | None, placement: str | None) -> dict[str, Any]:
    """Execute a file for every placement it serves, or the one asked for.

    Parameters
    ----------
    path
        MSCCL XML.
    size_bytes
        nccl-tests' size; None for one element per chunk.
    placement
        ``in``, ``out`` or None.

    Raises
    ------
    InputError
        If the file cannot be read or does not serve the placement.
    """
    program = read_msccl_xml(path)
    kind = collective_of(program)
    served = [p for p, s in (("in", program.in_place), ("out", program.out_of_place)) if s]
    if placement is not None:
        if placement not in served:
            raise InputError(
                Problem(
                    "--placement", f"got {placement!r}, the program serves {' and '.join(served)}"
                )
            )
        served = [placement]
    amount = sizing(kind, size_bytes if size_bytes is not None else 4 * kind.nchunks)
    runs = []
    for place in served:
        report = run_program(program, kind, size_bytes=amount.size_bytes, placement=place)
        runs.append(
            {
                "placement": place,
                "ok": report.ok,
                "size_bytes": amount.size_bytes,
                "elements": report.elements,
                "seconds": report.seconds,
                "processes": report.processes,
                "problems": [str(m) for m in report.mismatches],
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
