"""Series-parallel form of a layer graph: chains, and blocks of branches between two layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from explorer.burst.profile import Layer
from explorer.errors import InputError, Problem


@dataclass(frozen=True, slots=True)
class Chain:
    """Layers and blocks one after another.

    Parameters
    ----------
    items
        Layer indices and blocks; empty for a skip connection.
    """

    items: tuple[int | Block, ...]

    @property
    def first_layer(self) -> int:
        """Layer it starts with."""
        item = self.items[0]
        return item.join if isinstance(item, Block) else item


@dataclass(frozen=True, slots=True)
class Block:
    """Branches that leave the layer before and meet in one layer.

    Parameters
    ----------
    branches
        Each starts with a layer, or is a skip connection.
    join
        Layer where all of them end.
    """

    branches: tuple[Chain, ...]
    join: int


def last_layer(chain: Chain, before: int) -> int:
    """Layer at the end of a chain; ``before`` when it is empty."""
    if not chain.items:
        return before
    item = chain.items[-1]
    return item.join if isinstance(item, Block) else item


def series_parallel(model: str, layers: Sequence[Layer]) -> Chain:
    """Decompose a layer graph.

    Parameters
    ----------
    model
        Named in errors.
    layers
        In topological order, with one input and one output layer.

    Raises
    ------
    InputError
        If branches cross: a layer joins branches that do not all start at one layer.
    """
    following: list[list[int]] = [[] for _ in layers]
    for i, layer in enumerate(layers):
        for before in layer.prev:
            following[before].append(i)
    meets = _meets(following)
    seen: set[int] = set()

    def walk(first: int, stop: int) -> Chain:
        items: list[int | Block] = []
        node = first
        if node == stop:
            return Chain(())
        while True:
            if node in seen:
                raise InputError(
                    Problem(
                        model,
                        f"layer {layers[node].name!r} joins branches that start at different"
                        " layers; only blocks that nest (series-parallel graphs) can be planned",
                    )
                )
            seen.add(node)
            items.append(node)
            while len(following[node]) > 1:
                join = meets[node]
                items.append(Block(tuple(walk(n, join) for n in following[node]), join))
                if join == stop:
                    # A branch cannot end with a block that joins in the outer join: the outer
                    # block would have been found first with more branches.
                    raise InputError(
                        Problem(
                            model,
                            f"the branches from {layers[node].name!r} end in"
                            f" {layers[join].name!r}, where an outer block ends too",
                        )
                    )
                seen.add(join)
                node = join
            if not following[node] or following[node][0] == stop:
                return Chain(tuple(items))
            node = following[node][0]

    chain = walk(0, -1)
    missing = [layer.name for i, layer in enumerate(layers) if i not in seen]
    if missing:
        raise InputError(Problem(model, f"layers {missing} are on no path from input to output"))
    return chain


def _meets(following: list[list[int]]) -> list[int]:
    """Nearest layer that every path from a layer goes through (immediate post-dominator)."""
    meets = [-1] * len(following)
    for node in range(len(following) - 1, -1, -1):
        common = -1
        for other in following[node]:
            common = other if common < 0 else _nearest(meets, common, other)
        meets[node] = common
    return meets


def _nearest(meets: list[int], a: int, b: int) -> int:
    while a != b:
        if a < b:
            a = meets[a]
        else:
            b = meets[b]
    return a
