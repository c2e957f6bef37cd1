"""Facts: what the lines around a table say about the run."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field

from explorer.measured.collective_words import named_by_binary, named_by_heading

_DEVICE = re.compile(
    r"Rank\s+(\d{1,7})\s+(?:Group\s+(\d+)\s+)?(?:Pid\s+\d+\s+)?on\s+(\S.{0,200}?)\s+device\s+(\d+)"
    r"\s+\[([^\]]{0,64})\]"
)
_SHAPE = re.compile(r"nThreads?:?\s+(\d+)\s+nGpus:?\s+(\d+)(?:\s+nRanks:?\s+(\d+))?")
_SIZES = re.compile(r"minBytes:?\s+(\d+)\s+maxBytes:?\s+(\d+)")
_VALIDATION = re.compile(r"validation:?\s+(\d+)")
_COMM = re.compile(r"\bcomm 0x[0-9a-f]+ rank \d+ n[rR]anks (\d+)")
_TASKS = re.compile(
    r"(?:^|\s)(?:SLURM_NTASKS|PMI_SIZE|OMPI_COMM_WORLD_SIZE|WORLD_SIZE)=(\d{1,7})\b"
)
_BINARY = re.compile(r"(?:^|[\s/=])[\w./-]*_perf(?:_mpi)?(?=\s|$)")
_LAUNCHER = re.compile(r"\b(?:mpirun|mpiexec|orterun|srun|prun|flux|torchrun|kubectl)\b")
_PROCESSES = re.compile(r"(?:^|\s)(?:--?np|-n|--ntasks|-c|--ntasks=)[ =]?(\d{1,7})(?=\s)")
_GPUS = re.compile(r"(?:^|\s)(?:-g|--ngpus)[ =]?(\d{1,5})(?=\s|$)")
_THREADS = re.compile(r"(?:^|\s)(?:-t|--nthreads)[ =]?(\d{1,5})(?=\s|$)")


@dataclass(slots=True)
class Facts:
    """What is known about the run of a table before its rows.

    Parameters
    ----------
    collective
        Key, None if nobody named it.
    named_in
        Line that named the collective; 0 for none.
    sure
        Whether the collective is named by its binary, not only by a heading.
    devices
        Rank → (host, group) of the device list, however incomplete.
    per_process
        Threads x GPUs (x ranks per GPU) of one process, from the heading or the command.
    processes
        From a launcher's options or the environment; 1 for a command started without launcher.
    comm_ranks
        Largest ``nranks`` of NCCL's own lines.
    max_bytes
        ``maxBytes`` of the heading.
    validated
        Whether results were checked; None if unknown.
    """

    collective: str | None = None
    named_in: int = 0
    sure: bool = False
    devices: dict[int, tuple[str, int]] = field(default_factory=dict)
    per_process: int | None = None
    processes: int | None = None
    comm_ranks: int | None = None
    max_bytes: int | None = None
    validated: bool | None = None

    def learn(self, number: int, text: str) -> bool:
        """Take what a line says; whether it said anything."""
        device = _DEVICE.search(text)
        if device:
            self.devices[int(device.group(1))] = (device.group(3), int(device.group(2) or 0))
            return True
        comm = _COMM.search(text)
        if comm:
            self.comm_ranks = max(self.comm_ranks or 0, int(comm.group(1)))
            return True
        return self._shape(text) | self._name(number, text)

    def _shape(self, text: str) -> bool:
        shape, tasks = _SHAPE.search(text), _TASKS.search(text)
        if shape:
            threads, gpus, ranks = (int(part or 1) for part in shape.groups())
            self.per_process = max(1, min(threads * gpus * ranks, 1 << 20))
            sizes, validation = _SIZES.search(text), _VALIDATION.search(text)
            self.max_bytes = int(sizes.group(2)[:20]) if sizes else None
            self.validated = validation.group(1) != "0" if validation else None
        if tasks:
            self.processes = int(tasks.group(1))
        return bool(shape or tasks)

    def _name(self, number: int, text: str) -> bool:
        binary = named_by_binary(text)
        if binary is None:
            if self.sure or len(text) > 80 or "NCCL" in text:
                return False
            heading = named_by_heading(text)
            if heading is not None:
                self.collective, self.named_in = heading, number
            return heading is not None
        self.collective, self.named_in, self.sure = binary, number, True
        command = _BINARY.search(text)
        if command:
            self._command(text[: command.start()], text[command.end() :])
        return True

    def _command(self, before: str, options: str) -> None:
        gpus, threads = _GPUS.search(options), _THREADS.search(options)
        if gpus or threads:
            product = int(gpus.group(1) if gpus else 1) * int(threads.group(1) if threads else 1)
            self.per_process = max(1, product)
        if _LAUNCHER.search(before):
            count = _PROCESSES.search(before + " ")
            self.processes = int(count.group(1)) if count else self.processes
        elif gpus:  # options of the test and no launcher before it: one process
            self.processes = 1

    @property
    def listed(self) -> tuple[int, str] | None:
        """Rank count of the device list and where from; of one group if there are several."""
        if not self.devices:
            return None
        groups = {group for _, group in self.devices.values()}
        if len(groups) > 1:
            first = min(groups)
            count = sum(group == first for _, group in self.devices.values())
            return count, f"the device list ({len(groups)} groups)"
        return max(self.devices) + 1, "the device list"

    @property
    def started(self) -> tuple[int, str] | None:
        """Rank count of the command or of NCCL's own lines, and where from."""
        if self.comm_ranks:
            return self.comm_ranks, "NCCL's comm lines"
        if self.processes and self.per_process:
            return self.processes * self.per_process, "the command"
        return None

    def nodes(self, ranks: int | None) -> int | None:
        """Count nodes by host names; None if the device list leaves them open.

        Ranks that an incomplete list leaves out between two of one host are taken to be there.
        """
        known = sorted(self.devices)
        if not known or ranks is None or known[0] != 0 or known[-1] != ranks - 1:
            return None
        for left, right in itertools.pairwise(known):
            if right > left + 1 and self.devices[left][0] != self.devices[right][0]:
                return None
        return len({host for host, _ in self.devices.values()})
