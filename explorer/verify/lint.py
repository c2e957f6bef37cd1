"""Lint: why a runtime would not load, choose or survive a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from explorer.verify.runtimes import (
    BLOCKS_PER_CHANNEL,
    CHILDREN,
    DEPENDENCY_BLOCK,
    FUSED_REDUCTIONS,
    ITERATIONS,
    NODES,
    OFFSET,
    Header,
    Runtime,
)
from explorer.verify.structure import MAX_COUNT
from explorer.verify.xml_rules import reduction_chains
from explorer.verify.xml_tree import STEP_COLUMNS, STEP_TYPES, Document, Node

_GPU = ("id", "i_chunks", "o_chunks", "s_chunks")
_BLOCK = ("id", "send", "recv", "chan")
_FUSED = ("rcs", "rrs", "rrc", "rrcs")


@dataclass(frozen=True, slots=True, order=True)
class Remark:
    """Why one runtime would not run a file, or not as written.

    Parameters
    ----------
    gap
        It is a missing attribute.
    code, where, message
        As in a finding.
    """

    gap: bool
    code: str
    where: str
    message: str


def lint(
    runtime: Runtime, document: Document, header: Header, size_bytes: int | None
) -> list[Remark]:
    """Say why a runtime would not load, choose or survive a file."""
    return [
        *_gaps(runtime, document),
        *_choice(runtime, document, header, size_bytes),
        *_limits(runtime, document, header),
        *_step_limits(runtime, document),
        *_buffers(runtime, document, header),
    ]


def _limit(where: str, what: str, got: int, limit: int) -> Remark:
    return Remark(False, "LIMIT", where, f"{what} {got}, limit {limit}")


def _line(node: Node) -> str:
    return f"line {node.line}"


def _gaps(runtime: Runtime, document: Document) -> Iterator[Remark]:
    for key in runtime.attributes:
        if key not in document.algo.text:
            yield Remark(True, "MISSING", _line(document.algo), f"attribute {key} is missing")
    for nodes, keys, what in (
        (document.gpus, _GPU, "gpu"),
        (document.blocks, _BLOCK, "tb"),
    ):
        for key in keys:
            without = [n for n in nodes if key not in n.text]
            if without:
                yield Remark(
                    True,
                    "MISSING",
                    _line(without[0]),
                    f"attribute {key} is missing on {len(without)} <{what}>",
                )
    for key in STEP_COLUMNS:
        steps = document.gaps.get(key)
        if steps:
            line = document.steps["line"][steps[0]]
            yield Remark(
                True,
                "MISSING",
                f"line {line}",
                f"attribute {key} is missing on {len(steps)} <step>",
            )


def _choice(
    runtime: Runtime, document: Document, header: Header, size_bytes: int | None
) -> Iterator[Remark]:
    """Whether it would ever pick the file, and at the size asked for."""
    where, text = _line(document.algo), document.algo.text
    coll = text.get("coll")
    if coll is not None and coll not in runtime.collectives:
        right = {"reduce_scatter": "reducescatter", "reducescatter": "reduce_scatter"}.get(coll)
        hint = f", spelt {right!r} there" if right in runtime.collectives else ""
        yield Remark(False, "COLL", where, f"coll {coll[:40]!r} is never chosen{hint}")
    if coll == "alltoall" and text.get("name") == "2D" and runtime.name == "msccl":
        yield Remark(False, "NAME", where, "name 2D on an alltoall is treated specially")
    if header.nthreads is not None and runtime.name == "msccl" and header.nthreads % 32:
        yield Remark(
            False, "LIMIT", where, f"nthreads is {header.nthreads}, expected a multiple of 32"
        )
    if runtime.name != "msccl" and header.inplace == 0 and header.outofplace == 0:
        yield Remark(False, "PLACEMENT", where, "inplace and outofplace are 0: never chosen")
    low, high = header.min_bytes or 0, header.largest(runtime)
    if header.max_bytes == 0 and runtime.exclusive_max:
        yield Remark(
            False,
            "RANGE",
            where,
            "maxBytes 0 is an empty range to msccl, which never uses the file,"
            " and no limit to executor and rccl",
        )
    elif header.max_bytes is not None and high is not None and low > high:
        reading = "exclusive" if runtime.exclusive_max else "inclusive"
        yield Remark(
            False,
            "RANGE",
            where,
            f"minBytes {low} to maxBytes {header.max_bytes} ({reading}) serves no size: never used",
        )
    elif size_bytes is not None and not low <= size_bytes <= (size_bytes if high is None else high):
        yield Remark(
            False,
            "RANGE",
            where,
            f"size {size_bytes} is outside {low} to {high if high is not None else 'no limit'}:"
            " not chosen",
        )
    yield from _choice_at_size(runtime, document, header, size_bytes)


def _choice_at_size(
    runtime: Runtime, document: Document, header: Header, size_bytes: int | None
) -> Iterator[Remark]:
    chunks = header.nchunksperloop
    if size_bytes is None or not chunks or chunks < 1:
        return
    where = _line(document.algo)
    # The element size is the caller's; 4 bytes where nothing else is said.
    if size_bytes % (4 * chunks):
        yield Remark(
            False,
            "RANGE",
            where,
            f"size {size_bytes} is not a whole number of {chunks} chunks of 4-byte elements:"
            " the call falls back to the library",
        )
    slot = runtime.slot_bytes.get(document.algo.text.get("proto", ""))
    loops = -(-size_bytes // chunks) // slot if slot else 0
    if loops > ITERATIONS:
        yield _limit(where, f"at size {size_bytes} the loop runs over tiles", loops, ITERATIONS)


def _limits(runtime: Runtime, document: Document, header: Header) -> Iterator[Remark]:
    if header.nchannels is not None and header.nchannels > runtime.channels:
        yield _limit(_line(document.algo), "nchannels is", header.nchannels, runtime.channels)
    if len(document.gpus) > CHILDREN:
        yield _limit(_line(document.algo), "gpus:", len(document.gpus), CHILDREN)
    for gpu in document.gpus:
        where, name = _line(gpu), f"gpu {gpu.text.get('id', '?')[:12]}"
        blocks = document.blocks[gpu.first : gpu.end]
        if len(blocks) > runtime.blocks:
            yield _limit(where, f"thread blocks of {name}:", len(blocks), runtime.blocks)
        steps = [b.end - b.first for b in blocks]
        nodes = 1 + len(document.gpus) + len(blocks) + sum(steps)
        if nodes > NODES:
            yield _limit(where, f"elements that {name} reads:", nodes, NODES)
        for block, count in zip(blocks, steps, strict=True):
            if count > runtime.steps:
                tb = block.text.get("id", "?")[:12]
                yield _limit(_line(block), f"steps of {name} tb {tb}:", count, runtime.steps)
        for way in ("send", "recv"):
            used = Counter(
                b.text.get("chan", "0")
                for b in blocks
                if b.end > b.first and not b.text.get(way, "-1").startswith("-")
            )
            for channel, count in sorted(used.items()):
                if count > BLOCKS_PER_CHANNEL:
                    what = f"{way} blocks of {name} on channel {channel[:12]}:"
                    yield _limit(where, what, count, BLOCKS_PER_CHANNEL)


def _step_limits(runtime: Runtime, document: Document) -> Iterator[Remark]:
    column = {c: np.asarray(v) for c, v in document.steps.items()}
    line = column["line"]
    checks = [
        ("cnt is", column["cnt"], MAX_COUNT),
        ("srcoff is", column["srcoff"], OFFSET),
        ("dstoff is", column["dstoff"], OFFSET),
        ("waits for tb", column["depid"], DEPENDENCY_BLOCK),
    ]
    for what, values, limit in checks:
        for i in np.flatnonzero(values > limit)[:3]:
            yield _limit(f"line {line[i]}", what, int(values[i]), limit)
    if not runtime.fused:
        fused = np.flatnonzero(np.isin(column["type"], [STEP_TYPES.index(t) for t in _FUSED]))
        if len(fused):
            first = STEP_TYPES[int(column["type"][fused[0]])]
            yield Remark(
                False,
                "OP",
                f"line {line[fused[0]]}",
                f"{first}: {len(fused)} fused receives (rcs, rrs, rrc, rrcs), which its kernel"
                " does not have: the collective fails",
            )
    for first_step, length in reduction_chains(document):
        if length > FUSED_REDUCTIONS:
            yield _limit(f"line {line[first_step]}", "fused re:", length, FUSED_REDUCTIONS)


def _buffers(runtime: Runtime, document: Document, header: Header) -> Iterator[Remark]:
    """microsoft/msccl compares buffer sizes with the collective's (``topo.cc``)."""
    n, ranks = header.nchunksperloop, header.ngpus
    coll = document.algo.text.get("coll")
    if runtime.name != "msccl" or not n or not ranks or coll in (None, "custom"):
        return
    want = {"i_chunks": float(n), "o_chunks": float(n)}
    if coll == "allgather":
        want["i_chunks"] = n / ranks
    if coll == "reduce_scatter":
        want["o_chunks"] = n / ranks
    for gpu in document.gpus:
        for key, right in want.items():
            text = gpu.text.get(key, "0")
            if text.isdecimal() and int(text[:18]) not in (0, right):
                yield Remark(
                    False,
                    "BUFFER",
                    _line(gpu),
                    f"{key} is {text[:18]}, {coll} in {n} chunks on {ranks} ranks has"
                    f" {right:g} (or 0: not named)",
                )
