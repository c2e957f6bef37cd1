"""Programs as MSCCL XML: the text, the limits of the runtimes, and files that appear whole."""

from __future__ import annotations

import doctest
import importlib
import re
from dataclasses import fields, replace
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from execute_programs import (
    IN,
    OUT,
    TMP,
    allgather_ring,
    allreduce_ring,
    alltoall_direct,
    broadcast_chain,
    build,
    reducescatter_direct,
    samples,
)
from golden_xml import FOLDER, golden_files

from explorer.errors import InputError
from explorer.formats.dialects import DIALECTS, UNLIMITED, LimitError, exceeded, limits_of
from explorer.formats.fusion import fused_counts, fusible
from explorer.formats.msccl_xml_read import read_msccl_xml
from explorer.formats.msccl_xml_write import export_xml, program_name, write_msccl_xml
from sim.program import Op, Program, ProgramBuilder

ALGO = [
    "name",
    "proto",
    "nchannels",
    "nchunksperloop",
    "ngpus",
    "coll",
    "inplace",
    "outofplace",
    "minBytes",
    "maxBytes",
]
STEP = ["s", "type", "srcbuf", "srcoff", "dstbuf", "dstoff", "cnt", "depid", "deps", "hasdep"]


def algo(text: str) -> dict[str, str]:
    return dict(ET.fromstring(text).attrib)


# -- the text


@pytest.mark.parametrize("name", sorted(golden_files()))
def test_golden_files(name: str) -> None:
    assert (FOLDER / name).read_bytes() == golden_files()[name].encode("ascii")


def test_no_golden_file_is_left_over() -> None:
    assert {p.name for p in FOLDER.glob("*.xml")} == set(golden_files())


@pytest.mark.parametrize("name", sorted(samples()))
@pytest.mark.parametrize("dialect", ["executor", "msccl"])
def test_the_text_is_what_hand_written_parsers_read(name: str, dialect: str) -> None:
    text = write_msccl_xml(samples()[name], dialect, placement="out")
    assert text.startswith("<algo ")
    assert text.endswith("</algo>\n")
    assert text.isascii()
    assert not set("\t\r'&;") & set(text)
    root = ET.fromstring(text)
    assert list(root.attrib)[:10] == ALGO
    assert len(root.attrib) <= 16
    for gpu in root:
        assert list(gpu.attrib) == ["id", "i_chunks", "o_chunks", "s_chunks"]
        assert [tb.get("id") for tb in gpu] == [str(i) for i in range(len(gpu))]
        for tb in gpu:
            assert list(tb.attrib) == ["id", "send", "recv", "chan"]
            assert [step.get("s") for step in tb] == [str(i) for i in range(len(tb))]
            assert tb[-1].get("type") != "nop"
            assert all(list(step.attrib) == STEP for step in tb)
    for line in text.splitlines():
        assert line.count("<") == line.count(">") == 1
        assert "  " not in line.strip()


def test_dependencies_become_nops_and_numbers_count_them() -> None:
    b = ProgramBuilder(1)
    t, u, w = b.block(0), b.block(0), b.block(0)
    firsts = [b.step(t, Op.COPY, src=(IN, k), dst=(TMP, k)) for k in range(2)]
    second = b.step(u, Op.COPY, src=(TMP, 0), dst=(TMP, 2), after=[firsts[0], firsts[1]])
    b.step(u, Op.COPY, src=(TMP, 1), dst=(OUT, 1))
    b.step(w, Op.COPY, src=(TMP, 2), dst=(OUT, 0), after=[second])
    text = write_msccl_xml(build(b, "deps", "allreduce", 2, "Simple"), "executor")
    blocks = [
        [tuple(step.get(k) for k in ("s", "type", "depid", "deps", "hasdep")) for step in tb]
        for tb in ET.fromstring(text)[0]
    ]
    assert blocks == [
        [("0", "cpy", "-1", "-1", "1"), ("1", "cpy", "-1", "-1", "1")],
        [
            ("0", "nop", "0", "0", "0"),
            ("1", "cpy", "0", "1", "1"),
            ("2", "cpy", "-1", "-1", "0"),
        ],
        [("0", "cpy", "1", "1", "0")],
    ]


def test_size_ranges_by_runtime() -> None:
    program = allgather_ring(3, in_place=False, min_bytes=48, max_bytes=4800)
    got = {d: algo(write_msccl_xml(program, d)) for d in ("executor", "msccl")}
    assert (got["executor"]["minBytes"], got["executor"]["maxBytes"]) == ("48", "4800")
    assert (got["msccl"]["minBytes"], got["msccl"]["maxBytes"]) == ("48", "4801")


