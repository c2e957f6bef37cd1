"""Source: the text of a file a topology may be read from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from explorer.errors import InputError, Problem

MAX_BYTES = 8 << 20
"""Largest file that is read; a machine of 1,024 GPUs in our YAML has about 1 MB."""


@dataclass(frozen=True, slots=True)
class Source:
    """Name and text of a file.

    Parameters
    ----------
    name
        Path as it was given, stands before every line number in messages.
    text
        Decoded content, without a byte order mark.
    """

    name: str
    text: str

    @property
    def stem(self) -> str:
        """File name without folder and suffix."""
        return Path(self.name).stem

    def at(self, line: int) -> str:
        """Name a line."""
        return f"{self.name}:{line}"


def read_source(path: Path) -> Source:
    """Read a text file.

    Raises
    ------
    InputError
        If it is absent, too large, not text or empty.
    """
    name = str(path)
    try:
        if path.is_dir():
            raise InputError(Problem(name, "is a folder, expected a file"))
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise InputError(Problem(name, f"has {size} bytes, at most {MAX_BYTES} are read"))
        data = path.read_bytes()
        # PowerShell's redirection writes UTF-16.
        utf16 = data[:2] in (b"\xff\xfe", b"\xfe\xff") and len(data) % 2 == 0
        text = data.decode("utf-16" if utf16 else "utf-8-sig")
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(Problem(name, f"cannot be read: {reason}")) from None
    except UnicodeDecodeError as error:
        raise InputError(
            Problem(
                name,
                f"is not UTF-8 text (byte {error.start}); a binary file such as a Chakra trace"
                " describes no machine",
            )
        ) from None
    if not text.strip():
        raise InputError(Problem(name, "is empty, expected a topology"))
    return Source(name, text)
