"""Alpha and rate of links by generation, for sources that name a generation but no number.

Rates are per direction in GB/s. Nominal rates as the builders use them, so that an imported
machine and the builder of the same machine agree.

Sources
-------
NVLink lanes: NVIDIA's data sheets (P100 4 lanes of 20, V100 6 and A100 12 lanes of 25, H100 18
lanes of 25, B200 18 lanes of 50, GA102 4 lanes of 14.06). xGMI lanes: AMD's data sheets, 50 as
TE-CCL's ``teccl/topologies/amd.py`` for MI250 and this project's ``mi300x``. PCIe x16: what NCCL
counts (``src/graph/topo.h`` PCI_BW 12 for 3.0, doubled per generation) plus the tenth that
measured copies reach, as in the builders. Sockets: NCCL ``src/graph/topo.h`` (SKL_QPI_BW,
BDW_QPI_BW, SRP_QPI_BW, ERP_QPI_BW, AMD_BW, ARM_BW, P9_BW, ZPI_BW). InfiniBand: data rate per lane
after encoding, IBTA specification volume 1, table of link speeds.
"""

from __future__ import annotations

import re

NVLINK_GBS = {
    "P100": 20.0,
    "V100": 25.0,
    "A100": 25.0,
    "GA102": 14.0625,
    "H100": 25.0,
    "B200": 50.0,
}
"""One NVLink lane, per direction, by the first GPU that had it."""

_SM_NVLINK = ((60, "P100"), (70, "V100"), (80, "A100"), (86, "GA102"), (90, "H100"), (100, "B200"))

XGMI_GBS = 50.0
"""One xGMI lane of MI200 and MI300; MI50 and MI100 have :data:`XGMI_VEGA_GBS`."""

XGMI_VEGA_GBS = 37.0
"""One xGMI lane of MI50, MI60 and MI100: 18.4 GT/s on 16 lanes of wire (AMD's MI100 data sheet)."""

PCIE_X16_GBS = {1: 3.25, 2: 6.5, 3: 13.0, 4: 26.0, 5: 52.0, 6: 104.0}
"""Sixteen PCIe lanes, per direction, by generation."""

NIC_GBS = {3: 12.5, 4: 25.0, 5: 50.0, 6: 100.0}
"""A NIC that fills half a PCIe x16 slot of a generation: EDR, HDR, NDR, XDR."""

NVLINK_ALPHA_US = 0.7
"""GPU to GPU over NVLink: TE-CCL ``teccl/topologies/ndv2.py``; half of it per NVSwitch hop."""

GPU_PCIE_ALPHA_US = 0.4
"""A GPU's PCIe hop, as in the builders (a guess that fits NDv2's 1.3 us between nodes)."""

PCIE_ALPHA_US = 0.1
"""Any other PCIe hop, as in the builders."""

SOCKET_ALPHA_US = 0.3
"""From one CPU to another, as in the builders."""

NETWORK_ALPHA_US = 2.6
"""GPU to GPU between nodes: TACCL's ``remote_alpha`` on DGX-2."""

NIC_ALPHA_US = NETWORK_ALPHA_US / 2 - GPU_PCIE_ALPHA_US - PCIE_ALPHA_US
"""From a NIC to its switch: what the PCIe hops leave of half the network's alpha."""

SPINE_ALPHA_US = 0.3
"""From a leaf switch to a spine, as in the builders."""

SOCKET_GBS = {"intel": 10.0, "amd": 16.0, "arm": 6.0, "power": 32.0, "zhaoxin": 6.0, "": 10.0}
"""From one CPU to another, by vendor; the empty word stands for an unknown one (NCCL's Skylake)."""

_INTEL_GBS = ((0xCF, 40.0), (0x8F, 22.0), (0x55, 10.0), (0, 6.0))

IB_LANE_GBIT = {
    "SDR": 2.0,
    "DDR": 4.0,
    "QDR": 8.0,
    "FDR10": 10.0,
    "FDR": 13.64,
    "EDR": 25.0,
    "HDR": 50.0,
    "NDR": 100.0,
    "XDR": 200.0,
}
"""Data rate of one InfiniBand lane in Gb/s; SDR, DDR and QDR lose a fifth to their encoding."""

_IB_WIDTH = re.compile(r"(\d{1,2})x\s*(\w+)", re.IGNORECASE)
_GT = re.compile(r"\s*(\d{1,3}(?:\.\d{1,2})?)\s*GT/s")


def nvlink_lane_gbs(sm: int) -> float:
    """Rate of an NVLink lane of a GPU by its compute capability (``sm``: 70, 80, 90 …).

    Examples
    --------
    >>> nvlink_lane_gbs(90), nvlink_lane_gbs(86)
    (25.0, 14.0625)
    """
    name = "P100"
    for least, of in _SM_NVLINK:
        if sm >= least:
            name = of
    return NVLINK_GBS[name]


def xgmi_lane_gbs(gcn: str) -> float:
    """Rate of an xGMI lane by the GPU's architecture as RCCL writes it (``906``, ``gfx942``)."""
    return XGMI_VEGA_GBS if gcn.removeprefix("gfx") in ("906", "908") else XGMI_GBS


def pcie_generation(link_speed: str) -> int | None:
    """Generation behind a speed as sysfs and NCCL write it: ``16.0 GT/s PCIe``; None if unknown.

    Examples
    --------
    >>> pcie_generation("16 GT/s"), pcie_generation("32.0 GT/s PCIe"), pcie_generation("")
    (4, 5, None)
    """
    match = _GT.match(link_speed)
    if match is None:
        return None
    steps = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 20.0: 4, 32.0: 5, 64.0: 6}
    return steps.get(float(match.group(1)))


def socket_gbs(vendor: str, arch: str, model: int) -> float:
    """Rate between two CPUs as NCCL counts it.

    Parameters
    ----------
    vendor, arch
        As in NCCL's XML: ``GenuineIntel``, ``x86_64``.
    model
        Its ``modelid``; tells Intel's generations apart.
    """
    if vendor == "GenuineIntel" and arch == "x86_64":
        # NCCL src/graph/topo.cc: Skylake from model 0x55, Sapphire Rapids 0x8f, Emerald 0xcf.
        return next(gbs for least, gbs in _INTEL_GBS if model >= least)
    by_vendor = {"AuthenticAMD": "amd", "  Shanghai  ": "zhaoxin", "CentaurHauls": "zhaoxin"}
    by_arch = {"arm64": "arm", "ppc64": "power"}
    return SOCKET_GBS[by_arch.get(arch) or by_vendor.get(vendor, "")]


def ib_gbs(text: str) -> float | None:
    """Data rate of an InfiniBand port in GB/s: ``4xEDR``, ``2xNDR``, ``4x SDR``; None if unknown.

    Examples
    --------
    >>> ib_gbs("4xEDR"), ib_gbs("2xNDR"), ib_gbs("4x SDR"), ib_gbs("4x ???")
    (12.5, 25.0, 1.0, None)
    """
    match = _IB_WIDTH.search(text)
    if match is None:
        return None
    lane = IB_LANE_GBIT.get(match.group(2).upper())
    return None if lane is None else int(match.group(1)) * lane / 8
