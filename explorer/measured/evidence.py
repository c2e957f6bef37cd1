"""What a table's own numbers say about its collective and its ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from explorer.measured.layout import Layout
from explorer.measured.table_row import TYPE_BYTES, Block, RawRow

CHECKED = 64
"""Blocks of largest bandwidth that the ratio is taken from: their digits bound it best."""


def blocks(row: RawRow) -> Iterator[Block]:
    """Blocks of a row."""
    for block in (row.out, row.inside, row.alone):
        if block is not None:
            yield block


def count_ratio(rows: Sequence[RawRow]) -> int | None:
    """Size over count x bytes of the type: the ranks where ``count`` is one rank's share, else 1.

    None without counts, or where it is no whole number for most rows.
    """
    found: Counter[int] = Counter()
    for row in rows:
        if row.count and row.dtype and row.size:
            whole, rest = divmod(row.size, row.count * TYPE_BYTES[row.dtype])
            found[0 if rest else whole] += 1
    if not found:
        return None
    value, times = min(found.items(), key=lambda item: (-item[1], item[0]))
    return value if value and 2 * times > found.total() else None


def bandwidth_ratio(rows: Sequence[RawRow]) -> tuple[float, float] | None:
    """Interval of busbw over algbw that most rows allow, from the digits they print.

    None if the printed bandwidths contradict one another or there are none.
    """
    pairs = sorted(
        (
            (
                block.algbw.value,
                block.busbw.low / block.algbw.high,
                block.busbw.high / block.algbw.low,
            )
            for row in rows
            for block in blocks(row)
            if block.algbw and block.busbw and block.algbw.low > 0 and block.busbw.low > 0
        ),
        reverse=True,
    )[:CHECKED]
    best: tuple[int, float, float] | None = None
    for start in range(min(3, len(pairs))):
        hits, low, high = 0, pairs[start][1], pairs[start][2]
        for _, least, most in pairs:
            if max(low, least) <= min(high, most):
                hits, low, high = hits + 1, max(low, least), min(high, most)
        if best is None or hits > best[0]:
            best = (hits, low, high)
    if best is None or 2 * best[0] <= len(pairs):
        return None
    return best[1], best[2]


@dataclass(frozen=True, slots=True)
class Columns:
    """What the leading columns of a table show, taken over its rows."""

    layout: Layout
    reduces: bool
    rooted: bool
    share: int | None
    in_place_unchecked: bool
    unchecked: bool

    def collectives(self) -> tuple[str, ...]:
        """Collectives whose rows look like this, likeliest first; empty if nothing is known.

        Notes
        -----
        ``count`` is one rank's share in AllGather, ReduceScatter, AlltoAll, Gather and Scatter,
        the whole buffer in the others (``*GetCollByteCount`` in nccl-tests). Before 2022 only the
        collectives with an operation or a root had those columns; AlltoAll had the heading and
        left the cells empty. In-place AlltoAll is never checked (``N/A``).
        """
        if self.layout.bare:
            return ()
        whole, part = self.share == 1, self.share is not None and self.share > 1
        if self.reduces:
            plain = ("allreduce",) * (not part) + ("reducescatter",) * (not whole)
            return ("reduce",) if self.rooted else plain
        if self.rooted:
            return ("broadcast",) * (not part) + ("gather", "scatter") * (not whole)
        return ("sendrecv",) if whole else self._shared(part)

    def _shared(self, part: bool) -> tuple[str, ...]:
        """Collectives without operation and root."""
        if self.layout.stated and "root" not in self.layout.leading:
            first = "alltoall" if "redop" in self.layout.leading else "allgather"
            return (first,) if part else (first, "sendrecv")
        if part and not self.unchecked:
            return ("alltoall",) if self.in_place_unchecked else ("allgather", "hypercube")
        return ("allgather", "alltoall", "hypercube")


def columns_of(layout: Layout, rows: Sequence[RawRow]) -> Columns:
    """Summarise the leading columns; what most rows show counts."""
    half = len(rows) / 2
    na = [[(b.check or "N/A").upper() in ("N/A", "NA", "-") for b in blocks(row)] for row in rows]
    both = [flags for flags in na if len(flags) == 2]
    return Columns(
        layout=layout,
        reduces=sum((row.redop or "none").lower() != "none" for row in rows) > half,
        rooted=sum(row.root is not None and row.root >= 0 for row in rows) > half,
        share=count_ratio(rows),
        in_place_unchecked=bool(both) and all(inside and not out for out, inside in both),
        unchecked=all(all(flags) for flags in na),
    )