def test_no_limit_by_runtime() -> None:
    free = allgather_ring(3, in_place=False)
    scratch = replace(reducescatter_direct(3), in_place=False)
    assert algo(write_msccl_xml(free, "executor"))["maxBytes"] == "0"
    assert algo(write_msccl_xml(scratch, "executor"))["maxBytes"] == "0"
    assert algo(write_msccl_xml(free, "msccl"))["maxBytes"] == str(1 << 60)
    # msccl allocates scratch for maxBytes when it starts
    assert algo(write_msccl_xml(scratch, "msccl"))["maxBytes"] == str(1 << 27)


def test_spelling_of_reduce_scatter() -> None:
    program = reducescatter_direct(3)
    spelt = {
        d: algo(write_msccl_xml(program, d, placement="out"))["coll"] for d in ("executor", "msccl")
    }
    assert spelt == {"executor": "reducescatter", "msccl": "reduce_scatter"}


def test_placements() -> None:
    both = allgather_ring(3)

    def kinds(dialect: str, placement: str | None) -> tuple[str, str]:
        got = algo(write_msccl_xml(both, dialect, placement=placement))
        return got["inplace"], got["outofplace"]

    assert kinds("executor", None) == ("1", "1")
    assert kinds("executor", "in") == ("1", "0")
    assert kinds("msccl", "in") == ("1", "0")
    assert kinds("msccl", "out") == ("0", "1")
    with pytest.raises(InputError, match="one file per placement"):
        write_msccl_xml(both, "msccl")
    with pytest.raises(InputError, match="got 'in', the program serves out"):
        write_msccl_xml(alltoall_direct(3), "executor", placement="in")


def test_buffers_have_the_collectives_size_or_none() -> None:
    text = write_msccl_xml(broadcast_chain(3, root=1), "executor")
    sizes = [tuple(g.get(k) for k in ("i_chunks", "o_chunks")) for g in ET.fromstring(text)]
    assert sizes == [("0", "2"), ("2", "2"), ("0", "2")]
    text = write_msccl_xml(reducescatter_direct(3), "executor")
    gpu = ET.fromstring(text)[0]
    assert [gpu.get(k) for k in ("i_chunks", "o_chunks", "s_chunks")] == ["3", "1", "2"]


def test_names() -> None:
    assert program_name("a b/c<é>") == "a_b_c___"
    assert program_name("x" * 70) == "x" * 63
    assert program_name("") == "program"
    assert program_name("2D", "alltoall") == "2D_"
    assert program_name("2D", "allgather") == "2D"


# -- fusion


def reductions(counts: list[int], offsets: list[int] | None = None) -> Program:
    """Scratch chunks added into output chunk 0 one by one."""
    b = ProgramBuilder(1)
    t = b.block(0)
    for k, cnt in enumerate(counts):
        b.step(t, Op.REDUCE, src=(TMP, k), dst=(OUT, offsets[k] if offsets else 0), cnt=cnt)
    return build(b, "re", "allreduce", 4, "Simple")


def flags(program: Program) -> list[int]:
    root = ET.fromstring(write_msccl_xml(program, "executor"))
    return [int(step.get("hasdep", "")) for step in root.iter("step")]


def test_equal_reductions_may_fuse_in_runs_of_15() -> None:
    assert flags(reductions([1] * 15)) == [0] * 15
    assert flags(reductions([1] * 32)) == [*[0] * 14, 1, *[0] * 14, 1, 0, 0]


def test_reductions_that_would_change_are_kept_apart() -> None:
    # the loader would use the last count for both
    assert flags(reductions([2, 1, 1])) == [1, 0, 0]
    assert flags(reductions([1, 1], offsets=[0, 1])) == [0, 0]
    b = ProgramBuilder(1)
    t = b.block(0)
    b.step(t, Op.REDUCE, src=(OUT, 1), dst=(OUT, 0))
    b.step(t, Op.REDUCE, src=(OUT, 0), dst=(OUT, 0))  # reads what the first one writes
    assert flags(build(b, "own", "allreduce", 2, "Simple")) == [1, 0]


def test_fused_counts_are_the_last_one() -> None:
    program = reductions([3, 2, 1])
    unraised = np.zeros(3, np.bool_)
    assert fusible(program, unraised).tolist() == [True, True, False]
    assert fused_counts(program, unraised).tolist() == [1, 1, 1]
    assert fused_counts(program, np.array([True, False, False])).tolist() == [3, 1, 1]


