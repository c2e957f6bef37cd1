"""Mutated files end in a topology or an InputError: no traceback, no cost that is not a number."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
from test_read_combined import SMI, xml
from test_read_networks import HOSTS, HTSIM, IB, TREE
from test_read_texts import BANDWIDTH, KINDS, MESH, SIX, rocm

from explorer.errors import InputError
from explorer.topologies.combine import combine
from explorer.topologies.readers import READERS
from explorer.topologies.source import Source

DATA = Path(__file__).parent / "data"
LINKS = (
    "CA 1 1 0x0001 4x EDR - SW 9 1 0x0009 ( 'h1 HCA-1' - 'leaf' )\n"
    "CA 2 1 0x0002 4x EDR - SW 9 2 0x0009 ( 'h2 HCA-1' - 'leaf' )\n"
    "SW 9 3 0x0009 4x ???  'leaf'\n"
)
SEEDS = {
    "nvidia-smi topo -m": [SMI],
    "NCCL topology XML": [
        xml((12, 12)),
        (DATA / "read_topologies" / "azure_ndv4-topo.xml").read_text(),
        (DATA / "read_topologies" / "rccl_topo_3p_pcie.xml").read_text(),
    ],
    "ns-3, HPCC and SimAI text": [SIX, MESH],
    "htsim .topo": [HTSIM],
    "SLURM topology.conf": [TREE, "BlockName=a Nodes=x[1-4]\nBlockName=b Nodes=y[1-4]\n"],
    "ibnetdiscover": [IB, LINKS],
    "UFM cabling CSV": [HOSTS[:900]],
    "rocm-smi --showtopo": [rocm(KINDS, [["0", "1", "2"], ["1", "0", "2"], ["2", "2", "0"]])],
    "TE-CCL input JSON": [
        json.dumps({"TopologyParams": {"name": "NDv2", "chassis": 2, "chunk_size": 0.1}}, indent=1)
    ],
    "ASTRA-sim network": [
        "topology: [Ring, Switch]\nnpus_count: [4, 2]\nbandwidth: [100, 50]\nlatency: [100, 500]\n"
    ],
    "measured matrix CSV": [BANDWIDTH],
    "TACCL topology JSON": [(DATA / "topologies" / "topo-ndv2-1MB.json").read_text()],
    "topology YAML": [
        "node:\n  devices: {gpu: gpu0..3, nvswitch: s}\n  links:\n    - {from: gpu0..3, to: s,"
        " alpha: 1us, bandwidth: 25GB/s, both: true}\n"
    ],
}
JUNK = ("\x00", "\xff", "é", "9" * 30, "-1", "nan", "inf", "1e999", '"', "<", "&", "[", "]", "{")
JUNK += (
    "\t",
    "\n",
    "\r",
    " ",
    ",",
    "\x1b[0m",
    "..",
    "[0-99999]",
    "0x",
    "<!DOCTYPE a>",
    "&a;",
    "*a",
)


def mutated(text: str, dice: random.Random) -> str:
    """Cut, repeat, swap lines or words, or put junk in."""
    for _ in range(dice.randint(1, 4)):
        if not text:
            break
        a, b = sorted(dice.randrange(len(text) + 1) for _ in range(2))
        kind = dice.randrange(6)
        if kind == 0:
            text = text[:a]
        elif kind == 1:
            text = text[:a] + text[min(b, a + 20) :]
        elif kind == 2:
            text = text[:b] + text[a:b][:200] + text[b:]
        elif kind == 3:
            lines = text.split("\n")
            i, j = dice.randrange(len(lines)), dice.randrange(len(lines))
            lines[i], lines[j] = lines[j], lines[i]
            text = "\n".join(lines)
        else:
            text = text[:a] + dice.choice(JUNK) + text[a + (kind == 5) :]
    return text


def check(name: str, count: int, tmp_path: Path) -> None:
    reader = next(r for r in READERS if r.name == name)
    dice = random.Random(name)
    path = tmp_path / "file.txt"
    kept = 0
    for round_ in range(count):
        seed = dice.choice(SEEDS[name])
        text = mutated(seed, dice)
        try:
            if round_ % 4:
                topology = reader.read(Source("file.txt", text), dice.choice([None, 1, 2]), True)
            else:
                path.write_text(text, encoding="utf-8", newline="")
                topology = combine([str(path)])
        except InputError:
            continue
        kept += 1
        assert all(math.isfinite(k.alpha_us + k.beta_us_per_mib) for k in topology.links)
    # Some mutations leave a file that is still read, so the reader itself was reached.
    assert kept


def test_every_reader_is_fuzzed() -> None:
    assert SEEDS.keys() == {reader.name for reader in READERS}
    for name, seeds in SEEDS.items():
        for seed in seeds:
            first = next(r.name for r in READERS if r.recognises(Source("file.txt", seed)))
            assert first == name


@pytest.mark.parametrize("name", SEEDS)
def test_mutations(name: str, tmp_path: Path) -> None:
    check(name, 150, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", SEEDS)
def test_a_thousand_mutations(name: str, tmp_path: Path) -> None:
    check(name, 1000, tmp_path)


YAML_BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{c}: &{c} [{','.join([f'*{p}'] * 9)}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (YAML_BOMB + "devices: []\n", "anchors and aliases are not allowed"),
        ("devices: !!python/object/apply:os.system [ls]\n", "is not allowed"),
        ("devices: " + "[" * 100_000, "nested deeper than 8 levels"),
        ('{"TopologyParams": ' + "[" * 100_000, "JSON"),
        ("GPU0 " * 200_000 + "\nGPU0 X\n", "at most 256"),
        ("SwitchName=a Nodes=" + "n[1-9]," * 40_000 + "m\n", "names over 16384 hosts"),
        ("\x00\x01\x02" * 1000, "binary"),
        # Inputs that made patterns of a first draft take time with the square of their length.
        ("\n" * 4_000_000 + "x", "in no known topology format"),
        ("=" * 4_000_000, "in no known topology format"),
        ("SwitchName=a Nodes=b\n" + "a" * 4_000_000, "expected SwitchName="),
        ("7" * 4_000_000, "in no known topology format"),
        ("1 2 " * 1_000_000, "in no known topology format"),
        ("GPU0 GPU1\nGPU0 X NV1" + "NV1" * 1_000_000, "the rows of GPU1 are missing"),
        ("<" * 4_000_000, "in no known topology format"),
        ("CA 1 1 0x1 4x EDR - SW 2 2 0x2 (" + "'a' - " * 500_000, "no cable"),
        ("Switch 1 " + '"' * 4_000_000, "expected Switch, Ca or a port"),
    ],
)
def test_hostile_files(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        combine([str(path)])
    assert message in str(caught.value)
