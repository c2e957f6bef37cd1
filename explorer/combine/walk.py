"""Walk: earliest times of messages, by one pass over their starts and ends in a given order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

LongArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]


@njit(cache=True)  # type: ignore[untyped-decorator]
def walk(
    events: LongArray,
    first: LongArray,
    source: LongArray,
    target: LongArray,
    held_first: LongArray,
    held: LongArray,
    busy: FloatArray,
    span: FloatArray,
    ready: FloatArray,
    lane_first: LongArray,
    sums: bool,
    fill: bool,
) -> tuple[FloatArray, FloatArray, BoolArray, BoolArray]:
    """One pass over the events. ``ready`` is overwritten.

    Parameters
    ----------
    events
        Starts (m) and ends (m + M) of the messages, each after all that it depends on.
    first, source, target
        Places that each message reads and writes, one per chunk.
    held_first, held
        Resources of each message.
    ready
        When each place has its chunk; negative: never yet.
    lane_first
        First slot of each resource in the table of what is taken of it.
    sums
        Whether arrivals add to what is there.
    fill
        Whether a message may go into a gap.

    Returns
    -------
    tuple
        Start and end of the messages; sends of what is not there; sends that arrive too early.
    """
    count = len(span)
    start = np.zeros(count)
    end = np.zeros(count)
    bad = np.zeros(len(source), dtype=np.bool_)
    clash = np.zeros(len(source), dtype=np.bool_)
    # what is taken of each resource, sorted by time
    begin = np.zeros(len(held))
    free = np.zeros(len(held))
    taken = lane_first[:-1].copy()
    # where chunks are summed: when the last send of this chunk from this rank began
    sent = np.full(len(ready), -1.0)
    for event in events:
        m = event if event < count else event - count
        lo, hi = first[m], first[m + 1]
        if event >= count:
            for i in range(lo, hi):
                p = target[i]
                if sums:
                    clash[i] = end[m] <= sent[p]
                    ready[p] = max(ready[p], end[m])
                elif ready[p] < 0.0:
                    ready[p] = end[m]
            continue
        t = 0.0
        for i in range(lo, hi):
            bad[i] = ready[source[i]] < 0.0
            t = max(t, ready[source[i]])
            if sums:
                t = max(t, sent[target[i]])
        using = held[held_first[m] : held_first[m + 1]]
        t = fit(t, busy[m], using, begin, free, lane_first, taken, fill)
        for r in using:
            at = taken[r]
            while at > lane_first[r] and begin[at - 1] > t:
                begin[at] = begin[at - 1]
                free[at] = free[at - 1]
                at -= 1
            begin[at] = t
            free[at] = t + busy[m]
            taken[r] += 1
        start[m] = t
        end[m] = t + span[m]
        if sums:
            for i in range(lo, hi):
                sent[source[i]] = max(sent[source[i]], t)
    return start, end, bad, clash


@njit(cache=True)  # type: ignore[untyped-decorator]
def fit(
    t: float,
    busy: float,
    using: LongArray,
    begin: FloatArray,
    free: FloatArray,
    lane_first: LongArray,
    taken: LongArray,
    fill: bool,
) -> float:
    """First time from t on at which all resources are free for ``busy``, or behind all else."""
    moved = True
    while moved:
        moved = False
        for r in using:
            lo, hi = lane_first[r], taken[r]
            if not fill:
                if hi > lo and free[hi - 1] > t:
                    t = free[hi - 1]
                continue
            # the first interval that ends after t
            while lo < hi:
                middle = (lo + hi) // 2
                if free[middle] > t:
                    hi = middle
                else:
                    lo = middle + 1
            # a gap may be short by the rounding of the times that bound it
            if lo < taken[r] and begin[lo] < t + busy * (1.0 - 1e-12):
                t = free[lo]
                moved = True
    return t
