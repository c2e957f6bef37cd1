"""Read the tables of nccl-tests and rccl-tests out of any text around them."""

from __future__ import annotations

import re

from explorer.measured.collective_words import named_by_binary
from explorer.measured.facts import Facts
from explorer.measured.layout import Layout, read_layout, unit_of
from explorer.measured.prefix import strip_prefix
from explorer.measured.row import Remark, Row
from explorer.measured.source import LogSource
from explorer.measured.table import Table
from explorer.measured.table_row import START, cell, read_row

_FAILURE = re.compile(
    r"Test (?:CUDA |NCCL |HIP |MPI )?failure|NCCL failure|NCCL WARN|unhandled (?:cuda|system|hip)"
    r"|Segmentation fault|\bKilled\b|core dumped|out of memory|Invalid number of GPUs"
    r"|srun: error|mpirun (?:noticed|was unable)|MPI_ABORT|Aborted|Watchdog|timed out"
    r"|is an invalid size|# error:",
    re.IGNORECASE,
)
_FAILURE_WORDS = (
    *("failure", "warn", "unhandled", "fault", "killed", "core", "memory", "invalid", "error"),
    *("mpirun", "abort", "watchdog", "timed out"),
)
"""One of them is in every line that :data:`_FAILURE` finds; looking for them first is faster."""

_FAILURES_KEPT = 20
_NUMBERS = re.compile(r"[\d.eE+\sNA/-]{1,200}")
_ELIDED = re.compile(r"^[\s#>`|]*(?:\[?\.\.\.+\]?|\[?…\]?|<snip>|\[snip\])[\s|]*$", re.IGNORECASE)
_AVERAGE = re.compile(r"Avg bus bandwidth\s*:\s*(\S+)")
_BOUNDS = re.compile(r"Out of bounds values\s*:\s*(\d{1,18})\s*(\w*)")
_START_OF_RUN = re.compile(r"nThreads?:?\s+\d+\s+nGpus|Collective test starting")
_TABLE_WORDS = ("# ", "algbw", "busbw", "_perf", "Using devices", "NCCL", "RCCL", "minBytes")


class _Stream:
    """Lines of one process: the table it is in, and what was said since that table began."""

    def __init__(self) -> None:
        self.table: Table | None = None
        self.said = Facts()
        self.run_started = 0
        self.torn: tuple[int, str] | None = None

    def learn(self, number: int, text: str) -> bool:
        """Take what a line says about this table or the next one."""
        if self.table is not None and "comm 0x" in text:
            self.table.facts.learn(number, text)
        return self.said.learn(number, text)

    def start_run(self, number: int, text: str) -> None:
        """Begin the facts of a new run, unless they began with the command above this line."""
        if self.said.devices or self.run_started:
            named = self.said if self.said.named_in > self.run_started else Facts()
            self.said = Facts(named.collective, named.named_in, named.sure)
        if "nGpus" in text:
            self.run_started = number
        self.said.learn(number, text)

    def facts_of_table(self) -> Facts:
        """Hand over what was said; a heading printed again in a run keeps that run's facts."""
        said, last = self.said, self.table
        self.said, self.run_started = Facts(), 0
        silent = said == Facts()
        same_run = last is not None and last.average is None and last.out_of_bounds is None
        return last.facts if silent and same_run and last is not None else said


