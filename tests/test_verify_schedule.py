"""Schedules: right ones pass, each kind of mistake is found, and a plain replay agrees."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.core.collective import COLLECTIVES, Collective
from explorer.core.costs import CostModel
from explorer.core.rank_graph import RankGraph
from explorer.core.schedule import Schedule, Symmetry
from explorer.verify.schedule import verify_schedule

MIB = 1 << 20
Send = tuple[int, int, int, float, float]  # src, dst, chunk, start, end


def graph(ranks: int, pairs: list[tuple[int, int]] | None = None) -> RankGraph:
    """Links of alpha 1 and beta 2, each its own resource, or all pairs."""
    if pairs is None:
        pairs = [(a, b) for a in range(ranks) for b in range(ranks) if a != b]
    pairs = sorted(pairs)
    n = len(pairs)
    return RankGraph(
        ranks,
        np.zeros(ranks, np.int32),
        np.array([a for a, _ in pairs], np.int32),
        np.array([b for _, b in pairs], np.int32),
        np.full(n, 1.0),
        np.full(n, 2.0),
        np.arange(n + 1, dtype=np.int64),
        np.arange(n, dtype=np.int32),
        tuple(f"{a}->{b}" for a, b in pairs),
    )


def one_port(ranks: int) -> RankGraph:
    """A switch: every message holds the sender's egress and the receiver's ingress."""
    full = graph(ranks)
    held = np.stack([full.src, full.dst + ranks], axis=1).astype(np.int32).ravel()
    names = tuple(f"out{r}" for r in range(ranks)) + tuple(f"in{r}" for r in range(ranks))
    first = np.arange(0, len(held) + 1, 2, dtype=np.int64)
    return replace(full, resource_first=first, resource=held, resources=names)


def schedule(
    collective: Collective,
    sends: list[Send],
    *,
    reduce: bool | list[bool] = False,
    group: list[int] | None = None,
    cost_model: CostModel = CostModel.EXCLUSIVE,
    symmetry: tuple[Symmetry, ...] = (),
) -> Schedule:
    n = len(sends)
    columns = list(zip(*sends, strict=True)) if sends else [[]] * 5
    flags = [reduce] * n if isinstance(reduce, bool) else reduce
    return Schedule(
        collective,
        MIB,
        cost_model,
        *(np.array(c, np.int32) for c in columns[:3]),
        np.array(range(n) if group is None else group, np.int32),
        np.array(flags, np.bool_),
        np.array(columns[3], np.float64),
        np.array(columns[4], np.float64),
        symmetry,
    ).sorted()


def codes(plan: Schedule, links: RankGraph) -> set[str]:
    return {f.code for f in verify_schedule(plan, links)}


def ring_allgather(ranks: int) -> list[Send]:
    """Round k moves chunk r - k from r to r + 1; a round takes alpha + beta = 3."""
    return [
        (r, (r + 1) % ranks, (r - k) % ranks, 3.0 * k, 3.0 * k + 3)
        for k in range(ranks - 1)
        for r in range(ranks)
    ]


def ring(ranks: int) -> RankGraph:
    return graph(ranks, [(r, (r + 1) % ranks) for r in range(ranks)])


ALLGATHER = Collective("allgather", 4)


def test_ring_allgather_is_right_and_every_send_is_needed() -> None:
    sends = ring_allgather(4)
    assert verify_schedule(schedule(ALLGATHER, sends), ring(4)) == []
    for i in range(len(sends)):
        findings = verify_schedule(schedule(ALLGATHER, sends[:i] + sends[i + 1 :]), ring(4))
        assert "MISSING" in {f.code for f in findings}


def test_reducescatter_and_allreduce_around_a_ring() -> None:
    ranks, there = 4, [(r, (r + 1) % 4) for r in range(4)]
    down = [(a, b, (a - 1 - k) % ranks, 3.0 * k, 3.0 * k + 3) for k in range(3) for a, b in there]
    assert (
        verify_schedule(schedule(Collective("reducescatter", 4), down, reduce=True), ring(4)) == []
    )
    up = [(a, b, c, s + 9, e + 9) for a, b, c, s, e in ring_allgather(4)]
    both = schedule(Collective("allreduce", 4), down + up, reduce=[True] * 12 + [False] * 12)
    assert verify_schedule(both, ring(4)) == []
    # Adding the results again instead of storing them counts everybody twice.
    again = schedule(Collective("allreduce", 4), down + up, reduce=True)
    assert "already counted" in verify_schedule(again, ring(4))[0].message


def test_exchange_at_the_same_time_carries_the_old_values() -> None:
    """Recursive doubling on 2 ranks: what arrives at the end of a send is not in it."""
    plan = schedule(Collective("allreduce", 2), _both_chunks(), reduce=True)
    assert codes(plan, graph(2)) == {"OVERLAP"}  # two messages on one link at once
    plan = schedule(
        Collective("allreduce", 2),
        [(a, 1 - a, c, 0.0, 5.0) for a in (0, 1) for c in (0, 1)],
        reduce=True,
        group=[0, 0, 1, 1],
    )
    assert verify_schedule(plan, graph(2)) == []


def _both_chunks() -> list[Send]:
    return [(a, 1 - a, c, 0.0, 3.0) for a in (0, 1) for c in (0, 1)]


def test_other_collectives() -> None:
    full = graph(3)
    exchange = [(a, b, a * 3 + b, 0.0, 3.0) for a in range(3) for b in range(3) if a != b]
    assert verify_schedule(schedule(Collective("alltoall", 3), exchange), full) == []
    away = schedule(Collective("alltoall", 3), [*exchange[:-1], (2, 1, 6, 0.0, 3.0)])
    assert codes(away, full) == {"MISSING"}
    chain = [(1, 2, 0, 0.0, 3.0), (2, 0, 0, 3.0, 6.0)]
    assert verify_schedule(schedule(Collective("broadcast", 3, root=1), chain), full) == []
    assert codes(schedule(Collective("broadcast", 3, root=0), chain), full) == {"VALUE", "MISSING"}
    to_zero = schedule(Collective("reduce", 3, root=0), chain, reduce=True)
    assert verify_schedule(to_zero, full) == []
    assert codes(schedule(Collective("reduce", 3, root=0), chain), full) == {"MISSING"}
    nobody = verify_schedule(schedule(Collective("reduce", 3, root=0), []), full)
    assert [str(f) for f in nobody] == [
        "MISSING rank 0: chunk 0 lacks the contribution of ranks 1-2"
    ]
    assert verify_schedule(schedule(Collective("allreduce", 1), []), graph(1)) == []


def test_more_than_64_ranks() -> None:
    ranks = 130
    line = [(r, r - 1, 0, 3.0 * (ranks - 1 - r), 3.0 * (ranks - r)) for r in range(1, ranks)]
    collective = Collective("reduce", ranks, root=0)
    assert verify_schedule(schedule(collective, line, reduce=True), graph(ranks)) == []
    without = schedule(collective, [s for s in line if s[0] != 129], reduce=True)
    (finding,) = verify_schedule(without, graph(ranks))
    assert finding.message == "chunk 0 lacks the contribution of ranks 129"


def test_a_send_before_its_chunk_is_there() -> None:
    sends = ring_allgather(3)
    early = [(*s[:3], 2.9, 5.9) if s[3] == 3.0 and s[0] == 1 else s for s in sends]
    findings = verify_schedule(schedule(Collective("allgather", 3), early), ring(3))
    assert {f.code for f in findings} == {"VALUE", "OVERLAP", "MISSING"}
    text = next(str(f) for f in findings if f.code == "VALUE")
    assert text.endswith("starts at 2.9, the sender does not hold the chunk before 3")
    within = [(*s[:3], 3.0 - 1e-9, 6.0 - 1e-9) if s[3] == 3.0 else s for s in sends]
    assert verify_schedule(schedule(Collective("allgather", 3), within), ring(3)) == []


def test_costs() -> None:
    sends = ring_allgather(3)
    two = Collective("allgather", 3)
    long = schedule(two, [(*s[:4], s[4] + 0.5) if s[3] == 3 else s for s in sends])
    assert {f.code for f in verify_schedule(long, ring(3))} == {"TIME"}
    assert "takes 3.5, 1 chunk(s) cost 1 + 2" in verify_schedule(long, ring(3))[0].message
    negative = schedule(two, [(*s[:3], s[3] - 1, s[4] - 1) for s in sends])
    assert codes(negative, ring(3)) == {"TIME"}
    endless = schedule(two, [(*s[:4], np.inf) for s in sends])
    assert codes(endless, ring(3)) == {"TIME"}
    # A group of two chunks pays alpha once: 1 + 2 * 2.
    pair = Collective("allgather", 2, 2)
    grouped = [(0, 1, 0, 0.0, 5.0), (0, 1, 1, 0.0, 5.0), (1, 0, 2, 0.0, 5.0), (1, 0, 3, 0.0, 5.0)]
    assert verify_schedule(schedule(pair, grouped, group=[0, 0, 1, 1]), graph(2)) == []
    assert codes(schedule(pair, grouped), graph(2)) == {"TIME", "OVERLAP"}


def test_pipelined_messages_hold_their_links_for_the_bytes_only() -> None:
    pair = Collective("allgather", 2, 2)
    sends = [
        (0, 1, 0, 0.0, 3.0), (0, 1, 1, 2.0, 5.0), (1, 0, 2, 0.0, 3.0), (1, 0, 3, 2.0, 5.0)
    ]  # fmt: skip
    assert verify_schedule(schedule(pair, sends, cost_model=CostModel.PIPELINED), graph(2)) == []
    assert codes(schedule(pair, sends), graph(2)) == {"OVERLAP"}
    closer = [(*s[:3], s[3] * 0.9, s[3] * 0.9 + 3) for s in sends]
    plan = schedule(pair, closer, cost_model=CostModel.PIPELINED)
    assert codes(plan, graph(2)) == {"OVERLAP"}


def test_shared_ports() -> None:
    """Two messages into one rank at once: fine on links of their own, not through one port."""
    plan = schedule(
        Collective("reduce", 3), [(1, 0, 0, 0.0, 3.0), (2, 0, 0, 0.0, 3.0)], reduce=True
    )
    assert verify_schedule(plan, graph(3)) == []
    (finding,) = verify_schedule(plan, one_port(3))
    assert finding.code == "OVERLAP"
    assert "in0 is held by send 0 (1->0, chunk 0) until 3" in finding.message


def test_edges_groups_and_ranges() -> None:
    sends = ring_allgather(4)
    assert codes(schedule(ALLGATHER, sends), graph(4, [(0, 1), (1, 2), (2, 3)])) == {"EDGE"}
    mixed = schedule(ALLGATHER, sends, group=[0, 0, *range(1, 11)])
    assert "GROUP" in codes(mixed, ring(4))
    pair = Collective("allgather", 2)
    twice = [(0, 1, 0, 0.0, 5.0), (0, 1, 0, 0.0, 5.0), (1, 0, 1, 0.0, 3.0)]
    assert codes(schedule(pair, twice, group=[0, 0, 1]), graph(2)) == {"GROUP"}
    for wrong in ((4, 1, 0), (0, -1, 0), (0, 1, 4)):
        assert codes(schedule(ALLGATHER, [(*wrong, 0.0, 3.0)]), ring(4)) == {"SHAPE"}
    assert codes(schedule(ALLGATHER, sends), ring(5)) == {"SHAPE"}
    short = replace(schedule(ALLGATHER, sends), chunk=np.zeros(3, np.int32))
    assert codes(short, ring(4)) == {"SHAPE"}


def test_results_that_depend_on_who_comes_first() -> None:
    together = [(1, 0, 0, 0.0, 3.0), (2, 0, 0, 0.0, 3.0)]
    plan = schedule(Collective("reduce", 3), together, reduce=[True, False])
    assert "result is not defined" in verify_schedule(plan, graph(3))[0].message
    # Two copies of the same thing are no conflict.
    same = [(0, 1, 0, 0.0, 3.0), (0, 2, 0, 0.0, 3.0), (1, 3, 0, 3.0, 6.0), (2, 3, 0, 3.0, 6.0)]
    assert verify_schedule(schedule(Collective("broadcast", 4), same), graph(4)) == []


def test_a_reduction_needs_something_to_add_to() -> None:
    plan = schedule(Collective("broadcast", 2), [(0, 1, 0, 0.0, 3.0)], reduce=True)
    assert "does not hold" in verify_schedule(plan, graph(2))[0].message


def test_claimed_symmetries() -> None:
    turn = np.array([1, 2, 3, 0], np.int32)
    right = schedule(ALLGATHER, ring_allgather(4), symmetry=(Symmetry(turn, turn),))
    assert verify_schedule(right, ring(4)) == []
    for bad in (Symmetry(turn, turn[::-1].copy()), Symmetry(turn * 0, turn)):
        wrong = schedule(ALLGATHER, ring_allgather(4), symmetry=(bad,))
        assert codes(wrong, ring(4)) == {"SYMMETRY"}


def test_missing_destinations_are_counted_when_there_are_many() -> None:
    findings = verify_schedule(schedule(Collective("alltoall", 20), []), graph(20))
    assert findings[0].message == "chunk 1 never arrives"
    assert findings[-1].message == f"and {380 - 20} more"


def plain_replay(plan: Schedule) -> tuple[bool, bool]:
    """Whether every send carries something sound and whether the end is right, event by event."""
    collective = plan.collective
    held: dict[tuple[int, int], Counter[int]] = {}
    for chunk in range(collective.chunk_count):
        for rank in collective.sources(chunk):
            held[rank, chunk] = Counter([rank])
    events = sorted(
        [(round(plan.end_us[i]), 0, i) for i in range(plan.sends)]
        + [(round(plan.start_us[i]), 1, i) for i in range(plan.sends)]
    )
    carried: dict[int, Counter[int]] = {}
    sound = True
    arrived: dict[tuple[int, int, int], list[bool]] = {}
    for time, starts, i in events:
        if starts:
            carried[i] = Counter(held.get((plan.src[i], plan.chunk[i]), Counter()))
            sound &= bool(carried[i])
            continue
        cell = (int(plan.dst[i]), int(plan.chunk[i]))
        others = arrived.setdefault((time, *cell), [])
        for copied in others:
            same = copied and not plan.reduce[i] and held.get(cell) == carried[i]
            sound &= same or not (copied or not plan.reduce[i])
        others.append(not plan.reduce[i])
        if plan.reduce[i]:
            sound &= bool(held.get(cell))
            held[cell] = held.get(cell, Counter()) + carried[i]
            sound &= max(held[cell].values(), default=1) == 1
        else:
            held[cell] = carried[i]
    whole = all(
        set(held.get((rank, chunk), ())) == set(collective.sources(chunk))
        for chunk in range(collective.chunk_count)
        for rank in collective.destinations(chunk)
    )
    return sound, whole


def random_plan(seed: int) -> Schedule:
    """A random right plan of one chunk after the other, then some changes."""
    rng = random.Random(seed)
    name = rng.choice(COLLECTIVES)
    ranks = rng.choice([2, 3, 4])
    collective = Collective(name, ranks, 1, rng.randrange(ranks) if name in COLLECTIVES[4:] else 0)
    sends, flags = [], []
    for chunk in range(collective.chunk_count):
        now = 3 * rng.randrange(3)
        order = rng.sample(range(ranks), ranks)
        where = collective.sources(chunk)[0]
        if collective.reduces:
            for a, b in pairwise(order):
                sends.append((a, b, chunk, now, now + 3))
                flags.append(True)
                now += 3
            where = order[-1]
        for rank in collective.destinations(chunk):
            if rank != where:
                sends.append((where, rank, chunk, now, now + 3))
                flags.append(False)
                now += 3
    for _ in range(rng.choice([0, 1, 1, 2])):
        if not sends:
            break
        i = rng.randrange(len(sends))
        a, b, chunk, start, _ = sends[i]
        kind = rng.randrange(5)
        if kind == 0:
            del sends[i], flags[i]
        elif kind == 1:
            start = max(0, start - rng.randint(1, 4))
            sends[i] = (a, b, chunk, start, start + 3)
        elif kind == 2:
            flags[i] = not flags[i]
        elif kind == 3:
            sends.append((a, b, chunk, start + rng.randint(0, 6), 0))
            sends[-1] = (*sends[-1][:4], sends[-1][3] + 3)
            flags.append(flags[i])
        else:
            other = rng.choice([r for r in range(ranks) if r != a])
            sends[i] = (a, other, chunk, start, start + 3)
    return schedule(collective, sends, reduce=flags)


@settings(max_examples=500)
@given(st.integers(0, 1 << 30))
def test_values_agree_with_a_plain_replay(seed: int) -> None:
    plan = random_plan(seed)
    sound, whole = plain_replay(plan)
    got = codes(plan, graph(plan.collective.ranks)) - {"OVERLAP"}
    assert ("VALUE" in got) == (not sound)
    if sound:
        assert ("MISSING" in got) == (not whole)


@pytest.mark.parametrize("wanted", [set(), {"VALUE"}, {"MISSING"}])
def test_random_plans_reach_every_verdict(wanted: set[str]) -> None:
    got = [codes(random_plan(s), graph(random_plan(s).collective.ranks)) for s in range(100)]
    assert sum(wanted == g - {"OVERLAP"} for g in got) >= 5
