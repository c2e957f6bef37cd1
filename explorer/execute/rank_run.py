"""RankRun: some ranks of a program, running in this process."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from explorer.execute.connection import Incoming, MessageError, Outgoing
from explorer.execute.definition import Elements, Inputs, Memory, allocate, expected_output
from explorer.execute.job import Job
from explorer.execute.link import Link
from explorer.execute.monitor import Aborted, Monitor
from explorer.execute.report import SHOWN, Mismatch
from explorer.execute.thread_block import Step, ThreadBlock
from sim.program import OP_READS_SRC, OP_WRITES_DST, Op


class RankRun:
    """Thread blocks, connections and memory of the ranks that live in this process.

    Parameters
    ----------
    job, run_id
        What to run; frames of other runs are not for this one.
    ranks
        Ranks of this process.
    link_to
        Link to the process of every other rank.
    on_end
        Called once, with a code and an error text at the first error, else with "" when the last
        thread block has ended.
    """

    def __init__(
        self,
        job: Job,
        run_id: int,
        ranks: range,
        link_to: Mapping[int, Link],
        on_end: Callable[[str, str], None],
    ) -> None:
        self.run_id = run_id
        self.monitor = Monitor()
        self._job = job
        self._ranks = ranks
        self._on_end = on_end
        self._ended = False
        self._inputs = Inputs(job.seed, job.input_elements, job.program.ranks)
        self._memory = {rank: self._allocate(rank) for rank in ranks}
        self._outgoing: dict[int, Outgoing] = {}
        self._incoming: dict[int, Incoming] = {}
        self._connect(link_to)
        self._blocks = self._build()
        self.monitor.unfinished = self.monitor.running = len(self._blocks)

    def start(self) -> None:
        """Start every thread block."""
        if not self._blocks:
            self._on_end("", "")
        for block in self._blocks:
            threading.Thread(target=self._run, args=(block,), daemon=True).start()

    def waiting(self) -> list[str]:
        """What every waiting thread block waits for."""
        with self.monitor.lock:
            return [f"{block} waits for {block.reason}" for block in self._blocks if block.reason]

    def abort(self) -> None:
        """Call the run off: every thread block ends at its next wait or step."""
        with self.monitor.lock:
            self.monitor.aborted = True
            for block in self._blocks:
                self.monitor.unpark(block)

    def deliver(self, connection: int, data: Elements | None) -> None:
        """Take a frame from another process."""
        with self.monitor.lock:
            self.monitor.received += 1
            if data is None:
                self._outgoing[connection].credit()
            else:
                self._incoming[connection].fill(data)

    def compare(self) -> tuple[int, int, int, list[Mismatch]]:
        """Compare every rank's memory with the definition of the collective.

        Returns
        -------
        tuple
            Elements compared, wrong ones, largest difference, the first wrong ones of each rank.
        """
        job, program = self._job, self._job.program
        elements = wrong = worst = 0
        shown: list[Mismatch] = []
        for rank in self._ranks:
            memory = self._memory[rank]
            expected = expected_output(
                program.collective, program.ranks, job.root, rank, self._inputs
            )
            pairs = [("output", memory.output, expected)]
            if job.placement == "out":
                pairs.append(("input", memory.input, self._inputs(rank)))
            for buffer, got, wanted in pairs:
                if wanted is None:
                    continue
                flat = got.reshape(-1)
                bad = np.flatnonzero(flat != wanted)
                elements += len(flat) if buffer == "output" else 0
                wrong += len(bad)
                if len(bad):
                    error = flat[bad].astype(np.int64) - wanted[bad].astype(np.int64)
                    worst = max(worst, int(np.abs(error).max()))
                shown += [
                    Mismatch(rank, buffer, i, i // job.elements, int(flat[i]), int(wanted[i]))
                    for i in bad[:SHOWN].tolist()
                ]
        return elements, wrong, worst, shown

    def _run(self, block: ThreadBlock) -> None:
        code = error = ""
        try:
            block.run(self._job)
        except Aborted:
            pass
        except MessageError as mismatch:
            code, error = "MESSAGE", f"{block} {mismatch}"
        except Exception:
            code, error = "BUG", f"{block}: {traceback.format_exc()}"
        with self.monitor.lock:
            self.monitor.unfinished -= 1
            self.monitor.running -= 1
            ends = not self._ended and (bool(code) or self.monitor.unfinished == 0)
            self._ended |= ends
        if ends:
            self._on_end(code, error)

    def _allocate(self, rank: int) -> Memory:
        job, program = self._job, self._job.program
        return allocate(
            program.collective,
            program.ranks,
            rank,
            nchunks=program.nchunks,
            elements=job.elements,
            scratch=int(program.s_chunks[rank]),
            in_place=job.placement == "in",
            values=self._inputs(rank),
            seed=job.seed,
        )

    def _connect(self, link_to: Mapping[int, Link]) -> None:
        for index, (src, dst, channel) in enumerate(self._job.connections):
            here = [rank for rank in (src, dst) if rank in self._ranks]
            if src in here:
                to = f"to gpu {dst} on channel {channel}"
                self._outgoing[index] = Outgoing(self.monitor, self._job.slots, to)
            if dst in here:
                origin = f"from gpu {src} on channel {channel}"
                self._incoming[index] = Incoming(self.monitor, origin)
            if len(here) == 2:
                self._outgoing[index].peer = self._incoming[index]
                self._incoming[index].peer = self._outgoing[index]
            elif here:
                far = dst if src in here else src
                end = self._outgoing[index] if src in here else self._incoming[index]
                end.post = partial(link_to[far].send, self.run_id, index)

    def _build(self) -> list[ThreadBlock]:
        program = self._job.program
        index_of = {key: i for i, key in enumerate(self._job.connections)}
        blocks: list[ThreadBlock] = []
        place: dict[int, tuple[ThreadBlock, int]] = {}
        for t in np.flatnonzero(np.isin(program.tb_rank, self._ranks)).tolist():
            rank, tb, send, recv, channel = (
                int(column[t])
                for column in (
                    program.tb_rank,
                    program.tb_id,
                    program.tb_send,
                    program.tb_recv,
                    program.tb_channel,
                )
            )
            block = ThreadBlock(
                self.monitor,
                rank,
                tb,
                self._outgoing.get(index_of.get((rank, send, channel), -1)),
                self._incoming.get(index_of.get((recv, rank, channel), -1)),
            )
            for s in range(int(program.tb_first[t]), int(program.tb_first[t + 1])):
                place[s] = (block, len(block.steps))
                block.steps.append(self._step(rank, s))
            if block.steps:
                blocks.append(block)
        for s, (block, index) in place.items():
            for d in program.dep_step[program.dep_first[s] : program.dep_first[s + 1]].tolist():
                other, target = place[d]
                other.steps[target].raises = True
                block.steps[index].waits.append((other, target))
        return blocks

    def _step(self, rank: int, s: int) -> Step:
        program, memory = self._job.program, self._memory[rank]
        buffers = (memory.input, memory.output, memory.scratch)
        op, cnt = Op(program.op[s]), int(program.cnt[s])
        source = target = None
        if OP_READS_SRC[op]:
            offset = int(program.src_off[s])
            source = buffers[program.src_buf[s]][offset : offset + cnt]
        if OP_WRITES_DST[op]:
            offset = int(program.dst_off[s])
            target = buffers[program.dst_buf[s]][offset : offset + cnt]
        return Step(op, cnt, source, target)
