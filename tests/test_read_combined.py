"""Several files about one machine: joined, and both values where they disagree."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from explorer.errors import InputError
from explorer.topologies.adjust import parse_gpus, with_rates
from explorer.topologies.combine import combine
from explorer.topologies.describe import nic_table
from explorer.topologies.load import load_topology, read_topology
from explorer.topologies.subset import subset
from explorer.units import gbs_of_beta

DATA = Path(__file__).parent / "data" / "read_topologies"

SMI = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV12\tSYS\tSYS\t0-15\t0
GPU1\tNV12\t X \tSYS\tSYS\t0-15\t0
GPU2\tSYS\tSYS\t X \tNV12\t16-31\t1
GPU3\tSYS\tSYS\tNV12\t X \t16-31\t1
"""


def xml(counts: tuple[int, int]) -> str:
    """Two bridged pairs with these NVLinks."""
    parts = []
    for node, count in enumerate(counts):
        gpus = ""
        for i in (2 * node, 2 * node + 1):
            other = i ^ 1
            gpus += (
                f'<pci busid="0000:0{i}:00.0" class="0x030200" link_speed="16 GT/s"'
                f' link_width="16">\n<gpu dev="{i}" sm="80" rank="{i}">\n<nvlink'
                f' target="0000:0{other}:00.0" count="{count}" tclass="0x030200"/>\n</gpu></pci>\n'
            )
        parts.append(f'<cpu numaid="{node}">\n{gpus}</cpu>\n')
    return f"<system>\n{''.join(parts)}</system>\n"


@pytest.fixture
def files(tmp_path: Path):
    def write(**contents: str) -> list[str]:
        paths = []
        for name, content in contents.items():
            path = tmp_path / f"{name}.txt"
            path.write_text(content)
            paths.append(str(path))
        return paths

    return write


def test_sources_that_agree_are_joined(files) -> None:
    smi, dump = files(smi=SMI, dump=xml((12, 12)))
    topology = combine([smi, dump])
    assert topology.links == read_topology(Path(dump)).links
    assert any("they agree on NVLinks" in note for note in topology.notes)


def test_sources_that_disagree_are_reported_with_both_values(files) -> None:
    # C35: smi says NV12, the dump counts 8; the user chooses.
    smi, dump = files(smi=SMI, dump=xml((12, 8)))
    with pytest.raises(InputError) as caught:
        combine([smi, dump])
    message = str(caught.value)
    assert f"{dump}:15: GPU 2 has 8 NVLinks, but {smi}:4 says 12" in message
    assert "GPU 0" not in message
    assert "--prefer: the files disagree" in message
    for chosen, gbs in ((smi, 300.0), (dump, 200.0)):
        topology = combine([smi, dump], prefer=chosen)
        link = topology.links[topology.link_names.index("gpu2->gpu3")]
        assert gbs_of_beta(link.beta_us_per_mib) == pytest.approx(gbs)
        assert any("GPU 2 has 8 NVLinks" in note for note in topology.notes)
    with pytest.raises(InputError, match="expected one of the files"):
        combine([smi, dump], prefer="other")


def test_a_cut_dump_is_compared_as_far_as_it_goes(files) -> None:
    whole = xml((12, 8))
    cut = whole[: whole.index('<pci busid="0000:03')]
    smi, dump = files(smi=SMI, dump=cut)
    with pytest.raises(InputError) as caught:
        combine([smi, dump])
    assert "GPU 2 has 8 NVLinks" in str(caught.value)
    assert "not whole XML" in str(caught.value)


def test_different_numbers_of_gpus(files) -> None:
    three = "\n".join(
        "\t".join(cell for i, cell in enumerate(line.split("\t")) if i != 4)
        for line in SMI.splitlines()[:4]
    )
    smi, dump = files(smi=three, dump=xml((12, 12)))
    with pytest.raises(InputError, match="4 GPUs, but"):
        combine([smi, dump])


