"""Timeline of a simulation: what every thread block and every resource did, and when."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sim.network import Network
from sim.prepared import ByteArray, FloatArray, LongArray
from sim.program import OP_TEXT, Program
from sim.result import SimResult

WAIT, TRANSFER = 0, 1
SPAN_KINDS = ("wait", "transfer")
"""``wait``: a block waits with its step for data, a slot, a dependency or a resource.
``transfer``: a message is being sent. By value of :attr:`Spans.kind`."""


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """Spans of time, sorted by (owner, from, to, step).

    Parameters
    ----------
    owner
        int64 ``[N]``: thread block or resource.
    step
        int64 ``[N]``: the step it is about.
    kind
        int8 ``[N]``: index into :data:`SPAN_KINDS`.
    from_us, to_us
        float64 ``[N]``.
    """

    owner: LongArray
    step: LongArray
    kind: ByteArray
    from_us: FloatArray
    to_us: FloatArray

    def __len__(self) -> int:
        return len(self.owner)


def block_spans(program: Program, result: SimResult) -> Spans:
    """Spans of thread blocks: transfers, and waits that are longer than nothing.

    They do not overlap; a block is between two spans only while it has nothing left to do.
    """
    end = result.step_end_us
    begin = np.zeros(program.steps, np.float64)
    begin[1:] = end[:-1]
    first = program.tb_first[:-1]
    begin[first[first < program.steps]] = 0.0
    wait_to = end.copy()
    wait_to[result.step] = result.start_us
    waits = np.flatnonzero(wait_to > begin).astype(np.int64)
    step = np.concatenate((waits, result.step))
    kind = np.repeat(np.array([WAIT, TRANSFER], np.int8), (len(waits), result.transfers))
    block = program.step_block().astype(np.int64)
    return _sorted(
        block[step],
        step,
        kind,
        np.concatenate((begin[waits], result.start_us)),
        np.concatenate((wait_to[waits], result.busy_end_us)),
    )


def resource_spans(network: Network, result: SimResult) -> Spans:
    """Spans of resources: the transfers that hold them."""
    first = network.path_first
    length = first[result.path + 1] - first[result.path]
    row = np.repeat(np.arange(result.transfers), length)
    before = np.cumsum(length) - length
    use = np.arange(len(row)) + np.repeat(first[result.path] - before, length)
    return _sorted(
        network.path_resource[use].astype(np.int64),
        result.step[row],
        np.full(len(row), TRANSFER, np.int8),
        result.start_us[row],
        result.busy_end_us[row],
    )


def _sorted(
    owner: LongArray, step: LongArray, kind: ByteArray, from_us: FloatArray, to_us: FloatArray
) -> Spans:
    order = np.lexsort((step, to_us, from_us, owner))
    return Spans(owner[order], step[order], kind[order], from_us[order], to_us[order])


def write_trace(path: Path, program: Program, network: Network, result: SimResult) -> None:
    """Write a trace that Perfetto and chrome://tracing open; gzipped if the name ends in ``.gz``.

    A process per rank with a thread per thread block, and one process more, ``network``, with a
    thread per resource that was used. Times are µs. The same result gives the same bytes.
    """
    with path.open("wb") as file:
        if path.suffix == ".gz":
            with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as zipped:
                _write(io.TextIOWrapper(zipped, encoding="utf-8"), program, network, result)
        else:
            _write(io.TextIOWrapper(file, encoding="utf-8"), program, network, result)


def _write(file: io.TextIOWrapper, program: Program, network: Network, result: SimResult) -> None:
    head = {
        "displayTimeUnit": "ns",
        "otherData": {
            "program": program.name,
            "engine": result.engine,
            "fidelity": result.fidelity,
            "cost_model": result.cost_model,
            "time_us": result.time_us,
        },
    }
    file.write(json.dumps(head)[:-1] + ', "traceEvents": [\n')
    separator = ""
    for event in _events(program, network, result):
        file.write(separator + json.dumps(event))
        separator = ",\n"
    file.write("\n]}\n")
    file.flush()
    file.detach()


def _events(program: Program, network: Network, result: SimResult) -> Iterator[dict[str, Any]]:
    spans, holds = block_spans(program, result), resource_spans(network, result)
    yield from (_name("process", rank, 0, f"gpu {rank}") for rank in range(program.ranks))
    for block in range(program.blocks):
        send, recv = int(program.tb_send[block]), int(program.tb_recv[block])
        text = f"tb {program.tb_id[block]} channel {program.tb_channel[block]}"
        text += f" recv {recv}" if recv >= 0 else ""
        text += f" send {send}" if send >= 0 else ""
        yield _name("thread", int(program.tb_rank[block]), int(program.tb_id[block]), text)
    yield _name("process", program.ranks, 0, "network")
    for resource in np.unique(holds.owner).tolist():
        yield _name("thread", program.ranks, resource, network.resources[resource])
    rank, tb = program.tb_rank.tolist(), program.tb_id.tolist()
    for owner, step, kind, from_us, to_us in _rows(spans):
        text = OP_TEXT[program.op[step]]
        yield _span(program, rank[owner], tb[owner], text, SPAN_KINDS[kind], step, from_us, to_us)
    block_of = program.step_block()
    for owner, step, kind, from_us, to_us in _rows(holds):
        block = block_of[step]
        text = f"gpu {program.tb_rank[block]} -> gpu {program.tb_send[block]}"
        yield _span(program, program.ranks, owner, text, SPAN_KINDS[kind], step, from_us, to_us)


def _rows(spans: Spans) -> Iterator[tuple[int, int, int, float, float]]:
    return zip(
        spans.owner.tolist(),
        spans.step.tolist(),
        spans.kind.tolist(),
        spans.from_us.tolist(),
        spans.to_us.tolist(),
        strict=True,
    )


def _name(what: str, pid: int, tid: int, text: str) -> dict[str, Any]:
    return {"ph": "M", "name": f"{what}_name", "pid": pid, "tid": tid, "args": {"name": text}}


def _span(
    program: Program,
    pid: int,
    tid: int,
    text: str,
    kind: str,
    step: int,
    from_us: float,
    to_us: float,
) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": text if kind == "transfer" else f"{text}: wait",
        "cat": kind,
        "pid": pid,
        "tid": tid,
        "ts": from_us,
        "dur": to_us - from_us,
        "args": {"step": program.where(step), "cnt": int(program.cnt[step])},
    }
