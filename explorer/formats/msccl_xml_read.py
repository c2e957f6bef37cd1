"""MSCCL XML to Program, as the runtimes read it.

Steps are numbered by position and number of dependencies, whatever their ``s`` says; a nop's
dependency belongs to the next real step; a dependency ends when the block has raised its flag at
that number or a later one, so it is on the first step with ``hasdep`` from there on; fused
reductions use the last count. Attributes that a runtime does without get that runtime's defaults.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from explorer.errors import Finding, InputError, Problem, VerificationError, nearest
from explorer.formats.dialects import DIALECTS, Dialect, dialect_of
from explorer.formats.fusion import fused_counts
from explorer.formats.msccl_xml_tree import AlgoNode, BlockNode, integer, read_tree
from explorer.formats.msccl_xml_write import program_name
from sim.program import OP_READS_SRC, OP_RECEIVES, OP_SENDS, OP_TEXT, OP_WRITES_DST, Op, Program
from sim.protocols import PROTOCOLS

_COLL = {word: key for d in DIALECTS.values() for key, word in d.coll.items()}
"""Collective of every spelling any runtime knows."""


def read_msccl_xml(path: Path, dialect: str | None = None) -> Program:
    """Read a program file.

    Parameters
    ----------
    path
        File in the format of any runtime; both spellings of ReduceScatter are read.
    dialect
        Runtime whose defaults and meaning of ``maxBytes`` hold. None for the one the file's own
        comment names, else the first of :data:`~explorer.formats.dialects.DIALECTS` that has all
        the attributes it requires.

    Returns
    -------
    Program
        Without nops; operands that a step type does not use are normalised.

    Raises
    ------
    InputError
        If no runtime (or not this one) can read it, every problem with ``file:line``.
    VerificationError
        If a step waits for what is never signalled: such a file hangs on every runtime.
    """
    path = Path(path)
    algo = read_tree(path)
    target = _target(path, algo, dialect)
    header = _header(path, algo, target)
    blocks = _blocks(path, algo, header)
    program = _program(path, algo, header, blocks)
    return program if program.root < 0 else replace(program, root=_root(algo, program))


@dataclass(frozen=True, slots=True)
class _Header:
    name: str
    collective: str
    ranks: int
    nchunks: int
    protocol: str
    channels: int
    in_place: bool
    out_of_place: bool
    min_bytes: int
    max_bytes: int | None


def _target(path: Path, algo: AlgoNode, dialect: str | None) -> Dialect:
    where = f"{path}:{algo.line}"
    have = algo.attributes
    if dialect is None and algo.written_for in DIALECTS:
        dialect = algo.written_for
    if dialect is not None:
        target = dialect_of(dialect)
        absent = [key for key in target.required if key not in have]
        if absent:
            text = f"<algo> lacks {' '.join(absent)}, which {target.name} requires"
            raise InputError(Problem(where, text))
        return target
    runtimes = [d for d in DIALECTS.values() if d.writable]
    for target in runtimes:
        known = have.get("coll") in target.coll.values() or have.get("coll") not in _COLL
        if known and all(key in have for key in target.required):
            return target
    needing: dict[str, list[str]] = {}
    for runtime in runtimes:
        for key in runtime.required:
            if key not in have:
                needing.setdefault(key, []).append(runtime.name)
    raise InputError(
        [
            Problem(where, f"<algo> lacks {key}, required by {' '.join(names)}")
            for key, names in sorted(needing.items())
        ]
    )


def _header(path: Path, algo: AlgoNode, target: Dialect) -> _Header:
    where, have = f"{path}:{algo.line}", algo.attributes
    problems = []

    def number(key: str, default: int, least: int, most: int = (1 << 31) - 1) -> int:
        text = have.get(key)
        if text is None:
            return default
        try:
            value = integer(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            problems.append(
                Problem(where, f"<algo> {key}: got {text!r}, expected {least} to {most}")
            )
            return max(least, 1)
        return value

    for key, allowed in (("proto", PROTOCOLS), ("coll", _COLL)):
        text = have.get(key, "")
        if text not in allowed:
            problems.append(Problem(where, f"<algo> {key}: got {text!r}, {nearest(text, allowed)}"))
    largest = (1 << 63) - 1
    inplace = bool(number("inplace", 0, 0, 1))
    default_max = target.default_max if target.default_max is not None else target.no_max
    maximum = number("maxBytes", default_max, 0, largest)
    header = _Header(
        name=program_name(have.get("name", ""), _COLL.get(have.get("coll", ""), "")),
        collective=_COLL.get(have.get("coll", ""), ""),
        ranks=number("ngpus", 1, 1),
        nchunks=number("nchunksperloop", 1, 1),
        protocol=have.get("proto", ""),
        channels=number("nchannels", 1, 1),
        in_place=inplace,
        out_of_place=bool(number("outofplace", not inplace, 0, 1))
        if "outofplace" in target.required
        else not inplace,
        min_bytes=number("minBytes", 0, 0, largest),
        max_bytes=None if maximum == target.no_max else maximum - target.exclusive_max,
    )
    if problems:
        raise InputError(problems)
    return header


@dataclass(slots=True)
class _Block:
    """A thread block with nops folded: what is left of them are the waits of real steps."""

    rank: int
    node: BlockNode
    steps: list[tuple[int, ...]] = field(default_factory=list)
    waits: list[list[tuple[int, int]]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    first: int = 0
    flag_numbers: list[int] = field(default_factory=list)
    flag_steps: list[int] = field(default_factory=list)

    def fold(self, path: Path) -> Iterator[Problem]:
        """Number the steps as the loaders do and give nops' dependencies to the next real step."""
        taken = 0
        pending: list[tuple[int, int]] = []
        for row in self.node.steps:
            depid, deps, line = row[6], row[7], row[9]
            if depid >= 0:
                pending.append((depid, deps))
            if row[0] == Op.NOP:
                continue
            if depid < 0 and pending:
                text = "a step after nops must have a dependency of its own; loaders refuse it"
                yield Problem(f"{path}:{line}", text)
            taken += max(1, len(pending))
            if row[8]:
                self.flag_numbers.append(taken - 1)
                self.flag_steps.append(len(self.steps))
            self.steps.append(row)
            self.waits.append(pending)
            self.numbers.append(taken - 1)
            pending = []
            yield from self._operands(path, row)

    def _operands(self, path: Path, row: tuple[int, ...]) -> Iterator[Problem]:
        op, where = row[0], f"{path}:{row[9]}"
        if OP_SENDS[op] and self.node.send < 0:
            yield Problem(where, f"a step of type {OP_TEXT[op]} in a tb with send=-1")
        if OP_RECEIVES[op] and self.node.recv < 0:
            yield Problem(where, f"a step of type {OP_TEXT[op]} in a tb with recv=-1")
        if (OP_READS_SRC[op] and row[2] < 0) or (OP_WRITES_DST[op] and row[4] < 0) or row[5] < 0:
            yield Problem(where, f"a step of type {OP_TEXT[op]} with a negative offset or count")


