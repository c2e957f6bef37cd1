"""Cost tables: times of every layer on every GPU count, and which changes of count are allowed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from explorer.burst.network_times import FloatArray, NetworkTimes
from explorer.burst.profile import KEEPS_COUNT, PARAM_STATE_BYTES, Profile, Reading
from explorer.errors import InputError, Problem

TOLERANCE = 1e-9
"""Relative slack of the amplification test against rounding."""


@dataclass(frozen=True, eq=False)
class CostTables:
    """Everything the planner knows, by layer l and GPU count k.

    Parameters
    ----------
    profile
        The network.
    batch, gpus
        Global batch; GPUs of the machine.
    network
        Costs of communication, with the counts.
    forward_us, backward_us
        float64 ``[L, K]``: infinite where the profile has no time.
    reference_us
        float64 ``[L]``: both directions of the whole batch on one GPU.
    limit
        Amplification limit; infinite for none.
    exempt_us
        Layers whose reference time is at most this are not tested against the limit.
    notes
        What was interpolated, extrapolated or left out.
    """

    profile: Profile
    batch: int
    gpus: int
    network: NetworkTimes
    forward_us: FloatArray
    backward_us: FloatArray
    reference_us: FloatArray
    limit: float
    exempt_us: float
    notes: tuple[str, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """GPU counts that a layer may have."""
        return self.network.counts

    @cached_property
    def compute_us(self) -> FloatArray:
        """Both directions, float64 ``[L, K]``."""
        return self.forward_us + self.backward_us

    @cached_property
    def sync_us(self) -> FloatArray:
        """All-reduce of a layer's gradient without the latency of its burst, ``[L, K]``."""
        params = np.array([layer.params for layer in self.profile.layers], dtype=np.float64)
        return np.outer(params * self.profile.param_bytes, self.network.sync_us_per_byte)

    @cached_property
    def work_us(self) -> FloatArray:
        """Compute and all-reduce, ``[L, K]``."""
        return self.compute_us + self.sync_us

    @cached_property
    def memory_bytes(self) -> FloatArray:
        """Bytes of a layer on each of its GPUs: training state and its output, ``[L, K]``."""
        profile = self.profile
        state = PARAM_STATE_BYTES.get(profile.param_bytes, 4 * profile.param_bytes)
        per_gpu = self.batch / np.asarray(self.counts, dtype=np.float64)
        rows = [
            layer.params * state + per_gpu * layer.out_elems * profile.act_bytes
            for layer in profile.layers
        ]
        return np.array(rows)

    @cached_property
    def sync_latency_us(self) -> FloatArray:
        """Latency of an all-reduce, ``[K]``; 0 for a network without parameters."""
        latency = self.network.sync_latency_us
        return latency if self.profile.params else np.zeros_like(latency)

    @cached_property
    def burst_us(self) -> FloatArray:
        """Latency of the all-reduce that a burst starts by changing the count, ``[K, K]``."""
        latency = np.broadcast_to(self.sync_latency_us, (len(self.counts),) * 2).copy()
        np.fill_diagonal(latency, 0.0)
        return latency

    def move_us(self, layer: int, *, far: bool) -> FloatArray:
        """Hand a layer's output on and its gradient back, ``[K, K]`` by (own, next) count."""
        size = self.profile.layers[layer].out_elems * self.profile.act_bytes
        net = self.network
        if far:
            return net.far_latency_us + size * net.far_us_per_byte
        return net.move_latency_us + size * net.move_us_per_byte

    def edge_us(self, before: int, layer: int, *, far: bool) -> FloatArray:
        """Time from the end of one layer to the end of the next, ``[K, K]``; infinite: forbidden.

        A burst (layers that follow one another on the same GPUs) all-reduces in one message and
        pays its latency once, where it starts.
        """
        move = self.move_us(before, far=far)
        burst = self.sync_latency_us[None, :] if far else self.burst_us
        time = move + burst + self.work_us[layer]
        return np.where(self.allowed(layer, time, far=far), time, np.inf)

    def join_us(self, before: int, join: int, *, far: bool) -> FloatArray:
        """Hand a branch's result to the layer it ends in, ``[K, K]``; infinite: forbidden."""
        move = self.move_us(before, far=far)
        return np.where(self.allowed(join, move + self.work_us[join], far=far), move, np.inf)

    def allowed(self, layer: int, time_us: FloatArray, *, far: bool) -> npt.NDArray[np.bool_]:
        """Whether a layer may take that long on each count, ``[K, K]`` or ``[K]``.

        Its GPU time, g · time, may be at most ``limit`` times its time on one GPU.
        """
        reference = self.reference_us[layer]
        count = np.asarray(self.counts, dtype=np.float64)
        fine = np.isfinite(time_us)
        if np.isfinite(self.limit) and reference > self.exempt_us:
            fine &= count * time_us <= self.limit * reference * (1 + TOLERANCE)
        if self.profile.layers[layer].op in KEEPS_COUNT and time_us.ndim == 2:
            fine &= np.zeros(fine.shape, np.bool_) if far else np.eye(len(count), dtype=np.bool_)
        return fine


