"""Result of a simulation: when every transfer and step took place, and what was busiest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sim.prepared import FloatArray, IntArray, LongArray, Prepared
from sim.times import Times


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The busiest resource.

    Parameters
    ----------
    resource
        Its name, e.g. ``gpu0->nvswitch0``.
    direction
        For people: ``gpu0 -> nvswitch0``.
    utilisation
        Busy time over the whole time, 0 to 1.
    """

    resource: str
    direction: str
    utilisation: float


@dataclass(frozen=True, slots=True, eq=False)
class SimResult:
    """What a simulation found. N transfers, S steps, Q resources; times in µs.

    Parameters
    ----------
    time_us
        When the last step was complete; 0 without steps.
    step, path
        int64 ``[N]``: send step of each transfer and its path in the network, sorted by
        (start, step).
    start_us, busy_end_us, arrive_us
        float64 ``[N]``: when the transfer took its resources, released them, and when its message
        arrived.
    step_end_us
        float64 ``[S]``: when each step was complete.
    resources
        Names of the network's resources.
    resource_busy_us
        float64 ``[Q]``: how long each was held.
    engine, fidelity, cost_model
        How it was simulated.
    seconds
        Wall-clock time of the engine alone, on a prepared program, without compilation.
    """

    time_us: float
    step: LongArray
    path: LongArray
    start_us: FloatArray
    busy_end_us: FloatArray
    arrive_us: FloatArray
    step_end_us: FloatArray
    resources: tuple[str, ...]
    resource_busy_us: FloatArray
    engine: str
    fidelity: str
    cost_model: str
    seconds: float

    @property
    def transfers(self) -> int:
        """Number of transfers N."""
        return len(self.step)

    def bottleneck(self) -> Bottleneck | None:
        """The resource with most busy time, the first of equals; None without a transfer."""
        if not self.transfers or not self.resources:
            return None
        busiest = int(np.argmax(self.resource_busy_us))
        name = self.resources[busiest]
        busy = float(self.resource_busy_us[busiest])
        return Bottleneck(
            resource=name,
            direction=" -> ".join(name.split("->")),
            # sums of rounded holds may exceed the rounded whole by an ulp
            utilisation=min(busy / self.time_us, 1.0) if self.time_us > 0 else 0.0,
        )


def result_of(
    prepared: Prepared, times: Times, *, engine: str, fidelity: str, cost_model: str, seconds: float
) -> SimResult:
    """Collect an engine's event times into a result."""
    steps = np.flatnonzero(prepared.sends).astype(np.int64)
    steps = steps[np.argsort(times.start_us[steps], kind="stable")]
    path = prepared.conn_path[prepared.block_out[prepared.step_block[steps]]]
    return SimResult(
        time_us=float(times.step_end_us.max(initial=0.0)),
        step=steps,
        path=path,
        start_us=times.start_us[steps],
        busy_end_us=times.busy_end_us[steps],
        arrive_us=times.arrive_us[steps],
        step_end_us=times.step_end_us,
        resources=prepared.network.resources,
        resource_busy_us=_busy(prepared, steps, path),
        engine=engine,
        fidelity=fidelity,
        cost_model=cost_model,
        seconds=seconds,
    )


def _busy(prepared: Prepared, steps: LongArray, path: LongArray) -> FloatArray:
    """Busy time of each resource: holds per path first, then paths per resource."""
    network = prepared.network
    paths = len(network.path_src)
    per_path = np.bincount(path, weights=prepared.hold_us[steps], minlength=paths)
    owner: IntArray = np.repeat(np.arange(paths, dtype=np.int32), np.diff(network.path_first))
    weights = per_path[owner]
    return np.bincount(
        network.path_resource, weights=weights, minlength=len(network.resources)
    ).astype(np.float64)
