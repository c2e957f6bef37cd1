"""Tables of nccl-tests of every era, with the damage they come with."""

from __future__ import annotations

import math

import pytest

from explorer.errors import InputError
from explorer.measured.readers import reading_of
from explorer.measured.row import NOTHING, Reading
from explorer.measured.source import source_of

BLOCK = "     time   algbw   busbw"
UNITS = "     (us)  (GB/s)  (GB/s)"
NEW = (
    f"#       size         count      type   redop    root{BLOCK} #wrong{BLOCK} #wrong\n"
    f"#        (B)    (elements)                          {UNITS}       {UNITS}       \n"
)
OLD = (
    "#                                                     out-of-place                in-place\n"
    f"#       size         count    type   redop{BLOCK}  error{BLOCK}  error\n"
    f"#        (B)    (elements)                {UNITS}       {UNITS}\n"
)
LEFT = "    1048576        262144     float     sum      -1"
ONE = f"{LEFT}    100.0   10.49   18.35      0    104.9   10.00   17.50      0\n"
LEFT = "    2097152        524288     float     sum      -1"
TWO = f"{LEFT}    200.0   10.49   18.35      0    209.7   10.00   17.50      0\n"
DEVICES = "".join(
    f"#  Rank {rank:2d} Group  0 Pid {1000 + rank} on node-{rank // 4} device {rank % 4:2d}"
    " [0x0f] GPU\n"
    for rank in range(8)
)


def read(text: str | bytes, name: str = "run.log") -> Reading:
    return reading_of(source_of(name, text if isinstance(text, bytes) else text.encode()))


def said(reading: Reading, line: int) -> str:
    return "; ".join(f"{r.kind}: {r.message}" for r in reading.remarks if r.line == line)


def test_a_row_is_two_measurements_with_bandwidths_by_definition():
    out, inside = read(DEVICES + NEW + ONE).rows
    assert (out.line, out.collective, out.ranks, out.nodes) == (11, "allreduce", 8, 2)
    assert (out.size_bytes, out.count, out.dtype, out.redop) == (1048576, 262144, "float", "sum")
    assert (out.placement, out.time_us, out.wrong) == ("out", 100.0, 0)
    assert out.algbw_gbs == pytest.approx(10.48576)  # 1048576 B / 100 us
    assert out.busbw_gbs == pytest.approx(10.48576 * 1.75)  # 2 * 7 / 8
    assert (out.printed_algbw_gbs, out.printed_busbw_gbs) == (10.49, 18.35)
    assert (inside.placement, inside.time_us) == ("in", 104.9)
    assert out.usable
    assert out.root is None  # -1 is no root


def test_ranks_follow_from_the_ratio_when_no_line_says_them():
    reading = read(NEW + ONE + TWO)
    assert {row.ranks for row in reading.rows} == {8}  # 18.35 / 10.49 = 1.749, n = 2 / (2 - f)
    assert "8 ranks, from busbw over algbw" in said(reading, 1)
    assert all(row.nodes is None for row in reading.rows)


@pytest.mark.parametrize(
    ("redop", "root", "count", "collective", "ranks"),
    [
        ("sum", -1, 65536, "reducescatter", 4),
        ("sum", 2, 262144, "reduce", None),
        ("none", 0, 262144, "broadcast", None),
        ("none", -1, 262144, "sendrecv", None),
    ],
)
def test_columns_tell_the_collective(redop, root, count, collective, ranks):
    """Count is one rank's share in ReduceScatter, the whole buffer in the others."""
    bus = "10.49" if collective != "reducescatter" else " 7.86"
    row = f"1048576 {count} float {redop} {root} 100.0 10.49 {bus} 0 100.0 10.49 {bus} 0\n"
    rows = read(NEW + row).rows
    assert {(r.collective, r.ranks) for r in rows} == {(collective, ranks)}
    assert rows[0].busbw_gbs == pytest.approx(10.48576 * (0.75 if ranks else 1.0))


def test_unchecked_in_place_tells_alltoall_from_allgather():
    row = "1048576 65536 float none -1 100.0 10.49 7.86 0 100.0 10.49 7.86 {}\n"
    assert read(NEW + row.format("N/A")).rows[0].collective == "alltoall"
    assert read(NEW + row.format("0")).rows[0].collective == "allgather"


def test_a_collective_that_nothing_tells_stays_open():
    row = "1048576 65536 float none -1 100.0 10.49 7.86 N/A 100.0 10.49 7.86 N/A\n"
    reading = read(NEW + row)
    assert {r.collective for r in reading.rows} == {None}
    assert "fit allgather, alltoall" in said(reading, 1)
    assert read(NEW + row, "alltoall_2x2.log").rows[0].collective == "alltoall"
    assert read("# Collective test starting: all_gather_perf\n" + NEW + row).rows[0].collective == (
        "allgather"
    )


