"""Names of collectives in logs, and the factor from algbw to busbw.

Factors: NVIDIA/nccl-tests doc/PERFORMANCE.md; gather, scatter and hypercube from their sources
(``src/gather.cu``, ``src/scatter.cu``, ``src/hypercube.cu``: (n-1)/n).
"""

from __future__ import annotations

import math
import re

FACTOR_TWO = ("allreduce",)
FACTOR_OTHERS = (
    "allgather",
    "reducescatter",
    "alltoall",
    "alltoallv",
    "gather",
    "scatter",
    "hypercube",
)
FACTOR_ONE = ("broadcast", "reduce", "sendrecv")

_KEYS = {
    "all_reduce": "allreduce",
    "allreduce": "allreduce",
    "all_gather": "allgather",
    "allgather": "allgather",
    "reduce_scatter": "reducescatter",
    "reducescatter": "reducescatter",
    "alltoall": "alltoall",
    "all_to_all": "alltoall",
    "alltoallv": "alltoallv",
    "all_to_allv": "alltoallv",
    "broadcast": "broadcast",
    "bcast": "broadcast",
    "reduce": "reduce",
    "sendrecv": "sendrecv",
    "send_recv": "sendrecv",
    "gather": "gather",
    "scatter": "scatter",
    "hypercube": "hypercube",
}
_NAMES = "|".join(sorted(_KEYS, key=len, reverse=True))
_BINARY = re.compile(rf"(?<![A-Za-z0-9])({_NAMES})_perf(?:_mpi)?(?![A-Za-z0-9_])")
_HEADING = re.compile(
    r"(?<![A-Za-z])(all[-_ ]?reduce|all[-_ ]?gather|reduce[-_ ]?scatter|all[-_ ]?to[-_ ]?allv?"
    r"|send[-_ ]?recv|broadcast)(?![A-Za-z])",
    re.IGNORECASE,
)


def key_of(word: str) -> str | None:
    """Key of a collective however it is spelt, None if it is none.

    Examples
    --------
    >>> key_of("AllReduce"), key_of("all-to-all"), key_of("ring")
    ('allreduce', 'alltoall', None)
    """
    plain = re.sub(r"_perf(?:_mpi)?$", "", word.strip().lower()).replace("-", "_").replace(" ", "_")
    return _KEYS.get(plain) or _KEYS.get(plain.replace("_", ""))


def named_by_binary(line: str) -> str | None:
    """Collective of the test binary a line names, such as ``all_reduce_perf``."""
    match = _BINARY.search(line)
    return None if match is None else _KEYS[match.group(1)]


def named_by_heading(line: str) -> str | None:
    """Collective a short heading or a file name names; ``reduce`` alone is too common a word."""
    match = _HEADING.search(line)
    return None if match is None else key_of(match.group(1))


def factor(collective: str | None, ranks: int | None) -> float | None:
    """Factor from algbw to busbw, None if it is not determined.

    Examples
    --------
    >>> factor("allreduce", 8), factor("reduce", None), factor("alltoall", 4)
    (1.75, 1.0, 0.75)
    """
    if collective in FACTOR_ONE:
        return 1.0
    if ranks is None or collective is None:
        return None
    if collective in FACTOR_TWO:
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if collective in FACTOR_OTHERS else None


def ranks_between(collective: str | None, low: float, high: float) -> range:
    """Rank counts whose factor lies in an interval; empty where the factor says nothing.

    Without a collective a factor above 1 can only be AllReduce's.

    Examples
    --------
    >>> list(ranks_between("allreduce", 1.8745, 1.8755)), list(ranks_between("reduce", 1, 1))
    ([16], [])
    """
    two = collective in FACTOR_TWO or (collective is None and low > 1)
    if collective in FACTOR_ONE or not (two or collective is None or collective in FACTOR_OTHERS):
        return range(0)
    top = 2.0 if two else 1.0
    if high >= top or high <= 0 or low > high:
        return range(0)
    # factor = top * (n - 1) / n, so n = top / (top - factor)
    first = max(1, math.ceil(top / (top - max(low, 0.0)) - 1e-9))
    return range(first, math.floor(top / (top - high) + 1e-9) + 1)