def _blocks(path: Path, algo: AlgoNode, header: _Header) -> list[_Block]:
    """Thread blocks in the order (rank, id)."""
    problems = list(_gpu_problems(path, algo, header.ranks))
    blocks = []
    for gpu in sorted(algo.gpus, key=lambda g: g.rank):
        ids = sorted(node.tb_id for node in gpu.blocks)
        if ids != list(range(len(ids))):
            text = f"<gpu> {gpu.rank} has tb ids {ids}, expected 0 to {len(ids) - 1}"
            problems.append(Problem(f"{path}:{gpu.line}", text))
        for node in sorted(gpu.blocks, key=lambda b: b.tb_id):
            problems += _block_problems(path, node, gpu.rank, header)
            block = _Block(gpu.rank, node)
            problems += block.fold(path)
            blocks.append(block)
    if problems:
        raise InputError(problems[:20])
    for before, block in pairwise(blocks):
        block.first = before.first + len(before.steps)
    return blocks


def _gpu_problems(path: Path, algo: AlgoNode, ranks: int) -> Iterator[Problem]:
    seen: set[int] = set()
    for gpu in algo.gpus:
        where = f"{path}:{gpu.line}"
        if not 0 <= gpu.rank < ranks:
            yield Problem(where, f"<gpu> id {gpu.rank}, ngpus is {ranks}")
        elif gpu.rank in seen:
            yield Problem(where, f"<gpu> id {gpu.rank} appears twice")
        seen.add(gpu.rank)
        if min(gpu.chunks) < 0:
            yield Problem(where, f"<gpu> {gpu.rank} has a buffer of {min(gpu.chunks)} chunks")
    absent = [r for r in range(min(ranks, 1 << 16)) if r not in seen]
    if absent:
        text = f"ngpus is {ranks}, but there is no <gpu> {' '.join(map(str, absent[:8]))}"
        yield Problem(f"{path}:{algo.line}", text)


