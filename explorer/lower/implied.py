"""Implied order: drop dependencies that the order of lanes and other dependencies already give."""

from __future__ import annotations

from explorer.lower.lanes import Lanes

_NOTHING: dict[int, int] = {}


def without_implied(waits: list[list[int]], lanes: Lanes) -> list[list[int]]:
    """Transitive reduction of dependencies, on every rank by itself.

    Parameters
    ----------
    waits
        Earlier steps that every step waits for.
    lanes
        Steps of a lane run in their order.

    Returns
    -------
    list[list[int]]
        The dependencies that are needed, none of them inside a lane, sorted.

    Notes
    -----
    For every step the last step of each other lane that is known to be done before it. Candidates
    are looked at from the latest back: if one precedes another, the later one already covers it.
    """
    lane: list[int] = lanes.lane.tolist()
    position: list[int] = lanes.position.tolist()
    before: list[dict[int, int]] = []
    at_lane: dict[int, dict[int, int]] = {}
    needed: list[list[int]] = []
    for step, candidates in enumerate(waits):
        mine = lane[step]
        known = at_lane.get(mine, _NOTHING)
        kept: list[int] = []
        for other in reversed(candidates):
            theirs = lane[other]
            if theirs == mine or known.get(theirs, -1) >= position[other]:
                continue
            if not kept:
                known = dict(known)
            kept.append(other)
            for place, done in before[other].items():
                if done > known.get(place, -1):
                    known[place] = done
            known[theirs] = position[other]
        before.append(known)
        at_lane[mine] = known
        kept.reverse()
        needed.append(kept)
    return needed
