"""A program leaves as a file: written, read back alone, replayed, and only then named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from explorer.errors import InputError, VerificationError
from explorer.formats.dialects import UNLIMITED
from explorer.formats.msccl_xml_write import export_xml
from explorer.verify.program import safe_max_bytes
from explorer.verify.runtimes import slot_bytes_of
from explorer.verify.xml import verify_xml
from sim.program import Program


def write_program(
    program: Program,
    path: Path,
    dialect: str,
    *,
    placement: str | None = None,
    min_bytes: int = 0,
    max_bytes: int | None = None,
) -> Path:
    """Write a program as MSCCL XML.

    Parameters
    ----------
    program
        Verified program.
    path
        Final name; nothing is left behind when anything fails.
    dialect
        Runtime it is for.
    placement
        Kind of call the file is for, where a runtime wants one file for each.
    min_bytes, max_bytes
        Sizes it shall serve, inclusive; cut at the size above which it would deadlock.

    Returns
    -------
    pathlib.Path
        The path.

    Raises
    ------
    InputError
        If the target has no file form, a limit of it is exceeded, or the path cannot be written.
    VerificationError
        If the file, read back alone, is not right.
    """
    if dialect == UNLIMITED:
        raise InputError(
            "target `unlimited` is for simulation and ranking; no runtime loads it:"
            " choose --dialect executor, msccl or rccl"
        )
    safe = safe_max_bytes(program, slot_bytes=slot_bytes_of(dialect))
    if safe is not None:
        max_bytes = safe if max_bytes is None else min(safe, max_bytes)
    ranged = replace(program, min_bytes=min_bytes, max_bytes=max_bytes)

    def check(file: Path) -> None:
        report = verify_xml(file, dialect=dialect)
        if not report.ok:
            raise VerificationError(f"{path.name}: the written file is wrong", report.errors)

    export_xml(ranged, path, dialect, check, placement=placement)
    return path
