"""One program for real, with workers of its own."""

from __future__ import annotations

from explorer.core.collective import Collective
from explorer.execute.pool import Executor
from explorer.execute.report import ExecutionReport
from sim.program import Program

DEFAULT_PROCESSES = 16
"""Up to this many ranks each have a process of their own."""


def run_program(
    program: Program,
    collective: Collective | None = None,
    *,
    elements_per_chunk: int | None = None,
    size_bytes: int | None = None,
    slot_bytes: int | None = None,
    seed: int = 0,
    placement: str | None = None,
    jitter_seed: int | None = None,
    timeout_s: float = 60.0,
    processes: int | None = None,
) -> ExecutionReport:
    """Run a program once; for many programs keep an :class:`~explorer.execute.pool.Executor`.

    Parameters
    ----------
    program, collective, elements_per_chunk, size_bytes, slot_bytes, seed
        As for :meth:`Executor.run`.
    placement, jitter_seed, timeout_s
        As for :meth:`Executor.run`.
    processes
        Worker processes; None for one per rank, at most :data:`DEFAULT_PROCESSES`.

    Raises
    ------
    InputError
        If the program cannot be executed at all.
    ExecutionError
        If a worker process died.
    """
    workers = processes or min(program.ranks, DEFAULT_PROCESSES)
    with Executor(min(workers, program.ranks)) as pool:
        return pool.run(
            program,
            collective,
            elements_per_chunk=elements_per_chunk,
            size_bytes=size_bytes,
            slot_bytes=slot_bytes,
            seed=seed,
            placement=placement,
            jitter_seed=jitter_seed,
            timeout_s=timeout_s,
        )
