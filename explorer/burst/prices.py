"""Prices: what the planner minimises beside time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from explorer.burst.cost_tables import CostTables
from explorer.burst.network_times import FloatArray


@dataclass(frozen=True, slots=True)
class Prices:
    """Weights of the objective.

    Parameters
    ----------
    gpu_time
        lambda: a layer on g GPUs costs time · (1 + lambda · (g - 1)).
    memory_us_per_byte
        Price of a byte on a GPU; found by the search where memory binds, 0 elsewhere.
    """

    gpu_time: float = 0.0
    memory_us_per_byte: float = 0.0

    def weights(self, tables: CostTables) -> FloatArray:
        """Factor of a layer's time by its count, ``[K]``."""
        count = np.asarray(tables.counts, dtype=np.float64)
        return 1 + self.gpu_time * (count - 1)

    def memory_us(self, tables: CostTables) -> FloatArray:
        """Cost of a layer's memory, ``[L, K]``."""
        return tables.memory_bytes * self.memory_us_per_byte
