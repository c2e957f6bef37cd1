"""Parts of synthesis: the kernel, exact times, routes, models against known schedules."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.core.collective import Collective
from explorer.core.costs import CostModel
from explorer.core.rank_graph import RankGraph
from explorer.synth.arcs import candidate_arcs
from explorer.synth.instance import Instance, spreading_instance
from explorer.synth.least_time import least_makespan as lower_bound
from explorer.synth.list_scheduling import _pop, _push, _sort
from explorer.synth.ordering import Search, standard_rules
from explorer.synth.paths import INFINITE, distances
from explorer.synth.result import Limits
from explorer.synth.routes import free_routes, guided_routes, shortest_routes, tree_routes
from explorer.synth.routing import RoutingModel, solve_routing
from explorer.synth.rules import ALL, Rule, portfolio
from explorer.synth.scheduler import Scheduler
from explorer.synth.scheduling import solve_scheduling
from explorer.synth.stepped import common_unit, solve_stepped
from explorer.synth.timing import Messages, exact_times, schedule_of
from explorer.synth.trees import arrival_times, grown_trees
from explorer.verify.schedule import verify_schedule
from tests.synth_instances import CHUNK, EXCLUSIVE, PIPELINED, graph_of, ring, switch


def instance_of(
    graph: RankGraph, name: str = "allgather", chunks: int = 1, model: CostModel = EXCLUSIVE
) -> Instance:
    return spreading_instance(graph, Collective(name, graph.ranks, chunks), CHUNK, model, None)


def quiet(_text: str) -> None:
    pass


def search_of(instance: Instance, work: int = 300_000) -> Search:
    search = Search(Scheduler(instance))
    routes = shortest_routes(instance) if instance.relayed else free_routes(instance)
    search.offer(routes, standard_rules(instance), work, work, symmetric=False)
    return search


def sends_of(messages: Messages) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat(messages.edge, np.diff(messages.first)), messages.chunk


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=40))
def test_the_kernels_heap_and_sort_agree_with_the_library(pairs: list[tuple[int, int]]) -> None:
    time, item = np.zeros(64, np.int64), np.zeros(64, np.int64)
    count = 0
    for t, x in pairs:
        count = _push.py_func(time, item, count, t, x)  # type: ignore[attr-defined]
    wanted = list(pairs)
    heapq.heapify(wanted)
    while count:
        assert (time[0], item[0]) == heapq.heappop(wanted)
        count = _pop.py_func(time, item, count)  # type: ignore[attr-defined]
    assert not wanted
    score = np.array([float(t) for t, _ in pairs])
    edge = np.array([x for _, x in pairs], np.int32)
    _sort.py_func(score, edge, len(pairs))  # type: ignore[attr-defined]
    ordered = [(-s, e) for s, e in zip(score, edge, strict=True)]
    assert ordered == sorted((-float(t), x) for t, x in pairs)


def two_nodes() -> RankGraph:
    """Two nodes of three on switches, one NIC each with latency, rank 0 to rank 1 of the other."""
    inside = [(a + n, b + n, 0, 2) for n in (0, 3) for a in range(3) for b in range(3) if a != b]
    return graph_of(6, [*inside, (0, 4, 1, 10), (3, 1, 1, 10)], nodes=[0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize("model", [EXCLUSIVE, PIPELINED])
@pytest.mark.parametrize("name", ["allgather", "alltoall", "broadcast"])
def test_every_rule_gives_a_valid_schedule(name: str, model: CostModel) -> None:
    graph = two_nodes()
    instance = instance_of(graph, name, 2, model)
    scheduler = Scheduler(instance)
    routes = shortest_routes(instance) if instance.relayed else free_routes(instance)
    plan = scheduler.plan(routes)
    rules = list(portfolio(0.1, 0.1))
    assert len(rules) == len(set(rules))
    for rule in rules:
        order, work = scheduler.run(plan, routes, rule, 0, symmetric=False, limit=1 << 61)
        assert order is not None
        assert work > 0
        schedule = schedule_of(instance, order.messages)
        assert verify_schedule(schedule, graph) == []
        # The kernel's ticks and the exact times tell the same makespan.
        assert schedule.makespan_us <= order.makespan_us * (1 + 1e-9)


def test_own_event_schedules_start_every_send_at_an_event_of_its_rank() -> None:
    graph = two_nodes()
    instance = instance_of(graph, "allgather", 2)
    scheduler = Scheduler(instance)
    routes = free_routes(instance)
    rule = Rule(own_events=True)
    order, _ = scheduler.run(
        scheduler.plan(routes), routes, rule, 0, symmetric=False, limit=1 << 61
    )
    assert order is not None
    schedule = schedule_of(instance, order.messages)
    for start, src in zip(schedule.start_us, schedule.src, strict=True):
        own = (schedule.src == src) | (schedule.dst == src)
        assert start == 0 or start in schedule.end_us[own]


def test_a_sender_keeps_the_last_chunk_apart() -> None:
    # Rank 0 passes three chunks on: its own at once, then one of two, the last alone.
    graph = graph_of(
        4,
        [(a, b, 0, 1) for a in range(3) for b in range(3) if a != b]
        + [(0, 3, 5, 10), (3, 0, 5, 10)],
        nodes=[0, 0, 0, 1],
    )
    instance = instance_of(graph)
    scheduler = Scheduler(instance)
    routes = free_routes(instance)
    groups = {}
    for name, rule in {
        "reserve": Rule(),
        "all": Rule(reserve=0),
        "wait": Rule(reserve=0, wait_for=ALL),
    }.items():
        order, _ = scheduler.run(
            scheduler.plan(routes), routes, rule, 0, symmetric=False, limit=1 << 61
        )
        assert order is not None
        counts = np.diff(order.messages.first)
        groups[name] = counts[graph.src[order.messages.edge] == 0][
            graph.dst[order.messages.edge[graph.src[order.messages.edge] == 0]] == 3
        ].tolist()
    assert groups == {"reserve": [1, 1, 1], "all": [1, 2], "wait": [3]}


def test_exact_times_follow_the_order_only() -> None:
    instance = instance_of(graph_of(3, [(0, 1, 1, 2), (1, 2, 0, 3), (2, 0, 0, 1)]), "broadcast", 2)
    # Both chunks in one message, then one by one.
    messages = Messages(
        np.array([0, 1, 1], np.int32),
        np.array([0, 2, 3, 4]),
        np.array([0, 1, 1, 0], np.int32),
        *(np.arange(3),) * 3,
        own_events=False,
        symmetric=False,
    )
    starts, ends = exact_times(instance, messages)
    assert starts.tolist() == [0, 5, 8]
    assert ends.tolist() == [5, 8, 11]
    late = Messages(
        np.array([1, 0], np.int32),
        np.array([0, 1, 2]),
        np.array([0, 0], np.int32),
        *(np.arange(2),) * 3,
        own_events=False,
        symmetric=False,
    )
    with pytest.raises(ValueError, match="carries chunk 0, which rank 1 never gets"):
        exact_times(instance, late)


@given(st.integers(2, 7), st.randoms(use_true_random=False))
def test_distances_obey_the_triangle_and_are_reached(ranks: int, random: object) -> None:
    pairs = [(a, b) for a in range(ranks) for b in range(ranks) if a != b]
    chosen = random.sample(pairs, random.randint(1, len(pairs)))  # type: ignore[attr-defined]
    graph = graph_of(ranks, [(a, b, 0, 1.0 + (3 * a + b) % 4) for a, b in chosen])
    d = distances(graph, graph.beta_us_per_mib)
    direct = np.full((ranks, ranks), INFINITE)
    direct[graph.src, graph.dst] = graph.beta_us_per_mib
    np.fill_diagonal(direct, 0.0)
    for middle in range(ranks):
        np.minimum(direct, direct[:, middle, None] + direct[None, middle], out=direct)
    reachable = direct < INFINITE
    assert np.array_equal(d < INFINITE, reachable)
    assert np.allclose(d[reachable], direct[reachable])


def test_paths_are_spread_over_equal_ways() -> None:
    # Two ranks, three relays in between: twelve chunks take each way four times.
    edges = [(0, r, 0, 1) for r in (2, 3, 4)] + [(r, 1, 0, 1) for r in (2, 3, 4)]
    back = [(b, a, 0, 1) for a, b, _, _ in edges]
    instance = instance_of(graph_of(5, edges + back), "alltoall", 12)
    routes = shortest_routes(instance)
    mine = (instance.source[routes.chunk] == 0) & instance.needs[routes.chunk, 1]
    counts = np.bincount(routes.edge[mine], minlength=instance.graph.edges)
    assert sorted(counts[counts > 0].tolist()) == [4] * 6


def test_urgency_is_the_way_that_is_left() -> None:
    instance = instance_of(graph_of(3, [(0, 1, 1, 2), (1, 2, 0, 3), (2, 0, 0, 1)]))
    edge, chunk = grown_trees(instance, *(np.tile(np.arange(3, dtype=np.int32), 3) if k == 0 else
        np.repeat(np.arange(3, dtype=np.int32), 3) for k in range(2)))  # type: ignore[misc]  # fmt: skip
    routes = tree_routes(instance, edge, chunk)
    left = dict(zip(zip(edge.tolist(), chunk.tolist(), strict=True), routes.tail, strict=True))
    # Chunk 0 crosses 0->1 (3 us), then 1->2 (3 us); chunk 1 crosses 1->2, then 2->0 (1 us).
    assert left == {(0, 0): 3, (1, 0): 0, (1, 1): 1, (2, 1): 0, (2, 2): 3, (0, 2): 0}
    assert arrival_times(instance, edge, chunk).tolist() == [[0, 3, 6], [4, 0, 3], [1, 4, 0]]


def test_trees_drop_what_leads_nowhere_and_tell_what_is_missing() -> None:
    instance = instance_of(ring(4), "broadcast")
    everything = np.arange(instance.graph.edges, dtype=np.int32)
    trees = grown_trees(instance, everything, np.zeros_like(everything))
    assert trees is not None
    assert len(trees[0]) == 3
    assert grown_trees(instance, everything[:1], np.zeros(1, np.int32)) is None


@pytest.mark.parametrize("name", ["allgather", "alltoall", "broadcast"])
@pytest.mark.parametrize("graph", [two_nodes(), switch(4, 0.5, 2.0), ring(5)], ids="nsr")
def test_the_routing_model_admits_known_schedules(name: str, graph: RankGraph) -> None:
    instance = instance_of(graph, name, 2)
    search = search_of(instance)
    assert search.best is not None
    sends = sends_of(search.best.messages)
    model = RoutingModel(instance, candidate_arcs(instance, search.best_us, 10**6), search.best_us)
    start = model.start(*sends)
    assert start is not None
    assert model.linear.violation(start) < 1e-9
    assert start[model.makespan.first] <= search.best_us * (1 + 1e-9)
    found = solve_routing(instance, Limits(), search.best_us, sends, quiet)
    assert found.trees is not None
    assert found.stage.bound is not None
    assert lower_bound(instance) <= search.best_us
    assert found.stage.bound <= search.best_us * (1 + 1e-9)
    for routes in [tree_routes(instance, *found.trees)] + (
        [] if instance.relayed else [guided_routes(instance, *found.trees)]
    ):
        again = Search(Scheduler(instance))
        again.offer(routes, [Rule()], 10**6, 10**6, symmetric=False)
        assert again.best is not None
        schedule = schedule_of(instance, again.best.messages)
        assert verify_schedule(schedule, graph) == []
        assert found.stage.bound <= schedule.makespan_us * (1 + 1e-9)


def test_too_large_a_model_is_not_built() -> None:
    instance = instance_of(switch(26), chunks=1)
    found = solve_routing(instance, Limits(), 1e9, None, quiet)
    assert found.trees is not None
    large = instance_of(switch(26), chunks=26)
    skipped = solve_routing(large, Limits(), 1e9, None, quiet)
    assert (skipped.trees, skipped.stage.status[:18]) == (None, "skipped: too large")


def test_the_unit_of_costs() -> None:
    assert common_unit(instance_of(graph_of(2, [(0, 1, 0, 23), (1, 0, 0, 46)]))) == 23
    assert common_unit(instance_of(graph_of(2, [(0, 1, 0, 2), (1, 0, 0, 3)]))) == 1
    assert common_unit(instance_of(graph_of(2, [(0, 1, 0, 1), (1, 0, 0, 1.234)]))) is None
    assert common_unit(instance_of(graph_of(2, [(0, 1, 0, 1), (1, 0, 0, 100)]))) is None


@pytest.mark.parametrize(
    ("graph", "name", "chunks", "steps"),
    [
        (ring(6), "allgather", 1, 3),
        (switch(4), "allgather", 2, 6),
        (ring(4), "alltoall", 1, 2),
        # 1 + 1 + 2 hops of one chunk, or three chunks one behind the other over 0->1.
        (graph_of(3, [(0, 1, 0, 1), (1, 2, 0, 2)]), "broadcast", 3, 7),
    ],
)
def test_the_step_model_finds_the_least_number_of_steps(
    graph: RankGraph, name: str, chunks: int, steps: int
) -> None:
    found = solve_stepped(instance_of(graph, name, chunks), Limits(), steps + 5.0, quiet)
    assert found.messages is not None
    schedule = schedule_of(instance_of(graph, name, chunks), found.messages)
    assert verify_schedule(schedule, graph) == []
    assert schedule.makespan_us == steps
    assert (found.stage.status, found.stage.objective, found.stage.bound) == (
        "optimal",
        steps,
        steps,
    )
    # Below the optimum there is nothing, and that is a proof.
    none = solve_stepped(instance_of(graph, name, chunks), Limits(), float(steps), quiet)
    assert (none.messages, none.stage.status, none.stage.bound) == (None, "optimal", steps)


def test_messages_are_cut_anew() -> None:
    # Three chunks one by one over a link with a latency of 10: one message would do.
    graph = graph_of(2, [(0, 1, 10, 1), (1, 0, 10, 1)])
    instance = instance_of(graph, "broadcast", 3)
    apart = Messages(
        np.zeros(3, np.int32),
        np.arange(4),
        np.arange(3, dtype=np.int32),
        *(np.arange(3),) * 3,
        own_events=False,
        symmetric=False,
    )
    found = solve_scheduling(instance, apart, 33.0, Limits(), quiet)
    assert found.messages is not None
    assert schedule_of(instance, found.messages).makespan_us == 13
    assert np.diff(found.messages.first).tolist() == [3]
    again = solve_scheduling(instance, found.messages, 13.0, Limits(), quiet)
    assert (again.messages, again.stage.objective) == (None, 13.0)


def test_cutting_weighs_latency_against_waiting() -> None:
    # Chunks 0 and 1 reach rank 1 at 4 and 8 (a slow link), then a link with latency 3.
    # One by one: 4 + 4, 8 + 4 = 12. Together: 8 + 5 = 13.
    graph = graph_of(3, [(0, 1, 0, 4), (1, 2, 3, 1), (2, 0, 0, 1)])
    instance = instance_of(graph, "broadcast", 2)
    together = Messages(
        np.array([0, 0, 1], np.int32),
        np.array([0, 1, 2, 4]),
        np.array([0, 1, 0, 1], np.int32),
        *(np.arange(3),) * 3,
        own_events=False,
        symmetric=False,
    )
    found = solve_scheduling(instance, together, 13.0, Limits(), quiet)
    assert found.messages is not None
    assert schedule_of(instance, found.messages).makespan_us == 12
    assert verify_schedule(schedule_of(instance, found.messages), graph) == []


def test_lower_bounds_count_ports_nodes_and_distance() -> None:
    assert lower_bound(instance_of(switch(5, 0.0, 2.0), chunks=3)) == 24.0
    assert lower_bound(instance_of(ring(7, 0.0, 2.0))) == 6.0
    # Three chunks of 10 must enter each node over one link, and pay latency once.
    assert lower_bound(instance_of(two_nodes())) == 30.0
