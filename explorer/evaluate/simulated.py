"""A program's simulated time as a row of ``explorer simulate``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from explorer.core.collective import Collective, bandwidths_gbs, sizing_of
from explorer.errors import Finding, InputError, VerificationError
from sim.errors import Deadlock, LimitReached, ProgramError
from sim.network import Network
from sim.program import Program
from sim.simulate import simulate


def simulate_program(
    program: Program,
    network: Network,
    size_bytes: int | None,
    *,
    cost_model: str = "exclusive",
    fidelity: str = "ideal",
    engine: str = "compiled",
) -> dict[str, object]:
    """Simulate one size, rounded down to whole chunks of whole elements.

    None is one chunk unit of a profile. Zero bytes, and a single rank, take no time: there is
    nothing to send.

    Returns
    -------
    dict
        The keys of one row of ``explorer simulate``.

    Raises
    ------
    VerificationError
        If the program deadlocks, with the waiting cycle.
    InputError
        If the network lacks a path, or an event limit was reached.
    """
    amount = sizing_of(program.nchunks, size_bytes)
    row: dict[str, object] = {
        "requested_bytes": amount.requested_bytes,
        "size_bytes": amount.size_bytes,
        "time_us": 0.0,
        "algbw_gbs": None,
        "busbw_gbs": None,
        "engine": engine,
        "fidelity": fidelity,
        "cost_model": cost_model,
        "transfers": 0,
        "seconds": 0.0,
        "bottleneck": None,
    }
    if amount.chunk_bytes == 0:
        return row
    try:
        result = simulate(
            program,
            network,
            float(amount.chunk_bytes),
            cost_model=cost_model,
            fidelity=fidelity,
            engine=engine,
        )
    except Deadlock as error:
        raise VerificationError("the program deadlocks", _cycle(error.cycle)) from None
    except (ProgramError, LimitReached) as error:
        raise InputError(str(error)) from None
    row["time_us"] = result.time_us
    row["algbw_gbs"], row["busbw_gbs"] = bandwidths_gbs(
        Collective(program.collective, program.ranks), amount.size_bytes, result.time_us
    )
    row["transfers"] = result.transfers
    row["seconds"] = result.seconds
    bottleneck = result.bottleneck()
    if bottleneck is not None:
        row["bottleneck"] = asdict(bottleneck)
    return row


def _cycle(entries: Sequence[str]) -> list[Finding]:
    return [Finding("DEADLOCK", "", entry) for entry in entries]
