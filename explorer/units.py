"""Sizes, times and rates as people write them, in exact bytes and microseconds.

``K M G`` and ``KiB MiB GiB`` are powers of two as nccl-tests prints them, ``kB MB GB`` powers of
ten. ``b`` is a bit, ``B`` a byte. Rates are decimal unless they say ``i``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from explorer.errors import InputError, Problem

MIB = 1 << 20
"""Bytes in a MiB, the unit of beta."""

ELEMENT_BYTES = 4
"""Bytes of an element where nothing else is said (float32, as nccl-tests defaults)."""

_BINARY = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_NUMBER = r"([0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)"
_SIZE = re.compile(rf"^\s*{_NUMBER}\s*([kKmMgGtT]?)(iB|B|i)?\s*$")
_TIME = re.compile(rf"^\s*{_NUMBER}\s*(ns|us|µs|μs|ms|s)\s*$")
_RATE = re.compile(
    rf"^\s*{_NUMBER}\s*([kKmMgGtT]?)(i?)(b|B|bit|bits)(?:/|\s*p\s*)(s|sec|ms|us|ns)\b.*$"
)
_RATE_PS = re.compile(rf"^\s*{_NUMBER}\s*([kKmMgGtT]?)(i?)(b|B)ps\b.*$")
_TIME_US = {"ns": 1e-3, "us": 1.0, "µs": 1.0, "μs": 1.0, "ms": 1e3, "s": 1e6, "sec": 1e6}


def parse_size(text: str | int, where: str = "size") -> int:
    """Read a size in bytes.

    Parameters
    ----------
    text
        Plain bytes or a number with a suffix: ``1048576``, ``1M``, ``1MiB``, ``1MB``, ``0.5G``.
    where
        Named in the error.

    Raises
    ------
    InputError
        If it is not a size, negative, or not a whole number of bytes.

    Examples
    --------
    >>> parse_size("1M"), parse_size("1MB"), parse_size("1KiB")
    (1048576, 1000000, 1024)
    """
    if isinstance(text, bool):
        raise InputError(Problem(where, f"got {text!r}, expected a size such as 1M or 65536"))
    if isinstance(text, int):
        if text < 0:
            raise InputError(Problem(where, f"got {text}, a size cannot be negative"))
        return text
    match = _SIZE.match(str(text))
    if not match:
        raise InputError(
            Problem(
                where,
                f"got {text!r}, expected a size such as 65536, 64K, 1MiB (1024^2) or 1MB (1000^2)",
            )
        )
    number, prefix, suffix = match.groups()
    if prefix and suffix == "B":
        factor = _DECIMAL[prefix.lower()]
    elif prefix:
        factor = _BINARY[prefix.lower()]
    else:
        factor = 1
    value = (
        float(number) * factor if "." in number or "e" in number.lower() else int(number) * factor
    )
    if value >= 1 << 60:
        raise InputError(Problem(where, f"got {text!r}, sizes end below 2^60 bytes"))
    if value != int(value):
        raise InputError(
            Problem(where, f"got {text!r}, which is {value} bytes, not a whole number")
        )
    return int(value)


def parse_sizes(text: str | int | Iterable[str | int], where: str = "sizes") -> list[int]:
    """Read sizes: one, a comma list, a list, or a range ``A..B`` with an optional ``xFACTOR``.

    Examples
    --------
    >>> parse_sizes("1K..16K x4")
    [1024, 4096, 16384]
    >>> parse_sizes("1K..4K")
    [1024, 2048, 4096]
    """
    if not isinstance(text, str):
        if isinstance(text, int):
            return [parse_size(text, where)]
        items: list[int] = []
        for i, item in enumerate(text):
            items.extend(parse_sizes(item, f"{where}[{i}]"))
        return items
    if ".." in text:
        head, _, tail = text.partition("..")
        match = re.match(r"^\s*(\S+?)(?:\s+x\s*([0-9]+))?\s*$", tail)
        if not match:
            raise InputError(Problem(where, f"got {text!r}, expected a range such as 1K..1G x4"))
        first, last = parse_size(head, where), parse_size(match.group(1), where)
        factor = int(match.group(2) or 2)
        if factor < 2:
            raise InputError(
                Problem(where, f"got factor {factor} in {text!r}, expected at least 2")
            )
        if first < 1 or last < first:
            raise InputError(Problem(where, f"got {text!r}, expected 1 <= first <= last"))
        sizes = []
        while first <= last:
            sizes.append(first)
            first *= factor
        return sizes
    return [parse_size(part, where) for part in text.split(",")]


def parse_time_us(text: str | float, where: str = "time") -> float:
    """Read a time with its unit in microseconds; a bare number is refused.

    Examples
    --------
    >>> parse_time_us("700 ns")
    0.7
    """
    match = _TIME.match(str(text))
    if not match:
        raise InputError(
            Problem(where, f"got {text!r}, expected a time with its unit such as 0.7us")
        )
    value, unit = float(match.group(1)), match.group(2)
    return value / 1e3 if unit == "ns" else value * _TIME_US[unit]


def parse_rate_gbs(text: str | float, where: str = "bandwidth") -> float:
    """Read a rate with its unit in GB/s (1e9 bytes per second); a bare number is refused.

    Examples
    --------
    >>> parse_rate_gbs("200Gbps"), parse_rate_gbs("25000MB/s"), parse_rate_gbs("0.025 MB/ns")
    (25.0, 25.0, 25000.0)
    """
    match = _RATE_PS.match(str(text))
    if match:
        number, prefix, binary, unit = match.groups()
        per = "s"
    else:
        match = _RATE.match(str(text))
        if not match:
            raise InputError(
                Problem(
                    where, f"got {text!r}, expected a rate with its unit such as 25GB/s or 200Gb/s"
                )
            )
        number, prefix, binary, unit, per = match.groups()
    factor = 1 if not prefix else (_BINARY if binary else _DECIMAL)[prefix.lower()]
    per_second = float(number) * factor / (_TIME_US[per] * 1e-6)
    return per_second / (1e9 if unit == "B" else 8e9)


def beta_us_per_mib(gbs: float) -> float:
    """Turn a rate in GB/s (1e9 bytes per second) into beta in us per MiB.

    Examples
    --------
    >>> round(beta_us_per_mib(25.0), 3)
    41.943
    """
    return MIB / (gbs * 1e3)


def gbs_of_beta(beta: float) -> float:
    """Turn beta in us per MiB into GB/s; infinite for beta 0."""
    return MIB / (beta * 1e3) if beta > 0 else float("inf")


def beta_of_us_per_mb(us_per_mb: float) -> float:
    """Turn us per MB (1e6 bytes) into beta in us per MiB.

    Examples
    --------
    >>> beta_of_us_per_mb(40.0) == beta_us_per_mib(25.0)
    True
    """
    return us_per_mb * MIB / 1e6


def gbs_of_mbit(mbit_per_s: float) -> float:
    """Turn Mb/s, the unit of ``speed`` in NCCL's topology XML, into GB/s.

    Examples
    --------
    >>> gbs_of_mbit(200_000)
    25.0
    """
    return mbit_per_s / 8e3


def format_size(size_bytes: int) -> str:
    """Write a size the way nccl-tests users say it, exact or in bytes.

    Examples
    --------
    >>> format_size(1048576), format_size(1000000), format_size(1536)
    ('1M', '1000000', '1536')
    """
    for shift, suffix in ((40, "T"), (30, "G"), (20, "M"), (10, "K")):
        if size_bytes and size_bytes % (1 << shift) == 0:
            return f"{size_bytes >> shift}{suffix}"
    return str(size_bytes)
