"""The golden MSCCL XML files: which programs they are, and the command that writes them anew.

    python tests/golden_xml.py

Look at the difference before committing it: a file that changes here changes for every user.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from execute_programs import (
    allgather_ring,
    allreduce_ring,
    alltoall_direct,
    broadcast_chain,
    reduce_chain,
    reducescatter_direct,
)

from explorer.formats.msccl_xml_write import write_msccl_xml

FOLDER = Path(__file__).parent / "data" / "golden_xml"


def golden_files() -> dict[str, str]:
    """Text of every golden file by name."""
    ring = allgather_ring(3, min_bytes=1024, max_bytes=1 << 20)
    return {
        "allgather_ring_3.executor.xml": write_msccl_xml(ring, "executor"),
        "allgather_ring_3_in.msccl.xml": write_msccl_xml(ring, "msccl", placement="in"),
        "allgather_ring_3_out.msccl.xml": write_msccl_xml(ring, "msccl", placement="out"),
        "allreduce_ring_3.executor.xml": write_msccl_xml(allreduce_ring(3, "LL128"), "executor"),
        "alltoall_direct_3.rccl.xml": write_msccl_xml(alltoall_direct(3, "LL"), "rccl"),
        "broadcast_chain_3.executor.xml": write_msccl_xml(broadcast_chain(3, 1), "executor"),
        "reduce_chain_3.msccl.xml": write_msccl_xml(
            replace(reduce_chain(3, 2), in_place=False), "msccl"
        ),
        # three dependencies on one step: two nops
        "reducescatter_direct_4.executor.xml": write_msccl_xml(reducescatter_direct(4), "executor"),
        "reducescatter_direct_4.msccl.xml": write_msccl_xml(
            reducescatter_direct(4), "msccl", placement="out"
        ),
    }


if __name__ == "__main__":
    for name, text in golden_files().items():
        (FOLDER / name).write_text(text, encoding="ascii")
