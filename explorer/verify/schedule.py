"""Verify a schedule: who holds what when, what messages cost, and what they occupy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from explorer.core.collective import Collective
from explorer.core.costs import CostModel
from explorer.core.rank_graph import RankGraph
from explorer.core.schedule import Schedule
from explorer.errors import Finding
from explorer.units import MIB
from explorer.verify.contributions import Outcome, Transfers, replay
from explorer.verify.names import Index, ranges
from explorer.verify.report import Ledger

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

TOLERANCE = 1e-9
"""Part of the makespan below which times count as equal."""


def verify_schedule(schedule: Schedule, graph: RankGraph) -> list[Finding]:
    """Verify a schedule by replaying it with symbolic contributions.

    Parameters
    ----------
    schedule
        The schedule.
    graph
        Edges it may use, with their costs and the resources they hold.

    Returns
    -------
    list of Finding
        Empty when it is right. Codes: ``SHAPE`` arrays or indices without a meaning, ``EDGE`` a
        rank pair the graph does not connect, ``GROUP`` sends of one message that differ, ``TIME``
        a duration that is not the cost model's, ``OVERLAP`` two messages on one resource,
        ``VALUE`` a send of what the sender does not hold or a contribution counted twice,
        ``MISSING`` a destination without its chunk, ``SYMMETRY`` a claimed symmetry that is none.

    Notes
    -----
    A send carries what its sender holds when it starts. A copy overwrites what the receiver
    holds, a reduction adds to it. What arrives within 1e-9 of the makespan after a start is there
    in time. Takes time in proportion to the sends (their number times its logarithm) and, for
    reductions, to ranks/64.
    """
    ledger = Ledger()
    if not _check_shape(schedule, graph, ledger):
        return list(ledger.findings(error=True))
    edge = graph.edge_index()[schedule.src, schedule.dst].astype(np.int64)
    for i in np.flatnonzero(edge < 0):
        ledger.error("EDGE", _send(schedule, i), "the graph has no edge between these ranks")
    tolerance = TOLERANCE * schedule.makespan_us
    messages = _messages(schedule, edge, tolerance, ledger)
    known = messages.edge >= 0
    _check_times(schedule, graph, messages.only(known), tolerance, ledger)
    _check_overlaps(schedule, graph, messages.only(known), tolerance, ledger)
    _check_values(schedule, tolerance, ledger)
    _check_symmetry(schedule, tolerance, ledger)
    return list(ledger.findings(error=True))


def _send(schedule: Schedule, i: Index) -> str:
    return f"send {i} ({schedule.src[i]}->{schedule.dst[i]}, chunk {schedule.chunk[i]})"


def _check_shape(schedule: Schedule, graph: RankGraph, ledger: Ledger) -> bool:
    collective = schedule.collective
    sends = schedule.sends
    if collective.ranks != graph.ranks:
        ledger.error(
            "SHAPE", "", f"schedule of {collective.ranks} ranks, graph of {graph.ranks} ranks"
        )
    for name in ("dst", "chunk", "group", "reduce", "start_us", "end_us"):
        shape = getattr(schedule, name).shape
        if shape != (sends,):
            ledger.error("SHAPE", name, f"has shape {shape}, expected ({sends},)")
    if schedule.chunk_bytes < 1:
        ledger.error("SHAPE", "chunk_bytes", f"is {schedule.chunk_bytes}, expected at least 1")
    if ledger.errors:
        return False
    for name, values, top in (
        ("src", schedule.src, graph.ranks),
        ("dst", schedule.dst, graph.ranks),
        ("chunk", schedule.chunk, collective.chunk_count),
    ):
        for i in np.flatnonzero((values < 0) | (values >= top)):
            ledger.error("SHAPE", _send(schedule, i), f"{name} must be 0 to {top - 1}")
    finite = np.isfinite(schedule.start_us) & np.isfinite(schedule.end_us)
    for i in np.flatnonzero(~finite):
        ledger.error("TIME", _send(schedule, i), "times must be finite")
    return not ledger.errors


@dataclass(frozen=True, slots=True, eq=False)
class _Messages:
    """The messages: their first send, how many chunks they carry, and their edge."""

    send: IntArray
    chunks: IntArray
    edge: IntArray

    def only(self, keep: npt.NDArray[np.bool_]) -> _Messages:
        return _Messages(self.send[keep], self.chunks[keep], self.edge[keep])


def _messages(schedule: Schedule, edge: IntArray, tolerance: float, ledger: Ledger) -> _Messages:
    _, first, number, chunks = np.unique(
        schedule.group, return_index=True, return_inverse=True, return_counts=True
    )
    lead = first[number]
    same = np.ones(schedule.sends, dtype=np.bool_)
    for values in (schedule.src, schedule.dst, schedule.reduce):
        same &= values == values[lead]
    for times in (schedule.start_us, schedule.end_us):
        same &= np.abs(times - times[lead]) <= tolerance
    for i in np.flatnonzero(~same):
        ledger.error(
            "GROUP",
            _send(schedule, i),
            f"differs from send {lead[i]} of its group {schedule.group[i]} in source, destination,"
            " times or reduction",
        )
    key = number.astype(np.int64) * schedule.collective.chunk_count + schedule.chunk
    _, counts = np.unique(key, return_counts=True)
    if bool((counts > 1).any()):
        order = np.argsort(key, kind="stable")
        for i in order[1:][np.diff(key[order]) == 0]:
            ledger.error(
                "GROUP",
                _send(schedule, i),
                f"its group {schedule.group[i]} carries that chunk twice",
            )
    return _Messages(first.astype(np.int64), chunks.astype(np.int64), edge[first])


def _check_times(
    schedule: Schedule, graph: RankGraph, messages: _Messages, tolerance: float, ledger: Ledger
) -> None:
    start = schedule.start_us[messages.send]
    took = schedule.end_us[messages.send] - start
    alpha, transfer = _costs(schedule, graph, messages)
    for m in np.flatnonzero(np.abs(took - alpha - transfer) > tolerance):
        ledger.error(
            "TIME",
            _send(schedule, messages.send[m]),
            f"takes {took[m]:.9g}, {messages.chunks[m]} chunk(s) cost {alpha[m]:.9g} +"
            f" {transfer[m]:.9g}",
        )
    for m in np.flatnonzero(start < -tolerance):
        ledger.error("TIME", _send(schedule, messages.send[m]), f"starts at {start[m]:.9g}")


def _costs(
    schedule: Schedule, graph: RankGraph, messages: _Messages
) -> tuple[FloatArray, FloatArray]:
    """Alpha and the time of the bytes of every message."""
    mib = messages.chunks * (schedule.chunk_bytes / MIB)
    return graph.alpha_us[messages.edge], mib * graph.beta_us_per_mib[messages.edge]


def _check_overlaps(
    schedule: Schedule, graph: RankGraph, messages: _Messages, tolerance: float, ledger: Ledger
) -> None:
    """Messages that hold one resource at the same time.

    With the intervals of a resource sorted by start, if any two overlap then two neighbours do.
    """
    alpha, transfer = _costs(schedule, graph, messages)
    start = schedule.start_us[messages.send]
    exclusive = schedule.cost_model is CostModel.EXCLUSIVE
    end = start + (alpha + transfer if exclusive else transfer)
    counts = np.diff(graph.resource_first)[messages.edge]
    holder = np.repeat(np.arange(len(messages.send)), counts)
    inside = np.arange(len(holder)) - np.repeat(np.cumsum(counts) - counts, counts)
    resource = graph.resource[graph.resource_first[messages.edge][holder] + inside]
    order = np.lexsort((start[holder], resource))
    holder, resource = holder[order], resource[order]
    clash = (resource[1:] == resource[:-1]) & (start[holder[1:]] < end[holder[:-1]] - tolerance)
    for i in np.flatnonzero(clash):
        a, b = messages.send[holder[i]], messages.send[holder[i + 1]]
        ledger.error(
            "OVERLAP",
            _send(schedule, b),
            f"starts at {schedule.start_us[b]:.9g}, {graph.resources[resource[i]]} is held by"
            f" {_send(schedule, a)} until {end[holder[i]]:.9g}",
        )


def _ends(collective: Collective) -> tuple[IntArray, IntArray]:
    """Source and destination rank of every chunk, -1 for all ranks.

    From the definition of the chunk ids (:mod:`explorer.core.collective`), not its methods.
    """
    chunk = np.arange(collective.chunk_count, dtype=np.int64)
    everyone = np.full(len(chunk), -1, dtype=np.int64)
    root = np.full(len(chunk), collective.root, dtype=np.int64)
    owner, pair = chunk // collective.chunks_per_rank, collective.ranks
    return {
        "allgather": (owner, everyone),
        "reducescatter": (everyone, owner),
        "allreduce": (everyone, everyone),
        "alltoall": (owner // pair, owner % pair),
        "broadcast": (root, everyone),
        "reduce": (everyone, root),
    }[collective.name]


def _check_values(schedule: Schedule, tolerance: float, ledger: Ledger) -> None:
    source, destination = _ends(schedule.collective)
    transfers = Transfers(
        schedule.src.astype(np.int64),
        schedule.dst.astype(np.int64),
        schedule.chunk.astype(np.int64),
        schedule.reduce,
        schedule.start_us,
        schedule.end_us,
    )
    done = replay(transfers, schedule.collective.ranks, source, destination, tolerance)
    for i in np.flatnonzero(done.outcome):
        outcome = Outcome(int(done.outcome[i]))
        text = outcome.text
        if outcome is Outcome.NOT_HELD:
            text = f"starts at {schedule.start_us[i]:.9g}, {text}{_arrival(schedule, int(i))}"
        ledger.error("VALUE", _send(schedule, i), text)
    for chunk, rank, lacking in done.missing:
        whole = source[chunk] >= 0 or len(lacking) == schedule.collective.ranks
        text = "never arrives" if whole else f"lacks the contribution of ranks {ranges(lacking)}"
        ledger.error("MISSING", f"rank {rank}", f"chunk {chunk} {text}")
    if done.missing_count > len(done.missing):
        ledger.more("MISSING", done.missing_count - len(done.missing))


def _arrival(schedule: Schedule, send: int) -> str:
    there = (schedule.dst == schedule.src[send]) & (schedule.chunk == schedule.chunk[send])
    if not bool(there.any()):
        return ""
    return f" before {schedule.end_us[there].min():.9g}"


def _check_symmetry(schedule: Schedule, tolerance: float, ledger: Ledger) -> None:
    collective = schedule.collective
    for number, symmetry in enumerate(schedule.symmetry):
        where = f"generator {number}"
        sizes = (collective.ranks, collective.chunk_count)
        maps = (symmetry.rank, symmetry.chunk)
        if any(
            not np.array_equal(np.sort(m), np.arange(n)) for m, n in zip(maps, sizes, strict=True)
        ):
            ledger.error("SYMMETRY", where, "is not a permutation of ranks and chunks")
            continue
        own = _sorted(schedule.src, schedule.dst, schedule.chunk, schedule)
        image = _sorted(
            symmetry.rank[schedule.src],
            symmetry.rank[schedule.dst],
            symmetry.chunk[schedule.chunk],
            schedule,
        )
        same = all(np.array_equal(a, b) for a, b in zip(own[:-1], image[:-1], strict=True))
        if not same or bool((np.abs(own[-1] - image[-1]) > tolerance).any()):
            ledger.error("SYMMETRY", where, "does not map the sends to themselves")


def _sorted(
    src: npt.NDArray[np.int32],
    dst: npt.NDArray[np.int32],
    chunk: npt.NDArray[np.int32],
    schedule: Schedule,
) -> list[npt.NDArray[np.float64]]:
    columns = (chunk, src, dst, schedule.reduce, schedule.start_us)
    order = np.lexsort(columns[::-1])
    return [np.asarray(c[order], dtype=np.float64) for c in columns]
