"""The planner's optimum against enumeration, and its own books."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from burst_oracle import Machine, Oracle
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.burst.cost_tables import CostTables, cost_tables
from explorer.burst.counts import gpu_counts
from explorer.burst.network_times import flat_times
from explorer.burst.packings import packings
from explorer.burst.pareto import pareto_front
from explorer.burst.plan import TrainingPlan
from explorer.burst.planner import Planner
from explorer.burst.profile import Layer, Profile
from explorer.burst.series_parallel import Block, series_parallel
from explorer.errors import InfeasibleError, InputError

CHAIN = ([[], [0], [1], [2]], [0, 1, 2, 3])
DIAMOND = ([[], [0], [0], [1, 2], [3]], [0, ([[1], [2]], 3), 4])
SKIP = ([[], [0], [1], [0, 2]], [0, ([[1, 2], []], 3)])
THREE = ([[], [0], [0], [0], [1, 2, 3]], [0, ([[1], [2], [3]], 4)])
# 1 opens a block inside the upper branch of 0's block.
NESTED = (
    [[], [0], [1], [1], [2, 3], [0], [4, 5]],
    [0, ([[1, ([[2], [3]], 4)], [5]], 6)],
)
GRAPHS = {"chain": CHAIN, "diamond": DIAMOND, "skip": SKIP, "three": THREE, "nested": NESTED}


def layers_of(prev: list[list[int]], draw: st.DrawFn, counts: tuple[int, ...]) -> list[Layer]:
    batches = tuple(sorted(max(counts) * 2 // c for c in counts))
    number = st.integers(0, 400)
    return [
        Layer(
            f"layer{i}",
            "conv",
            tuple(before),
            draw(st.sampled_from([0, 10, 3000])),
            draw(st.sampled_from([0, 5, 700])),
            batches,
            tuple(float(draw(number)) for _ in batches),
            tuple(float(draw(number)) for _ in batches),
        )
        for i, before in enumerate(prev)
    ]


@st.composite
def problems(draw: st.DrawFn, graph: str, price: float) -> tuple[list[Layer], Machine, list]:
    prev, tree = GRAPHS[graph]
    gpus = draw(st.sampled_from([2, 4] if graph in ("three", "nested") else [2, 4, 8]))
    if graph == "nested":
        gpus = 3 if gpus == 4 else 2
    counts = tuple(c for c in (1, 2, 4, 8) if c <= gpus)
    layers = layers_of(prev, draw, counts)
    machine = Machine(
        gpus,
        max(counts) * 2,
        counts,
        draw(st.sampled_from([10.0, 1000.0])),
        draw(st.sampled_from([0.0, 1.0, 40.0])),
        draw(st.sampled_from([1.0, 1.5, 2.0, 4.0, math.inf])),
        price,
    )
    return layers, machine, tree


def planner_of(layers: list[Layer], machine: Machine) -> Planner:
    flat = flat_times(machine.counts, machine.batch, machine.bytes_per_us / 1e3, machine.latency_us)
    profile = Profile("drawn", tuple(layers), "test", 0.0)
    return Planner(cost_tables(profile, machine.batch, machine.gpus, flat, limit=machine.limit))


def priced_cost(plan: TrainingPlan, price: float) -> float:
    return (1 - price) * plan.iteration_us + price * plan.gpu_us


@pytest.mark.parametrize("graph", ["chain", "diamond", "skip", "three", "nested"])
@settings(max_examples=25)
@given(data=st.data())
def test_plans_are_optimal(graph: str, data: st.DataObject) -> None:
    layers, machine, tree = data.draw(problems(graph, 0.0))
    expected = Oracle(layers, machine).best(tree)
    planner = planner_of(layers, machine)
    if math.isinf(expected):
        with pytest.raises(InfeasibleError):
            planner.burst()
        return
    plan = planner.burst()
    # The time is laid out from the plan, not taken from the search.
    assert plan.iteration_us == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert plan.gpus_max <= machine.gpus


@settings(max_examples=40)
@given(data=st.data(), price=st.sampled_from([0.05, 0.3, 1.0]))
def test_priced_plans_of_chains_are_optimal(data: st.DataObject, price: float) -> None:
    layers, machine, tree = data.draw(problems("chain", price))
    expected = Oracle(layers, machine).best(tree)
    plan = planner_of(layers, machine).burst(price)
    assert priced_cost(plan, price) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@settings(max_examples=25)
@given(data=st.data(), price=st.sampled_from([0.05, 0.3]))
def test_priced_plans_with_branches_are_possible(data: st.DataObject, price: float) -> None:
    layers, machine, tree = data.draw(problems("diamond", price))
    plan = planner_of(layers, machine).burst(price)
    best = Oracle(layers, machine).best(tree)
    assert priced_cost(plan, price) >= best * (1 - 1e-9) - 1e-9


@settings(max_examples=20)
@given(data=st.data())
def test_the_front_holds_no_dominated_plan_and_the_corners_of_the_hull(
    data: st.DataObject,
) -> None:
    layers, machine, tree = data.draw(problems("chain", 0.0))
    found = pareto_front(planner_of(layers, machine))
    for a, b in pairwise(found):
        assert a.iteration_us < b.iteration_us
        assert a.gpu_us > b.gpu_us
    free = Machine(
        machine.gpus, machine.batch, machine.counts, machine.bytes_per_us, machine.latency_us
    )
    for price in (0.0, 0.1, 0.5):
        best = Oracle(layers, Machine(**{**free.__dict__, "price": price})).best(tree)
        assert min(priced_cost(p, price) for p in found) == pytest.approx(best, abs=1e-6)


@settings(max_examples=20)
@given(data=st.data())
def test_concurrent_layers_share_no_gpu(data: st.DataObject) -> None:
    layers, machine, _ = data.draw(problems("three", 0.0))
    plan = planner_of(layers, Machine(**{**machine.__dict__, "limit": math.inf})).burst()
    spans = [
        (x.start_us, x.start_us + x.reshard_us + x.compute_us + x.sync_us, x) for x in plan.layers
    ]
    for i in (1, 2, 3):
        for j in range(i + 1, 4):
            (a, b, x), (c, d, y) = spans[i], spans[j]
            together = min(b, d) - max(a, c) > 1e-6
            apart = x.first_gpu + x.gpus <= y.first_gpu or y.first_gpu + y.gpus <= x.first_gpu
            assert apart or not together


def test_a_side_branch_moves_when_moving_pays() -> None:
    """Two equal branches of 100 us that do not scale, on two GPUs."""

    def layer(name: str, prev: tuple[int, ...], us: float, elems: int) -> Layer:
        return Layer(name, "conv", prev, 0, elems, (1, 2), (us, us), (0.0, 0.0))

    def plan(elems: int) -> TrainingPlan:
        layers = (
            layer("in", (), 10.0, elems),
            layer("left", (0,), 100.0, elems),
            layer("right", (0,), 100.0, elems),
            layer("out", (1, 2), 10.0, elems),
        )
        network = flat_times((1, 2), 2, 1.0, 5.0)
        return Planner(cost_tables(Profile("x", layers, "", 0.0), 2, 2, network)).burst()

    # Away: 2 (5 + 2 samples x 4 bytes / 1000) us to the other GPU and as much back.
    apart = plan(1)
    assert apart.iteration_us == pytest.approx(10 + 100 + 2 * 2 * (5 + 0.008) + 10)
    assert [x.first_gpu for x in apart.layers] == [0, 0, 1, 0]
    # 2 x 10 kB x 4 bytes per transfer are 80 us each way: one after the other at home is better.
    assert plan(10_000).iteration_us == pytest.approx(220.0)


def test_gpu_time_is_the_sum_of_the_layers() -> None:
    layers = tuple(
        Layer(f"l{i}", "conv", (i - 1,) if i else (), 100, 10, (1, 2), (5.0, 8.0), (5.0, 8.0))
        for i in range(3)
    )
    tables = cost_tables(Profile("x", layers, "", 7.0), 2, 2, flat_times((1, 2), 2, 1.0, 1.0))
    plan = Planner(tables).data_parallel(2)
    # 3 x 10 us compute, 3 x 2 (1/2) 400 bytes / 1000 = 0.4 us sync, 1 us latency, 7 us step.
    assert plan.iteration_us == pytest.approx(30 + 3 * 0.4 + 1 + 7)
    assert plan.gpu_us == pytest.approx(2 * plan.iteration_us)
    assert plan.one_gpu_us == pytest.approx(48 + 7)
    assert plan.amplification == pytest.approx(2 * 39.2 / 55)


def test_the_last_layer_and_joins_are_tested_against_the_limit() -> None:
    """A last layer that gains nothing from GPUs: DeepPool's code never tests it."""

    def tables(limit: float) -> CostTables:
        layers = (
            Layer("a", "conv", (), 0, 1, (1, 2, 4), (10.0, 20.0, 40.0), (0.0,) * 3),
            Layer("b", "conv", (0,), 0, 1, (1, 2, 4), (39.0, 39.5, 40.0), (0.0,) * 3),
        )
        network = flat_times((1, 2, 4), 4, 1.0, 0.1)
        return cost_tables(Profile("x", layers, "", 0.0), 4, 4, network, limit=limit)

    loose, tight = Planner(tables(4.0)).burst(), Planner(tables(1.9)).burst()
    assert [x.gpus for x in loose.layers] == [4, 4]
    assert [x.gpus for x in tight.layers] == [4, 1]
    for x, reference in zip(tight.layers, (40.0, 40.0), strict=True):
        assert x.gpu_us <= 1.9 * reference * (1 + 1e-9)


