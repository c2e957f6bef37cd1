"""Times of one program, from a file or a baseline's name, over sizes."""

from __future__ import annotations

from pathlib import Path

from explorer.baselines.registry import BASELINES, build_baseline
from explorer.core.collective import Collective, sizing_of
from explorer.errors import InputError, Problem, nearest
from explorer.evaluate.machine import Machine, load_machine
from explorer.evaluate.network import network_for
from explorer.evaluate.simulated import simulate_program
from explorer.formats.msccl_xml_read import read_msccl_xml
from sim.network import Network
from sim.program import Program


def simulate_sizes(
    what: str,
    topology: str,
    nodes: int | None,
    collective: str | None,
    sizes: list[int],
    *,
    placement: str | None = None,
    engine: str = "compiled",
    fidelity: str = "ideal",
    cost_model: str = "exclusive",
    chunks: int = 1,
    channels: int = 1,
    trace: Path | None = None,
) -> tuple[list[dict[str, object]], list[str]]:
    """Simulate a file or a baseline.

    Parameters
    ----------
    what
        MSCCL XML file, or a baseline's name.
    sizes
        nccl-tests' sizes in bytes.
    placement
        ``in``, ``out``, or None for what the program serves.
    trace
        Where to write a Chrome trace of the only size.

    Returns
    -------
    tuple
        Rows of ``explorer simulate`` with a ``note`` each, and notes on the whole.

    Raises
    ------
    InputError
        If the file, machine or baseline does not exist or they do not fit together.
    VerificationError
        If the program deadlocks.
    """
    machine = load_machine(topology, nodes, sized=True)
    if trace is not None and len(sizes) != 1:
        raise InputError(Problem("--trace", f"takes one size, got {len(sizes)}"))
    if placement not in (None, "in", "out"):
        raise InputError(Problem("--placement", f"got {placement!r}, expected in or out"))
    program = _program(what, machine, collective, placement, chunks, channels)
    network = network_for(machine.topology, program)
    notes = _notes(program, placement)
    rows = []
    for size in sizes:
        row = simulate_program(
            program,
            network,
            size,
            cost_model=cost_model,
            fidelity=fidelity,
            engine=engine,
        )
        row["note"] = _size_note(program, size, row)
        rows.append(row)
    if trace is not None:
        _write_trace(program, network, sizes[0], cost_model, trace)
    return rows, notes


def _program(
    what: str,
    machine: Machine,
    collective: str | None,
    placement: str | None,
    chunks: int,
    channels: int,
) -> Program:
    if what in BASELINES:
        if collective is None:
            raise InputError(Problem("--collective", f"is needed with the baseline {what!r}"))
        kind = Collective(collective, machine.topology.ranks, chunks)
        return build_baseline(
            what, machine.topology, kind, placement=placement or "out", channels=channels
        )
    path = Path(what)
    if not path.is_file():
        raise InputError(
            Problem(what, f"neither a file nor a baseline, {nearest(what, BASELINES)}")
        )
    program = read_msccl_xml(path)
    if collective is not None and collective != program.collective:
        raise InputError(f"{what} is an {program.collective} program, not {collective}")
    return program


def _notes(program: Program, placement: str | None) -> list[str]:
    served = {"in": program.in_place, "out": program.out_of_place}
    if placement is None or served[placement]:
        return []
    kind = "in-place" if placement == "in" else "out-of-place"
    return [
        f"this program does not serve {kind} calls: the runtime falls back to its own algorithm,"
        " and the times below are not what such a call would take"
    ]


def _size_note(program: Program, size: int, row: dict[str, object]) -> str | None:
    if row["size_bytes"] == 0:
        return "rounds down to zero bytes: nothing is sent"
    if size < program.min_bytes or (program.max_bytes is not None and size > program.max_bytes):
        most = "no limit" if program.max_bytes is None else f"{program.max_bytes} bytes"
        return f"outside the program's range ({program.min_bytes} bytes to {most}): not picked"
    return None


def _write_trace(
    program: Program, network: Network, size: int, cost_model: str, path: Path
) -> None:
    from sim.simulate import simulate
    from sim.trace import write_trace

    chunk = float(sizing_of(program.nchunks, size).chunk_bytes)
    result = simulate(program, network, chunk, cost_model=cost_model)
    try:
        write_trace(path, program, network, result)
    except OSError as error:
        raise InputError(Problem(str(path), error.strerror or str(error))) from None
