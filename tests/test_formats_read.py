"""MSCCL XML read as the runtimes read it, and nothing harmful read at all."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from execute_programs import IN, OUT, TMP, broadcast_chain, reduce_chain, samples
from hypothesis import given
from hypothesis import strategies as st

from explorer.errors import InputError, VerificationError
from explorer.formats.msccl_xml_read import read_msccl_xml
from explorer.formats.msccl_xml_tree import integer
from explorer.formats.msccl_xml_write import write_msccl_xml
from sim.program import (
    OP_READS_SRC,
    OP_RECEIVES,
    OP_SENDS,
    OP_WRITES_DST,
    Op,
    Program,
    ProgramBuilder,
)

FILES = Path(__file__).parent / "data" / "formats_xml"

HEADER = {
    "name": "t",
    "proto": "Simple",
    "nchannels": "1",
    "nchunksperloop": "2",
    "ngpus": "1",
    "coll": "allreduce",
    "inplace": "0",
    "outofplace": "1",
    "minBytes": "8",
    "maxBytes": "800",
}


def step(s: int, kind: str = "cpy", dep: tuple[int, int] = (-1, -1), **more: object) -> str:
    values = {
        "s": s,
        "type": kind,
        "srcbuf": "i",
        "srcoff": 0,
        "dstbuf": "o",
        "dstoff": 0,
        "cnt": 1,
        "depid": dep[0],
        "deps": dep[1],
        "hasdep": 0,
        **more,
    }
    return "<step " + " ".join(f'{k}="{v}"' for k, v in values.items() if v is not None) + "/>"


def tb(number: int, *steps: str, send: int = -1, recv: int = -1, chan: int = 0) -> str:
    inner = "\n".join(steps)
    return f'<tb id="{number}" send="{send}" recv="{recv}" chan="{chan}">\n{inner}\n</tb>'


def gpu(rank: int, *blocks: str) -> str:
    inner = "\n".join(blocks)
    return f'<gpu id="{rank}" i_chunks="2" o_chunks="2" s_chunks="0">\n{inner}\n</gpu>'


def file(tmp_path: Path, *gpus: str, **header: str | None) -> Path:
    values = {**HEADER, **header}
    attributes = " ".join(f'{k}="{v}"' for k, v in values.items() if v is not None)
    path = tmp_path / "f.xml"
    inner = "\n".join(gpus or [gpu(0, tb(0, step(0)))])
    path.write_text(f"<algo {attributes}>\n{inner}\n</algo>\n", encoding="utf-8")
    return path


def assert_same(left: Program, right: Program) -> None:
    for f in fields(Program):
        a, b = getattr(left, f.name), getattr(right, f.name)
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype, f.name
            assert a.tolist() == b.tolist(), f.name
        else:
            assert a == b, f.name


# -- round trips


@pytest.mark.parametrize("dialect", ["executor", "msccl"])
@pytest.mark.parametrize("name", sorted(samples()))
def test_written_and_read_is_the_program(name: str, dialect: str, tmp_path: Path) -> None:
    program = samples()[name]
    if dialect == "msccl":
        program = replace(program, in_place=False, min_bytes=16, max_bytes=1600)
    path = tmp_path / "f.xml"
    path.write_text(write_msccl_xml(program, dialect))
    back = read_msccl_xml(path)
    sizes = {key: getattr(back, key) for key in ("i_chunks", "o_chunks")}
    assert_same(replace(program, **sizes), back)
    assert write_msccl_xml(back, dialect) == path.read_text()


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Structurally right programs of any content."""
    ranks, nchunks = 3, 6
    b = ProgramBuilder(ranks)
    steps: dict[int, list[int]] = {r: [] for r in range(ranks)}
    ends: set[tuple[str, int, int, int]] = set()
    for _ in range(draw(st.integers(1, 6))):
        rank = draw(st.integers(0, ranks - 1))
        channel = draw(st.integers(0, 2))
        peers = {}
        for side in ("send", "recv"):
            peer = draw(st.sampled_from([-1, (rank + 1) % ranks, (rank + 2) % ranks]))
            free = (side, rank, peer, channel) not in ends
            peers[side] = peer if free else -1
            ends.add((side, rank, peers[side], channel))
        t = b.block(rank, channel=channel, **peers)
        allowed = [
            op
            for op in Op
            if op != Op.NOP
            and (not OP_SENDS[op] or peers["send"] >= 0)
            and (not OP_RECEIVES[op] or peers["recv"] >= 0)
        ]
        for _ in range(draw(st.integers(1, 5))):
            op = draw(st.sampled_from(allowed))
            cnt = draw(st.integers(1, 2))
            address = st.tuples(st.sampled_from([IN, OUT, TMP]), st.integers(0, nchunks - cnt))
            after = draw(st.lists(st.sampled_from(steps[rank]), max_size=4)) if steps[rank] else []
            steps[rank].append(
                b.step(
                    t,
                    op,
                    src=draw(address) if OP_READS_SRC[op] else (0, -1),
                    dst=draw(address) if OP_WRITES_DST[op] else (0, -1),
                    cnt=cnt,
                    after=after,
                )
            )
    return b.build(
        name="any",
        collective=draw(st.sampled_from(["allreduce", "alltoall"])),
        nchunks=nchunks,
        protocol=draw(st.sampled_from(["Simple", "LL", "LL128"])),
        in_place=draw(st.booleans()),
        min_bytes=draw(st.integers(0, 100)),
        max_bytes=draw(st.none() | st.integers(100, 1 << 40)),
        buffer_chunks=(nchunks, nchunks),
    )


