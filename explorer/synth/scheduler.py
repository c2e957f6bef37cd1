"""Scheduler: the list scheduling kernel with its inputs in the form it is compiled for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from explorer.core.costs import CostModel
from explorer.core.rank_graph import RankGraph
from explorer.synth.instance import Instance
from explorer.synth.kernel_types import (
    MESSAGES,
    NEVER,
    SCANNED,
    SENDS,
    Images,
    Machine,
    Plan,
    Sent,
    initial_state,
)
from explorer.synth.list_scheduling import schedule
from explorer.synth.routes import Routes
from explorer.synth.rules import Rule
from explorer.synth.symmetry import SymmetryGroup
from explorer.synth.timing import Messages

IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]

TICKS = 10**12
"""Ticks of the largest cost, at most: sums of a few million of them fit into 63 bits."""


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """A complete list schedule.

    Parameters
    ----------
    messages
        Its messages.
    makespan
        In ticks.
    makespan_us
        Nearly exact: the order's exact time may differ by rounding to ticks, or be lower.
    rule, seed
        What made it.
    """

    messages: Messages
    makespan: int
    makespan_us: float
    rule: Rule
    seed: int


def compiled() -> bool:
    """Whether the kernel is loaded in this process."""
    return bool(getattr(schedule, "signatures", ()))


class Scheduler:
    """The list scheduling kernel, with its inputs prepared once per instance."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        graph = instance.graph
        largest = float(instance.arrive_us.max(initial=0.0))
        # A power of ten keeps costs with few decimals exact.
        exponent = int(np.floor(np.log10(TICKS / largest))) if largest > 0 else 0
        self.ticks_per_us = 10.0**exponent
        self.machine = _machine(instance, self.ticks_per_us)
        self.images = {False: _images(graph, instance.chunks, None)}
        if instance.group.order > 1 and _acts_freely(instance.group, graph):
            self.images[True] = _images(graph, instance.chunks, instance.group)
        self.per_node = int(np.bincount(graph.node_of).max())

    @property
    def symmetric(self) -> bool:
        """Whether whole orbits can be scheduled."""
        return True in self.images

    def run(
        self, plan: Plan, routes: Routes, rule: Rule, seed: int, *, symmetric: bool, limit: int
    ) -> tuple[Order | None, int]:
        """Make one list schedule.

        Parameters
        ----------
        plan
            From :meth:`plan`; kept as it is.
        limit
            Give up when the makespan would reach this tick.

        Returns
        -------
        tuple
            The order (None when given up or incomplete) and the work done, in plan entries.
        """
        plan = plan.fresh()
        most = len(routes.edge) if routes.fixed else int(self.instance.needs.sum())
        sent = Sent(
            np.zeros(most + 1, np.int32),
            np.zeros(most + 1, np.int64),
            np.zeros(most + 1, np.int64),
            np.zeros(most + 2, np.int64),
            np.zeros(most + 1, np.int32),
        )
        state = initial_state(self.machine, plan, most)
        makespan = schedule(
            self.machine,
            self.images[symmetric],
            plan,
            rule.weights(self.instance.chunks, self.per_node),
            rule.options(routes.entries, seed, refuse=not routes.fixed, sums=routes.sums),
            state,
            limit,
            sent,
        )
        count, chunks = int(state.counters[MESSAGES]), int(state.counters[SENDS])
        complete = chunks == most if routes.fixed else self._delivered(plan)
        work = int(state.counters[SCANNED])
        if makespan == NEVER or not complete:
            return None, work
        release = sent.end[:count]
        if self.machine.pipelined:
            release = release - self.machine.alpha[sent.edge[:count]]
        messages = Messages(
            sent.edge[:count],
            sent.first[: count + 1],
            sent.chunk[:chunks],
            sent.start[:count],
            release,
            sent.end[:count],
            own_events=rule.own_events,
            symmetric=symmetric,
            sums=routes.sums,
        )
        return Order(messages, int(makespan), int(makespan) / self.ticks_per_us, rule, seed), work

    def _delivered(self, plan: Plan) -> bool:
        return bool((plan.arrival.T[self.instance.needs] < NEVER).all())

    def plan(self, routes: Routes) -> Plan:
        """Kernel form of some routes."""
        instance, graph = self.instance, self.instance.graph
        order = np.lexsort((routes.chunk, -routes.tail, routes.edge))
        counts = np.bincount(routes.edge, minlength=graph.edges)
        tail = routes.tail[order]
        arrival = np.full((graph.ranks, instance.chunks), NEVER, dtype=np.int64)
        arrival[instance.source, np.arange(instance.chunks)] = 0
        waiting = np.zeros((graph.ranks, instance.chunks), dtype=np.int32)
        if routes.sums:
            arrival[:] = 0
            np.add.at(waiting, (graph.dst[routes.edge], routes.chunk), 1)
        return Plan(
            np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
            routes.chunk[order].astype(np.int32),
            tail / max(float(tail.max(initial=0.0)), 1e-300),
            _plain(instance.source, np.int32),
            arrival,
            waiting,
            instance.needs.sum(axis=0).astype(np.int64),
            _leaving(instance, routes),
        )


