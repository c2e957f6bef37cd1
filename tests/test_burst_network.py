"""Costs of communication: the flat rule, resharding as programs, simulated collectives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.burst.collective_times import MOVE_SIZES, SIZES, CollectiveTimes
from explorer.burst.network_times import flat_times
from explorer.burst.reshard_program import transfers
from explorer.burst.simulated_times import simulated_times
from explorer.errors import InputError
from explorer.topologies.load import load_topology


def test_flat_rule_by_hand() -> None:
    times = flat_times((1, 2, 4), 8, gbs=1.0, latency_us=3.0)
    assert times.sync_latency_us.tolist() == [0, 3, 3]
    assert times.sync_us_per_byte.tolist() == pytest.approx([0, 1e-3, 1.5e-3])
    # 2 (1/lo - 1/hi) of the batch: 2 (8/1 - 8/4) = 12 samples between 1 and 4 GPUs.
    assert times.move_us_per_byte[0, 2] == pytest.approx(12e-3)
    assert times.move_us_per_byte[2, 0] == times.move_us_per_byte[0, 2]
    assert times.move_latency_us[0, 2] == 6
    assert times.move_us_per_byte[1, 1] == times.move_latency_us[1, 1] == 0
    # Nothing stays in place: the smaller side moves all it has.
    assert times.far_us_per_byte[1, 1] == pytest.approx(2 * 4e-3)


def test_counts_less_than_twice_apart_are_bound_by_the_new_gpu() -> None:
    times = flat_times((2, 3), 6, gbs=1.0, latency_us=0.0)
    # 3 samples each become 2: the third GPU receives two, the others send one.
    assert times.move_us_per_byte[0, 1] == pytest.approx(2 * 2e-3)


@given(
    st.sampled_from([1, 2, 3, 4, 6, 12]),
    st.sampled_from([1, 2, 3, 4, 6, 12]),
    st.integers(0, 8),
)
def test_transfers_leave_every_gpu_its_share(before: int, after: int, first: int) -> None:
    batch = 12
    held = dict.fromkeys(range(before), batch // before)
    kept = 0
    for a, b, samples in transfers(batch, (0, before), (first, after)):
        assert a != b
        held[a] -= samples
        held[b] = held.get(b, 0) + samples
        kept -= samples
    expected = dict.fromkeys(range(first, first + after), batch // after)
    assert {rank: n for rank, n in held.items() if n} == expected
    overlap = [r for r in range(before) if first <= r < first + after]
    stay = sum(min(batch // before, batch // after) for _ in overlap)
    assert batch + kept == stay


def test_simulated_resharding_on_a_switch_equals_the_rule() -> None:
    """On one switch every GPU has a port of its own: the busiest port decides."""
    machine = CollectiveTimes(load_topology("switch:4,1GB/s,0us"))
    flat = flat_times((1, 2, 4), 8, gbs=1.0, latency_us=0.0)
    for i, a in enumerate((1, 2, 4)):
        for j, b in enumerate((1, 2, 4)):
            times = machine.reshard_us(8, (0, a), (0, b))
            expected = np.array(MOVE_SIZES) * flat.move_us_per_byte[i, j]
            assert times == pytest.approx(expected.tolist())


def test_simulated_allreduce_is_the_best_program() -> None:
    machine = CollectiveTimes(load_topology("switch:4,1GB/s,0us"))
    times = machine.allreduce_us(4)
    # 2 (R-1)/R bytes through each port, which recursive halving and rings both reach.
    assert times == pytest.approx([1.5 * size / 1e3 for size in SIZES], rel=1e-6)


def test_simulated_lines_lie_on_or_above_every_simulated_time() -> None:
    machine = CollectiveTimes(load_topology("dgx_a100"))
    found = simulated_times(machine, (1, 2, 4, 8), 16, 8, 200 << 20, far=True)
    upto = [i for i, size in enumerate(SIZES) if size <= 512 << 20]
    for k, g in enumerate((1, 2, 4, 8)):
        if g == 1:
            continue
        us = machine.allreduce_us(g)
        for i in upto:
            line = found.sync_latency_us[k] + SIZES[i] * found.sync_us_per_byte[k]
            assert line >= us[i] * (1 - 1e-12)
    assert np.isfinite(found.far_us_per_byte).all()
    assert (found.move_latency_us == found.move_latency_us.T).all()


def test_times_are_kept_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    topology = load_topology("switch:2,1GB/s,0us")
    first = CollectiveTimes(topology, path=path)
    found = first.allreduce_us(2)
    assert first.simulated == 1
    first.save()
    again = CollectiveTimes(topology, path=path)
    assert again.allreduce_us(2) == found
    assert again.simulated == 0
    with pytest.raises(InputError, match="not of this machine"):
        CollectiveTimes(load_topology("switch:2,2GB/s,0us"), path=path)
    path.write_text("[]")
    with pytest.raises(InputError, match="no file of simulated times"):
        CollectiveTimes(topology, path=path)
