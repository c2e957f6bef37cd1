"""Replay of a schedule: which ranks' contributions every rank holds of every chunk, over time.

Chunks do not meet, so they are replayed one after the other with the state of one chunk: a bit set
of contributing ranks per rank. Memory: 8·ceil(R/64) bytes for each rank and for each send of the
chunk with most sends, and 60 bytes per send.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numba
import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
BitArray = npt.NDArray[np.uint64]

MISSING_KEPT = 256
"""Unserved destinations that are kept; the rest is counted."""


class Outcome(IntEnum):
    """What can be wrong with a send."""

    GOOD = 0
    NOT_HELD = 1
    TWICE = 2
    NOTHING_TO_ADD_TO = 3
    UNDEFINED_ORDER = 4

    @property
    def text(self) -> str:
        """In words."""
        return (
            "",
            "the sender does not hold the chunk",
            "adds contributions that the receiver has already counted",
            "reduces into a chunk that the receiver does not hold",
            "arrives together with another message for that chunk, so the result is not defined",
        )[self]


_NOT_HELD, _TWICE = int(Outcome.NOT_HELD), int(Outcome.TWICE)
_NOTHING, _UNDEFINED = int(Outcome.NOTHING_TO_ADD_TO), int(Outcome.UNDEFINED_ORDER)


@dataclass(frozen=True, slots=True, eq=False)
class Transfers:
    """The sends of a schedule.

    Parameters
    ----------
    src, dst, chunk
        int64 ``[N]``.
    reduce
        bool ``[N]``: adds instead of overwriting.
    start, end
        float64 ``[N]``.
    """

    src: IntArray
    dst: IntArray
    chunk: IntArray
    reduce: BoolArray
    start: FloatArray
    end: FloatArray


@dataclass(frozen=True, slots=True)
class Replayed:
    """How it ended.

    Parameters
    ----------
    outcome
        int8 ``[N]``: an :class:`Outcome` per send.
    missing
        (chunk, rank, ranks whose contribution is lacking) of the first unserved destinations.
    missing_count
        How many there are.
    """

    outcome: npt.NDArray[np.int8]
    missing: list[tuple[int, int, list[int]]]
    missing_count: int


def replay(
    transfers: Transfers,
    ranks: int,
    source: IntArray,
    destination: IntArray,
    tolerance: float,
) -> Replayed:
    """Run all sends.

    Parameters
    ----------
    ranks
        Number of ranks.
    source, destination
        int64 per chunk: the rank it starts at (-1: every rank contributes) and the rank that must
        hold it in the end (-1: all).
    tolerance
        What arrives at most this much after a start is there in time.
    """
    by_start = np.lexsort((transfers.end, transfers.start, transfers.chunk))
    by_end = np.lexsort((transfers.start, transfers.end, transfers.chunk))
    first = np.searchsorted(transfers.chunk[by_start], np.arange(len(source) + 1))
    words = -(-ranks // 64)
    most = int(np.diff(first).max(initial=0))
    lacking = np.zeros((MISSING_KEPT, words), dtype=np.uint64)
    where = np.zeros((MISSING_KEPT, 2), dtype=np.int64)
    outcome = np.zeros(len(transfers.src), dtype=np.int8)
    count = _replay(
        transfers.src,
        transfers.dst,
        transfers.reduce,
        transfers.start,
        transfers.end,
        by_start,
        by_end,
        first,
        source,
        destination,
        ranks,
        tolerance,
        np.zeros((most, words), dtype=np.uint64),
        outcome,
        where,
        lacking,
    )
    missing = [
        (
            int(where[i, 0]),
            int(where[i, 1]),
            [r for r in range(ranks) if int(lacking[i, r // 64]) >> (r % 64) & 1],
        )
        for i in range(min(count, MISSING_KEPT))
    ]
    return Replayed(outcome, missing, int(count))


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _replay(  # noqa: PLR0912, PLR0915 - one kernel, so that nothing is boxed between its parts
    src: IntArray,
    dst: IntArray,
    reduce: BoolArray,
    start: FloatArray,
    end: FloatArray,
    by_start: IntArray,
    by_end: IntArray,
    first: IntArray,
    source: IntArray,
    destination: IntArray,
    ranks: int,
    tolerance: float,
    carried: BitArray,
    outcome: npt.NDArray[np.int8],
    missing: IntArray,
    lacking: BitArray,
) -> int:
    words = lacking.shape[1]
    one = np.uint64(1)
    held = np.zeros((ranks, words), np.uint64)
    slot = np.full(len(src), -1, np.int64)  # row of a started send in carried
    last = np.full(ranks, -1, np.int64)  # last send that arrived at a rank, of this chunk
    count = 0
    for chunk in range(len(first) - 1):
        for r in range(ranks) if source[chunk] < 0 else range(source[chunk], source[chunk] + 1):
            held[r, r // 64] = one << np.uint64(r % 64)
        arrival = first[chunk]
        for i in range(first[chunk], first[chunk + 1] + 1):
            now = np.inf
            if i < first[chunk + 1]:
                now = start[by_start[i]] + tolerance
            while arrival < first[chunk + 1] and end[by_end[arrival]] <= now:
                send = by_end[arrival]
                arrival += 1
                if slot[send] < 0:
                    outcome[send] = _NOT_HELD  # it ends before it starts
                    continue
                to, row = dst[send], slot[send]
                empty, twice, equal = True, False, True
                for w in range(words):
                    empty = empty and held[to, w] == 0
                    twice = twice or (held[to, w] & carried[row, w]) != 0
                    equal = equal and held[to, w] == carried[row, w]
                before = last[to]
                if before >= 0 and end[send] - end[before] <= tolerance:
                    copies = not reduce[send] and not reduce[before]
                    if not (reduce[send] and reduce[before]) and not (copies and equal):
                        outcome[send] = _UNDEFINED
                last[to] = send
                if reduce[send]:
                    if empty:
                        outcome[send] = _NOTHING
                    elif twice:
                        outcome[send] = _TWICE
                for w in range(words):
                    if reduce[send]:
                        held[to, w] |= carried[row, w]
                    else:
                        held[to, w] = carried[row, w]
            if i < first[chunk + 1]:
                send = by_start[i]
                slot[send] = i - first[chunk]
                empty = True
                for w in range(words):
                    carried[slot[send], w] = held[src[send], w]
                    empty = empty and held[src[send], w] == 0
                if empty:
                    outcome[send] = _NOT_HELD
        low, high = 0, ranks
        if destination[chunk] >= 0:
            low, high = destination[chunk], destination[chunk] + 1
        for r in range(low, high):
            good = True
            for w in range(words):
                want = np.uint64(0)
                if source[chunk] < 0:
                    left = min(ranks - 64 * w, 64)
                    want = ~np.uint64(0) >> np.uint64(64 - left)
                elif source[chunk] // 64 == w:
                    want = one << np.uint64(source[chunk] % 64)
                good = good and held[r, w] == want
                if count < len(missing):
                    lacking[count, w] = want & ~held[r, w]
            if not good:
                if count < len(missing):
                    missing[count, 0] = chunk
                    missing[count, 1] = r
                count += 1
        # Back to nothing, touching only ranks this chunk can have touched.
        if source[chunk] < 0:
            held[:] = 0
        else:
            held[source[chunk]] = 0
        for i in range(first[chunk], first[chunk + 1]):
            held[dst[by_start[i]]] = 0
            last[dst[by_start[i]]] = -1
    return count
