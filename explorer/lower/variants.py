"""Variants: the ways to lower one schedule. Which is fastest is for the simulator to say."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Hold(StrEnum):
    """What a send waits for beyond the data it needs."""

    NOTHING = "nothing"
    EXACT = "exact"
    LATEST = "latest"
    EGRESS = "egress"
    GIVEN = "given"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to lower.

    Parameters
    ----------
    name
        Its name.
    hold
        Order beyond data.
    parallel
        Use several connections between two ranks where the plan has more messages on their way
        than one has slots.
    paced
        Re-time the plan first, so that its program can keep to it.
    fused
        Let one block receive and forward where that keeps the plan's times.
    """

    name: str
    hold: Hold
    parallel: bool = False
    fused: bool = False
    paced: bool = False

    @property
    def needs_graph(self) -> bool:
        """Whether it must know the resources the plan was made on."""
        return self.hold in (Hold.EGRESS, Hold.BOTH) or self.paced


VARIANTS = {
    v.name: v
    for v in (
        Variant("anchored", Hold.EXACT),
        Variant("plain", Hold.NOTHING),
        Variant("gated", Hold.LATEST),
        Variant("chained", Hold.EGRESS),
        Variant("guarded", Hold.BOTH),
        Variant("paced", Hold.GIVEN, paced=True),
        Variant("fused", Hold.EXACT, fused=True),
        Variant("anchored-parallel", Hold.EXACT, parallel=True),
        Variant("plain-parallel", Hold.NOTHING, parallel=True),
        Variant("gated-parallel", Hold.LATEST, parallel=True),
    )
}
"""All variants by name, the default first.

``plain`` waits for data only; ``anchored`` also for the event of its rank at the instant at which
the plan starts the send; ``gated`` for the last such event until then; ``chained`` for the send
before it over the same resource; ``guarded`` is anchored and chained. ``paced`` re-times the plan
to start sends at events of their own rank (:mod:`explorer.lower.pace`) and is anchored to those.
``fused`` is anchored, and blocks receive and forward where that costs nothing. ``…-parallel`` has
several connections between two ranks where the plan has more messages on their way than one can
hold."""
