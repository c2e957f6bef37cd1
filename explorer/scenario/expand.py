"""Scenario to design points: the product of its axes, without what cannot be done.

Points of one machine, method and collective stand together, so that what is cached between
neighbours is used, and fixed algorithms come before searches, so that the cheap part of a sweep
is there first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

from explorer.core.topology import Topology
from explorer.errors import InputError, Problem
from explorer.scenario.fit import method_misfit, sketch_misfit
from explorer.scenario.keys import (
    code_version,
    content_key,
    file_digest,
    identity,
    topology_digest,
)
from explorer.scenario.load import Scenario
from explorer.scenario.point import DesignPoint
from explorer.scenario.schema import NO_SKETCH, Section
from explorer.scenario.words import Words, known_words


@dataclass(frozen=True, slots=True)
class PlannedPoint:
    """A point to evaluate.

    Parameters
    ----------
    key
        Content key.
    point
        The point.
    identity
        Digest of the point alone.
    scenario
        Name of its section.
    time_limit_s
        Wall-clock limit of the whole evaluation, enforced from outside; None for none.
    """

    key: str
    point: DesignPoint
    identity: str
    scenario: str
    time_limit_s: float | None = None

    @property
    def group(self) -> tuple[str, str, str, str]:
        """Points of one group share most of their work."""
        point = self.point
        machine = f"{point.topology} {point.nodes}"
        return (machine, point.method, point.collective, point.sketch or "")


@dataclass(frozen=True, slots=True)
class Skipped:
    """Points that were left out because a method or sketch does not fit.

    Parameters
    ----------
    scenario
        Name of the section.
    what
        The combination, e.g. ``ring alltoall on ndv2 x2``.
    points
        How many points that is.
    reason
        Why.
    """

    scenario: str
    what: str
    points: int
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a scenario asks for: the points to run, in order, and the combinations left out."""

    points: tuple[PlannedPoint, ...]
    skipped: tuple[Skipped, ...]


def expand(scenario: Scenario, words: Words | None = None) -> tuple[PlannedPoint, ...]:
    """Points of a scenario; see :func:`plan`."""
    return plan(scenario, words).points


def plan(scenario: Scenario, words: Words | None = None) -> Plan:
    """Expand a scenario.

    Sketches go with synthesizers and channels with baselines only. Equal points are kept once. A
    combination that a baseline does not know, or a sketch for another number of nodes, is left
    out with the reason.

    Raises
    ------
    InputError
        If the product of the axes exceeds ``max_points``, a machine cannot be made, a sketch fits
        none of its machines, or a root does not exist; with lines, all at once.
    """
    _check_count(scenario, words or known_words())
    problems: list[Problem] = []
    points: dict[str, PlannedPoint] = {}
    skipped: list[Skipped] = []
    for section in scenario.sections:
        expansion = _Expansion(scenario, section, words or known_words())
        for planned in expansion.points():
            points.setdefault(planned.key, planned)
        problems += expansion.problems
        skipped += expansion.skipped
    if problems:
        raise InputError(problems)
    return Plan(tuple(points.values()), tuple(skipped))


