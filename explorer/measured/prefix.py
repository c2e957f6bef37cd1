"""What launchers put before a line: mpirun and srun tags, pod and host names, time stamps."""

from __future__ import annotations

import re

_TIME = re.compile(
    r"\s*\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?:?(?=\s)\s?"
)
_QUOTE = re.compile(r"(?:> ?)+")
_TAGS = (
    re.compile(r"\s*\[(\d+,\d+)\]\s?<std(?:out|err|diag)>:"),  # mpirun -tag-output
    re.compile(r"\s*\[(pod/[^\]\s]{1,200})\](?=\s)"),  # kubectl logs --prefix
    re.compile(r"\s*\[((?:rank)?\s?\d{1,6})\]:"),  # torchrun, hydra -prepend-rank
    re.compile(r"\s*(\d{1,6}):(?=\s|$)"),  # srun --label
    re.compile(r"\s*([A-Za-z][\w.-]{0,62}) +\|(?=\s)"),  # docker compose
    # pdsh and friends; only before something a table line may start with
    re.compile(r"\s*([A-Za-z][\w.-]{0,62}):(?=\s+(?:#|\d+\s+\d+\s+[a-z]|[\w.-]+:\d+:\d+ \[))"),
)


def strip_prefix(line: str) -> tuple[str, str]:
    """Split a line into the tag of the process that wrote it and what it wrote.

    Examples
    --------
    >>> strip_prefix("[1,0]<stdout>:# Using devices")
    ('1,0', '# Using devices')
    >>> strip_prefix("0:      8   2  float")
    ('0', '      8   2  float')
    >>> strip_prefix("     8   2  float")
    ('', '     8   2  float')
    """
    tags: list[str] = []
    match = _QUOTE.match(line)
    if match:
        line = line[match.end() :]
    for _ in range(4):
        stamp = _TIME.match(line)
        if stamp:
            line = line[stamp.end() :]
        tag = next((m for pattern in _TAGS if (m := pattern.match(line))), None)
        if tag is None:
            if stamp is None:
                break
            continue
        tags.append(tag.group(1))
        line = line[tag.end() :]
    return "/".join(tags), line
