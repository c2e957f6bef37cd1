"""The matrix in a paste of ``nvidia-smi topo -m``, whatever the paste has been through.

Cells are words that never hold a blank, so they are found by counting words, not columns: tabs
that became blanks, re-aligned columns, quotes and indents do not matter. Every cell that has a
mirror is checked against it, so a shifted, cut or glued row cannot give a wrong matrix.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from explorer.errors import InputError, Problem
from explorer.topologies.source import Source

LEVELS = {"PIX": 1, "PSB": 1, "PXB": 2, "PHB": 3, "NODE": 4, "SYS": 5, "SOC": 5}
"""How far apart two devices are over PCIe; SOC is what SYS was called before 2017."""

MAX_LINES = 5000
"""Lines looked at to recognise a paste."""

MAX_COLUMNS = 256
"""Most devices; the largest known node has 16 GPUs and 26 devices."""

_CELL = re.compile(r"X|PIX|PSB|PXB|PHB|NODE|SYS|SOC|NV\d{1,3}")
_GLUED = re.compile(rf"(?:{_CELL.pattern})+")
_P2P_CELL = re.compile(r"OK|NS|CNS|GNS|TNS|CHN|U|DR")
_GPU = re.compile(r"GPU\d{1,4}")
_COLUMN = re.compile(r"[A-Za-z][\w.:\-]*\d\w*|[a-z]+\d*")
_AFFINITY = re.compile(r"[\d,\-]+|N/A")
_HEADER_END = ("CPU", "NUMA", "GPU")
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b.?|\[\d{0,2}(?:;\d{1,2})*m"
)
_PREFIX = re.compile(r"^(?:\[\d+,\d+\]<std(?:out|err)>:)?[\s>#;*\"'`]*(?://)?")
_LEGEND = re.compile(r"\s*(NIC\d+)\s*:\s*(\S+)")


@dataclass(frozen=True, slots=True)
class SmiMatrix:
    """What a paste says.

    Parameters
    ----------
    names
        Column names, GPUs first.
    gpus
        How many of them are GPUs.
    lines
        Line of every row; 0 for a NIC whose row is missing.
    cells
        (i, j) with i < j -> ``NV12``, ``PIX`` …; pairs of NICs without rows are left out.
    numa, grace
        Per GPU: its NUMA node or CPU list, empty if unknown; whether it has memory of a NUMA node
        of its own, which only Grace machines have.
    newer
        Version of the layout: 0 without NUMA column, 1 with it, 2 with ``GPU NUMA ID``.
    notes
        What was repaired, and what is missing.
    """

    names: tuple[str, ...]
    gpus: int
    lines: tuple[int, ...]
    cells: dict[tuple[int, int], str]
    numa: tuple[str, ...]
    grace: bool
    newer: int
    notes: tuple[str, ...]

    def lanes(self, i: int, j: int) -> int:
        """NVLinks between two GPUs."""
        cell = self.cells[min(i, j), max(i, j)]
        return int(cell[2:]) if cell.startswith("NV") else 0

    def level(self, i: int, j: int) -> int:
        """Distance over PCIe, one of :data:`LEVELS`; 0 where an NVLink hides it or unknown."""
        return LEVELS.get(self.cells.get((min(i, j), max(i, j)), ""), 0)


@dataclass(slots=True)
class _Row:
    label: str
    line: int
    parts: list[str]


@dataclass(slots=True)
class _Table:
    """Header and rows as text, before cells are counted."""

    line: int
    header: list[str]
    rows: list[_Row] = field(default_factory=list)
    end: int = 0
    wrapped: bool = False


def looks_like_nvidia_smi(source: Source) -> bool:
    """Whether a file holds a matrix with GPU columns and rows, or the command that prints one."""
    lines = source.text.splitlines()
    heads = sum(_is_header(_clean(line).split()) for line in lines[:MAX_LINES])
    cells = sum(
        len(words) > 1 and bool(_GPU.fullmatch(words[0])) and bool(_GLUED.fullmatch(words[1]))
        for words in (_clean(line).split() for line in lines[:MAX_LINES])
    )
    if heads and cells:
        return True
    # The command alone; not in quotes, as the notes of our own YAML have it.
    return bool(re.search(r"^[^\"'\n]*nvidia-smi\s+topo\s+-", source.text, re.MULTILINE))


def read_smi_matrix(source: Source) -> SmiMatrix:
    """Read the matrix.

    Raises
    ------
    InputError
        If there is none, it is of another view (``-mp``, ``-p2p``), a GPU's row is cut or missing,
        or two cells that mean the same pair differ; with the lines.
    """
    text = source.text
    if re.search(r"topo\s+-p2p", text):
        raise InputError(Problem(source.name, _P2P))
    tables = _tables(source)
    if not tables:
        raise InputError(
            Problem(source.name, "`nvidia-smi topo -m` without its matrix: no line GPU0 GPU1 …")
        )
    errors: list[InputError] = []
    found: list[SmiMatrix] = []
    for table in tables:
        for glue in (" ", "") if table.wrapped else (" ",):
            try:
                found.append(_Reader(source, table, glue).matrix())
            except InputError as error:
                errors.append(error)
            else:
                errors = errors if glue == " " else errors[:-1]
                break
    if errors:
        raise errors[0]
    first = found[0]
    for table, other in zip(tables[1:], found[1:], strict=True):
        if (other.names, other.cells) != (first.names, first.cells):
            raise InputError(
                Problem(
                    source.at(table.line),
                    "a second, different matrix starts here; expected one machine per file (name"
                    " one file per machine, or --nodes for equal ones)",
                )
            )
    _check_view(source, first)
    return first


_P2P = (
    "this is `nvidia-smi topo -p2p`, which says whether GPUs may reach each other, not over what;"
    " expected `nvidia-smi topo -m`"
)


def _check_view(source: Source, matrix: SmiMatrix) -> None:
    """Refuse ``-mp``, which shows PCIe where there are NVLinks."""
    named = re.search(r"topo\s+-mp\b", source.text)
    legend = re.search(r"X\s+=\s+Self", source.text) and re.search(r"PIX\s+=", source.text)
    old = re.search(r"SOC\s+=", source.text)
    hidden = legend and not old and not re.search(r"NV#\s+=", source.text)
    if any(cell.startswith("NV") for cell in matrix.cells.values()) or not (named or hidden):
        return
    why = "says -mp" if named else "has a legend without NV#"
    raise InputError(
        Problem(
            source.at(matrix.lines[0]),
            f"the paste {why}: this view hides NVLink, so nothing here says that there is none;"
            " expected `nvidia-smi topo -m`",
        )
    )


def _clean(line: str) -> str:
    """Take off escapes, borders, quoting and blanks at both ends."""
    return _PREFIX.sub("", _bare(line), count=1).rstrip()


def _is_header(words: list[str]) -> bool:
    if not words or not _GPU.fullmatch(words[0]):
        return False
    if len(words) == 1:
        return False
    return bool(_GPU.fullmatch(words[1])) or (words[1] == "CPU" or _is_nic(words[1]))


def _is_nic(word: str) -> bool:
    return bool(_COLUMN.fullmatch(word)) and not _GLUED.fullmatch(word) and word not in _HEADER_END


def _tables(source: Source) -> list[_Table]:
    tables: list[_Table] = []
    table: _Table | None = None
    for number, raw in enumerate(source.text.split("\n"), 1):
        text = _clean(raw)
        words = text.split()
        if not words:
            continue
        if _is_header(words) and not (
            table is not None and not table.rows and table.end == number - 1
        ):
            table = _Table(number, [_from(raw, words[0])], end=number)
            tables.append(table)
        elif table is None:
            continue
        elif re.match(r"(NIC )?Legend|X\s+=", text):
            table = None
        elif _starts_row(words, table):
            label = words[0]
            table.rows.append(_Row(label, number, [_from(raw, label)[len(label) :]]))
            table.end = number
        elif not table.rows and table.end == number - 1:
            table.header.append(_bare(raw))
            table.wrapped, table.end = True, number
        elif table.rows and table.end == number - 1 and _continues(words):
            table.rows[-1].parts.append(_bare(raw))
            table.wrapped, table.end = True, number
        else:
            table = None
    return [table for table in tables if table.rows]


def _starts_row(words: list[str], table: _Table) -> bool:
    label = words[0]
    if len(words) == 1:
        return bool(_GPU.fullmatch(label))
    if not (_GPU.fullmatch(label) or _is_nic(label)):
        return False
    cell = _GLUED.fullmatch(words[1]) or _P2P_CELL.fullmatch(words[1])
    return bool(cell) or label in "\t".join(table.header).split()


def _continues(words: list[str]) -> bool:
    return all(_GLUED.fullmatch(w) or _AFFINITY.fullmatch(w) or w.isalnum() for w in words[:1])


def _bare(raw: str) -> str:
    """Take off escapes and borders, keep blanks: tabs tell empty columns at a row's end."""
    text = _ESCAPES.sub("", raw).replace("\u00a0", " ").replace("\\t", "\t").replace("|", "\t")
    return text.rstrip("\r\n\"'`")


