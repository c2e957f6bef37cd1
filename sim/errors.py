"""What can go wrong in a simulation. ``explorer`` translates these to its own errors."""

from __future__ import annotations

from collections.abc import Sequence


class SimError(Exception):
    """Base of every error of this package."""


class ProgramError(SimError):
    """A program is malformed: bad shapes, absent ranks or blocks, an unknown path."""


class Deadlock(SimError):  # noqa: N818 - the field's word
    """Every unfinished thread block waits for another.

    Parameters
    ----------
    time_us
        Simulated time at which nothing could go on.
    cycle
        The waiting cycle (or, when somebody waits for a block that has ended, the chain), each
        entry ``gpu G tb B step S waits for …``.
    """

    def __init__(self, time_us: float, cycle: Sequence[str]) -> None:
        self.time_us = time_us
        self.cycle = tuple(cycle)
        text = "; ".join(self.cycle[:8])
        if len(self.cycle) > 8:
            text += f"; … and {len(self.cycle) - 8} more"
        super().__init__(f"deadlock at {time_us:.3f} us: {text}")


class LimitReached(SimError):  # noqa: N818
    """The event limit or the wall-clock limit of a simulation was reached."""
