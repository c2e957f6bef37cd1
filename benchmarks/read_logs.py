"""Read logs and print what became of each: format, rows, problems, seconds.

python benchmarks/read_logs.py FILE_OR_FOLDER …
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from explorer.errors import InputError
from explorer.formats.tuner_table import (
    check_tuner_table,
    looks_like_tuner_table,
    read_tuner_table,
)
from explorer.measured.readers import read_log

SKIPPED = ("INDEX.tsv", "README.md")


def outcome(path: Path) -> tuple[str, int, int, str]:
    """Read one file: format, lines with a row, problems, first thing to say."""
    if looks_like_tuner_table(path):
        table, unread = read_tuner_table(path)
        findings = [*unread, *check_tuner_table(table)[0]]
        return table.kind, len(table.entries), len(findings), str(findings[0]) if findings else ""
    try:
        reading = read_log(path)
    except InputError as error:
        return "refused", 0, len(error.problems), error.problems[0].message
    lines = {row.line for row in reading.rows}
    odd = [r for r in reading.remarks if r.kind in ("refused", "failure", "conflict")]
    first = (odd or [*reading.remarks])[:1]
    said = f"{first[0].line}: {first[0].message}" if first else ""
    return reading.format, len(lines), len(reading.remarks), said


def main(names: list[str]) -> int:
    """Print the table; 1 if a file took over 5 s."""
    paths: list[Path] = []
    for name in names:
        path = Path(name)
        paths += sorted(p for p in path.iterdir() if p.is_file()) if path.is_dir() else [path]
    slowest = 0.0
    print(f"{'file':46} {'format':22} {'rows':>5} {'said':>5} {'seconds':>8}  first")
    for path in paths:
        if path.name in SKIPPED:
            continue
        started = time.perf_counter()
        kind, rows, said, first = outcome(path)
        seconds = time.perf_counter() - started
        slowest = max(slowest, seconds)
        print(f"{path.name[:46]:46} {kind:22} {rows:5d} {said:5d} {seconds:8.3f}  {first[:90]}")
    print(f"{len(paths)} files, slowest {slowest:.3f} s")
    return int(slowest > 5)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
