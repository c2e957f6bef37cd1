"""Published logs: each is read as its index says. Also JSON, CSV and the verb."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from explorer.cli.main import main
from explorer.errors import InputError
from explorer.measured.collective_words import key_of
from explorer.measured.explain import LinkBound, explain
from explorer.measured.readers import read_log, read_logs, reading_of
from explorer.measured.row import NOTHING, Reading, Row
from explorer.measured.source import source_of

ROOT = Path(__file__).resolve().parent
DATA = ROOT / "data" / "logs"
CORPUS = ROOT.parent.parent / "shared" / "corpus"
CASES = ROOT.parent.parent / "shared" / "cases"
Run = Callable[..., tuple[int, str, str]]

# file: lines with a row, collective, ranks, largest printed busbw
OURS = {
    "a100_8gpu_superbench_allgather.log": (34, "allgather", 8, 230.07),
    "a100_8gpu_superbench_allreduce.log": (34, "allreduce", 8, 235.26),
    "a100_8gpu_superbench_reduce.log": (34, "reduce", 8, 231.28),
    "h100_2x8_oci_allreduce_16g.log": (5, "allreduce", 16, 471.22),
    "a100_2x8_deepops_allreduce_ib.log": (30, "allreduce", 16, 188.7),
    "v100_2x8_deepops_allreduce_roce_jitter.log": (29, "allreduce", 16, 22.92),
    "a100_2x8_aws_p4de_allreduce_prefix.log": (29, "allreduce", 16, 78.33),
    "h100_2x8_aws_p5_allreduce_prefix.log": (32, "allreduce", 16, 487.26),
    "h100_2x8_aws_p5_k8s_mpirun_prefix.log": (7, "allreduce", 16, 437.89),
    "h100_1x8_aws_batch_allreduce_mpirun.log": (32, "allreduce", 8, 483.35),
    "h200_aws_p5en_allreduce_elided.log": (3, "allreduce", 128, 369.86),
    "h100_2x8_gcp_a3high_allgather_tcpx.log": (10, "allgather", 16, 71.35),
    "h100_2x8_gcp_a3mega_allgather_tcpxo.log": (31, "allgather", 16, 188.9),
    "cloudai_fixture_allreduce.log": (3, "allreduce", 16, 130.41),
    "gtx1080_2gpu_allreduce_slow_pcie.log": (25, "allreduce", 2, 0.87),
}


def said(reading: Reading) -> str:
    return "\n".join(f"{r.line} {r.kind}: {r.message}" for r in reading.remarks)


@pytest.mark.parametrize("name", sorted(OURS))
def test_rows_ranks_collective_and_peak_of_our_copies(name: str) -> None:
    lines, collective, ranks, peak = OURS[name]
    rows = read_log(DATA / name).rows
    assert len({row.line for row in rows}) == lines
    assert {(row.collective, row.ranks) for row in rows} == {(collective, ranks)}
    assert max(row.busbw_gbs or 0 for row in rows) == pytest.approx(peak, rel=1e-3, abs=0.006)


def test_zero_sizes_and_no_ops_stay_out_of_fits() -> None:  # C12
    rows = read_log(DATA / "h100_2x8_gcp_a3mega_allgather_tcpxo.log").rows
    zero = [row for row in rows if row.size_bytes == 0]
    assert len(zero) == 10
    assert not any(row.usable for row in zero)
    assert all(row.algbw_gbs == 0 for row in zero)
    assert all(row.usable for row in rows if row.size_bytes)


def test_a_warm_up_is_marked() -> None:
    rows = read_log(DATA / "h200_aws_p5en_allreduce_elided.log").rows
    assert [row.time_us for row in rows if "warm-up" in row.marks] == [983.2]


def test_a_made_up_table_is_called_inconsistent() -> None:
    reading = read_log(DATA / "cloudai_fixture_allreduce.log")
    assert all(row.marks == ("inconsistent",) for row in reading.rows)
    assert (reading.rows[0].ranks, reading.rows[0].nodes) == (16, 2)


def test_both_regimes_of_a_log_are_there_for_a_fit() -> None:  # C31
    """The best line alpha + beta s misses by about half on this log (nccl#1154)."""
    rows = read_log(DATA / "a100_2x8_deepops_allreduce_ib.log").rows
    points = [(r.size_bytes, r.time_us) for r in rows if r.usable and r.placement == "out"]
    assert len(points) == 30
    worst = min(
        max(abs(alpha + size / (rate * 1e3) - time) / time for size, time in points)
        for alpha in range(20, 120, 2)
        for rate in range(60, 160, 2)
    )
    assert 0.4 < worst < 0.6


# --- the whole corpus, where it is at hand ------------------------------------------------------

# what a file itself shows where its index, written from the page around it, says something else
RANKS_IN_FILE = {
    "h100_8x8_coreweave_allreduce_sharp.log": 96,
    "h200_aws_p5en_allreduce_elided.log": 128,
}
NO_RANKS = {"mscclpp_pr794_h200_4node_allreduce_us.csv"}
PEAKS = {"rtx2080ti_1gpu_reduce_nonsense_bw.log": 0.0}


def index() -> list[dict[str, str]]:
    path = CORPUS / "nccl_tests" / "INDEX.tsv"
    if not path.is_file():
        return []
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


@pytest.mark.skipif(not index(), reason="the corpus of logs is not beside the checkout")
def test_every_file_of_the_corpus_is_read_as_its_index_says() -> None:
    for entry in index():
        name = entry["file"]
        reading = read_log(CORPUS / "nccl_tests" / name)
        rows = reading.rows
        assert len({row.line for row in rows}) == int(entry["data rows"]), name
        if not rows:
            assert NOTHING in said(reading), name
            continue
        shape = re.fullmatch(r"(\d+)x(\d+)", entry["nodes x gpus"])
        ranks = int(shape.group(1)) * int(shape.group(2)) if shape else None
        if name not in NO_RANKS:
            assert {row.ranks for row in rows} == {RANKS_IN_FILE.get(name, ranks)}, name
        stated = {key_of(word) for word in re.split(r"[\s,+]+", entry["collective"])} - {None}
        assert {row.collective for row in rows} == stated, name
        if re.fullmatch(r"[\d.]+", entry["peak busbw GB/s"]):
            peak = PEAKS.get(name, float(entry["peak busbw GB/s"]))
            best = max(row.busbw_gbs or 0 for row in rows)
            assert best == pytest.approx(peak, rel=2e-3, abs=0.006), name


@pytest.mark.skipif(not index(), reason="the corpus of logs is not beside the checkout")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a800_12x2_allreduce_partial_nodes.log", "24 12"),
        ("a100_2x8_oci_roce_allreduce_new_layout.log", "16 2"),
        ("h100_1x8_4nic_nodes_two_runs.log", "8 1"),
        ("gb200_2rack_coreweave_allreduce.log", "144 None"),
    ],
)
def test_nodes_come_from_host_names(name: str, expected: str) -> None:
    rows = read_log(CORPUS / "nccl_tests" / name).rows
    assert {f"{row.ranks} {row.nodes}" for row in rows} == {expected}


