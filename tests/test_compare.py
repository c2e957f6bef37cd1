"""Ranking, selection and envelope on rows small enough to check by hand."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.compare.algorithm import algorithm_of, cost_of, setting_of
from explorer.compare.envelope import envelope
from explorer.compare.ranking import rank
from explorer.compare.selection import select
from explorer.errors import InputError


def row(method: str, size: int | None, time_us: float | None, **changes: Any) -> dict[str, Any]:
    fields = {
        "point": f"{method}-{size}",
        "topology": "ndv2",
        "nodes": 2,
        "ranks": 16,
        "collective": "allgather",
        "placement": "out",
        "method": method,
        "sketch": None,
        "cost_model": "exclusive",
        "fidelity": "ideal",
        "requested_bytes": size,
        "size_bytes": size,
        "time_us": time_us,
    }
    return fields | changes


def places(rows: list[dict[str, Any]]) -> dict[str, int | None]:
    return {r["point"]: r["place"] for r in rank(rows)}


def test_place_one_is_the_fastest_at_its_size_and_ties_share_a_place() -> None:
    rows = [
        row("c", 1024, 3.0),
        row("a", 1024, 2.0),
        row("b", 1024, 2.0 * (1 + 1e-12)),
        row("a", 4096, 9.0),
        row("c", 4096, 5.0),
    ]
    found = {"a-1024": 1, "b-1024": 1, "c-1024": 3, "c-4096": 1, "a-4096": 2}
    assert places(rows) == found
    assert list(places(rows)) == list(found)
    assert list(rank(rows)[0])[:2] == ["point", "place"]


def test_what_cannot_be_compared_does_not_compete() -> None:
    rows = [
        row("a", 1024, 5.0),
        row("b", 1024, 1.0, placement="in"),
        row("c", 1024, 1.0, fidelity="runtime"),
        row("d", 1024, 1.0, collective="alltoall"),
        row("e", 1024, 1.0, cost_model="pipelined"),
        row("f", 1024, 1.0, topology="dgx2"),
        row("g", 1024, 1.0, nodes=4),
        row("h", 1024, 1.0, dialect="unlimited"),
    ]
    assert set(places(rows).values()) == {1}


def test_bytes_lost_to_rounding_win_nothing() -> None:
    """100 bytes: one method runs 96 in 10 us, one 48 in 6 us, one nothing at all in 0 us."""
    rows = [
        row("none", 100, 0.0, size_bytes=0),
        row("half", 100, 6.0, size_bytes=48),
        row("most", 100, 10.0, size_bytes=96),
    ]
    assert places(rows) == {"most-100": 1, "half-100": 2, "none-100": 3}


def test_sizes_of_zero_a_single_rank_and_profiles_are_ranked_without_dividing() -> None:
    assert places([row("a", 0, 0.0), row("b", 0, 0.0)]) == {"a-0": 1, "b-0": 1}
    assert places([row("a", 4, 0.0, size_bytes=0), row("b", 4, 0.0, size_bytes=0)]) == {
        "a-4": 1,
        "b-4": 1,
    }
    assert places([row("a", 1 << 20, 0.0, ranks=1)]) == {"a-1048576": 1}
    assert places([row("a", None, 917.4), row("b", None, 900.0)]) == {"b-None": 1, "a-None": 2}


def test_what_was_not_lowered_has_no_place_and_comes_last() -> None:
    assert places([row("a", 1024, None), row("b", 1024, 7.0)]) == {"b-1024": 1, "a-1024": None}


@given(st.permutations(range(12)))
def test_the_order_of_the_rows_does_not_matter(order: list[int]) -> None:
    rows = [
        row("abcd"[i % 4], 1024 << (i % 3), float(i // 3), instances=1 + i % 2) for i in range(12)
    ]
    assert rank([rows[i] for i in order]) == rank(rows)


def test_an_algorithm_is_what_was_asked_for_not_what_the_program_came_to_have() -> None:
    asked = {"method": "milp", "sketch": "x/sk-9.yaml", "chunks": None, "channels": 1}
    asked |= {"protocol": "LL", "instances": 2, "root": 3, "placement": "both"}
    found = row("milp", 1024, 1.0, channels=7, chunks_per_rank=2, asked=asked)
    assert algorithm_of(found).label == "milp sk-9 LL instances=2"
    assert (setting_of(found).root, setting_of(found).placement) == (3, "both")
    assert setting_of(found).machine == "ndv2 x2"


def test_selection_by_collective_size_and_top() -> None:
    rows = rank(
        [row(m, s, t) for m, t in (("a", 1.0), ("b", 2.0), ("c", 3.0)) for s in (1024, 4096)]
        + [row("a", 1000, 1.0, collective="alltoall", size_bytes=960)]
    )
    chosen = select(rows, collective="allgather", size="4K", top=2)
    assert [(r["method"], r["requested_bytes"], r["place"]) for r in chosen] == [
        ("a", 4096, 1),
        ("b", 4096, 2),
    ]
    assert len(select(rows, top=1)) == 3
    assert select(rows, size=960) == select(rows, size="1000") == [rows[-1]]
    with pytest.raises(InputError, match="did you mean 'alltoall'"):
        select(rows, collective="alltoal")
    with pytest.raises(InputError, match="no result for 2K; there are 1000, 1K, 4K"):
        select(rows, size="2K")
    with pytest.raises(InputError, match="expected at least 1"):
        select(rows, top=0)


def test_winner_ranges_touch_and_end_where_the_times_cross() -> None:
    """a takes 10 + s/100, b takes 40 + s/400: they cross at s = 4000."""
    sizes = [1024 * 2**k for k in range(6)]
    rows = [row("a", s, 10 + s / 100) for s in sizes] + [row("b", s, 40 + s / 400) for s in sizes]
    first, second = envelope(rows)
    assert (first.algorithm.method, first.first_bytes, first.last_bytes) == ("a", 1024, 2048)
    assert (second.algorithm.method, second.first_bytes, second.last_bytes) == ("b", 4096, 32768)
    assert (first.min_bytes, second.max_bytes) == (1024, 32768)
    assert first.max_bytes is not None
    assert second.min_bytes == first.max_bytes + 1
    assert first.max_bytes == pytest.approx(4000, abs=1)
    # At 2048 a takes 30.48 and b 45.12; at 4096 b takes 50.24 and a 50.96.
    assert first.margin == pytest.approx(45.12 / 30.48 - 1)
    assert second.margin == pytest.approx(50.96 / 50.24 - 1)
    assert first.runner_up == second.algorithm
    assert [r["point"] for r in first.rows] == ["a-1024", "a-2048"]


def test_of_equals_the_winner_before_stays_and_a_lone_algorithm_has_no_margin() -> None:
    rows = [row("a", 1024, 5.0), row("b", 1024, 4.0), row("a", 2048, 8.0), row("b", 2048, 8.0)]
    (only,) = envelope(rows)
    assert (only.algorithm.method, only.margin) == ("b", 0.0)
    (alone,) = envelope([row("a", 1024, 5.0)])
    assert (alone.margin, alone.runner_up) == (None, None)
    (simpler,) = envelope([row("a", 1024, 5.0, instances=4), row("a", 1024, 5.0, point="x")])
    assert simpler.algorithm.instances == 1


def test_zero_times_and_unknown_crossings_still_make_ranges() -> None:
    rows = [row("a", 0, 0.0), row("b", 0, 0.0), row("b", 1 << 10, 1.0), row("c", 1 << 20, 1.0)]
    ranges = envelope(rows)
    assert [(r.algorithm.method, r.min_bytes, r.max_bytes) for r in ranges] == [
        ("a", 0, 0),
        ("b", 1, 1 << 15),
        ("c", (1 << 15) + 1, 1 << 20),
    ]
    (profile,) = envelope([row("a", None, 9.0), row("b", None, 10.0)])
    assert (profile.min_bytes, profile.max_bytes) == (None, None)
    assert profile.margin == pytest.approx(1 / 9)
    assert envelope([row("a", 1024, None)]) == []


@given(
    st.dictionaries(
        st.sampled_from("abcd"),
        st.tuples(st.floats(1, 100), st.floats(1e-4, 1)),
        min_size=1,
    )
)
def test_ranges_of_any_lines_partition_the_swept_sizes(
    lines: dict[str, tuple[float, float]],
) -> None:
    sizes = [2**k for k in range(10, 24, 2)]
    rows = [row(m, s, a + b * s) for m, (a, b) in lines.items() for s in sizes]
    ranges = envelope(rows)
    edges = [(r.min_bytes, r.max_bytes) for r in ranges]
    assert edges[0][0] == sizes[0]
    assert edges[-1][1] == sizes[-1]
    for (_, before), (after, _) in itertools.pairwise(edges):
        assert before is not None
        assert after == before + 1
    for found in ranges:
        assert found.min_bytes is not None
        assert found.max_bytes is not None
        for won in found.rows:
            assert won["place"] == 1
            assert found.min_bytes <= won["requested_bytes"] <= found.max_bytes
            times = [r["time_us"] for r in rows if r["requested_bytes"] == won["requested_bytes"]]
            assert cost_of(won) == pytest.approx(min(times) / won["size_bytes"])
