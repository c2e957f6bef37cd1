"""Damaged input ends in rows and remarks, or in a refusal; never in anything else."""

from __future__ import annotations

import contextlib
import json
import math
import random
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from explorer.errors import InputError
from explorer.formats.tuner_table import check_tuner_table, read_tuner_table
from explorer.measured.debug_log import read_debug
from explorer.measured.explain import explain
from explorer.measured.readers import reading_of
from explorer.measured.source import source_of

DATA = Path(__file__).resolve().parent / "data" / "logs"
DEBUG = b"""\
n:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 4 nNodes 2 localRanks 2 localRank 0
n:1:2 [0] NCCL INFO === System : maxBw 48.0 totalBw 370.8 ===
n:1:2 [0] NCCL INFO CPU/0-0 (1/2/-1)
n:1:2 [0] NCCL INFO + PCI[24.0] - PCI/0-65000 (104c)
n:1:2 [0] NCCL INFO             + PCI[48.0] - NIC/0-67000
n:1:2 [0] NCCL INFO Pattern 4, crossNic 0, nChannels 12, bw 20.0/20.0, type NVL/PIX, sameChannels 1
n:1:2 [0] NCCL INFO  0 : NET/6 GPU/4 GPU/0 NET/6
n:1:2 [0] NCCL INFO Channel 00/02 :    0   1   2   3
n:1:2 [0] NCCL INFO Ring 01 : 3 -> 0 -> 1
n:1:2 [1] NCCL INFO Ring 01 : 0 -> 1 -> 2
n:1:2 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1|-1->0->1/-1/-1 [1] 1/-1/-1->0->3
n:1:2 [1] NCCL INFO Trees [0] 2/-1/-1->1->0 [1] -1/-1/-1->1->0
n:1:2 [0] NCCL INFO NVLS Head  0:  0  2
n:1:2 [0] NCCL INFO Channel 00/0 : 0[100000] -> 1[500000] [send] via NET/IB/6
n:1:2 [0] NCCL INFO Latency/AlgBw |    Tree/    LL |    Ring/Simple |
n:1:2 [0] NCCL INFO     AllReduce |     6.3/   0.8 |    18.0/   3.0 |
n:1:2 [0] NCCL INFO AllReduce: 4096 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..1}
n:1:2 [0] NCCL INFO NCCL_ALGO set by environment to Ring.
"""
JSON = json.dumps(
    {
        "args": ["./all_reduce_perf"],
        "config": {"devices": [{"rank": r, "group": 0, "hostname": "n"} for r in range(4)]},
        "results": [
            {
                "size": 1 << power,
                "count": 1 << (power - 2),
                "type": "float",
                "redop": "sum",
                "root": "-1",
                "out_of_place": {"time": 9.5, "alg_bw": 1.0, "bus_bw": 1.5, "nwrong": 0.0},
                "in_place": {"time": 9.5, "alg_bw": 1.0, "bus_bw": 1.5, "nwrong": None},
            }
            for power in range(10, 14)
        ],
    },
    indent=1,
).encode()
CSV = b"""\
algorithm,protocol,ring_channels,instances,nchannels,inplace,size_bytes,time_us,algbw_GBps,busbw_GBps,library_outofplace_time_us,program_used,run_complete
allgather_ring,LL,1,2,2,1,1048576,100.0,10.49,9.18,90.0,yes,yes
allgather_ring,LL,1,2,2,1,2097152,200.0,10.49,9.18,180.0,no,no
"""
SCCL = b"""\
<sccl_algos>
<load path="/a" minsize="0" maxsize="100" proto="Simple"/>
<load path="/b" minsize="100" maxsize="200" proto="LL"/>
</sccl_algos>
"""
TEXTS = [
    (DATA / name).read_bytes()
    for name in (
        "a100_8gpu_superbench_reduce.log",
        "h200_aws_p5en_allreduce_elided.log",
        "h100_2x8_aws_p5_k8s_mpirun_prefix.log",
        "cloudai_fixture_allreduce.log",
        "h100_2x8_oci_allreduce_16g.log",
    )
]


