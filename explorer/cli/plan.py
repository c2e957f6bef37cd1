"""``explorer plan``: how many GPUs each layer of a network should have."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from explorer.cli import options
from explorer.cli.output import note, number, print_json, print_table
from explorer.errors import InfeasibleError, InputError, Problem, nearest

if TYPE_CHECKING:
    from explorer.burst.baseline_plans import Baselines
    from explorer.burst.plan import TrainingPlan
    from explorer.burst.request import Prepared

NAME = "plan"
HELP = "Burst-parallel training plan: a number of GPUs for every layer, beside its baselines."
EXAMPLE = "explorer plan --profile vgg16 --gpus 8 --batch 16 --limit 5"
MODES = ("burst", "dp")


def command(
    scenario: Annotated[
        Path | None,
        typer.Argument(metavar="[SCENARIO]", help="Training scenario; options go before it."),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option("--profile", "-p", help="Shipped profile (vgg16, wrn101_2, …) or a file."),
    ] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", "-g", help="GPUs of the machine.")] = None,
    batch: Annotated[int | None, typer.Option("--batch", "-b", help="Global batch.")] = None,
    limit: Annotated[
        float | None,
        typer.Option("--limit", help="GPU time of a layer over its time on one GPU, at most."),
    ] = None,
    mode: Annotated[
        str, typer.Option("--mode", help="burst, or dp: data parallel on most GPUs.")
    ] = "burst",
    price: Annotated[
        float | None,
        typer.Option("--price", help="lambda: minimise time x (1 + lambda (g-1)) instead of time."),
    ] = None,
    counts: Annotated[
        str | None, typer.Option("--counts", help="GPU counts: powers (of two) or divisors.")
    ] = None,
    topology: Annotated[
        str | None,
        typer.Option("--topology", "-t", help="Simulate collectives on this machine."),
    ] = None,
    nodes: options.Nodes = None,
    bandwidth: Annotated[
        str | None, typer.Option("--bandwidth", help="Without --topology: 266GB/s per GPU.")
    ] = None,
    latency: Annotated[
        str | None, typer.Option("--latency", help="Without --topology: 40us per transfer.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option("--memory", help="Memory of a GPU; default 40GB.")
    ] = None,
    step_us: Annotated[
        float | None, typer.Option("--step-us", help="Loss and optimiser; default the profile's.")
    ] = None,
    exempt_us: Annotated[
        float | None,
        typer.Option("--exempt-us", help="Exempt shorter layers from the limit (DeepPool: 300)."),
    ] = None,
    extrapolate: Annotated[
        bool, typer.Option("--extrapolate", help="Allow batches above the measured ones.")
    ] = False,
    cost_model: Annotated[
        str | None, typer.Option("--cost-model", help="Of simulated collectives.")
    ] = None,
    collectives: Annotated[
        Path | None, typer.Option("--collectives", help="File that keeps simulated times.")
    ] = None,
    pareto: Annotated[
        bool, typer.Option("--pareto", help="Also the front of iteration time and GPU time.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Plan."""
    from explorer.burst.baseline_plans import baselines
    from explorer.burst.pareto import pareto_front
    from explorer.burst.request import PlanRequest, prepare
    from explorer.burst.training_scenario import load_training
    from explorer.units import parse_rate_gbs, parse_size, parse_time_us

    if mode not in MODES:
        raise InputError(Problem("--mode", f"got {mode!r}, {nearest(mode, MODES)}"))
    asked: dict[str, Any] = {} if scenario is None else load_training(scenario)
    given = {
        "profile": profile,
        "gpus": gpus,
        "batch": batch,
        "limit": limit,
        "price": price,
        "counts": counts,
        "topology": topology,
        "nodes": nodes,
        "bandwidth_gbs": None if bandwidth is None else parse_rate_gbs(bandwidth, "--bandwidth"),
        "latency_us": None if latency is None else parse_time_us(latency, "--latency"),
        "memory_bytes": None if memory is None else float(parse_size(memory, "--memory")),
        "step_us": step_us,
        "exempt_us": exempt_us,
        "extrapolate": extrapolate or None,
        "cost_model": cost_model,
        "collectives": collectives,
    }
    asked |= {key: value for key, value in given.items() if value is not None}
    if "profile" not in asked:
        raise InputError(Problem("--profile", "is needed, or a scenario that names one"))
    request = PlanRequest(**{f.name: asked[f.name] for f in fields(PlanRequest) if f.name in asked})
    prepared = prepare(request)
    beside = baselines(prepared.planner)
    plan, seconds = _search(prepared, beside, mode, request.price)
    front = pareto_front(prepared.planner) if pareto else []
    if as_json:
        print_json(_document(plan, seconds, prepared, beside, front))
        return
    _print_plan(plan, seconds, prepared)
    _print_baselines(plan, beside, prepared)
    if front:
        _print_front(front, beside)
    for text in plan.notes:
        note(f"note: {text}")