@pytest.mark.skipif(not index(), reason="the corpus of logs is not beside the checkout")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "v100_dgx2_12gpu_allgather_failed.log",
            "algbw holds busbw|50 failure: out-of-place error 1|4 values out",
        ),
        ("h100_8x8_coreweave_allreduce_sharp.log", "the heading ends at 2147483648"),
        ("gb200_2rack_coreweave_allreduce.log", "shows 144 ranks, busbw over algbw 128"),
        ("h100_1x8_cuda_init_failure.log", "system not yet initialized"),
        ("p100_8gpu_nccl1_ancient_layout.log", "15 failure: NCCL failure"),
        ("h100_2x8_roce_summary_table.md", "3 refused: a figure without a time"),
        ("gtx1080_2gpu_sendrecv_in_place_wrong.log", "in-place error 300"),
        ("v100_8x8_alltoall_100g_slow.log", "0 values out of bounds|64 ranks, as the other table"),
        ("rtx2080ti_1gpu_reduce_nonsense_bw.log", "one rank: nothing crosses"),
    ],
)
def test_oddities_are_said_with_their_line(name: str, words: str) -> None:
    text = said(read_log(CORPUS / "nccl_tests" / name))
    assert all(word in text for word in words.split("|")), text


@pytest.mark.skipif(not index(), reason="the corpus of logs is not beside the checkout")
def test_programs_and_the_library_beside_them() -> None:
    reading = read_log(CORPUS / "nccl_tests" / "mi300x_msccl.csv")
    programs = [row for row in reading.rows if row.placement == "in"]
    library = [row for row in reading.rows if row.placement == "out"]
    assert len(programs) == len(library) == 638
    assert {row.variant for row in library} == {"library"}
    assert sum("library-fallback" in row.marks for row in programs) == 41
    best = max((r for r in programs if r.usable), key=lambda r: r.busbw_gbs or 0)
    assert (best.algorithm, best.protocol, best.instances) == ("allgather_allpairs", "Simple", 4)
    assert best.busbw_gbs == pytest.approx(232.32, rel=1e-3)


