"""Files that people try as topologies and that are something else: say what."""

from __future__ import annotations

import re

from explorer.topologies.source import Source
from explorer.topologies.xml_tree import root_tag

MAX_CHARACTERS = 1 << 16
"""How much of a file is looked at."""

_ROOTS = {
    "algo": "an MSCCL program, which goes to `explorer verify` or `explorer simulate`",
    "sccl_algos": "an SCCL_CONFIG: which MSCCL program for which size",
    "tuningModel": "an NCCL tuner file",
}

_KINDS = tuple(
    (re.compile(pattern, re.MULTILINE), what)
    for pattern, what in (
        (r'"(intranode_sketch|nnodes)"', "a TACCL sketch, which goes in --sketch"),
        (r'"sccl_type"\s*:', "a TACCL or SCCL solution: sends, not the machine"),
        (r'"1-Epoch_Duration"|"7-Flows"', "a TE-CCL schedule: sends, not the machine"),
        (r'"memory-type"\s*:', "ASTRA-sim's remote memory settings, without links"),
        (r'"scheduling-policy"\s*:', "ASTRA-sim's system settings, without links"),
        (
            r'"reuse_resources"\s*:|"input_chunks"\s*:',
            "an MSCCL++ execution plan: steps, not links",
        ),
        (r'^[ \t]*"filename"\s*:\s*"\w+\.py"', "a list of MSCCL++ tests"),
        (r"^(allreduce|allgather),:", "SimAI's table of bus bandwidths"),
        (r'"(oop_busbw|busbw|out_of_place)"', "nccl-tests results, which go to `explorer logs`"),
        (
            r"N?CCL INFO|^(\[\S+)?[NR]CCL version",
            "an NCCL_DEBUG log, which goes to `explorer logs`",
        ),
        (
            r"#\s+(size\s+count|nThread)|\b(busbw|algbw|bus bw)\b",
            "an nccl-tests log, which goes to `explorer logs`",
        ),
        (r"^Infiniband device '", "ibstatus: the state of one NIC; its rate goes in --nic"),
        (r"^(scenarios?|sweep|sizes)\s*:", "a scenario, which goes to `explorer sweep`"),
        (r"^# NCCL Tuner|^collective(_type)?,", "an NCCL tuner table"),
        (
            r"^(ENABLE_QCN|CC_MODE|FLOW_FILE)\s",
            "an ns-3 configuration; its TOPOLOGY_FILE has links",
        ),
        (r"^(HYBRID_TRANSFORMER|MICRO|DATA|MODEL)\w*\b", "an ASTRA-sim or SimAI workload"),
        (r"^Size,1 Node", "SimAI's table of efficiencies per size"),
        (r'\{"\w+":[^\n{}]{1,400}\}\s*\[\d', "a DeepPool layer profile"),
    )
)


def foreign(source: Source) -> str | None:
    """Say what a file is if it is of a known kind that describes no machine; else None."""
    text = source.text[:MAX_CHARACTERS]
    tag = root_tag(source)
    if tag in _ROOTS:
        return _ROOTS[tag]
    for pattern, what in _KINDS:
        if pattern.search(text):
            return what
    if any(ord(c) < 32 and c not in "\t\n\r\v\f\x1b" for c in text):
        return "binary, expected text"
    return None