class TableReader:
    """Reads a log line by line; one stream per process that tags its lines."""

    def __init__(self, source: LogSource) -> None:
        self._source = source
        self._streams: dict[str, _Stream] = {}
        self._tables: list[tuple[str, Table]] = []
        self._remarks: list[Remark] = []
        self._failures = 0
        self._last: _Stream | None = None
        self.recognised = False

    def read(self) -> tuple[list[Row], list[Remark]]:
        """Read all lines.

        Returns
        -------
        tuple
            Rows, and remarks in the order of their lines.
        """
        for number, line in enumerate(self._source.lines, start=1):
            if line.strip():
                self._line(number, *strip_prefix(line))
        tables = [table for _, table in self._tables]
        results = [table.finish() for table in tables]
        known = {rows[0].ranks for rows, _ in results if rows and rows[0].ranks}
        if len(known) == 1:  # tables of one paste are of one machine unless they say otherwise
            results = [
                table.finish(next(iter(known))) if rows and rows[0].ranks is None else (rows, said)
                for table, (rows, said) in zip(tables, results, strict=True)
            ]
        rows = sorted((row for made, _ in results for row in made), key=lambda row: row.line)
        self._without_mpi()
        remarks = dict.fromkeys([*self._remarks, *(r for _, said in results for r in said)])
        return rows, sorted(remarks, key=lambda remark: remark.line)

    def _stream(self, tag: str) -> _Stream:
        if tag not in self._streams:
            self._streams[tag] = _Stream()
        return self._streams[tag]

    def _line(self, number: int, tag: str, text: str) -> None:
        stream = self._stream(tag)
        if "NCCL INFO" in text and START.search(text) is None:  # most lines of a debug log
            self.recognised = True
            if "comm 0x" in text:
                stream.learn(number, text)
            return
        plain = text.lower()
        if any(word in plain for word in _FAILURE_WORDS) and _FAILURE.search(text):
            self._failure(number, text)
        layout = read_layout(text) if "size" in plain or "bytes" in plain else None
        if layout is not None:
            self._open(stream, number, layout)
            return
        if START.search(text) is not None:
            self._rows(stream, number, text)
            return
        if self._joined(stream, text):
            return
        stream.torn = None
        self._around(stream, number, text)

    def _around(self, stream: _Stream, number: int, text: str) -> None:
        """Read a line that is neither heading nor row with a type."""
        table = stream.table
        if table is not None and table.layout.bare:
            raw = read_row(number, text, table.layout)
            if raw is not None:
                table.rows.append(raw)
                return
        unit = unit_of(text)
        if table is not None and unit is not None and not table.rows:
            table.layout = _with_unit(table.layout, unit)
            return
        average, bounds = _AVERAGE.search(text), _BOUNDS.search(text)
        if average or bounds:
            self.recognised = True
            self._closing(stream, number, average, bounds)
        elif _ELIDED.match(text):
            if table is not None:
                table.elided.append(number)
                self._remarks.append(Remark(number, "note", "rows are left out here"))
        elif _START_OF_RUN.search(text):
            self.recognised = True
            stream.start_run(number, text)
        elif stream.learn(number, text) or any(word in text for word in _TABLE_WORDS):
            self.recognised = True
            if named_by_binary(text) and "GB/s" in text:
                message = "a figure without a time is no measurement"
                self._remarks.append(Remark(number, "refused", message))

    def _open(self, stream: _Stream, number: int, layout: Layout) -> None:
        self.recognised = True
        stream.torn = None
        stream.table = Table(self._source.name, number, layout, stream.facts_of_table())
        self._tables.append((self._tag(stream), stream.table))
        self._last = stream

    def _tag(self, stream: _Stream) -> str:
        return next(tag for tag, known in self._streams.items() if known is stream)

    def _rows(self, stream: _Stream, number: int, text: str) -> None:
        self.recognised = True
        stream.torn = None
        table = stream.table
        if table is None or table.layout.bare or (stream.run_started and table.rows):
            table = self._headless(stream, number)
        matches = list(START.finditer(text))
        before = text[: matches[0].start()].strip(" \t|>#*-+`")
        if before:
            message = f"a row behind other text ({before[:40]!r}) is not used"
            self._remarks.append(Remark(number, "refused", message))
            return
        for i, match in enumerate(matches):
            end = matches[i + 1].start() if i + 1 < len(matches) else len(text)
            part = text[match.start() : end]
            raw = read_row(number, part, table.layout)
            if raw is None:
                continue
            table.rows.append(raw)
            if raw.complaint and "torn" in raw.complaint and end == len(text):
                stream.torn = (number, part)

    def _headless(self, stream: _Stream, number: int) -> Table:
        """Start a table without heading, with the columns of the last one anybody printed."""
        last = self._last.table if self._last is not None else None
        if last is not None and last.layout.bare:
            last = None
        if stream.table is None and last is not None and stream.said == Facts():
            stream.table = last  # rows that lost their tag stand in the table around them
            return last
        layout = last.layout if last is not None else Layout()
        table = stream.table = Table(self._source.name, number, layout, stream.facts_of_table())
        self._tables.append((self._tag(stream), table))
        what = "the columns of the last heading" if last is not None else "today's columns"
        self._remarks.append(Remark(number, "assumed", f"rows without heading: {what}"))
        return table

    def _joined(self, stream: _Stream, text: str) -> bool:
        """Put a torn row and the next line together if that makes it whole."""
        if stream.torn is None or stream.table is None:
            return False
        if not _NUMBERS.fullmatch(text):
            return False
        number, part = stream.torn
        for seam in ("", " "):  # a terminal breaks a line anywhere, also inside a number
            raw = read_row(number, f"{part}{seam}{text}", stream.table.layout)
            if raw is not None and not raw.complaint and stream.table.rows:
                stream.table.rows[-1] = raw
                stream.torn = None
                return True
        return False

    def _closing(
        self,
        stream: _Stream,
        number: int,
        average: re.Match[str] | None,
        bounds: re.Match[str] | None,
    ) -> None:
        table = stream.table
        value = cell(average.group(1)) if average else None
        if table is not None and value is not None:
            table.average = value.value
        if bounds:
            if table is not None:
                table.out_of_bounds = int(bounds.group(1))
            if int(bounds.group(1)) or bounds.group(2).upper() == "FAILED":
                message = f"the run says {bounds.group(1)} values out of bounds"
                self._remarks.append(Remark(number, "failure", message))

    def _failure(self, number: int, text: str) -> None:
        self.recognised = True
        self._failures += 1
        if self._failures <= _FAILURES_KEPT:
            self._remarks.append(Remark(number, "failure", text.strip()[:200]))
        elif self._failures == _FAILURES_KEPT + 1:
            self._remarks.append(Remark(number, "failure", "further failure lines are not listed"))

    def _without_mpi(self) -> None:
        tags = sorted({tag for tag, table in self._tables if table.rows and tag})
        if len(tags) > 1:
            message = (
                f"{len(tags)} processes print a table each: such a build of nccl-tests has no MPI, "
                "every process measured alone"
            )
            self._remarks.append(Remark(0, "conflict", message))


def _with_unit(layout: Layout, unit: float) -> Layout:
    return Layout(
        layout.leading, layout.groups, layout.block, unit, layout.in_place_at, layout.stated
    )
