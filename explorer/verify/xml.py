"""Verify an MSCCL XML file alone: read it, replay it, and say what each runtime does with it."""

from __future__ import annotations

from pathlib import Path

from explorer.errors import InputError, Problem, nearest
from explorer.verify.lint import Remark, lint
from explorer.verify.names import Names
from explorer.verify.program import examine
from explorer.verify.report import Ledger, Report
from explorer.verify.runtimes import RUNTIMES, Header, Runtime
from explorer.verify.structure import check_shape
from explorer.verify.xml_program import placements, program_of
from explorer.verify.xml_tree import Document, integer, read_document


def verify_xml(
    path: str | Path, *, dialect: str | None = None, size_bytes: int | None = None
) -> Report:
    """Verify a file as it stands.

    Parameters
    ----------
    path
        The file.
    dialect
        Runtime it is for: ``msccl``, ``executor`` or ``rccl``. What that runtime would not load,
        choose or survive is then an error. Without it, missing attributes and one runtime's
        limits are warnings, unless limits leave no runtime at all.
    size_bytes
        Size it will run at; by default everything it serves is checked.

    Returns
    -------
    Report
        Findings with line numbers.

    Raises
    ------
    InputError
        If the file cannot be read as an MSCCL algorithm, or the dialect is unknown.

    Notes
    -----
    Memory: the file (at most 256 MiB), 100 bytes per step, and what
    :func:`explorer.verify.program.verify_program` takes.
    """
    if dialect is not None and dialect not in RUNTIMES:
        raise InputError(Problem("dialect", f"got {dialect!r}, {nearest(dialect, RUNTIMES)}"))
    ledger = Ledger()
    document = read_document(Path(path), ledger)
    header = read_header(document, ledger)
    runtime = RUNTIMES[dialect] if dialect else None
    _report_runtimes(document, header, runtime, size_bytes, ledger)
    _report_placement(document, header, runtime, ledger)
    built = program_of(document, header, runtime, ledger)
    if built is not None and check_shape(built.program, ledger):
        names = Names(built.program, built.step_line, built.block_line)
        examine(
            built.program,
            None,
            names,
            ledger,
            size_bytes=size_bytes,
            strict=False,
            slot_bytes=runtime.slot_bytes if runtime else None,
        )
    return ledger.report(str(path))


def read_header(document: Document, ledger: Ledger) -> Header:
    """Read the numbers of the algorithm element."""
    text, where = document.algo.text, f"line {document.algo.line}"

    def number(key: str) -> int | None:
        return integer(text[key], key, where, ledger) if key in text else None

    header = Header(
        nchannels=number("nchannels"),
        nchunksperloop=number("nchunksperloop"),
        ngpus=number("ngpus"),
        inplace=number("inplace"),
        outofplace=number("outofplace"),
        min_bytes=number("minBytes"),
        max_bytes=number("maxBytes"),
        nthreads=number("nthreads"),
    )
    for key, value in (("nchannels", header.nchannels), ("minBytes", header.min_bytes)):
        if value is not None and value < 0:
            ledger.error("NUMBER", where, f"{key} is {value}")
    for key, value in (("inplace", header.inplace), ("outofplace", header.outofplace)):
        if value not in (None, 0, 1):
            ledger.error("NUMBER", where, f"{key} is {value}, expected 0 or 1")
    return header


def _report_runtimes(
    document: Document,
    header: Header,
    runtime: Runtime | None,
    size_bytes: int | None,
    ledger: Ledger,
) -> None:
    """Remarks of the named runtime as errors; of all of them as warnings where one remains."""
    asked = [runtime] if runtime else list(RUNTIMES.values())
    said: dict[Remark, list[str]] = {}
    refusing = set()
    for one in asked:
        for remark in lint(one, document, header, size_bytes):
            said.setdefault(remark, []).append(one.name)
            if not remark.gap:
                refusing.add(one.name)
    nobody = len(refusing) == len(asked)
    for remark, names in said.items():
        need = "needed by " if remark.gap else ""
        ledger.add(
            remark.code,
            remark.where,
            f"{remark.message} ({need}{', '.join(names)})",
            error=runtime is not None or (nobody and not remark.gap),
        )


def _report_placement(
    document: Document, header: Header, runtime: Runtime | None, ledger: Ledger
) -> None:
    where = f"line {document.algo.line}"
    if document.algo.text.get("coll") in ("broadcast", "reduce"):
        ledger.warning(
            "ROOT", where, "runtimes do not compare roots: calls with any root get this one's"
        )
    if header.inplace is None:
        return
    in_place, out_of_place = placements(header)
    if in_place != out_of_place:
        mine, other = ("in-place", "out-of-place") if in_place else ("out-of-place", "in-place")
        ledger.warning(
            "PLACEMENT", where, f"serves {mine} calls only: {other} calls fall back to the library"
        )
    elif in_place and (runtime is None or runtime.exclusive_max):
        ledger.warning(
            "PLACEMENT", where, "msccl reads inplace alone: there it serves in-place calls only"
        )
    if header.max_bytes == 0 and runtime is not None and not runtime.exclusive_max:
        ledger.warning(
            "RANGE",
            where,
            "maxBytes 0 is no limit to executor and rccl, and an empty range to msccl,"
            " which never uses the file",
        )