def _machine(instance: Instance, ticks_per_us: float) -> Machine:
    graph = instance.graph
    alpha = np.rint(graph.alpha_us * ticks_per_us).astype(np.int64)
    unit = np.rint(instance.transfer_us * ticks_per_us).astype(np.int64)
    cost = instance.arrive_us / max(float(instance.arrive_us.max(initial=0.0)), 1e-300)
    edges = np.arange(graph.edges, dtype=np.int32)
    users = np.repeat(edges, np.diff(graph.resource_first))
    return Machine(
        _plain(graph.node_of, np.int32),
        _plain(graph.src, np.int32),
        _plain(graph.dst, np.int32),
        alpha,
        unit,
        instance.inter,
        _slow(instance),
        cost,
        instance.cost_model is CostModel.PIPELINED,
        _plain(graph.resource_first, np.int64),
        _plain(graph.resource, np.int32),
        *_grouped(graph.src, edges, graph.ranks),
        *_grouped(graph.dst, edges, graph.ranks),
        *_grouped(graph.resource, users, len(graph.resources)),
    )


def _slow(instance: Instance) -> npt.NDArray[np.bool_]:
    graph = instance.graph
    cheapest = np.full(graph.ranks, np.inf)
    inside = ~instance.inter
    np.minimum.at(cheapest, graph.dst[inside], instance.arrive_us[inside])
    slow: npt.NDArray[np.bool_] = instance.arrive_us > cheapest[graph.dst] * (1 + 1e-9)
    return slow


def _plain(array: npt.NDArray[Any], dtype: type) -> npt.NDArray[Any]:
    """Copy an array to the one layout the kernel is compiled for: contiguous and writable."""
    return np.array(array, dtype=dtype, order="C")


def _grouped(key: IntArray, value: IntArray, keys: int) -> tuple[LongArray, IntArray]:
    counts = np.bincount(key, minlength=keys)
    return (
        np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        _plain(value[np.argsort(key, kind="stable")], np.int32),
    )


def _images(graph: RankGraph, chunks: int, group: SymmetryGroup | None) -> Images:
    if group is None:
        edges = np.arange(graph.edges, dtype=np.int32)
        ranks = np.arange(graph.ranks, dtype=np.int32)
        group_edge, group_chunk = edges[None], np.arange(chunks, dtype=np.int32)[None]
        return Images(_plain(group_edge, np.int32), _plain(group_chunk, np.int32), edges, ranks)
    return Images(
        _plain(group.edge, np.int32),
        _plain(group.chunk, np.int32),
        group.edge.min(axis=0),
        group.rank.min(axis=0),
    )


def _acts_freely(group: SymmetryGroup, graph: RankGraph) -> bool:
    """Whether all images of a message can be under way together: none share a resource."""
    ranks = np.arange(graph.ranks)
    if (group.rank[1:] == ranks).any():
        return False
    for edge in np.unique(group.edge.min(axis=0)).tolist():
        held = np.concatenate([graph.resources_of(int(e)) for e in group.edge[:, edge]])
        if len(np.unique(held)) < len(held):
            return False
    return True


def _leaving(instance: Instance, routes: Routes) -> LongArray:
    """Sends between nodes that start at each rank; zero where routes leave that open."""
    graph = instance.graph
    crossing = instance.inter[routes.edge]
    edge, chunk = routes.edge[crossing], routes.chunk[crossing]
    if not routes.fixed:
        nodes = int(graph.node_of.max()) + 1
        into = graph.node_of[graph.dst[edge]]
        pair = chunk.astype(np.int64) * nodes + into
        options = np.bincount(pair, minlength=instance.chunks * nodes)
        entered = into != graph.node_of[instance.source[chunk]]
        if routes.entries == 1:
            edge, pair = edge[entered], pair[entered]
        if (options[pair] > routes.entries).any():
            return np.zeros(graph.ranks, dtype=np.int64)
    return np.bincount(graph.src[edge], minlength=graph.ranks).astype(np.int64)
