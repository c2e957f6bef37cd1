"""NCCL's wire protocols: FIFO slots per connection and payload of a slot.

Values with default buffer sizes, from NCCL's ``src/init.cc`` and
``src/collectives/device/prims_*.h`` as used by microsoft/msccl and Azure/msccl-executor-nccl.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Protocol:
    """One wire protocol.

    Parameters
    ----------
    name
        Exact spelling in MSCCL XML.
    slots
        Messages a connection holds before the sender waits.
    slot_bytes
        Payload of one slot with default buffers.
    """

    name: str
    slots: int
    slot_bytes: int


PROTOCOLS = {
    p.name: p
    for p in (
        Protocol("Simple", slots=2, slot_bytes=2 << 20),
        Protocol("LL", slots=8, slot_bytes=32 << 10),
        Protocol("LL128", slots=8, slot_bytes=576_000),
    )
}
"""The protocols by name."""
