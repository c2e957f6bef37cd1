"""Checks both sketch formats share: each takes a key path and notes problems as it goes."""

from __future__ import annotations

import math
from collections.abc import Iterable

from explorer.errors import Problem, nearest

Pairs = tuple[tuple[int, int], ...]

MAX_CHUNKS = 1024
"""Chunks per rank at most, as on the command line."""


class Fields:
    """Collects the problems of one sketch file.

    Parameters
    ----------
    source
        File name, stands before every key path.
    ranks, per_node
        Size of the machine the sketch is read for.
    """

    def __init__(self, source: str, ranks: int, per_node: int) -> None:
        self.source = source
        self.ranks = ranks
        self.per_node = per_node
        self.problems: list[Problem] = []

    def problem(self, key: str, message: str) -> None:
        """Note a problem at a key path."""
        self.problems.append(Problem(f"{self.source}: {key}", message))

    def only(self, table: object, allowed: Iterable[str], key: str = "") -> dict[str, object]:
        """Take a table with known keys; unknown ones are problems with the nearest word."""
        if not isinstance(table, dict):
            self.problem(key or "top level", f"got {table!r}, expected keys and values")
            return {}
        allowed = list(allowed)
        for name in table:
            if name not in allowed:
                path = f"{key}.{name}" if key else str(name)
                self.problem(path, f"unknown key, {nearest(str(name), allowed)}")
        return {str(k): v for k, v in table.items() if k in allowed}

    def word(self, value: object, allowed: Iterable[str], key: str) -> str:
        """Take one of the allowed words."""
        words = list(allowed)
        if value not in words:
            self.problem(key, f"got {value!r}, {nearest(str(value), words)}")
        return str(value)

    def count(self, value: object, key: str, most: int | None = None) -> int:
        """Take a whole number of at least 1."""
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            self.problem(key, f"got {value!r}, expected a whole number of at least 1")
            return 1
        if most is not None and value > most:
            self.problem(key, f"got {value}, expected 1 to {most}")
            return 1
        return value

    def chunks(self, value: object, key: str) -> int:
        """Take a number of chunks per rank."""
        return self.count(value, key, MAX_CHUNKS)

    def nodes(self, value: object, key: str) -> int:
        """Take the node count a sketch is made for; it must be the machine's."""
        nodes = self.count(value, key)
        have = self.ranks // self.per_node
        if nodes != have:
            self.problem(key, f"the sketch is for {nodes} nodes, got {have}")
        return nodes

    def flag(self, value: object, key: str) -> bool:
        """Take true or false."""
        if not isinstance(value, bool):
            self.problem(key, f"got {value!r}, expected true or false")
        return bool(value)

    def number(self, value: object, key: str) -> float | None:
        """Take a finite number of at least 0."""
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not 0 <= value < math.inf
        ):
            self.problem(key, f"got {value!r}, expected a number >= 0")
            return None
        return float(value)

    def local(self, value: object, key: str) -> int:
        """Take a local rank; text digits count, as JSON keys are text."""
        number = int(value) if isinstance(value, str) and value.isdigit() else value
        if not isinstance(number, int) or isinstance(number, bool):
            self.problem(key, f"got {value!r}, expected a local rank 0-{self.per_node - 1}")
            return 0
        if not 0 <= number < self.per_node:
            self.problem(
                key, f"local rank {number} does not exist, a node has ranks 0-{self.per_node - 1}"
            )
            return 0
        return number

    def locals(self, value: object, key: str) -> tuple[int, ...]:
        """Take a list of local ranks."""
        if not isinstance(value, list):
            self.problem(key, f"got {value!r}, expected a list of local ranks")
            return ()
        return tuple(self.local(item, f"{key}[{i}]") for i, item in enumerate(value))

    def senders(self, value: object, key: str) -> Pairs | None:
        """Take inter-node connections: a word, or sender -> receivers."""
        everyone = range(self.per_node)
        if value == "fully-connected":
            return None
        if value == "direct-map":
            return tuple((i, i) for i in everyone)
        if not isinstance(value, dict):
            words = ("fully-connected", "direct-map")
            self.problem(
                key, f"got {value!r}, {nearest(str(value), words)} (or a map sender: [receivers])"
            )
            return ()
        pairs = []
        for name, receivers in value.items():
            path = f'{key}."{name}"'
            sender = self.local(name, path)
            if receivers == []:
                self.problem(path, f"rank {sender} sends to nobody, expected local ranks")
            pairs += [(sender, receiver) for receiver in self.locals(receivers, path)]
        return tuple(sorted(set(pairs)))

    def relays(self, value: object, key: str) -> tuple[int, ...] | None:
        """Take sender -> owners whose chunks it carries; every local rank exactly once."""
        if not isinstance(value, dict):
            self.problem(key, f"got {value!r}, expected a map sender: [owners]")
            return None
        relay: dict[int, int] = {}
        before = len(self.problems)
        for name, owners in value.items():
            path = f'{key}."{name}"'
            sender = self.local(name, path)
            for owner in self.locals(owners, path):
                if owner in relay and relay[owner] != sender:
                    self.problem(
                        path, f"rank {owner} already leaves the node through rank {relay[owner]}"
                    )
                relay[owner] = sender
        missing = sorted(set(range(self.per_node)) - set(relay))
        if missing and len(self.problems) == before:
            self.problem(key, f"no sender for the chunks of local ranks {missing}")
        if len(self.problems) > before:
            return None
        return tuple(relay[rank] for rank in range(self.per_node))

    def relays_send(
        self, relay: tuple[int, ...] | None, senders: Pairs | None, keys: tuple[str, str]
    ) -> None:
        """Check that whoever relays also sends; ``keys`` are those of relays and senders."""
        if relay is None or senders is None:
            return
        sending = {sender for sender, _ in senders}
        for sender in sorted(set(relay) - sending):
            owners = ", ".join(str(r) for r, s in enumerate(relay) if s == sender)
            self.problem(
                f'{keys[0]}."{sender}"',
                f"the chunks of ranks {owners} leave through rank {sender}, which {keys[1]}"
                " connects to no other node",
            )

    def symmetry(self, value: object, key: str) -> tuple[tuple[int, int], ...]:
        """Take [offset, span] pairs; span ``all`` is every rank. Identities are dropped."""
        if not isinstance(value, list):
            self.problem(key, f"got {value!r}, expected a list of [offset, span]")
            return ()
        pairs = []
        for i, item in enumerate(value):
            path = f"{key}[{i}]"
            if not isinstance(item, list) or len(item) != 2:
                self.problem(path, f"got {item!r}, expected [offset, span]")
                continue
            offset = self.count(item[0], f"{path}[0]")
            span = self.ranks if item[1] == "all" else self.count(item[1], f"{path}[1]")
            if self.ranks % span:
                self.problem(path, f"span {span} does not divide the {self.ranks} ranks")
            elif span % offset:
                self.problem(path, f"offset {offset} does not divide the span {span}")
            elif offset % span:
                pairs.append((offset, span))
        return tuple(pairs)
