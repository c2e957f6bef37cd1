"""Published sketches, from the command line to a verified program or the refusal they deserve."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from explorer.cli.main import main

DATA = Path(__file__).parent / "data"
SKETCHES, MACHINES = DATA / "sketches", DATA / "topologies"
NDV2, DGX2 = "topo-ndv2-1MB", "topo-dgx2-1MB"
PAIRS = [
    ("taccl_sk1-ndv2-n1", NDV2),
    ("taccl_sk1-ndv2-n2", NDV2),
    ("taccl_sk1-ndv2-n4", NDV2),
    ("taccl_sk2-ndv2-n2", NDV2),
    ("taccl_sk3-ndv2-n2", NDV2),
    ("taccl_sk-dgx2-n1", DGX2),
    ("taccl_sk1-dgx2-n2", DGX2),
    ("taccl_sk2-dgx2-n2", "topo-dgx2-1KB"),
    ("taccl_fork_sk2-dgx2-n2_with_solver_parameters", "topo-dgx2-1KB"),
    ("taccl_fork_sk-akmu-n1-gpu4", "akmu-A-GPU4-1MB"),
    ("taccl_fork_sk-akmu-n1-gpu4-nonsymmetric", "akmu-A-GPU4-1MB"),
    ("taccl_fork_sk-akmu-n3-gpu2", "akmu-A-GPU2-1MB"),
    ("taccl_fork_sk-akmu-n5-gpu4", "akmu-A-GPU4-1MB"),
    ("taccl_fork_sk-akmu-n6-gpu2", "akmu-A-GPU2-1MB"),
    ("taccl_fork_sk-mesh-any", "topo-mesh-any-3x3x3"),
    ("taccl_fork_sk-mesh-any", "topo-torus2d-4x4"),
    ("taccl_fork_sk-torus3d-3x3x3-n1", "topo-mesh-any-3x3x3"),
    ("taccl_fork_sk-mi300x-n3", "topo-mi300x"),
    ("taccl_fork_sk-mi300x-n4", "topo-mi300x"),
    ("taccl_fork_sk-mi300x-dumb-n2", "akmu-A-GPU4-1MB"),
]
REV_MAP = "internode_sketch.gpus_to_sender_rev_map"
REFUSED = [
    # names GPU 8 of 8
    ("taccl_fork_sk-mi300x-n2_invalid_gpu8", "topo-mi300x", f'{REV_MAP}."8": local rank 8'),
    # a sketch of 4 GPUs on a node of 8
    ("taccl_fork_sk-mi300x-dumb-n2", "topo-mi300x", f"{REV_MAP}: no sender for the chunks of"),
    # a sketch of DGX-2 on NDv2
    ("taccl_sk-dgx2-n1", NDV2, "intranode_sketch.switches[0][8]: local rank 8 does not exist"),
    # a torus' symmetry on a full mesh's 8 GPUs
    ("taccl_fork_sk-torus3d-3x3x3-n1", NDV2, "symmetry_offsets[0]: span 3 does not divide"),
]
Run = Callable[..., tuple[int, dict[str, object], str]]


@pytest.fixture
def synth(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(sketch: str, machine: str, *more: str) -> tuple[int, dict[str, object], str]:
        path = SKETCHES / f"{sketch}.json"
        nodes = json.loads(path.read_text(encoding="utf-8"))["nnodes"] if path.is_file() else 2
        where = ["-t", str(MACHINES / f"{machine}.json"), "--nodes", str(nodes)]
        guide = ["-k", str(path) if path.is_file() else sketch]
        asked = [*where, *guide, *(more or ("-c", "allgather")), "--json"]
        monkeypatch.setattr(sys, "argv", ["explorer", "synth", *asked])
        code: object = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
        out, err = capsys.readouterr()
        return int(str(code)), json.loads(out) if out else {}, err

    return run


@pytest.mark.parametrize(("sketch", "machine"), PAIRS)
def test_published_sketch_gives_a_verified_program(synth: Run, sketch: str, machine: str) -> None:
    code, row, err = synth(sketch, machine)
    assert code == 0, err
    assert row["verified"] is True
    assert row["not_lowered"] is None
    assert float(str(row["program_time_us"])) >= float(str(row["sketch_bound_us"])) * (1 - 1e-9)


def test_every_published_sketch_is_here() -> None:
    used = {sketch for sketch, *_ in [*PAIRS, *REFUSED]}
    assert used == {path.stem for path in SKETCHES.glob("*.json")}


@pytest.mark.parametrize(("sketch", "machine", "place"), REFUSED)
def test_sketch_that_does_not_fit_is_refused_at_its_key(
    synth: Run, sketch: str, machine: str, place: str
) -> None:
    code, row, err = synth(sketch, machine)
    assert code == 2
    assert not row
    assert f"{sketch}.json: {place}" in err


def test_c57_alltoall_with_the_shipped_sketch_of_dgx2(synth: Run) -> None:
    # infeasible in TACCL (microsoft/taccl#2)
    code, row, err = synth("taccl_sk1-dgx2-n2", DGX2, "-c", "alltoall")
    assert code == 0, err
    # 8 links carry 16·16 chunks, two of each pair, at 105 per chunk
    assert float(str(row["sketch_bound_us"])) >= 16 * 16 * 2 / 8 * 105
    assert float(str(row["program_time_us"])) <= 6900


def test_third_sketch_of_dgx2_is_for_small_alltoalls(synth: Run) -> None:
    asked = ("topo-dgx2-1KB", "-c", "alltoall", "--chunks", "1")
    times = {}
    for sketch in ("dgx2-sk-1", "dgx2-sk-2", "dgx2-sk-3"):
        code, row, err = synth(sketch, *asked)
        assert code == 0, err
        times[sketch] = float(str(row["program_time_us"]))
    assert times["dgx2-sk-3"] < 0.9 * min(times["dgx2-sk-1"], times["dgx2-sk-2"])


def test_c23_symmetry_that_is_none_names_a_link_without_image(synth: Run, tmp_path: Path) -> None:
    path = tmp_path / "c23.json"
    path.write_text('{"nnodes": 1, "symmetry_offsets": [[1, 8]]}', encoding="utf-8")
    code, row, err = synth(str(path), NDV2, "--nodes", "1", "-c", "allgather")
    assert code == 2
    assert not row
    assert "c23.json: symmetry_offsets[0]: rotation by 1 in blocks of 8: link 0->" in err
    assert "has no image" in err or "differ" in err


def test_c58_one_node_without_anything_between_nodes(synth: Run, tmp_path: Path) -> None:
    profile = json.loads((MACHINES / f"{NDV2}.json").read_text(encoding="utf-8"))
    bare = {k: v for k, v in profile.items() if not k.startswith(("remote", "nics"))}
    machine = tmp_path / "bare.json"
    machine.write_text(json.dumps(bare), encoding="utf-8")
    code, row, err = synth("taccl_sk1-ndv2-n1", NDV2, "-t", str(machine), "-c", "allgather")
    assert code == 0, err
    assert row["program_time_us"] == 69


@pytest.mark.parametrize("nodes", [3, 4])
def test_round_robin_carries_alltoall_round_the_nodes(
    synth: Run, tmp_path: Path, nodes: int
) -> None:
    path = tmp_path / "ring.yaml"
    path.write_text("senders: {0: [1]}\nmulti_node: round-robin\n", encoding="utf-8")
    code, row, err = synth(str(path), NDV2, "--nodes", str(nodes), "-c", "alltoall")
    assert code == 0, err
    # each NIC sends 64 chunks one node far, 64 two nodes, …
    hops = sum(range(1, nodes))
    assert 64 * hops * 105 <= float(str(row["program_time_us"])) < 64 * hops * 105 * 1.01
