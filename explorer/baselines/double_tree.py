r"""Double tree: two binary trees over N positions; what is inner in one is a leaf in the other.

So with half of the data on each tree, every position has at most two children in all.
The first is NCCL's (``src/graph/trees.cc``, ``ncclGetBtree``): position 0 with one child, below it
a binary search tree over 1 … N-1, in which odd positions are leaves::

    0---------8
           __/ \__
          4       12
         / \     /  \
        2   6   10  14
       /\  /\  /\  /\
      1 3  5 7 9 11 13 15

References
----------
P. Sanders, J. Speck, J. L. Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and
scan", Parallel Computing 35 (2009): the second tree is the first one mirrored for an even number
of positions, shifted by one for an odd number.
"""

from __future__ import annotations

Parents = list[int]
"""Parent of every position, -1 for the root."""


def double_tree(count: int) -> tuple[Parents, Parents]:
    """NCCL's two trees (``ncclGetDtree``), with roots of their own.

    Examples
    --------
    >>> double_tree(4)
    ([-1, 2, 0, 2], [1, 3, 1, -1])
    """
    first = _tree(count)
    turn = [(p + 1) % count if count % 2 else count - 1 - p for p in range(count)]
    return first, _moved(first, turn)


def rooted_double_tree(count: int) -> tuple[Parents, Parents]:
    """Two trees with the same root, position 0, as Sanders, Speck and Träff have them.

    Both roots hand their half to another position, and the others form the two trees.

    Examples
    --------
    >>> rooted_double_tree(4)
    ([-1, 2, 0, 2], [-1, 3, 3, 0])
    """
    first = _tree(count)
    others = count - 1
    turn = [0] + [p % others + 1 if others % 2 else count - p for p in range(1, count)]
    return first, _moved(first, turn)


def _tree(count: int) -> Parents:
    parents = [-1]
    for position in range(1, count):
        bit = position & -position
        above = (position ^ bit) | bit << 1
        parents.append(above if above < count else position ^ bit)
    return parents


def _moved(parents: Parents, turn: list[int]) -> Parents:
    moved = [-1] * len(parents)
    for position, parent in enumerate(parents):
        moved[turn[position]] = turn[parent] if parent >= 0 else -1
    return moved
