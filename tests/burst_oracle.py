"""A planner by enumeration, written from docs/training-plans.md alone.

It walks every assignment of GPU counts and every packing of small graphs, in plain Python, and
shares no code with ``explorer.burst`` but the profile it is given.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from explorer.burst.profile import Layer

Tree = list  # of layer indices and (branches, join)


@dataclass(frozen=True)
class Machine:
    gpus: int
    batch: int
    counts: tuple[int, ...]
    bytes_per_us: float
    latency_us: float
    limit: float = math.inf
    price: float = 0.0


@dataclass(frozen=True)
class Way:
    """One way through a chain: its end, time, priced cost and GPUs it needs."""

    layer: int
    gpus: int
    time: float
    cost: float
    width: int


class Oracle:
    def __init__(self, layers: list[Layer], machine: Machine) -> None:
        self.layers = layers
        self.m = machine

    def work(self, layer: int, g: int) -> float:
        x = self.layers[layer]
        at = x.batches.index(self.m.batch // g)
        ring = 2 * (g - 1) / g * 4 * x.params / self.m.bytes_per_us
        return x.forward_us[at] + x.backward_us[at] + ring

    def move(self, layer: int, a: int, b: int, far: bool) -> float:
        size, batch = 4 * self.layers[layer].out_elems, self.m.batch
        if far:
            samples = batch / min(a, b)
        elif a == b:
            return 0.0
        else:
            samples = max(batch / min(a, b) - batch / max(a, b), batch / max(a, b))
        return 2 * (samples * size / self.m.bytes_per_us + self.m.latency_us)

    def latency(self, g: int) -> float:
        has_params = any(x.params for x in self.layers)
        return self.m.latency_us if g > 1 and has_params else 0.0

    def admits(self, layer: int, g: int, time: float) -> bool:
        x = self.layers[layer]
        at = x.batches.index(self.m.batch)
        alone = x.forward_us[at] + x.backward_us[at]
        return alone <= 0 or g * time <= self.m.limit * alone * (1 + 1e-9)

    def priced(self, g: int, time: float) -> float:
        return time * (1 + self.m.price * (g - 1))

    def best(self, tree: Tree) -> float:
        return min((w.cost for w in self.network(tree)), default=math.inf)

    def network(self, tree: Tree) -> Iterator[Way]:
        for g in self.m.counts:
            time = self.latency(g) + self.work(tree[0], g)
            if self.admits(tree[0], g, time):
                start = Way(tree[0], g, time, self.priced(g, time), g)
                yield from self.chain(tree[1:], start, False, at_root=True)

    def chain(self, items: Tree, before: Way, far: bool, *, at_root: bool = False) -> Iterator[Way]:
        if not items:
            yield before
            return
        head, *rest = items
        follow = (
            self.block(head, before, at_root)
            if isinstance(head, tuple)
            else self.layer(head, before, far)
        )
        for way in follow:
            yield from self.chain(rest, way, False, at_root=at_root)

    def layer(self, layer: int, before: Way, far: bool) -> Iterator[Way]:
        for g in self.m.counts:
            burst = self.latency(g) if far or g != before.gpus else 0.0
            time = self.move(before.layer, before.gpus, g, far) + burst + self.work(layer, g)
            if self.admits(layer, g, time):
                cost = before.cost + self.priced(g, time)
                yield Way(layer, g, before.time + time, cost, max(before.width, g))

    def block(self, block: tuple, before: Way, at_root: bool) -> Iterator[Way]:
        branches, join = block
        origin = Way(before.layer, before.gpus, 0.0, 0.0, 0)
        for g, groups in itertools.product(self.m.counts, groupings(len(branches))):
            if any(not branches[b] for group in groups[1:] for b in group):
                continue
            options = [
                list(self.ends(branches[b], origin, join, g, i > 0))
                for i, group in enumerate(groups)
                for b in group
            ]
            for chosen in itertools.product(*options):
                ways = iter(chosen)
                slowest = extra = 0.0
                total = 0
                for group in groups:
                    mine = [next(ways) for _ in group]
                    slowest = max(slowest, sum(w.time for w in mine))
                    extra += sum(w.cost - w.time for w in mine)
                    need = max([1, *(w.width for w in mine)])
                    total += min((c for c in self.m.counts if c >= need), default=10**9)
                if total > self.m.gpus:
                    continue
                burst = self.latency(g) if g != before.gpus else 0.0
                own = burst + self.work(join, g)
                time = before.time + slowest + own
                cost = before.cost + slowest + extra + self.priced(g, own)
                width = max(before.width, g) if at_root else max(before.width, g, total)
                yield Way(join, g, time, cost, width)

    def ends(self, branch: Tree, origin: Way, join: int, g: int, far: bool) -> Iterator[Way]:
        for way in self.chain(branch, origin, far):
            out = self.move(way.layer, way.gpus, g, far)
            if self.admits(join, g, out + self.work(join, g)):
                cost = way.cost + self.priced(g, out)
                yield Way(way.layer, way.gpus, way.time + out, cost, way.width)


def groupings(n: int) -> list[list[list[int]]]:
    """Ways to put branches into groups of which the first is at home."""
    found = []
    for labels in itertools.product(range(n), repeat=n):
        groups = [[b for b in range(n) if labels[b] == k] for k in range(n)]
        if groups[0]:
            found.append([groups[0], *(group for group in groups[1:] if group)])
    return found