def test_memory_that_binds_spreads_layers_or_refuses() -> None:
    layers = tuple(
        Layer(f"l{i}", "conv", (i - 1,) if i else (), 0, 1000, (1, 2, 4), (9.0,) * 3, (1.0,) * 3)
        for i in range(4)
    )
    tables = cost_tables(Profile("x", layers, "", 0.0), 4, 4, flat_times((1, 2, 4), 4, 1.0, 1.0))
    # Outputs: 4 samples x 4000 bytes x 4 layers on one GPU.
    assert Planner(tables).burst().memory_bytes == 64_000
    spread = Planner(tables, memory_bytes=40_000).burst()
    assert spread.memory_bytes <= 40_000
    assert any("binds" in text for text in spread.notes)
    with pytest.raises(InfeasibleError, match="needs least takes"):
        Planner(tables, memory_bytes=15_000).burst()


def test_layers_that_run_in_place_keep_their_count() -> None:
    layers = (
        Layer("a", "conv", (), 0, 1, (1, 2), (10.0, 20.0), (0.0, 0.0)),
        Layer("r", "relu", (0,), 0, 1, (1, 2), (50.0, 1.0), (0.0, 0.0)),
    )
    tables = cost_tables(Profile("x", layers, "", 0.0), 2, 2, flat_times((1, 2), 2, 100.0, 0.0))
    plan = Planner(tables).burst()
    assert plan.layers[0].gpus == plan.layers[1].gpus == 1