def test_the_old_error_column_is_a_tolerance_and_no_count():
    row = "1048576 262144 float sum 100.0 10.49 18.35 5e-07 100.0 10.49 18.35 1e+00\n"
    out, inside = read(OLD + row).rows
    assert (out.wrong, out.tolerance, out.marks) == (None, 5e-07, ())
    assert (inside.wrong, inside.tolerance, inside.marks) == (None, 1.0, ("wrong-values",))
    assert not inside.usable


def test_wrong_elements_are_counted_and_said():
    reading = read(NEW + ONE.replace(" 17.50      0", " 17.50     12"))
    out, inside = reading.rows
    assert (out.wrong, inside.wrong, inside.usable) == (0, 12, False)
    assert "12 wrong elements" in said(reading, 3)


def test_zero_bytes_are_kept_and_marked():  # C12
    row = "0 0 float sum -1 0.25 0.00 0.00 0 0.00 0.00 0.00 0\n"
    out, inside = read(DEVICES + NEW + row).rows
    assert (out.time_us, out.algbw_gbs, out.busbw_gbs) == (0.25, 0.0, 0.0)
    assert (inside.time_us, inside.algbw_gbs) == (0.0, None)
    assert out.marks == inside.marks == ("zero-size",)


def test_one_rank_has_no_bandwidth_and_its_numbers_may_touch():  # C39
    text = (
        "$ ./build/reduce_perf -b 8 -e 1G -f 2 -g 1\n"
        + NEW
        + (
            "  1073741824     268435456   float     sum       0   4016.0  267.37  267.37      0"
            "     0.195706839.355706839.35      0\n"
        )
    )
    out, inside = read(text).rows
    assert (out.ranks, inside.time_us, inside.printed_busbw_gbs) == (1, 0.19, 5706839.35)
    assert out.busbw_gbs is inside.busbw_gbs is out.algbw_gbs is None
    assert out.marks == inside.marks == ("single-rank",)


def test_the_layout_of_nccl_1_counts_milliseconds():
    text = (
        "nThread 1 nGpus 8 minBytes 8 maxBytes 8\n#   Rank  0 on node device  0 [0x00] P100\n"
        "#      bytes             N    type      op     time  algbw  busbw      res"
        "     time  algbw  busbw      res\n"
        "   1048576   262144   float     sum    0.100  10.49  18.35    1e-07"
        "    0.100  10.49  18.35  1e-07\n"
    )
    out = read(text).rows[0]
    assert (out.time_us, out.tolerance) == (100.0, 1e-07)
    assert out.algbw_gbs == pytest.approx(10.48576)


def test_a_table_cut_down_by_hand():
    text = (
        "```\n$ ./build/all_reduce_perf -b 32k -e 16G -f 2 -g 8\n[...]\n"
        "     size  time  algbw  busbw\n"
        "     (B)  (us)  (GB/s)  (GB/s)\n  1048_576   100.0   10.49   18.35\n```\n"
    )
    (row,) = read(text).rows
    assert (row.size_bytes, row.placement, row.ranks, row.line) == (1048576, None, 8, 6)


def test_prefixes_of_launchers_do_not_matter():
    plain = [(r.size_bytes, r.time_us, r.ranks) for r in read(DEVICES + NEW + ONE + TWO).rows]
    for prefix in (
        "0: ",
        "   [1,0]<stdout>:",
        "node-0: ",
        "nccl-1  | ",
        "[pod/nccl-test-0/main] ",
        "2024-05-01T12:00:00.123Z ",
        "> ",
        "    ",
        "\x1b[32m",
    ):
        text = "".join(prefix + line + "\n" for line in (DEVICES + NEW + ONE + TWO).splitlines())
        assert [(r.size_bytes, r.time_us, r.ranks) for r in read(text).rows] == plain, prefix


def test_processes_that_each_print_a_table_are_told_apart():
    tagged = [f"{p}: {line}\n" for line in (NEW + ONE).splitlines() for p in (0, 1)]
    reading = read("".join(tagged))
    assert len(reading.rows) == 4
    assert any("2 processes print a table each" in r.message for r in reading.remarks)


def test_several_tables_in_one_paste_keep_to_themselves():
    other = (
        ONE.replace("sum      -1", "sum       3")
        .replace("18.35", "10.49")
        .replace("17.50", "10.00")
    )
    first = f"all_reduce result\n```\n{NEW}{ONE}# Avg bus bandwidth : 17.9\n```\n"
    text = f"{first}reduce result\n{NEW}{other}"
    rows = read(text).rows
    assert [(r.line, r.collective, r.ranks) for r in rows[::2]] == [
        (5, "allreduce", 8),
        (11, "reduce", None),  # busbw is algbw: nothing shows the ranks
    ]
    assert rows[2].root == 3


