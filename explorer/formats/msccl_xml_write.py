"""Program to MSCCL XML, in the dialect of one runtime.

A step of a file carries one dependency, so every further one becomes a ``nop`` before it, and
dependencies name steps by their number with nops. The text stays inside the subset that the
runtimes' hand-written parsers read: no declaration, no tabs, one line per tag, double quotes,
plain decimals (``src/graph/xml.cc`` of microsoft/msccl, ``msccl_parser.cc`` of Azure/
msccl-executor-nccl and ROCm/rccl).
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from explorer.errors import InputError, Problem
from explorer.formats.dialects import UNLIMITED, Dialect, LimitError, dialect_of, exceeded
from explorer.formats.fusion import fusion_breaks
from sim.program import (
    BUFFER_TEXT,
    OP_READS_SRC,
    OP_RECEIVES,
    OP_SENDS,
    OP_TEXT,
    OP_WRITES_DST,
    Buffer,
    Program,
)

PLACEMENTS = ("in", "out")
"""Kinds of calls: in place, out of place."""

NAME_CHARS = 63
"""Characters of a name that the runtimes keep."""


def write_msccl_xml(program: Program, dialect: str, *, placement: str | None = None) -> str:
    """Write a program as the text of one file.

    Parameters
    ----------
    program
        Program without nops.
    dialect
        Name of the runtime that shall load it.
    placement
        ``in`` or ``out`` to serve only that kind of call; required where the program serves both
        and the runtime takes one kind per file.

    Returns
    -------
    str
        The file; the same program always gives the same bytes.

    Raises
    ------
    LimitError
        If the runtime cannot load it, with number, limit and target.
    InputError
        If the program does not serve the placement, or addresses what is not there.

    Examples
    --------
    >>> from sim.program import Op, ProgramBuilder
    >>> b = ProgramBuilder(ranks=1)
    >>> _ = b.step(b.block(0), Op.COPY, src=(0, 0), dst=(1, 0))
    >>> p = b.build(name="self", collective="allgather", nchunks=1)
    >>> print(write_msccl_xml(p, "executor").splitlines()[0])
    <algo name="self" proto="Simple" nchannels="1" nchunksperloop="1" ngpus="1" \
