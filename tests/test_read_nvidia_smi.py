"""`nvidia-smi topo -m` pastes, whole and damaged; the files are our own."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from explorer.core.bounds import bounds
from explorer.core.collective import Collective, bandwidths_gbs, sizing
from explorer.core.topology import Topology
from explorer.errors import InputError
from explorer.evaluate.simulate_sizes import simulate_sizes
from explorer.topologies.describe import nic_table, route_text
from explorer.topologies.nvidia_smi import read_nvidia_smi
from explorer.topologies.nvidia_smi_matrix import looks_like_nvidia_smi, read_smi_matrix
from explorer.topologies.source import Source
from explorer.topologies.subset import subset
from explorer.topologies.topology_write import topology_yaml
from explorer.units import gbs_of_beta

LEGEND = "\nLegend:\n\n  X    = Self\n  SYS  = Connection\n  PIX  = Connection\n  NV#  = NVLinks\n"
PAIRS = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV12\tNODE\tNODE\tPIX\t0-15\t0\t\tN/A
GPU1\tNV12\t X \tNODE\tNODE\tNODE\t0-15\t0\t\tN/A
GPU2\tNODE\tNODE\t X \tNV12\tNODE\t0-15\t0\t\tN/A
GPU3\tNODE\tNODE\tNV12\t X \tSYS\t16-31\t1\t\tN/A
NIC0\tPIX\tNODE\tNODE\tSYS\t X \t\t\t
"""


def read(text: str, nodes: int | None = None) -> Topology:
    return read_nvidia_smi(Source("topo.txt", text), nodes, True)


def rates(topology: Topology) -> dict[str, float]:
    return {
        name: round(gbs_of_beta(link.beta_us_per_mib), 6)
        for name, link in zip(topology.link_names, topology.links, strict=True)
    }


def refusal(text: str) -> str:
    source = Source("topo.txt", text)
    assert looks_like_nvidia_smi(source)
    with pytest.raises(InputError) as caught:
        read_nvidia_smi(source, None, True)
    return str(caught.value)


def matrix(gpus: int, cell: str, numa: list[int], nics: int = 0) -> str:
    """A matrix of equal cells, NIC i on the switch of GPU i, else SYS."""
    names = [f"GPU{i}" for i in range(gpus)] + [f"NIC{i}" for i in range(nics)]
    lines = ["\t" + "\t".join(names) + "\tCPU Affinity\tNUMA Affinity"]
    for i in range(len(names)):
        cells = []
        for j in range(len(names)):
            if i == j:
                cells.append(" X ")
            elif max(i, j) < gpus:
                cells.append(cell)
            else:
                cells.append("PIX" if abs(i - j) == gpus else "SYS")
        end = f"\t{numa[i]}-9\t{numa[i]}" if i < gpus else ""
        lines.append(f"{names[i]}\t" + "\t".join(cells) + end)
    return "\n".join(lines) + "\n"


def test_pairs_share_the_cpu_and_have_their_nvlinks() -> None:
    topology = read(PAIRS)
    assert topology.ranks == 4
    assert rates(topology)["gpu0->gpu1"] == 300.0 == rates(topology)["gpu3->gpu2"]
    # GPU0 and the NIC stand on one switch; GPU2's way to GPU1 leaves by its own root port.
    assert route_text(topology, 0, 2) == "gpu0 > pcie0 > cpu0 > gpu2: 26 GB/s, 0.9 us"
    assert route_text(topology, 2, 1) == "gpu2 > cpu0 > gpu1: 26 GB/s, 0.8 us"


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace("\t", "        "),
        lambda text: "\n".join("    " + line for line in text.splitlines()),
        lambda text: "\n".join("# " + line for line in text.splitlines()),
        lambda text: "\n".join("> " + line for line in text.splitlines()),
        lambda text: "```\n$ nvidia-smi topo -m\n" + text + "```\n",
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\tGPU0\t", "\x1b[4m\tGPU0\t", 1).replace("ID", "ID\x1b[0m", 1),
        lambda text: text.replace("\tGPU0\t", "[4mGPU0\t", 1).replace("NUMA ID", "NUMA ID[0m", 1),
        lambda text: text.lstrip("\t"),
        lambda text: text.replace("\n", "\n\n"),
        lambda text: "\n".join("| " + s.replace("\t", " | ") + " |" for s in text.splitlines()),
        lambda text: text + LEGEND,
        lambda text: text + "\nlater:\n" + text,
    ],
)
def test_a_damaged_paste_reads_as_the_whole_one(damage) -> None:
    whole = read(PAIRS)
    other = read(damage(PAIRS))
    assert (other.devices, other.links) == (whole.devices, whole.links)


@pytest.mark.parametrize("width", [40, 52, 61, 80])
def test_a_wrapped_paste_reads_as_the_whole_one(width: int) -> None:
    text = matrix(8, "NV18", [0, 0, 0, 0, 1, 1, 1, 1], nics=8).expandtabs(8)
    wrapped = "\n".join(
        line[i : i + width] for line in text.splitlines() for i in range(0, len(line), width)
    )
    whole, other = read(text), read(wrapped)
    assert (other.devices, other.links) == (whole.devices, whole.links)


