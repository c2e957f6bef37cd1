"""Plans of the measured networks: the figures the documentation states."""

from __future__ import annotations

import pytest

from explorer.burst.baseline_plans import baselines
from explorer.burst.planner import Planner
from explorer.burst.profile import Layer
from explorer.burst.read_profile import load_profile, profile_names
from explorer.burst.request import PlanRequest, prepare
from explorer.errors import InfeasibleError, InputError

WRN_MS = {1: 24.73, 2: 27.84, 4: 32.49, 6: 39.02, 8: 43.01, 16: 64.20, 32: 110.12}
"""Measured iterations by samples per GPU on 8 A100 (``A100_wrn.prof``)."""


def planner(profile: str, batch: int, gpus: int = 8, **more: object) -> Planner:
    return prepare(PlanRequest(profile, gpus, batch, **more)).planner  # type: ignore[arg-type]


@pytest.mark.parametrize(("samples", "measured_ms"), WRN_MS.items())
def test_wide_resnet_data_parallel_is_within_two_percent(samples: int, measured_ms: float) -> None:
    plan = planner("wrn101_2", 8 * samples).data_parallel(8)
    assert plan.step_us == 2030
    assert plan.iteration_us / 1e3 == pytest.approx(measured_ms, rel=0.02)


def test_vgg_data_parallel_is_within_three_percent() -> None:
    plan = planner("vgg16", 32).data_parallel(8)
    assert not plan.step_known
    assert plan.iteration_us / 1e3 == pytest.approx(13.57, rel=0.03)
    # By hand: 10,271 us of layers at 4 samples, 553,430,176 bytes of gradient on a ring.
    ring = 2 * 7 / 8 * 553_430_176 / 266e3
    assert plan.iteration_us == pytest.approx(10_271.02 + ring + 40, abs=0.01)


@pytest.mark.parametrize("topology", [None, "dgx_a100"])
def test_vgg_plan_beats_data_parallel(topology: str | None) -> None:
    burst = planner("vgg16", 16, limit=5.0, topology=topology)
    plan = burst.burst()
    assert burst.data_parallel(8).iteration_us / plan.iteration_us >= 1.35
    by_name = {layer.name: layer.gpus for layer in plan.layers}
    assert by_name["fc1"] == by_name["fc3"] == 1
    assert by_name["conv1+relu"] == 8
    for layer, one in zip(plan.layers, burst.tables.reference_us, strict=True):
        assert layer.gpu_us <= 5 * one * (1 + 1e-9)


def test_inception_branches_run_side_by_side_and_pay() -> None:
    burst = planner("inception_v3", 16)
    plan = burst.burst()
    assert plan.iteration_us < burst.data_parallel(8).iteration_us
    away = [layer for layer in plan.layers if layer.first_gpu]
    assert len(away) > 10
    assert plan.gpus_max <= 8


def test_wide_resnet_never_beats_data_parallel_on_a_flat_node() -> None:
    burst = planner("wrn101_2", 16)
    assert burst.burst().iteration_us <= burst.data_parallel(8).iteration_us * (1 + 1e-12)


def test_baselines() -> None:
    beside = baselines(planner("vgg16", 16))
    assert [p.gpus_max for p in beside.data_parallel] == [1, 2, 4, 8]
    assert beside.plain is beside.data_parallel[-1]
    assert beside.partition is not None
    assert beside.partition.foreground is beside.data_parallel[-2]
    assert beside.partition.background_gpus == 4
    assert beside.speedup(beside.data_parallel[0]) == pytest.approx(10_907.978 / 29_379.03)


def test_a_slow_network_makes_the_widest_data_parallel_a_weak_baseline() -> None:
    beside = baselines(planner("vgg16", 32, bandwidth_gbs=1.25))
    assert beside.fastest is not beside.plain


def test_one_gpu_has_no_partition() -> None:
    assert baselines(planner("vgg16", 16, gpus=1)).partition is None


