"""TACCL's topology JSON (microsoft/taccl ``taccl/examples/topo``, INPUT_GUIDE.md) and its forks'.

Costs are per chunk of the profile's size. Three ways to give the links of a node: one or two
classes in lists (``node_betas_list``), matrices (``betas``, ``invbws``, ``links``), or a grid
(``dims``, ``wrap`` of the fork fuyou126/taccl). Rows of a matrix are destinations and columns
sources, as TACCL reads them (``taccl/topologies/topology.py``: ``link(src, dst)`` is
``links[dst][src]``).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from explorer.errors import InputError, Problem, nearest
from explorer.topologies.dgx1v import DOUBLE, SINGLE
from explorer.topologies.generic import grid_pairs
from explorer.topologies.json_text import parse_json, where_of
from explorer.topologies.source import Source

LIST_KEYS = ("node_betas_list", "node_invbws_list")
MATRIX_KEYS = ("betas", "invbws", "links")
GRID_KEYS = ("dims", "wrap")
REMOTE_KEYS = ("remote_alpha", "remote_beta", "remote_invbw")
OWN_KEYS = ("chunk_size", "scale", "matrix_order", "comment")
KEYS = (
    "name",
    "gpus_per_node",
    "nics_per_node",
    "alpha",
    *LIST_KEYS,
    *MATRIX_KEYS,
    *GRID_KEYS,
    *REMOTE_KEYS,
    *OWN_KEYS,
)
MAX_GPUS = 1024
DST_SRC, SRC_DST = "dst_src", "src_dst"

SCALES = {1: 100.0, 32: 10.0, 1024: 1.0}
"""By chunk size in KiB: what TACCL's own files multiply all times with, so that integers survive.
"""

_CHUNK = re.compile(r"(?<![0-9.])(\d+)\s*(K|M|G)i?B(?![a-z])", re.IGNORECASE)
_KIB = {"K": 1, "M": 1 << 10, "G": 1 << 20}
_MESHES = ("ndv2", "dgx1")
_FULL = ("mi300",)


@dataclass(frozen=True, slots=True)
class LinkCost:
    """Cost of a node link: ``beta`` alone and ``invbw``, of a whole send; both per chunk."""

    beta: float
    invbw: float


@dataclass(frozen=True, slots=True)
class TacclProfile:
    """One node of a TACCL topology, and its way to the others.

    Parameters
    ----------
    name
        Its name.
    gpus, nics
        Per node; NICs may be 0.
    alpha
        Of a node link.
    links
        Cost by (src, dst); empty when ``port`` says it all.
    port
        Cost of a GPU's port on the node's switch; None where links join the GPUs.
    remote
        (alpha, beta) of the way over a NIC; None where the file has none.
    chunk_kib
        Chunk size the costs hold for; None where neither the file nor its name says.
    scale
        Factor on all times; None where it is not known.
    notes
        What was read how.
    """

    name: str
    gpus: int
    nics: int
    alpha: float
    links: dict[tuple[int, int], LinkCost]
    port: LinkCost | None
    remote: tuple[float, float] | None
    chunk_kib: int | None
    scale: float | None
    notes: tuple[str, ...]


def looks_like_taccl(source: Source) -> bool:
    """Whether a file is meant to be a TACCL topology."""
    text = source.text.lstrip()
    return text.startswith("{") and '"gpus_per_node"' in text


def read_taccl_profile(source: Source) -> TacclProfile:
    """Read a TACCL topology file.

    Raises
    ------
    InputError
        With every problem at its line.
    """
    data = parse_json(source)
    if not isinstance(data, dict):
        raise InputError(Problem(source.name, "expected one JSON object"))
    return _Reader(source, data).profile()


class _Reader:
    def __init__(self, source: Source, data: dict[str, Any]) -> None:
        self.source = source
        self.data = data
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self.links: dict[tuple[int, int], LinkCost] = {}
        self.port: LinkCost | None = None

    def problem(self, key: str, message: str) -> None:
        self.problems.append(Problem(where_of(self.source, key), f"{key}: {message}"))

    def profile(self) -> TacclProfile:
        for key in self.data:
            if key not in KEYS:
                self.problem(key, f"unknown key, {nearest(key, KEYS)}")
        name = self.data.get("name", self.source.stem)
        if not isinstance(name, str) or not name:
            self.problem("name", f"got {name!r}, expected text")
            name = self.source.stem
        gpus = self.whole("gpus_per_node", 1)
        nics = self.whole("nics_per_node", 0) if "nics_per_node" in self.data else 0
        alpha = self.number("alpha", self.data.get("alpha"))
        schema = self.schema()
        if schema and not self.problems:
            {"list": self.lists, "matrix": self.matrices, "grid": self.grid}[schema](name, gpus)
        remote = self.remote()
        chunk_kib, scale = self.chunk(name)
        if self.problems:
            raise InputError([*self.problems, *(Problem(self.source.name, n) for n in self.notes)])
        return TacclProfile(
            name, gpus, nics, alpha, self.links, self.port, remote, chunk_kib, scale,
            tuple(self.notes),
        )  # fmt: skip

    def schema(self) -> str:
        """Which way the links are given."""
        lists = [key for key in LIST_KEYS if key in self.data]
        matrices = [key for key in MATRIX_KEYS if key in self.data]
        if lists and matrices:
            self.problem(
                lists[0],
                f"the list schema ({', '.join(lists)}) and the matrix schema"
                f" ({', '.join(matrices)}) are mixed, expected one of them",
            )
            return ""
        if any(key in self.data for key in GRID_KEYS):
            return "grid"
        wanted = LIST_KEYS if lists else MATRIX_KEYS if matrices else ()
        missing = [key for key in wanted if key not in self.data and key != "links"]
        if missing or not wanted:
            self.problem(
                (lists or matrices or ["name"])[0],
                f"{', '.join(missing)} missing"
                if missing
                else "no links: expected node_betas_list and node_invbws_list, or betas and invbws",
            )
            return ""
        return "list" if lists else "matrix"

    def number(self, key: str, value: object, *, above: bool = False) -> float:
        """Take a finite number >= 0 (> 0 with ``above``)."""
        good = isinstance(value, int | float) and not isinstance(value, bool)
        number = float(value) if good else math.nan  # type: ignore[arg-type]
        if not math.isfinite(number) or number < 0 or (above and number == 0):
            bound = "above 0 (leave out dead links)" if above else ">= 0"
            self.problem(key, f"got {value!r}, expected a number {bound}")
            return 1.0
        return number

    def whole(self, key: str, least: int) -> int:
        value = self.data.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_GPUS:
            self.problem(key, f"got {value!r}, expected a whole number {least} to {MAX_GPUS}")
            return least
        return value

    def lists(self, name: str, gpus: int) -> None:
        """Links of one or two classes; which graph they belong to is in the name."""
        costs = []
        values = [self.data[key] for key in LIST_KEYS]
        for key, value in zip(LIST_KEYS, values, strict=True):
            if not isinstance(value, list) or not value:
                self.problem(key, f"got {value!r}, expected a list of costs")
                return
        if len(values[0]) != len(values[1]):
            self.problem(
                LIST_KEYS[1], f"has {len(values[1])} values, {LIST_KEYS[0]} has {len(values[0])}"
            )
            return
        for beta, invbw in zip(*values, strict=True):
            costs.append(
                LinkCost(
                    self.number(LIST_KEYS[0], beta, above=True),
                    self.number(LIST_KEYS[1], invbw, above=True),
                )
            )
        family = name.lower().replace("-", "").replace("_", "")
        if family.startswith(_MESHES):
            if len(costs) != 2 or gpus != 8:
                self.problem(
                    LIST_KEYS[0],
                    f"{name} is the DGX-1V mesh: expected 8 GPUs and two values, of double and"
                    f" single NVLinks; got {gpus} GPUs and {len(costs)} values",
                )
                return
            for cost, pairs in zip(costs, (DOUBLE, SINGLE), strict=True):
                self.links |= {pair: cost for a, b in pairs for pair in ((a, b), (b, a))}
        elif len(costs) > 1:
            self.problem(
                LIST_KEYS[0],
                f"{len(costs)} link classes, but only NDv2 and DGX1 say which pair has which; give"
                f" betas, invbws and links as matrices for {name}",
            )
        elif family.startswith(_FULL):
            pairs_of = [(a, b) for a in range(gpus) for b in range(gpus) if a != b]
            self.links = dict.fromkeys(pairs_of, costs[0])
            self.notes.append("MI300X: every pair has a link of its own")
        elif gpus > 1:
            self.port = costs[0]
            self.notes.append("one link class: the GPUs share a switch, one port each")

    def matrices(self, name: str, gpus: int) -> None:
        """Links by matrices; zero is no link, the diagonal is ignored."""
        order = self.data.get("matrix_order", DST_SRC)
        if order not in (DST_SRC, SRC_DST):
            self.problem(
                "matrix_order", f"got {order!r}, {nearest(str(order), (DST_SRC, SRC_DST))}"
            )
        tables = {key: self.matrix(key, gpus) for key in MATRIX_KEYS if key in self.data}
        if self.problems:
            return
        betas, invbws = tables["betas"], tables["invbws"]
        links = tables.get("links", betas)
        for row in range(gpus):
            for column in range(gpus):
                if row == column or not links[row][column]:
                    continue
                pair = (column, row) if order == DST_SRC else (row, column)
                where = f"[{row}][{column}] of link {pair[0]}->{pair[1]}"
                beta, invbw = betas[row][column], invbws[row][column]
                if not (beta > 0 and invbw > 0):
                    self.problem(
                        "betas", f"{where}: beta {beta:g}, invbw {invbw:g}, expected above 0"
                    )
                self.links[pair] = LinkCost(beta, invbw)
        if any(self.links[pair] != self.links.get(pair[::-1]) for pair in self.links):
            self.note_order(order)

    def note_order(self, order: str) -> None:
        """Say which way round a matrix was read whose transpose is another machine."""
        (src, dst), cost = max(self.links.items(), key=lambda item: (item[1].invbw, item[0]))
        other = SRC_DST if order == DST_SRC else DST_SRC
        rows = "destinations, as TACCL reads them" if order == DST_SRC else "sources"
        self.notes.append(
            f"the matrices are not symmetric; rows were taken as {rows}, so gpu{src}->gpu{dst} is"
            f' the slowest link ({cost.invbw:g}); "matrix_order": "{other}" reads them the other'
            " way round"
        )

    def matrix(self, key: str, gpus: int) -> list[list[float]]:
        table = self.data[key]
        if (
            not isinstance(table, list)
            or len(table) != gpus
            or any(not isinstance(row, list) or len(row) != gpus for row in table)
        ):
            self.problem(key, f"expected {gpus} rows of {gpus} numbers, one per GPU")
            return []
        numbers = [[self.number(key, value) for value in row] for row in table]
        if key == "links" and any(value not in (0.0, 1.0) for row in numbers for value in row):
            self.problem(key, "expected 0 or 1 everywhere")
        return numbers

    def grid(self, name: str, gpus: int) -> None:
        """Links of a grid; the fork's defaults (beta 5, invbw 15) where matrices are empty."""
        dims, wrap = self.data.get("dims"), self.data.get("wrap")
        if not isinstance(dims, list) or not dims or any(not _positive(d) for d in dims):
            self.problem("dims", f"got {dims!r}, expected extents such as [3, 3, 3]")
            return
        if not isinstance(wrap, list) or [type(w) for w in wrap] != [bool] * len(dims):
            self.problem("wrap", f"got {wrap!r}, expected true or false for each of {dims}")
            return
        if math.prod(dims) != gpus:
            self.problem("dims", f"{dims} are {math.prod(dims)} GPUs, gpus_per_node is {gpus}")
            return
        pairs = {pair for a, b in grid_pairs(tuple(dims), tuple(wrap)) for pair in ((a, b), (b, a))}
        given = [key for key in ("betas", "invbws") if self.data.get(key)]
        if given:
            self.matrices(name, gpus)
            if not self.problems and set(self.links) != pairs:
                self.problem(given[0], "the links are not those of dims and wrap")
            return
        self.links = dict.fromkeys(sorted(pairs), LinkCost(5.0, 15.0))
        self.notes.append("no costs given: beta 5, invbw 15, as fuyou126/taccl fills them in")

    def remote(self) -> tuple[float, float] | None:
        """Way between nodes; ``remote_invbw`` is only compared."""
        given = [key for key in REMOTE_KEYS if key in self.data]
        if not given:
            return None
        missing = [key for key in REMOTE_KEYS[:2] if key not in self.data]
        if missing:
            self.problem(given[0], f"is given without {' and '.join(missing)}")
            return None
        alpha = self.number("remote_alpha", self.data["remote_alpha"])
        beta = self.number("remote_beta", self.data["remote_beta"], above=True)
        invbw = self.data.get("remote_invbw")
        if invbw is not None:
            invbw = self.number("remote_invbw", invbw)
            if not math.isclose(invbw, alpha + beta, rel_tol=1e-9):
                self.notes.append(
                    f"remote_invbw is {invbw:g}, but remote_alpha + remote_beta ="
                    f" {alpha + beta:g}; it is not used"
                )
        return alpha, beta

    def chunk(self, name: str) -> tuple[int | None, float | None]:
        """Chunk size and time factor, from the file's own words, its name or its file name."""
        text = self.data.get("chunk_size")
        if text is not None and (not isinstance(text, str) or not _CHUNK.fullmatch(text)):
            self.problem("chunk_size", f"got {text!r}, expected text such as 1MB or 32KB")
            return None, None
        found = next(
            (m for t in (text, name, self.source.stem) if t and (m := _last(t)) is not None), None
        )
        kib = int(found.group(1)) * _KIB[found.group(2).upper()] if found else None
        if "scale" in self.data:
            return kib, self.number("scale", self.data["scale"], above=True)
        return kib, SCALES.get(kib) if kib is not None else None


def _last(text: str) -> re.Match[str] | None:
    """Last size named in a text: ``akmu-…-GDRREAD-0-1MB``."""
    return next(reversed(list(_CHUNK.finditer(text))), None)


def _positive(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
