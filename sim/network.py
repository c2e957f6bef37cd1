"""Network: the shared resources of a machine and the paths between its ranks.

A resource is one direction of a physical link (an NVLink, a GPU's NVSwitch egress or ingress port,
a PCIe hop, a NIC, an uplink). A path names the resources it goes through; a transfer holds all of
them together for its busy time. Switches cut through: a path costs the sum of its alphas and one
``bytes * max(beta)``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sim.errors import ProgramError

COST_MODELS = ("exclusive", "pipelined")
"""``exclusive``: resources are busy alpha + b·beta, data arrives at the end of it.
``pipelined``: resources are busy b·beta, data arrives alpha later."""


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """Paths between the rank pairs that a program uses.

    Parameters
    ----------
    ranks
        Number of ranks.
    resources
        Names of the shared resources, e.g. ``gpu0->nvswitch0``.
    path_src, path_dst
        int32 ``[P]``: the rank pair of each path, sorted by (src, dst), no pair twice.
    alpha_us, beta_us_per_byte
        float64 ``[P]``: latency of a message and inverse bandwidth.
    path_first, path_resource
        int64 ``[P+1]`` and int32: resources of path p are
        ``path_resource[path_first[p]:path_first[p+1]]``.
    """

    ranks: int
    resources: tuple[str, ...]
    path_src: npt.NDArray[np.int32]
    path_dst: npt.NDArray[np.int32]
    alpha_us: npt.NDArray[np.float64]
    beta_us_per_byte: npt.NDArray[np.float64]
    path_first: npt.NDArray[np.int64]
    path_resource: npt.NDArray[np.int32]

    def paths_of(
        self, src: npt.NDArray[np.int32], dst: npt.NDArray[np.int32]
    ) -> npt.NDArray[np.int64]:
        """Index of the path of each (src, dst) pair.

        Raises
        ------
        ProgramError
            If a pair has no path; the pair is named.
        """
        keys = self.path_src.astype(np.int64) * self.ranks + self.path_dst
        wanted = src.astype(np.int64) * self.ranks + dst
        index = np.searchsorted(keys, wanted)
        clipped = np.minimum(index, max(len(keys) - 1, 0))
        bad = np.ones(len(wanted), np.bool_) if len(keys) == 0 else keys[clipped] != wanted
        if bad.any():
            first = int(np.flatnonzero(bad)[0])
            raise ProgramError(
                f"the network has no path from rank {src[first]} to rank {dst[first]}"
            )
        return clipped.astype(np.int64)