def test_template_takes_nvlinks_from_smi(files) -> None:
    rows = [["X" if i == j else "NV12" for j in range(8)] for i in range(8)]
    text = "\t" + "\t".join(f"GPU{i}" for i in range(8)) + "\n"
    text += "".join(f"GPU{i}\t" + "\t".join(row) + "\n" for i, row in enumerate(rows))
    (smi,) = files(smi=text)
    topology = combine([smi, str(DATA / "azure_ndv4-topo.xml")], 2)
    link = topology.links[topology.link_names.index("gpu9->n1/nvswitch0")]
    assert gbs_of_beta(link.beta_us_per_mib) == pytest.approx(300)
    assert len(set(nic_table(topology).values())) == 16
    assert not any("NCCL finds NVLinks at run time" in note for note in topology.notes)


def test_node_and_network(files) -> None:
    (tree,) = files(
        tree="SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n[3-4]\nSwitchName=r Switches=a,b\n"
    )
    topology = combine(["ndv2", tree])
    assert (topology.ranks, topology.nodes) == (32, 4)
    same, other = (topology.routes_from(0)[dst].alpha_us for dst in (8, 16))
    assert other - same == pytest.approx(0.6)
    with pytest.raises(InputError, match="names 4 hosts"):
        combine(["ndv2", tree], 3)
    (two,) = files(
        two="#StartDevice,StartPort,EndDevice,EndPort\n"
        + "".join(f"h{h},h{h} ib{i},s,Port {3 * h + i}\n" for h in range(2) for i in range(3))
    )
    with pytest.raises(InputError, match="has 3 ports, a node of dgx_a100 has 8 NICs"):
        combine(["dgx_a100", two])


def test_whole_topologies_are_compared_by_their_rates(files) -> None:
    one = "devices: {gpu: gpu0..1}\nlinks:\n"
    one += "  - {from: gpu0, to: gpu1, alpha: 1us, bandwidth: %s, both: true}\n"
    a, b = files(a=one % "25GB/s", b=one % "20GB/s")
    with pytest.raises(InputError, match=r"rank 0 to 1 at 20 GB/s, but .* has 25"):
        combine([a, b])
    assert combine([a, b], prefer=b).links == read_topology(Path(b)).links


def test_rates_the_user_knows() -> None:
    machine = load_topology("ndv2", 2)
    faster = with_rates(machine, nvlink_gbs=20.0, nic_gbs=50.0)
    found = dict(zip(faster.link_names, faster.links, strict=True))
    assert gbs_of_beta(found["gpu0->gpu1"].beta_us_per_mib) == pytest.approx(40)
    assert gbs_of_beta(found["n0/nic0->fabric"].beta_us_per_mib) == pytest.approx(50)
    with pytest.raises(InputError, match="--pcie: ring:4 has no pcie link"):
        with_rates(load_topology("ring:4"), pcie_gbs=1.0)
    with pytest.raises(InputError, match="which no link carries"):
        with_rates(machine, nic_gbs=1e6)


def test_some_of_the_gpus() -> None:
    assert parse_gpus("0-2,7,1") == [0, 1, 2, 7]
    part = subset(load_topology("dgx_a100", 2), [0, 3, 9])
    assert (part.ranks, part.node_of.tolist()) == (3, [0, 0, 1])
    with pytest.raises(InputError, match="got 99, expected ranks 0 to 7"):
        subset(load_topology("ndv2"), [1, 99])


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "explorer", "topology", *words],
        capture_output=True,
        text=True,
        check=False,
    )


def test_import_verb(files, tmp_path: Path) -> None:
    smi, dump = files(smi=SMI, dump=xml((12, 8)))
    refused = run("import", smi, dump)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "GPU 2 has 8 NVLinks" in refused.stderr
    assert "Traceback" not in refused.stderr
    target = tmp_path / "machine.yaml"
    done = run("import", smi, dump, "--prefer", dump, "--gpus", "0-2", "-o", str(target), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ranks"] == 3 == read_topology(target).ranks
    # A TACCL profile without chunk size comes in its own units.
    (profile,) = files(
        profile='{"name": "p", "gpus_per_node": 2, "alpha": 1, "betas": [[0,2],[2,0]],'
        ' "invbws": [[0,3],[3,0]], "links": [[0,1],[1,0]], "nics_per_node": 1,'
        ' "remote_invbw": 9, "remote_alpha": 4, "remote_beta": 5}'
    )
    shown = run("show", profile)
    assert "times in its own units per chunk" in shown.stdout, shown.stderr
