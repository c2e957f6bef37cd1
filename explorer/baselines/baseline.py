"""Baseline: a standard algorithm that builds a program for any machine and collective it suits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from explorer.baselines.buffers import PLACEMENTS
from explorer.baselines.writer import Writer
from explorer.core.collective import Collective
from explorer.core.sketch import rank_ranges
from explorer.core.topology import Topology
from explorer.errors import InputError, Problem, nearest
from sim.program import Program
from sim.protocols import PROTOCOLS


@dataclass(frozen=True, slots=True)
class Baseline:
    """A standard algorithm.

    Parameters
    ----------
    name
        How it is asked for.
    summary
        One line for listings.
    refuses
        Says why a collective on a machine is not possible, or returns None. Asked only where the
        machine has the right number of ranks and all reach each other.
    write
        Writes the steps for two ranks or more.
    """

    name: str
    summary: str
    refuses: Callable[[Collective, Topology], str | None]
    write: Callable[[Writer, Topology], None]

    def supports(self, collective: Collective, topology: Topology) -> str | None:
        """Say why the algorithm does not suit a collective on a machine; None when it does."""
        if collective.ranks != topology.ranks:
            return f"{topology.name} has {topology.ranks} ranks, the collective {collective.ranks}"
        unreachable = _unreachable(topology)
        return unreachable or self.refuses(collective, topology)

    def build(
        self,
        topology: Topology,
        collective: Collective,
        *,
        placement: str = "out",
        protocol: str = "Simple",
        channels: int = 1,
        instances: int = 1,
    ) -> Program:
        """Build the program.

        Parameters
        ----------
        topology
            The machine; rings, trees and node levels follow its links.
        collective
            What to do, in C chunks per rank.
        placement
            ``in``, ``out`` or ``both``: which calls it serves.
        protocol
            ``Simple``, ``LL`` or ``LL128``.
        channels
            K: how many channels chunks are spread over; those beyond the chunks stay unused.
        instances
            I: every chunk is cut into I parts and the channels are I times as many; the program is
            one of C·I chunks per rank.

        Raises
        ------
        InputError
            If a setting is wrong, or the algorithm does not suit the collective or the machine.
        """
        problems = _problems(placement, protocol, channels, instances)
        reason = self.supports(collective, topology)
        if reason:
            problems.append(Problem("method", reason))
        if problems:
            raise InputError(problems)
        writer = Writer(collective, placement, channels, instances)
        if collective.ranks == 1:
            writer.copy(
                0, writer.buffers.source(0, 0), writer.buffers.result(0, 0), writer.per_rank
            )
        else:
            self.write(writer, topology)
        return writer.build(f"{collective.name}_{self.name}_{collective.ranks}", protocol)


def only(*names: str) -> Callable[[Collective, str], str | None]:
    """Make a check that a collective is among ``names``, for :attr:`Baseline.refuses`."""

    def check(collective: Collective, algorithm: str) -> str | None:
        if collective.name in names:
            return None
        return f"{algorithm} has no {collective.name}; it does {', '.join(names)}"

    return check


def _problems(placement: str, protocol: str, channels: int, instances: int) -> list[Problem]:
    problems = [
        Problem(where, f"got {got!r}, {nearest(got, allowed)}")
        for where, got, allowed in (
            ("placement", placement, PLACEMENTS),
            ("protocol", protocol, tuple(PROTOCOLS)),
        )
        if got not in allowed
    ]
    problems += [
        Problem(where, f"got {got}, expected at least 1")
        for where, got in (("channels", channels), ("instances", instances))
        if got < 1
    ]
    return problems


def _unreachable(topology: Topology) -> str | None:
    """Say which ranks cannot reach which over the links of the machine, or None."""
    out: list[list[int]] = [[] for _ in topology.devices]
    into: list[list[int]] = [[] for _ in topology.devices]
    for link in topology.links:
        out[link.src].append(link.dst)
        into[link.dst].append(link.src)
    for neighbours, text in (
        (out, "ranks {near} cannot reach {far}"),
        (into, "ranks {far} cannot reach {near}"),
    ):
        seen = {topology.gpus[0]}
        stack = list(seen)
        while stack:
            for other in neighbours[stack.pop()]:
                if other not in seen:
                    seen.add(other)
                    stack.append(other)
        far = [rank for rank, gpu in enumerate(topology.gpus) if gpu not in seen]
        if far:
            near = [rank for rank in range(topology.ranks) if rank not in set(far)]
            return text.format(near=rank_ranges(near), far=rank_ranges(far))
    return None
