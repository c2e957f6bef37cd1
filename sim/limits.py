"""Limits of one simulation: transfers and wall-clock seconds."""

from __future__ import annotations

import math
from time import perf_counter

from sim.errors import LimitReached


class Limits:
    """Counts from its construction; engines check it between instants.

    Parameters
    ----------
    max_transfers
        Transfers that may start; None for any number.
    max_seconds
        Wall-clock seconds; None for no limit. Does not alter a result, only whether there is one.
    """

    def __init__(self, max_transfers: int | None = None, max_seconds: float | None = None) -> None:
        self.max_transfers = max_transfers
        self._max_seconds = max_seconds
        self._deadline = math.inf if max_seconds is None else perf_counter() + max_seconds

    def check(self, transfers: int, time_us: float) -> None:
        """Stop a simulation that has started so many transfers by this simulated time.

        Raises
        ------
        LimitReached
            If one of the limits is exceeded.
        """
        if self.max_transfers is not None and transfers > self.max_transfers:
            raise LimitReached(
                f"more than max_transfers = {self.max_transfers} transfers "
                f"by {time_us:.3f} us of simulated time"
            )
        if perf_counter() > self._deadline:
            raise LimitReached(
                f"max_seconds = {self._max_seconds} passed after {transfers} transfers, "
                f"at {time_us:.3f} us of simulated time"
            )
