"""Record: what is kept of one evaluated design point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

STATUSES = ("done", "failed")
"""A point is either done, with a row, or failed, with a reason."""


@dataclass(frozen=True, slots=True)
class Record:
    """One evaluated point.

    Parameters
    ----------
    key
        Content key: changes with the point, the machine, the sketch and the code.
    identity
        Digest of the point alone. A store keeps one record per identity, the newest.
    scenario
        Name of the scenario section that asked for it.
    point
        Fields of the design point.
    status
        One of :data:`STATUSES`.
    row
        What evaluation found; empty when it failed.
    error
        Why it failed; empty when done.
    error_code
        Exit code of the reason: 2 input, 3 infeasible, 4 verification, 1 a bug or a lost worker;
        0 when done.
    seconds
        Wall-clock seconds of the whole evaluation.
    versions
        Versions of this package, its code and the libraries that decide results.
    """

    key: str
    identity: str
    scenario: str
    point: Mapping[str, Any]
    status: str
    row: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    error_code: int = 0
    seconds: float = 0.0
    versions: Mapping[str, str] = field(default_factory=dict)

    def flat(self) -> dict[str, Any]:
        """One table row: ``point`` (the key), ``scenario``, ``asked`` (the point), the result.

        A failed point, which has no result, shows its point's fields, ``error`` and
        ``error_code`` instead.
        """
        head = {"point": self.key, "scenario": self.scenario, "asked": dict(self.point)}
        if self.status == "done":
            return head | dict(self.row)
        return head | dict(self.point) | {"error": self.error, "error_code": self.error_code}
