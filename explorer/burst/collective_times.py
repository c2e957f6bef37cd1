"""Simulated times of all-reduces and resharding on a machine, kept by (GPUs, size)."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path

from explorer.baselines.registry import build_baseline, supports
from explorer.burst.reshard_program import reshard_program, transfers
from explorer.core.collective import Collective
from explorer.core.topology import Topology
from explorer.errors import InputError, Problem
from explorer.evaluate.network import network_for
from explorer.topologies.subset import subset
from sim.simulate import simulate

ALGORITHMS = (("ring", 1), ("ring", 8), ("recursive", 1), ("hierarchical", 1), ("allpairs", 1))
"""Candidates of an all-reduce and their channels."""

MAX_SQUARE = 64
"""Most GPUs on which rings and all-pairs, whose steps grow with the square, are tried."""

SIZES = tuple(1 << k for k in (14, 17, 20, 23, 26, 29, 32))
"""Buckets of an all-reduce, in bytes."""

MOVE_SIZES = (1 << 12, 1 << 20)
"""Bytes of a sample at which resharding is simulated."""


class CollectiveTimes:
    """Times on the first GPUs of a machine, simulated when first asked for.

    Parameters
    ----------
    topology
        The machine.
    cost_model
        Of the simulation, at ``ideal`` fidelity.
    path
        JSON file with times of earlier runs; created by :meth:`save`.
    """

    def __init__(
        self, topology: Topology, cost_model: str = "exclusive", path: Path | None = None
    ) -> None:
        self.topology = topology
        self.cost_model = cost_model
        self.simulated = 0
        self._path = path
        self._parts: dict[int, Topology] = {}
        what = repr((topology.devices, topology.links, cost_model, SIZES, MOVE_SIZES, ALGORITHMS))
        self._machine = hashlib.sha256(what.encode()).hexdigest()[:16]
        self._known = _read(path, self._machine) if path is not None else {}

    def allreduce_us(self, gpus: int) -> tuple[float, ...]:
        """Time of the best program at each of :data:`SIZES`.

        Raises
        ------
        InputError
            If no algorithm suits the first ``gpus`` GPUs of the machine.
        """
        key = f"allreduce {gpus}"
        if key not in self._known:
            self._known[key] = self._allreduce(gpus)
            self.simulated += 1
        return tuple(self._known[key])

    def reshard_us(
        self, batch: int, before: tuple[int, int], after: tuple[int, int]
    ) -> tuple[float, ...]:
        """Time there and back again at each of :data:`MOVE_SIZES` per sample."""
        moves = transfers(batch, before, after)
        if not moves:
            return (0.0,) * len(MOVE_SIZES)
        key = f"reshard {batch} {before[0]}+{before[1]} {after[0]}+{after[1]}"
        if key not in self._known:
            times = [0.0] * len(MOVE_SIZES)
            part = self._part(max(max(a, b) for a, b, _ in moves) + 1)
            for back in (False, True):
                program = reshard_program(part.ranks, moves, back=back)
                network = network_for(part, program)
                for i, size in enumerate(MOVE_SIZES):
                    done = simulate(program, network, float(size), cost_model=self.cost_model)
                    times[i] += done.time_us
            self._known[key] = times
            self.simulated += 1
        return tuple(self._known[key])

    def save(self) -> None:
        """Write the times to the file, if there is one and something is new."""
        if self._path is None or not self.simulated:
            return
        known = {key: self._known[key] for key in sorted(self._known)}
        document = {"machine": self._machine, "topology": self.topology.name, "times_us": known}
        try:
            self._path.write_text(json.dumps(document, indent=0) + "\n", encoding="utf-8")
        except OSError as error:
            raise InputError(Problem(str(self._path), error.strerror or str(error))) from None

    def _part(self, gpus: int) -> Topology:
        if gpus not in self._parts:
            self._parts[gpus] = subset(self.topology, range(gpus))
        return self._parts[gpus]

    def _allreduce(self, gpus: int) -> list[float]:
        part = self._part(gpus)
        best = [math.inf] * len(SIZES)
        reasons = []
        for name, channels in ALGORITHMS:
            if name in ("ring", "allpairs") and gpus > MAX_SQUARE:
                continue
            reason = supports(name, "allreduce", part)
            if reason:
                reasons.append(f"{name}: {reason}")
                continue
            kind = Collective("allreduce", gpus, channels)
            program = build_baseline(name, part, kind, placement="in", channels=channels)
            network = network_for(part, program)
            for i, size in enumerate(SIZES):
                chunk = size / program.nchunks
                time = simulate(program, network, chunk, cost_model=self.cost_model).time_us
                best[i] = min(best[i], time)
        if not math.isfinite(best[0]):
            raise InputError([Problem(part.name, reason) for reason in reasons])
        return best


def _read(path: Path, machine: str) -> dict[str, Sequence[float]]:
    """Times of a file; none if it is not there, or of another machine or version."""
    if not path.exists():
        return {}
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        known = {str(k): [float(t) for t in v] for k, v in document["times_us"].items()}
    except OSError as error:
        raise InputError(Problem(str(path), error.strerror or str(error))) from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise InputError(
            Problem(str(path), "is no file of simulated times (written by --collectives)")
        ) from None
    if document.get("machine") != machine:
        raise InputError(
            Problem(
                str(path),
                f"holds times of {document.get('topology')!r} as it was then, not of this machine"
                " and version; name another file or delete it",
            )
        )
    return known  # type: ignore[return-value]
