"""Every program of every method, collective and placement: verified, executed, equal engines.

On ndv2 x1 and x2, dgx_a100 x1, a ring of 5 and a full graph of 6.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from explorer.baselines.registry import BASELINES, supports
from explorer.core.collective import Collective
from explorer.evaluate.machine import load_machine
from explorer.evaluate.network import network_for
from explorer.evaluate.point import evaluate_point
from explorer.evaluate.simulated import simulate_program
from explorer.execute.pool import Executor
from explorer.formats.msccl_xml_read import read_msccl_xml
from explorer.formats.msccl_xml_write import write_msccl_xml
from explorer.scenario.point import DesignPoint
from explorer.verify.program import verify_program
from sim.program import Program

MACHINES = [
    pytest.param("ring:5", None, id="ring5"),
    pytest.param("full:6", None, id="full6"),
    pytest.param("ndv2", 1, id="ndv2x1"),
    pytest.param("dgx_a100", 1, id="dgx_a100x1"),
    pytest.param("ndv2", 2, id="ndv2x2"),
]
COLLECTIVES = ["allgather", "reducescatter", "allreduce", "alltoall"]


@pytest.fixture(scope="module")
def pool() -> Iterator[Executor]:
    with Executor(processes=2) as executor:
        yield executor


def programs(spec: str, nodes: int | None, method: str, collective: str) -> Iterator[Program]:
    for placement in ("out", "in", "both"):
        point = DesignPoint(spec, nodes, collective, 1 << 20, method, placement=placement)
        result = evaluate_point(point)
        if result.program is None:
            assert result.row["not_lowered"], result.row
            continue
        assert float(str(result.row["time_us"])) >= float(str(result.row["bound_us"])) * (1 - 1e-9)
        yield result.program


@pytest.mark.timeout(900)
@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("method", [*sorted(BASELINES), "milp"])
@pytest.mark.parametrize(("spec", "nodes"), MACHINES)
def test_program_is_verified_runs_right_and_engines_agree(
    spec: str, nodes: int | None, method: str, collective: str, pool: Executor
) -> None:
    machine = load_machine(spec, nodes, sized=True)
    reason = None
    if method in BASELINES:
        reason = supports(method, Collective(collective, machine.topology.ranks), machine.topology)
    if reason:
        pytest.skip(reason)
    seen = 0
    for program in programs(spec, nodes, method, collective):
        seen += 1
        report = verify_program(program)
        assert report.ok, report.errors
        for placement, served in (("in", program.in_place), ("out", program.out_of_place)):
            if served:
                ran = pool.run(program, placement=placement)
                assert ran.ok, ran.findings
        network = network_for(machine.topology, program)
        rows = [
            simulate_program(program, network, 1 << 20, engine=engine)
            for engine in ("compiled", "simpy")
        ]
        assert rows[0]["time_us"] == rows[1]["time_us"]
        assert rows[0]["bottleneck"] == rows[1]["bottleneck"]
    assert seen


def test_written_and_read_back_is_the_same_program(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("xml")
    for method in sorted(BASELINES):
        kind = Collective("allreduce", 6)
        if supports(method, kind, load_machine("full:6", None, sized=True).topology):
            continue
        program = evaluate_point(DesignPoint("full:6", None, "allreduce", 1 << 20, method)).program
        assert program is not None
        text = write_msccl_xml(program, "executor")
        path = folder / f"{method}.xml"
        path.write_text(text, encoding="utf-8")
        assert write_msccl_xml(read_msccl_xml(path), "executor") == text
