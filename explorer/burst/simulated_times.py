"""Network times from the collective simulator on a topology."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from explorer.burst.collective_times import MOVE_SIZES, SIZES, CollectiveTimes
from explorer.burst.network_times import NetworkTimes
from explorer.errors import InputError, Problem


def simulated_times(
    times: CollectiveTimes,
    counts: Sequence[int],
    batch: int,
    gpus: int,
    grad_bytes: int,
    *,
    far: bool,
) -> NetworkTimes:
    """Costs from simulated programs, as the least line that lies on or above them.

    The rate of an all-reduce is that of the best program between the two size buckets around the
    whole network's gradient; the latency is the least with which no bucket up to there takes
    longer than the line says. So a plan never counts on a time that was not simulated; for bursts
    with few parameters on many GPUs, where another program wins, the line is too high.

    Parameters
    ----------
    times
        The machine.
    counts
        GPU counts, ascending.
    batch
        Global batch; counts divide it.
    gpus
        GPUs that plans may use.
    grad_bytes
        Bytes of the whole network's gradient.
    far
        Whether branches may run on other GPUs; without, those costs are infinite.

    Raises
    ------
    InputError
        If the machine has fewer GPUs.
    """
    if gpus > times.topology.ranks:
        raise InputError(
            Problem(
                "--gpus",
                f"got {gpus}, but {times.topology.name} has {times.topology.ranks} (see --nodes)",
            )
        )
    k = len(counts)
    sync = np.array([_sync_line(times, g, grad_bytes) for g in counts])
    move = np.zeros((k, k, 2))
    beside = np.full((k, k, 2), np.inf)
    for i, a in enumerate(counts):
        for j, b in enumerate(counts):
            if j > i:
                # There and back again is the same from either side.
                move[i, j] = move[j, i] = _move_line(times.reshard_us(batch, (0, a), (0, b)))
            if far:
                first = min(a, gpus - b)
                beside[i, j] = _move_line(times.reshard_us(batch, (0, a), (first, b)))
    return NetworkTimes(
        f"simulated on {times.topology.name}, {times.topology.ranks} GPUs, ideal,"
        f" {times.cost_model}",
        tuple(counts),
        sync[:, 0],
        sync[:, 1],
        move[:, :, 0],
        move[:, :, 1],
        beside[:, :, 0],
        beside[:, :, 1],
        ("all-reduces: best of ring, recursive, hierarchical, all-pairs on the first g GPUs",),
    )


def _sync_line(times: CollectiveTimes, gpus: int, grad_bytes: int) -> tuple[float, float]:
    """Latency and time per byte of all-reduces up to a size."""
    if gpus == 1:
        return 0.0, 0.0
    sizes, us = np.array(SIZES, dtype=np.float64), np.array(times.allreduce_us(gpus))
    last = min(max(int(np.searchsorted(sizes, grad_bytes)), 1), len(sizes) - 1)
    rate = (us[last] - us[last - 1]) / (sizes[last] - sizes[last - 1])
    latency = float((us - rate * sizes)[: last + 1].max())
    return max(latency, 0.0), float(rate)


def _move_line(us: Sequence[float]) -> tuple[float, float]:
    rate = (us[1] - us[0]) / (MOVE_SIZES[1] - MOVE_SIZES[0])
    return max(us[0] - rate * MOVE_SIZES[0], 0.0), rate
