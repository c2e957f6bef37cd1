"""Network times: what all-reduces and resharding cost, as latency plus time per byte."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

DEEPPOOL_GBS = 266.0
"""Bandwidth of a GPU on the authors' A100 NVSwitch node: 2.66e5 bytes/us in DeepPool's
``parallelizationPlanner.py``."""

DEEPPOOL_LATENCY_US = 40.0
"""Latency of a transfer there (240 for Inception in their drivers)."""


@dataclass(frozen=True, slots=True, eq=False)
class NetworkTimes:
    """Costs between the K GPU counts that a plan may use, for one global batch.

    Parameters
    ----------
    label
        Where the costs come from, printed beside every result.
    counts
        The GPU counts, ascending; the set of g GPUs is the first g.
    sync_latency_us, sync_us_per_byte
        float64 ``[K]``: all-reduce of b bytes of gradient costs latency + b · rate; 0 for one GPU.
    move_latency_us, move_us_per_byte
        float64 ``[K, K]``: handing a layer's output over from the first p to the first g GPUs and
        its gradient back, per byte of output per sample; 0 on the diagonal.
    far_latency_us, far_us_per_byte
        The same to (or from) a set of other GPUs, where nothing stays in place.
    notes
        What was assumed.
    """

    label: str
    counts: tuple[int, ...]
    sync_latency_us: FloatArray
    sync_us_per_byte: FloatArray
    move_latency_us: FloatArray
    move_us_per_byte: FloatArray
    far_latency_us: FloatArray
    far_us_per_byte: FloatArray
    notes: tuple[str, ...] = ()


def flat_times(
    counts: Sequence[int], batch: int, gbs: float = DEEPPOOL_GBS, latency_us: float = 40.0
) -> NetworkTimes:
    """Costs of one bandwidth and one latency between any GPUs.

    An all-reduce is a ring: 2(g-1)/g of the bytes, and one latency. A transfer takes one latency
    and the time of the GPU that moves most samples, in each direction. With lo and hi the smaller
    and larger count, a GPU of the smaller set moves B/lo - B/hi samples and one that is only in
    the larger set B/hi; samples stay where they are if both sets hold them.

    Parameters
    ----------
    counts
        GPU counts, ascending.
    batch
        Global batch B.
    gbs, latency_us
        Rate of a GPU per direction, latency of a message.

    Examples
    --------
    >>> times = flat_times([1, 2], batch=4, gbs=1.0, latency_us=0.0)
    >>> float(times.sync_us_per_byte[1]), float(times.move_us_per_byte[0, 1])
    (0.001, 0.004)
    """
    count = np.asarray(counts, dtype=np.float64)
    per_byte = 1.0 / (gbs * 1e3)
    alone = count == 1
    low = np.minimum.outer(count, count)
    high = np.maximum.outer(count, count)
    same = low == high
    moved = np.where(same, 0.0, np.maximum(batch / low - batch / high, batch / high))
    return NetworkTimes(
        f"flat {gbs:g} GB/s, {latency_us:g} us",
        tuple(counts),
        np.where(alone, 0.0, latency_us),
        2 * (count - 1) / count * per_byte,
        np.where(same, 0.0, 2 * latency_us),
        2 * moved * per_byte,
        np.full((len(count), len(count)), 2 * latency_us),
        2 * batch / low * per_byte,
    )
