"""What the simulator refuses, and what it says then."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from sim_machines import full, network, ring_allgather

from sim.errors import ProgramError
from sim.program import Op, ProgramBuilder
from sim.simulate import simulate


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "numba"}, "engine 'numba' is none of compiled, simpy"),
        ({"fidelity": "runtime"}, "fidelity 'runtime' is none of ideal"),
        ({"cost_model": "fluid"}, "cost model 'fluid' is none of exclusive, pipelined"),
    ],
)
def test_unknown_words_are_refused_with_the_allowed_ones(options, message):
    with pytest.raises(ProgramError) as caught:
        simulate(ring_allgather(2), full(2), 1.0, **options)
    assert str(caught.value) == message


@pytest.mark.parametrize("chunk_bytes", [-1.0, float("nan"), float("inf")])
def test_sizes_are_finite(chunk_bytes):
    with pytest.raises(ProgramError, match="expected a finite number >= 0"):
        simulate(ring_allgather(2), full(2), chunk_bytes)


def changed(**arrays):
    program = ring_allgather(3)
    new = {}
    for name, (index, value) in arrays.items():
        new[name] = getattr(program, name).copy()
        new[name][index] = value
    return replace(program, **new)


def depending(waiter: int, on: int):
    program = ring_allgather(3)
    first = (np.arange(program.steps + 1) > waiter).astype(np.int64)
    return replace(program, dep_first=first, dep_step=np.array([on], np.int64))


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (replace(ring_allgather(3), protocol="LL64"), "protocol 'LL64' is none of Simple, LL"),
        (changed(tb_rank=(0, 3)), "on a rank outside 0 … 2"),
        (changed(tb_send=(0, -1)), "gpu 0 tb 0 has send steps but its peer is -1"),
        (changed(tb_recv=(1, 1)), "gpu 1 tb 0 has receive steps but its peer is 1"),
        (changed(tb_channel=(0, -1)), "negative channel"),
        (changed(op=(0, 9)), "unknown op"),
        (changed(cnt=(4, -1)), "gpu 1 tb 0 step 1 has a negative cnt"),
        (changed(tb_first=(1, 99)), "tb_first does not rise from 0 to 9"),
        (depending(0, 9), "a dependency is outside the steps 0 … 8"),
        (depending(1, 3), "gpu 0 tb 0 step 1 depends on gpu 1 tb 0 step 0, which is on another"),
        (replace(ring_allgather(3), cnt=np.ones(1, np.int32)), "arrays of steps differ in length"),
        (replace(ring_allgather(3), tb_id=np.ones(1, np.int32)), "thread blocks differ in length"),
    ],
)
def test_malformed_programs(program, message):
    with pytest.raises(ProgramError, match=message):
        simulate(program, full(3), 1.0)


@pytest.mark.parametrize(("verb", "peer"), [("send to", "send"), ("receive from", "recv")])
def test_a_connection_has_one_block_at_each_end(verb, peer):
    b = ProgramBuilder(2)
    for _ in range(2):
        b.step(b.block(0, **{peer: 1}), Op.SEND if peer == "send" else Op.RECV)
    program = b.build(name="c", collective="custom", nchunks=1)
    with pytest.raises(ProgramError) as caught:
        simulate(program, full(2), 1.0)
    assert str(caught.value) == (
        f"gpu 0 tb 0 and tb 1 both {verb} gpu 1 on channel 0; "
        "a connection has one block at each end"
    )


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        (full(2), "the program has 3 ranks, the network 2"),
        (network(3, {(0, 1): ([], 0.0, 0.0)}), "no path from rank 1 to rank 2"),
        (network(3, {(0, 1): ([], -1.0, 0.0)}), "rank 0 to rank 1 has alpha -1.0"),
        (network(3, {(0, 1): ([], 0.0, float("nan"))}), "rank 0 to rank 1 has beta nan"),
        (network(3, {(0, 1): (["a", "b", "a"], 0.0, 0.0)}), "rank 0 to rank 1 names 'a' twice"),
        (replace(full(3), path_resource=np.full(6, 6, np.int32)), "a resource outside 0 … 5"),
    ],
)
def test_networks_that_do_not_fit(machine, message):
    with pytest.raises(ProgramError, match=message):
        simulate(ring_allgather(3), machine, 1.0)


def test_engines_are_imported_only_when_asked_for():
    code = "import sim.simulate, sim.trace, sys; print({'numba', 'simpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
