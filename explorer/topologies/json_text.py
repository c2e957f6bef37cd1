"""JSON text with the line of its keys, for messages."""

from __future__ import annotations

import json
import re
from typing import Any

from explorer.errors import InputError, Problem
from explorer.topologies.source import Source


def parse_json(source: Source) -> Any:
    """Parse JSON.

    Raises
    ------
    InputError
        If it is not JSON, nests too deeply or repeats a key; with the line.
    """
    repeated: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) < len(pairs):
            keys = [key for key, _ in pairs]
            repeated.extend(sorted({key for key in keys if keys.count(key) > 1}))
        return table

    try:
        data = json.loads(source.text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        where = source.at(error.lineno)
        raise InputError(Problem(where, f"not valid JSON: {error.msg}")) from None
    except (RecursionError, ValueError) as error:
        raise InputError(Problem(source.name, f"not usable JSON: {error}")) from None
    if repeated:
        raise InputError(
            [Problem(where_of(source, key, -1), f"{key} is given twice") for key in repeated]
        )
    return data


def where_of(source: Source, key: str, which: int = 0) -> str:
    """Name the line of a key: the first place it stands at, or with -1 the last."""
    found = [m.start() for m in re.finditer(rf'"{re.escape(key)}"\s*:', source.text)]
    return source.at(source.text.count("\n", 0, found[which]) + 1) if found else source.name
