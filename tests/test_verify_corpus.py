"""Published files: the verdicts of an independent checker are reproduced.

A few files lie in ``tests/data/msccl_xml``; the others are looked for beside the checkout.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from explorer.verify.names import Names
from explorer.verify.progress import fewest_slots
from explorer.verify.report import Ledger
from explorer.verify.runtimes import RUNTIMES
from explorer.verify.spec import spec_of
from explorer.verify.structure import check_structure
from explorer.verify.xml import read_header, verify_xml
from explorer.verify.xml_program import program_of
from explorer.verify.xml_tree import read_document

ROOT = Path(__file__).resolve().parent
DATA = ROOT / "data" / "msccl_xml"
CORPUS = ROOT.parent.parent / "shared" / "corpus" / "msccl_xml"
CASES = ROOT.parent.parent / "shared" / "cases"


def index(folder: Path) -> list[tuple[Path, dict[str, str]]]:
    table = folder / "INDEX.tsv"
    if not table.is_file():
        return []
    with table.open(encoding="utf-8") as file:
        return [(folder / row["file"], row) for row in csv.DictReader(file, delimiter="\t")]


KNOWN = index(DATA) + index(CORPUS)
SLOTS = [entry for entry in KNOWN if entry[1]["fewest FIFO slots it needs"] != "-"]


def name(value: object) -> str:
    return f"{value.parent.name[:4]}-{value.stem}" if isinstance(value, Path) else ""


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of published files is not here")
def test_the_corpus_is_the_one_known() -> None:
    assert len(index(CORPUS)) == 52


@pytest.mark.parametrize(("path", "row"), KNOWN, ids=name)
def test_verdict(path: Path, row: dict[str, str]) -> None:
    report = verify_xml(path)
    verdict = row["verdict"]
    if verdict == "valid":
        assert report.ok, report.errors
    else:
        assert {e.code for e in report.errors} == {verdict.split()[0].rstrip(":")}
    takes = [d for d in RUNTIMES if verify_xml(path, dialect=d).ok]
    assert takes == row["runtimes that accept it as it is"].replace("-", "").split(",") or (
        takes == [] and row["runtimes that accept it as it is"] == "-"
    )


@pytest.mark.parametrize(("path", "row"), SLOTS, ids=name)
def test_fewest_slots(path: Path, row: dict[str, str]) -> None:
    ledger = Ledger()
    document = read_document(path, ledger)
    built = program_of(document, read_header(document, ledger), None, ledger)
    assert built is not None
    spec = spec_of(built.program, None, ledger)
    assert spec is not None
    links = check_structure(built.program, spec, Names(built.program), ledger)
    assert links is not None
    assert fewest_slots(built.program, links) == int(row["fewest FIFO slots it needs"])


def test_limit_of_recursive_doubling_is_8_mib() -> None:
    path = DATA / "tools__ag_recdbl_8_1.xml"
    (finding,) = verify_xml(path).errors
    assert "hangs above 8388608 bytes (8M)" in finding.message
    assert verify_xml(path, size_bytes=8 << 20).ok
    assert not verify_xml(path, size_bytes=16 << 20).ok


def test_a_copy_element_is_no_copy() -> None:
    """Case C50: TACCL exports the own chunk as <copy>, which no runtime reads."""
    report = verify_xml(DATA / "taccl_xml_alltoall_2x4_mi300x_raw.xml")
    assert [e.message for e in report.errors] == [
        f"rank {r} output slot {r} never written" for r in range(8)
    ]
    ignored = next(w for w in report.warnings if w.code == "IGNORED")
    assert "8 <copy>" in ignored.message
    assert "must be a cpy step" in ignored.message


def test_wrong_sums_name_the_step_that_counts_twice() -> None:
    message = verify_xml(DATA / "tools__ar_pcie_hier_4_1.xml").errors[0].message
    assert "slot 0 written twice: it holds a sum of chunk 0 in which gpu0 tb0 step1" in message
    assert "counts rank 1 twice" in message


@pytest.mark.parametrize(
    "stem", ["tools__ar_hier_4_2_1", "lyd__allreduce_binary_tree_Simple_gpu2_ins1"]
)
def test_missing_size_range_is_a_warning_on_import_and_an_error_for_a_runtime(stem: str) -> None:
    """Case C55."""
    report = verify_xml(DATA / f"{stem}.xml")
    assert report.ok
    missing = [w.message for w in report.warnings if w.code == "MISSING"]
    assert missing == [
        f"attribute {a} is missing (needed by executor, rccl)"
        for a in ("outofplace", "minBytes", "maxBytes")
    ]
    assert {e.code for e in verify_xml(DATA / f"{stem}.xml", dialect="executor").errors} == {
        "MISSING"
    }


@pytest.mark.skipif(not CASES.is_dir(), reason="the case files are not here")
@pytest.mark.parametrize(
    ("stem", "codes", "text"),
    [
        ("c14_inplace_only", set(), ""),
        ("c15_missing_attributes", set(), ""),
        ("c16_zero_byte_range", set(), ""),
        ("c16b_good_allgather2", set(), ""),
        ("c17_too_many_threadblocks_channels", {"LIMIT", "RANGE", "RESULT"}, "limit 64 (rccl)"),
        ("c18_two_tbs_same_channel_same_peer", {"CONNECTION"}, "channel 0, as tb 0 does"),
        ("c19_deadlock_recv_first", {"DEADLOCK"}, "gpu0 tb0 step0 <-> gpu1 tb0 step0"),
        ("c20_wrong_offset", {"RESULT"}, "output slot 1 never written; slot 0 written twice"),
    ],
)
def test_cases(stem: str, codes: set[str], text: str) -> None:
    report = verify_xml(CASES / f"{stem}.xml")
    assert {e.code for e in report.errors} == codes
    assert text in " ".join(str(e) for e in report.errors)
