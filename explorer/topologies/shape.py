"""Shape of a generic machine: what stands after the colon, ``4x4`` or ``16,50GiB/s,1us``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from explorer.errors import InputError, Problem
from explorer.units import parse_rate_gbs, parse_time_us

LINK_GBS = 50.0
LINK_ALPHA_US = 0.5
"""Link of a generic machine unless the shape says otherwise: a round figure, nobody's machine."""

MAX_RANKS = 16384
MAX_PAIRS = 1 << 20


@dataclass(frozen=True, slots=True)
class Shape:
    """Dimensions and link of a generic machine.

    Parameters
    ----------
    dims
        One number, or the extents of a grid.
    gbs, alpha_us
        Bandwidth of one direction of every link and latency from GPU to GPU over one of them.
    """

    dims: tuple[int, ...]
    gbs: float
    alpha_us: float

    @property
    def ranks(self) -> int:
        """Product of the dimensions."""
        return math.prod(self.dims)

    @property
    def text(self) -> str:
        """The dimensions as they are written."""
        return "x".join(str(d) for d in self.dims)

    @property
    def note(self) -> str:
        """What every link is."""
        return f"generic: every link {self.gbs:g} GB/s per direction, {self.alpha_us:g} us"


def parse_shape(name: str, text: str, dims: tuple[int, int], help_text: str) -> Shape:
    """Read a shape.

    Parameters
    ----------
    name
        Builder, for messages.
    text
        ``4x4``, and after a comma the link's rate, then its latency: ``4x4,50GiB/s,0.5us``.
    dims
        Least and most dimensions.
    help_text
        The shape as help writes it, for messages.

    Raises
    ------
    InputError
        If it is not such a shape, or the machine would be too large to hold.
    """
    where = f"topology {name}:{text}" if text else f"topology {name}"
    head, *rest = text.split(",")
    match = re.fullmatch(r"\s*(\d{1,9}(?:\s*x\s*\d{1,9})*)\s*", head)
    extents = tuple(int(part) for part in match.group(1).split("x")) if match else ()
    if not dims[0] <= len(extents) <= dims[1] or len(rest) > 2:
        example = f"{name}:{help_text}"
        raise InputError(
            Problem(
                where,
                f"got shape {text!r}, expected {example}, or with a link {example},50GB/s,0.5us",
            )
        )
    if min(extents) < 1 or math.prod(extents) > MAX_RANKS:
        raise InputError(
            Problem(where, f"has {math.prod(extents)} ranks, expected 1 to {MAX_RANKS}")
        )
    gbs = parse_rate_gbs(rest[0], where) if rest else LINK_GBS
    alpha_us = parse_time_us(rest[1], where) if len(rest) > 1 else LINK_ALPHA_US
    if gbs <= 0:
        raise InputError(Problem(where, f"got a link of {rest[0]}, expected more than 0"))
    return Shape(extents, gbs, alpha_us)
