"""Precedence: what every message must come after, so that it carries what it does in the plan."""

from __future__ import annotations

from dataclasses import dataclass

from explorer.lower.sends import SAME_TIME, Sends


@dataclass(slots=True)
class Precedence:
    """What must come before what.

    A message reads what has arrived at its sender when it starts, so it comes after those arrivals
    and before the end of later ones. The latter holds by itself when the later message does not
    start earlier.

    Parameters
    ----------
    arrivals
        Number of messages that must have arrived before each one starts.
    feeds
        Messages that wait for each one's arrival.
    starts, follows
        The same for those that only must have started.
    """

    arrivals: list[int]
    feeds: list[list[int]]
    starts: list[int]
    follows: list[list[int]]


def precedence(sends: Sends) -> Precedence | None:
    """Order that keeps what every message reads.

    Parameters
    ----------
    sends
        Messages in planned order.

    Returns
    -------
    Precedence | None
        None where a message reads what one on its way is about to change: then only the plan's own
        times are known to be right.
    """
    count = len(sends.src)
    order = Precedence(
        [0] * count, [[] for _ in range(count)], [0] * count, [[] for _ in range(count)]
    )
    touching: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
    src, dst = sends.src.tolist(), sends.dst.tolist()
    for m, chunk in zip(sends.message.tolist(), sends.chunk.tolist(), strict=True):
        touching.setdefault((src[m], chunk), ([], []))[0].append(m)
        touching.setdefault((dst[m], chunk), ([], []))[1].append(m)
    start, end = sends.start_us.tolist(), sends.end_us.tolist()
    slack = SAME_TIME * float((sends.end_us - sends.start_us).min())
    before: set[tuple[int, int]] = set()
    after: set[tuple[int, int]] = set()
    for reads, writes in touching.values():
        for y in writes:
            for x in reads:
                if end[y] <= start[x] + slack:
                    before.add((y, x))
                elif start[x] <= start[y] + slack and x < y:
                    after.add((x, y))
                else:
                    return None
    for y, x in sorted(before):
        order.feeds[y].append(x)
        order.arrivals[x] += 1
    for x, y in sorted(after - before):
        order.follows[x].append(y)
        order.starts[y] += 1
    return order
