"""Routing: the trees (or paths) of all chunks, by a MILP on orbits.

TACCL (NSDI'23), section 5.1, step 1: no order and no contention in time; the makespan is estimated
by its lower bounds, the time every resource is busy and the latency of every path. One binary
stands for all images of a send under the sketch's symmetry. Arrival times break cycles, with a
big-M of each row's own; one cut per chunk and foreign node says that the chunk enters it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from explorer.synth.arcs import Arcs, candidate_arcs, orbit_numbers
from explorer.synth.instance import Instance
from explorer.synth.linear_model import LinearModel
from explorer.synth.resource_load import load_rows
from explorer.synth.result import Limits, Progress, Stage, relative_gap
from explorer.synth.symmetry import orbit_minimum
from explorer.synth.trees import arrival_times, grown_trees

IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

MAX_BINARIES = 8_000
"""Above this many orbits of sends, even over shortest paths, no model is built."""

TIE = 1e-5
"""Share of the horizon that the total busy time may weigh: of equal makespans the fewest sends."""

POLICY_NODES = 200
"""Nodes of the second solve, which follows a sketch's switch policies at a given makespan."""


@dataclass(frozen=True, slots=True, eq=False)
class RoutingResult:
    """Routes found.

    Parameters
    ----------
    trees
        Edges and chunks of the sends, int32 ``[N]`` each, complete trees; None when there are none.
    stage
        Record of the solve. Its bound holds for every schedule with the instance's symmetry; there
        is none where only near-shortest paths were in the model.
    """

    trees: tuple[IntArray, IntArray] | None
    stage: Stage


def solve_routing(
    instance: Instance,
    limits: Limits,
    horizon_us: float,
    start: tuple[IntArray, IntArray] | None,
    progress: Progress,
) -> RoutingResult:
    """Find routes with the least estimated makespan.

    Parameters
    ----------
    horizon_us
        Makespan of a known schedule: nothing may arrive later.
    start
        Edges and chunks of that schedule, if it has the instance's symmetry.
    """
    arcs = candidate_arcs(instance, horizon_us, MAX_BINARIES, start)
    if arcs.orbits > MAX_BINARIES:
        reason = f"skipped: too large (more than {MAX_BINARIES} binaries)"
        return RoutingResult(None, Stage("routing", reason))
    model = RoutingModel(instance, arcs, horizon_us)
    progress(f"routing: {arcs.orbits} binaries, {model.linear.row_count} rows")
    found = model.linear.solve(limits, start=None if start is None else model.start(*start))
    stage = replace(found.stage("routing"), objective=None, bound=None, gap=None)
    trees = None if found.values is None else model.trees(found.values)
    if found.values is None or trees is None:
        if stage.status == "infeasible":
            # A schedule is known, but it lacks the symmetry: none that has it is as short.
            stage = replace(stage, status=f"infeasible within {horizon_us:g} us")
        return RoutingResult(None, stage)
    objective = float(found.values[model.makespan.first])
    bound = None
    if found.bound is not None and arcs.whole:
        bound = max(0.0, found.bound - TIE * horizon_us)
    stage = replace(stage, objective=objective, bound=bound, gap=relative_gap(objective, bound))
    if instance.sketch is not None and any(s.policy != "free" for s in instance.sketch.switches):
        followed = _follow_policies(model, limits, objective, found.values)
        trees = followed or trees
    return RoutingResult(trees, stage)


def _follow_policies(
    model: RoutingModel, limits: Limits, objective: float, values: FloatArray
) -> tuple[IntArray, IntArray] | None:
    """Among routes of the same makespan use few or many switch links, as the sketch asks."""
    start = model.prefer_links(objective, values)
    if start is None:
        return None
    tighter = replace(limits, node_limit=min(limits.node_limit, POLICY_NODES), gap=0.01)
    found = model.linear.solve(tighter, start=start)
    return None if found.values is None else model.trees(found.values)


