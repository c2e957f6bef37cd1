"""Fields of a YAML topology: each takes a value, and notes a problem with its line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from explorer.errors import InputError, Problem, nearest
from explorer.topologies.source import Source
from explorer.topologies.yaml_tree import Tree
from explorer.units import (
    beta_of_us_per_mb,
    beta_us_per_mib,
    gbs_of_mbit,
    parse_rate_gbs,
    parse_time_us,
)

RATE_KEYS = ("bandwidth", "rate", "beta_us_per_mib", "beta_us_per_mb", "beta_us_per_MB", "speed")
"""Ways to write a link's rate: with its unit, as inverse bandwidth, or as NCCL's XML in Mb/s."""

TOO_FAST_GBS = 10_000.0
"""No link of any machine carries 10 TB/s; what reads so is a wrong unit."""


class Fields:
    """Collects the problems and notes of one file.

    Parameters
    ----------
    source
        The file, for line numbers.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.problems: list[Problem] = []
        self.notes: list[str] = []

    def problem(self, line: int, message: str) -> None:
        """Note a problem at a line."""
        self.problems.append(Problem(self.source.at(line), message))

    def check(self) -> None:
        """Raise what was noted.

        Raises
        ------
        InputError
            If there was any problem.
        """
        if self.problems:
            raise InputError(self.problems)

    def table(self, tree: Tree, what: str, allowed: Iterable[str]) -> dict[str, Tree]:
        """Take a mapping with known keys; unknown ones are problems with the nearest word."""
        if not isinstance(tree.value, dict):
            self.problem(tree.line, f"{what}: expected keys and values, got {_shown(tree)}")
            return {}
        words = list(allowed)
        for key in tree.value:
            if key not in words:
                self.problem(
                    tree.key_lines[key], f"{what}: unknown key {key!r}, " + nearest(key, words)
                )
        return {key: value for key, value in tree.value.items() if key in words}

    def items(self, tree: Tree, what: str) -> list[Tree]:
        """Take a list."""
        if isinstance(tree.value, list):
            return tree.value
        self.problem(tree.line, f"{what}: expected a list, got {_shown(tree)}")
        return []

    def text(self, tree: Tree, what: str) -> str:
        """Take text that is not empty."""
        if isinstance(tree.value, str) and tree.value:
            return tree.value
        self.problem(tree.line, f"{what}: expected text, got {_shown(tree)}")
        return ""

    def word(self, tree: Tree, what: str, allowed: Iterable[str]) -> str:
        """Take one of the allowed words."""
        words = list(allowed)
        text = self.text(tree, what)
        if text and text not in words:
            self.problem(tree.line, f"{what}: got {text!r}, {nearest(text, words)}")
        return text

    def flag(self, tree: Tree, what: str) -> bool:
        """Take true or false."""
        return self.word(tree, what, ("true", "false")) == "true"

    def whole(self, tree: Tree, what: str, least: int = 1, most: int = 1 << 20) -> int:
        """Take a whole number."""
        text = tree.value if isinstance(tree.value, str) else ""
        digits = text.removeprefix("-")
        number = int(text) if digits.isascii() and digits.isdigit() and len(text) < 10 else None
        if number is None or not least <= number <= most:
            self.problem(
                tree.line,
                f"{what}: got {_shown(tree)}, expected a whole number from {least} to {most}",
            )
            return least
        return number

    def number(self, tree: Tree, what: str, unit: str) -> float:
        """Take a finite number >= 0 without unit, where the key says the unit."""
        try:
            value = float(tree.value) if isinstance(tree.value, str) else math.nan
        except ValueError:
            value = math.nan
        if not (value >= 0 and math.isfinite(value)):
            self.problem(tree.line, f"{what}: got {_shown(tree)}, expected a number in {unit}")
            return 0.0
        return value

    def alpha_us(self, table: Mapping[str, Tree], line: int, what: str) -> float:
        """Take ``alpha`` with its unit, or ``alpha_us``."""
        given = [key for key in ("alpha", "alpha_us") if key in table]
        if len(given) != 1:
            both = "alpha and alpha_us are both given" if given else "alpha is missing"
            self.problem(line, f"{what}: {both}, expected one such as alpha: 0.7us")
            return 0.0
        tree = table[given[0]]
        if given[0] == "alpha_us":
            return self.number(tree, f"{what}.alpha_us", "us")
        try:
            return parse_time_us(self.text(tree, f"{what}.alpha"), self.source.at(tree.line))
        except InputError as error:
            self._add(error, f"{what}.alpha")
            return 0.0

    def beta(self, table: Mapping[str, Tree], line: int, what: str) -> float:
        """Take exactly one spelling of a link's rate as beta in us per MiB."""
        given = [key for key in RATE_KEYS if key in table]
        if len(given) != 1:
            count = f"{' and '.join(given)} are both given" if given else "the rate is missing"
            self.problem(
                line,
                f"{what}: {count}, expected one of bandwidth: 25GB/s, beta_us_per_mib,"
                " beta_us_per_mb (1e6 bytes), speed (Mb/s)",
            )
            return 1.0
        key, tree = given[0], table[given[0]]
        before = len(self.problems)
        beta = self._beta(key, tree, f"{what}.{key}")
        if len(self.problems) > before:
            return 1.0
        if not (beta > 0 and math.isfinite(beta)):
            self.problem(
                tree.line, f"{what}.{key}: a link needs a rate above 0; leave out dead links"
            )
            return 1.0
        return beta

    def _beta(self, key: str, tree: Tree, what: str) -> float:
        """Beta behind one spelling; infinite for a rate of zero."""
        if key == "beta_us_per_mib":
            return self.number(tree, what, "us per MiB")
        if key.startswith("beta"):
            return beta_of_us_per_mb(self.number(tree, what, "us per MB"))
        if key == "speed":
            gbs = gbs_of_mbit(self.number(tree, what, "Mb/s"))
        else:
            gbs = self.rate_gbs(tree, what)
        return beta_us_per_mib(gbs) if gbs > 0 else math.inf

    def rate_gbs(self, tree: Tree, what: str) -> float:
        """Take a rate with its unit in GB/s."""
        text = self.text(tree, what)
        if not text:
            return 1.0
        try:
            gbs = parse_rate_gbs(text, self.source.at(tree.line))
        except InputError as error:
            self._add(error, what)
            return 1.0
        if gbs < TOO_FAST_GBS:
            return gbs
        if "/ns" in text.replace(" ", "") and gbs / 1e3 < TOO_FAST_GBS:
            # Mega per nanosecond is the usual slip for mega per microsecond.
            self.notes.append(
                f"line {tree.line}: {text} would be {gbs / 1e3:g} TB/s, which no link carries;"
                f" read as per us, {gbs / 1e3:g} GB/s"
            )
            return gbs / 1e3
        self.problem(tree.line, f"{what}: {text} is {gbs:g} GB/s, which no link carries")
        return 1.0

    def _add(self, error: InputError, what: str) -> None:
        self.problems += [Problem(p.where, f"{what}: {p.message}") for p in error.problems]


def _shown(tree: Tree) -> str:
    if isinstance(tree.value, str):
        return repr(tree.value) if tree.value else "nothing"
    return "a list" if isinstance(tree.value, list) else "keys and values"