def test_packings_of_four_branches() -> None:
    found = packings(4, (1, 2, 4, 8), 8, (True,) * 4)
    # Groupings with a home group: S(4,1) + 2 S(4,2) + 3 S(4,3) + 4 S(4,4), times maximal widths.
    assert len({p.groups for p in found}) == 1 + 2 * 7 + 3 * 6 + 4
    for packing in found:
        widths = [2**k for k in packing.widths]
        assert sum(widths) <= 8
        assert all(sum(widths) + w > 8 or w == 8 for w in widths)
    assert len(packings(4, (1, 2), 8, (False,) * 4)) == 1


def test_many_branches_are_packed_in_intervals() -> None:
    found = packings(7, (1, 2), 2, (True,) * 7)
    assert all(sorted(b for g in p.groups for b in g) == list(range(7)) for p in found)


def test_gpu_counts_divide_the_batch() -> None:
    assert gpu_counts(24, 100, "divisors") == (1, 2, 3, 4, 6, 8, 12, 24)
    assert gpu_counts(24, 100) == (1, 2, 4, 8)


def test_graphs_decompose() -> None:
    layers = [
        Layer(f"l{i}", "conv", tuple(p), 0, 0, (1,), (1.0,), (1.0,))
        for i, p in enumerate(NESTED[0])
    ]
    chain = series_parallel("x", layers)
    outer = chain.items[1]
    assert isinstance(outer, Block)
    assert outer.join == 6
    inner = outer.branches[0].items[1]
    assert isinstance(inner, Block)
    assert inner.join == 4


@pytest.mark.parametrize(
    "prev",
    [
        [[], [0], [0], [1, 2], [1], [3, 4]],  # a bridge: 1 feeds both joins
        [[], [0], [0], [1], [1], [2, 3, 4]],  # an inner block without a join of its own
    ],
)
def test_graphs_that_do_not_nest_are_refused(prev: list[list[int]]) -> None:
    layers = [
        Layer(f"l{i}", "conv", tuple(p), 0, 0, (1,), (1.0,), (1.0,)) for i, p in enumerate(prev)
    ]
    with pytest.raises(InputError, match=r"different layers|outer block"):
        series_parallel("x", layers)
