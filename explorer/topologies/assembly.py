"""Assembly: collects the devices and links of a machine, node by node, and freezes a Topology."""

from __future__ import annotations

from explorer.core.topology import Device, Link, Topology, merge_parallel
from explorer.units import beta_us_per_mib

NETWORK = -1
"""Node number of devices that stand between machines."""


class Assembly:
    """Devices and links of a topology being built.

    Parameters
    ----------
    name
        Name of the topology.
    nodes
        Number of nodes; with more than one, names of devices other than GPUs start with ``n<k>/``.

    Examples
    --------
    >>> a = Assembly("pair", 1)
    >>> a.both(a.gpu(0), a.gpu(0), "nvlink", 0.7, 25.0)
    >>> a.build().link_names
    ('gpu0->gpu1', 'gpu1->gpu0')
    """

    def __init__(self, name: str, nodes: int) -> None:
        self.name = name
        self.nodes = nodes
        self.devices: list[Device] = []
        self._links: list[Link] = []
        self._gpus = 0

    def gpu(self, node: int) -> int:
        """Add the next rank; returns its device index."""
        self.devices.append(Device(f"gpu{self._gpus}", "gpu", node))
        self._gpus += 1
        return len(self.devices) - 1

    def device(self, name: str, kind: str, node: int = NETWORK) -> int:
        """Add a device that is not a GPU; returns its index."""
        prefix = f"n{node}/" if self.nodes > 1 and node != NETWORK else ""
        self.devices.append(Device(prefix + name, kind, node))
        return len(self.devices) - 1

    def one_way(
        self, src: int, dst: int, kind: str, alpha_us: float, gbs: float, lanes: int = 1
    ) -> None:
        """Add one direction of a link of ``gbs`` GB/s, all lanes together."""
        self._links.append(Link(src, dst, kind, alpha_us, beta_us_per_mib(gbs), lanes))

    def both(self, a: int, b: int, kind: str, alpha_us: float, gbs: float, lanes: int = 1) -> None:
        """Add both directions of a link, each of ``gbs`` GB/s."""
        self.one_way(a, b, kind, alpha_us, gbs, lanes)
        self.one_way(b, a, kind, alpha_us, gbs, lanes)

    def link(self, link: Link) -> None:
        """Add a link as it is."""
        self._links.append(link)

    def build(
        self, notes: tuple[str, ...] = (), *, time_unit: str = "us", nics_per_node: int = 0
    ) -> Topology:
        """Freeze it; parallel links are merged."""
        return Topology(
            self.name,
            tuple(self.devices),
            merge_parallel(self._links),
            time_unit,
            nics_per_node,
            notes,
        )