def _from(raw: str, word: str) -> str:
    """Cut off what stands before the first word."""
    text = _bare(raw)
    return text[text.index(word) :]


class _Reader:
    """Counts the cells of one table."""

    def __init__(self, source: Source, table: _Table, glue: str) -> None:
        self.source = source
        self.table = table
        self.glue = glue
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self.names, self.trailing = self._header()

    def _problem(self, line: int, message: str) -> None:
        self.problems.append(Problem(self.source.at(line), message))

    def _header(self) -> tuple[list[str], list[str]]:
        text = self.glue.join(self.table.header)
        match = re.search(r"\bCPU\s*Affinity|\bNUMA\s*Affinity", text)
        head = text[: match.start()] if match else text
        tail = text[match.start() :] if match else ""
        names = head.split()
        if names and names[-1] == "CPU":
            names.pop()  # a header cut inside "CPU Affinity"
        if len(names) > MAX_COLUMNS:
            self._problem(
                self.table.line, f"the header names {len(names)} devices, at most {MAX_COLUMNS}"
            )
            self._check()
        twice = sorted({name for name in names if names.count(name) > 1})
        for name in twice:
            self._problem(self.table.line, f"the header names {name} twice")
        if [n for n in names if _GPU.fullmatch(n)] != names[: sum(map(_is_gpu, names))]:
            self._problem(self.table.line, "the header mixes GPU and NIC columns")
        columns = re.findall(r"CPU\s*Affinity|NUMA\s*Affinity|GPU\s*NUMA\s*ID", tail)
        return names, [re.sub(r"\s+", " ", column) for column in columns]

    def matrix(self) -> SmiMatrix:
        names = self.names
        gpus = sum(map(_is_gpu, names))
        rows: dict[str, tuple[int, list[str], list[str]]] = {}
        for row in self.table.rows:
            if row.label not in names:
                self._problem(row.line, f"row {row.label} has no column in line {self.table.line}")
            elif row.label in rows:
                self._problem(row.line, f"row {row.label} is given twice")
            else:
                rows[row.label] = (row.line, *self._cells(row))
        self._missing(rows, gpus)
        self._check()
        cells = self._pairs(rows)
        self._check()
        ends = [rows[name][2] for name in names[:gpus]]
        return SmiMatrix(
            tuple(names),
            gpus,
            tuple(rows[name][0] if name in rows else 0 for name in names),
            cells,
            tuple(self._numa(end) for end in ends),
            any(len(end) > 2 and end[-1].isdecimal() for end in ends)
            and self.trailing[-1:] == ["GPU NUMA ID"],
            2 if "GPU NUMA ID" in self.trailing else int("NUMA Affinity" in self.trailing),
            (*self.notes, *self._legend()),
        )

    def _check(self) -> None:
        if self.problems:
            raise InputError(self.problems)

    def _cells(self, row: _Row) -> tuple[list[str], list[str]]:
        """Cells of a row and what follows them."""
        count = len(self.names)
        text = self.glue.join(row.parts)
        words = text.split()
        if len(words) >= count and all(_CELL.fullmatch(w) for w in words[:count]):
            rest = words[count:]
            if any(_CELL.fullmatch(word) for word in rest):
                self._problem(
                    row.line,
                    f"row {row.label} has {sum(bool(_CELL.fullmatch(w)) for w in words)} cells,"
                    f" the header in line {self.table.line} names {count} columns",
                )
            return words[:count], self._ending(text, rest)
        if any(_P2P_CELL.fullmatch(word) for word in words[:count]):
            self._problem(row.line, _P2P)
            return [], []
        apart: list[str] = []
        for word in words:
            glued = len(apart) < count and not _CELL.fullmatch(word) and _GLUED.fullmatch(word)
            apart += _CELL.findall(word) if glued else [word]
        if len(apart) >= count and all(_CELL.fullmatch(w) for w in apart[:count]):
            lost = [w for w in words if not _CELL.fullmatch(w) and _GLUED.fullmatch(w)]
            self.notes.append(
                f"line {row.line}: row {row.label} had lost a blank in {', '.join(lost)}; read as"
                f" {', '.join(' '.join(_CELL.findall(w)) for w in lost)}, which agrees with the"
                " mirrored cells"
            )
            return apart[:count], self._ending(text, apart[count:])
        valid = 0
        while valid < len(apart) and valid < count and _CELL.fullmatch(apart[valid]):
            valid += 1
        torn = valid == len(apart) - 1 and row.line == self.table.end
        if valid < min(len(apart), count) and not (torn or _AFFINITY.fullmatch(apart[valid])):
            self._problem(
                row.line,
                f"row {row.label}, column {self.names[valid]}: got {apart[valid]!r}, expected X,"
                " NV#, PIX, PXB, PHB, NODE or SYS",
            )
        else:
            self._problem(
                row.line,
                f"row {row.label} is cut: {valid} of {count} cells, the rest is missing"
                + self._nvlink_down(),
            )
        return [], []

    def _nvlink_down(self) -> str:
        """Warn where whole rows show no NVLink on a machine that looks like SXM."""
        count = len(self.names)
        rows = [self.glue.join(row.parts).split()[:count] for row in self.table.rows]
        whole = [row for row in rows if len(row) == count]
        near = all("PIX" in row[sum(map(_is_gpu, self.names)) :] for row in whole)
        if not whole or not near or any(cell.startswith("NV") for row in rows for cell in row):
            return ""
        return (
            "; the rows before it show no NVLink though every GPU has a NIC on its own switch, as"
            " SXM machines do: NVLink or the fabric manager may be down"
        )

    def _ending(self, text: str, rest: list[str]) -> list[str]:
        """Affinity columns; by tabs where the paste kept them, since they may be empty."""
        fields = text.split("\t")
        first = len(self.names) + 1
        if len(fields) > first:
            return [piece.strip() for piece in fields[first:]]
        return rest if len(rest) == len(self.trailing) else []

    def _numa(self, ending: list[str]) -> str:
        """NUMA node of a GPU, or its CPU list where there is no such column."""
        if "NUMA Affinity" in self.trailing:
            value = ending[1] if len(ending) > 1 else ""
            return f"NUMA {value}" if value not in ("", "N/A") else ""
        value = ending[0] if ending else ""
        return f"CPUs {value}" if value not in ("", "N/A") else ""

    def _missing(self, rows: dict[str, tuple[int, list[str], list[str]]], gpus: int) -> None:
        absent = [name for name in self.names[:gpus] if name not in rows]
        if absent:
            self._problem(
                self.table.end,
                f"the header names {gpus} GPUs, the rows of {', '.join(absent)} are missing; the"
                " paste is cut here",
            )
        nics = [name for name in self.names[gpus:] if name not in rows]
        if nics:
            self.notes.append(
                f"the rows of {', '.join(nics)} are missing; their columns in the GPUs' rows are"
                " there, only how these NICs stand to each other is unknown"
            )

    def _pairs(
        self, rows: dict[str, tuple[int, list[str], list[str]]]
    ) -> dict[tuple[int, int], str]:
        """Cells above the diagonal, checked against those below."""
        cells: dict[tuple[int, int], str] = {}
        lines: dict[tuple[int, int], int] = {}
        for i, name in enumerate(self.names):
            if name not in rows:
                continue
            line, row, _ = rows[name]
            for j, cell in enumerate(row):
                where = f"row {name}, column {self.names[j]}"
                if (cell == "X") != (i == j):
                    expected = "X, the cell of a device with itself" if i == j else "no X"
                    self._problem(line, f"{where}: got {cell}, expected {expected}")
                    break
                key = (min(i, j), max(i, j))
                if i != j and cells.setdefault(key, cell) != cell:
                    self._problem(
                        line,
                        f"{where}: got {cell}, but line {lines[key]} says {cells[key]} for the same"
                        " pair",
                    )
                lines.setdefault(key, line)
        return cells

    def _legend(self) -> list[str]:
        found = _LEGEND.findall(self.source.text)
        names = [f"{nic} = {name}" for nic, name in found if nic in self.names]
        return [f"NIC legend: {', '.join(names)}"] if names else []


def _is_gpu(name: str) -> bool:
    return bool(_GPU.fullmatch(name))
