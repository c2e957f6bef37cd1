"""Readers of layer profiles: the three layouts, and what each refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from explorer.burst.profile_json import profile_of_json
from explorer.burst.profile_table import profile_of_table
from explorer.burst.profile_text import profile_of_text
from explorer.burst.read_profile import load_profile
from explorer.burst.request import PlanRequest, prepare
from explorer.errors import InputError

DATA = Path(__file__).parent / "data" / "deeppool"


def layer(name: str, prev: list[int], **more: object) -> dict[str, Any]:
    times = {"1": [1.0, 2.0], "2": [2.0, 3.0]}
    return {"name": name, "op": "conv", "prev": prev, "params": 1, "profile_us": times} | more


def refusal(*layers: dict[str, Any], **top: object) -> str:
    with pytest.raises(InputError) as caught:
        profile_of_json(json.dumps({"model": "m", "layers": list(layers)} | top), "m.json")
    return str(caught.value)


def test_json_round() -> None:
    text = json.dumps({"model": "m", "step_us": 5, "layers": [layer("b", [1]), layer("a", [])]})
    profile = profile_of_json(text, "m.json")
    assert [x.name for x in profile.layers] == ["a", "b"]
    assert profile.layers[1].prev == (0,)
    assert profile.layers[0].forward_us == (1.0, 2.0)
    assert profile.step_us == 5.0


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ([layer("a", [1]), layer("b", [0])], "cycle among 'a', 'b'"),
        ([layer("a", []), layer("b", [])], "2 layers read no other layer: 'a', 'b'"),
        ([layer("a", []), layer("b", [0]), layer("c", [0])], "2 layers are read by none"),
        ([layer("a", []), layer("b", [7])], "reads layer 7, there are 0 to 1"),
        ([layer("a", []), layer("a", [0])], "layer 'a' appears 2 times"),
        ([layer("a", [], profile_us={"1": [-1, 2]})], "forward time at batch 1 is -1.0 us"),
        ([layer("a", [], profile_us={"1": [1, float("nan")]})], "backward time at batch 1 is nan"),
        ([layer("a", [], profile_us={})], "has no measured batch"),
        ([layer("a", [], profile_us={"0": [1, 2]})], "batch 0, expected a whole number >= 1"),
        ([layer("a", [], profile_us={"1": [1]})], "expected profile_us"),
        ([layer("a", [], params=-3)], "params is -3"),
        ([{"name": "a", "prev": []}], "lacks 'profile_us'"),
        ([], "has no layers"),
    ],
)
def test_json_refusals(layers: list[dict[str, Any]], expected: str) -> None:
    assert expected in refusal(*layers)


def test_json_names_all_problems_at_once() -> None:
    text = refusal(layer("a", [], profile_us={}), layer("b", [0], params=-1))
    assert "layers[0] (a)" in text
    assert "layers[1] (b)" in text


def test_json_that_is_none() -> None:
    with pytest.raises(InputError, match=r"m\.json:1: not JSON"):
        profile_of_json("{", "m.json")
    assert "step_us is -1" in refusal(layer("a", []), step_us=-1)


def test_prof_layout_merges_relus_and_counts_parameters() -> None:
    profile = load_profile(str(DATA / "A100_vgg_head.prof"))
    assert len(profile.layers) == 22
    # Parameters by kernel and features: VGG-16's public total.
    assert profile.params == 138_357_544
    first = profile.layers[0]
    # conv 2157 + relu 1205 forward, 6 + 3730 backward.
    assert (first.batches, first.forward_us, first.backward_us) == ((64,), (3362.0,), (3736.0,))
    assert first.out_elems == 64 * 224 * 224
    assert profile.layers[-1].out_elems == 1000
    assert any("batch 32 has no SUM line" in note for note in profile.notes)


def test_text_layout_splits_the_sum() -> None:
    profile = load_profile(str(DATA / "vitLayerGpuProfileA100_head.txt"))
    assert profile.layers[0].batches == (64, 128)
    assert profile.layers[0].forward_us[1] + profile.layers[0].backward_us[1] == pytest.approx(2055)
    assert profile.layers[0].out_elems == 257 * 512


ROW = 'conv2d{"in_channels":1,"out_channels":1,"kernel_size":1}'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{ROW}[4][1,2,2] 1.0\nSUM 1", "x:1: 1 numbers after the shape"),
        (f"{ROW}[4][1,2,2] 1.0 2 x\nSUM 1", "x:1: cannot read the numbers"),
        (f"{ROW}[4][1,2,2] 1 2 3\n{ROW}[2][1,2,2] 1 2 3\nSUM 1", "x:2: batch 2 inside"),
        (f"{ROW}[4][1,2,2] 1 2 3\nSUM 1\n{ROW}[4][1,2,2] 1 2 3\nSUM 1", "a second block"),
        (f"{ROW}[4][1,2,2] 1 2 3\nSUM 1\n{ROW}[2][1,3,3] 1 2 3\nSUM 1", "lists other layers"),
        (f"{ROW}[4][1,2,2] 1 2 3\n", "no block of rows ends with a SUM"),
        (f"{ROW}[4][1,2,2] 1 2 -3\nSUM 1", "backward time at batch 4 is -3.0"),
        ("something else\nSUM 1", "x:1: expected op{"),
    ],
)
def test_text_refusals(text: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        profile_of_text(text, "x")
    assert expected in str(caught.value)


def test_case_c40_small_batch_with_holes() -> None:
    """Batch 8 on 16 GPUs; conv2 lacks batch 8, fc has no other."""
    path = str(DATA / "c40_burst_plan_small_batch.yaml")
    planner = prepare(PlanRequest(path)).planner
    assert planner.tables.counts == (1, 2, 4, 8)
    plan = planner.burst()
    gpus = {x.name: x.gpus for x in plan.layers}
    assert gpus["conv2"] > 1
    assert gpus["fc"] == 1
    # conv1 0.9 ms and conv2 0.4 ms on 8, fc 0.2 ms on one, 2 x 40 us to get there.
    assert plan.iteration_us == pytest.approx(900 + 400 + 80 + 200)
    text = "\n".join(plan.notes)
    assert "at most 8 get a sample" in text
    assert "conv2 at 8" in text
    assert "fc at 4" in text
    flagged = prepare(PlanRequest(path, extrapolate=True)).planner.burst()
    assert any("EXTRAPOLATED" in n and "conv2 at 8" in n for n in flagged.notes)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("profile: {a: {1: 1}}\nlayer: [a]", "did you mean 'layers'"),
        ("profile: {a: {1: 1}}\nlayers: [a, b]", "no times {batch: ms}"),
        ("profile: {a: {1: 1}, b: {1: 1}}\nlayers: [a]", "is not among the layers"),
        ("profile: {a: {1: -1}}", "expected a number >= 0"),
        ("profile: {a: {1: x}}", "expected {batch: ms}"),
        ("profile: {a: {1: 1}}\ngpus: 0", "got 0, expected a whole number >= 1"),
        ("layers: [a]", "expected keys 'layers' and 'profile'"),
    ],
)
def test_table_refusals(text: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        profile_of_table(text, "t.yaml")
    assert expected in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    bad = tmp_path / "x.json"
    bad.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8"):
        load_profile(str(bad))
    with pytest.raises(InputError, match="cannot be read"):
        load_profile(str(tmp_path / "absent.json"))
