"""Outcome: what became of one point, in a form that crosses process borders."""

from __future__ import annotations

import importlib
import json
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from explorer.errors import ExplorerError
from explorer.scenario.point import DesignPoint
from explorer.store.program_npz import program_bytes

if TYPE_CHECKING:
    from explorer.evaluate.point import PointResult

Evaluate = Callable[[DesignPoint], "PointResult"]
"""Turns a design point into a result."""

STANDARD = "explorer.evaluate.point:evaluate_point"
"""What evaluates a point unless a caller brings something else."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of an evaluation.

    Parameters
    ----------
    status
        ``done`` or ``failed``.
    row
        Result, JSON-able.
    program
        Packed program; None when there is none.
    error, error_code
        Why it failed, and the exit code of that kind of failure; a bug or a lost worker is 1.
    seconds
        Wall-clock seconds it took.
    """

    status: str
    row: dict[str, Any] = field(default_factory=dict)
    program: bytes | None = None
    error: str = ""
    error_code: int = 0
    seconds: float = 0.0


def evaluate_one(evaluate: Evaluate, point: DesignPoint) -> Outcome:
    """Evaluate a point; whatever is wrong with it becomes its outcome and stops nothing else."""
    started = time.perf_counter()
    try:
        result = evaluate(point)
        row = json.loads(json.dumps(result.row, allow_nan=False, default=_plain))
        program = None if result.program is None else program_bytes(result.program)
    except ExplorerError as error:
        return _failed(str(error), error.exit_code, started)
    except MemoryError:
        return _failed("out of memory", 1, started)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}:{frame.lineno}"
        text = f"bug: {type(error).__name__}: {error} ({where})"
        return _failed(text, 1, started)
    return Outcome("done", row, program, seconds=time.perf_counter() - started)


def reference(evaluate: Evaluate | None) -> str:
    """Name by which another process finds a function: ``module:name``.

    Raises
    ------
    ValueError
        If it cannot be imported by that name, as a lambda or an inner function.
    """
    if evaluate is None:
        return STANDARD
    name = f"{evaluate.__module__}:{evaluate.__qualname__}"
    try:
        found = resolve(name)
    except (ImportError, AttributeError):
        found = None
    if found is not evaluate:
        raise ValueError(f"{name} cannot be imported by another process; define it in a module")
    return name


def resolve(name: str) -> Evaluate:
    """Find what :func:`reference` named."""
    module, _, attribute = name.partition(":")
    found: Evaluate = getattr(importlib.import_module(module), attribute)
    return found


def _plain(value: object) -> object:
    """Write numpy's scalars as numbers."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a result holds {type(value).__name__}, which JSON has no word for")


def _failed(error: str, code: int, started: float) -> Outcome:
    return Outcome("failed", error=error, error_code=code, seconds=time.perf_counter() - started)
