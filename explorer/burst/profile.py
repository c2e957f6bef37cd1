"""Profile: measured times of a network's layers on one GPU, by batch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from explorer.errors import Problem

KEEPS_COUNT = frozenset({"relu", "flatten", "batchnorm", "dropout"})
"""Operations that run where their input lies: they may not change the number of GPUs."""

PARAM_STATE_BYTES = {4: 12, 2: 16}
"""Bytes that a parameter holds in training, by its own: float32 with momentum SGD (weight,
gradient, momentum); 16 bits with Adam (weight, gradient, float32 weight and two moments)."""


class Reading(Enum):
    """Where a time comes from."""

    MEASURED = "measured"
    INTERPOLATED = "interpolated"
    EXTRAPOLATED = "extrapolated"


@dataclass(frozen=True, slots=True)
class Layer:
    """What the planner gives one number of GPUs.

    Parameters
    ----------
    name, op
        Name, and kind of operation in small letters.
    prev
        Indices of the layers whose output it reads.
    params
        Parameters, whose gradient is all-reduced.
    out_elems
        Elements of its output per sample.
    batches
        Batches measured on one GPU, ascending.
    forward_us, backward_us
        Times at those batches.
    """

    name: str
    op: str
    prev: tuple[int, ...]
    params: int
    out_elems: int
    batches: tuple[int, ...]
    forward_us: tuple[float, ...]
    backward_us: tuple[float, ...]

    def time_us(self, batch: int, *, above: bool) -> tuple[float, float, Reading] | None:
        """Forward and backward time of a batch on one GPU.

        Between measured batches times are interpolated linearly. Above the largest, the line
        through the last two goes on if ``above`` allows it (one measured batch: in proportion).
        Below the smallest there is none: a kernel's floor cannot be told from larger batches.

        Returns
        -------
        tuple | None
            Forward, backward and where they come from; None where extrapolation is refused.
        """
        if batch < self.batches[0] or (batch > self.batches[-1] and not above):
            return None
        if batch > self.batches[-1]:
            forward, backward = (
                _beyond(self.batches, times, batch) for times in (self.forward_us, self.backward_us)
            )
            return forward, backward, Reading.EXTRAPOLATED
        after = next(i for i, known in enumerate(self.batches) if known >= batch)
        if self.batches[after] == batch:
            return self.forward_us[after], self.backward_us[after], Reading.MEASURED
        low, high = self.batches[after - 1], self.batches[after]
        share = (batch - low) / (high - low)
        forward, backward = (
            times[after - 1] + share * (times[after] - times[after - 1])
            for times in (self.forward_us, self.backward_us)
        )
        return forward, backward, Reading.INTERPOLATED


def _beyond(batches: tuple[int, ...], times: tuple[float, ...], batch: int) -> float:
    last = times[-1]
    if len(batches) == 1:
        return last * batch / batches[-1]
    slope = (last - times[-2]) / (batches[-1] - batches[-2])
    return last + max(slope, 0.0) * (batch - batches[-1])


@dataclass(frozen=True, slots=True)
class Profile:
    """A network and the times of its layers.

    Parameters
    ----------
    model
        Name of the network.
    layers
        In topological order; exactly one reads no other layer and exactly one is read by none.
    source
        Where the times come from.
    step_us
        Time of an iteration beside the layers and collectives (loss, optimiser), paid once per
        iteration on every GPU; None where it is unknown, which counts as 0 and is said.
    act_bytes, param_bytes
        Bytes of an activation element and of a parameter (and of its gradient).
    batch, gpus
        What the file itself asks for; None where it does not.
    notes
        What a reader should know about the data.
    """

    model: str
    layers: tuple[Layer, ...]
    source: str
    step_us: float | None = None
    act_bytes: int = 4
    param_bytes: int = 4
    batch: int | None = None
    gpus: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def params(self) -> int:
        """Parameters of all layers."""
        return sum(layer.params for layer in self.layers)


def check_layer(where: str, layer: Layer) -> list[Problem]:
    """Say what is wrong with one layer's numbers."""
    problems = []
    if not layer.batches:
        problems.append(Problem(where, "has no measured batch"))
    for what, times in (("forward", layer.forward_us), ("backward", layer.backward_us)):
        for batch, time in zip(layer.batches, times, strict=True):
            if not (math.isfinite(time) and time >= 0):
                problems.append(
                    Problem(
                        where,
                        f"{what} time at batch {batch} is {time} us, expected a number >= 0",
                    )
                )
    problems += [
        Problem(where, f"batch {batch}, expected a whole number >= 1")
        for batch in layer.batches
        if batch < 1
    ]
    if sorted(set(layer.batches)) != list(layer.batches):
        problems.append(
            Problem(where, f"batches {list(layer.batches)}, expected each once, rising")
        )
    for what, value in (("params", layer.params), ("out_elems_per_sample", layer.out_elems)):
        if value < 0:
            problems.append(Problem(where, f"{what} is {value}, expected a number >= 0"))
    return problems


def ordered(where: str, layers: Sequence[Layer]) -> tuple[tuple[Layer, ...], list[Problem]]:
    """Put layers into topological order, by their own order where it is free.

    Returns
    -------
    tuple
        The layers with ``prev`` renumbered, and what is wrong with the graph: names that repeat,
        unknown layers, cycles, several inputs or outputs, parts that do not hang together.
    """
    names = Counter(layer.name for layer in layers)
    problems = [
        Problem(where, f"layer {name!r} appears {count} times")
        for name, count in names.items()
        if count > 1
    ]
    problems += [
        Problem(where, f"layer {layer.name!r} reads layer {i}, there are 0 to {len(layers) - 1}")
        for layer in layers
        for i in layer.prev
        if not 0 <= i < len(layers)
    ]
    if not layers:
        problems.append(Problem(where, "has no layers"))
    if problems:
        return tuple(layers), problems
    order: list[int] = []
    done: set[int] = set()
    while len(order) < len(layers):
        ready = [i for i, x in enumerate(layers) if i not in done and done.issuperset(x.prev)]
        if not ready:
            stuck = ", ".join(repr(x.name) for i, x in enumerate(layers) if i not in done)
            return tuple(layers), [Problem(where, f"the layer graph has a cycle among {stuck}")]
        order.append(ready[0])
        done.add(ready[0])
    position = {old: new for new, old in enumerate(order)}
    result = tuple(
        _renumbered(layers[old], tuple(sorted({position[i] for i in layers[old].prev})))
        for old in order
    )
    return result, _ends(where, result)


def _renumbered(layer: Layer, prev: tuple[int, ...]) -> Layer:
    return Layer(
        layer.name,
        layer.op,
        prev,
        layer.params,
        layer.out_elems,
        layer.batches,
        layer.forward_us,
        layer.backward_us,
    )


def _ends(where: str, layers: Sequence[Layer]) -> list[Problem]:
    read = {i for layer in layers for i in layer.prev}
    sources = [layer.name for layer in layers if not layer.prev]
    sinks = [layer.name for i, layer in enumerate(layers) if i not in read]
    return [
        Problem(
            where,
            f"{len(found)} layers {what}: {', '.join(map(repr, found[:6]))}; expected one"
            " (the layer graph is disconnected or has several ends)",
        )
        for found, what in ((sources, "read no other layer"), (sinks, "are read by none"))
        if len(found) > 1
    ]
