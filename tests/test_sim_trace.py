"""Timelines and critical paths of simulations worked out by hand."""

from __future__ import annotations

import gzip
import json

import pytest
from sim_machines import full, network, ring_allgather, switch

from sim.critical_path import PathPart, critical_path
from sim.program import Op, ProgramBuilder
from sim.simulate import simulate
from sim.trace import TRANSFER, WAIT, block_spans, resource_spans, write_trace


def built(b: ProgramBuilder, **options):
    return b.build(name="case", collective="custom", nchunks=1, **options)


def two_to_one():
    """1 -> 2 goes first (offset 1), 0 -> 2 waits for the port of rank 2; 3 us each."""
    b = ProgramBuilder(3)
    for src in range(2):
        b.step(b.block(src, send=2), Op.SEND, cnt=2)
        b.step(b.block(2, recv=src), Op.RECV, cnt=2)
    return built(b)


def test_critical_path_over_a_port():
    program, machine = two_to_one(), switch(3)
    result = simulate(program, machine, 1.0)
    send = "gpu 0 tb 0 step 0 (s, 2 chunks to gpu 2)"
    assert critical_path(program, machine, result) == (
        PathPart(send, "switch->gpu2", 0.0, 3.0, "port wait"),
        PathPart(send, "gpu0->switch, switch->gpu2", 3.0, 6.0, "link"),
    )


def test_critical_path_over_latency_and_a_dependency():
    # 0 -> 1, then a copy in another block, then 1 -> 2; pipelined: 1 byte each, alpha 1
    b = ProgramBuilder(3)
    b.step(b.block(0, send=1), Op.SEND)
    got = b.step(b.block(1, recv=0), Op.RECV)
    copied = b.step(b.block(1), Op.COPY, after=[got])
    b.step(b.block(1, send=2), Op.SEND, after=[copied])
    b.step(b.block(2, recv=1), Op.RECV)
    program, machine = built(b), full(3)
    result = simulate(program, machine, 1.0, cost_model="pipelined")
    first, second = (
        f"gpu {r} tb {t} step 0 (s, 1 chunk to gpu {r + 1})" for r, t in ((0, 0), (1, 2))
    )
    assert critical_path(program, machine, result) == (
        PathPart(first, "gpu0->gpu1", 0.0, 1.0, "link"),
        PathPart(first, "gpu0->gpu1", 1.0, 2.0, "link"),
        PathPart("gpu 1 tb 1 step 0 (cpy)", "gpu 1 tb 0 step 0", 2.0, 2.0, "dependency"),
        PathPart(second, "gpu 1 tb 1 step 0", 2.0, 2.0, "dependency"),
        PathPart(second, "gpu1->gpu2", 2.0, 3.0, "link"),
        PathPart(second, "gpu1->gpu2", 3.0, 4.0, "link"),
    )


def test_critical_path_over_a_slot():
    # rank 1 takes the first of three messages when rank 2's 9 bytes are there, at 10
    b = ProgramBuilder(3)
    late = b.step(b.block(1, recv=2), Op.RECV, cnt=9)
    b.step(b.block(2, send=1), Op.SEND, cnt=9)
    send, recv = b.block(0, send=1), b.block(1, recv=0)
    for i in range(3):
        b.step(send, Op.SEND)
        b.step(recv, Op.RECV, after=[late] if i == 0 else [])
    program, machine = built(b), full(3)
    parts = critical_path(program, machine, simulate(program, machine, 1.0))
    assert [(p.reason, p.where, p.from_us, p.to_us) for p in parts] == [
        ("link", "gpu2->gpu1", 0.0, 10.0),
        ("dependency", "gpu 1 tb 0 step 0", 10.0, 10.0),
        ("slot", "gpu 1 tb 1 step 0", 10.0, 10.0),
        ("link", "gpu0->gpu1", 10.0, 12.0),
    ]