# -- limits


def wide(blocks: int, channels: int = 1) -> Program:
    b = ProgramBuilder(2)
    for k in range(blocks):
        b.step(b.block(0, send=1, channel=k % channels), Op.SEND, src=(IN, 0))
        b.step(b.block(1, recv=0, channel=k % channels), Op.RECV, dst=(OUT, 0))
    return build(b, "wide", "broadcast", 1, "Simple", root=0, in_place=False)


def deep(steps: int, cnt: int = 1, offset: int = 0) -> Program:
    b = ProgramBuilder(1)
    t = b.block(0)
    for _ in range(steps):
        b.step(t, Op.COPY, src=(IN, offset), dst=(OUT, offset), cnt=cnt)
    return build(b, "deep", "allreduce", offset + cnt, "Simple")


def local(blocks: int, waits_for: int) -> Program:
    b = ProgramBuilder(1)
    steps = [b.step(b.block(0), Op.COPY, src=(IN, 0), dst=(TMP, k)) for k in range(blocks)]
    b.step(b.block(0), Op.COPY, src=(TMP, 0), dst=(OUT, 0), after=[steps[waits_for]])
    return build(b, "local", "allreduce", 1, "Simple")


@pytest.mark.parametrize(
    ("fits", "too_much", "dialect", "text"),
    [
        (local(63, 0), local(64, 0), "rccl", "65 thread blocks, rccl takes at most 64"),
        (local(215, 0), local(216, 0), "msccl", "217 thread blocks, msccl takes at most 216"),
        (deep(64), deep(65), "executor", "65 steps with nops, executor takes at most 64"),
        (deep(256), deep(257), "msccl", "257 steps with nops, msccl takes at most 256"),
        (deep(1, cnt=71), deep(1, cnt=72), "msccl", "72 chunks in one step"),
        (
            deep(1, offset=32767),
            deep(1, offset=32768),
            "executor",
            "32768 as an offset, executor takes at most 32767",
        ),
        (wide(32, 32), wide(33, 33), "executor", "33 channels, executor takes at most 32"),
        (wide(128, 128), wide(129, 129), "rccl", "129 channels, rccl takes at most 128"),
        (local(200, 127), local(200, 128), "executor", "128 as a thread block to wait for"),
    ],
)
def test_each_limit_at_its_edge(fits: Program, too_much: Program, dialect: str, text: str) -> None:
    here = {f.message for f in exceeded(fits, dialect)}
    assert not any(text.partition(" ")[2] in message for message in here)
    found = exceeded(too_much, dialect)
    assert text in "\n".join(f.message for f in found)
    with pytest.raises(LimitError, match=re.escape(text)):
        write_msccl_xml(too_much, dialect, placement="out")


def test_nops_count_against_the_step_limit() -> None:
    b = ProgramBuilder(1)
    steps = [b.step(b.block(0), Op.COPY, src=(IN, 0), dst=(TMP, k)) for k in range(33)]
    t = b.block(0)
    b.step(t, Op.COPY, src=(TMP, 0), dst=(OUT, 0), after=steps[:32])
    b.step(t, Op.COPY, src=(TMP, 0), dst=(OUT, 0), after=steps[:32])
    program = build(b, "nops", "allreduce", 1, "Simple")
    assert exceeded(program, "executor") == []
    b.depend(len(steps), steps[32])
    (finding,) = exceeded(build(b, "nops", "allreduce", 1, "Simple"), "executor")
    assert str(finding) == ("LIMIT gpu 0 tb 33: 65 steps with nops, executor takes at most 64")


def test_nodes_to_read() -> None:
    b = ProgramBuilder(1)
    for _ in range(63):
        t = b.block(0)
        for _ in range(64):
            b.step(t, Op.COPY, src=(IN, 0), dst=(OUT, 0))
    program = build(b, "nodes", "allreduce", 1, "Simple")
    # algo, 1 gpu, 63 tbs, 63 * 64 steps
    assert [f.message for f in exceeded(program, "executor")] == [
        "4097 XML nodes to read, executor takes at most 4095"
    ]


def test_blocks_of_one_channel() -> None:
    b = ProgramBuilder(34)
    for peer in range(1, 34):
        b.step(b.block(0, send=peer), Op.SEND, src=(IN, 0))
        b.step(b.block(peer, recv=0), Op.RECV, dst=(OUT, 0))
    program = build(b, "fan", "broadcast", 1, "Simple", root=0, in_place=False)
    (finding,) = exceeded(program, "executor")
    assert str(finding) == (
        "LIMIT gpu 0 channel 0: 33 thread blocks that send, executor takes at most 32"
    )


