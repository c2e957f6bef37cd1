"""Turn the content of an MSCCL XML file into the Program it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from explorer.errors import nearest
from explorer.verify.report import Ledger
from explorer.verify.runtimes import Header, Runtime
from explorer.verify.xml_rules import (
    Columns,
    IntArray,
    check_flags,
    check_fusion,
    check_nops,
    check_numbering,
)
from explorer.verify.xml_tree import STEP_TYPES, Document, Node, integer
from sim.program import (
    OP_READS_SRC,
    OP_TEXT,
    OP_WRITES_DST,
    Buffer,
    Program,
)

_INT32 = 1 << 31
_OP = np.array([OP_TEXT.index(t) for t in STEP_TYPES], dtype=np.int8)
_SPELLING = {"reduce_scatter": "reducescatter"}
_COLLECTIVES = ("allgather", "allreduce", "alltoall", "broadcast", "reduce", "reducescatter")
_UNCHECKED = ("gather", "scatter", "alltoallv", "send", "recv")


@dataclass(frozen=True, slots=True, eq=False)
class Built:
    """A program and where it stands in its file.

    Parameters
    ----------
    program
        The program, nops included.
    step_line, block_line
        int64: line of every step and block.
    """

    program: Program
    step_line: IntArray
    block_line: IntArray


def program_of(
    document: Document, header: Header, runtime: Runtime | None, ledger: Ledger
) -> Built | None:
    """Build the program of a file; None where what it says cannot be one."""
    ranks = len(document.gpus)
    chunks = header.nchunksperloop
    if chunks is None:
        ledger.error("MISSING", "", "without nchunksperloop nothing can be checked")
    if not ranks:
        ledger.error("STRUCTURE", "", "no <gpu> in it")
    if header.ngpus is not None and header.ngpus != ranks:
        ledger.error(
            "STRUCTURE", _line(document.algo), f"ngpus is {header.ngpus}, it has {ranks} <gpu>"
        )
    order = _rank_order(document, ledger)
    if chunks is None or order is None:
        return None
    columns = {c: np.asarray(v, dtype=np.int64) for c, v in document.steps.items()}
    for name, column in columns.items():
        for i in np.flatnonzero(np.abs(column) >= _INT32)[:3]:
            ledger.error("NUMBER", f"line {columns['line'][i]}", f"{name} is {column[i]}")
    if any(bool((np.abs(c) >= _INT32).any()) for c in columns.values()) or chunks >= _INT32:
        return None
    if bool((columns["type"] < 0).any()):
        for i in document.gaps.get("type", [])[:3]:
            ledger.error("MISSING", f"line {columns['line'][i]}", "a step without a type")
        return None
    return _assemble(document, header, runtime, order, columns, ledger)


def _line(node: Node) -> str:
    return f"line {node.line}"


def _number(node: Node, key: str, default: int, ledger: Ledger) -> int:
    text = node.text.get(key)
    if text is None:
        return default
    value = integer(text, key, _line(node), ledger)
    if abs(value) >= _INT32:
        ledger.error("NUMBER", _line(node), f"{key} is {value}")
        return default
    return value


def _rank_order(document: Document, ledger: Ledger) -> list[Node] | None:
    """Gpus by id, if their ids are 0 to n-1."""
    ids = [_number(g, "id", -1, ledger) for g in document.gpus]
    if sorted(ids) != list(range(len(ids))):
        for gpu, rank in zip(document.gpus, ids, strict=True):
            if not 0 <= rank < len(ids) or ids.count(rank) > 1:
                ledger.error(
                    "STRUCTURE",
                    _line(gpu),
                    f"gpu id is {rank}, expected each of 0 to {len(ids) - 1} once",
                )
        return None
    by_rank = dict(zip(ids, document.gpus, strict=True))
    return [by_rank[r] for r in range(len(ids))]


def _assemble(
    document: Document,
    header: Header,
    runtime: Runtime | None,
    gpus: list[Node],
    columns: Columns,
    ledger: Ledger,
) -> Built | None:
    blocks: list[tuple[int, int, Node]] = []
    for rank, gpu in enumerate(gpus):
        mine = document.blocks[gpu.first : gpu.end]
        ids = [_number(b, "id", -1, ledger) for b in mine]
        if sorted(ids) != list(range(len(ids))):
            ledger.error(
                "BLOCK",
                _line(gpu),
                f"tb ids of gpu {rank} are not 0 to {len(ids) - 1}, each once",
            )
            return None
        blocks += sorted(((rank, i, b) for i, b in zip(ids, mine, strict=True)), key=_by_id)
    taken = [np.arange(b.first, b.end, dtype=np.int64) for _, _, b in blocks]
    step = np.concatenate(taken) if taken else np.zeros(0, np.int64)
    columns = {name: column[step] for name, column in columns.items()}
    counts = np.array([len(t) for t in taken], dtype=np.int64)
    first = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    rank_of = np.array([r for r, _, _ in blocks], dtype=np.int32)
    check_numbering(columns, first, ledger)
    check_nops(columns, first, ledger)
    check_fusion(document, ledger)
    waiter, target = _dependencies(columns, rank_of, first, ledger)
    check_flags(columns, waiter, target, ledger)
    dep_first = np.searchsorted(waiter, np.arange(len(step) + 1)).astype(np.int64)
    nodes = [b for _, _, b in blocks]
    channel = np.array([_number(b, "chan", 0, ledger) for b in nodes], dtype=np.int32)
    op = _OP[columns["type"]]
    rank_of_step = np.repeat(rank_of, counts)
    sizes = [_buffer(gpus, b, op, columns, rank_of_step, ledger) for b in Buffer]
    in_place, out_of_place = placements(header)
    if document.algo.text.get("coll") in _UNCHECKED:  # how their buffers alias is not known
        in_place, out_of_place = False, True
    largest = header.largest(runtime)
    program = Program(
        name=document.algo.text.get("name", "")[:63],
        collective=_collective(document, ledger),
        ranks=len(gpus),
        nchunks=header.nchunksperloop or 0,
        protocol=document.algo.text.get("proto", "Simple"),
        channels=header.nchannels
        if header.nchannels is not None
        else 1 + int(channel.max(initial=0)),
        in_place=in_place,
        out_of_place=out_of_place,
        min_bytes=header.min_bytes or 0,
        max_bytes=None if largest is None else max(largest, 0),
        root=_number(document.algo, "root", -1, ledger),
        i_chunks=sizes[Buffer.INPUT],
        o_chunks=sizes[Buffer.OUTPUT],
        s_chunks=sizes[Buffer.SCRATCH],
        tb_rank=rank_of,
        tb_id=np.array([i for _, i, _ in blocks], dtype=np.int32),
        tb_send=np.array([_number(b, "send", -1, ledger) for b in nodes], dtype=np.int32),
        tb_recv=np.array([_number(b, "recv", -1, ledger) for b in nodes], dtype=np.int32),
        tb_channel=channel,
        tb_first=first,
        op=op,
        src_buf=np.maximum(columns["srcbuf"], 0).astype(np.int8),
        src_off=columns["srcoff"].astype(np.int32),
        dst_buf=np.maximum(columns["dstbuf"], 0).astype(np.int8),
        dst_off=columns["dstoff"].astype(np.int32),
        cnt=columns["cnt"].astype(np.int32),
        dep_first=dep_first,
        dep_step=target,
    )
    return Built(program, columns["line"], np.array([b.line for b in nodes], dtype=np.int64))


def _by_id(entry: tuple[int, int, Node]) -> int:
    return entry[1]


def placements(header: Header) -> tuple[bool, bool]:
    """Calls a file serves: microsoft/msccl reads ``inplace`` alone, as yes or no."""
    in_place = bool(header.inplace)
    return in_place, not in_place if header.outofplace is None else bool(header.outofplace)


def _collective(document: Document, ledger: Ledger) -> str:
    text = document.algo.text.get("coll")
    if text is None:
        ledger.warning("COLL", _line(document.algo), "without coll the result cannot be compared")
        return "custom"
    name = _SPELLING.get(text, text)
    if name in _COLLECTIVES:
        return name
    if text in _UNCHECKED:
        ledger.warning(
            "COLL", _line(document.algo), f"what {text} must do is not known here: not compared"
        )
    elif text != "custom":
        words = (*_COLLECTIVES, "reduce_scatter", "custom", *_UNCHECKED)
        ledger.error(
            "COLL", _line(document.algo), f"coll is {text[:40]!r}, {nearest(text[:40], words)}"
        )
    return "custom"


def _buffer(
    gpus: list[Node],
    buffer: Buffer,
    op: npt.NDArray[np.int8],
    columns: Columns,
    rank: npt.NDArray[np.int32],
    ledger: Ledger,
) -> npt.NDArray[np.int32]:
    """Chunks of a buffer on every rank: as declared, else as used."""
    used = np.zeros(len(gpus), dtype=np.int64)
    for uses, side in ((OP_READS_SRC, "src"), (OP_WRITES_DST, "dst")):
        mask = uses[op] & (columns[f"{side}buf"] == buffer)
        np.maximum.at(used, rank[mask], columns[f"{side}off"][mask] + columns["cnt"][mask])
    key = ("i_chunks", "o_chunks", "s_chunks")[buffer]
    sizes = [_number(g, key, int(used[r]), ledger) for r, g in enumerate(gpus)]
    return np.clip(sizes, -1, _INT32 - 1).astype(np.int32)


def _dependencies(
    columns: Columns, rank: npt.NDArray[np.int32], first: IntArray, ledger: Ledger
) -> tuple[IntArray, IntArray]:
    """Waiting step and awaited step of every dependency, sorted by the first."""
    counts = np.diff(first)
    block_of = np.repeat(np.arange(len(counts)), counts)
    gpu_first = np.searchsorted(rank, rank[block_of])
    blocks_of_gpu = np.searchsorted(rank, rank[block_of], side="right") - gpu_first
    depid, deps, line = columns["depid"], columns["deps"], columns["line"]
    claimed = depid != -1
    known = claimed & (depid >= 0) & (depid < blocks_of_gpu)
    for i in np.flatnonzero(claimed & ~known):
        ledger.error(
            "DEPENDENCY",
            f"line {line[i]}",
            f"depid is {depid[i]}, expected -1 or a tb 0 to {blocks_of_gpu[i] - 1}",
        )
    for i in np.flatnonzero(~claimed & (deps >= 0)):
        ledger.warning(
            "DEPENDENCY", f"line {line[i]}", f"deps is {deps[i]} without a depid: ignored"
        )
    waiter = np.flatnonzero(known)
    awaited = (gpu_first + depid)[waiter]
    inside = (deps[waiter] >= 0) & (deps[waiter] < counts[awaited])
    for i, block in zip(waiter[~inside], awaited[~inside], strict=True):
        ledger.error(
            "DEPENDENCY",
            f"line {line[i]}",
            f"waits for step {deps[i]} of tb {depid[i]}, which has {counts[block]} steps",
        )
    return waiter[inside], (first[awaited] + deps[waiter])[inside]