@given(program=programs())
def test_any_program_comes_back(program: Program, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "any.xml"
    path.write_text(write_msccl_xml(program, "executor"))
    assert_same(program, read_msccl_xml(path))


@pytest.mark.parametrize("path", sorted(FILES.glob("*__*.xml")), ids=lambda p: p.stem)
@pytest.mark.parametrize("dialect", ["executor", "msccl"])
def test_published_files_settle_after_one_writing(path: Path, dialect: str, tmp_path: Path) -> None:
    once = write_msccl_xml(read_msccl_xml(path), dialect)
    again = tmp_path / "again.xml"
    again.write_text(once)
    assert write_msccl_xml(read_msccl_xml(again), dialect) == once


def test_a_published_file_by_hand() -> None:
    """TE-CCL's AllGather of 4: counts and places looked up in the file."""
    program = read_msccl_xml(FILES / "tecclx__64MB.xml")
    text = (FILES / "tecclx__64MB.xml").read_text()
    assert program.steps == text.count("<step") - text.count('type="nop"')
    assert program.blocks == text.count("<tb")
    assert (program.ranks, program.nchunks, program.collective) == (4, 4, "allgather")
    assert (program.in_place, program.out_of_place) == (True, False)
    assert (program.min_bytes, program.max_bytes) == (1, 1152921504606846976)


# -- header


def test_both_spellings_of_reduce_scatter(tmp_path: Path) -> None:
    for word in ("reducescatter", "reduce_scatter"):
        assert read_msccl_xml(file(tmp_path, coll=word)).collective == "reducescatter"


@pytest.mark.parametrize(
    ("text", "dialect", "expected"),
    [
        ("800", "executor", 800),
        ("800", "msccl", 799),
        ("800", None, 800),
        ("0", "executor", None),
        ("0", "msccl", -1),
        (None, "msccl", (1 << 27) - 1),
        (None, None, (1 << 27) - 1),
        (str(1 << 60), "msccl", None),
        ("0x320", "executor", 800),
    ],
)
def test_max_bytes(
    tmp_path: Path, text: str | None, dialect: str | None, expected: int | None
) -> None:
    program = read_msccl_xml(file(tmp_path, maxBytes=text), dialect)
    assert program.max_bytes == expected


def test_the_comment_names_the_runtime(tmp_path: Path) -> None:
    path = file(tmp_path, "<!-- written for msccl: whatever -->", gpu(0, tb(0, step(0))))
    assert read_msccl_xml(path).max_bytes == 799
    assert read_msccl_xml(path, "executor").max_bytes == 800


def test_placements_by_runtime(tmp_path: Path) -> None:
    both = file(tmp_path, inplace="1", outofplace="1")
    kinds = {d: read_msccl_xml(both, d) for d in ("executor", "msccl")}
    assert (kinds["executor"].in_place, kinds["executor"].out_of_place) == (True, True)
    assert (kinds["msccl"].in_place, kinds["msccl"].out_of_place) == (True, False)
    old = file(tmp_path, inplace="0", outofplace=None)
    assert (read_msccl_xml(old).in_place, read_msccl_xml(old).out_of_place) == (False, True)


def test_missing_attributes_name_who_needs_them(tmp_path: Path) -> None:
    old = file(tmp_path, outofplace=None, minBytes=None, maxBytes=None)
    assert read_msccl_xml(old).min_bytes == 0
    with pytest.raises(InputError, match="lacks outofplace minBytes maxBytes, which executor"):
        read_msccl_xml(old, "executor")
    with pytest.raises(InputError) as caught:
        read_msccl_xml(file(tmp_path, coll=None, inplace=None, outofplace=None, name=None))
    path = tmp_path / "f.xml"
    assert [str(p) for p in caught.value.problems] == [
        f"{path}:1: <algo> lacks coll, required by executor msccl rccl",
        f"{path}:1: <algo> lacks inplace, required by executor msccl rccl",
        f"{path}:1: <algo> lacks name, required by msccl",
        f"{path}:1: <algo> lacks outofplace, required by executor rccl",
    ]


def test_header_errors_come_together(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_msccl_xml(
            file(tmp_path, proto="simple", coll="all_reduce", nchannels="0", inplace="2")
        )
    messages = [p.message for p in caught.value.problems]
    assert messages == [
        "<algo> proto: got 'simple', did you mean 'Simple'?",
        "<algo> coll: got 'all_reduce', did you mean 'allreduce'?",
        "<algo> inplace: got '2', expected 0 to 1",
        "<algo> nchannels: got '0', expected 1 to 2147483647",
    ]


def test_a_root_is_read_or_found(tmp_path: Path) -> None:
    for program, root in ((broadcast_chain(4, 2), 2), (reduce_chain(4, 3), 3)):
        text = write_msccl_xml(program, "executor")
        assert f' root="{root}"' in text
        path = tmp_path / "r.xml"
        for version in (text, text.replace(f' root="{root}"', "")):
            path.write_text(version)
            assert read_msccl_xml(path).root == root
    assert read_msccl_xml(file(tmp_path)).root == -1


# -- steps and dependencies


def test_nops_belong_to_the_next_step_and_s_is_ignored(tmp_path: Path) -> None:
    program = read_msccl_xml(
        file(
            tmp_path,
            gpu(
                0,
                tb(1, step(0, hasdep=1), step(1, hasdep=1)),
                tb(
                    0, step(7, "nop", (1, 0), cnt=0), step(7, "cpy", (1, 1)), step(9, "nop", (1, 0))
                ),
            ),
        )
    )
    assert program.tb_id.tolist() == [0, 1]
    assert program.steps == 3
    assert program.dep_step[: program.dep_first[1]].tolist() == [1, 2]


def test_numbers_count_nops(tmp_path: Path) -> None:
    """Step 1 of tb 1 is its first real step: the nop before it has number 0."""
    program = read_msccl_xml(
        file(
            tmp_path,
            gpu(
                0,
                tb(0, step(0, hasdep=1), step(1, hasdep=1)),
                tb(1, step(0, "nop", (0, 0)), step(1, "cpy", (0, 1), hasdep=1), step(2, hasdep=1)),
                tb(2, step(0, "cpy", (1, 1))),
                tb(3, step(0, "cpy", (1, 2))),
            ),
        )
    )
    assert program.dep_step[program.dep_first[4] :].tolist() == [2, 3]


def test_a_wait_ends_at_the_next_flag(tmp_path: Path) -> None:
    program = read_msccl_xml(
        file(tmp_path, gpu(0, tb(0, step(0), step(1, hasdep=1)), tb(1, step(0, "cpy", (0, 0)))))
    )
    assert program.dep_step.tolist() == [1]


@pytest.mark.parametrize(
    "blocks",
    [
        [tb(0, step(0, hasdep=1), step(1)), tb(1, step(0, "cpy", (0, 1)))],
        [tb(0, step(0, "cpy", (0, 1)), step(1, hasdep=1))],
        [tb(0, step(0)), tb(1, step(0, "cpy", (0, 0)))],
    ],
    ids=["no flag there or later", "a later own step", "no flag at all"],
)
def test_a_wait_nobody_ends_is_a_deadlock(tmp_path: Path, blocks: list[str]) -> None:
    with pytest.raises(VerificationError, match="never signals it") as caught:
        read_msccl_xml(file(tmp_path, gpu(0, *blocks)))
    assert caught.value.findings[0].code == "DEADLOCK"


def test_a_wait_for_an_earlier_own_step_is_given(tmp_path: Path) -> None:
    program = read_msccl_xml(
        file(tmp_path, gpu(0, tb(0, step(0, hasdep=1), step(1, "cpy", (0, 0)))))
    )
    assert len(program.dep_step) == 0


def test_fused_reductions_use_the_last_count(tmp_path: Path) -> None:
    def counts(flag: int) -> list[int]:
        block = tb(
            0,
            step(0, "re", srcbuf="s", cnt=2, hasdep=flag),
            step(1, "re", srcbuf="s", srcoff=4, cnt=1),
        )
        return read_msccl_xml(file(tmp_path, gpu(0, block))).cnt.tolist()

    assert counts(0) == [1, 1]
    assert counts(1) == [2, 1]


def test_what_runtimes_ignore_is_ignored(tmp_path: Path) -> None:
    inside = '<copy i_off="0" o_off="0"/><extra><tb id="9"><step/></tb></extra>'
    block = tb(0, step(0, algostep="3"), "<other/>")
    path = file(tmp_path, "<!-- c -->", gpu(0, inside, block), redop="nop")
    program = read_msccl_xml(path)
    assert (program.blocks, program.steps) == (1, 1)


def test_unused_operands_are_normalised(tmp_path: Path) -> None:
    program = read_msccl_xml(
        file(
            tmp_path,
            gpu(0, tb(0, step(0, "s", srcbuf="o", dstbuf="s", dstoff=5), send=1)),
            gpu(1, tb(0, step(0, "r", srcbuf="o", srcoff=1, dstoff=1), recv=0)),
            ngpus="2",
        )
    )
    assert program.dst_off.tolist() == [-1, 1]
    assert program.src_off.tolist() == [0, -1]
    assert program.src_buf.tolist() == [OUT, 0]


def test_integers_as_strtol_reads_them() -> None:
    assert [integer(t) for t in ("7", "-1", "010", "0x1F", "+3", "0")] == [7, -1, 8, 31, 3, 0]
    for text in ("", "abc", "1.5", " 1", "1_0", "09", "0x", "--1", "\u0661"):
        with pytest.raises(ValueError, match=r".*"):
            integer(text)


# -- errors with their lines


@pytest.mark.parametrize(
    ("blocks", "line", "text"),
    [
        ([tb(0, step(0, "copy"))], 4, "<step> type: got 'copy', did you mean 'cpy'?"),
        ([tb(0, step(0, srcbuf="x"))], 4, "<step> srcbuf: got 'x', expected one of i, o, s"),
        ([tb(0, step(0, cnt=None, deps=None))], 4, "<step> lacks cnt deps"),
        ([tb(0, step(0, srcoff="one"))], 4, "<step> srcoff: got 'one', expected a 32-bit integer"),
        ([tb(0, step(0, cnt=1 << 31))], 4, "<step> cnt: got '2147483648'"),
        ([tb(0, step(0, srcoff=-1))], 4, "cpy with a negative offset or count"),
        ([tb(0, step(0, "s"))], 4, "a step of type s in a tb with send=-1"),
        ([tb(0, step(0, "rrc"), send=1)], 4, "a step of type rrc in a tb with recv=-1"),
        ([tb(0, step(0, dep=(3, 0)))], 4, "waits for tb 3, which GPU 0 does not have"),
        ([tb(0, step(0, "nop", (0, 0)), step(1))], 5, "must have a dependency of its own"),
        ([tb(1, step(0))], 2, "has tb ids [1], expected 0 to 0"),
        ([tb(0, step(0)), tb(0, step(0))], 2, "has tb ids [0, 0], expected 0 to 1"),
        ([tb(0, step(0), send=2)], 3, "<tb> send: got 2, expected -1 to 1"),
        ([tb(0, step(0), recv=0)], 3, "<tb> recv: got 0, the GPU itself"),
        ([tb(0, step(0), chan=1)], 3, "<tb> chan: got 1, nchannels is 1"),
        ([tb(0, step(0), chan=-1)], 3, "<tb> chan: got -1, nchannels is 1"),
        ([tb(0, "word", step(0))], 4, "text 'word' between elements"),
    ],
)
def test_errors_name_their_line(tmp_path: Path, blocks: list[str], line: int, text: str) -> None:
    path = file(tmp_path, gpu(0, *blocks), gpu(1), ngpus="2")
    with pytest.raises(InputError) as caught:
        read_msccl_xml(path)
    problem = caught.value.problems[0]
    assert problem.where == f"{path}:{line}"
    assert text in problem.message


def test_gpus_must_be_the_ranks(tmp_path: Path) -> None:
    for gpus, text in (
        ([gpu(0), gpu(0)], "<gpu> id 0 appears twice"),
        ([gpu(0), gpu(2)], "<gpu> id 2, ngpus is 2"),
        ([gpu(1)], "ngpus is 2, but there is no <gpu> 0"),
    ):
        with pytest.raises(InputError, match=text):
            read_msccl_xml(file(tmp_path, *gpus, ngpus="2"))
    with pytest.raises(InputError, match="but there is no <gpu> 1 2 3"):
        read_msccl_xml(file(tmp_path, gpu(0), ngpus="2147483647"))


def test_many_errors_are_cut(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="reading stopped here") as caught:
        read_msccl_xml(file(tmp_path, gpu(0, tb(0, *[step(0, "zzz")] * 500))))
    assert len(caught.value.problems) == 21


# -- files that are not programs


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "not XML: no element found"),
        (b"\x00\x01\x02\xff" * 100, "not XML"),
        (bytes(range(256)), "not XML"),
        (b"<algo", "not XML"),
        (b"<algo></gpu>", "not XML: mismatched tag"),
        (b"<system/>", "the first element is <system>, expected <algo>"),
        (b"<!DOCTYPE algo><algo/>", "a document type or entity"),
        (b'<!DOCTYPE a [<!ENTITY x "y">]><algo name="&x;"/>', "a document type or entity"),
        (b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><algo/>', "a document type or entity"),
        (b"<algo>" + b"<x>" * 100_000, "nest deeper than 16"),
        (b'<algo name="' + b"x" * 1_000_000 + b'"/>', "'name' is longer than 255 characters"),
        (b'<algo><gpu id="0' + b"0" * 300 + b'"/></algo>', "'id' is longer than 255 characters"),
        (b'<?xml version="1.0" encoding="rot13"?><algo/>', "<algo> lacks coll"),
        (b'<algo name="a" name="b"/>', "not XML: duplicate attribute"),
    ],
)
def test_harmful_and_broken_files(tmp_path: Path, content: bytes, text: str) -> None:
    path = tmp_path / "bad.xml"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_msccl_xml(path)
    assert text in str(caught.value)
    assert str(caught.value).startswith(str(path))


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.xml"):
        with pytest.raises(InputError, match="no such file"):
            read_msccl_xml(path)


def test_a_file_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.xml"
    with path.open("wb") as stream:
        stream.truncate((64 << 20) + 1)
    with pytest.raises(InputError, match="has 67108865 bytes"):
        read_msccl_xml(path)


@given(junk=st.binary(max_size=200), at=st.integers(0, 400))
def test_damaged_files_are_errors_or_programs(
    junk: bytes, at: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    good = (FILES / "tecclx__64MB.xml").read_bytes()[:400]
    path = tmp_path_factory.getbasetemp() / "junk.xml"
    path.write_bytes(good[:at] + junk + good[at:])
    with pytest.raises((InputError, VerificationError)):
        read_msccl_xml(path)
