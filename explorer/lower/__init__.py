"""Schedule to Program: buffers, thread blocks, channels, dependencies."""

from explorer.lower.limits import EVERYWHERE, UNLIMITED, BlockLimits, Limits, fits
from explorer.lower.local import local_program
from explorer.lower.lower import lower, lowerings
from explorer.lower.variants import VARIANTS, Variant

__all__ = [
    "EVERYWHERE",
    "UNLIMITED",
    "VARIANTS",
    "BlockLimits",
    "Limits",
    "Variant",
    "fits",
    "local_program",
    "lower",
    "lowerings",
]