def test_a_lost_tab_is_mended_where_the_mirrored_cell_agrees() -> None:
    broken = PAIRS.replace("NODE\tNODE\tPIX\t0-15", "NODE\tNODEPIX\t0-15")
    topology = read(broken)
    assert topology.links == read(PAIRS).links
    assert any("line 2: row GPU0 had lost a blank in NODEPIX" in note for note in topology.notes)


def test_cut_rows_and_missing_rows_are_refused_with_their_line() -> None:
    lines = PAIRS.splitlines()
    assert "topo.txt:5: row GPU3 is cut: 2 of 5 cells" in refusal(
        "\n".join([*lines[:4], "GPU3\tNODE\tNODE"])
    )
    assert "topo.txt:4: the header names 4 GPUs, the rows of GPU3 are missing" in refusal(
        "\n".join(lines[:4])
    )
    # Without the NIC's row the GPUs' rows still say everything about GPUs.
    topology = read("\n".join(lines[:5]))
    assert topology.ranks == 4
    assert any("the rows of NIC0 are missing" in note for note in topology.notes)


def test_cells_that_contradict_each_other_are_refused() -> None:
    assert "line 2 says NV12 for the same pair" in refusal(
        PAIRS.replace("GPU1\tNV12", "GPU1\tNODE")
    )
    assert "row GPU1, column GPU1: got NODE, expected X" in refusal(
        PAIRS.replace("GPU1\tNV12\t X \tNODE", "GPU1\tNV12\tNODE\t X ")
    )
    assert "row GPU2, column GPU0: got 'NOPE', expected X, NV#, PIX" in refusal(
        PAIRS.replace("GPU2\tNODE", "GPU2\tNOPE")
    )


def test_other_views_are_told_apart() -> None:
    mp = PAIRS.replace("NV12", "PHB")
    assert "this view hides NVLink" in refusal("$ nvidia-smi topo -mp\n" + mp)
    # Its legend has no NV#.
    assert "this view hides NVLink" in refusal(mp + LEGEND.replace("  NV#  = NVLinks\n", ""))
    assert "says whether GPUs may reach each other" in refusal(
        "\tGPU0\tGPU1\nGPU0\tX\tOK\nGPU1\tOK\tX\n"
    )
    # A machine without NVLinks has NV# in its legend all the same.
    assert read(mp + LEGEND).ranks == 4


def test_two_different_machines_in_a_paste_are_refused() -> None:
    assert "topo.txt:7: a second, different matrix starts here" in refusal(
        PAIRS + PAIRS.replace("NV12", "NV4")
    )


def test_switch_or_mesh_by_the_sum_of_lanes() -> None:
    # NV4 to each of three others are the 12 lanes of an A100; NV12 to each would be 36.
    mesh = read(matrix(4, "NV4", [0, 0, 1, 1]))
    assert rates(mesh)["gpu0->gpu3"] == 100.0
    switched = read(matrix(4, "NV12", [0, 0, 1, 1]))
    assert rates(switched)["gpu0->nvswitch0"] == 300.0
    assert "gpu0->gpu1" not in rates(switched)
    # One port has lost a lane: every pair of it shows the smaller count.
    rows = [
        [("X" if i == j else "NV17" if 1 in (i, j) else "NV18") for j in range(3)] for i in range(3)
    ]
    text = "\tGPU0\tGPU1\tGPU2\n" + "".join(
        f"GPU{i}\t" + "\t".join(row) + "\n" for i, row in enumerate(rows)
    )
    degraded = read(text)
    assert rates(degraded)["gpu1->nvswitch0"] == 425.0
    assert any("GPU1 has 17 NVLinks, others 18" in note for note in degraded.notes)
    assert "would have" in refusal(text.replace("NV17", "NV9", 1).replace("NV17", "NV9", 1))


