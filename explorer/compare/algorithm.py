"""Algorithm and setting of a result row: what competes, and what it competes in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Setting:
    """What two times must have in common to be compared, the size aside.

    Parameters
    ----------
    topology, nodes, ranks
        The machine.
    collective, root, placement
        The call.
    cost_model, fidelity, time_unit
        What times mean.
    dialect
        Runtime that limits the programs.
    """

    topology: str
    nodes: int
    ranks: int
    collective: str
    root: int
    placement: str
    cost_model: str
    fidelity: str
    time_unit: str
    dialect: str

    @property
    def machine(self) -> str:
        """Machine in words: ``ndv2 x2``."""
        return f"{self.topology} x{self.nodes}" if self.nodes > 1 else self.topology


@dataclass(frozen=True, slots=True)
class Algorithm:
    """How a program was asked for: the same recipe at every size, if not the same program.

    Parameters
    ----------
    method, sketch
        Method, and its sketch or None.
    chunks
        Chunks per rank asked for; None for the sketch's own.
    protocol, channels, instances
        Lowering.
    """

    method: str
    sketch: str | None
    chunks: int | None
    protocol: str
    channels: int
    instances: int

    @property
    def label(self) -> str:
        """Name in tables and legends; what is left at its default is left out.

        Examples
        --------
        >>> Algorithm("milp", "scenarios/my-sk.yaml", None, "Simple", 1, 2).label
        'milp my-sk instances=2'
        """
        parts = [self.method]
        if self.sketch:
            parts.append(PurePath(self.sketch).stem if "/" in self.sketch else self.sketch)
        if self.protocol != "Simple":
            parts.append(self.protocol)
        if self.chunks is not None:
            parts.append(f"chunks={self.chunks}")
        if self.channels != 1:
            parts.append(f"channels={self.channels}")
        if self.instances != 1:
            parts.append(f"instances={self.instances}")
        return " ".join(parts)

    @property
    def plainness(self) -> tuple[int, int, int, bool, str]:
        """Sorts the simpler of two equally fast algorithms first."""
        simple = self.protocol == "Simple"
        return (self.instances, self.channels, self.chunks or 0, not simple, self.label)


def algorithm_of(row: Row) -> Algorithm:
    """Algorithm of a row, from what was ``asked`` where the row says so."""
    asked = row.get("asked", row)
    return Algorithm(
        asked["method"],
        asked.get("sketch"),
        asked.get("chunks"),
        asked.get("protocol", "Simple"),
        asked.get("channels", 1),
        asked.get("instances", 1),
    )


def setting_of(row: Row) -> Setting:
    """Setting of a row."""
    asked = row.get("asked", row)
    return Setting(
        row["topology"],
        row.get("nodes") or 1,
        row["ranks"],
        row["collective"],
        asked.get("root", 0),
        asked.get("placement", "out"),
        row["cost_model"],
        asked.get("fidelity", "ideal"),
        row.get("time_unit", "us"),
        asked.get("dialect", "executor"),
    )


def cost_of(row: Row) -> float | None:
    """What is ranked: time per byte that runs, so that bytes lost to rounding win nothing.

    Time alone where there are no bytes (a profile's own units, a size of zero); infinite where
    rounding left nothing of a size; None where no program was made.
    """
    time_us, size = row.get("time_us"), row.get("size_bytes")
    if time_us is None:
        return None
    if size is None or not row.get("requested_bytes"):
        return float(time_us)
    return float(time_us) / size if size else float("inf")
