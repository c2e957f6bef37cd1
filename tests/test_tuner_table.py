"""Tables of which algorithm runs at which size: read, and checked line by line."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.cli.main import main
from explorer.errors import InputError
from explorer.formats.tuner_table import (
    check_tuner_table,
    looks_like_tuner_table,
    read_tuner_table,
)

ROOT = Path(__file__).resolve().parent
SHARED = ROOT.parent.parent / "shared"
HEAD = "# collective,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks\n"
C52 = HEAD + (
    "allreduce,0,65536,tree,ll,-1,2,16\n"
    "allreduce,32768,1048576,ring,ll128,-1,2,16\n"
    "allreduce,4194304,4294967295,ring,simple,16,2,16\n"
    "allreduce,1048577,1048576,nvls,simple,-1,1,8\n"
    "allgather,0,65536,tree,ll,-1,2,16\n"
)


def errors(tmp_path: Path, text: str) -> list[tuple[str, str]]:
    path = tmp_path / "table.conf"
    path.write_text(text)
    assert looks_like_tuner_table(path)
    table, unread = read_tuner_table(path)
    return [(f.code, f.where) for f in (*unread, *check_tuner_table(table)[0])]


def test_the_four_findings(tmp_path: Path) -> None:  # C52
    found = errors(tmp_path, C52)
    assert found == [
        ("OVERLAP", "line 3"),
        ("GAP", "line 4"),
        ("RANGE", "line 5"),
        ("PAIR", "line 6"),
    ]


def test_figures_of_findings(tmp_path: Path) -> None:
    path = tmp_path / "table.conf"
    path.write_text(C52)
    table, _ = read_tuner_table(path)
    text = "\n".join(str(f) for f in check_tuner_table(table)[0])
    assert "from 32768 to 65536 bytes" in text
    assert "no line for 1048577 to 4194303 bytes" in text
    assert table.size_is == "total bytes"


def test_a_sound_table_has_no_errors(tmp_path: Path) -> None:
    text = HEAD + (
        "allreduce,0,65536,tree,ll,-1,2,16\nallreduce,65537,4294967295,ring,simple,-1,2,16\n"
        "allreduce,0,1048576,nvls,simple,-1,1,8,-1,1\n"
    )
    assert errors(tmp_path, text) == []


def test_wider_filters_fill_a_gap_and_shadow_what_follows(tmp_path: Path) -> None:
    text = HEAD + (
        "allreduce,0,1000,ring,ll,-1,2,16\nallreduce,2001,9000,ring,ll,-1,2,16\n"
        "allreduce,500,5000,ring,simple,-1,-1,-1\nallreduce,600,700,ring,ll,-1,4,32\n"
    )
    assert errors(tmp_path, text) == []
    table, _ = read_tuner_table(tmp_path / "table.conf")
    warned = [(f.code, f.where) for f in check_tuner_table(table)[1]]
    assert ("SHADOWED", "line 5") in warned


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("allreduce,0,1,rign,ll,-1,1,8", "SYNTAX"),
        ("allreduce,0,1,ring,ll256,-1,1,8", "SYNTAX"),
        ("alltoall,0,1,ring,ll,-1,1,8", "SYNTAX"),
        ("allreduce,0,1,ring,ll,-1,1", "SYNTAX"),
        ("allreduce,0,1.5,ring,ll,-1,1,8", "SYNTAX"),
        ("allreduce,0,1,nvls,ll,-1,1,8", "PAIR"),
        ("broadcast,0,1,tree,simple,-1,1,8", "PAIR"),
        ("allreduce,0,1,pat,simple,-1,1,8", "PAIR"),
    ],
)
def test_lines_that_cannot_be_or_are_never_used(tmp_path: Path, line: str, code: str) -> None:
    good = "allreduce,2,3,ring,ll,-1,4,32\n"
    assert errors(tmp_path, f"{HEAD}{good}{line}\n") == [(code, "line 3")]


def test_ncclx_counts_bytes_per_rank(tmp_path: Path) -> None:
    head = (
        "collective,bytesPerRank,algorithm,protocol,channels,nNodes,nLocalRanks,numPipeOps,regBuff,"
        "chunkSize\n"
    )
    rows = "allgather,1024,ring,ll,-1,2,8,-1,-1,-1\nallgather,1024,ring,simple,-1,2,8,-1,-1,-1\n"
    assert errors(tmp_path, head + rows) == [("OVERLAP", "line 3")]
    table, _ = read_tuner_table(tmp_path / "table.conf")
    assert (table.kind, table.size_is) == ("NCCLX tuner", "bytes per rank")
    (tmp_path / "table.conf").write_text(head)
    table, _ = read_tuner_table(tmp_path / "table.conf")
    assert [f.code for f in check_tuner_table(table)[1]] == ["EMPTY", "UNITS"]


def test_sccl_config_ranges_are_half_open(tmp_path: Path) -> None:
    load = '<load path="/a" minsize="{}" maxsize="{}" proto="Simple"/>\n'
    text = "<sccl_algos>\n" + load.format(0, 100) + load.format(100, 200) + "</sccl_algos>"
    assert errors(tmp_path, text) == []
    text = "<sccl_algos>\n" + load.format(0, 101) + load.format(100, 100) + load.format(300, 400)
    assert errors(tmp_path, text + "</sccl_algos>") == [("RANGE", "line 3"), ("GAP", "line 4")]
    text = "<sccl_algos>\n" + load.format(0, 101) + load.format(100, 200) + "</sccl_algos>"
    assert errors(tmp_path, text) == [("OVERLAP", "line 3")]


def test_xml_with_entities_or_broken_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.xml"
    path.write_text('<!DOCTYPE x [<!ENTITY a "b">]>\n<sccl_algos>&a;</sccl_algos>')
    with pytest.raises(InputError, match=r"config\.xml:1: entities are not read"):
        read_tuner_table(path)
    path.write_text("<sccl_algos>\n<load>\n</sccl_algos>")
    with pytest.raises(InputError, match=r"config\.xml:3: no XML"):
        read_tuner_table(path)


@given(cuts=st.lists(st.integers(1, 1000), min_size=1, max_size=8, unique=True))
def test_contiguous_ranges_have_no_findings_and_a_shifted_one_has(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    edges = [0, *sorted(cuts), 2000]
    lines = [
        f"allreduce,{first},{last - 1},ring,ll,-1,1,8\n"
        for first, last in itertools.pairwise(edges)
    ]
    folder = tmp_path_factory.mktemp("t")
    assert errors(folder, HEAD + "".join(reversed(lines))) == []
    moved = [*lines[:-1], f"allreduce,{edges[-2] + 1},1999,ring,ll,-1,1,8\n"]
    assert [code for code, _ in errors(folder, HEAD + "".join(moved))] == ["GAP"]


def test_the_sample_of_nvidia_names_trees_that_do_not_exist() -> None:
    table, unread = read_tuner_table(ROOT / "data" / "logs" / "nccl_tuner.conf")
    assert (len(table.entries), unread) == (9, [])
    found = [(f.code, f.where) for f in check_tuner_table(table)[0]]
    assert found == [("PAIR", "line 30"), ("PAIR", "line 40"), ("PAIR", "line 45")]


def test_measurements_and_programs_are_no_tuner_tables(tmp_path: Path) -> None:
    assert not looks_like_tuner_table(ROOT / "data" / "logs" / "nccl_tuner_sample_performance.csv")
    path = tmp_path / "x.xml"
    path.write_text('<algo name="a"/>')
    assert not looks_like_tuner_table(path)
    assert not looks_like_tuner_table(tmp_path)


def test_verify_reports_them_like_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "table.conf"
    path.write_text(C52)
    monkeypatch.setattr(sys, "argv", ["explorer", "verify", str(path), "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    (report,) = json.loads(capsys.readouterr().out)
    assert ended.value.code == 4
    assert not report["ok"]
    assert [e["where"] for e in report["errors"]] == ["line 3", "line 4", "line 5", "line 6"]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the corpus is not beside the checkout")
def test_tables_of_the_corpus() -> None:
    other = SHARED / "corpus" / "other"
    for name, entries in (
        ("sccl_config_size_ranges.xml", 3),
        ("rccl_or_ncclx_tuner_columns.txt", 0),
    ):
        assert looks_like_tuner_table(other / name)
        table, unread = read_tuner_table(other / name)
        assert (len(table.entries), unread) == (entries, [])
        assert check_tuner_table(table)[0] == []
    table, _ = read_tuner_table(SHARED / "cases" / "c52_tuner_ranges_gap_overlap.conf")
    assert len(check_tuner_table(table)[0]) == 4
