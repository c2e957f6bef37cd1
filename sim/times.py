"""Event times: what an engine finds out."""

from __future__ import annotations

from dataclasses import dataclass

from sim.prepared import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Times:
    """Event times per step, in µs.

    Parameters
    ----------
    start_us, busy_end_us, arrive_us
        float64 ``[S]``: when a send took its resources, released them and its block, and when its
        message arrived; NaN for steps that do not send.
    step_end_us
        float64 ``[S]``: when each step was complete.
    """

    start_us: FloatArray
    busy_end_us: FloatArray
    arrive_us: FloatArray
    step_end_us: FloatArray
