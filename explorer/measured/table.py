"""Table: rows of one run with what stands around them, turned into measurements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from explorer.measured.collective_words import factor, named_by_heading, ranks_between
from explorer.measured.evidence import bandwidth_ratio, columns_of, count_ratio
from explorer.measured.facts import Facts
from explorer.measured.layout import Layout
from explorer.measured.row import Remark, Row
from explorer.measured.row_check import (
    checked,
    consistent,
    contradiction,
    with_bandwidths,
    with_mark,
)
from explorer.measured.table_row import RawRow

_SHARE = ("allgather", "reducescatter", "alltoall", "gather", "scatter", "hypercube")


@dataclass(slots=True)
class Table:
    """One table while it is read.

    Parameters
    ----------
    file, line
        Where its heading, or its first row, stands.
    layout
        Its columns.
    facts
        What the lines before it say.
    rows
        Its rows.
    average
        ``Avg bus bandwidth`` of its last lines.
    out_of_bounds
        ``Out of bounds values`` of its last lines.
    elided
        Lines that say that rows are left out.
    """

    file: str
    line: int
    layout: Layout
    facts: Facts
    rows: list[RawRow] = field(default_factory=list)
    average: float | None = None
    out_of_bounds: int | None = None
    elided: list[int] = field(default_factory=list)
    _remarks: list[Remark] = field(default_factory=list)

    def say(self, line: int, kind: str, message: str) -> None:
        """Add a remark."""
        self._remarks.append(Remark(line, kind, message))

    def finish(self, elsewhere: int | None = None) -> tuple[list[Row], list[Remark]]:
        """Turn it into measurements.

        Parameters
        ----------
        elsewhere
            Ranks of the other tables of the file, taken where this one leaves them open.
        """
        self._remarks = []
        for raw in self.rows:
            if raw.complaint:
                self.say(raw.line, "refused", raw.complaint)
        self.rows = [raw for raw in self.rows if raw.out or raw.inside or raw.alone]
        if not self.rows:
            self.say(self.line, "note", "a table without a row that can be used")
            return [], self._remarks
        collective = self._collective()
        ranks = self._ranks(collective, elsewhere)
        made = [row for raw in self.rows for row in self._measured(raw, collective, ranks)]
        made = self._warm_up(made)
        self._complain(made)
        return made, self._remarks

    def _collective(self) -> str | None:
        facts, likely = self.facts, columns_of(self.layout, self.rows).collectives()
        if facts.collective != "hypercube":  # nobody runs it without naming it
            likely = tuple(name for name in likely if name != "hypercube")
        ratio = bandwidth_ratio(self.rows)
        if self.layout.bare and ratio and ratio[0] > 1:
            likely = ("allreduce",)
        if facts.collective and (not likely or facts.collective in likely or ratio is None):
            return facts.collective
        if facts.collective and facts.listed == (1, "the device list"):
            return facts.collective  # one rank: every collective looks alike
        if facts.collective and len(likely) == 1:
            self.say(
                facts.named_in,
                "conflict",
                f"this names {facts.collective}, the columns from line {self.line} on are those of "
                f"{likely[0]}, which is taken",
            )
            return likely[0]
        by_name = named_by_heading(self.file.replace("\\", "/").rsplit("/", 1)[-1])
        if len(likely) == 1:
            self.say(self.line, "assumed", f"no line names the collective: {likely[0]} by columns")
            return likely[0]
        if facts.collective or (by_name and (not likely or by_name in likely)):
            name = facts.collective or by_name
            self.say(self.line, "assumed", f"no line names the collective: {name} by the file name")
            return name
        fit = f"the columns fit {', '.join(likely)}" if likely else "and no column shows it"
        self.say(self.line, "assumed", f"no line names the collective; {fit}")
        return None

    def _ranks(self, collective: str | None, elsewhere: int | None) -> int | None:
        interval = bandwidth_ratio(self.rows)
        fitting = ranks_between(collective, *interval) if interval else range(0)
        share = count_ratio(self.rows) if collective in _SHARE else None
        listed, started = self.facts.listed, self.facts.started
        if listed and not (fitting and fitting[0] > listed[0]) and not (share or 0) > listed[0]:
            other = share if share not in (None, listed[0]) else None
            if fitting and listed[0] not in fitting:
                other = fitting[0] if len(fitting) == 1 else None
            if other is not None:
                where = "its counts" if other == share else "busbw over algbw"
                self.say(
                    self.line, "conflict", f"{listed[1]} shows {listed[0]} ranks, {where} {other}"
                )
            return listed[0]
        if listed:
            self.say(self.line, "note", f"the device list is incomplete: it ends at {listed[0]}")
        if share is not None:
            self.say(self.line, "assumed", f"{share} ranks, from size over count")
            return share
        if len(fitting) == 1:
            self.say(self.line, "assumed", f"{fitting[0]} ranks, from busbw over algbw")
            return fitting[0]
        if started and (not fitting or started[0] in fitting):
            self.say(self.line, "assumed", f"{started[0]} ranks, from {started[1]}")
            return started[0]
        if elsewhere in fitting:
            self.say(self.line, "assumed", f"{elsewhere} ranks, as the other table of the file has")
            return elsewhere
        some = (
            f"busbw over algbw fits {fitting[0]} to {fitting[-1]}" if fitting else "nothing tells"
        )
        self.say(self.line, "assumed", f"the number of ranks is unknown ({some})")
        return None

    def _measured(self, raw: RawRow, collective: str | None, ranks: int | None) -> Iterable[Row]:
        nodes = self.facts.nodes(ranks)
        for placement, block in (("out", raw.out), ("in", raw.inside), (None, raw.alone)):
            if block is None:
                continue
            row = Row(
                file=self.file,
                line=raw.line,
                collective=collective,
                ranks=ranks,
                size_bytes=raw.size,
                placement=placement,
                time_us=block.time.value,
                printed_algbw_gbs=block.algbw.value if block.algbw else None,
                printed_busbw_gbs=block.busbw.value if block.busbw else None,
                count=raw.count,
                dtype=raw.dtype,
                redop=raw.redop,
                root=raw.root if raw.root is not None and raw.root >= 0 else None,
                nodes=nodes,
            )
            row = checked(row, block.check, tolerance=self.layout.tolerance)
            yield with_bandwidths(row, fits=consistent(raw, block, collective, ranks))

    def _warm_up(self, rows: list[Row]) -> list[Row]:
        """Mark the first time of a table if it is 3 times the in-place one and the next."""
        timed = [row for row in rows if row.size_bytes]
        if len(timed) < 3 or timed[1].line != timed[0].line or timed[2].placement != "out":
            return rows
        first = timed[0]
        if first.time_us <= 3 * max(timed[1].time_us, timed[2].time_us):
            return rows
        message = f"{first.time_us:g} us out-of-place is a warm-up: {timed[1].time_us:g} in-place"
        self.say(first.line, "note", message)
        return [with_mark(row, "warm-up") if row is first else row for row in rows]

    def _complain(self, rows: list[Row]) -> None:
        wrong = [row for row in rows if "wrong-values" in row.marks]
        for row in wrong:
            amount = f"{row.wrong} wrong elements" if row.wrong else f"error {row.tolerance:g}"
            place = {"out": "out-of-place", "in": "in-place"}.get(row.placement or "", "result")
            self.say(row.line, "failure", f"{place} {amount}: the values are wrong")
        if self.out_of_bounds == 0 and wrong:
            self.say(wrong[0].line, "conflict", "the run's last lines say 0 values out of bounds")
        odd = [row for row in rows if "inconsistent" in row.marks]
        for row in odd[:20]:
            self.say(row.line, "conflict", contradiction(row))
        if len(odd) > 20:
            self.say(0, "conflict", f"and {len(odd) - 20} more inconsistent rows")
        self._old_bandwidth(rows)
        if self.facts.max_bytes and max(row.size_bytes for row in rows) > self.facts.max_bytes:
            self.say(
                self.line,
                "conflict",
                f"the heading ends at {self.facts.max_bytes} bytes, the rows go to "
                f"{max(row.size_bytes for row in rows)}",
            )
        self._average(rows)
        if rows[0].ranks == 1:
            self.say(self.line, "note", "one rank: nothing crosses a link, bandwidths mean nothing")

    def _old_bandwidth(self, rows: list[Row]) -> None:
        """Say so where the column algbw already holds the factor, as nccl-tests did until 2019."""
        told = [r for r in rows if r.printed_algbw_gbs and r.algbw_gbs and r.printed_algbw_gbs > 1]
        ratio = factor(rows[0].collective, rows[0].ranks)
        if not told or ratio is None or ratio == 1:
            return
        old = sum(
            abs((r.printed_algbw_gbs or 0) - (r.busbw_gbs or 0)) < 0.02 * (r.busbw_gbs or 0)
            and "inconsistent" not in r.marks
            for r in told
        )
        if 2 * old > len(told):
            self.say(
                self.line, "note", "the column algbw holds busbw: algbw is size over time here"
            )

    def _average(self, rows: list[Row]) -> None:
        told = [row.printed_busbw_gbs for row in rows if row.printed_busbw_gbs is not None]
        if self.average is None or not told:
            return
        mean = sum(told) / len(told)
        if abs(mean - self.average) > 0.01 + 0.01 * self.average:
            self.say(
                self.line,
                "note",
                f"the run's average busbw is {self.average:g}, that of the rows here {mean:.6g}: "
                "rows are missing",
            )
