"""GPU counts that a layer may have."""

from __future__ import annotations

from explorer.errors import InputError, Problem, nearest

KINDS = ("powers", "divisors")
"""``powers``: powers of two, as DeepPool; ``divisors``: any."""


def gpu_counts(batch: int, gpus: int, kind: str = "powers") -> tuple[int, ...]:
    """Counts that divide the batch and are at most the GPUs.

    A GPU gets at least one sample, so a batch smaller than the machine leaves GPUs unused.

    Raises
    ------
    InputError
        If a number is below 1 or the kind is unknown.

    Examples
    --------
    >>> gpu_counts(8, 16), gpu_counts(12, 8), gpu_counts(12, 8, "divisors")
    ((1, 2, 4, 8), (1, 2, 4), (1, 2, 3, 4, 6))
    """
    problems = [
        Problem(where, f"got {got}, expected at least 1")
        for where, got in (("--batch", batch), ("--gpus", gpus))
        if got < 1
    ]
    if kind not in KINDS:
        problems.append(Problem("--counts", f"got {kind!r}, {nearest(kind, KINDS)}"))
    if problems:
        raise InputError(problems)
    fitting = (g for g in range(1, min(batch, gpus) + 1) if batch % g == 0)
    return tuple(g for g in fitting if kind == "divisors" or g & (g - 1) == 0)
