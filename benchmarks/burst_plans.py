"""Burst-parallel plans: validation, speed-ups, bounds and search times, as documented.

    python benchmarks/burst_plans.py [--collectives FILE] [--large]

Everything is computed from the shipped profiles. ``--large`` also plans 1,024 GPUs with collectives
simulated on 128 DGX A100 (minutes the first time; FILE keeps them).
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from time import perf_counter

import numpy as np

from explorer.burst.baseline_plans import baselines
from explorer.burst.collective_times import CollectiveTimes
from explorer.burst.pareto import pareto_front
from explorer.burst.planner import Planner
from explorer.burst.request import PlanRequest, prepare
from explorer.burst.series_parallel import Block, Chain
from explorer.topologies.load import load_topology

WRN_MS = {1: 24.73, 2: 27.84, 4: 32.49, 6: 39.02, 8: 43.01, 16: 64.20, 32: 110.12}
LIMITS = (1.5, 2.0, 3.0, 5.0, math.inf)
FAILED: list[str] = []


def planner(
    profile: str, batch: int, gpus: int = 8, times: CollectiveTimes | None = None, **more: object
) -> Planner:
    request = PlanRequest(profile, gpus, batch, **more)  # type: ignore[arg-type]
    return prepare(request, times).planner


def check(what: str, fine: bool) -> str:
    if not fine:
        FAILED.append(what)
    return "ok" if fine else "MISSED"


def validation() -> None:
    print("\nData parallel on 8 A100 against the authors' measurements (flat 266 GB/s, 40 us)")
    print("network    samples/GPU  measured ms  planned ms    error  step_us")
    for samples, measured in WRN_MS.items():
        plan = planner("wrn101_2", 8 * samples).data_parallel(8)
        error = plan.iteration_us / 1e3 / measured - 1
        state = check(f"WRN {samples}", abs(error) <= 0.02)
        print(
            f"wrn101_2   {samples:11d}  {measured:11.2f}  {plan.iteration_us / 1e3:10.2f}"
            f"  {error:+7.1%}  {plan.step_us:g} {state}"
        )
    plan = planner("vgg16", 32).data_parallel(8)
    error = plan.iteration_us / 1e3 / 13.57 - 1
    state = check("VGG 32", abs(error) <= 0.03)
    print(
        f"vgg16      {4:11d}  {13.57:11.2f}  {plan.iteration_us / 1e3:10.2f}  {error:+7.1%}"
        f"  0 (unknown) {state}"
    )


def speedups() -> None:
    print("\nPlan alone on 8 GPUs: speed-up over data parallel on 8 / GPU-time amplification")
    heads = "".join(f"  limit {limit:<8g}" for limit in LIMITS)
    print(f"network, batch     network costs   DP8 ms{heads}  half the GPUs (partition)")
    machines = (("flat 40 us", {}), ("dgx_a100 sim", {"topology": "dgx_a100"}))
    for name, batch in (
        ("vgg16", 16),
        ("vgg16", 32),
        ("wrn101_2", 16),
        ("wrn101_2", 32),
        ("inception_v3", 16),
        ("inception_v3", 32),
    ):
        for label, more in machines:
            cells = ""
            for limit in LIMITS:
                own = planner(name, batch, limit=limit, **more)
                beside = baselines(own)
                plan = own.burst()
                speedup = beside.speedup(plan) or 0.0
                cells += f"  {speedup:.3f} / {plan.amplification:.2f} "
                if (name, batch, limit) == ("vgg16", 16, 5.0):
                    check(f"VGG 16 limit 5, {label}", speedup >= 1.35)
            part = beside.partition
            half = (beside.speedup(part.foreground) or 0.0) if part else 0.0
            plain = beside.plain.iteration_us / 1e3 if beside.plain else 0.0
            title = f"{name} B={batch}"
            print(f"{title:18s} {label:14s} {plain:7.2f}{cells}  {half:.3f}")


def inception_bound(own: Planner) -> float:
    """No plan is faster: free communication, and every layer at its fastest count.

    In a block every branch has the machine to itself and only the slowest counts.
    """
    fastest = np.min(own.tables.compute_us, axis=1)

    def length(chain: Chain) -> float:
        total = 0.0
        for item in chain.items:
            if isinstance(item, Block):
                total += max(length(b) for b in item.branches) + float(fastest[item.join])
            else:
                total += float(fastest[item])
        return total

    return length(own.chain) + own.step_us


def inception() -> None:
    print("\nInception-v3, batch 16 on 8 GPUs: branches side by side")
    print("network costs          DP8 ms  plan ms  speed-up  bound ms  layers away  serial-only ms")
    for label, more in (
        ("flat 266 GB/s, 240 us", {"latency_us": 240.0}),
        ("flat 266 GB/s, 40 us", {}),
        ("dgx_a100 simulated", {"topology": "dgx_a100"}),
    ):
        own = planner("inception_v3", 16, **more)
        plan, plain = own.burst(), own.data_parallel(8)
        serial = serial_only(own)
        away = sum(1 for layer in plan.layers if layer.first_gpu)
        gain = plain.iteration_us / plan.iteration_us
        if "240" not in label:
            check(f"Inception 16, {label}", gain > 1)
        print(
            f"{label:22s} {plain.iteration_us / 1e3:6.3f} {plan.iteration_us / 1e3:8.3f}"
            f" {gain:9.3f} {inception_bound(own) / 1e3:9.3f} {away:12d} {serial:15.3f}"
        )


def serial_only(own: Planner) -> float:
    """Best plan in ms when no branch may leave home."""
    from dataclasses import replace

    never = np.full_like(own.tables.network.far_latency_us, np.inf)
    network = replace(own.tables.network, far_latency_us=never)
    tables = replace(own.tables, network=network)
    return Planner(tables, own.step_us).burst().iteration_us / 1e3


def fronts() -> None:
    print("\nPareto fronts on 8 GPUs (flat): points, fastest and leanest speed-up / amplification")
    for name, batch in (("vgg16", 16), ("wrn101_2", 16), ("inception_v3", 16)):
        own = planner(name, batch)
        plain = own.data_parallel(8).iteration_us
        began = perf_counter()
        found = pareto_front(own)
        seconds = perf_counter() - began
        shown = [found[0], found[len(found) // 2], found[-1]]
        cells = ", ".join(f"{plain / p.iteration_us:.2f}/{p.amplification:.2f}" for p in shown)
        print(f"{name:14s} {len(found):3d} points in {seconds:.2f} s: {cells}")


def large(times: CollectiveTimes | None) -> None:
    where = f"simulated on {times.topology.ranks} GPUs" if times else "flat 266 GB/s, 40 us"
    print(f"\n1,024 GPUs, batch 1,024, collectives: {where} (best of 3 searches)")
    print("network        limit  search ms          DP ms   plan ms  speed-up  GPUs  amplification")
    for name, most in (("vgg16", 50.0), ("wrn101_2", 50.0), ("inception_v3", 500.0)):
        for limit in (5.0, math.inf):
            request = PlanRequest(name, 1024, 1024, limit=limit, extrapolate=True)
            runs = []
            for _ in range(3):
                prepared = prepare(request, times)
                began = perf_counter()
                plan = prepared.planner.burst()
                runs.append((perf_counter() - began + prepared.table_seconds) * 1e3)
            plain = prepared.planner.data_parallel(1024).iteration_us
            state = check(f"{name} 1024 search", min(runs) <= most)
            print(
                f"{name:14s} {limit:5g} {min(runs):6.1f} (<= {most:g}) {state:3} {plain / 1e3:8.2f}"
                f" {plan.iteration_us / 1e3:9.2f} {plain / plan.iteration_us:9.3f}"
                f" {plan.gpus_max:5d} {plan.amplification:9.2f}"
            )


def main() -> int:
    """Print everything; exit 1 when a stated figure is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true", help="simulate 1,024 GPUs")
    parser.add_argument("--collectives", type=Path, help="file of simulated times for --large")
    options = parser.parse_args()
    validation()
    speedups()
    inception()
    fronts()
    large(None)
    if options.large:
        began = perf_counter()
        times = CollectiveTimes(load_topology("dgx_a100", 128), path=options.collectives)
        large(times)
        times.save()
        print(f"{times.simulated} collectives simulated in {perf_counter() - began:.0f} s")
    print("\nmissed: " + ("nothing" if not FAILED else ", ".join(FAILED)))
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