def test_a_failure_in_the_middle_leaves_the_rows_before_it():  # C30
    text = DEVICES + NEW + ONE + "node: Test NCCL failure common.cu:941 'unhandled system error'\n"
    reading = read(text)
    assert len(reading.rows) == 2
    assert said(reading, 12).startswith("failure: node: Test NCCL failure")


def test_torn_rows_lose_only_the_torn_half():  # C30
    reading = read(NEW + ONE + TWO[: TWO.index("209.7")].rstrip() + "\n")
    assert [(r.line, r.placement) for r in reading.rows] == [(3, "out"), (3, "in"), (4, "out")]
    assert "in-place half is not used" in said(reading, 4)
    reading = read(NEW + ONE + TWO[:60] + "\n")
    assert len(reading.rows) == 2
    assert "refused: the line is torn" in said(reading, 4)


def test_a_row_the_terminal_wrapped_is_put_together():
    for column in range(50, 110):
        wrapped = read(NEW + TWO[:column] + "\n" + TWO[column:])
        assert [r.time_us for r in wrapped.rows] == [200.0, 209.7], column
        assert {r.line for r in wrapped.rows} <= {3}


def test_two_rows_on_one_line_and_a_row_behind_text():
    reading = read(NEW + ONE.rstrip() + TWO)
    assert [r.size_bytes for r in reading.rows] == [1048576] * 2 + [2097152] * 2
    reading = read(NEW + ONE + "node:1:2 [0] NCCL INFO Launch mode" + TWO)
    assert len(reading.rows) == 2
    assert "behind other text" in said(reading, 4)


@pytest.mark.parametrize("word", ["nan", "inf", "-nan", "1e999", "-5.00", "12.3.4"])
def test_what_is_no_number_is_refused(word):
    reading = read(NEW + ONE + TWO.replace("200.0", word))
    assert all(math.isfinite(r.time_us) for r in reading.rows)
    assert (4, "out") not in {(r.line, r.placement) for r in reading.rows}
    assert "refused" in said(reading, 4)


def test_any_changed_digit_of_a_time_is_noticed():
    """Of times whose bandwidth has three digits or more."""
    for position, digit in ((0, "3"), (1, "7")):
        time = list("200.0")
        time[position] = digit
        reading = read(DEVICES + NEW + ONE + TWO.replace("200.0", "".join(time)))
        row = next(r for r in reading.rows if (r.line, r.placement) == (12, "out"))
        assert row.marks == ("inconsistent",)
        assert "conflict" in said(reading, 12)


def test_a_device_list_that_ends_early_yields_to_the_ratio_and_a_longer_one_does_not():
    short = "".join(DEVICES.splitlines(keepends=True)[:4])
    assert read(short + NEW + ONE).rows[0].ranks == 8
    longer = DEVICES + "#  Rank  8 Group  0 Pid 1 on node-2 device  0 [0x0f] GPU\n"
    reading = read(longer + NEW + ONE)
    assert reading.rows[0].ranks == 9
    assert "device list shows 9 ranks, busbw over algbw 8" in said(reading, 10)


def test_the_average_shows_that_rows_are_missing():
    reading = read(
        NEW + ONE + "   ...\n" + "# Out of bounds values : 0 OK\n# Avg bus bandwidth : 9.0\n"
    )
    assert "rows are left out" in said(reading, 4)
    assert "rows are missing" in said(reading, 1)


def test_a_table_that_replays_in_place_only():
    row = f"{1048576:12d}  {262144:12d}  {'float':>8}  {'sum':>6}  {-1:6d}" + " " * 32
    (only,) = read(NEW + row + "    104.9   10.00   17.50       0\n").rows
    assert (only.placement, only.time_us) == ("in", 104.9)


def test_time_stamps_behind_rows():
    rows = read(NEW + ONE.rstrip() + "  2025-01-01 12:00:00\n").rows
    assert [r.time_us for r in rows] == [100.0, 104.9]


def test_headers_without_rows_have_no_measurements():
    reading = read(DEVICES + NEW.splitlines()[0][:60])
    assert reading.rows == ()
    assert [r.message for r in reading.remarks][-1] == NOTHING


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"\x7fELF\x00\x01", "binary"),
        (bytes(range(128, 256)) * 8, "binary"),
        (b"GPU0 GPU1\n", NOTHING),
        (b"<system version='1'>", "topology"),
    ],
)
def test_files_of_something_else_are_refused(data, message):
    with pytest.raises(InputError, match=message):
        read(data)


def test_what_powershell_saves_is_read():
    assert len(read((NEW + ONE).encode("utf-16")).rows) == 2
    assert len(read((NEW + ONE).replace("\n", "\r\n")).rows) == 2
