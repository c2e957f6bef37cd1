"""Scheduling: given the order of all sends, cut them into messages anew and time them, by a MILP.

TACCL (NSDI'23), section 5.1, step 3: the order on every resource is kept; a binary per pair of
consecutive sends over an edge with latency says whether they share a message. All images of a send
under the group share their variables.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from explorer.core.costs import CostModel
from explorer.synth.instance import Instance
from explorer.synth.linear_model import LinearModel
from explorer.synth.result import Limits, Progress, Stage
from explorer.synth.symmetry import orbit_minimum
from explorer.synth.timing import Messages, exact_times

IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

MAX_PAIRS = 600
"""Pairs of consecutive sends (orbits) above which the model is not built."""

MAX_SENDS = 3000
"""Orbits of sends above which the model is not built."""


@dataclass(frozen=True, slots=True, eq=False)
class SchedulingResult:
    """Messages cut anew; None when they are not shorter."""

    messages: Messages | None
    stage: Stage


def solve_scheduling(
    instance: Instance, messages: Messages, makespan_us: float, limits: Limits, progress: Progress
) -> SchedulingResult:
    """Cut ordered sends into messages with the least makespan.

    Parameters
    ----------
    makespan_us
        Of the messages as they are.
    """
    messages = _by_readiness(instance, messages)
    sends = _Sends.of(instance, messages)
    first, second = sends.joinable()
    if not len(first):
        return SchedulingResult(None, Stage("scheduling", "skipped: no latency to share"))
    if sends.count > MAX_SENDS or len(first) > MAX_PAIRS:
        size = f"{len(first)} binaries, {sends.count} sends"
        return SchedulingResult(None, Stage("scheduling", f"skipped: too large ({size})"))
    model = _SchedulingModel(instance, sends, first, second, makespan_us)
    progress(f"scheduling: {len(first)} binaries")
    found = model.linear.solve(limits, start=model.start(messages))
    stage = found.stage("scheduling")
    if found.values is None or found.objective is None:
        return SchedulingResult(None, stage)
    if found.objective >= makespan_us * (1 - 1e-7):
        # The bound holds for this order only, so it is none of the problem.
        return SchedulingResult(None, replace(stage, objective=makespan_us, bound=None, gap=None))
    return SchedulingResult(
        model.messages(messages, found.values), replace(stage, bound=None, gap=None)
    )


def _by_readiness(instance: Instance, messages: Messages) -> Messages:
    """The same messages, chunks in the order in which they reach the sender."""
    _, ends = exact_times(instance, messages)
    graph = instance.graph
    at = np.zeros((instance.chunks, graph.ranks))
    message = np.repeat(np.arange(messages.count), np.diff(messages.first))
    at[messages.chunk, graph.dst[messages.edge[message]]] = ends[message]
    ready = at[messages.chunk, graph.src[messages.edge[message]]]
    return replace(messages, chunk=messages.chunk[np.lexsort((ready, message))])


@dataclass(frozen=True, slots=True, eq=False)
class _Sends:
    """Sends in order, and the orbit of each.

    ``message`` tells the message each was in; ``before`` holds pairs (send, next send) on some
    resource.
    """

    instance: Instance
    edge: IntArray
    chunk: IntArray
    message: LongArray
    orbit: LongArray
    sample: LongArray
    before: tuple[LongArray, LongArray]

    @classmethod
    def of(cls, instance: Instance, messages: Messages) -> _Sends:
        graph = instance.graph
        counts = np.diff(messages.first)
        message = np.repeat(np.arange(messages.count), counts)
        edge, chunk = messages.edge[message], messages.chunk
        ids = chunk.astype(np.int64) * graph.edges + edge
        if messages.symmetric:
            images = (instance.group.chunk, instance.group.edge)
            ids = orbit_minimum(chunk, edge, graph.edges, images)
        _, sample, orbit = np.unique(ids, return_index=True, return_inverse=True)
        last: dict[int, int] = {}
        pairs: list[tuple[int, int]] = []
        for i, e in enumerate(edge.tolist()):
            for resource in graph.resources_of(e).tolist():
                if resource in last:
                    pairs.append((last[resource], i))
                last[resource] = i
        before = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        return cls(instance, edge, chunk, message, orbit, sample, (before[:, 0], before[:, 1]))

    @property
    def count(self) -> int:
        """Number of orbits."""
        return len(self.sample)

    def ways(self) -> tuple[list[int], list[int]]:
        """Pairs (send that brings a chunk to a rank, send that takes it on from there)."""
        graph = self.instance.graph
        tails, heads = graph.src[self.edge].tolist(), graph.dst[self.edge].tolist()
        chunks = self.chunk.tolist()
        brought = {(c, v): i for i, (c, v) in enumerate(zip(chunks, heads, strict=True))}
        parents: list[int] = []
        children: list[int] = []
        for i, place in enumerate(zip(chunks, tails, strict=True)):
            if place in brought:
                parents.append(brought[place])
                children.append(i)
        return parents, children

    def joinable(self) -> tuple[LongArray, LongArray]:
        """Orbits (first, second) of sends that follow one another on all resources of one edge."""
        one, other = self.before
        edge = self.edge[one]
        follow = (edge == self.edge[other]) & (self.instance.alpha_us[edge] > 0)
        key = one[follow] * len(self.edge) + other[follow]
        unique, times = np.unique(key, return_counts=True)
        one, other = np.divmod(unique, len(self.edge))
        uses = np.diff(self.instance.graph.resource_first)[self.edge[one]]
        alone = times == uses
        pairs = np.unique(
            np.stack((self.orbit[one[alone]], self.orbit[other[alone]]), axis=1), axis=0
        )
        return pairs[:, 0], pairs[:, 1]


class _SchedulingModel:
    """Variables per orbit of sends: start and arrival of its message, bytes sent until its end."""

    def __init__(
        self,
        instance: Instance,
        sends: _Sends,
        first: LongArray,
        second: LongArray,
        horizon_us: float,
    ) -> None:
        self.instance, self.sends = instance, sends
        self.first, self.second = first, second
        self.linear = LinearModel()
        edge = sends.edge[sends.sample]
        self.transfer, self.alpha = instance.transfer_us[edge], instance.alpha_us[edge]
        longest = float(self.transfer.max()) * (len(first) + 1)
        count = sends.count
        self.begin = self.linear.variables((count,), 0, horizon_us)
        self.arrive = self.linear.variables((count,), self.transfer + self.alpha, horizon_us)
        self.length = self.linear.variables(
            (count,), self.transfer, min(longest, horizon_us), cost=0.0
        )
        self.joined = self.linear.variables((len(first),), 0, 1, integer=True)
        self.makespan = self.linear.variables((1,), 0, horizon_us, cost=1.0)
        self._add_sends()
        self._add_order(horizon_us)
        self._add_joins(horizon_us)

    def _add_sends(self) -> None:
        """A message takes its latency and its bytes, starts when its chunks are there, and ends."""
        count = self.sends.count
        at = np.arange(count)
        self._rows(
            (self.arrive.first + at, 1.0),
            (self.begin.first + at, -1.0),
            (self.length.first + at, -1.0),
            lower=self.alpha,
        )
        self._rows(
            (np.full(count, self.makespan.first), 1.0), (self.arrive.first + at, -1.0), lower=0.0
        )
        parents, children = self.sends.ways()
        orbit = self.sends.orbit
        pairs = np.stack((orbit[parents], orbit[children]), axis=1)
        self._follow(np.unique(pairs, axis=0), arrived=True)

    def _add_order(self, horizon_us: float) -> None:
        """A message starts when the one before has released the resource, unless they are one."""
        orbit = self.sends.orbit
        one, other = self.sends.before
        pairs = np.unique(np.stack((orbit[one], orbit[other]), axis=1), axis=0)
        joins = {
            pair: k
            for k, pair in enumerate(zip(self.first.tolist(), self.second.tolist(), strict=True))
        }
        join = np.array([joins.get((a, b), -1) for a, b in pairs.tolist()], dtype=np.int64)
        self._follow(pairs[join < 0], arrived=False)
        free = np.flatnonzero(join >= 0)
        self._follow(pairs[free], arrived=False, unless=join[free], big=horizon_us)

    def _follow(
        self,
        pairs: LongArray,
        *,
        arrived: bool,
        unless: LongArray | None = None,
        big: float = 0.0,
    ) -> None:
        """Start the second of each pair after the first has arrived, or released its edge."""
        if not len(pairs):
            return
        one, other = pairs[:, 0], pairs[:, 1]
        terms = [(self.begin.first + other, 1.0)]
        if arrived or self.instance.cost_model is CostModel.EXCLUSIVE:
            terms.append((self.arrive.first + one, -1.0))
        else:
            terms += [(self.begin.first + one, -1.0), (self.length.first + one, -1.0)]
        if unless is not None:
            terms.append((self.joined.first + unless, big))
        self._rows(*terms, lower=0.0)

    def _add_joins(self, horizon_us: float) -> None:
        """Joined sends start and arrive together, one behind the other."""
        one, other, join = self.first, self.second, self.joined.index
        apart = (join, -horizon_us)
        begin, arrive, length = self.begin.first, self.arrive.first, self.length.first
        self._rows((begin + other, 1.0), (begin + one, -1.0), lower=0.0)
        self._rows((begin + one, 1.0), (begin + other, -1.0), apart, lower=-horizon_us)
        self._rows((arrive + one, 1.0), (arrive + other, -1.0), apart, lower=-horizon_us)
        self._rows(
            (length + other, 1.0),
            (length + one, -1.0),
            apart,
            lower=self.transfer[other] - horizon_us,
        )

    def _rows(self, *terms: tuple[LongArray, float], lower: npt.ArrayLike) -> None:
        count = len(terms[0][0])
        self.linear.rows(
            np.tile(np.arange(count), len(terms)),
            np.concatenate([columns for columns, _ in terms]),
            np.concatenate([np.full(count, value) for _, value in terms]),
            lower=lower,
            count=count,
        )

    def start(self, messages: Messages) -> FloatArray:
        """The messages as they are: which sends share one, and when."""
        sends = self.sends
        of = sends.message[sends.sample]
        values = np.zeros(self.linear.columns)
        starts, ends = exact_times(self.instance, messages)
        values[self.begin.index] = starts[of]
        values[self.arrive.index] = ends[of]
        position = sends.sample - messages.first[of]
        values[self.length.index] = (position + 1) * self.transfer
        together: set[tuple[int, int]] = set()
        for i in range(1, len(sends.message)):
            if sends.message[i] == sends.message[i - 1]:
                together.add((int(sends.orbit[i - 1]), int(sends.orbit[i])))
        pairs = zip(self.first.tolist(), self.second.tolist(), strict=True)
        values[self.joined.index] = [float(pair in together) for pair in pairs]
        values[self.makespan.first] = float(ends.max(initial=0.0))
        return values

    def messages(self, old: Messages, values: FloatArray) -> Messages:
        """Messages that a solution cuts the sends into, in the order of their starts."""
        sends = self.sends
        joined = values[self.joined.index] > 0.5
        pairs = set(zip(self.first[joined].tolist(), self.second[joined].tolist(), strict=True))
        tail_of: dict[int, int] = {}
        groups: list[list[int]] = []
        for i, (e, orbit) in enumerate(zip(sends.edge.tolist(), sends.orbit.tolist(), strict=True)):
            group = tail_of.get(e)
            if group is not None and (int(sends.orbit[groups[group][-1]]), orbit) in pairs:
                groups[group].append(i)
            else:
                groups.append([i])
                tail_of[e] = len(groups) - 1
        order = self._order(groups, values[self.begin.index])
        counts = [len(groups[k]) for k in order]
        flat = [i for k in order for i in groups[k]]
        rank = np.arange(len(groups), dtype=np.int64)
        return Messages(
            np.array([sends.edge[groups[k][0]] for k in order], dtype=np.int32),
            np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
            sends.chunk[flat],
            rank,
            rank,
            rank,
            own_events=False,
            symmetric=old.symmetric,
        )

    def _order(self, groups: list[list[int]], begin: FloatArray) -> list[int]:
        """Groups by start, but never against the order on a resource or of a chunk's way.

        Starts that a solver gives may be equal but for rounding, hence the second part.
        """
        sends = self.sends
        group_of = {i: k for k, group in enumerate(groups) for i in group}
        after: list[set[int]] = [set() for _ in groups]
        missing = [0] * len(groups)
        for one, other in zip(*self._precedence(), strict=True):
            a, b = group_of[one], group_of[other]
            if a != b and b not in after[a]:
                after[a].add(b)
                missing[b] += 1
        heap = [
            (float(begin[sends.orbit[group[-1]]]), group[0], k)
            for k, group in enumerate(groups)
            if missing[k] == 0
        ]
        heapq.heapify(heap)
        order = []
        while heap:
            _, _, k = heapq.heappop(heap)
            order.append(k)
            for b in after[k]:
                missing[b] -= 1
                if missing[b] == 0:
                    last = groups[b][-1]
                    heapq.heappush(heap, (float(begin[sends.orbit[last]]), groups[b][0], b))
        return order

    def _precedence(self) -> tuple[list[int], list[int]]:
        """Pairs of sends that follow one another on a resource or on a chunk's way."""
        one, other = (part.tolist() for part in self.sends.before)
        parents, children = self.sends.ways()
        return one + parents, other + children
