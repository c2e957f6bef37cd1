"""Words a scenario may use for machines, methods, sketches and targets, from their registries."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

PLACEMENTS = ("in", "out", "both")
"""Which calls a program serves: in place, out of place, both."""

FIDELITIES = ("ideal", "runtime")
"""How programs are simulated."""


@dataclass(frozen=True, slots=True)
class Words:
    """Known names.

    Parameters
    ----------
    topologies
        Builders, without the shape of generic ones: ``ring`` for ``ring:16``.
    synthesizers
        Methods that search, and take a sketch.
    baselines
        Methods that are fixed algorithms.
    sketches
        Shipped sketches.
    dialects
        Runtimes a program can be made for, and ``unlimited``.
    """

    topologies: tuple[str, ...]
    synthesizers: tuple[str, ...]
    baselines: tuple[str, ...]
    sketches: tuple[str, ...]
    dialects: tuple[str, ...]

    @property
    def methods(self) -> tuple[str, ...]:
        """Every method."""
        return (*self.synthesizers, *self.baselines)


@lru_cache(maxsize=1)
def known_words() -> Words:
    """Words of this installation. Imports the registries, and with them the solver."""
    from explorer.baselines.registry import BASELINES
    from explorer.formats.dialects import DIALECTS, UNLIMITED
    from explorer.sketches.registry import sketch_names
    from explorer.synth.registry import SYNTHESIZERS
    from explorer.topologies.registry import topology_names

    return Words(
        topologies=tuple(topology_names()),
        synthesizers=tuple(SYNTHESIZERS),
        baselines=tuple(BASELINES),
        sketches=tuple(sketch_names()),
        dialects=(*(d for d in DIALECTS if d != UNLIMITED), UNLIMITED),
    )
