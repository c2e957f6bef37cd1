"""Implied order: drop dependencies that the order of lanes and other dependencies already give."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from explorer.lower.lanes import Lanes

IntArray = npt.NDArray[np.int64]


def without_implied(waits: list[list[int]], lanes: Lanes, rank: IntArray) -> list[list[int]]:
    """Transitive reduction of dependencies, on every rank by itself.

    Parameters
    ----------
    waits
        Earlier steps that every step waits for, sorted.
    lanes
        Steps of a lane run in their order.
    rank
        int64 ``[S]``: rank of every step.

    Returns
    -------
    list[list[int]]
        The dependencies that are needed, none of them inside a lane, sorted.
    """
    needed: list[list[int]] = [[] for _ in waits]
    order = np.argsort(rank, kind="stable")
    position: list[int] = lanes.position.tolist()
    for steps in np.split(order, np.flatnonzero(np.diff(rank[order])) + 1):
        _, lane = np.unique(lanes.lane[steps], return_inverse=True)
        _reduce_rank(steps.tolist(), lane.tolist(), position, waits, needed)
    return needed


def _reduce_rank(
    steps: list[int],
    lanes: list[int],
    position: list[int],
    waits: list[list[int]],
    needed: list[list[int]],
) -> None:
    """Fill in the needed dependencies of one rank's steps.

    ``before[s]`` says for every lane up to which position its steps are known to be done when step
    s runs. Candidates are looked at from the latest back: if one precedes another, the later one
    already covers it.
    """
    at_lane = [np.full(max(lanes) + 1, -1, dtype=np.int32)] * (max(lanes) + 1)
    before: dict[int, npt.NDArray[np.int32]] = {}
    lane_of = dict(zip(steps, lanes, strict=True))
    for step, mine in zip(steps, lanes, strict=True):
        known = at_lane[mine]
        kept: list[int] = []
        for other in reversed(waits[step]):
            theirs = lane_of[other]
            if theirs == mine or known[theirs] >= position[other]:
                continue
            known = np.maximum(known, before[other])
            known[theirs] = position[other]
            kept.append(other)
        before[step] = at_lane[mine] = known
        if kept:
            kept.reverse()
            needed[step] = kept