coll="allgather" inplace="0" outofplace="1" minBytes="0" maxBytes="0">
    """
    target = dialect_of(dialect)
    if not target.writable:
        _refuse_unlimited(program)
    findings = exceeded(program, dialect)
    if findings:
        raise LimitError(findings)
    sizes = buffer_chunks(program)
    inplace, outofplace, problems = _kinds(program, target, placement)
    problems += [
        *_range_problems(program, target),
        *_address_problems(program, sizes),
        *_connection_problems(program),
    ]
    if problems:
        raise InputError(problems)
    lines = [_algo(program, target, inplace, outofplace), f"  <!-- {_note(target)} -->"]
    lines.extend(_gpus(program, target, sizes))
    lines.append("</algo>\n")
    return "\n".join(lines)


def program_name(text: str, collective: str = "") -> str:
    """Make a name every runtime can keep: at most 63 of ``[A-Za-z0-9_.+-]``.

    Examples
    --------
    >>> program_name("Allgather(n=2)-steps=1")
    'Allgather_n_2_-steps_1'
    """
    name = re.sub(r"[^A-Za-z0-9_.+-]", "_", text)[:NAME_CHARS] or "program"
    # an AlltoAll of this name takes another code path in msccl (collectives/all_to_all.cc)
    return "2D_" if (name, collective) == ("2D", "alltoall") else name


def buffer_chunks(program: Program) -> dict[Buffer, npt.NDArray[np.int32]]:
    """Chunks of each buffer of each rank as a file states them, int32 ``[R]``.

    The collective fixes input and output, and the loaders of msccl check them; 0 where no step
    names the buffer.
    """
    own = {
        Buffer.INPUT: program.i_chunks,
        Buffer.OUTPUT: program.o_chunks,
        Buffer.SCRATCH: program.s_chunks,
    }
    if program.collective == "custom":
        return own
    share = program.nchunks // program.ranks
    fixed = {
        Buffer.INPUT: share if program.collective == "allgather" else program.nchunks,
        Buffer.OUTPUT: share if program.collective == "reducescatter" else program.nchunks,
    }
    for buffer, size in fixed.items():
        own[buffer] = np.where(own[buffer] > 0, size, 0).astype(np.int32)
    return own


def _refuse_unlimited(program: Program) -> None:
    reasons = [Problem(f.where, f.message) for f in exceeded(program, "executor")]
    text = f"target {UNLIMITED!r} is for simulation and ranking; no runtime loads it"
    raise InputError([Problem("dialect", text), *reasons])


def _kinds(
    program: Program, target: Dialect, placement: str | None
) -> tuple[bool, bool, list[Problem]]:
    served = {"in": program.in_place, "out": program.out_of_place}
    problems = []
    if placement is not None:
        if not served.get(placement):
            kinds = " and ".join(k for k in PLACEMENTS if served[k]) or "nothing"
            text = f"got {placement!r}, the program serves {kinds}"
            problems.append(Problem("placement", text))
        served = {kind: kind == placement for kind in PLACEMENTS}
    elif not any(served.values()):
        problems.append(Problem("placement", "the program serves neither in nor out of place"))
    elif target.one_placement and all(served.values()):
        text = f"{target.name} needs one file per placement: write one with 'in', one with 'out'"
        problems.append(Problem("placement", text))
    return served["in"], served["out"], problems


def _max_bytes(program: Program, target: Dialect) -> int:
    if program.max_bytes is None:
        return target.no_max_scratch if program.s_chunks.any() else target.no_max
    return program.max_bytes + target.exclusive_max


def _range_problems(program: Program, target: Dialect) -> Iterator[Problem]:
    if program.max_bytes is not None and program.max_bytes < program.min_bytes:
        yield Problem(
            "size range", f"{program.min_bytes} to {program.max_bytes} bytes holds no size"
        )
    elif program.max_bytes is not None and _max_bytes(program, target) == target.no_max:
        yield Problem(
            "size range",
            f"maxBytes {target.no_max} would mean no limit to {target.name}, not"
            f" {program.max_bytes} bytes",
        )


def _address_problems(
    program: Program, sizes: dict[Buffer, npt.NDArray[np.int32]]
) -> Iterator[Problem]:
    split = ("allgather", "reducescatter", "alltoall")
    if program.collective in split and program.nchunks % program.ranks:
        text = f"{program.nchunks} chunks do not divide by {program.ranks} ranks"
        yield Problem("nchunksperloop", text)
    rank = program.tb_rank[program.step_block()]
    for uses, buffers, offsets in (
        (OP_READS_SRC[program.op], program.src_buf, program.src_off),
        (OP_WRITES_DST[program.op], program.dst_buf, program.dst_off),
    ):
        end = np.stack([sizes[b] for b in Buffer])[buffers, rank]
        bad = np.flatnonzero(uses & ((offsets < 0) | (offsets + program.cnt > end)))
        for step in bad.tolist()[:5]:
            span = (
                f"{BUFFER_TEXT[buffers[step]]}[{offsets[step]}:{offsets[step] + program.cnt[step]}]"
            )
            yield Problem(
                program.where(step), f"addresses {span} of a buffer of {end[step]} chunks"
            )


def _connection_problems(program: Program) -> Iterator[Problem]:
    """Ends of connections with more than one thread block; no runtime checks them."""
    block = program.step_block()
    for what, moves, peers in (
        ("sends to", OP_SENDS, program.tb_send),
        ("receives from", OP_RECEIVES, program.tb_recv),
    ):
        owner: dict[tuple[int, int, int], int] = {}
        for t in np.unique(block[moves[program.op]]).tolist():
            rank, peer, channel = (int(a[t]) for a in (program.tb_rank, peers, program.tb_channel))
            other = owner.setdefault((rank, peer, channel), t)
            if other != t:
                yield Problem(
                    f"gpu {rank} tb {program.tb_id[t]}",
                    f"{what} gpu {peer} on channel {channel} like tb {program.tb_id[other]};"
                    " a connection has one thread block at each end",
                )


def _algo(program: Program, target: Dialect, inplace: bool, outofplace: bool) -> str:
    attributes: dict[str, object] = {
        "name": program_name(program.name, program.collective),
        "proto": program.protocol,
        "nchannels": program.channels,
        "nchunksperloop": program.nchunks,
        "ngpus": program.ranks,
        "coll": target.coll[program.collective],
        "inplace": int(inplace),
        "outofplace": int(outofplace),
        "minBytes": program.min_bytes,
        "maxBytes": _max_bytes(program, target),
    }
    if program.collective in ("broadcast", "reduce"):
        # no runtime reads it; without it nobody could tell which root the file is for
        attributes["root"] = program.root
    return "<algo " + " ".join(f'{key}="{value}"' for key, value in attributes.items()) + ">"


def _note(target: Dialect) -> str:
    """Comment that says how the size range is meant, since the runtimes differ."""
    if target.exclusive_max:
        return f"written for {target.name}: sizes from minBytes to below maxBytes"
    return (
        f"written for {target.name}: sizes from minBytes to maxBytes, {target.no_max} is no limit"
    )


def _gpus(
    program: Program, target: Dialect, sizes: dict[Buffer, npt.NDArray[np.int32]]
) -> Iterator[str]:
    last = np.searchsorted(program.tb_rank, np.arange(program.ranks + 1)).tolist()
    i_chunks, o_chunks, s_chunks = (sizes[b].tolist() for b in Buffer)
    ids, send, recv, channel = (
        a.tolist() for a in (program.tb_id, program.tb_send, program.tb_recv, program.tb_channel)
    )
    first = program.tb_first.tolist()
    steps = _steps(program, target.limits.fused)
    for rank in range(program.ranks):
        yield (
            f'  <gpu id="{rank}" i_chunks="{i_chunks[rank]}" o_chunks="{o_chunks[rank]}"'
            f' s_chunks="{s_chunks[rank]}">'
        )
        for t in range(last[rank], last[rank + 1]):
            yield (f'    <tb id="{ids[t]}" send="{send[t]}" recv="{recv[t]}" chan="{channel[t]}">')
            for _ in range(first[t], first[t + 1]):
                yield from next(steps)
            yield "    </tb>"
        yield "  </gpu>"


def _steps(program: Program, longest: int | None) -> Iterator[list[str]]:
    """Lines of every step in order: its nops, then itself."""
    number = step_numbers(program).tolist()
    block_id = program.tb_id[program.step_block()].tolist()
    waited = np.zeros(program.steps, np.bool_)
    waited[program.dep_step] = True
    flags = (waited | fusion_breaks(program, waited, longest)).astype(int).tolist()
    reads, writes = OP_READS_SRC[program.op], OP_WRITES_DST[program.op]
    source = np.where(reads, program.src_buf, Buffer.INPUT).tolist()
    source_off = np.where(reads, program.src_off, -1).tolist()
    target = np.where(writes, program.dst_buf, Buffer.OUTPUT).tolist()
    target_off = np.where(writes, program.dst_off, -1).tolist()
    op, cnt = program.op.tolist(), program.cnt.tolist()
    dep_first, dep_step = program.dep_first.tolist(), program.dep_step.tolist()
    for i in range(program.steps):
        waits = [(block_id[d], number[d]) for d in dep_step[dep_first[i] : dep_first[i + 1]]]
        s = number[i] - max(len(waits) - 1, 0)
        lines = []
        for nop, (depid, deps) in enumerate(waits[:-1]):
            lines.append(
                f'      <step s="{s + nop}" type="nop" srcbuf="i" srcoff="-1" dstbuf="o"'
                f' dstoff="-1" cnt="0" depid="{depid}" deps="{deps}" hasdep="0"/>'
            )
        depid, deps = waits[-1] if waits else (-1, -1)
        lines.append(
            f'      <step s="{number[i]}" type="{OP_TEXT[op[i]]}"'
            f' srcbuf="{BUFFER_TEXT[source[i]]}" srcoff="{source_off[i]}"'
            f' dstbuf="{BUFFER_TEXT[target[i]]}" dstoff="{target_off[i]}" cnt="{cnt[i]}"'
            f' depid="{depid}" deps="{deps}" hasdep="{flags[i]}"/>'
        )
        yield lines


def step_numbers(program: Program) -> npt.NDArray[np.int64]:
    """Number of every step within its block as the runtimes count, int64 ``[S]``.

    A step with k dependencies takes k numbers (k - 1 nops before it) and has the last of them.
    """
    ends = np.cumsum(np.maximum(np.diff(program.dep_first), 1))
    before = np.concatenate(([0], ends))[program.tb_first[:-1]]
    numbers: npt.NDArray[np.int64] = ends - 1 - np.repeat(before, np.diff(program.tb_first))
    return numbers


def export_xml(
    program: Program,
    path: Path,
    dialect: str,
    verify: Callable[[Path], None],
    *,
    placement: str | None = None,
) -> None:
    """Write a program to a file that appears under its name only when it is proven right.

    Parameters
    ----------
    program, dialect, placement
        As for :func:`write_msccl_xml`.
    path
        Final name, in a directory that exists.
    verify
        Given the file under its own name in a directory beside the final place; raises when
        the file is wrong, and then nothing is left behind.

    Raises
    ------
    InputError
        If the program cannot be written for the runtime, or the file not under the path.
    """
    text = write_msccl_xml(program, dialect, placement=placement)
    try:
        _check_path(path)
        # a directory: its name never clashes, the file keeps its own name in messages, and the
        # runtimes, which load every regular file beside an algorithm, do not see it
        staging = Path(tempfile.mkdtemp(prefix=".export-", dir=path.parent))
    except OSError as error:
        raise InputError(_unwritable(path, error)) from None
    staged = staging / path.name
    try:
        try:
            staged.write_bytes(text.encode("ascii"))
        except OSError as error:
            raise InputError(_unwritable(path, error)) from None
        verify(staged)
        try:
            staged.replace(path)
        except OSError as error:
            raise InputError(_unwritable(path, error)) from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _check_path(path: Path) -> None:
    if ".." in path.parts:
        raise InputError(Problem(str(path), "a file name may not climb with '..'"))
    if path.is_dir():
        raise InputError(Problem(str(path), "is a directory, expected a file name"))
    for parent in path.parents:
        if parent.exists() and not parent.is_dir():
            raise InputError(Problem(str(path), f"{parent} is a file, not a directory"))
    if not path.parent.is_dir():
        raise InputError(Problem(str(path), f"the directory {path.parent} does not exist"))


def _unwritable(path: Path, error: OSError) -> Problem:
    return Problem(str(path), f"cannot be written: {error.strerror or error}")