@pytest.mark.skipif(not index(), reason="the corpus of logs is not beside the checkout")
def test_latency_rows_only() -> None:  # C32
    rows = read_log(CORPUS / "nccl_tests" / "v100_4gpu_pcie_allreduce_cut.log").rows
    assert [row.size_bytes for row in rows if row.placement == "out"] == [8, 16, 32, 64]
    assert all(17 < row.time_us < 20 and row.usable for row in rows)


@pytest.mark.skipif(not CASES.is_dir(), reason="the cases are not beside the checkout")
def test_the_measured_triple_of_placements_has_its_ratios() -> None:  # C45, C47
    text = (CASES / "c45_rank_placement_measured.yaml").read_text()
    times = [float(ms) for ms in re.findall(r"measured_ms: ([\d.]+)", text)]
    row = "1600000000 400000000 float sum -1 {0} {1} {2} 0 {0} {1} {2} 0\n"
    found = []
    for ms in times:
        algbw = 1.6e9 / (ms * 1e6)
        line = row.format(f"{ms * 1e3:.0f}", f"{algbw:.2f}", f"{algbw * 1.75:.2f}")
        reading = reading_of(source_of("run.log", f"all_reduce_perf\n{line}".encode()))
        found.append(reading.rows[0])
    assert [row.ranks for row in found] == [8, 8, 8]
    assert found[0].time_us / found[1].time_us == pytest.approx(2.1, abs=0.01)
    assert found[1].time_us / found[2].time_us == pytest.approx(1.3, abs=0.02)


# --- JSON and CSV -------------------------------------------------------------------------------

OFFICIAL = {
    "version": 1,
    "args": ["./build/all_reduce_perf", "-b", "1M"],
    "config": {
        "devices": [
            {"rank": rank, "group": 0, "hostname": f"node-{rank // 2}", "device": rank % 2}
            for rank in range(4)
        ]
    },
    "results": [
        {
            "size": 1048576,
            "count": 262144,
            "type": "float",
            "redop": "sum",
            "root": "    -1",
            "out_of_place": {"time": 100.0, "alg_bw": 10.48576, "bus_bw": 15.72864, "nwrong": 0.0},
            "in_place": {"time": 50.0, "alg_bw": 20.97152, "bus_bw": 31.45728, "nwrong": None},
        }
    ],
}


def read(text: str, name: str = "run.json") -> Reading:
    return reading_of(source_of(name, text.encode()))


def test_json_of_nccl_tests() -> None:
    out, inside = read(json.dumps(OFFICIAL, indent=1)).rows
    assert (out.collective, out.ranks, out.nodes, out.placement) == ("allreduce", 4, 2, "out")
    assert (out.wrong, inside.wrong, inside.time_us) == (0, None, 50.0)
    assert out.busbw_gbs == pytest.approx(15.72864)
    lines = json.dumps(OFFICIAL, indent=1).splitlines()
    assert '"size": 1048576' in lines[out.line - 1]


def test_json_with_sizes_as_keys() -> None:
    record = {"count": 65536, "type": "float", "redop": "none", "root": "-1"}
    record |= {"oop_time": 100.0, "oop_algbw": 10.48576, "oop_busbw": 7.86432, "oop_error": 0.0}
    record |= {"ip_time": 100.0, "ip_algbw": 10.48576, "ip_busbw": 7.86432, "ip_error": "N/A"}
    rows = read(json.dumps({"benchmark": [{"1048576": record}]})).rows
    assert [(r.collective, r.ranks, r.placement) for r in rows] == [
        ("alltoall", 4, "out"),
        ("alltoall", 4, "in"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"size": 1,\n}', "run.json:2: no JSON"),
        ("[" * 200000 + '"', "nested too deep"),
        ('{"size": ' + "9" * 5000 + "}", "a number is too long"),
    ],
)
def test_json_that_is_none_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        read(text)


def test_json_without_numbers_is_no_measurement() -> None:
    reading = read('{"size": 8, "out_of_place": {"time": NaN}}')
    assert reading.rows == ()
    assert "no time that is a number" in said(reading)
    assert NOTHING in said(reading)


def test_csv_of_two_libraries() -> None:
    text = "size,nccl_us,mscclpp_us\n8K,45.75,17.74\n16K,47,x\n1M,115,40.64,9\n"
    reading = read(text, "allreduce_us.csv")
    assert [(r.size_bytes, r.variant, r.time_us) for r in reading.rows] == [
        (8192, "nccl", 45.75),
        (8192, "mscclpp", 17.74),
        (16384, "nccl", 47.0),
    ]
    assert {r.collective for r in reading.rows} == {"allreduce"}
    assert "3 refused: mscclpp_us: got 'x'" in said(reading)
    assert "4 refused: 4 columns" in said(reading)
    assert "below 2^60" in said(read("size,a_us,b_us\n1e400,1,2\n", "x.csv"))