def _search(
    prepared: Prepared, beside: Baselines, mode: str, price: float
) -> tuple[TrainingPlan, float]:
    from time import perf_counter

    began = perf_counter()
    if mode == "dp":
        counts = prepared.planner.data_parallel_counts() or prepared.planner.tables.counts[-1:]
        plan = prepared.planner.data_parallel(counts[-1])
        if not prepared.planner.fits(plan):
            raise InfeasibleError(
                f"memory: data parallel on {plan.gpus_max} GPUs needs"
                f" {plan.memory_bytes / 1e9:.2f} GB per GPU (training state and outputs)"
            )
    else:
        plan = prepared.planner.burst(price)
    return plan, perf_counter() - began + prepared.table_seconds


def _document(
    plan: TrainingPlan,
    seconds: float,
    prepared: Prepared,
    beside: Baselines,
    front: list[TrainingPlan],
) -> dict[str, object]:
    document = plan.row()
    document["speedup_over_dp"] = beside.speedup(plan)
    fastest = beside.fastest
    document["fastest_dp_gpus"] = None if fastest is None else fastest.gpus_max
    document["search_seconds"] = seconds
    document["simulated_collectives"] = prepared.simulated
    document["simulation_seconds"] = prepared.simulation_seconds
    document["baselines"] = {
        "data_parallel": [_brief(p) for p in beside.data_parallel],
        "partition": None
        if beside.partition is None
        else _brief(beside.partition.foreground)
        | {"background_gpus": beside.partition.background_gpus},
    }
    if front:
        document["pareto"] = [_brief(p) for p in front]
    document["notes"] = list(plan.notes)
    return document


def _brief(plan: TrainingPlan) -> dict[str, object]:
    return {
        "gpus": plan.gpus_max,
        "limit": plan.limit,
        "price": plan.price,
        "iteration_us": plan.iteration_us,
        "gpu_us": plan.gpu_us,
        "amplification": plan.amplification,
        "memory_bytes": plan.memory_bytes,
        "img_s": plan.images_per_s,
    }


def _print_plan(plan: TrainingPlan, seconds: float, prepared: Prepared) -> None:
    cells = [
        [
            layer.name,
            _gpus(layer.first_gpu, layer.gpus),
            number(layer.gpus),
            number(layer.compute_us),
            number(layer.sync_us),
            number(layer.reshard_us),
        ]
        for layer in plan.layers
    ]
    columns = [("layer", "left"), ("on gpus", "left"), ("gpus", "right")]
    columns += [(head, "right") for head in ("compute us", "sync us", "reshard us")]
    title = f"{plan.model}, batch {plan.batch}, {plan.gpus} GPUs, {plan.mode}, {plan.network}"
    print_table(title, columns, cells)
    step = f"{number(plan.step_us)} us of it step" + ("" if plan.step_known else " (unknown)")
    print(f"iteration      {number(plan.iteration_us)} us, {step}")
    print(f"gpu time       {number(plan.gpu_us)} us, {number(plan.amplification)} x one GPU")
    print(f"gpus           {plan.gpus_max} of {plan.gpus}")
    print(f"memory         {number(plan.memory_bytes / 1e9)} GB on the fullest GPU")
    extra = ""
    if prepared.simulated:
        extra = (
            f"; {prepared.simulated} collectives simulated in"
            f" {prepared.simulation_seconds:.1f} s (--collectives FILE keeps them)"
        )
    print(f"search         {seconds * 1e3:.1f} ms{extra}")


def _gpus(first: int, gpus: int) -> str:
    return str(first) if gpus == 1 else f"{first}-{first + gpus - 1}"


def _print_baselines(plan: TrainingPlan, beside: Baselines, prepared: Prepared) -> None:
    rows = [[f"this plan ({plan.mode})", *_cells(plan, beside)]]
    for other in beside.data_parallel:
        fits = "" if prepared.planner.fits(other) else ", does not fit"
        rows.append([f"data parallel on {other.gpus_max}{fits}", *_cells(other, beside)])
    if beside.partition is not None:
        free = beside.partition.background_gpus
        rows.append([f"partition, {free} GPUs free", *_cells(beside.partition.foreground, beside)])
    heads = ("iteration us", "speed-up", "gpu us", "amplification", "img/s")
    plain = beside.plain
    print_table(
        "baselines: on no GPU count has the profile all times for data parallel"
        if plain is None
        else f"against data parallel on {plain.gpus_max}",
        [("plan", "left"), *((head, "right") for head in heads)],
        rows,
    )


def _cells(plan: TrainingPlan, beside: Baselines) -> list[str]:
    return [
        number(plan.iteration_us),
        number(beside.speedup(plan)),
        number(plan.gpu_us),
        number(plan.amplification),
        number(plan.images_per_s),
    ]


def _print_front(front: list[TrainingPlan], beside: Baselines) -> None:
    rows = [[_knob(p), *_cells(p, beside)] for p in front]
    heads = ("iteration us", "speed-up", "gpu us", "amplification", "img/s")
    columns = [("knob", "left"), *((head, "right") for head in heads)]
    print_table("Pareto front of iteration time and GPU time", columns, rows)


def _knob(plan: TrainingPlan) -> str:
    if plan.price:
        return f"price {plan.price:.4g}"
    return "no limit" if plan.limit is None else f"limit {plan.limit:g}"
