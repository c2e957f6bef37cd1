"""Lower a schedule to programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from explorer.core.rank_graph import RankGraph
from explorer.core.schedule import Schedule
from explorer.errors import InputError, Problem, nearest
from explorer.lower.limits import EVERYWHERE, Limits
from explorer.lower.local import local_program
from explorer.lower.lowering import Lowering, label
from explorer.lower.messages import (
    split_collective,
)
from explorer.lower.variants import VARIANTS
from sim.program import Program
from sim.protocols import PROTOCOLS

_NOT_PACED = "its sends read sums that messages on their way are about to change"


def lower(
    schedule: Schedule,
    graph: RankGraph | None = None,
    *,
    placement: str = "out",
    protocol: str = "Simple",
    instances: int = 1,
    max_channels: int = 32,
    variant: str = "anchored",
    name: str | None = None,
    limits: Limits = EVERYWHERE,
    fused_receives: bool = True,
) -> Program:
    """Lower a schedule to the program of one variant.

    Parameters
    ----------
    schedule
        Valid: every chunk is sent after it has come.
    graph
        Edges the schedule was planned on. Variants that chain resources need it; anchors
        choose better with it.
    placement
        ``out``, ``in`` or ``both``: which calls the program serves.
    protocol
        Wire protocol; its slots bound what a connection holds.
    instances
        Run the schedule this many times side by side, on other channels, each on its part of
        every rank's block of chunks; every chunk is cut into as many.
    max_channels
        Channels to use at most.
    variant
        One of :data:`explorer.lower.variants.VARIANTS`.
    name
        Label; made from collective and variant when None.
    limits
        Sizes of thread blocks, steps and channels. A lane with more steps goes on in another block,
        a message with more chunks is cut. What cannot be met is left to
        :func:`explorer.lower.limits.fits` to say.
    fused_receives
        Whether the runtime has receives that reduce; else they become receive and reduction.

    Returns
    -------
    Program
        Free of races and deadlocks at every size.

    Raises
    ------
    InputError
        If the schedule cannot run as planned, or an option is unknown.
    """
    chosen = VARIANTS.get(variant)
    if chosen is None:
        raise InputError(Problem("variant", f"got {variant!r}, {nearest(variant, VARIANTS)}"))
    if chosen.needs_graph and graph is None:
        raise InputError(Problem("variant", f"{variant!r} needs the graph the plan was made on"))
    _check(protocol, instances, max_channels)
    if not schedule.sends:
        return _without_sends(schedule, placement, protocol, instances, name, limits)
    program = Lowering(
        schedule, placement, protocol, instances, max_channels, graph, limits, fused_receives
    ).program(chosen, name)
    if program is None:
        raise InputError(Problem("variant", f"this plan cannot be {variant}: {_NOT_PACED}"))
    return program


def lowerings(
    schedule: Schedule,
    graph: RankGraph | None = None,
    *,
    placement: str = "out",
    protocol: str = "Simple",
    instances: int = 1,
    max_channels: int = 32,
    variants: Iterable[str] | None = None,
    name: str | None = None,
    limits: Limits = EVERYWHERE,
    fused_receives: bool = True,
) -> Iterator[tuple[str, Program]]:
    """Lower a schedule in several ways; the caller keeps the one with the least simulated time.

    Parameters
    ----------
    variants
        Names, in this order; all when None. Those that need a graph are left out without one,
        and so are programs equal to an earlier one.
    schedule, graph, placement, protocol, instances, max_channels, name, limits, fused_receives
        As for :func:`lower`.

    Yields
    ------
    str, Program
        Name of the variant and its program.
    """
    wanted = list(VARIANTS) if variants is None else list(variants)
    unknown = [v for v in wanted if v not in VARIANTS]
    if unknown:
        raise InputError(
            [Problem("variants", f"got {v!r}, {nearest(v, VARIANTS)}") for v in unknown]
        )
    _check(protocol, instances, max_channels)
    if not schedule.sends:
        yield "plain", _without_sends(schedule, placement, protocol, instances, name, limits)
        return
    lowering = Lowering(
        schedule, placement, protocol, instances, max_channels, graph, limits, fused_receives
    )
    seen: set[bytes] = set()
    for key in wanted:
        variant = VARIANTS[key]
        if variant.needs_graph and graph is None:
            continue
        program = lowering.program(variant, name)
        content = _content(program) if program is not None else b""
        if program is not None and content not in seen:
            seen.add(content)
            yield key, program


def _without_sends(
    schedule: Schedule,
    placement: str,
    protocol: str,
    instances: int,
    name: str | None,
    limits: Limits,
) -> Program:
    if schedule.collective.ranks > 1:
        raise InputError(Problem("schedule", f"no sends on {schedule.collective.ranks} ranks"))
    return local_program(
        split_collective(schedule.collective, instances),
        placement=placement,
        protocol=protocol,
        name=label(name or f"{schedule.collective.name}-local"),
        largest=limits.count,
    )


def _check(protocol: str, instances: int, max_channels: int) -> None:
    problems = []
    if protocol not in PROTOCOLS:
        problems.append(Problem("protocol", f"got {protocol!r}, {nearest(protocol, PROTOCOLS)}"))
    if instances < 1:
        problems.append(Problem("instances", f"got {instances}, expected at least 1"))
    if max_channels < 1:
        problems.append(Problem("max_channels", f"got {max_channels}, expected at least 1"))
    if problems:
        raise InputError(problems)


def _content(program: Program) -> bytes:
    """What a program does, without its name."""
    columns = (
        program.tb_rank,
        program.tb_send,
        program.tb_recv,
        program.tb_channel,
        program.tb_first,
        program.op,
        program.src_buf,
        program.src_off,
        program.dst_buf,
        program.dst_off,
        program.cnt,
        program.dep_first,
        program.dep_step,
    )
    return b"|".join(column.tobytes() for column in columns)
