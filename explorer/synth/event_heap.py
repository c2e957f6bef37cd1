"""A binary heap of (time, item) in two arrays, for numba."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

LongArray = npt.NDArray[np.int64]


@njit(cache=True)  # type: ignore[untyped-decorator]
def push(time: LongArray, item: LongArray, count: int, t: int, x: int) -> int:
    """Insert into a binary heap of (time, item) kept in two arrays; returns its new size."""
    i = count
    while i > 0:
        parent = (i - 1) >> 1
        if time[parent] < t or (time[parent] == t and item[parent] <= x):
            break
        time[i] = time[parent]
        item[i] = item[parent]
        i = parent
    time[i] = t
    item[i] = x
    return count + 1


@njit(cache=True)  # type: ignore[untyped-decorator]
def pop(time: LongArray, item: LongArray, count: int) -> int:
    """Remove the root of the heap, whose values were read before; returns its new size."""
    count -= 1
    t = time[count]
    x = item[count]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= count:
            break
        right = child + 1
        if right < count and (
            time[right] < time[child] or (time[right] == time[child] and item[right] < item[child])
        ):
            child = right
        if t < time[child] or (t == time[child] and x <= item[child]):
            break
        time[i] = time[child]
        item[i] = item[child]
        i = child
    time[i] = t
    item[i] = x
    return count
