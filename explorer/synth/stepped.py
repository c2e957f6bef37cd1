"""Stepped: routing and order together where every cost is a small multiple of one unit.

Time is cut into steps; a binary says that a chunk starts over an edge at a step. There is no
big-M, so that HiGHS proves small instances in no time where models with order variables take
minutes. The number of steps goes up from its lower bound until a schedule exists: the first one is
optimal among schedules without groups. Where messages cost latency, groups might do better, so the
bound that is reported is then only the one that holds for them too.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from explorer.synth.arcs import Arcs, candidate_arcs
from explorer.synth.instance import Instance
from explorer.synth.least_time import least_makespan, port_time
from explorer.synth.linear_model import LinearModel
from explorer.synth.result import LIMITED, Limits, Progress, Stage, relative_gap
from explorer.synth.symmetry import orbit_minimum
from explorer.synth.timing import Messages

IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

MAX_DIVISIONS = 4
"""The unit is the least cost, or this part of it at most."""
MAX_DURATION = 12
"""Steps of the dearest edge."""
MAX_STEPS = 40
MAX_BINARIES = 8_000


@dataclass(frozen=True, slots=True, eq=False)
class SteppedResult:
    """What the walk over step counts gave: messages (None when nothing better was found)."""

    messages: Messages | None
    stage: Stage


def solve_stepped(
    instance: Instance, limits: Limits, best_us: float, progress: Progress
) -> SteppedResult:
    """Look for the least number of steps below a known makespan.

    Parameters
    ----------
    best_us
        Makespan of a known schedule; only shorter ones are looked for.
    """
    began = time.perf_counter()
    unit = common_unit(instance)
    if unit is None:
        return SteppedResult(None, Stage("stepped", "skipped: costs are no multiples of one unit"))
    most = int(np.ceil(best_us / unit - 1e-9)) - 1
    steps = least_steps(instance, unit)
    # Fewer steps are impossible; a best schedule that beats them shares latencies.
    status = (
        "optimal" if steps <= most + 1 else "skipped: a schedule with shared latencies is better"
    )
    nodes = 0
    found: Messages | None = None
    while found is None and steps <= most:
        model = _SteppedModel.build(instance, unit, steps)
        if model is None:
            status = "feasible" if nodes else "skipped: too large"
            break
        progress(f"stepped: {steps} steps, {model.linear.columns} binaries")
        solution = model.linear.solve(_left(limits, began))
        if solution.status == "infeasible":
            # The only proof there is of a lower bound here: have it twice.
            solution = model.linear.solve(_left(limits, began), presolve=False)
        nodes += solution.nodes
        if solution.values is not None:
            found = model.messages(solution.values)
        elif solution.status == "infeasible":
            steps += 1
        else:
            status = solution.status if solution.status in LIMITED else "feasible"
            break
    objective = best_us if found is None else steps * unit
    # A schedule that shares latencies may take less than the least number of steps.
    bound = min(steps * unit, objective)
    if instance.alpha_us.any():
        bound = min(bound, least_makespan(instance))
    stage = Stage(
        "stepped",
        status,
        objective,
        bound,
        relative_gap(objective, bound),
        nodes,
        time.perf_counter() - began,
    )
    return SteppedResult(found, stage)


def _left(limits: Limits, began: float) -> Limits:
    """Limits for the rest of the time."""
    if limits.time_limit_s is None:
        return limits
    left = limits.time_limit_s - (time.perf_counter() - began)
    return replace(limits, time_limit_s=max(left, 0.01))


def common_unit(instance: Instance) -> float | None:
    """Largest unit that all costs are small multiples of; None when there is none."""
    costs = np.unique(np.concatenate((instance.busy_us, instance.arrive_us)))
    if not len(costs) or costs[0] <= 0:
        return None
    for divisions in range(1, MAX_DIVISIONS + 1):
        unit = float(costs[0]) / divisions
        multiples = costs / unit
        if multiples.max() > MAX_DURATION * divisions:
            return None
        if np.abs(multiples - np.rint(multiples)).max() < 1e-6:
            return unit
    return None


def least_steps(instance: Instance, unit: float) -> int:
    """Steps that the farthest chunk needs, or what the poorest rank must receive."""
    farthest = float(instance.reach_us[instance.needs].max(initial=0.0))
    received = instance.needs.sum(axis=0).astype(np.float64)
    into = port_time(instance, received, instance.busy_us, outward=False)
    return int(np.ceil(max(farthest, into) / unit - 1e-9))


@dataclass(slots=True)
class _SteppedModel:
    instance: Instance
    arcs: Arcs
    linear: LinearModel
    variable: LongArray
    sample: LongArray
    step: LongArray

    @classmethod
    def build(cls, instance: Instance, unit: float, steps: int) -> _SteppedModel | None:
        """Build the model for a number of steps; None when it is too large."""
        if steps > MAX_STEPS:
            return None
        arcs = candidate_arcs(instance, steps * unit, MAX_BINARIES)
        graph = instance.graph
        _, first = np.unique(arcs.variable, return_index=True)
        arrive = np.rint(instance.arrive_us / unit).astype(np.int64)
        earliest = np.rint(
            instance.reach_us[arcs.chunk[first], graph.src[arcs.edge[first]]] / unit
        ).astype(np.int64)
        latest = steps - arrive[arcs.edge[first]]
        if instance.relayed:
            target = instance.needs.argmax(axis=1)[arcs.chunk[first]]
            left = instance.distance[graph.dst[arcs.edge[first]], target]
            latest -= np.rint(left / unit).astype(np.int64)
        windows = np.maximum(latest - earliest + 1, 0)
        if windows.sum() > MAX_BINARIES:
            return None
        orbit = np.repeat(np.arange(arcs.orbits), windows)
        offset = np.arange(len(orbit)) - np.repeat(np.cumsum(windows) - windows, windows)
        model = cls(instance, arcs, LinearModel(), orbit, first[orbit], earliest[orbit] + offset)
        model.linear.variables((len(orbit),), 0, 1, integer=True)
        model._add_flow(arrive)
        model._add_capacity(np.rint(instance.busy_us / unit).astype(np.int64))
        return model

    def _add_flow(self, arrive: LongArray) -> None:
        """Each needed chunk arrives once, and nothing is sent before it has arrived."""
        instance, arcs, graph = self.instance, self.arcs, self.instance.graph
        group = (instance.group.chunk, instance.group.rank)
        # Every image of an arc enters some place; rows are made for the least place of an orbit.
        place = orbit_minimum(arcs.chunk, graph.dst[arcs.edge], graph.ranks, group)
        own = place == arcs.chunk.astype(np.int64) * graph.ranks + graph.dst[arcs.edge]
        by_orbit: dict[int, list[int]] = {}
        for column, orbit in enumerate(self.variable.tolist()):
            by_orbit.setdefault(orbit, []).append(column)
        entering: dict[int, list[int]] = {}
        for at, orbit in zip(place[own].tolist(), arcs.variable[own].tolist(), strict=True):
            entering.setdefault(at, []).extend(by_orbit.get(orbit, []))
        rows: list[int] = []
        columns: list[int] = []
        lower: list[float] = []
        for at, into in sorted(entering.items()):
            need = bool(instance.needs[at // graph.ranks, at % graph.ranks])
            rows += [len(lower)] * len(into)
            columns += into
            lower.append(1.0 if need else 0.0)
        self.linear.rows(rows, columns, 1.0, lower=lower, upper=1.0, count=len(lower))
        self._add_causality(arrive, entering, group)

    def _add_causality(
        self, arrive: LongArray, entering: dict[int, list[int]], group: tuple[IntArray, IntArray]
    ) -> None:
        instance, arcs, graph = self.instance, self.arcs, self.instance.graph
        tail = orbit_minimum(arcs.chunk, graph.src[arcs.edge], graph.ranks, group)
        at_source = instance.source[arcs.chunk] == graph.src[arcs.edge]
        arrival = self.step + arrive[arcs.edge[self.sample]]
        rows: list[int] = []
        columns: list[int] = []
        values: list[float] = []
        count = 0
        for column in range(len(self.variable)):
            sample = int(self.sample[column])
            if at_source[sample]:
                continue
            before = [
                c for c in entering.get(int(tail[sample]), []) if arrival[c] <= self.step[column]
            ]
            rows += [count] * (len(before) + 1)
            columns += [column, *before]
            values += [1.0] + [-1.0] * len(before)
            count += 1
        self.linear.rows(rows, columns, values, upper=0.0, count=count)

    def _add_capacity(self, busy: LongArray) -> None:
        """A resource carries one message at a time."""
        arcs, graph = self.arcs, self.instance.graph
        last = int((self.step + busy[arcs.edge[self.sample]]).max(initial=0))
        by_orbit: dict[int, list[int]] = {}
        for column, orbit in enumerate(self.variable.tolist()):
            by_orbit.setdefault(orbit, []).append(column)
        using: dict[int, list[tuple[int, int]]] = {}
        for edge, orbit in zip(arcs.edge.tolist(), arcs.variable.tolist(), strict=True):
            for resource in graph.resources_of(edge).tolist():
                using.setdefault(resource, []).append((orbit, int(busy[edge])))
        seen: set[tuple[tuple[int, int], ...]] = set()
        for _, users in sorted(using.items()):
            signature = tuple(sorted(users))
            if signature in seen or len(users) < 2:
                continue
            seen.add(signature)
            at: list[list[int]] = [[] for _ in range(last)]
            for orbit, length in users:
                for column in by_orbit.get(orbit, []):
                    for t in range(int(self.step[column]), int(self.step[column]) + length):
                        at[t].append(column)
            full = [columns for columns in at if len(columns) > 1]
            rows = [i for i, columns in enumerate(full) for _ in columns]
            self.linear.rows(
                rows, [c for columns in full for c in columns], 1.0, upper=1.0, count=len(full)
            )

    def messages(self, values: FloatArray) -> Messages:
        """Messages of a solution, one chunk each, with all images."""
        arcs = self.arcs
        started = np.full(arcs.orbits, -1, dtype=np.int64)
        used = values > 0.5
        started[self.variable[used]] = self.step[used]
        on = np.flatnonzero(started[arcs.variable] >= 0)
        start = started[arcs.variable[on]]
        order = np.lexsort((arcs.chunk[on], arcs.edge[on], start))
        on, start = on[order], start[order]
        return Messages(
            arcs.edge[on],
            np.arange(len(on) + 1, dtype=np.int64),
            arcs.chunk[on],
            start,
            start,
            start,
            own_events=False,
            symmetric=True,
        )
