"""Simulate a program on a network."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import perf_counter

from sim.errors import ProgramError
from sim.limits import Limits
from sim.network import Network
from sim.prepared import Prepared, prepare
from sim.program import Program
from sim.result import SimResult, result_of
from sim.times import Times

ENGINES = ("compiled", "simpy")
"""``compiled`` runs on numba, ``simpy`` is the reference; their results are equal bit by bit."""

_PREPARE: dict[str, Callable[[Program, Network, float, str], Prepared]] = {"ideal": prepare}
"""What each fidelity turns a program into. Engines know no fidelities: one that cuts messages into
tiles or adds copies is another way to prepare."""

FIDELITIES = tuple(_PREPARE)
"""``ideal``: no tiles, launch, copy or reduction cost; the semantics in :mod:`sim.engine`."""


def simulate(
    program: Program,
    network: Network,
    chunk_bytes: float,
    *,
    cost_model: str = "exclusive",
    fidelity: str = "ideal",
    engine: str = "compiled",
    max_transfers: int | None = None,
    max_seconds: float | None = None,
) -> SimResult:
    """Simulate a program at one chunk size.

    The first use of the compiled engine on a machine compiles it, 5 to 10 s, and keeps the result
    on disk; later processes load it in about half a second. ``seconds`` of the result is the
    engine's loop alone: without compilation, checks of the input and collection of the result.

    Parameters
    ----------
    program
        What the ranks run.
    network
        Has a path for every pair that the program sends between.
    chunk_bytes
        Size of a chunk.
    cost_model
        One of :data:`sim.network.COST_MODELS`.
    fidelity
        One of :data:`FIDELITIES`.
    engine
        One of :data:`ENGINES`.
    max_transfers, max_seconds
        Limits on started transfers and wall-clock seconds.

    Raises
    ------
    ProgramError
        If the program is malformed, the network lacks a path, or a word is unknown.
    Deadlock
        If steps remain and nothing can go on; the waiting cycle is named.
    LimitReached
        If a limit is exceeded.
    """
    _check_word("fidelity", fidelity, FIDELITIES)
    _check_word("engine", engine, ENGINES)
    prepared = _PREPARE[fidelity](program, network, chunk_bytes, cost_model)
    run = _engine(engine)(prepared)
    began = perf_counter()
    times = run(Limits(max_transfers, max_seconds))
    seconds = perf_counter() - began
    return result_of(
        prepared,
        times,
        engine=engine,
        fidelity=fidelity,
        cost_model=cost_model,
        seconds=seconds,
    )


def _engine(name: str) -> Callable[[Prepared], Callable[[Limits], Times]]:
    """Import only the engine that is asked for: numba and simpy take their time."""
    if name == "simpy":
        from sim import engine

        return engine.lay_out
    from sim import compiled

    compiled.load()
    return compiled.lay_out


def _check_word(what: str, got: str, allowed: Iterable[str]) -> None:
    if got not in allowed:
        raise ProgramError(f"{what} {got!r} is none of {', '.join(allowed)}")
