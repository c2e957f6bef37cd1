"""Report: what a verification found, and the ledger it is collected in."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from explorer.errors import Finding, VerificationError

FINDINGS_PER_CODE = 20
"""Findings of one code and severity that are kept; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Report:
    """Result of verifying one program or file.

    Parameters
    ----------
    file
        Path of the file, or name of the program.
    ok
        Whether there are no errors.
    errors
        What makes it wrong.
    warnings
        What a reader should know although it is not wrong.
    """

    file: str
    ok: bool = field(init=False)
    errors: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "ok", not self.errors)

    def require(self) -> None:
        """Go on only if it is right.

        Raises
        ------
        VerificationError
            With the errors, if there are any.
        """
        if self.errors:
            raise VerificationError(f"{self.file}: verification failed", self.errors)


class Ledger:
    """Collects findings: without repetition, and of one code only the first few."""

    def __init__(self) -> None:
        self._kept: dict[bool, list[Finding]] = {True: [], False: []}
        self._seen: set[tuple[bool, Finding]] = set()
        self._more: Counter[tuple[bool, str]] = Counter()

    def error(self, code: str, where: str, message: str) -> None:
        """Add what makes the subject wrong."""
        self._add(True, Finding(code, where, message))

    def warning(self, code: str, where: str, message: str) -> None:
        """Add what is worth knowing."""
        self._add(False, Finding(code, where, message))

    def add(self, code: str, where: str, message: str, *, error: bool) -> None:
        """Add an error or a warning."""
        self._add(error, Finding(code, where, message))

    def more(self, code: str, count: int) -> None:
        """Count further errors of a code that are not worth a text each."""
        self._more[True, code] += count

    def _add(self, error: bool, finding: Finding) -> None:
        if (error, finding) in self._seen:
            return
        same = sum(1 for f in self._kept[error] if f.code == finding.code)
        if same >= FINDINGS_PER_CODE:
            self._more[error, finding.code] += 1
            return
        self._seen.add((error, finding))
        self._kept[error].append(finding)

    @property
    def errors(self) -> int:
        """Number of errors so far."""
        counted = sum(count for (error, _), count in self._more.items() if error)
        return len(self._kept[True]) + counted

    def findings(self, *, error: bool) -> tuple[Finding, ...]:
        """Everything of one severity, in the order it was found."""
        rest = [
            Finding(code, "", f"and {count} more")
            for (severity, code), count in sorted(self._more.items())
            if severity is error
        ]
        return (*self._kept[error], *rest)

    def report(self, file: str) -> Report:
        """Freeze it."""
        return Report(
            file=file, errors=self.findings(error=True), warnings=self.findings(error=False)
        )
