"""Small graphs, an exhaustive search, and known machines for the tests of synthesis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from explorer.core.collective import Collective, Sizing, sizing
from explorer.core.costs import CostModel
from explorer.core.rank_graph import RankGraph
from explorer.core.sketch import Sketch
from explorer.evaluate.machine import load_machine, sketched
from explorer.sketches.registry import load_sketch
from explorer.synth.registry import synthesize
from explorer.synth.result import SynthesisResult
from explorer.verify.schedule import verify_schedule

DATA = Path(__file__).parent / "data"
CHUNK = Sizing(None, None, 1 << 20)
"""One MiB per chunk: costs per MiB are costs per chunk."""

EXCLUSIVE, PIPELINED = CostModel.EXCLUSIVE, CostModel.PIPELINED

Edge = tuple[int, int, float, float]
"""Src, dst, alpha, beta."""


def graph_of(
    ranks: int,
    edges: Sequence[Edge],
    *,
    ports: bool = False,
    nodes: Sequence[int] | None = None,
) -> RankGraph:
    """Graph with a resource per edge, or with an egress and an ingress port per rank."""
    edges = sorted(edges)
    src, dst = ([e[i] for e in edges] for i in (0, 1))
    if ports:
        names = [f"out{r}" for r in range(ranks)] + [f"in{r}" for r in range(ranks)]
        held = [[a, ranks + b] for a, b in zip(src, dst, strict=True)]
    else:
        names = [f"{a}->{b}" for a, b in zip(src, dst, strict=True)]
        held = [[i] for i in range(len(edges))]
    return RankGraph(
        ranks,
        np.array(nodes or [0] * ranks, np.int32),
        np.array(src, np.int32),
        np.array(dst, np.int32),
        np.array([e[2] for e in edges], float),
        np.array([e[3] for e in edges], float),
        np.cumsum([0] + [len(h) for h in held]).astype(np.int64),
        np.array([r for h in held for r in h], np.int32),
        tuple(names),
    )


def ring(ranks: int, alpha: float = 0.0, beta: float = 1.0) -> RankGraph:
    """Ring in both directions."""
    pairs = {(r, (r + d) % ranks) for r in range(ranks) for d in (1, ranks - 1)}
    return graph_of(ranks, [(a, b, alpha, beta) for a, b in sorted(pairs)])


def switch(ranks: int, alpha: float = 0.0, beta: float = 1.0) -> RankGraph:
    """All pairs, over one port per rank and direction."""
    pairs = [(a, b, alpha, beta) for a in range(ranks) for b in range(ranks) if a != b]
    return graph_of(ranks, pairs, ports=True)


def plan(
    graph: RankGraph,
    name: str,
    *,
    chunks: int = 1,
    root: int = 0,
    cost_model: CostModel = EXCLUSIVE,
    sketch: Sketch | None = None,
    amount: Sizing = CHUNK,
    **options: object,
) -> SynthesisResult:
    """Synthesize, and verify every candidate."""
    collective = Collective(name, graph.ranks, chunks, root)
    found = synthesize(graph, collective, amount, cost_model, sketch, **options)  # type: ignore[arg-type]
    for schedule in found.candidates:
        assert verify_schedule(schedule, graph) == []
    times = [schedule.makespan_us for schedule in found.candidates]
    assert times == sorted(times)
    return found


@dataclass(frozen=True)
class Known:
    """A machine and sketch of TACCL's, with the time a synthesis must not exceed."""

    topology: str
    nodes: int
    sketch: Path | Sketch
    collective: str
    at_most: float

    def solve(self) -> SynthesisResult:
        machine = load_machine(str(DATA / "topologies" / self.topology), self.nodes, sized=False)
        sketch = self.sketch
        if isinstance(sketch, Path):
            sketch = load_sketch(str(sketch), machine.topology)
        return plan(
            sketched(machine, sketch).graph,
            self.collective,
            chunks=sketch.chunks_per_rank or 1,
            sketch=sketch,
            amount=sizing(Collective(self.collective, machine.topology.ranks), None),
        )


def least_makespan(
    graph: RankGraph, collective: Collective, cost_model: CostModel, limit: float
) -> float:
    """Least makespan by trying all orders of messages, each started as early as it can.

    Messages start in the order (start, edge): any schedule can be had that way. AlltoAll may pass
    chunks over at most two ranks that do not need them.
    """
    chunk_ids = range(collective.chunk_count)
    have = {(c, s): 0.0 for c in chunk_ids for s in collective.sources(c)}
    needs = {(c, d) for c in chunk_ids for d in collective.destinations(c)} - set(have)
    held = [graph.resources_of(e).tolist() for e in range(graph.edges)]
    transfer = graph.beta_us_per_mib
    best = limit

    def extend(
        have: dict[tuple[int, int], float],
        free: dict[int, float],
        last: tuple[float, int],
        end: float,
        needs: frozenset[tuple[int, int]],
        spare: int,
    ) -> None:
        nonlocal best
        if not needs:
            best = min(best, end)
            return
        for e in range(graph.edges):
            u, v = int(graph.src[e]), int(graph.dst[e])
            waiting = [
                c
                for c in chunk_ids
                if (c, u) in have
                and (c, v) not in have
                and ((c, v) in needs or (spare and any(c == other for other, _ in needs)))
            ]
            most = len(waiting) if graph.alpha_us[e] > 0 else min(1, len(waiting))
            for group in (g for k in range(1, most + 1) for g in combinations(waiting, k)):
                start = max(
                    [free.get(r, 0.0) for r in held[e]] + [have[c, u] for c in group], default=0.0
                )
                passing = sum((c, v) not in needs for c in group)
                arrival = start + float(graph.alpha_us[e]) + len(group) * float(transfer[e])
                if (start, e) <= last or passing > spare or arrival >= best - 1e-9:
                    continue
                release = arrival if cost_model is EXCLUSIVE else arrival - float(graph.alpha_us[e])
                extend(
                    have | {(c, v): arrival for c in group},
                    free | dict.fromkeys(held[e], release),
                    (start, e),
                    max(end, arrival),
                    needs - {(c, v) for c in group},
                    spare - passing,
                )

    spare = 2 if collective.name == "alltoall" else 0
    extend(have, {}, (-1.0, 0), 0.0, frozenset(needs), spare)
    return best
