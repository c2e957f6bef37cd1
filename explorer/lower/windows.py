"""Windows: consecutive cells that hold given chunks, so that one step can move them without copies.

Every chunk is given as the list of cells it can be read from; all functions prefer cells that
stand first.
"""

from __future__ import annotations

from collections.abc import Sequence

Cells = Sequence[Sequence[int]]


def in_order(cells: Cells) -> list[int] | None:
    """Cells a, a+1, … that hold the chunks in the order given.

    Returns
    -------
    list[int] | None
        For every chunk, which of its cells it is; None when there is no such window.

    Examples
    --------
    >>> in_order([[7, 20], [21, 3]])
    [1, 0]
    """
    for start, first in enumerate(cells[0]):
        chosen = [start]
        for i in range(1, len(cells)):
            wanted, places = first + i, cells[i]
            if wanted not in places:
                break
            chosen.append(places.index(wanted))
        else:
            return chosen
    return None


def in_any_order(cells: Cells) -> tuple[list[int], list[int]] | None:
    """Consecutive cells that hold the chunks in some order.

    Returns
    -------
    (list[int], list[int]) | None
        The chunks in the order of their cells, and for each of these which of its cells it is.

    Examples
    --------
    >>> in_any_order([[9], [4, 8], [10]])
    ([1, 0, 2], [1, 0, 0])
    """
    size = len(cells)
    held = sorted(
        (cell, chunk, choice)
        for chunk, places in enumerate(cells)
        for choice, cell in enumerate(places)
    )
    for at in range(len(held) - size + 1):
        window = held[at : at + size]
        if window[-1][0] - window[0][0] == size - 1:
            order = [chunk for _, chunk, _ in window]
            if len(set(order)) == size:
                return order, [choice for _, _, choice in window]
    return None


def pieces(
    moves: Sequence[tuple[int, int]], largest: int | None = None
) -> list[tuple[int, int, int]]:
    """Merge moves (from cell, to cell) of neighbours into (from, to, count).

    Examples
    --------
    >>> pieces([(5, 1), (6, 2), (9, 3)])
    [(5, 1, 2), (9, 3, 1)]
    """
    merged: list[tuple[int, int, int]] = []
    for source, target in moves:
        if merged:
            a, b, count = merged[-1]
            if source == a + count and target == b + count and count != largest:
                merged[-1] = (a, b, count + 1)
                continue
        merged.append((source, target, 1))
    return merged
