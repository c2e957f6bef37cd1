"""Errors a user can cause, with the exit code each one ends the command line with."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with an input.

    Parameters
    ----------
    where
        ``file:line``, a key path such as ``internode_sketch.relays[2]``, or an option name.
    message
        What is wrong, with what was got and what was expected.
    """

    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a verification: machine-readable code, place and text.

    Parameters
    ----------
    code
        Upper-case word such as ``RACE``, ``DEADLOCK``, ``RESULT``, ``LIMIT``.
    where
        Place in the program or file, e.g. ``gpu 0 tb 1 step 3`` or ``line 14``.
    message
        What is wrong there.
    """

    code: str
    where: str
    message: str

    def __str__(self) -> str:
        return (
            f"{self.code} {self.where}: {self.message}"
            if self.where
            else f"{self.code} {self.message}"
        )


class ExplorerError(Exception):
    """Base of every error this package raises on purpose."""

    exit_code = 1


class InputError(ExplorerError):
    """The input is wrong; all its problems at once (exit code 2)."""

    exit_code = 2

    def __init__(self, problems: Problem | str | Sequence[Problem | str]) -> None:
        if isinstance(problems, (Problem, str)):
            problems = [problems]
        self.problems = tuple(p if isinstance(p, Problem) else Problem("", p) for p in problems)
        super().__init__("\n".join(str(p) for p in self.problems))


class InfeasibleError(ExplorerError):
    """No schedule exists, or none was found within the limit (exit code 3)."""

    exit_code = 3


class VerificationError(ExplorerError):
    """A schedule, program or file is wrong, or a simulated program deadlocks (exit code 4)."""

    exit_code = 4

    def __init__(self, what: str, findings: Iterable[Finding] = ()) -> None:
        self.findings = tuple(findings)
        lines = [what, *(f"  {finding}" for finding in self.findings[:20])]
        if len(self.findings) > 20:
            lines.append(f"  … and {len(self.findings) - 20} more")
        super().__init__("\n".join(lines))


def nearest(word: str, allowed: Iterable[str]) -> str:
    """Say which allowed word is nearest to a misspelt one.

    Returns
    -------
    str
        ``did you mean 'x'?`` with the nearest word, else ``expected one of …``.

    Examples
    --------
    >>> nearest("swich", ["switch", "none", "relay"])
    "did you mean 'switch'?"
    """
    words = sorted(str(a) for a in allowed)
    match = difflib.get_close_matches(str(word), words, n=1, cutoff=0.6)
    if match:
        return f"did you mean {match[0]!r}?"
    return f"expected one of {', '.join(words)}" if words else "nothing is allowed here"
