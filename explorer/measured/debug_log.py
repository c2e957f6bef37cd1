"""Read the NCCL_DEBUG lines of a log."""

from __future__ import annotations

import re

from explorer.measured.debug import DebugFacts
from explorer.measured.debug_channels import ChannelLines
from explorer.measured.debug_graph import GraphLines
from explorer.measured.debug_tuning import TuningLines
from explorer.measured.row import Remark
from explorer.measured.source import LogSource

_INFO = re.compile(r"NCCL (?:INFO|TRACE) (.*)$")
_VERSION = re.compile(r"\b(?:NCCL|RCCL) version (\S{1,40})")
_SET = re.compile(r"\b((?:NCCL|RCCL|MSCCL)_\w{1,60}) set (?:by environment )?to (.{1,200}?)\.?\s*$")


def read_debug(source: LogSource) -> tuple[DebugFacts, list[Remark]]:
    """Read every NCCL line.

    Returns
    -------
    tuple
        Facts (empty if there is no such line), and remarks in the order of their lines.
    """
    channels, graph, tuning = ChannelLines(), GraphLines(), TuningLines()
    versions: dict[str, None] = {}
    environment: dict[tuple[str, str], None] = {}
    for number, line in enumerate(source.lines, start=1):
        if "CCL" not in line:
            continue
        version = _VERSION.search(line) if "version" in line else None
        if version:
            versions[version.group(1)] = None
        info = _INFO.search(line)
        if info is None:
            continue
        text = info.group(1).rstrip()
        setting = _SET.search(text) if " set " in text else None
        if setting:
            environment[setting.group(1), setting.group(2)] = None
        # the tree of devices lives from its indent, everything else does not
        _ = graph.read(number, text) or _others(channels, tuning, number, text.strip())
    facts = DebugFacts(
        versions=tuple(versions),
        ranks=channels.ranks or _ranks_of_rings(channels),
        nodes=channels.nodes,
        local_ranks=channels.local_ranks,
        channels=channels.channels,
        rings=channels.rings(),
        trees=channels.trees(),
        nvls_heads=tuple(sorted(channels.heads.items())),
        patterns=tuple(graph.patterns),
        links=tuple(graph.links),
        predictions=tuple(tuning.predictions),
        choices=tuple(tuning.choices.values()),
        transports=tuple(sorted(channels.transports.items(), key=lambda kv: (-kv[1], kv[0]))),
        nics=tuple(sorted(channels.nics)),
        environment=tuple(environment),
    )
    remarks = [*channels.complain(), *graph.remarks, *tuning.remarks]
    return facts, sorted(dict.fromkeys(remarks), key=lambda remark: remark.line)


def _others(channels: ChannelLines, tuning: TuningLines, number: int, text: str) -> bool:
    return channels.read(number, text) or tuning.read(number, text)


def _ranks_of_rings(channels: ChannelLines) -> int | None:
    complete = [len(ring.order) for ring in channels.rings() if ring.complete]
    return max(complete, default=None)
