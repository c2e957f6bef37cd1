"""Layout: which columns a table of nccl-tests has, from its heading line.

Layouts seen, oldest first: ``bytes N type op`` with times in ms (NCCL 1, 2018); ``size count type
[redop] [root]`` with a tolerance column ``error`` (2019-2021); the same with counts in ``#wrong``
and always redop and root (2022 on); with ``cputime`` or a trailing ``timestamp`` (options -C and
-S); tables cut down by hand to ``size time algbw busbw``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_WORDS = {"bytes": "size", "n": "count", "op": "redop", "cputime": "time", "res": "error"}
_NUMBERED = ("time", "algbw", "busbw", "error", "#wrong")
_KNOWN = frozenset(
    ("size", "count", "type", "redop", "root", "timestamp", *_NUMBERED),
)


@dataclass(frozen=True, slots=True)
class Layout:
    """Columns of a table.

    Parameters
    ----------
    leading
        Names of the columns before the first time, in order.
    groups
        Out-of-place and in-place (2), or one block of unstated placement (1).
    block
        Names of the columns of one block: time, algbw, busbw and mostly ``error`` or ``#wrong``.
    unit_us
        Microseconds per unit of the time column.
    in_place_at
        Character column where the heading of the second block starts, 0 if there is none.
    stated
        Whether a heading said so; else it is the newest layout, assumed.
    """

    leading: tuple[str, ...] = ("size", "count", "type", "redop", "root")
    groups: int = 2
    block: tuple[str, ...] = ("time", "algbw", "busbw", "#wrong")
    unit_us: float = 1.0
    in_place_at: int = 0
    stated: bool = False

    @property
    def tolerance(self) -> bool:
        """Whether the last column of a block is the old ``error``, a deviation and no count."""
        return "error" in self.block

    @property
    def bare(self) -> bool:
        """Whether rows hold nothing but numbers (no count and no type)."""
        return "type" not in self.leading


def read_layout(line: str) -> Layout | None:
    """Read a heading line, without launcher prefix; None if it is none.

    A heading that is cut off gives the newest layout with the leading columns it still shows.

    Examples
    --------
    >>> read_layout("# bytes  N  type  op  time algbw busbw res  time algbw busbw res").unit_us
    1000.0
    """
    text = line.strip().lstrip("#|> ").replace("|", " ")
    found = [(m.group(), m.start()) for m in re.finditer(r"\S+", text.lower())]
    words = [_WORDS.get(word, word) for word, _ in found]
    if not words or words[0] != "size" or len(words) < 3:
        return None
    if sum(word in _KNOWN for word in words) < len(words) - 1:
        return None
    ancient = found[0][0] == "bytes"
    first = words.index("time") if "time" in words else len(words)
    leading = tuple(word for word in words[:first] if word in _KNOWN)
    if first == len(words) and not {"count", "type"} <= set(leading):
        return None
    blocks = words[first:]
    second = blocks.index("time", 1) if blocks.count("time") > 1 else 0
    block = tuple(w for w in (blocks[:second] if second else blocks) if w in _NUMBERED)
    if second == 0 and len(block) < 4 and "type" in leading:  # cut off behind here
        block = ("time", "algbw", "busbw", "error" if "root" not in leading else "#wrong")
        return Layout(leading, 2, block, 1000.0 if ancient else 1.0, 0, stated=True)
    if "time" not in block:
        return None
    indent = len(line) - len(line.lstrip()) + len(line.strip()) - len(line.strip().lstrip("#|> "))
    at = found[first + second][1] + indent if second else 0
    return Layout(leading, 2 if second else 1, block, 1000.0 if ancient else 1.0, at, stated=True)


def unit_of(line: str) -> float | None:
    """Microseconds per unit, from the line of units under a heading; None if it is none."""
    text = line.strip().lstrip("#| ").lower()
    if not text.startswith("(b)") and not text.startswith("(bytes)"):
        return None
    return 1000.0 if "(ms)" in text else 1e6 if "(s)" in text else 1.0