def test_tuner_samples_contradict_themselves() -> None:
    reading = read_log(DATA / "nccl_tuner_sample_performance.csv")
    assert len(reading.rows) == 23
    assert "23 of 23 rows" in said(reading)
    row = reading.rows[7]
    assert (row.collective, row.protocol, row.channels, row.ranks) == ("allreduce", "simple", 4, 8)


def test_files_for_other_verbs_are_refused_with_the_verb() -> None:
    with pytest.raises(InputError, match=r"nccl_tuner.conf:2: .*explorer verify"):
        read_log(DATA / "nccl_tuner.conf")


def test_json_with_a_count_beyond_every_number() -> None:
    text = '{"size": 8, "in_place": {"time": 2.0, "nwrong": 1e400}}'
    (row,) = read(text).rows
    assert (row.time_us, row.wrong, row.placement) == (2.0, None, "in")


def test_json_on_one_long_line() -> None:
    long = {**OFFICIAL, "env": ["PATH=" + "x" * 50_000]}
    assert len(read(json.dumps(long)).rows) == 2


# --- explanation and verb -----------------------------------------------------------------------


def test_explanation_names_formula_ranks_and_reason() -> None:
    rows = read_log(DATA / "h100_1x8_aws_batch_allreduce_mpirun.log").rows

    def bound(row: Row) -> LinkBound:
        assert row.size_bytes == 17179869184
        return LinkBound(450.0, "NVSwitch ports")

    (found,) = explain(rows, bound)
    text = "\n".join(found.lines)
    assert "busbw = algbw x 2(n-1)/n = algbw x 1.75" in text
    assert "17179869184 B / 62200 us = 276.204 GB/s algbw x 1.75 = 483.356 GB/s busbw" in text
    assert "450 GB/s busbw, set by NVSwitch ports: measured is 107%" in text
    assert "NVLS" in text
    (below,) = explain(rows, lambda row: LinkBound(900.0, "x"))
    assert "above the bound" not in "\n".join(below.lines)


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


def test_the_verb_prints_json_and_writes_csv_that_reads_back(explorer: Run, tmp_path: Path) -> None:
    logs = [DATA / "a100_8gpu_superbench_allgather.log", DATA / "nccl_tuner.conf"]
    code, out, _ = explorer("logs", *logs, "--csv", tmp_path / "rows.csv", "--json")
    document = json.loads(out)
    assert code == 0
    keys = "file line collective ranks size_bytes placement time_us algbw_gbs busbw_gbs"
    assert all(set(keys.split()) <= set(row) for row in document["rows"])
    assert len(document["rows"]) == 68
    assert any("tuner table" in p["message"] and p["line"] == 2 for p in document["problems"])
    again, _ = read_logs([tmp_path / "rows.csv"])
    for row, told in zip(again, document["rows"], strict=True):
        for key in ("size_bytes", "placement", "time_us", "ranks", "collective", "busbw_gbs"):
            assert getattr(row, key) == told[key]
        assert list(row.marks) == told["marks"]


def test_the_verb_explains_against_a_machine(explorer: Run) -> None:
    log = DATA / "a100_8gpu_superbench_allgather.log"
    code, out, _ = explorer("logs", log, "--explain", "--topology", "dgx_a100", "--json")
    (found,) = json.loads(out)["explanations"]
    assert code == 0
    assert found["ranks"] == 8
    assert found["factor"] == 0.875
    assert 200 < found["bound_busbw_gbs"] < 320
    code, out, _ = explorer("logs", log, "--topology", "ring:4", "--json")
    assert "ring:4 has 4 ranks, the log 8" in json.loads(out)["explanations"][0]["lines"][-1]


def test_the_verb_without_measurements_ends_with_2(explorer: Run, tmp_path: Path) -> None:
    log = tmp_path / "failed.log"
    log.write_text(
        "$ ./all_reduce_perf -g 8\n# nThread 1 nGpus 8 minBytes 8 maxBytes 8\nTest CUDA failure\n"
    )
    code, out, err = explorer("logs", log, "--json")
    assert code == 2
    assert NOTHING in err
    assert {p["message"] for p in json.loads(out)["problems"]} == {"Test CUDA failure", NOTHING}
    code, out, err = explorer("logs", tmp_path / "absent.log")
    assert code == 2
    assert "absent.log" in out + err


def test_no_file_with_rows_is_an_error_with_all_reasons(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("hello\n")
    with pytest.raises(InputError) as caught:
        read_logs([tmp_path / "a", tmp_path / "b"])
    assert len(caught.value.problems) == 2
