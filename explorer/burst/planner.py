"""Planner: the burst-parallel plan of least iteration time, within limits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from explorer.burst.cost_tables import CostTables
from explorer.burst.plan import LayerPlan, TrainingPlan
from explorer.burst.prices import Prices
from explorer.burst.search import Search
from explorer.burst.sequence import Layout, Packed, Placed, best_sequence, uniform_sequence
from explorer.burst.series_parallel import Chain, series_parallel
from explorer.errors import InfeasibleError, InputError, Problem

MEMORY_ROUNDS = 20
"""Halvings of the price of memory."""


class Planner:
    """Plans one network at one batch on one machine.

    Parameters
    ----------
    tables
        Costs, with the amplification limit.
    step_us
        Rest of an iteration; None for the profile's.
    memory_bytes
        Memory of a GPU; None for no limit.
    """

    def __init__(
        self, tables: CostTables, step_us: float | None = None, memory_bytes: float | None = None
    ) -> None:
        self.tables = tables
        self.chain: Chain = series_parallel(tables.profile.model, tables.profile.layers)
        known = tables.profile.step_us if step_us is None else step_us
        self.step_known = known is not None
        self.step_us = known or 0.0
        self.capacity = math.inf if memory_bytes is None else memory_bytes

    def burst(self, price: float = 0.0) -> TrainingPlan:
        """Find the best plan.

        Parameters
        ----------
        price
            lambda: minimise the sum of time · (1 + lambda · (g - 1)) instead of the time.

        Raises
        ------
        InfeasibleError
            If no plan keeps the amplification limit, or none that was found fits into memory.

        Notes
        -----
        Where the best plan does not fit into a GPU's memory, bytes get a price (a Lagrange
        multiplier, found by bisection), and the cheapest plan that fits is returned; how far it
        can be from the best one that fits is said in its notes.
        """
        found, _ = self._solve(Prices(price), price)
        if self.fits(found):
            return found
        return self._fit(price, found)

    def fits(self, plan: TrainingPlan) -> bool:
        """Whether a plan fits into the memory of a GPU."""
        return plan.memory_bytes <= self.capacity

    def data_parallel(self, gpus: int) -> TrainingPlan:
        """Plan with every layer on the first ``gpus`` GPUs, whether it fits or not.

        Raises
        ------
        InputError
            If the count is not among the tables' or a layer has no time at its local batch.
        """
        counts = self.tables.counts
        if gpus not in counts:
            raise InputError(Problem("gpus", f"got {gpus}, expected one of {list(counts)}"))
        k = counts.index(gpus)
        holes = np.flatnonzero(~np.isfinite(self.tables.compute_us[:, k]))
        if len(holes):
            names = [self.tables.profile.layers[i].name for i in holes[:4]]
            local = self.tables.batch // gpus
            raise InputError(
                Problem("gpus", f"no time at {local} samples per GPU for {', '.join(names)}")
            )
        return self._plan(uniform_sequence(self.chain, k), "dp", 0.0)

    def data_parallel_counts(self) -> list[int]:
        """GPU counts at which every layer has a time."""
        times = self.tables.compute_us
        return [c for k, c in enumerate(self.tables.counts) if np.isfinite(times[:, k]).all()]

    def _solve(self, prices: Prices, price: float) -> tuple[TrainingPlan, float]:
        table = Search(self.tables, prices).network(self.chain)
        costs = table.cost[0, 0]
        last = int(costs.argmin())
        if not np.isfinite(costs[last]):
            raise InfeasibleError(self._why())
        sequence = best_sequence(self.tables, self.chain, table, last)
        return self._plan(sequence, "burst", price), float(costs[last])

    def _why(self) -> str:
        least = self._least_limit()
        if least is None:
            return "no plan: the profile has no times on GPU counts that fit together"
        return (
            f"no plan keeps every layer within amplification {self.tables.limit:g}: the profile has"
            f" no time for some layers on few GPUs; --limit {least:.4g} would do, or --extrapolate"
        )

    def _least_limit(self) -> float | None:
        """Amplification limit, to a part in a hundred, from which a plan exists; None: none."""

        def exists(limit: float) -> bool:
            tables = replace(self.tables, limit=limit)
            cost = Search(tables, Prices()).network(self.chain).cost
            return bool(np.isfinite(cost).any())

        if not exists(math.inf):
            return None
        low, high = self.tables.limit, self.tables.limit * 2
        while not exists(high):
            low, high = high, high * 2
        while high > low * 1.01:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if exists(middle) else (middle, high)
        return high

    def _fit(self, price: float, unbound: TrainingPlan) -> TrainingPlan:
        """Bisect the price of memory for the cheapest plan that fits."""
        scale = unbound.iteration_us / max(unbound.memory_bytes, 1.0)
        low, high = scale * 1e-6, scale * 1e6
        best, bound = None, 0.0
        for middle in (high, *[0.0] * MEMORY_ROUNDS):
            byte = middle or math.sqrt(low * high)
            plan, cost = self._solve(Prices(price, byte), price)
            # A chain's first GPU holds every layer, so this bounds all plans that fit.
            bound = max(bound, cost - byte * self.capacity)
            if not self.fits(plan):
                if middle:
                    break
                low = byte
                continue
            high = byte
            if best is None or plan.iteration_us < best.iteration_us:
                best = plan
        if best is None:
            raise InfeasibleError(
                f"memory: no plan found fits into {self.capacity / 1e9:.2f} GB per GPU; the one"
                f" that needs least takes {plan.memory_bytes / 1e9:.2f} GB (training state and"
                " outputs of all layers on a GPU); use more GPUs, a smaller batch or raise --memory"
            )
        note = f"memory of {self.capacity / 1e9:.2f} GB per GPU binds: plan found by pricing bytes"
        if not price and not self._has_blocks():
            gap = best.iteration_us / (bound + self.step_us) - 1
            note += f", at most {gap:.1%} above the best that fits"
        return replace(best, notes=(*best.notes, note))

    def _has_blocks(self) -> bool:
        return any(not isinstance(item, int) for item in self.chain.items)

    def _plan(self, sequence: Sequence[Placed | Packed], mode: str, price: float) -> TrainingPlan:
        tables = self.tables
        layout = Layout(tables, sequence)
        layers = []
        for i, layer in enumerate(tables.profile.layers):
            timed = layout.timed[i]
            k = timed.placed.count
            layers.append(
                LayerPlan(
                    layer.name,
                    layer.op,
                    layer.prev,
                    tables.counts[k],
                    timed.placed.first_gpu,
                    float(tables.forward_us[i, k]),
                    float(tables.backward_us[i, k]),
                    float(tables.sync_us[i, k]) + timed.burst_us,
                    timed.reshard_us,
                    timed.start_us,
                    layer.params * tables.profile.param_bytes,
                    float(tables.memory_bytes[i, k]),
                )
            )
        return TrainingPlan(
            tables.profile.model,
            mode,
            tables.batch,
            tables.gpus,
            tables.limit if mode == "burst" and math.isfinite(tables.limit) else None,
            price,
            tables.network.label,
            tuple(layers),
            self.step_us,
            self.step_known,
            layout.end_us + self.step_us,
            float(tables.reference_us.sum()) + self.step_us,
            (*tables.profile.notes, *tables.network.notes, *tables.notes),
        )