def test_critical_path_of_nothing():
    program = built(ProgramBuilder(2))
    assert critical_path(program, full(2), simulate(program, full(2), 1.0)) == ()


def test_spans_of_blocks_and_resources():
    program, machine = two_to_one(), switch(3)
    result = simulate(program, machine, 1.0)
    blocks = block_spans(program, result)
    assert list(
        zip(blocks.owner, blocks.step, blocks.kind, blocks.from_us, blocks.to_us, strict=True)
    ) == [
        (0, 0, WAIT, 0.0, 3.0),
        (0, 0, TRANSFER, 3.0, 6.0),
        (1, 1, TRANSFER, 0.0, 3.0),
        (2, 2, WAIT, 0.0, 6.0),
        (3, 3, WAIT, 0.0, 3.0),
    ]
    held = resource_spans(machine, result)
    names = [machine.resources[r] for r in held.owner]
    assert list(zip(names, held.step, held.from_us, held.to_us, strict=True)) == [
        ("gpu0->switch", 0, 3.0, 6.0),
        ("gpu1->switch", 1, 0.0, 3.0),
        ("switch->gpu2", 1, 0.0, 3.0),
        ("switch->gpu2", 0, 3.0, 6.0),
    ]


def test_trace_has_a_thread_per_block_and_per_used_resource(tmp_path):
    program, machine = two_to_one(), switch(3)
    result = simulate(program, machine, 1.0)
    write_trace(tmp_path / "t.json", program, machine, result)
    trace = json.loads((tmp_path / "t.json").read_text())
    assert trace["otherData"]["time_us"] == 6.0
    events = trace["traceEvents"]
    names = {(e["name"], e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M"}
    assert names["process_name", 2, 0] == "gpu 2"
    assert names["thread_name", 2, 1] == "tb 1 channel 0 recv 1"
    assert names["process_name", 3, 0] == "network"
    # ranks 0 and 1 and their egress ports are used, and the ingress port of rank 2
    assert [
        name for (kind, pid, _), name in names.items() if kind == "thread_name" and pid == 3
    ] == [
        "gpu0->switch",
        "gpu1->switch",
        "switch->gpu2",
    ]
    spans = [e for e in events if e["ph"] == "X"]
    assert {
        "ph": "X",
        "name": "s",
        "cat": "transfer",
        "pid": 0,
        "tid": 0,
        "ts": 3.0,
        "dur": 3.0,
        "args": {"step": "gpu 0 tb 0 step 0", "cnt": 2},
    } in spans
    assert len(spans) == 9
    busy = sum(e["dur"] for e in spans if e["pid"] == 3)
    assert busy == pytest.approx(result.resource_busy_us.sum())


def test_trace_is_the_same_bytes_each_time_and_zipped_on_demand(tmp_path):
    program, machine = ring_allgather(4), switch(4)
    for name in ("a.json", "b.json.gz", "c.json.gz"):
        write_trace(tmp_path / name, program, machine, simulate(program, machine, 1.0))
    zipped = (tmp_path / "b.json.gz").read_bytes()
    assert zipped == (tmp_path / "c.json.gz").read_bytes()
    assert gzip.decompress(zipped) == (tmp_path / "a.json").read_bytes()


def test_trace_of_nothing_is_still_json(tmp_path):
    program = built(ProgramBuilder(1))
    write_trace(tmp_path / "t.json", program, full(1), simulate(program, full(1), 1.0))
    names = [
        e["args"]["name"] for e in json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    ]
    assert names == ["gpu 0", "network"]


def test_path_without_resources_is_no_trouble():
    machine = network(2, {(0, 1): ([], 1.0, 0.0), (1, 0): ([], 1.0, 0.0)})
    program = ring_allgather(2)
    result = simulate(program, machine, 1.0)
    assert result.bottleneck() is None
    assert len(resource_spans(machine, result)) == 0
    assert [p.reason for p in critical_path(program, machine, result)] == ["link"]
