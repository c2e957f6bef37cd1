"""Whether the numbers of a row belong together, and its bandwidths by today's definitions."""

from __future__ import annotations

from dataclasses import replace

from explorer.measured.collective_words import factor
from explorer.measured.row import Row
from explorer.measured.table_row import TYPE_BYTES, Block, Cell, RawRow

SLACK = 0.004
"""Relative room between a printed bandwidth and size over printed time, beyond their digits."""

WRONG_TOLERANCE = 0.1
"""Old ``error`` from which on values are wrong; nccl-tests allowed 1e-2 for half at most."""


def with_mark(row: Row, mark: str) -> Row:
    """Add a mark."""
    return replace(row, marks=tuple(sorted({*row.marks, mark})))


def with_bandwidths(row: Row, *, fits: bool = True) -> Row:
    """Fill algbw and busbw by today's definitions and mark what they mean nothing for."""
    if not fits:
        row = with_mark(row, "inconsistent")
        return replace(row, algbw_gbs=row.printed_algbw_gbs, busbw_gbs=row.printed_busbw_gbs)
    if row.size_bytes == 0:
        row = with_mark(row, "zero-size")
    if row.ranks == 1:
        return with_mark(row, "single-rank")
    if row.time_us <= 0:
        return row if row.size_bytes == 0 else with_mark(row, "inconsistent")
    algbw = row.size_bytes / (row.time_us * 1e3)
    scale = factor(row.collective, row.ranks)
    busbw = row.printed_busbw_gbs if scale is None else algbw * scale
    return replace(row, algbw_gbs=algbw, busbw_gbs=busbw)


def contradiction(row: Row) -> str:
    """Say what of an inconsistent row does not fit."""
    if row.count and row.dtype and row.size_bytes % (row.count * TYPE_BYTES[row.dtype]):
        return f"{row.size_bytes} bytes are not {row.count} x {row.dtype} of every rank"
    if row.time_us <= 0:
        return f"{row.size_bytes} bytes in {row.time_us:g} us"
    rate = row.size_bytes / (row.time_us * 1e3)
    return (
        f"{row.size_bytes} bytes in {row.time_us:g} us are {rate:.4g} GB/s, "
        f"algbw says {row.printed_algbw_gbs} and busbw {row.printed_busbw_gbs}"
    )


def checked(row: Row, check: str | None, *, tolerance: bool) -> Row:
    """Take in the last column of a block: wrong elements, or the old tolerance."""
    told = None if check is None else _number(check)
    if told is None:
        return row
    if tolerance or told != int(told):
        row = replace(row, tolerance=told)
        return with_mark(row, "wrong-values") if told > WRONG_TOLERANCE else row
    row = replace(row, wrong=int(told))
    return with_mark(row, "wrong-values") if told else row


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < 1e18 else None


def consistent(raw: RawRow, block: Block, collective: str | None, ranks: int | None) -> bool:
    """Whether size and count, and size, time and bandwidths of a row belong together."""
    if not _count_fits(raw, collective, ranks):
        return False
    if block.algbw is None or raw.size == 0:
        return True
    if block.time.high <= 0:
        return False
    low, high = raw.size / (block.time.high * 1e3), _over(raw.size, block.time)
    ratio = factor(collective, ranks)
    scale = ratio or 1.0
    plain = _meets(low, high, block.algbw)
    # until 2019 the column algbw already held the factor
    old = _meets(low * scale, high * scale, block.algbw) and block.algbw == block.busbw
    if not plain or block.busbw is None or ratio is None or ranks == 1:
        return plain or old
    # a device list may disagree with the rows by some ranks: that is said once, not per row
    return old or _meets(low * scale * 0.98, high * scale * 1.02, block.busbw)


def _count_fits(raw: RawRow, collective: str | None, ranks: int | None) -> bool:
    if raw.count is None or raw.dtype is None:
        return True
    share = raw.count * TYPE_BYTES[raw.dtype]
    if not share:
        return raw.size == 0
    if raw.size % share:
        return False
    return ranks is None or collective is None or raw.size // share in (1, ranks)


def _over(size: int, time: Cell) -> float:
    return size / (time.low * 1e3) if time.low > 0 else float("inf")


def _meets(low: float, high: float, printed: Cell) -> bool:
    return low * (1 - SLACK) <= printed.high and high * (1 + SLACK) >= printed.low
