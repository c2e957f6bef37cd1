"""Pareto front of plans: iteration time against GPU time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from explorer.burst.plan import TrainingPlan
from explorer.burst.planner import Planner
from explorer.errors import InfeasibleError

LIMITS = (1.1, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 8.0, math.inf)
"""Amplification limits tried; 1.5 to 5 are those of DeepPool's experiment drivers."""

MAX_PRICED = 40
"""Most plans of the priced mode."""


def pareto_front(planner: Planner) -> list[TrainingPlan]:
    """Plans that no other found is as good as in both iteration time and GPU time.

    Two knobs are turned: the amplification limit, and the price lambda of GPU time, bisected from
    the two ends of the front. For a chain the priced plans are exactly the corners of the convex
    hull of all plans' (iteration, GPU time); with branches they are near it.

    Returns
    -------
    list
        Fastest first.
    """
    found = []
    for limit in LIMITS:
        try:
            found.append(_with(planner, limit).burst())
        except InfeasibleError:
            continue
    free = _with(planner, math.inf)
    fast, lean = free.burst(), free.burst(1.0)
    found += [fast, lean]
    spans = [(fast, lean)]
    tried = 0
    while spans and tried < MAX_PRICED:
        left, right = spans.pop(0)
        price = _price(left, right)
        if price is None:
            continue
        middle = free.burst(price)
        tried += 1
        found.append(middle)
        if _gains(middle, left, right, price):
            spans += [(left, middle), (middle, right)]
    return front(found)


def front(plans: Iterable[TrainingPlan]) -> list[TrainingPlan]:
    """Keep the plans that none is as good as in both, fastest first."""
    best = math.inf
    kept = []
    for plan in sorted(plans, key=lambda p: (p.iteration_us, p.gpu_us)):
        if plan.gpu_us < best * (1 - 1e-12):
            kept.append(plan)
            best = plan.gpu_us
    return kept


def _with(planner: Planner, limit: float) -> Planner:
    capacity = None if math.isinf(planner.capacity) else planner.capacity
    step = planner.step_us if planner.step_known else None
    return Planner(replace(planner.tables, limit=limit), step, capacity)


def _price(left: TrainingPlan, right: TrainingPlan) -> float | None:
    """Price at which both cost the same; None where nothing lies between."""
    slower, saved = right.iteration_us - left.iteration_us, left.gpu_us - right.gpu_us
    if slower <= 1e-9 * left.iteration_us or saved <= 1e-9 * left.gpu_us:
        return None
    return slower / (slower + saved)


def _gains(middle: TrainingPlan, left: TrainingPlan, right: TrainingPlan, price: float) -> bool:
    """Whether a plan lies below the line through two others."""

    def cost(plan: TrainingPlan) -> float:
        return (1 - price) * plan.iteration_us + price * plan.gpu_us

    return cost(middle) < min(cost(left), cost(right)) * (1 - 1e-9)