def test_worst_place_first_and_how_many_more() -> None:
    b = ProgramBuilder(1)
    for steps in (65, 70, 66):
        t = b.block(0)
        for _ in range(steps):
            b.step(t, Op.COPY, src=(IN, 0), dst=(OUT, 0))
    (finding,) = exceeded(build(b, "x", "allreduce", 1, "Simple"), "executor")
    assert str(finding) == (
        "LIMIT gpu 0 tb 1: 70 steps with nops, executor takes at most 64 (and 2 more places)"
    )


def test_rccl_runs_no_fused_receives() -> None:
    found = exceeded(allreduce_ring(3), "rccl")
    assert {f.code for f in found} == {"TYPE"}
    assert [f.message.split()[2] for f in found] == ["rcs", "rrs", "rrcs"]
    assert exceeded(alltoall_direct(3), "rccl") == []


def test_unlimited_has_no_limit_and_no_file() -> None:
    program = deep(1000)
    assert exceeded(program, UNLIMITED) == []
    assert {getattr(limits_of(UNLIMITED), f.name) for f in fields(limits_of(UNLIMITED))} == {None}
    with pytest.raises(InputError) as caught:
        write_msccl_xml(program, UNLIMITED)
    assert "no runtime loads it" in str(caught.value)
    assert "1000 steps with nops, executor takes at most 64" in str(caught.value)


def test_empty_programs_exceed_nothing() -> None:
    empty = ProgramBuilder(1).build(name="none", collective="allreduce", nchunks=1)
    for dialect in DIALECTS:
        assert exceeded(empty, dialect) == []
    assert len(ET.fromstring(write_msccl_xml(empty, "executor"))) == 1


def test_what_no_file_can_say() -> None:
    program = allgather_ring(3)
    for change, text in (
        ({"max_bytes": 10, "min_bytes": 20}, "20 to 10 bytes holds no size"),
        ({"max_bytes": 0}, "maxBytes 0 would mean no limit to executor"),
        ({"nchunks": 4}, "4 chunks do not divide by 3 ranks"),
        ({"nchunks": 6, "dst_off": program.dst_off + 4}, "addresses o[6:7] of a buffer of 6"),
        ({"collective": "custom"}, "executor has no collective 'custom'"),
        ({"in_place": False, "out_of_place": False}, "neither in nor out of place"),
    ):
        with pytest.raises(InputError, match=re.escape(text)):
            write_msccl_xml(replace(program, **change), "executor")
    with pytest.raises(InputError, match="did you mean 'executor'"):
        write_msccl_xml(program, "excutor")
    with pytest.raises(InputError, match="sends to gpu 1 on channel 0 like tb 0"):
        write_msccl_xml(wide(2), "executor")


# -- export


def test_export_verifies_the_file_under_its_name_and_then_places_it(tmp_path: Path) -> None:
    target = tmp_path / "ring.xml"
    seen = []

    def check(file: Path) -> None:
        assert file.name == "ring.xml"
        assert not target.exists()
        seen.append(read_msccl_xml(file).steps)

    program = allgather_ring(3)
    export_xml(program, target, "executor", check)
    assert seen == [program.steps]
    assert target.read_text() == write_msccl_xml(program, "executor")
    assert [p.name for p in tmp_path.iterdir()] == ["ring.xml"]


def test_a_failed_check_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "ring.xml"
    target.write_text("before")

    def refuse(_: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_xml(allgather_ring(3), target, "executor", refuse)
    assert target.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["ring.xml"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("../ring.xml", "may not climb"),
        ("file/ring.xml", "is a file, not a directory"),
        ("file/deeper/ring.xml", "is a file, not a directory"),
        ("folder", "is a directory"),
        ("absent/ring.xml", "does not exist"),
        ("x" * 300 + ".xml", "cannot be written"),
    ],
)
def test_paths_that_are_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=text):
        export_xml(allgather_ring(3), tmp_path / name, "executor", lambda _: None)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="a directory nobody can write to")
def test_a_read_only_directory_is_refused() -> None:
    with pytest.raises(InputError, match="cannot be written"):
        export_xml(allgather_ring(3), Path("/proc/ring.xml"), "executor", lambda _: None)


@pytest.mark.parametrize("module", ["dialects", "msccl_xml_write", "msccl_xml_read"])
def test_examples(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"explorer.formats.{module}"))
    assert result.failed == 0
