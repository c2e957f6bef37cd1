"""Random programs on random networks: both engines agree, and results obey the semantics."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import permutations
from random import Random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sim_machines import network, pairs_of, random_case, random_program

from sim import compiled
from sim.critical_path import critical_path
from sim.network import COST_MODELS, Network
from sim.program import OP_RECEIVES, OP_SENDS, Program
from sim.protocols import PROTOCOLS
from sim.result import SimResult
from sim.simulate import simulate
from sim.trace import block_spans, resource_spans

CASES = st.builds(random_case, st.integers(0, 2**32), st.integers(2, 6), st.integers(1, 60))


def assert_engines_are_equal(program, machine, chunk_bytes, cost_model):
    one, two = (
        simulate(program, machine, chunk_bytes, cost_model=cost_model, engine=engine)
        for engine in ("compiled", "simpy")
    )
    for name in ("step", "path", "start_us", "busy_end_us", "arrive_us", "step_end_us"):
        assert getattr(one, name).tobytes() == getattr(two, name).tobytes(), name
    assert one.resource_busy_us.tobytes() == two.resource_busy_us.tobytes()
    assert one.time_us == two.time_us
    assert one.bottleneck() == two.bottleneck()


@given(case=CASES, cost_model=st.sampled_from(COST_MODELS))
@settings(max_examples=400)
def test_engines_are_equal_to_the_last_bit(case, cost_model):
    assert_engines_are_equal(*case, cost_model)


@pytest.mark.parametrize("cost_model", COST_MODELS)
@pytest.mark.parametrize("seed", range(4))
def test_engines_are_equal_where_many_wait_for_few(seed, cost_model):
    """Long lists of waiters, each of which needs several resources that are seldom free."""
    random = Random(seed)
    program = random_program(random, 12, 800)
    pool = [f"r{i}" for i in range(2 + seed)]
    paths = {
        pair: (random.sample(pool, random.randint(1, len(pool))), random.random(), random.random())
        for pair in pairs_of(12)
    }
    assert_engines_are_equal(program, network(12, paths), 1.0, cost_model)


@given(case=CASES, cost_model=st.sampled_from(COST_MODELS), size=st.integers(1, 5))
def test_slices_do_not_show(case, cost_model, size):
    """The kernel is left and entered again after every few transfers."""
    before = compiled.SLICE
    compiled.SLICE = size
    try:
        assert_engines_are_equal(*case, cost_model)
    finally:
        compiled.SLICE = before


@given(case=CASES, cost_model=st.sampled_from(COST_MODELS))
def test_no_resource_is_held_twice(case, cost_model):
    program, machine, chunk_bytes = case
    spans = resource_spans(machine, simulate(program, machine, chunk_bytes, cost_model=cost_model))
    same = spans.owner[1:] == spans.owner[:-1]
    assert (spans.from_us[1:][same] >= spans.to_us[:-1][same]).all()


@given(case=CASES, cost_model=st.sampled_from(COST_MODELS))
def test_time_is_at_least_what_is_busiest(case, cost_model):
    program, machine, chunk_bytes = case
    result = simulate(program, machine, chunk_bytes, cost_model=cost_model)
    held = result.busy_end_us - result.start_us
    block = program.step_block()[result.step]
    assert result.time_us >= result.resource_busy_us.max(initial=0.0) * (1 - 1e-12)
    assert result.time_us >= np.bincount(block, held).max(initial=0.0) * (1 - 1e-12)


@given(case=CASES, cost_model=st.sampled_from(COST_MODELS))
def test_chunks_carried_are_chunks_received(case, cost_model):
    program, machine, chunk_bytes = case
    result = simulate(program, machine, chunk_bytes, cost_model=cost_model)
    carried, received = Counter(), Counter()
    for step, path in zip(result.step, result.path, strict=True):
        carried[int(machine.path_src[path]), int(machine.path_dst[path])] += program.cnt[step]
    block = program.step_block()
    for step in np.flatnonzero(OP_RECEIVES[program.op]):
        pair = int(program.tb_recv[block[step]]), int(program.tb_rank[block[step]])
        received[pair] += program.cnt[step]
    assert carried == received


@given(case=CASES, cost_model=st.sampled_from(COST_MODELS))
def test_sends_start_when_ready_or_when_a_resource_is_freed(case, cost_model):
    program, machine, chunk_bytes = case
    result = simulate(program, machine, chunk_bytes, cost_model=cost_model)
    ready = ready_times(program, result)
    resources = [set(resources_of(machine, path)) for path in result.path]
    for i, step in enumerate(result.step):
        assert result.start_us[i] >= ready[step]
        if result.start_us[i] > ready[step]:
            ended = np.flatnonzero(result.busy_end_us == result.start_us[i])
            assert any(resources[i] & resources[j] for j in ended if j != i)


@given(case=CASES, cost_model=st.sampled_from(COST_MODELS))
def test_who_overtakes_was_not_in_the_way(case, cost_model):
    """A send that starts while an earlier one waits leaves alone what only that one waits for."""
    program, machine, chunk_bytes = case
    result = simulate(program, machine, chunk_bytes, cost_model=cost_model)
    start, end = result.start_us, result.busy_end_us
    assume((end > start).all())  # else one instant has several rounds of starts
    ready = ready_times(program, result)
    resources = [set(resources_of(machine, path)) for path in result.path]
    key = [order(program, ready, step) for step in result.step]
    for i, j in permutations(range(result.transfers), 2):
        if key[i] < key[j] and ready[result.step[i]] <= start[j] < start[i]:
            in_the_way = [
                k
                for k in range(result.transfers)
                if start[k] < start[j] < end[k] or (start[k] == start[j] and key[k] < key[i])
            ]
            assert resources[i] & set().union(*(resources[k] for k in in_the_way))


@given(case=CASES, cost_model=st.sampled_from(COST_MODELS))
def test_critical_path_covers_all_time(case, cost_model):
    program, machine, chunk_bytes = case
    result = simulate(program, machine, chunk_bytes, cost_model=cost_model)
    parts = critical_path(program, machine, result)
    at = 0.0
    for part in parts:
        assert part.from_us == at
        assert part.to_us >= at
        at = part.to_us
        assert (part.to_us == part.from_us) or part.reason in ("link", "port wait")
        assert part.where or part.reason == "link"
    assert at == result.time_us


@given(case=CASES, cost_model=st.sampled_from(COST_MODELS))
def test_block_spans_do_not_overlap(case, cost_model):
    program, machine, chunk_bytes = case
    result = simulate(program, machine, chunk_bytes, cost_model=cost_model)
    spans = block_spans(program, result)
    same = spans.owner[1:] == spans.owner[:-1]
    assert (spans.from_us[1:][same] == spans.to_us[:-1][same]).all()
    length = np.bincount(spans.owner, spans.to_us - spans.from_us, minlength=program.blocks)
    assert length == pytest.approx(result.step_end_us[program.tb_first[1:] - 1])


def resources_of(machine: Network, path: int) -> list[int]:
    return machine.path_resource[machine.path_first[path] : machine.path_first[path + 1]].tolist()


def order(program: Program, ready: dict[int, float], step: int) -> tuple[float, int, int, int, int]:
    """The key by which ready sends start, spelled out."""
    block = program.step_block()[step]
    src, dst = int(program.tb_rank[block]), int(program.tb_send[block])
    index = int(step - program.tb_first[block])
    return ready[step], (dst - src) % program.ranks, int(program.tb_channel[block]), index, src


def ready_times(program: Program, result: SimResult) -> dict[int, float]:
    """When every send became ready, worked out from the other times step by step."""
    arrive = dict(zip(result.step.tolist(), result.arrive_us.tolist(), strict=True))
    sends, recvs = defaultdict(list), defaultdict(list)
    block_of = program.step_block().tolist()
    conn_out = list(zip(program.tb_rank, program.tb_send, program.tb_channel, strict=True))
    conn_in = list(zip(program.tb_recv, program.tb_rank, program.tb_channel, strict=True))
    for step, block in enumerate(block_of):
        if OP_SENDS[program.op[step]]:
            sends[conn_out[block]].append(step)
        if OP_RECEIVES[program.op[step]]:
            recvs[conn_in[block]].append(step)
    end = result.step_end_us.tolist()
    taken, ready = {}, {}
    for step, block in enumerate(block_of):
        deps = program.dep_step[program.dep_first[step] : program.dep_first[step + 1]]
        reached = max([0.0, *(end[d] for d in deps)])
        if step > program.tb_first[block]:
            reached = max(reached, end[step - 1])
        if OP_RECEIVES[program.op[step]]:
            message = sends[conn_in[block]][recvs[conn_in[block]].index(step)]
            taken[step] = reached = max(reached, arrive[message])
        ready[step] = reached
    slots = PROTOCOLS[program.protocol].slots
    for conn, steps in sends.items():
        for number, step in enumerate(steps):
            if number >= slots:
                ready[step] = max(ready[step], taken[recvs[conn][number - slots]])
    return ready
