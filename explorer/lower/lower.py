"""Lower a schedule to programs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from explorer.core.rank_graph import RankGraph
from explorer.core.schedule import Schedule
from explorer.errors import ExplorerError, InputError, Problem, nearest
from explorer.lower.anchors import Anchors, with_extra
from explorer.lower.assemble import assemble
from explorer.lower.channels import blocks_of
from explorer.lower.cycles import waits_for_itself
from explorer.lower.fuse import fused
from explorer.lower.hazards import hazards
from explorer.lower.implied import without_implied
from explorer.lower.lanes import Lanes, lanes_of
from explorer.lower.layout import lay_out
from explorer.lower.limits import EVERYWHERE, Limits
from explorer.lower.local import local_program
from explorer.lower.memory import Memory
from explorer.lower.messages import planned_messages, split_collective
from explorer.lower.steps import Steps
from explorer.lower.variants import VARIANTS, Hold, Variant
from sim.program import Program
from sim.protocols import PROTOCOLS


def lower(
    schedule: Schedule,
    graph: RankGraph | None = None,
    *,
    placement: str = "out",
    protocol: str = "Simple",
    instances: int = 1,
    max_channels: int = 32,
    variant: str = "anchored",
    name: str | None = None,
    limits: Limits = EVERYWHERE,
    fused_receives: bool = True,
) -> Program:
    """Lower a schedule to the program of one variant.

    Parameters
    ----------
    schedule
        Valid: every chunk is sent after it has come.
    graph
        Edges the schedule was planned on. Variants that chain resources need it; anchors
        choose better with it.
    placement
        ``out``, ``in`` or ``both``: which calls the program serves.
    protocol
        Wire protocol; its slots bound what a connection holds.
    instances
        Run the schedule this many times side by side, on other channels, each on its part of
        every rank's block of chunks; every chunk is cut into as many.
    max_channels
        Channels to use at most.
    variant
        One of :data:`explorer.lower.variants.VARIANTS`.
    name
        Label; made from collective and variant when None.
    limits
        Sizes of thread blocks, steps and channels. A lane with more steps goes on in another block,
        a message with more chunks is cut. What cannot be met is left to
        :func:`explorer.lower.limits.fits` to say.
    fused_receives
        Whether the runtime has receives that reduce; else they become receive and reduction.

    Returns
    -------
    Program
        Free of races and deadlocks at every size.

    Raises
    ------
    InputError
        If the schedule cannot run as planned, or an option is unknown.
    """
    chosen = VARIANTS.get(variant)
    if chosen is None:
        raise InputError(Problem("variant", f"got {variant!r}, {nearest(variant, VARIANTS)}"))
    if chosen.needs_graph and graph is None:
        raise InputError(Problem("variant", f"{variant!r} needs the graph the plan was made on"))
    if not schedule.sends:
        return _without_sends(schedule, placement, protocol, instances, name, limits)
    return _Lowering(
        schedule, placement, protocol, instances, max_channels, graph, limits, fused_receives
    ).program(chosen, name)


def lowerings(
    schedule: Schedule,
    graph: RankGraph | None = None,
    *,
    placement: str = "out",
    protocol: str = "Simple",
    instances: int = 1,
    max_channels: int = 32,
    variants: Iterable[str] | None = None,
    name: str | None = None,
    limits: Limits = EVERYWHERE,
    fused_receives: bool = True,
) -> Iterator[tuple[str, Program]]:
    """Lower a schedule in several ways; the caller keeps the one with the least simulated time.

    Parameters
    ----------
    variants
        Names, in this order; all when None. Those that need a graph are left out without one,
        and so are programs equal to an earlier one.
    schedule, graph, placement, protocol, instances, max_channels, name, limits, fused_receives
        As for :func:`lower`.

    Yields
    ------
    str, Program
        Name of the variant and its program.
    """
    wanted = list(VARIANTS) if variants is None else list(variants)
    unknown = [v for v in wanted if v not in VARIANTS]
    if unknown:
        raise InputError(
            [Problem("variants", f"got {v!r}, {nearest(v, VARIANTS)}") for v in unknown]
        )
    if not schedule.sends:
        program = _without_sends(schedule, placement, protocol, instances, name, limits)
        yield "plain", program
        return
    lowering = _Lowering(
        schedule, placement, protocol, instances, max_channels, graph, limits, fused_receives
    )
    seen: set[bytes] = set()
    for key in wanted:
        variant = VARIANTS[key]
        if variant.needs_graph and graph is None:
            continue
        program = lowering.program(variant, name)
        content = _content(program)
        if content not in seen:
            seen.add(content)
            yield key, program


class _Lowering:
    """What the variants of one schedule share: messages, steps and hazards."""

    def __init__(
        self,
        schedule: Schedule,
        placement: str,
        protocol: str,
        instances: int,
        max_channels: int,
        graph: RankGraph | None,
        limits: Limits,
        fused_receives: bool,
    ) -> None:
        _check(protocol, instances, max_channels)
        self.graph, self.limits, self.protocol = graph, limits, protocol
        self.slots = PROTOCOLS[protocol].slots
        self.max_channels = min(max_channels, limits.channels or max_channels)
        self.fused_receives = fused_receives
        self.memory = Memory(split_collective(schedule.collective, instances), placement)
        self.messages = planned_messages(
            schedule, self.memory, instances=instances, largest=limits.count, graph=graph
        )
        self.steps = lay_out(
            self.messages,
            self.memory,
            slots=self.slots,
            fused_receives=fused_receives,
            largest=limits.count,
        )
        self.waits = hazards(self.steps, self.messages, self.memory)

    def program(self, variant: Variant, name: str | None) -> Program:
        """Program of one variant."""
        parallel = self.parallel() if variant.parallel else 1
        lanes = lanes_of(self.messages, self.steps, parallel=parallel, slots=self.slots)
        if variant.fused and self.fused_receives:
            steps, joined = fused(self.messages, self.steps, lanes, self.waits, self.limits)
            waits = hazards(steps, self.messages, self.memory)
            program = self.assembled(steps, joined, waits, variant, name)
            if not waits_for_itself(program, self.slots):
                return program
        program = self.assembled(self.steps, lanes, self.waits, variant, name)
        if waits_for_itself(program, self.slots):
            raise ExplorerError(f"lowered program {program.name} waits for itself")
        return program

    def assembled(
        self, steps: Steps, lanes: Lanes, waits: list[list[int]], variant: Variant, name: str | None
    ) -> Program:
        """Program of given steps and lanes."""
        extras = self.extras(steps, lanes, waits, variant.hold)
        waits = without_implied(with_extra(waits, *extras), lanes, steps.rank)
        blocks = blocks_of(self.messages, steps, lanes, waits, self.limits, self.max_channels)
        return assemble(
            steps,
            blocks,
            self.memory,
            name=_label(name or f"{self.memory.collective.name}-{variant.name}"),
            protocol=self.protocol,
        )

    def extras(
        self, steps: Steps, lanes: Lanes, waits: list[list[int]], hold: Hold
    ) -> list[dict[int, list[int]]]:
        """Dependencies beyond those of memory."""
        if hold is Hold.NOTHING:
            return []
        anchors = Anchors(self.messages, steps, lanes, waits, self.graph)
        if hold is Hold.LATEST:
            return [anchors.latest()]
        found = [] if hold is Hold.EGRESS else [anchors.exact()]
        return found if hold is Hold.EXACT else [*found, anchors.egress()]

    def parallel(self) -> int:
        """Connections per pair and instance that channels and thread blocks allow."""
        m = self.messages
        most = max(1, self.max_channels // m.instances)
        if self.limits.blocks is None:
            return most
        pairs = np.unique(np.stack((m.src, m.dst)), axis=1)
        ends = int(np.bincount(pairs.ravel()).max()) * m.instances
        return max(1, min(most, (self.limits.blocks - m.instances) // ends))


def _without_sends(
    schedule: Schedule,
    placement: str,
    protocol: str,
    instances: int,
    name: str | None,
    limits: Limits,
) -> Program:
    _check(protocol, instances, 1)
    if schedule.collective.ranks > 1:
        raise InputError(Problem("schedule", f"no sends on {schedule.collective.ranks} ranks"))
    return local_program(
        split_collective(schedule.collective, instances),
        placement=placement,
        protocol=protocol,
        name=_label(name or f"{schedule.collective.name}-local"),
        largest=limits.count,
    )


def _check(protocol: str, instances: int, max_channels: int) -> None:
    problems = []
    if protocol not in PROTOCOLS:
        problems.append(Problem("protocol", f"got {protocol!r}, {nearest(protocol, PROTOCOLS)}"))
    if instances < 1:
        problems.append(Problem("instances", f"got {instances}, expected at least 1"))
    if max_channels < 1:
        problems.append(Problem("max_channels", f"got {max_channels}, expected at least 1"))
    if problems:
        raise InputError(problems)


def _label(text: str) -> str:
    """A name that every runtime accepts."""
    return re.sub(r"[^A-Za-z0-9_.+-]", "-", text)[:63]


def _content(program: Program) -> bytes:
    """What a program does, without its name."""
    columns = (
        program.tb_rank,
        program.tb_send,
        program.tb_recv,
        program.tb_channel,
        program.tb_first,
        program.op,
        program.src_buf,
        program.src_off,
        program.dst_buf,
        program.dst_off,
        program.cnt,
        program.dep_first,
        program.dep_step,
    )
    return b"|".join(column.tobytes() for column in columns)