def test_seven_of_eight_gpus_share_two_nics_four_and_three() -> None:
    # C04: one GPU has fallen off the bus.
    names = [f"GPU{i}" for i in range(7)]
    lines = ["\t" + "\t".join([*names, "NIC0", "NIC1"]) + "\tCPU Affinity\tNUMA Affinity"]
    for i in range(7):
        near = ("PIX", "SYS") if i < 4 else ("SYS", "PIX")
        cells = ["X" if i == j else "NV18" for j in range(7)]
        lines.append("\t".join([names[i], *cells, *near]) + f"\t0-5\t{int(i > 3)}")
    topology = read("\n".join(lines), 2)
    assert topology.ranks == 14
    users = [nic_table(topology)[rank] for rank in range(7)]
    assert users == ["n0/nic0"] * 4 + ["n0/nic1"] * 3
    # Seven ranks cut a size into sevenths; the rest is left over, and said.
    sizes = sizing(Collective("allgather", 7, 1, 0), 1 << 20)
    assert (sizes.requested_bytes, sizes.size_bytes) == (1 << 20, (1 << 20) // 28 * 28)


def test_pairs_that_are_all_sys_share_ports_and_the_link_between_the_cpus() -> None:
    # C05: not 28 independent links. 16 of 64 chunks go from CPU 1 to CPU 0 over 10 GB/s.
    topology = read(matrix(8, "SYS", [0, 0, 0, 0, 1, 1, 1, 1]))
    assert len(topology.links) == 18
    kind = Collective("alltoall", 8, 1, 0)
    amount = sizing(kind, 1 << 30)
    bound = bounds(topology, kind, amount)
    assert bound.bound_us == pytest.approx(16 * (1 << 27) / 10e3, rel=1e-4)
    assert "cpu1->cpu0" in bound.bottleneck
    assert any(
        "SYS between GPUs of one CPU affinity carries no structure" in n for n in topology.notes
    )


def test_cliff_from_two_to_three_gpus_of_nvlink_pairs(tmp_path: Path) -> None:
    # C47: measured 208 GB/s on two GPUs of a pair, 20 GB/s on three; PCIe is what is left.
    text = matrix(8, "SYS", [0] * 4 + [1] * 4)
    rows = [line.split("\t") for line in text.splitlines()]
    for i in range(8):
        for j in range(8):
            if i != j and i // 2 == j // 2:
                rows[i + 1][j + 1] = "NV12"
            elif i != j and i // 4 == j // 4:
                rows[i + 1][j + 1] = "NODE"
    machine = read("\n".join("\t".join(row) for row in rows))
    bound_gbs, ring_gbs = [], []
    for count in (2, 3):
        part = subset(machine, range(count))
        kind = Collective("allreduce", count, 1, 0)
        amount = sizing(kind, 1 << 30)
        bound = bounds(part, kind, amount)
        bound_gbs.append(bandwidths_gbs(kind, amount.size_bytes, bound.bound_us)[0])
        path = tmp_path / f"{count}.yaml"
        path.write_text(topology_yaml(part))
        rows, _ = simulate_sizes("ring", str(path), None, "allreduce", [1 << 30])
        ring_gbs.append(rows[0]["busbw_gbs"])
    # No schedule beats the third GPU's PCIe port of 26 GB/s, and the port is named.
    assert bound_gbs == [pytest.approx(300, rel=1e-3), pytest.approx(26, rel=1e-3)]
    assert "cpu0" in bound.bottleneck
    assert ring_gbs[0] / ring_gbs[1] > 10
    assert "cpu0" in rows[0]["bottleneck"]["resource"]


def test_storage_nics_do_not_join_the_network_and_near_ones_are_spread() -> None:
    # Two GPUs and two NICs below one root port, a third NIC far from both.
    text = "\n".join(
        [
            "\tGPU0\tGPU1\tmlx5_0\tmlx5_1\tmlx5_2\tCPU Affinity\tNUMA Affinity",
            "GPU0\tX\tNV12\tPXB\tPXB\tSYS\t0-1\t3",
            "GPU1\tNV12\tX\tPXB\tPXB\tSYS\t0-1\t3",
            "mlx5_0\tPXB\tPXB\tX\tPXB\tSYS",
            "mlx5_1\tPXB\tPXB\tPXB\tX\tSYS",
            "mlx5_2\tSYS\tSYS\tSYS\tSYS\tX",
        ]
    )
    topology = read(text, 2)
    assert [nic_table(topology)[rank] for rank in range(4)] == [
        "n0/mlx5_0",
        "n0/mlx5_1",
        "n1/mlx5_0",
        "n1/mlx5_1",
    ]
    assert not any("mlx5_2" in name and "fabric" in name for name in topology.link_names)


def test_nvlink_that_looks_down_is_warned_of() -> None:
    topology = read(matrix(4, "SYS", [0, 0, 1, 1], nics=4))
    assert any("NVLink or the fabric manager may be down" in note for note in topology.notes)


def test_every_cell_survives_random_damage_or_the_paste_is_refused() -> None:
    """Random cells of a random matrix: a paste that is read says what was written."""
    dice = random.Random(7)
    for _ in range(60):
        count = dice.randint(2, 6)
        cells = {
            (i, j): dice.choice(["NV1", "NV2", "PIX", "PHB", "NODE", "SYS"])
            for j in range(count)
            for i in range(j)
        }
        rows = ["\t".join(["", *(f"GPU{i}" for i in range(count)), "CPU Affinity"])]
        for i in range(count):
            row = ["X" if i == j else cells[min(i, j), max(i, j)] for j in range(count)]
            rows.append("\t".join([f"GPU{i}", *row, "0-3"]))
        text = list("\n".join(rows))
        for _ in range(dice.randint(0, 3)):
            spot = dice.randrange(len(text))
            text[spot] = dice.choice(["", " ", "\t", "\n"])
        try:
            found = read_smi_matrix(Source("topo.txt", "".join(text)))
        except InputError:
            continue
        if found.gpus == count:
            assert found.cells == cells
