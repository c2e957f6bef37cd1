"""NCCL's own model (``NCCL_DEBUG_SUBSYS=TUNING``) and what it chose for each call."""

from __future__ import annotations

import re

from explorer.measured.collective_words import key_of
from explorer.measured.debug import Choice, Prediction
from explorer.measured.row import Remark

ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
"""By number, as NCCL printed them until 2.23; before 2.14 number 2 was ``collnet``."""

PROTOCOLS = ("ll", "ll128", "simple")
"""By number."""

_CHOICE = re.compile(
    r"(?:^|\s)(?:(\w+)(?: \[\w+\])?:\s+)?(\d{1,19}) Bytes -> Algo (\w+) proto (\w+)"
    r"(?: channel\{Lo\.\.Hi\}=\{(\d{1,5})\.\.(\d{1,5})\})?(?: time ([\d.]{1,30}))?"
)
_CELL = re.compile(r"\s*(\d{1,12}\.\d+)/\s*(\d{1,12}\.\d+)\s*")
_TABLE_ROW = re.compile(r"^\s*([A-Za-z]+) \|(.*)$")


class TuningLines:
    """Collects tables and choices; a table's columns come from its heading lines."""

    def __init__(self) -> None:
        self.predictions: list[Prediction] = []
        self.choices: dict[tuple[object, ...], Choice] = {}
        self.remarks: list[Remark] = []
        self._columns: list[tuple[str, str]] = []
        self._algorithms: list[str] = []

    def read(self, number: int, text: str) -> bool:
        """Take a line, from behind ``NCCL INFO``; whether it said anything."""
        if " Bytes -> Algo " in text:
            return self._choice(number, text)
        if "|" not in text:
            return False
        head, _, rest = text.partition("|")
        words = [part.strip() for part in rest.split("|")]
        if head.strip() == "Latency/AlgBw":
            pairs = [word.partition("/") for word in words if "/" in word]
            self._columns = [(_lower(a), _lower(p)) for a, _, p in pairs]
        elif head.strip() == "Algorithm":  # since 2.24: two lines, three protocols an algorithm
            self._algorithms = [_lower(word) for word in words if word]
        elif head.strip() == "Protocol":
            protocols = [_lower(word) for word in words if word]
            self._columns = [
                (self._algorithms[i // len(PROTOCOLS)], protocol)
                for i, protocol in enumerate(protocols)
                if i // len(PROTOCOLS) < len(self._algorithms)
            ]
        elif head.strip() != "Max NThreads":
            return self._row(number, text)
        return True

    def _row(self, number: int, text: str) -> bool:
        match = _TABLE_ROW.match(text)
        collective = key_of(match.group(1)) if match else None
        if match is None or collective is None:
            return False
        if not self._columns:
            self.remarks.append(
                Remark(number, "refused", "a row of a tuning table without heading")
            )
            return True
        cells = match.group(2).split("|")
        for (algorithm, protocol), cell in zip(self._columns, cells, strict=False):
            told = _CELL.fullmatch(cell)
            if told is None:
                message = f"the tuning table is torn at {algorithm}/{protocol} of {collective}"
                self.remarks.append(Remark(number, "refused", message))
                return True
            self.predictions.append(
                Prediction(
                    collective,
                    algorithm,
                    protocol,
                    float(told.group(1)),
                    float(told.group(2)),
                    number,
                )
            )
        if len([cell for cell in cells if cell.strip()]) < len(self._columns):
            message = f"the tuning table is torn: {collective} has {len(cells)} columns"
            self.remarks.append(Remark(number, "refused", message))
        return True

    def _choice(self, number: int, text: str) -> bool:
        match = _CHOICE.search(text)
        if match is None:
            self.remarks.append(Remark(number, "refused", f"no choice: {text.strip()[:60]!r}"))
            return True
        name, size, algorithm, protocol, low, high, time = match.groups()
        choice = Choice(
            key_of(name) if name else None,
            int(size),
            _named(algorithm, ALGORITHMS),
            _named(protocol, PROTOCOLS),
            None if high is None else int(high) - int(low) + 1,
            float(time) if time and time.count(".") <= 1 and time != "." else None,
            number,
        )
        key = (choice.collective, choice.size_bytes, choice.algorithm, choice.protocol)
        self.choices.setdefault((*key, choice.channels), choice)
        return True


def _lower(word: str) -> str:
    plain = word.strip().lower()
    return {"collnetdirect": "collnet_direct", "collnetchain": "collnet_chain"}.get(
        plain, {"nvlstree": "nvls_tree"}.get(plain, plain)
    )


def _named(word: str, names: tuple[str, ...]) -> str:
    if word.isascii() and word.isdigit() and len(word) < 3 and int(word) < len(names):
        return names[int(word)]
    return _lower(word)
