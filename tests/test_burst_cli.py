"""``explorer plan``: JSON keys, exit codes, scenarios, texts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from explorer.burst.read_profile import training_folder
from explorer.burst.training_scenario import load_training
from explorer.cli.main import main
from explorer.errors import InputError

Run = Callable[..., tuple[int, str, str]]
VGG = ("plan", "--profile", "vgg16", "--gpus", 8, "--batch", 16)


@pytest.fixture
def explorer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*args: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["explorer", *map(str, args)])
        code: object = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
        out, err = capsys.readouterr()
        return int(str(code)), out, err

    return run


def test_json_has_the_keys_of_the_design(explorer: Run) -> None:
    code, out, err = explorer(*VGG, "--limit", 5, "--pareto", "--json")
    assert code == 0, err
    plan = json.loads(out)
    keys = "iteration_us gpu_us amplification gpus_max layers search_seconds baselines pareto"
    assert not set(keys.split()) - set(plan)
    layer_keys = "name gpus compute_us sync_us reshard_us"
    assert not set(layer_keys.split()) - set(plan["layers"][0])
    spent = sum(x["compute_us"] + x["sync_us"] + x["reshard_us"] for x in plan["layers"])
    assert plan["iteration_us"] == pytest.approx(spent + plan["step_us"])
    assert [b["gpus"] for b in plan["baselines"]["data_parallel"]] == [1, 2, 4, 8]
    assert plan["baselines"]["partition"]["background_gpus"] == 4
    assert plan["speedup_over_dp"] > 1.35


def test_table_says_what_the_figures_depend_on(explorer: Run) -> None:
    code, out, err = explorer(*VGG)
    assert code == 0, err
    assert "step (unknown)" in out
    assert "flat 266 GB/s, 40 us" in out
    assert "data parallel on 8" in out
    assert "partition, 4 GPUs free" in out
    assert "step_us" in err


def test_data_parallel_mode(explorer: Run) -> None:
    code, out, _ = explorer(*VGG, "--mode", "dp", "--json")
    plan = json.loads(out)
    assert code == 0
    assert plan["speedup_over_dp"] == 1.0
    assert {x["gpus"] for x in plan["layers"]} == {8}


@pytest.mark.parametrize(
    ("options", "code", "expected"),
    [
        (("--mode", "db"), 2, "--mode: got 'db'"),
        (("--limit", 0.5), 2, "--limit: got 0.5, expected at least 1"),
        (("--memory", "1MB"), 3, "memory: no plan"),
        (("--mode", "dp", "--memory", "1MB"), 3, "memory: data parallel on 8 GPUs needs"),
        (("--counts", "power"), 2, "did you mean 'powers'"),
        (("--bandwidth", "266"), 2, "expected a rate with its unit"),
        (("--latency", "40"), 2, "expected a time with its unit"),
        (("--topology", "dgx_a200"), 2, "did you mean 'dgx_a100'"),
        (("--topology", "ring:4"), 2, "has 4"),
        (("--nodes", 2), 2, "goes with --topology"),
    ],
)
def test_refusals(explorer: Run, options: tuple[object, ...], code: int, expected: str) -> None:
    got, out, err = explorer(*VGG, *options)
    assert (got, out) == (code, "")
    assert expected in err


def test_a_profile_is_needed(explorer: Run) -> None:
    code, _, err = explorer("plan", "--gpus", 8)
    assert code == 2
    assert "--profile: is needed" in err


def test_scenarios_of_the_checkout_load() -> None:
    found = sorted(training_folder().glob("*.yaml"))
    assert len(found) >= 3
    for path in found:
        assert "profile" in load_training(path)


def test_options_win_over_the_scenario(explorer: Run, tmp_path: Path) -> None:
    scenario = tmp_path / "s.yaml"
    scenario.write_text("profile: vgg16\ngpus: 8\nbatch: 16\nlimit: 1.0\nbandwidth: 266GB/s\n")
    code, out, err = explorer("plan", scenario, "--json")
    assert code == 0, err
    assert json.loads(out)["gpus_max"] == 1
    code, out, _ = explorer("plan", scenario, "--limit", 5, "--json")
    assert json.loads(out)["gpus_max"] == 8


def test_wrong_scenarios_name_the_line(tmp_path: Path) -> None:
    scenario = tmp_path / "s.yaml"
    scenario.write_text("gpu: 8\nbatch: many\nbandwidth: 5\nextrapolate: 3\n")
    with pytest.raises(InputError) as caught:
        load_training(scenario)
    text = str(caught.value)
    assert "s.yaml:1: gpu: unknown key, did you mean 'gpus'" in text
    assert "s.yaml:2: batch: got 'many'" in text
    assert "s.yaml:3: bandwidth" in text
    assert "s.yaml:4: extrapolate" in text
    assert "lacks the key 'profile'" in text
    with pytest.raises(InputError, match="no such file or scenario"):
        load_training(Path("vgg16-b61"))