def test_every_shipped_profile_loads_and_plans() -> None:
    names = profile_names()
    assert len(names) == 9
    for name in names:
        profile = load_profile(name)
        assert profile.params > 1e7
        assert planner(name, 8, memory_bytes=1e15).burst().iteration_us > 0


def test_a_batch_smaller_than_the_machine_leaves_gpus_unused() -> None:
    plan = planner("vgg16", 8, gpus=16).burst()
    assert plan.gpus_max == 8
    assert any("smaller than 16 GPUs" in note for note in plan.notes)


def test_counts_that_do_not_divide_are_not_offered() -> None:
    burst = planner("vgg16", 12)
    assert burst.tables.counts == (1, 2, 4)
    assert any("[8] do not divide batch 12" in note for note in burst.burst().notes)


def test_interpolation_is_said_and_extrapolation_refused_or_flagged() -> None:
    plan = planner("vgg16", 40, memory_bytes=1e15).burst()
    assert any("interpolated" in n and "conv1+relu at 40" in n for n in plan.notes)
    refused = planner("wrn101_2", 64).burst()
    assert all(layer.gpus > 1 for layer in refused.layers)
    assert any("not measured" in n and "stem at 64" in n for n in refused.notes)
    flagged = planner("wrn101_2", 64, extrapolate=True).burst()
    assert any("EXTRAPOLATED" in n for n in flagged.notes)
    with pytest.raises(InputError, match="extrapolation is refused"):
        planner("wrn101_2", 64, gpus=1)


def test_times_between_and_beyond_measured_batches() -> None:
    layer = Layer("x", "conv", (), 0, 0, (2, 4), (10.0, 20.0), (1.0, 3.0))
    assert layer.time_us(3, above=False) is not None
    assert layer.time_us(3, above=False)[:2] == (15.0, 2.0)  # type: ignore[index]
    assert layer.time_us(8, above=True)[:2] == (40.0, 7.0)  # type: ignore[index]
    assert layer.time_us(8, above=False) is None
    assert layer.time_us(1, above=True) is None
    single = Layer("x", "conv", (), 0, 0, (2,), (10.0,), (0.0,))
    assert single.time_us(6, above=True)[0] == 30.0  # type: ignore[index]


def test_memory_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InfeasibleError, match="memory: no plan"):
        planner("gpt_1p3b", 8, memory_bytes=10e9).burst()


def test_requests_refuse_all_wrong_numbers_at_once() -> None:
    with pytest.raises(InputError) as caught:
        PlanRequest("vgg16", 8, 16, limit=0.5, price=-1.0, memory_bytes=0.0, nodes=2)
    places = {problem.where for problem in caught.value.problems}
    assert places == {"--limit", "--price", "--memory", "--nodes"}


def test_gpus_and_batch_are_needed() -> None:
    with pytest.raises(InputError) as caught:
        prepare(PlanRequest("vgg16"))
    assert [p.where for p in caught.value.problems] == ["--gpus", "--batch"]
    with pytest.raises(InputError, match="at least 1"):
        planner("vgg16", 0)
    with pytest.raises(InputError, match="has 8"):
        planner("vgg16", 16, gpus=16, topology="dgx_a100")


def test_unknown_profiles_name_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'vgg16'"):
        load_profile("vgg_16")


def test_a_limit_that_cannot_be_kept_names_one_that_can() -> None:
    """Up to 64 samples are measured, so 1,024 need 16 GPUs, on which fc3 gains nothing."""
    with pytest.raises(InfeasibleError, match="--limit") as caught:
        planner("vgg16", 1024, gpus=1024, limit=5.0).burst()
    named = float(str(caught.value).split("--limit ")[1].split()[0])
    assert planner("vgg16", 1024, gpus=1024, limit=named * 1.01).burst().gpus_max >= 16
    with pytest.raises(InfeasibleError):
        planner("vgg16", 1024, gpus=1024, limit=named * 0.98).burst()
