"""Executor: a pool of worker processes that run programs for real."""

from __future__ import annotations

from types import TracebackType

from explorer.core.collective import Collective
from explorer.errors import InputError, Problem
from explorer.execute.job import plan_job
from explorer.execute.report import ExecutionReport
from explorer.execute.session import Session
from explorer.execute.workers import ExecutionError, Workers
from sim.program import Program

MAX_PROCESSES = 32
"""Workers at most: every two have a socket between them."""


class Executor:
    """Worker processes that stay alive between programs.

    Parameters
    ----------
    processes
        Worker processes, at most :data:`MAX_PROCESSES`. Ranks are spread over them evenly; ranks
        of one process share memory, ranks of different ones exchange messages over sockets.

    Examples
    --------
    >>> from sim.program import Buffer, Op, ProgramBuilder
    >>> b = ProgramBuilder(ranks=2)
    >>> for rank in (0, 1):
    ...     t = b.block(rank, send=1 - rank, recv=1 - rank)
    ...     _ = b.step(t, Op.SEND, src=(Buffer.INPUT, 0))
    ...     _ = b.step(t, Op.COPY, src=(Buffer.INPUT, 0), dst=(Buffer.OUTPUT, rank))
    ...     _ = b.step(t, Op.RECV, dst=(Buffer.OUTPUT, 1 - rank))
    >>> program = b.build(name="ag", collective="allgather", nchunks=2)
    >>> with Executor(processes=2) as pool:
    ...     pool.run(program, Collective("allgather", 2)).ok
    True
    """

    def __init__(self, processes: int = 2) -> None:
        if not 1 <= processes <= MAX_PROCESSES:
            text = f"got {processes}, expected 1 to {MAX_PROCESSES}"
            raise InputError(Problem("processes", text))
        self.processes = processes
        self.pids: tuple[int, ...] = ()
        self._workers: Workers | None = None
        self._run_id = 0

    def __enter__(self) -> Executor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the workers; the next run would start new ones."""
        if self._workers is not None:
            self._workers.end()
            self._workers = None
            self.pids = ()

    def run(
        self,
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
    ) -> ExecutionReport:
        """Run a program on random data and compare with the definition of the collective.

        Parameters
        ----------
        program
            The program.
        collective
            What it shall compute; None for what it says itself.
        elements_per_chunk
            4-byte elements of a chunk where no size is given. Slots are then scaled so that the
            program loops and splits messages as it does at the largest size it serves.
        size_bytes
            nccl-tests' size, rounded down to whole elements per chunk; slots then have the
            protocol's real payload.
        slot_bytes
            Payload of a slot instead.
        seed
            Of the data.
        placement
            ``in`` or ``out``; None for out of place where the program serves it.
        jitter_seed
            Of random delays before steps, which bring out missing dependencies; None for none.
        timeout_s
            Seconds after which the run is called off.

        Raises
        ------
        InputError
            If the program cannot be executed at all.
        ExecutionError
            If a worker process died.
        """
        job = plan_job(
            program,
            collective,
            elements_per_chunk=elements_per_chunk,
            size_bytes=size_bytes,
            slot_bytes=slot_bytes,
            seed=seed,
            placement=placement,
            jitter_seed=jitter_seed,
        )
        self._run_id += 1
        done = False
        try:
            if self._workers is None:
                self._workers = Workers(self.processes)
                self.pids = self._workers.pids
            report = Session(self._workers, job, self._run_id, timeout_s).report()
            done = True
            return report
        except (EOFError, OSError) as error:
            raise ExecutionError(f"a worker process died: {error!r}") from None
        finally:
            if not done:
                self.close()
