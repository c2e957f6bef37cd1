"""Plans of synthesis: planned makespan, proven bound and seconds of every stage.

    python -m benchmarks.synth_plans [--only TEXT …] [--seed N]

In-process and without lowering, unlike benchmarks/quality.py. Profile units (the 1KB file is x100)
where no size is given, else us.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

from explorer.core.collective import Collective, sizing
from explorer.core.costs import CostModel
from explorer.evaluate.machine import load_machine, sketched
from explorer.sketches.registry import load_sketch
from explorer.synth.registry import synthesize
from explorer.topologies.registry import systems_folder

NDV2, DGX2, DGX2_1KB = (f"taccl_{name}.json" for name in ("ndv2_1MB", "dgx2_1MB", "dgx2_1KB"))


@dataclass(frozen=True)
class Case:
    """One synthesis."""

    topology: str
    nodes: int | None
    collective: str
    sketch: str | None = None
    chunks: int | None = None
    size_bytes: int | None = None
    cost_model: str = "exclusive"

    @property
    def name(self) -> str:
        """Label of the case."""
        parts = (self.topology.removesuffix(".json"), f"x{self.nodes}" if self.nodes else "")
        rest = (self.collective, self.sketch or "", f"c{self.chunks}" if self.chunks else "")
        model = "" if self.cost_model == "exclusive" else self.cost_model
        return " ".join(p for p in (*parts, *rest, model) if p)


CASES = (
    Case(NDV2, 1, "allgather", "ndv2-sk-1"),
    Case(NDV2, 1, "allgather", "ndv2-sk-1", 6),
    *(Case(NDV2, nodes, "allgather", "ndv2-sk-1") for nodes in (2, 4, 6, 8, 10)),
    Case(NDV2, 2, "alltoall", "ndv2-sk-1"),
    Case(NDV2, 2, "reducescatter", "ndv2-sk-1"),
    Case(NDV2, 2, "allreduce", "ndv2-sk-1"),
    Case(NDV2, 2, "broadcast", "ndv2-sk-1", 4),
    Case("taccl_ndv2_32KB.json", 2, "allgather", "ndv2-sk-1"),
    Case("taccl_ndv2_1KB.json", 2, "allgather", "ndv2-sk-1"),
    Case(DGX2, 2, "allgather", "dgx2-sk-1"),
    Case(DGX2, 2, "allreduce", "dgx2-sk-1"),
    Case(DGX2_1KB, 2, "allgather", "dgx2-sk-2"),
    Case(DGX2_1KB, 2, "alltoall", "dgx2-sk-2"),
    Case("ndv2", 1, "allgather", None, 6, 1 << 20),
    Case("ndv2", 2, "allgather", None, 1, 1 << 20),
    Case("dgx_a100", 1, "allgather", None, 1, 1 << 20),
    Case("dgx_a100", 2, "allgather", None, 4, 10**9),
    Case("dgx_h100", 2, "allgather", None, 2, 10**9),
    Case("mi250", 1, "allgather", None, 8, 10**9),
    Case("ring:5", None, "allgather", None, 1, 1 << 20),
    Case("torus:4x4", None, "allgather", None, 1, 1 << 20),
    Case("torus:4x4", None, "alltoall", None, 1, 1 << 20),
    Case("teccl_ndv2_n2", None, "allgather", None, 1, 10**6),
    Case("teccl_dgx2_n2", None, "allgather", None, 4, 10**9, "pipelined"),
)


def run(case: Case, seed: int) -> None:
    """Synthesize and print one block."""
    shipped = systems_folder() / case.topology
    spec = str(shipped) if shipped.suffix == ".json" else case.topology
    machine = load_machine(spec, case.nodes, sized=case.size_bytes is not None)
    sketch = load_sketch(case.sketch, machine.topology) if case.sketch else None
    chunks = case.chunks or (sketch.chunks_per_rank if sketch else None) or 1
    collective = Collective(case.collective, machine.topology.ranks, chunks)
    started = time.perf_counter()
    found = synthesize(
        sketched(machine, sketch).graph,
        collective,
        sizing(collective, case.size_bytes),
        CostModel(case.cost_model),
        sketch,
        seed=seed,
    )
    seconds = time.perf_counter() - started
    bounds = [s.bound for s in found.stages if s.bound is not None and "/" not in s.name]
    plan = found.schedule.makespan_us
    bound = max(bounds, default=0.0)
    others = " ".join(f"{s.makespan_us:.6g}" for s in found.candidates[1:])
    print(
        f"{case.name:45} plan {plan:12.6g}  bound {bound:12.6g} ({bound / plan:6.1%})"
        f"  {seconds:6.2f} s  others: {others}"
    )
    for stage in found.stages:
        objective = "" if stage.objective is None else f"{stage.objective:.6g}"
        print(
            f"    {stage.name:30} {stage.status[:42]:42} {objective:>10}"
            f" {stage.nodes:6} nodes {stage.seconds:7.2f} s"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], help="parts of names")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for case in CASES:
        if not args.only or any(text in case.name for text in args.only):
            run(case, args.seed)


if __name__ == "__main__":
    main()