class _Expansion:
    """Expands one section, collecting what is wrong and what is left out."""

    def __init__(self, scenario: Scenario, section: Section, words: Words) -> None:
        self.scenario = scenario
        self.section = section
        self.words = words
        self.problems: list[Problem] = []
        self.skipped: list[Skipped] = []
        self.code = code_version()
        self.topology = scenario.file_of(section.topology)
        self.sketches = {
            name: scenario.file_of(name) for name in section.sketches if name != NO_SKETCH
        }
        self.sketch_digests: dict[str, str] = {}

    def points(self) -> Iterator[PlannedPoint]:
        """Points in order."""
        machines = self._machines()
        self._check_sketches([machine for _, machine in machines])
        baselines = [m for m in self.section.methods if m not in self.words.synthesizers]
        searches = [m for m in self.section.methods if m in self.words.synthesizers]
        self._check_idle("sketches", searches, "no method here takes a sketch")
        self._check_idle("channels", baselines, "only baselines take channels, none is here")
        for nodes, machine in machines:
            digest = topology_digest(machine)
            for method in (*baselines, *searches):
                for collective in self.section.collectives:
                    yield from self._combination(nodes, machine, digest, method, collective)

    def _machines(self) -> list[tuple[int | None, Topology]]:
        from explorer.topologies.load import load_topology

        found: list[tuple[int | None, Topology]] = []
        sized = None not in self.section.all_sizes
        for nodes in self.section.nodes or (None,):
            try:
                topology = load_topology(self.topology, nodes, sized=sized)
            except InputError as error:
                for problem in error.problems:
                    self._problem("topology", problem.message)
                continue
            if not sized and topology.time_unit != "profile":
                self._problem(
                    "sizes",
                    f"`profile` needs a machine whose costs are per chunk, {topology.name!r}"
                    " has costs per byte; give sizes",
                )
            if self.section.root >= topology.ranks:
                self._problem(
                    "root",
                    f"rank {self.section.root} does not exist, {topology.name!r} has"
                    f" ranks 0-{topology.ranks - 1}",
                )
            found.append((nodes, topology))
        return found

    def _check_sketches(self, machines: list[Topology]) -> None:
        """Refuse a sketch that fits no machine; one that fits some is skipped on the others."""
        for name, path in self.sketches.items():
            reasons = [sketch_misfit(path, machine) for machine in machines]
            if reasons and all(reasons):
                self._problem("sketches", f"{name!r} fits no machine here: {reasons[0]}")

    def _check_idle(self, key: str, users: list[str], message: str) -> None:
        """Refuse an axis that the section itself gives and none of its methods uses."""
        if not users and self.scenario.gives(self.section, key):
            self._problem(key, message)

    def _combination(
        self, nodes: int | None, machine: Topology, digest: str, method: str, collective: str
    ) -> Iterator[PlannedPoint]:
        section = self.section
        where = f"{machine.name} with {machine.ranks} ranks"
        searches = method in self.words.synthesizers
        sketches = section.sketches if searches else (NO_SKETCH,)
        channels = (1,) if searches else section.channels
        rest = (section.chunks, section.protocols, channels, section.instances, section.placement)
        each = prod(len(set(axis)) for axis in (*rest, section.all_sizes))
        reason = method_misfit(method, collective, machine, self.words)
        if reason:
            what = f"{method} {collective} on {where}"
            self.skipped.append(Skipped(section.name, what, each * len(sketches), reason))
            return
        for sketch in sketches:
            path = self.sketches.get(sketch) if searches else None
            misfit = sketch_misfit(path, machine) if path else ""
            if misfit:
                what = f"{method} {collective} with {sketch} on {where}"
                self.skipped.append(Skipped(section.name, what, each, misfit))
                continue
            for chunks, protocol, channel, instances, placement, size in product(
                *rest, section.all_sizes
            ):
                point = DesignPoint(
                    topology=self.topology,
                    nodes=nodes,
                    collective=collective,
                    size_bytes=size,
                    method=method,
                    root=section.root,
                    placement=placement,
                    sketch=path,
                    chunks=chunks,
                    cost_model=section.cost_model,
                    fidelity=section.fidelity,
                    protocol=protocol,
                    channels=channel,
                    instances=instances,
                    dialect=section.dialect,
                    time_limit_s=section.limits.time_s if searches else None,
                    node_limit=section.limits.nodes if searches else None,
                )
                yield self._planned(point, digest)

    def _planned(self, point: DesignPoint, machine: str) -> PlannedPoint:
        sketch = self._sketch_digest(point.sketch) if point.sketch else ""
        return PlannedPoint(
            content_key(point, machine, sketch, self.code),
            point,
            identity(point),
            self.section.name,
            self.section.limits.point_s,
        )

    def _sketch_digest(self, sketch: str) -> str:
        from explorer.sketches.registry import sketch_path

        if sketch not in self.sketch_digests:
            self.sketch_digests[sketch] = file_digest(sketch_path(sketch))
        return self.sketch_digests[sketch]

    def _problem(self, key: str, message: str) -> None:
        problem = self.scenario.problem(self.section, key, message)
        if problem not in self.problems:
            self.problems.append(problem)


def _check_count(scenario: Scenario, words: Words) -> None:
    """Refuse an explosion before anything is made of it, with the arithmetic."""
    counts = [_count(section, words) for section in scenario.sections]
    total = sum(count for count, _ in counts)
    if total <= scenario.max_points:
        return
    problems = [
        scenario.problem(section, "name", f"{section.name} is {text} = {count} points")
        for section, (count, text) in zip(scenario.sections, counts, strict=True)
    ]
    problems.append(
        Problem(
            scenario.source,
            f"{total} points in all, more than {scenario.max_points}; shorten an axis, or say"
            f" `max_points: {total}` if you mean it",
        )
    )
    raise InputError(problems)


def _count(section: Section, words: Words) -> tuple[int, str]:
    """Size of a section's product, and the product in words; misfits and repeats still count."""
    searches = sum(method in words.synthesizers for method in section.methods)
    baselines = len(section.methods) - searches
    ways = searches * len(section.sketches) + baselines * len(section.channels)
    axes = {
        "sizes": len(section.all_sizes),
        "node counts": len(section.nodes or (None,)),
        "collectives": len(section.collectives),
        "chunk counts": len(section.chunks),
        "protocols": len(section.protocols),
        "instance counts": len(section.instances),
        "placements": len(section.placement),
        "methods with their sketches or channels": ways,
    }
    text = " x ".join(f"{n} {name}" for name, n in axes.items() if n > 1) or "1"
    return prod(axes.values()), text