def mutated(data: bytes, seed: int) -> bytes:
    """Cut, repeat, swap or overwrite pieces of a file, one to four times."""
    rng = random.Random(seed)
    for _ in range(rng.randint(1, 4)):
        a, b = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        b = min(b, a + rng.choice((1, 3, 20, 400)))
        piece = data[a:b]
        kind = rng.randrange(7)
        if kind == 0:
            data = data[:a] + data[b:]
        elif kind == 1:
            data = data[:b] + piece * rng.randint(1, 3) + data[b:]
        elif kind == 2:
            c = rng.randrange(len(data) + 1)
            data = data[:c] + piece + data[c:]
        elif kind == 3:
            junk = bytes(rng.randrange(256) for _ in range(rng.randint(1, 12)))
            data = data[:a] + junk + data[b:]
        elif kind == 4:
            lines = data.split(b"\n")
            i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
            lines[i], lines[j] = lines[j], lines[i]
            data = b"\n".join(lines)
        elif kind == 5:
            word = rng.choice((b"nan", b"-1", b"9" * 30, b"1e400", b"0", b"{", b"|", b"\x1b[0m"))
            data = data[:a] + word + data[b:]
        else:
            data = data[:a]
    return data


def sound(data: bytes) -> None:
    reading = reading_of(source_of("fuzz", data))
    for row in reading.rows:
        numbers = [value for value in asdict(row).values() if isinstance(value, float)]
        assert all(math.isfinite(value) and value >= 0 for value in numbers)
        assert 1 <= row.line <= data.count(b"\n") + 1
        assert row.ranks is None or row.ranks >= 1
    assert reading.rows or reading.remarks
    explain(reading.rows)


def table(data: bytes, folder: Path) -> None:
    path = folder / "table"
    path.write_bytes(data)
    check_tuner_table(read_tuner_table(path)[0])


def reader_of(name: str, folder: Path) -> tuple[list[bytes], Callable[[bytes], object]]:
    readers: dict[str, tuple[list[bytes], Callable[[bytes], object]]] = {
        "tables": (TEXTS, sound),
        "debug": ([DEBUG], lambda data: read_debug(source_of("fuzz", data))),
        "json": ([JSON], sound),
        "csv": ([CSV, (DATA / "nccl_tuner_sample_performance.csv").read_bytes()], sound),
        "tuner": ([(DATA / "nccl_tuner.conf").read_bytes(), SCCL], lambda d: table(d, folder)),
    }
    return readers[name]


def fuzz(name: str, folder: Path, seeds: range) -> None:
    texts, read = reader_of(name, folder)
    read(texts[0])
    for seed in seeds:
        try:
            read(mutated(texts[seed % len(texts)], seed))
        except InputError:
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error


NAMES = ("tables", "debug", "json", "csv", "tuner")


@pytest.mark.parametrize("name", NAMES)
def test_damage_is_read_or_refused(name: str, tmp_path: Path) -> None:
    fuzz(name, tmp_path, range(150))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_thousand_kinds_of_damage_are_read_or_refused(name: str, tmp_path: Path) -> None:
    fuzz(name, tmp_path, range(1000))


@pytest.mark.parametrize(
    "text",
    [
        b"8 " * 2_000_000,
        b"# size count type " + b"time algbw busbw " * 100_000,
        (b"[1,0]<stdout>:" * 1000 + b"\n") * 100,
        b"n [0] NCCL INFO Trees " + b"[0] 1/-1->0->" * 100_000,
        b"1048576 262144 float sum -1 " + b"1.0" * 500_000,
        b"a_" * 1_000_000 + b"_perf",
        b"# Rank 0 on " + b"x " * 500_000,
        b"1 1 float " * 200_000,
        b"{" * 100_000 + b'"',
    ],
)
@pytest.mark.timeout(20)
def test_endless_lines_end(text: bytes) -> None:
    """Limits, not speed: a pattern that backtracks would run for hours."""
    with contextlib.suppress(InputError):
        reading_of(source_of("long", text))
