"""Lowering: what the variants of one schedule share, and how each is made from it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from explorer.core.rank_graph import RankGraph
from explorer.core.schedule import Schedule
from explorer.errors import ExplorerError
from explorer.lower.anchors import Anchors, with_extra
from explorer.lower.assemble import assemble
from explorer.lower.channels import blocks_of
from explorer.lower.cycles import waits_for_itself
from explorer.lower.fuse import fused
from explorer.lower.hazards import hazards
from explorer.lower.implied import without_implied
from explorer.lower.lanes import Lanes, lanes_of
from explorer.lower.layout import lay_out
from explorer.lower.limits import Limits
from explorer.lower.memory import Memory
from explorer.lower.messages import Messages, drained, planned_messages, split_collective
from explorer.lower.pace import paced
from explorer.lower.sends import Sends, copied, cut, grouped
from explorer.lower.steps import Steps
from explorer.lower.variants import Hold, Variant
from sim.program import Program
from sim.protocols import PROTOCOLS


@dataclass(frozen=True, slots=True, eq=False)
class _Planned:
    """Messages of one plan, their steps, and the dependencies that memory needs."""

    messages: Messages
    steps: Steps
    waits: list[list[int]]


class Lowering:
    """Lowers one schedule in any variant.

    Parameters
    ----------
    schedule, graph, placement, protocol, instances, max_channels, limits, fused_receives
        As for :func:`explorer.lower.lower.lower`; already checked.
    """

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
        self.graph, self.limits, self.protocol = graph, limits, protocol
        self.slots = PROTOCOLS[protocol].slots
        self.instances = instances
        self.max_channels = min(max_channels, limits.channels or max_channels)
        self.fused_receives = fused_receives
        self.schedule = schedule
        self.memory = Memory(split_collective(schedule.collective, instances), placement)
        self.sends = cut(grouped(schedule, graph), limits.count)
        self.plans: dict[tuple[bool, bool], _Planned | None] = {}

    def planned(self, *, repaced: bool, careful: bool) -> _Planned | None:
        """The plan, or the plan at its own pace; None when it cannot be paced.

        Plans are made for the messages that whole transfers are. Where a plan has more on their
        way than slots (alpha that does not occupy the link, transfers of many chunks), its
        program could wait for itself at sizes at which a transfer is more messages than slots. A
        careful plan counts on no free slot.
        """
        key = repaced, careful
        if key not in self.plans:
            self.plans[key] = self.laid_out(repaced, careful)
        return self.plans[key]

    def laid_out(self, repaced: bool, careful: bool) -> _Planned | None:
        """Messages, steps and hazards."""
        sends: Sends | None = self.sends
        if repaced and self.graph is not None:
            sends = paced(
                self.sends,
                self.graph,
                cost_model=self.schedule.cost_model,
                chunk_bytes=self.schedule.chunk_bytes,
                slots=self.slots,
            )
        if sends is None:
            return None
        table = copied(sends, self.instances, self.schedule.collective.chunks_per_rank)
        messages = planned_messages(table, self.memory, self.instances)
        if careful:
            messages = replace(messages, release=drained(messages, self.slots))
        steps = lay_out(
            messages,
            self.memory,
            slots=self.slots,
            fused_receives=self.fused_receives,
            largest=self.limits.count,
            share_copies=not careful,
        )
        return _Planned(messages, steps, hazards(steps, messages, self.memory))

    def program(self, variant: Variant, name: str | None) -> Program | None:
        """Program of one variant; None when the plan does not allow it."""
        for careful in (False, True):
            plan = self.planned(repaced=variant.paced, careful=careful)
            if plan is None:
                return None
            parallel = self.parallel(plan.messages) if variant.parallel else 1
            lanes = lanes_of(plan.messages, plan.steps, parallel=parallel, slots=self.slots)
            if variant.fused and self.fused_receives:
                program = self.assembled(*self.joined(plan, lanes), variant, name)
                if not waits_for_itself(program, self.slots):
                    return program
            program = self.assembled(plan, lanes, variant, name)
            if not waits_for_itself(program, self.slots):
                return program
        raise ExplorerError(f"lowered program {program.name} waits for itself")

    def joined(self, plan: _Planned, lanes: Lanes) -> tuple[_Planned, Lanes]:
        """The plan with receives and forwards fused."""
        steps, shared = fused(plan.messages, plan.steps, lanes, plan.waits, self.limits)
        waits = hazards(steps, plan.messages, self.memory)
        return _Planned(plan.messages, steps, waits), shared

    def assembled(
        self, plan: _Planned, lanes: Lanes, variant: Variant, name: str | None
    ) -> Program:
        """Program of a plan on given lanes."""
        waits = with_extra(plan.waits, *self.extras(plan, lanes, variant.hold))
        waits = without_implied(waits, lanes, plan.steps.rank)
        blocks = blocks_of(plan.messages, plan.steps, lanes, waits, self.limits, self.max_channels)
        return assemble(
            plan.steps,
            blocks,
            self.memory,
            name=label(name or f"{self.memory.collective.name}-{variant.name}"),
            protocol=self.protocol,
        )

    def extras(self, plan: _Planned, lanes: Lanes, hold: Hold) -> list[dict[int, list[int]]]:
        """Dependencies beyond those of memory."""
        if hold is Hold.NOTHING:
            return []
        anchors = Anchors(plan.messages, plan.steps, lanes, plan.waits, self.graph)
        if hold is Hold.GIVEN:
            return [anchors.given()]
        if hold is Hold.LATEST:
            return [anchors.latest()]
        found = [] if hold is Hold.EGRESS else [anchors.exact()]
        return found if hold is Hold.EXACT else [*found, anchors.egress()]

    def parallel(self, m: Messages) -> int:
        """Connections per pair and instance that channels and thread blocks allow."""
        most = max(1, self.max_channels // m.instances)
        if self.limits.blocks is None:
            return most
        pairs = np.unique(np.stack((m.src, m.dst)), axis=1)
        ends = int(np.bincount(pairs.ravel()).max()) * m.instances
        return max(1, min(most, (self.limits.blocks - m.instances) // ends))


def label(text: str) -> str:
    """A name that every runtime accepts."""
    return re.sub(r"[^A-Za-z0-9_.+-]", "-", text)[:63]
