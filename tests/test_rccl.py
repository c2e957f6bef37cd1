"""rccl from end to end: every baseline written for it, verified as a file alone, run for real.

rccl builds no kernel with fused receives (docs/formats-xml.md); programs are rewritten.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from baselines_interpreter import races, run
from hypothesis import given
from hypothesis import strategies as st

from explorer.baselines.registry import BASELINES, build_baseline, supports
from explorer.cli.main import main
from explorer.core.collective import COLLECTIVES, Collective
from explorer.evaluate.export import write_program
from explorer.evaluate.point import evaluate_point
from explorer.execute.pool import Executor
from explorer.formats.dialects import exceeded, file_steps, limits_of
from explorer.formats.msccl_xml_read import read_msccl_xml
from explorer.lower.limits import UNLIMITED, BlockLimits
from explorer.lower.unfuse import unfused
from explorer.scenario.point import DesignPoint
from explorer.topologies.load import load_topology
from explorer.verify.program import safe_max_bytes, verify_program
from explorer.verify.xml import verify_xml
from sim.program import OP_RECEIVES, OP_SENDS, Buffer, Op, Program, ProgramBuilder

PLAIN = {Op.SEND, Op.RECV, Op.COPY, Op.REDUCE}
MACHINES = [pytest.param("full:6", None, id="full6"), pytest.param("ndv2", 1, id="ndv2x1")]
PLACEMENTS = ("in", "out", "both")


@pytest.fixture(scope="module")
def pool() -> Iterator[Executor]:
    with Executor(processes=2) as executor:
        yield executor


def steps_of(program: Program, rank: int) -> list[tuple[int, int, list[str]]]:
    """(Receives from, sends to, steps) of every block of a rank."""
    found = []
    for b in np.flatnonzero(program.tb_rank == rank).tolist():
        own = program.op[program.tb_first[b] : program.tb_first[b + 1]].tolist()
        found.append((int(program.tb_recv[b]), int(program.tb_send[b]), [Op(o).name for o in own]))
    return found


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("method", sorted(BASELINES))
@pytest.mark.parametrize(("spec", "nodes"), MACHINES)
def test_written_verified_and_run(
    spec: str, nodes: int | None, method: str, collective: str, pool: Executor, tmp_path: Path
) -> None:
    reason = supports(method, collective, load_topology(spec, nodes))
    if reason:
        pytest.skip(reason)
    for placement in PLACEMENTS:
        point = DesignPoint(
            spec, nodes, collective, 1 << 20, method, placement=placement, dialect="rccl", chunks=2
        )
        program = evaluate_point(point).program
        assert program is not None
        assert set(program.op.tolist()) <= PLAIN
        path = write_program(program, tmp_path / f"{placement}.xml", "rccl")
        report = verify_xml(path, dialect="rccl")
        assert report.ok, report.errors
        read = read_msccl_xml(path)
        for served, call in ((read.in_place, "in"), (read.out_of_place, "out")):
            if served:
                ran = pool.run(read, placement=call)
                assert ran.ok, ran.findings


@pytest.mark.parametrize("protocol", ["LL", "LL128"])
def test_sizes_are_safe_for_the_slots_of_rccl(protocol: str, tmp_path: Path) -> None:
    # a rank sends 24 chunks before it receives: what fits 8 slots of the executor's 32 KiB does
    # not fit 8 of rccl's 16 KiB
    b = ProgramBuilder(2)
    for rank in (0, 1):
        block = b.block(rank, send=1 - rank, recv=1 - rank)
        b.step(block, Op.SEND, src=(Buffer.INPUT, 24 * (1 - rank)), cnt=24)
        b.step(block, Op.RECV, dst=(Buffer.OUTPUT, 24 * (1 - rank)), cnt=24)
        b.step(
            block, Op.COPY, src=(Buffer.INPUT, 24 * rank), dst=(Buffer.OUTPUT, 24 * rank), cnt=24
        )
    program = b.build(name="a2a", collective="alltoall", nchunks=48, protocol=protocol)
    sizes = {}
    for dialect in ("executor", "rccl"):
        path = write_program(program, tmp_path / f"{dialect}.xml", dialect)
        sizes[dialect] = read_msccl_xml(path).max_bytes
    slot = {"LL": 16 << 10, "LL128": 50_176}[protocol]
    # 24 chunks take 8 messages as long as 3 fit a slot
    assert sizes["rccl"] == pytest.approx(slot // 3 * 48, rel=0.01)
    assert sizes["executor"] > 1.9 * sizes["rccl"]


def test_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def explorer(*args: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["explorer", *args])
        code: object = 0
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
        return int(str(code)), capsys.readouterr().out

    path = str(tmp_path / "f.xml")
    asked = ("synth", "-t", "full:4", "-s", "1M", "-o", path)
    for method, collective in (("ring", "allreduce"), ("milp", "reducescatter")):
        made, _ = explorer(*asked, "-c", collective, "-m", method, "--dialect", "rccl")
        assert made == 0
        assert explorer("verify", "--dialect", "rccl", path)[0] == 0
    assert explorer(*asked, "-c", "allreduce", "-m", "ring")[0] == 0
    code, out = explorer("verify", "--dialect", "rccl", path)
    assert code == 4
    assert "rccl" in out
    for verb in ("synth", "verify"):
        assert "rccl" in explorer(verb, "--help")[1]


def test_every_fused_step_becomes_what_it_does() -> None:
    ring = build_baseline("ring", load_topology("full:4", None), Collective("allreduce", 4))
    plain = unfused(ring)
    # s rrs rrs rrcs rcs rcs r
    assert steps_of(plain, 0) == [
        (
            3,
            1,
            ["SEND"] + ["RECV", "REDUCE", "SEND"] * 3 + ["RECV", "SEND"] * 2 + ["RECV"],
        )
    ]
    # only rrs needs scratch: out of place, rrcs receives into the output
    assert plain.s_chunks.tolist() == [2] * 4
    assert len(plain.dep_step) == 0
    in_place = build_baseline(
        "ring", load_topology("full:4", None), Collective("allreduce", 4), placement="in"
    )
    assert unfused(in_place).s_chunks.tolist() == [3] * 4


def test_an_operand_that_is_the_target_in_some_calls_only_is_read_first() -> None:
    # out of place i[k] and o[k] differ, in place they are one: dst = received + src either way
    both = build_baseline(
        "ring", load_topology("full:3", None), Collective("reduce", 3), placement="both"
    )
    assert Op.RECV_REDUCE_COPY in both.op.tolist()
    plain = unfused(both)
    last = steps_of(plain, 0)
    assert last == [(2, -1, ["RECV", "REDUCE", "COPY"])]
    assert verify_program(plain, strict=True).ok


def test_a_program_without_fused_receives_is_left_as_it_is() -> None:
    program = build_baseline("allpairs", load_topology("full:4", None), Collective("allreduce", 4))
    assert unfused(program) is program


@given(
    name=st.sampled_from(["ring", "tree", "recursive", "hierarchical"]),
    machine=st.sampled_from(["full:3", "full:5", "full:8", "ring:5"]),
    collective=st.sampled_from(COLLECTIVES),
    placement=st.sampled_from(PLACEMENTS),
    chunks=st.integers(1, 4),
    channels=st.integers(1, 2),
    steps=st.sampled_from([6, 9, 16, 64, None]),
    seed=st.integers(0, 1 << 16),
)
def test_right_in_any_order_however_short_blocks_must_be(
    name: str,
    machine: str,
    collective: str,
    placement: str,
    chunks: int,
    channels: int,
    steps: int | None,
    seed: int,
) -> None:
    topology = load_topology(machine, None)
    if supports(name, collective, topology):
        return
    kind = Collective(collective, topology.ranks, chunks)
    fused = build_baseline(name, topology, kind, placement=placement, channels=channels)
    program = unfused(fused, BlockLimits(steps=steps))
    assert set(program.op.tolist()) <= PLAIN
    report = verify_program(program, strict=True)
    assert report.ok, report.errors
    assert not report.warnings
    assert safe_max_bytes(program) == safe_max_bytes(fused)
    if steps is not None:
        block = program.step_block()
        moves = OP_SENDS[program.op] | OP_RECEIVES[program.op]
        with_messages = np.unique(block[moves])
        # a piece holds at least one message; no message here takes more than four steps
        assert file_steps(program)[with_messages].max() <= steps
    for in_place in {"in": [True], "out": [False], "both": [True, False]}[placement]:
        run(program, kind, in_place=in_place, seed=seed)
        if topology.ranks <= 5:
            assert races(program, kind, in_place=in_place) == []


def test_long_blocks_are_split_and_connections_go_on_in_others() -> None:
    topology = load_topology("ndv2", 4)
    kind = Collective("allreduce", 32)
    fused = build_baseline("ring", topology, kind, placement="in")
    # 2R - 1 fused steps are 30·3 + 3 + 30·2 + 2 plain ones
    assert file_steps(fused).tolist() == [63] * 32
    assert file_steps(unfused(fused, UNLIMITED)).tolist() == [155] * 32
    program = unfused(fused, limits_of("rccl"))
    assert exceeded(program, "rccl") == []
    report = verify_program(program, strict=True)
    assert report.ok, report.errors
    # receiving halves of 31·2 + 31 = 93 steps go on once, sending halves with them
    assert program.blocks == 4 * 32
    assert program.channels == 2
    sends = {(int(s), int(c)) for s, c in zip(program.tb_send, program.tb_channel, strict=True)}
    assert {channel for peer, channel in sends if peer >= 0} == {0, 1}


def test_too_many_blocks_are_refused_with_number_and_limit() -> None:
    point = DesignPoint("full:34", None, "allreduce", 1 << 20, "allpairs", dialect="rccl")
    result = evaluate_point(point)
    assert result.program is None
    assert "rccl takes at most 64" in str(result.row["not_lowered"])


def test_ideal_time_is_that_of_the_fused_program() -> None:
    # a block that receives, adds and sends on takes the time of the fused step
    for method in ("ring", "tree"):
        rows = [
            evaluate_point(
                DesignPoint("full:6", None, "allreduce", 1 << 20, method, dialect=dialect)
            ).row
            for dialect in ("executor", "rccl")
        ]
        times = [float(str(row["time_us"])) for row in rows]
        assert times[1] <= times[0] * (1 + 1e-9)


def test_settings_of_the_program_are_kept() -> None:
    fused = build_baseline(
        "ring", load_topology("full:4", None), Collective("reduce", 4, root=2), placement="both"
    )
    ranged = replace(fused, min_bytes=1024, max_bytes=1 << 20)
    plain = unfused(ranged)
    for key in ("name", "collective", "nchunks", "protocol", "root", "min_bytes", "max_bytes"):
        assert getattr(plain, key) == getattr(ranged, key)
    assert (plain.in_place, plain.out_of_place) == (True, True)
