"""Quality of synthesis: runs benchmarks/instances.yaml and prints plan, program, bounds, seconds.

    python benchmarks/quality.py [--only ID …] [--twice] [--csv FILE]

Each instance is a whole ``explorer`` process; ``--twice`` runs it again and compares the XML bytes.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

HERE = Path(__file__).resolve().parent
COLUMNS = ["id", "plan", "program", "bound", "sketch_bound", "target", "peer", "seconds"]
COLUMNS += ["allowed", "ok", "won_by", "above_bound", "repeat"]


def run(command: str, xml: Path) -> tuple[dict[str, Any], float]:
    """Run one instance; returns its JSON and the seconds of the whole process."""
    args = [sys.executable, "-m", "explorer", *command.split(), "--json", "-o", str(xml)]
    started = time.perf_counter()
    done = subprocess.run(args, capture_output=True, text=True, cwd=HERE.parent, check=False)
    seconds = time.perf_counter() - started
    if done.returncode:
        return {"error": done.stderr.strip()}, seconds
    return json.loads(done.stdout), seconds


def measure(instance: dict[str, Any], folder: Path, twice: bool) -> dict[str, Any]:
    """One row of the table."""
    xml = folder / f"{instance['id']}.xml"
    row, seconds = run(instance["command"], xml)
    target = instance["target"]
    program = row.get("program_time_us")
    repeat = ""
    if twice and xml.exists():
        again = folder / f"{instance['id']}.again.xml"
        run(instance["command"], again)
        repeat = "same bytes" if xml.read_bytes() == again.read_bytes() else "DIFFERS"
    limit = target["seconds"]
    good = program is not None and program <= target["time"] * (1 + 1e-9)
    return {
        "id": instance["id"],
        "plan": row.get("time_us"),
        "program": program,
        "bound": row.get("bound_us"),
        "sketch_bound": row.get("sketch_bound_us"),
        "target": target["time"],
        "peer": (instance.get("peer") or {}).get("plan"),
        "seconds": seconds,
        "allowed": limit,
        "ok": row.get("error") or ("yes" if good and (limit is None or seconds <= limit) else "NO"),
        "won_by": winner(row),
        "above_bound": f"{program / row['sketch_bound_us'] - 1:.2%}" if program else "",
        "repeat": repeat,
    }


def winner(row: dict[str, Any]) -> str:
    """Stage that first reached the plan's time: a heuristic, or a MILP."""
    plan = row.get("time_us")
    reached = [
        stage["name"]
        for stage in row.get("stages", ())
        if plan
        and stage["objective"] is not None
        and stage["objective"] <= plan * (1 + 1e-9)
        and not stage["name"].endswith("routing")  # its objective is a relaxation, no schedule
    ]
    return reached[0] if reached else "composition" if row.get("stages") else ""


def text(value: object) -> str:
    """Cell of the printed table."""
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def main() -> int:
    """Run and print; exit 1 when any instance misses its target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", help="ids to run")
    parser.add_argument("--twice", action="store_true", help="compare the bytes of two runs")
    parser.add_argument("--csv", type=Path, help="also write the table here")
    options = parser.parse_args()
    instances = YAML(typ="safe").load(HERE / "instances.yaml")
    chosen = [i for i in instances if not options.only or i["id"] in options.only]
    rows = []
    print(" | ".join(COLUMNS))
    with tempfile.TemporaryDirectory() as folder:
        for instance in chosen:
            row = measure(instance, Path(folder), options.twice)
            rows.append(row)
            print(" | ".join(text(row[c]) for c in COLUMNS), flush=True)
    if options.csv:
        with options.csv.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows({c: text(row[c]) for c in COLUMNS} for row in rows)
    return 0 if all(row["ok"] == "yes" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
