"""Files: what the runtimes' readers do not accept, what each runtime refuses, hostile input."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.errors import InputError
from explorer.verify.report import Report
from explorer.verify.xml import verify_xml

DATA = Path(__file__).resolve().parent / "data" / "msccl_xml"
HEAD = {
    "name": "ag2",
    "proto": "Simple",
    "nchannels": "1",
    "nchunksperloop": "2",
    "ngpus": "2",
    "coll": "allgather",
    "inplace": "0",
    "outofplace": "1",
    "minBytes": "1024",
    "maxBytes": "1073741824",
}


def step(s: int, kind: str, src: str, dst: str, **changes: object) -> str:
    """``step(0, "s", "i0", "o0")`` with further attributes replaced; None leaves one out."""
    attributes: dict[str, object] = {
        "s": s,
        "type": kind,
        "srcbuf": src[0],
        "srcoff": src[1:],
        "dstbuf": dst[0],
        "dstoff": dst[1:],
        "cnt": 1,
        "depid": -1,
        "deps": -1,
        "hasdep": 0,
    } | changes
    return "<step " + " ".join(f'{k}="{v}"' for k, v in attributes.items() if v is not None) + "/>"


def tb(*steps: str, id: int = 0, send: int = -1, recv: int = -1, chan: int = 0) -> str:
    body = "".join(f"      {s}\n" for s in steps)
    return f'    <tb id="{id}" send="{send}" recv="{recv}" chan="{chan}">\n{body}    </tb>\n'


def gpu(rank: int, *blocks: str, i: int = 1, o: int = 2, s: int = 0) -> str:
    sizes = f'i_chunks="{i}" o_chunks="{o}" s_chunks="{s}"'
    return f'  <gpu id="{rank}" {sizes}>\n{"".join(blocks)}  </gpu>\n'


def algo(*gpus: str, **changes: str | None) -> str:
    head = " ".join(f'{k}="{v}"' for k, v in (HEAD | changes).items() if v is not None)
    return f"<algo {head}>\n{''.join(gpus)}</algo>\n"


def own(rank: int, *extra: str) -> str:
    """The block of a right 2-rank AllGather out of place; its steps stand in lines 4 to 6."""
    return tb(
        step(0, "s", "i0", "o0"),
        step(1, "cpy", "i0", f"o{rank}"),
        step(2, "r", "i0", f"o{1 - rank}"),
        *extra,
        send=1 - rank,
        recv=1 - rank,
    )


RIGHT = algo(gpu(0, own(0)), gpu(1, own(1)))


@pytest.fixture
def check(tmp_path: Path):
    def run(text: str | bytes, **how: object) -> Report:
        path = tmp_path / "a.xml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return verify_xml(path, **how)

    return run


def errors(report: Report) -> dict[str, str]:
    return {e.code: f"{e.where}: {e.message}" for e in report.errors}


@pytest.mark.parametrize("dialect", [None, "msccl", "executor", "rccl"])
def test_a_right_file(check, dialect: str | None) -> None:
    """Case C16b."""
    report = check(RIGHT, dialect=dialect)
    assert report.ok
    assert [w.message for w in report.warnings] == [
        "serves out-of-place calls only: in-place calls fall back to the library"
    ]
    assert report.file.endswith("a.xml")


def test_findings_name_line_and_step(check) -> None:
    text = algo(gpu(0, own(0)), gpu(1, own(1).replace('dstoff="1"', 'dstoff="2"')))
    assert errors(check(text))["BOUNDS"] == (
        "line 12, gpu 1 tb 0 step 1: writes o[2], but o_chunks is 2"
    )


def test_blocks_in_any_order(check) -> None:
    first, second = (
        tb(step(0, "cpy", "i0", "o0"), id=1),
        tb(step(0, "s", "i0", "o0"), step(1, "r", "i0", "o1"), send=1, recv=1),
    )
    assert check(algo(gpu(1, own(1)), gpu(0, first, second))).ok


def test_in_place_only_and_what_a_runtime_makes_of_it(check) -> None:
    """Case C14."""
    blocks = [
        tb(step(0, "s", f"o{r}", "o0"), step(1, "r", "o0", f"o{1 - r}"), send=1 - r, recv=1 - r)
        for r in range(2)
    ]
    text = algo(gpu(0, blocks[0]), gpu(1, blocks[1]), inplace="1", outofplace="0")
    report = check(text)
    assert report.ok
    assert "out-of-place calls fall back to the library" in report.warnings[0].message
    both = check(text.replace('outofplace="0"', 'outofplace="1"'))
    assert "out of place: s reads o[1] of gpu 1" in errors(both)["UNSET"]
    assert "msccl reads inplace alone" in " ".join(w.message for w in both.warnings)
    never = text.replace('inplace="1"', 'inplace="0"')
    assert "PLACEMENT" in errors(check(never, dialect="executor"))


def test_missing_attributes_and_who_needs_them(check) -> None:
    """Case C15: named each with the runtimes; an error only for a runtime that is named."""
    lacking = dict.fromkeys(("ngpus", "coll", "inplace", "outofplace", "minBytes", "maxBytes"))
    text = algo(gpu(0, own(0)), gpu(1, own(1)), **lacking)
    report = check(text)
    assert report.ok
    said = {w.message for w in report.warnings if w.code == "MISSING"}
    assert "attribute ngpus is missing (needed by msccl, executor, rccl)" in said
    assert "attribute minBytes is missing (needed by executor, rccl)" in said
    assert len(said) == len(lacking)
    assert "without coll the result cannot be compared" in {w.message for w in report.warnings}
    assert {e.message for e in check(text, dialect="msccl").errors} == {
        f"attribute {a} is missing (needed by msccl)" for a in ("ngpus", "coll", "inplace")
    }
    nameless = check(algo(gpu(0, own(0)), gpu(1, own(1)), name=None))
    assert nameless.warnings[0].message == "attribute name is missing (needed by msccl)"
    without = RIGHT.replace(' depid="-1"', "").replace(' i_chunks="1"', "").replace(' chan="0"', "")
    found = [w.message for w in check(without).warnings if w.code == "MISSING"]
    assert found == [
        f"attribute {a} is missing on {n} <{e}> (needed by msccl, executor, rccl)"
        for a, n, e in (("i_chunks", 2, "gpu"), ("chan", 2, "tb"), ("depid", 6, "step"))
    ]
    assert (
        "nothing can be checked" in errors(check(RIGHT.replace("nchunksperloop", "n")))["MISSING"]
    )
    assert "without a type" in errors(check(RIGHT.replace(' type="cpy"', "")))["MISSING"]


def test_size_ranges(check) -> None:
    """Case C16 and the readings of maxBytes."""
    zero = RIGHT.replace('"1024"', '"0"').replace('"1073741824"', '"0"')
    report = check(zero)
    assert report.ok
    assert "empty range to msccl, which never uses the file, and no limit to executor" in (
        " ".join(w.message for w in report.warnings)
    )
    assert "RANGE" in errors(check(zero, dialect="msccl"))
    assert check(zero, dialect="rccl").ok
    empty = RIGHT.replace('"1024"', '"2147483648"')
    assert "serves no size" in errors(check(empty))["RANGE"]
    assert check(RIGHT, dialect="executor", size_bytes=1 << 30).ok
    assert "not chosen" in errors(check(RIGHT, dialect="msccl", size_bytes=1 << 30))["RANGE"]
    assert check(RIGHT, dialect="msccl", size_bytes=(1 << 30) - 8).ok
    assert "outside 1024 to" in errors(check(RIGHT, size_bytes=512))["RANGE"]  # nobody picks it
    odd = check(RIGHT, dialect="executor", size_bytes=1028)
    assert "not a whole number of 2 chunks" in errors(odd)["RANGE"]


def test_a_rooted_file_serves_every_root_with_its_own(check) -> None:
    report = check(broadcast(1))
    assert report.ok
    assert "do not compare roots" in next(w.message for w in report.warnings if w.code == "ROOT")
    assert "UNSET" in errors(check(broadcast(1).replace("<algo ", '<algo root="1" ')))


def test_collectives_whose_meaning_is_not_known(check) -> None:
    text = RIGHT.replace('"allgather"', '"gather"').replace('inplace="0"', 'inplace="1"')
    report = check(text, dialect="rccl")
    assert report.ok
    assert "what gather must do is not known here" in report.warnings[-1].message


def test_wrong_offset_is_found_by_value(check) -> None:
    """Case C20."""
    wrong = own(0).replace('dstoff="1"', 'dstoff="0"')
    message = errors(check(algo(gpu(0, wrong), gpu(1, own(1)))))["RESULT"]
    assert "rank 0 output slot 1 never written; slot 0 written twice" in message


def test_deadlock_names_the_cycle(check) -> None:
    """Case C19."""
    blocks = [
        tb(
            step(0, "r", "i0", f"o{1 - r}"),
            step(1, "s", "i0", "o0"),
            step(2, "cpy", "i0", f"o{r}"),
            send=1 - r,
            recv=1 - r,
        )
        for r in range(2)
    ]
    message = errors(check(algo(gpu(0, blocks[0]), gpu(1, blocks[1]))))["DEADLOCK"]
    assert message.startswith("line 4, gpu 0 tb 0 step 0: ")
    assert "gpu0 tb0 step0 <-> gpu1 tb0 step0" in message


def test_two_blocks_on_one_connection(check) -> None:
    """Case C18."""
    double = tb(step(0, "s", "i0", "o0"), id=1, send=1)
    message = errors(check(algo(gpu(0, own(0), double), gpu(1, own(1)))))["CONNECTION"]
    assert message.startswith("line 8, gpu 0 tb 1: sends to gpu 1 on channel 0, as tb 0 does")


def broadcast(blocks: int, steps: int = 1, channels: int | None = None) -> str:
    """``blocks`` connections from gpu 0 to gpu 1 with ``steps`` chunks each."""
    n = blocks * steps
    per = range(blocks)
    channels = channels or blocks
    many = [[k * steps + c for c in range(steps)] for k in per]
    sends = [
        tb(*(step(c, "s", f"i{k}", f"o{k}") for c, k in enumerate(many[b])), id=b, send=1, chan=b)
        for b in per
    ]
    takes = [
        tb(*(step(c, "r", "i0", f"o{k}") for c, k in enumerate(many[b])), id=b, recv=0, chan=b)
        for b in per
    ]
    copies = [step(i, "cpy", f"i{71 * i}", f"o{71 * i}", cnt=min(71, n - 71 * i))
              for i in range(-(-n // 71))]  # fmt: skip
    return algo(
        gpu(0, *sends, tb(*copies, id=blocks), i=n, o=n),
        gpu(1, *takes, i=n, o=n),
        coll="broadcast",
        nchannels=str(channels),
        nchunksperloop=str(n),
    )


@pytest.mark.parametrize(
    ("text", "refusing", "words"),
    [
        (broadcast(70), {"msccl", "executor", "rccl"}, "nchannels is 70, limit 32"),
        (broadcast(70), {"rccl", "msccl", "executor"}, "thread blocks of gpu 0: 71, limit 64"),
        (broadcast(33), {"msccl", "executor"}, "nchannels is 33, limit 32"),
        (broadcast(1, steps=65), {"executor", "rccl"}, "steps of gpu 0 tb 0: 65, limit 64"),
        (broadcast(1, steps=257), {"msccl", "executor", "rccl"}, "257, limit 256"),
    ],
    ids=["channels", "blocks", "channels33", "steps65", "steps257"],
)
def test_limits_by_number_limit_and_target(check, text: str, refusing: set, words: str) -> None:
    """Case C17."""
    by = {d: check(text, dialect=d) for d in ("msccl", "executor", "rccl")}
    assert {d for d, report in by.items() if not report.ok} == refusing
    report = check(text)
    assert report.ok == (len(refusing) < 3)  # nobody left: an error without a dialect as well
    said = [f.message for f in (*report.errors, *report.warnings)]
    line = next(m for m in said if words in m)
    assert re.search(r"\((msccl|executor|rccl)", line)


def test_limits_of_numbers(check) -> None:
    far = algo(
        gpu(
            0,
            tb(step(0, "cpy", "i0", "s32768"), step(1, "cpy", "i0", "o0", cnt=72)),
            i=72,
            s=32769,
        ),
        ngpus="1", coll="custom", nchunksperloop="72",
    )  # fmt: skip
    said = [e.message for e in check(far, dialect="executor").errors]
    assert "dstoff is 32768, limit 32767 (executor)" in said
    assert "cnt is 72, limit 71 (executor)" in said
    waits = [
        tb(step(0, "cpy", "i0", f"s{k}", hasdep=1 if k == 128 else 0), id=k) for k in range(129)
    ]
    last = tb(step(0, "cpy", "s128", "o0", depid=128, deps=0), id=129)
    text = algo(gpu(0, *waits, last, s=129), ngpus="1", nchunksperloop="1", coll="allreduce")
    assert "waits for tb 128, limit 127 (msccl)" in errors(check(text, dialect="msccl"))["LIMIT"]


def test_fused_receives_do_not_run_on_rccl(check) -> None:
    blocks = [
        tb(step(0, "s", "i0", "o0"), step(1, "rrc", "i0", "o0"), send=1 - r, recv=1 - r)
        for r in range(2)
    ]
    text = algo(
        *(gpu(r, blocks[r], i=1, o=1) for r in range(2)), coll="allreduce", nchunksperloop="1"
    )
    assert check(text, dialect="executor").ok
    report = check(text, dialect="rccl")
    assert "2 fused receives" in errors(report)["OP"]
    assert [w.code for w in check(text).warnings] == ["OP", "PLACEMENT"]


def test_fused_reductions(check) -> None:
    def sums(count: int, **changes: object) -> str:
        adds = [step(k, "re", f"s{k}", "o0", **(changes if k else {})) for k in range(count)]
        return algo(gpu(0, tb(*adds), o=1, s=count), ngpus="1", coll="custom", nchunksperloop="1")

    def limits(text: str) -> list[str]:
        return [e.message for e in check(text, dialect="msccl").errors if e.code == "LIMIT"]

    assert limits(sums(15)) == []
    assert limits(sums(16)) == ["fused re: 16, limit 15 (msccl)"]
    assert limits(sums(16, hasdep=1)) == []  # a flag after each step keeps them apart
    two = sums(2).replace('o_chunks="1"', 'o_chunks="2"')
    assert "of the last cnt" not in errors(check(two)).get("FUSION", "")
    assert "theirs are 1, 2" in errors(check(sums(3, cnt=2).replace('"3"', '"9"')))["FUSION"]
    inside = algo(
        gpu(0, tb(step(0, "re", "o1", "o0"), step(1, "re", "o0", "o0")), o=2),
        ngpus="1", coll="custom", nchunksperloop="2",
    )  # fmt: skip
    assert "whose result it reads" in errors(check(inside))["FUSION"]


def test_reduce_scatter_is_spelt_two_ways(check) -> None:
    blocks = [
        tb(step(0, "s", f"i{1 - r}", "o0"), step(1, "rrc", f"i{r}", "o0"), send=1 - r, recv=1 - r)
        for r in range(2)
    ]
    text = algo(*(gpu(r, blocks[r], i=2, o=1) for r in range(2)), coll="reduce_scatter")
    assert check(text, dialect="msccl").ok
    message = errors(check(text, dialect="executor"))["COLL"]
    assert "'reduce_scatter' is never chosen, spelt 'reducescatter' there" in message
    other = text.replace("reduce_scatter", "reducescatter")
    assert check(other, dialect="executor").ok
    assert "spelt 'reduce_scatter' there" in errors(check(other, dialect="msccl"))["COLL"]
    assert check(other).ok
    unknown = errors(check(text.replace("reduce_scatter", "reducescater")))["COLL"]
    assert "did you mean 'reducescatter'" in unknown or "never chosen" in unknown


def test_buffer_sizes_msccl_compares(check) -> None:
    text = RIGHT.replace('i_chunks="1"', 'i_chunks="2"')
    assert check(text, dialect="executor").ok
    assert "has 1 (or 0: not named)" in errors(check(text, dialect="msccl"))["BUFFER"]


def test_numbering_and_dependencies(check) -> None:
    def with_(old: str, new: str) -> dict[str, str]:
        first = own(0).replace(old, new, 1)
        return errors(check(algo(gpu(0, first), gpu(1, own(1)))))

    assert "s is 2 where 1 was expected" in with_('s="1"', 's="2"')["STEP"]
    assert "expected -1 or a tb 0 to 0" in with_('depid="-1"', 'depid="3"')["DEPENDENCY"]
    assert (
        "waits for step 7 of tb 0, which has 3"
        in with_('depid="-1" deps="-1"', 'depid="0" deps="7"')["DEPENDENCY"]
    )
    assert "which never comes" in with_('depid="-1" deps="-1"', 'depid="0" deps="2"')["DEADLOCK"]
    assert "ids of gpu 0 are not 0 to 0" in with_('tb id="0"', 'tb id="1"')["BLOCK"]
    bad = errors(check(RIGHT.replace('gpu id="1"', 'gpu id="2"')))
    assert "gpu id is 2, expected each of 0 to 1 once" in bad["STRUCTURE"]
    assert (
        "ngpus is 3, it has 2"
        in errors(check(RIGHT.replace('ngpus="2"', 'ngpus="3"')))["STRUCTURE"]
    )
    assert "type is 'x'" in errors(check(RIGHT.replace('type="cpy"', 'type="x"')))["WORD"]


def test_flags(check) -> None:
    def text(flag: int) -> str:
        copy = tb(step(0, "cpy", "i0", "s0", hasdep=flag))
        use = tb(step(0, "cpy", "s0", "o0", depid=0, deps=0), id=1)
        return algo(gpu(0, copy, use, o=1, s=1), ngpus="1", coll="allreduce", nchunksperloop="1")

    assert check(text(1)).ok
    message = errors(check(text(0)))["HASDEP"]
    assert message.startswith("line 4: hasdep is 0, but line 7 waits")


def test_nops(check) -> None:
    def text(*steps: str) -> str:
        copies = [tb(step(0, "cpy", "i0", f"s{k}", hasdep=1), id=k) for k in range(2)]
        return algo(
            gpu(0, *copies, tb(*steps, id=2), o=1, s=2),
            ngpus="1", coll="allreduce", nchunksperloop="1",
        )  # fmt: skip

    def nop(s: int, **changes: object) -> str:
        return step(s, "nop", "i-1", "o-1", **({"cnt": 0, "depid": 0, "deps": 0} | changes))

    last = step(1, "cpy", "s1", "o0", depid=1, deps=0)
    assert check(text(nop(0), last)).ok
    raced = check(text(nop(0), step(1, "cpy", "s1", "o0", depid=0, deps=0)))
    assert "read after write of s[1]" in errors(raced)["RACE"]
    free = errors(check(text(nop(0), step(1, "cpy", "i0", "o0"))))
    assert "the step after nops has no dependency of its own" in free["NOP"]
    assert "exactly one dependency" in errors(check(text(nop(0, depid=-1, deps=-1), last)))["NOP"]
    assert "ends in a nop" in errors(check(text(step(0, "cpy", "i0", "o0"), nop(1))))["NOP"]
    warned = check(text(nop(0, hasdep=1), last))
    assert "hasdep on a nop does nothing" in " ".join(w.message for w in warned.warnings)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: '<?xml version="1.0"?>\n' + t, "not accepted by any runtime"),
        (lambda t: t.replace("\n  <gpu", "\n\t<gpu", 1), "tab between elements"),
        (lambda t: t.replace("<gpu id", "<gpu\tid", 1), "tab inside a tag"),
        (lambda t: t.replace("<gpu id", "<gpu\n id", 1), "line break inside a tag"),
        (lambda t: t.replace('cnt="1"', "cnt='1'", 1), "single-quoted"),
        (lambda t: t.replace('cnt="1"', 'cnt = "1"', 1), "space beside '='"),
        (lambda t: t.replace('name="ag2"', 'name="a&amp;b"'), "no entities"),
        (lambda t: t.replace('cnt="1"', 'cnt="1" cnt="1"', 1), "cnt given more than once"),
        (lambda t: t.replace("</tb>", "hello</tb>", 1), "text 'hello'"),
        (lambda t: t + t, "a second <algo>"),
        (lambda t: "<!--a=b -->" + t, "first word of a comment"),
        (lambda t: t.replace("</tb>", "<tb/></tb>", 1), "<tb> inside"),
    ],
)  # fmt: skip
def test_xml_the_runtimes_do_not_read(check, change, words: str) -> None:
    assert words in " ".join(str(e) for e in check(change(RIGHT)).errors)


def test_what_the_runtimes_do_read(check) -> None:
    for text in (
        RIGHT.replace("/>", " />"),
        RIGHT.replace("\n", "\r\n"),
        RIGHT.replace("\n", ""),
        "<!-- a comment -->\n" + RIGHT + "\n\n",
        RIGHT.replace('name="ag2"', 'name="a > b" note=""'),
        RIGHT.replace("<step ", "<step  "),
        RIGHT.replace("<gpu", "<other><x/></other><gpu", 1),
    ):
        assert check(text).ok, text
    assert "LIMIT" in errors(check(RIGHT.replace("<step ", "<step" + " " * 8)))
    assert "300 characters, limit 255" in errors(check(RIGHT.replace("ag2", "x" * 300)))["LIMIT"]


def test_numbers_as_strtol_reads_them(check) -> None:
    for text, value in (
        ("010", 8),
        ("0x10", 16),
        ("abc", 0),
        ("1.5", 1),
        (" 7", 7),
        ("9" * 30, 2**63 - 1),
        ("-0x", 0),
    ):
        report = check(RIGHT.replace('cnt="1"', f'cnt="{text}"', 1))
        said = [e.message for e in report.errors if e.code == "NUMBER"]
        assert f"cnt is {text!r}, which runtimes read as {value}: write decimals" in said
    assert (
        "cnt is 4294967296"
        in errors(check(RIGHT.replace('cnt="1"', 'cnt="4294967296"', 1)))["NUMBER"]
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\x7fELF\0\0\0", "is binary"),
        (b"no markup at all", "no element"),
        (b"<system version='1'></system>", "not an MSCCL algorithm"),
        (b'<!DOCTYPE a [<!ENTITY b "c">]><algo/>', "DTDs, entities and CDATA are refused"),
        (b'<algo name="' + b"x" * 100_000 + b'">', "tag longer than 65536 bytes"),
        (b'<algo name="x"', "file ends inside a tag"),
        (b"<algo><gpu></algo>", "</algo> closes nothing, inside <gpu>"),
        (b"<algo>", "file ends inside <algo> of line 1"),
        (b"<algo name=x></algo>", "malformed tag"),
        (b"<algo></ >", "malformed closing tag"),
        (b"<!-- <algo/>", "without -->"),
        (b"<algo>" + b"<a>" * 100, "nested deeper than 32"),
    ],
)
def test_what_is_no_algorithm_is_refused(check, content: bytes, words: str) -> None:
    with pytest.raises(InputError) as caught:
        check(content)
    assert words in str(caught.value)
    assert caught.value.problems[0].where.split(":")[0].endswith("a.xml")


def test_truncated_anywhere_is_refused_or_found(check) -> None:
    for end in range(1, len(RIGHT) - len("</algo>\n") + 7, 13):
        with pytest.raises(InputError, match="ends inside"):
            check(RIGHT[:end])


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        verify_xml(tmp_path / "none.xml")
    with pytest.raises(InputError, match="not a regular file"):
        verify_xml(tmp_path)
    with pytest.raises(InputError, match="did you mean 'executor'"):
        verify_xml(tmp_path, dialect="executer")


def test_hostile_sizes_cost_no_memory(check) -> None:
    huge = RIGHT.replace('nchunksperloop="2"', 'nchunksperloop="2000000000"')
    assert "this checker takes" in errors(check(huge, size_bytes=1 << 40))["SIZE"]
    many = RIGHT.replace("<gpu", "<x " + 'a="" ' * 9_000 + "/>\n<gpu", 1)
    assert "LIMIT" in errors(check(many))
    quotes = b'<algo a="' + b">" * 60_000 + b'">' + b"</algo>"
    assert "STRUCTURE" in errors(check(quotes))


@settings(max_examples=300)
@given(st.integers(0, 1 << 30))
def test_damaged_files_give_findings_or_input_errors(tmp_path_factory, seed: int) -> None:
    """Anything but a report or an InputError is a bug."""
    rng = random.Random(seed)
    stem = rng.choice(["tecclx__test", "tools__ar_ncv4v2_4_1", "tools__ar_ring_4_2_1_Simple"])
    data = bytearray((DATA / f"{stem}.xml").read_bytes())
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data))
        kind = rng.randrange(4)
        if kind == 0:
            del data[at : at + rng.randint(1, 40)]
        elif kind == 1:
            data[at] = rng.choice(b'<>"/= \n\tx09-')
        elif kind == 2:
            data[at:at] = data[at : at + rng.randint(1, 200)]
        else:
            numbers = [m.span(1) for m in re.finditer(rb'="(-?\d+)"', data)]
            first, last = rng.choice(numbers)
            data[first:last] = str(rng.choice([-2, 0, 1, 3, 71, 9999, 1 << 40])).encode()
    path = tmp_path_factory.mktemp("damaged") / "a.xml"
    path.write_bytes(bytes(data))
    try:
        report = verify_xml(path, dialect=rng.choice([None, "msccl", "executor", "rccl"]))
    except InputError:
        return
    assert report.ok == (not report.errors)
    assert verify_xml(path) == verify_xml(path)
