"""LogSource: the lines of a log as somebody saved it."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from pathlib import Path

from explorer.errors import InputError, Problem

MAX_BYTES = 64 << 20
"""Largest file that is read; about 4 MB a second. One rank writes some 50 KB with INFO."""

MAX_LINE = 16 << 10
"""Characters of a line that are looked at; a longer one is cut, and said to be."""

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_BREAK = re.compile(r"\r\n|\n")
_DROPPED = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\ufeff\u200b]")
_MARKUP = (b"%PDF", b"PK\x03\x04", b"\x1f\x8b", b"\x7fELF", b"\x89PNG")


@dataclass(frozen=True, slots=True)
class LogSource:
    """Name and lines of a file.

    Parameters
    ----------
    name
        Path as it was given, stands before every line number in messages.
    lines
        Without line ends, colour codes and control characters; line n is ``lines[n - 1]``.
    text
        Everything as it was decoded, uncut.
    cut
        Numbers of the lines that were longer than :data:`MAX_LINE`.
    junk
        Whether some bytes were no text.
    """

    name: str
    lines: tuple[str, ...]
    text: str
    cut: tuple[int, ...] = ()
    junk: bool = False

    def at(self, line: int) -> str:
        """Name a line."""
        return f"{self.name}:{line}"


def read_source(path: Path) -> LogSource:
    """Read a file.

    Raises
    ------
    InputError
        If it is absent, a folder, too large, empty or no text.
    """
    name = str(path)
    try:
        if path.is_dir():
            raise InputError(Problem(name, "is a folder, expected a file"))
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise InputError(Problem(name, f"has {size} bytes, at most {MAX_BYTES} are read"))
        data = path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(Problem(name, f"cannot be read: {reason}")) from None
    return source_of(name, data)


def source_of(name: str, data: bytes) -> LogSource:
    """Turn bytes into lines.

    Raises
    ------
    InputError
        If they are empty or no text.
    """
    if not data.strip():
        raise InputError(Problem(name, "is empty: no measurements found"))
    if data.startswith(_MARKUP):
        raise InputError(Problem(name, "is a binary file, expected the text of a log"))
    text, junk = _decoded(name, data)
    lines, cut = [], []
    for number, raw in enumerate(_BREAK.split(text), start=1):
        line = raw
        if len(line) > MAX_LINE:
            line = line[:MAX_LINE]
            cut.append(number)
        line = _DROPPED.sub("", _ANSI.sub("", line))
        # progress bars overwrite their line: what stands on the screen at the end is what counts
        lines.append(line.rstrip("\r").rsplit("\r", 1)[-1].replace("\u00a0", " "))
    return LogSource(name, tuple(lines), text, tuple(cut), junk)


def _decoded(name: str, data: bytes) -> tuple[str, bool]:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # PowerShell's ``>``
        return data.decode("utf-16", errors="replace"), False
    text = data.decode("utf-8-sig", errors="replace")
    odd = text.count("\ufffd") + text.count("\x00")
    if odd * 10 > len(text):
        raise InputError(Problem(name, "is a binary file, expected the text of a log"))
    return text, odd > 0
