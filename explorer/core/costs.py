"""What a message costs, under the cost models that synthesizers of the field use.

``exclusive`` (TACCL, TACOS): a message of b bytes keeps its link and ports busy for
alpha + b·beta. ``pipelined`` (TE-CCL, real wires): busy for b·beta, arrives alpha later.
"""

from __future__ import annotations

from enum import StrEnum


class CostModel(StrEnum):
    """How long a message occupies what it goes through."""

    EXCLUSIVE = "exclusive"
    PIPELINED = "pipelined"

    def busy_us(self, alpha_us: float, transfer_us: float) -> float:
        """Time the link and its ports are held by a message whose bytes take ``transfer_us``."""
        return alpha_us + transfer_us if self is CostModel.EXCLUSIVE else transfer_us
