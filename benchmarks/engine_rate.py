"""Rate of both engines on the workloads that ASTRA-sim's analytical backend is quoted on.

1 GiB is gathered over links of 50 GiB/s and 0.5 us, as ring all-gather on a ring, ring all-gather
on a switch, and every pair directly on a switch. Programs and networks are built as arrays, so
nothing but the engines counts. Run: ``python -m benchmarks.engine_rate [--ranks 1024]``.
"""

from __future__ import annotations

import argparse

import numpy as np

from sim.network import COST_MODELS, Network
from sim.program import Buffer, Op, Program
from sim.result import SimResult
from sim.simulate import ENGINES, simulate

GATHERED_BYTES = 1 << 30
ALPHA_US = 0.5
BETA_US_PER_BYTE = 1e6 / (50 << 30)


def ring_program(ranks: int) -> Program:
    """All-gather around a ring: one block per rank sends on what it received."""
    step = np.arange(ranks)
    rank = np.arange(ranks)
    op = np.full(ranks, Op.RECV_COPY_SEND)
    op[0], op[-1] = Op.SEND, Op.RECV
    chunk = (rank[:, None] - step[None, :]) % ranks
    return _program(
        name=f"ring{ranks}",
        ranks=ranks,
        tb_rank=rank,
        tb_id=np.zeros(ranks),
        tb_send=(rank + 1) % ranks,
        tb_recv=(rank - 1) % ranks,
        op=np.tile(op, ranks),
        src_off=chunk.ravel(),
        dst_off=chunk.ravel(),
    )


def direct_program(ranks: int) -> Program:
    """Every rank sends its chunk to every other one: one block per distance."""
    rank, distance = (a.ravel() for a in np.meshgrid(range(ranks), range(1, ranks), indexing="ij"))
    sender = (rank - distance) % ranks
    return _program(
        name=f"direct{ranks}",
        ranks=ranks,
        tb_rank=rank,
        tb_id=distance - 1,
        tb_send=(rank + distance) % ranks,
        tb_recv=sender,
        op=np.tile([Op.SEND, Op.RECV], len(rank)),
        src_off=np.repeat(rank, 2),
        dst_off=np.repeat(sender, 2),
    )


def _program(
    *,
    name: str,
    ranks: int,
    tb_rank: np.ndarray,
    tb_id: np.ndarray,
    tb_send: np.ndarray,
    tb_recv: np.ndarray,
    op: np.ndarray,
    src_off: np.ndarray,
    dst_off: np.ndarray,
) -> Program:
    blocks, steps = len(tb_rank), len(op)
    output = np.full(steps, Buffer.OUTPUT, np.int8)
    return Program(
        name=name,
        collective="allgather",
        ranks=ranks,
        nchunks=ranks,
        protocol="Simple",
        channels=1,
        in_place=True,
        out_of_place=False,
        min_bytes=0,
        max_bytes=None,
        root=-1,
        i_chunks=np.zeros(ranks, np.int32),
        o_chunks=np.full(ranks, ranks, np.int32),
        s_chunks=np.zeros(ranks, np.int32),
        tb_rank=tb_rank.astype(np.int32),
        tb_id=tb_id.astype(np.int32),
        tb_send=tb_send.astype(np.int32),
        tb_recv=tb_recv.astype(np.int32),
        tb_channel=np.zeros(blocks, np.int32),
        tb_first=np.arange(blocks + 1, dtype=np.int64) * (steps // blocks),
        op=op.astype(np.int8),
        src_buf=output,
        src_off=src_off.astype(np.int32),
        dst_buf=output,
        dst_off=dst_off.astype(np.int32),
        cnt=np.ones(steps, np.int32),
        dep_first=np.zeros(steps + 1, np.int64),
        dep_step=np.zeros(0, np.int64),
    )


def ring_network(ranks: int) -> Network:
    """One link per rank to the next one."""
    rank = np.arange(ranks, dtype=np.int32)
    return _network(
        ranks,
        tuple(f"gpu{r}->gpu{(r + 1) % ranks}" for r in range(ranks)),
        rank,
        (rank + 1) % ranks,
        rank[:, None],
    )


def switch_network(ranks: int) -> Network:
    """One egress and one ingress port per rank, paths between all pairs."""
    src, dst = (a.ravel() for a in np.meshgrid(range(ranks), range(ranks), indexing="ij"))
    src, dst = src[src != dst], dst[src != dst]
    names = [f"gpu{r}->switch" for r in range(ranks)] + [f"switch->gpu{r}" for r in range(ranks)]
    return _network(ranks, tuple(names), src, dst, np.stack((src, ranks + dst), axis=1))


def _network(
    ranks: int, names: tuple[str, ...], src: np.ndarray, dst: np.ndarray, resources: np.ndarray
) -> Network:
    paths, length = resources.shape
    return Network(
        ranks=ranks,
        resources=names,
        path_src=src.astype(np.int32),
        path_dst=dst.astype(np.int32),
        alpha_us=np.full(paths, ALPHA_US),
        beta_us_per_byte=np.full(paths, BETA_US_PER_BYTE),
        path_first=np.arange(paths + 1, dtype=np.int64) * length,
        path_resource=resources.ravel().astype(np.int32),
    )


def best_of(times: int, program: Program, network: Network, **options: str) -> SimResult:
    """The fastest of several equal simulations: the machine's other work only ever adds time."""
    chunk_bytes = GATHERED_BYTES / program.ranks
    runs = [simulate(program, network, chunk_bytes, **options) for _ in range(times)]
    return min(runs, key=lambda run: run.seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=1024, help="ranks for the compiled engine")
    parser.add_argument("--simpy-ranks", type=int, default=128, help="ranks for the reference")
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    cases = (
        ("ring on ring", ring_program, ring_network),
        ("ring on switch", ring_program, switch_network),
        ("direct on switch", direct_program, switch_network),
    )
    print(
        f"{'workload':<17}{'cost model':<11}{'engine':<9}{'ranks':>6}{'messages':>9}"
        f"{'time_us':>11}{'seconds':>9}{'M messages/s':>13}"
    )
    for name, program, network in cases:
        for engine in ENGINES:
            ranks = args.ranks if engine == "compiled" else args.simpy_ranks
            for cost_model in COST_MODELS:
                result = best_of(
                    args.repeat if engine == "compiled" else 1,
                    program(ranks),
                    network(ranks),
                    engine=engine,
                    cost_model=cost_model,
                )
                print(
                    f"{name:<17}{cost_model:<11}{engine:<9}{ranks:>6}{result.transfers:>9}"
                    f"{result.time_us:>11.1f}{result.seconds:>9.3f}"
                    f"{result.transfers / result.seconds / 1e6:>13.2f}"
                )


if __name__ == "__main__":
    main()