class RoutingModel:
    """The MILP.

    Attributes
    ----------
    linear
        Its arrays.
    use
        Binaries, one per orbit of sends.
    makespan
        The estimate, in us.
    """

    def __init__(self, instance: Instance, arcs: Arcs, horizon_us: float) -> None:
        self.instance, self.arcs, self.horizon_us = instance, arcs, horizon_us
        graph = instance.graph
        self.linear = LinearModel()
        busy = np.zeros(arcs.orbits)
        np.add.at(busy, arcs.variable, instance.busy_us[arcs.edge])
        total = max(float(busy.sum()), 1e-300)
        self.use = self.linear.variables(
            (arcs.orbits,), 0, 1, integer=True, cost=busy * (TIE * horizon_us / total)
        )
        self.makespan = self.linear.variables((1,), 0, horizon_us, cost=1.0)
        self._node_of_head = graph.node_of[graph.dst[arcs.edge]].astype(np.int64)
        place = orbit_minimum(
            arcs.chunk,
            graph.dst[arcs.edge],
            graph.ranks,
            (instance.group.chunk, instance.group.rank),
        )
        self._is_place = place == arcs.chunk.astype(np.int64) * graph.ranks + graph.dst[arcs.edge]
        self._place = place
        if instance.relayed:
            self._add_paths()
        else:
            self._add_trees()
            self._add_entries()
            self._add_arrivals()
        load_rows(self.linear, instance, arcs, self.use, self.makespan)

    def _add_trees(self) -> None:
        """Every rank but the source receives the chunk exactly once."""
        rows, count = orbit_numbers(self._place[self._is_place])
        column = self.use.first + self.arcs.variable[self._is_place]
        self.linear.rows(rows, column, 1.0, lower=1.0, upper=1.0, count=count)

    def _add_entries(self) -> None:
        """A chunk enters every foreign node where it is needed (implied, but not by the LP)."""
        graph, arcs = self.instance.graph, self.arcs
        nodes = int(graph.node_of.max()) + 1
        home = graph.node_of[self.instance.source[arcs.chunk]]
        enters = self.instance.inter[arcs.edge] & (self._node_of_head != home)
        if not enters.any():
            return
        key = arcs.chunk[enters].astype(np.int64) * nodes + self._node_of_head[enters]
        rows, count = orbit_numbers(key)
        self.linear.rows(rows, self.use.first + arcs.variable[enters], 1.0, lower=1.0, count=count)

    def _add_arrivals(self) -> None:
        """Arrival times along used sends; they forbid cycles and bound the makespan."""
        instance, arcs, graph = self.instance, self.arcs, self.instance.graph
        group = (instance.group.chunk, instance.group.rank)
        tail_place = orbit_minimum(arcs.chunk, graph.src[arcs.edge], graph.ranks, group)
        places, number = np.unique(np.concatenate((self._place, tail_place)), return_inverse=True)
        least = instance.reach_us[places // graph.ranks, places % graph.ranks]
        self.arrival = self.linear.variables((len(places),), least, self.horizon_us)
        self._places = places
        at_source = instance.source[arcs.chunk] == graph.src[arcs.edge]
        _, sample = np.unique(arcs.variable, return_index=True)
        inner = sample[~at_source[sample]]
        head, tail = number[: len(arcs.edge)][inner], number[len(arcs.edge) :][inner]
        span = instance.arrive_us[arcs.edge[inner]]
        # With u = 0 the row reads t_head >= t_tail + span - M; M is the least that makes it void.
        big = np.maximum(self.horizon_us + span - least[head], 0.0)
        row = np.tile(np.arange(len(inner)), 3)
        column = np.concatenate(
            (
                self.arrival.first + head,
                self.arrival.first + tail,
                self.use.first + arcs.variable[inner],
            )
        )
        ones = np.ones(len(inner))
        self.linear.rows(
            row, column, np.concatenate((ones, -ones, -big)), lower=span - big, count=len(inner)
        )
        needed = instance.needs[places // graph.ranks, places % graph.ranks]
        place = np.flatnonzero(needed)
        self.linear.rows(
            np.tile(np.arange(len(place)), 2),
            np.concatenate((np.full(len(place), self.makespan.first), self.arrival.first + place)),
            np.concatenate((np.ones(len(place)), -np.ones(len(place)))),
            lower=0.0,
            count=len(place),
        )

    def _add_paths(self) -> None:
        """What enters a rank leaves it, but for the destination; a path's length is its latency."""
        instance, arcs, graph = self.instance, self.arcs, self.instance.graph
        group = (instance.group.chunk, instance.group.rank)
        tail_place = orbit_minimum(arcs.chunk, graph.src[arcs.edge], graph.ranks, group)
        own_tail = tail_place == arcs.chunk.astype(np.int64) * graph.ranks + graph.src[arcs.edge]
        place = np.concatenate((self._place[self._is_place], tail_place[own_tail]))
        column = self.use.first + np.concatenate(
            (arcs.variable[self._is_place], arcs.variable[own_tail])
        )
        sign = np.concatenate((np.ones(self._is_place.sum()), -np.ones(own_tail.sum())))
        unique, rows = np.unique(place, return_inverse=True)
        chunk, rank = unique // graph.ranks, unique % graph.ranks
        net = instance.needs[chunk, rank].astype(np.float64)
        net[instance.source[chunk] == rank] = -1.0
        self.linear.rows(rows, column, sign, lower=net, upper=net, count=len(unique))
        least_image = instance.group.chunk.min(axis=0)
        mine = least_image[arcs.chunk] == arcs.chunk
        rows, count = orbit_numbers(arcs.chunk[mine].astype(np.int64))
        self.linear.rows(
            np.concatenate((rows, np.arange(count))),
            np.concatenate(
                (self.use.first + arcs.variable[mine], np.full(count, self.makespan.first))
            ),
            np.concatenate((-instance.arrive_us[arcs.edge[mine]], np.ones(count))),
            lower=0.0,
            count=count,
        )

    def prefer_links(self, makespan_us: float, values: FloatArray) -> FloatArray | None:
        """Fix the makespan and turn to the number of switch links used; returns a start."""
        instance, arcs = self.instance, self.arcs
        sign = _policy_signs(instance)
        link_id = instance.group.edge.min(axis=0)
        counted = sign[arcs.edge] != 0
        if not counted.any():
            return None
        used, link = np.unique(link_id[arcs.edge[counted]], return_inverse=True)
        column = arcs.variable[counted]
        links = self.linear.variables((len(used),), 0, 1, cost=sign[used])
        chosen = values[self.use.first + column] > 0.5
        on = np.bincount(link[chosen], minlength=len(used)) > 0
        (pair,) = np.nonzero(sign[arcs.edge[counted]] > 0)
        self.linear.rows(
            np.tile(np.arange(len(pair)), 2),
            np.concatenate((links.first + link[pair], self.use.first + column[pair])),
            np.concatenate((np.ones(len(pair)), -np.ones(len(pair)))),
            lower=0.0,
            count=len(pair),
        )
        (most,) = np.nonzero(sign[arcs.edge[counted]] < 0)
        self.linear.rows(
            np.concatenate((link[most], np.arange(len(used)))),
            np.concatenate((self.use.first + column[most], links.index)),
            np.concatenate((np.ones(len(most)), np.where(sign[used] < 0, -1.0, 0.0))),
            lower=0.0,
            count=len(used),
        )
        self.linear.rows([0], [self.makespan.first], 1.0, upper=makespan_us * (1 + 1e-9))
        return np.concatenate((values, on.astype(np.float64)))

    def start(self, edge: IntArray, chunk: IntArray) -> FloatArray | None:
        """Values of the model's variables for some trees; None where it lacks an arc of theirs."""
        instance, arcs, graph = self.instance, self.arcs, self.instance.graph
        taken = np.zeros((instance.chunks, graph.edges), dtype=np.bool_)
        taken[chunk, edge] = True
        known = taken[arcs.chunk, arcs.edge]
        if known.sum() < len(edge):
            return None
        values = np.zeros(self.linear.columns)
        values[self.use.first + arcs.variable[known]] = 1.0
        at = arrival_times(instance, edge, chunk)
        latest = float(at[instance.needs].max(initial=0.0))
        if not instance.relayed:
            times = at[self._places // graph.ranks, self._places % graph.ranks]
            values[self.arrival.index] = np.minimum(times, self.horizon_us)
        values[self.makespan.first] = self.horizon_us
        tight = max(latest, self.linear.least_value(values, self.makespan.first))
        values[self.makespan.first] = tight
        return values

    def trees(self, values: FloatArray) -> tuple[IntArray, IntArray] | None:
        """Trees within the sends that a solution uses; None when they are not complete."""
        used = values[self.use.first + self.arcs.variable] > 0.5
        return grown_trees(self.instance, self.arcs.edge[used], self.arcs.chunk[used])


def _policy_signs(instance: Instance) -> FloatArray:
    """+1 for links to be few (uc-min), -1 for links to be many (uc-max), else 0; ``[E]``."""
    graph = instance.graph
    signs = np.zeros(graph.edges)
    if instance.sketch is None:
        return signs
    per_node = int(np.bincount(graph.node_of).max())
    for switch in instance.sketch.switches:
        member = np.isin(np.arange(per_node), switch.ranks)
        inside = ~instance.inter & member[graph.src % per_node] & member[graph.dst % per_node]
        signs[inside] = {"uc-min": 1.0, "uc-max": -1.0}.get(switch.policy, 0.0)
    return signs