def _block_problems(path: Path, node: BlockNode, rank: int, header: _Header) -> Iterator[Problem]:
    where = f"{path}:{node.line}"
    for key, peer in (("send", node.send), ("recv", node.recv)):
        if not -1 <= peer < header.ranks:
            yield Problem(where, f"<tb> {key}: got {peer}, expected -1 to {header.ranks - 1}")
        elif peer == rank:
            yield Problem(where, f"<tb> {key}: got {peer}, the GPU itself")
    if not 0 <= node.channel < header.channels:
        text = f"<tb> chan: got {node.channel}, nchannels is {header.channels}"
        yield Problem(where, text)


def _dependencies(path: Path, blocks: list[_Block]) -> list[list[int]]:
    """Steps that every step waits for, sorted; those given by order in a block are left out."""
    by_id = {(block.rank, block.node.tb_id): block for block in blocks}
    problems: list[Problem] = []
    hangs: list[Finding] = []
    found: list[list[int]] = []
    for block in blocks:
        for local, (row, waits) in enumerate(zip(block.steps, block.waits, strict=True)):
            steps = set()
            for depid, deps in waits:
                where = f"{path}:{row[9]}"
                target = by_id.get((block.rank, depid))
                if target is None:
                    text = f"waits for tb {depid}, which GPU {block.rank} does not have"
                    problems.append(Problem(where, text))
                    continue
                at = bisect_left(target.flag_numbers, deps)
                flagged = target.flag_steps[at] if at < len(target.flag_steps) else None
                if flagged is None or (target is block and flagged >= local):
                    text = (
                        f"waits for step {deps} of tb {depid}, which never signals it"
                        " (no hasdep=1 there or later)"
                    )
                    hangs.append(Finding("DEADLOCK", where, text))
                elif target is not block:
                    steps.add(target.first + flagged)
            found.append(sorted(steps))
    if problems:
        raise InputError(problems[:20])
    if hangs:
        raise VerificationError(f"{path} hangs on every runtime", hangs)
    return found


def _program(path: Path, algo: AlgoNode, header: _Header, blocks: list[_Block]) -> Program:
    rows = [row for block in blocks for row in block.steps]
    table = np.array(rows, dtype=np.int64).reshape(-1, 10)
    op = table[:, 0].astype(np.int8)
    reads, writes = OP_READS_SRC[op], OP_WRITES_DST[op]
    deps = _dependencies(path, blocks)
    sizes = np.zeros((3, header.ranks), dtype=np.int32)
    for gpu in algo.gpus:
        sizes[:, gpu.rank] = gpu.chunks
    program = Program(
        name=header.name,
        collective=header.collective,
        ranks=header.ranks,
        nchunks=header.nchunks,
        protocol=header.protocol,
        channels=header.channels,
        in_place=header.in_place,
        out_of_place=header.out_of_place,
        min_bytes=header.min_bytes,
        max_bytes=header.max_bytes,
        root=0 if header.collective in ("broadcast", "reduce") else -1,
        i_chunks=sizes[0],
        o_chunks=sizes[1],
        s_chunks=sizes[2],
        tb_rank=np.array([b.rank for b in blocks], dtype=np.int32),
        tb_id=np.array([b.node.tb_id for b in blocks], dtype=np.int32),
        tb_send=np.array([b.node.send for b in blocks], dtype=np.int32),
        tb_recv=np.array([b.node.recv for b in blocks], dtype=np.int32),
        tb_channel=np.array([b.node.channel for b in blocks], dtype=np.int32),
        tb_first=np.concatenate(([0], np.cumsum([len(b.steps) for b in blocks]))).astype(np.int64),
        op=op,
        src_buf=np.where(reads, table[:, 1], 0).astype(np.int8),
        src_off=np.where(reads, table[:, 2], -1).astype(np.int32),
        dst_buf=np.where(writes, table[:, 3], 0).astype(np.int8),
        dst_off=np.where(writes, table[:, 4], -1).astype(np.int32),
        cnt=table[:, 5].astype(np.int32),
        dep_first=np.concatenate(([0], np.cumsum([len(d) for d in deps]))).astype(np.int64),
        dep_step=np.array([d for ds in deps for d in ds], dtype=np.int64),
    )
    return replace(program, cnt=fused_counts(program, table[:, 8] != 0))


def _root(algo: AlgoNode, program: Program) -> int:
    """Root of a rooted collective: as written, else the one rank that only sends or only receives.

    No runtime reads a root, so most files do not name it.
    """
    text = algo.attributes.get("root", "")
    if text.isdecimal() and int(text) < program.ranks:
        return int(text)
    moves = OP_RECEIVES if program.collective == "broadcast" else OP_SENDS
    active = program.tb_rank[program.step_block()[moves[program.op]]]
    quiet = sorted(set(range(program.ranks)) - set(active.tolist()))
    return quiet[0] if len(quiet) == 1 else 0