def cost_tables(
    profile: Profile,
    batch: int,
    gpus: int,
    network: NetworkTimes,
    *,
    limit: float = np.inf,
    exempt_us: float = 0.0,
    extrapolate: bool = False,
) -> CostTables:
    """Read the profile at every local batch.

    Parameters
    ----------
    batch
        Global batch; every count divides it.
    gpus
        GPUs of the machine.
    limit
        Amplification limit, at least 1; infinite for none.
    exempt_us
        Time on one GPU up to which a layer is exempt from the limit (DeepPool: 300).
    extrapolate
        Allow local batches above the largest measured one.

    Raises
    ------
    InputError
        If a layer has no time on any count.
    """
    shape = (len(profile.layers), len(network.counts))
    forward, backward = np.full(shape, np.inf), np.full(shape, np.inf)
    reference = np.zeros(len(profile.layers))
    found: dict[Reading, list[str]] = {Reading.INTERPOLATED: [], Reading.EXTRAPOLATED: []}
    refused: list[str] = []
    assumed: list[str] = []
    problems = []
    for i, layer in enumerate(profile.layers):
        for k, count in enumerate(network.counts):
            local = batch // count
            read = layer.time_us(local, above=extrapolate)
            if read is None:
                refused.append(f"{layer.name} at {local}")
                continue
            forward[i, k], backward[i, k], how = read
            if how in found:
                found[how].append(f"{layer.name} at {local}")
        whole = layer.time_us(batch, above=True)
        if whole is None:
            # Below the smallest measured batch: the time of that one is an upper bound.
            reference[i] = layer.forward_us[0] + layer.backward_us[0]
        else:
            reference[i] = whole[0] + whole[1]
        if whole is None or whole[2] is Reading.EXTRAPOLATED:
            assumed.append(layer.name)
        if not np.isfinite(forward[i]).any():
            problems.append(
                Problem(
                    f"{profile.model}: {layer.name}",
                    f"measured at batches {_numbers(layer.batches)}; none of the local batches"
                    f" {_numbers([batch // c for c in network.counts])} lies among them, and"
                    " extrapolation is refused (--extrapolate allows it above the largest)",
                )
            )
    if problems:
        raise InputError(problems)
    notes = [
        f"{word}: {_some(items)}"
        for word, items in (
            ("interpolated between measured batches", found[Reading.INTERPOLATED]),
            ("EXTRAPOLATED above the largest measured batch", found[Reading.EXTRAPOLATED]),
            ("not measured, so these GPU counts are not offered", refused),
            ("one-GPU time (reference of the amplification only) extrapolated", assumed),
        )
        if items
    ]
    return CostTables(
        profile,
        batch,
        gpus,
        network,
        forward,
        backward,
        reference,
        limit,
        exempt_us,
        tuple(notes),
    )


def _numbers(values: tuple[int, ...] | list[int]) -> str:
    return ", ".join(map(str, values))


def _some(items: list[str]) -> str:
    more = f" and {len(items) - 4} more" if len(items) > 4 else ""
    return ", ".join(items[:4]) + more
