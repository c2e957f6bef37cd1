"""Read every topology file of a corpus: outcome, reason and time of each.

Run as ``python benchmarks/read_corpus.py [FOLDER…]``; without folders it looks for
``../shared/corpus`` beside the checkout and says so if that is absent.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from explorer.errors import InputError
from explorer.topologies.combine import combine
from explorer.topologies.source import Source
from explorer.topologies.topology_write import topology_yaml
from explorer.topologies.topology_yaml import read_topology_yaml

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus"
FOLDERS = ("smi_topo", "nccl_topo", "other")


@dataclass(frozen=True)
class Outcome:
    """What became of a file: ``read`` with its size, or ``refused`` with the first reason."""

    file: Path
    verdict: str
    detail: str
    seconds: float


def outcome(path: Path) -> Outcome:
    """Read a file; one that is read must also survive our own YAML unchanged."""
    start = time.perf_counter()
    try:
        topology = combine([str(path)])
    except InputError as error:
        seconds = time.perf_counter() - start
        first = error.problems[0]
        return Outcome(path, "refused", f"{_short(first.where)}: {first.message}", seconds)
    seconds = time.perf_counter() - start
    if not all(math.isfinite(k.alpha_us + k.beta_us_per_mib) for k in topology.links):
        return Outcome(path, "broken", "a cost is not finite", seconds)
    again = read_topology_yaml(Source(path.name, topology_yaml(topology)), None, True)
    if (again.devices, again.links) != (topology.devices, topology.links):
        return Outcome(path, "broken", "our YAML does not read back equal", seconds)
    detail = f"{topology.ranks} ranks, {topology.nodes} nodes, {len(topology.links)} links"
    return Outcome(path, "read", detail, seconds)


def _short(where: str) -> str:
    return where.rpartition("/")[2]


def corpus_files(folders: list[Path]) -> Iterator[Path]:
    """Files of the folders, without their indexes."""
    for folder in folders:
        yield from (p for p in sorted(folder.iterdir()) if p.is_file() and p.name != "INDEX.tsv")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path)
    folders = parser.parse_args().folders or [CORPUS / name for name in FOLDERS]
    absent = [folder for folder in folders if not folder.is_dir()]
    if absent:
        print(f"skipped: no corpus at {', '.join(map(str, absent))}")
        return 0
    outcomes = [outcome(path) for path in corpus_files(folders)]
    for item in outcomes:
        name = f"{item.file.parent.name}/{item.file.name}"
        print(f"{name:76.76} {item.verdict:8} {1e3 * item.seconds:8.1f} ms  {item.detail:.110}")
    counts = {
        verdict: sum(o.verdict == verdict for o in outcomes) for verdict in ("read", "refused")
    }
    worst = max(outcomes, key=lambda o: o.seconds)
    print(
        f"{len(outcomes)} files: {counts['read']} read, {counts['refused']} refused,"
        f" {len(outcomes) - sum(counts.values())} broken; slowest {worst.seconds:.3f} s"
        f" ({worst.file.name})"
    )
    return int(sum(counts.values()) < len(outcomes))


if __name__ == "__main__":
    sys.exit(main())
