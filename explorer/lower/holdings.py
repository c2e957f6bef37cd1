"""Holdings: what every rank has of every chunk, where it can be read, and who still reads it.

What a rank has of a chunk is a *version*: its own contribution, then what every arrival makes of
it. A version can be read from the cells listed for it, first those that are complete first.
"""

from __future__ import annotations

from explorer.lower.memory import CELL_BITS
from explorer.lower.messages import Messages
from explorer.lower.runs import Runs
from explorer.lower.windows import in_any_order, in_order


class Holdings:
    """Versions of all (rank, chunk) pairs at one moment of the plan.

    Columns are the chunks of messages, as in :class:`explorer.lower.messages.Messages`.

    Parameters
    ----------
    messages
        All messages.
    ranks
        Number of ranks.
    """

    def __init__(self, messages: Messages, ranks: int) -> None:
        self.runs = Runs(ranks)
        self._tracks = messages.collective.reduces
        self._source_key: list[int] = messages.source_key.tolist()
        self._target_key: list[int] = messages.target_key.tolist()
        self._source_input: list[int] = messages.source_input.tolist()
        self._target_input: list[int] = messages.target_input.tolist()
        self._alias_busy: list[int] = messages.alias_busy.tolist()
        self._forward: list[int] = messages.forward.tolist()
        self.output: list[int] = messages.target_output.tolist()
        self._cells: dict[int, list[int]] = {}
        # last tick at which a cell is still being sent; only sums are ever overwritten
        self._busy: dict[int, int] = {}

    def at_source(self, column: int) -> list[int]:
        """Cells from which the sender of a message can read a chunk."""
        return self._held(self._source_key[column], self._source_input[column])

    def at_target(self, column: int) -> list[int]:
        """Cells from which the receiver of a message can read what it has of a chunk."""
        return self._held(self._target_key[column], self._target_input[column])

    def replace(self, column: int, cell: int) -> None:
        """Note that a message has made a new version of a chunk at its receiver."""
        self._cells[self._target_key[column]] = [cell]

    def preset(self, key: int, cells: list[int]) -> None:
        """Note the cells a rank has a chunk in from the beginning."""
        self._cells[key] = cells

    def _held(self, key: int, initial: int) -> list[int]:
        cells = self._cells.get(key)
        if cells is None:
            cells = self._cells[key] = [initial]
        return cells

    def window(self, rank: int, columns: range) -> tuple[list[int], list[int]] | list[int]:
        """Find consecutive cells of a rank that hold the chunks of one message.

        The order is the receiver's where it has one, so that chunks land where they belong, else
        the one in which the sender has them; runs are laid side by side for it if they can be.

        Returns
        -------
        (list[int], list[int]) | list[int]
            Columns in the order in which they travel and their cells; only the columns when
            there are no such cells, and chunks have to be copied together.
        """
        order = sorted(columns, key=self._wish)
        cells = [self.at_source(c) for c in order]
        places = [[self.runs.place(cell) for cell in some] for some in cells]
        chosen = in_order(places)
        if chosen is not None:
            return order, [some[j] for some, j in zip(cells, chosen, strict=True)]
        found = in_any_order(places) or self._join(rank, places)
        if found is None:
            return order
        return [order[i] for i in found[0]], [cells[i][j] for i, j in zip(*found, strict=True)]

    def operand(self, columns: list[int]) -> list[int] | None:
        """Consecutive cells in which a receiver has chunks in this order, if there are any."""
        cells = [self.at_target(c) for c in columns]
        chosen = in_order([[self.runs.place(cell) for cell in some] for some in cells])
        if chosen is None:
            return None
        return [some[j] for some, j in zip(cells, chosen, strict=True)]

    def _wish(self, column: int) -> tuple[int, int, int]:
        """Sort key of a chunk in its message: its place at the receiver, else what it is for."""
        cell = self.output[column]
        if cell < 0:
            cell = self._target_input[column]
        return (0, cell, column) if cell >= 0 else (1, self._forward[column], column)

    def _join(self, rank: int, places: list[list[int]]) -> tuple[list[int], list[int]] | None:
        """Lay the runs that hold given chunks side by side, if they hold no others."""
        parts: dict[int, list[tuple[int, int, int]]] = {}
        for i, some in enumerate(places):
            scratch = [(cell, j) for j, cell in enumerate(some) if self.runs.holds(cell)]
            if not scratch:
                return None
            cell, j = scratch[0]
            parts.setdefault(cell >> CELL_BITS << CELL_BITS, []).append((cell, i, j))
        if any(self.runs.size(first) != len(part) for first, part in parts.items()):
            return None
        # dictionaries keep the order of the receiver's wishes
        self.runs.join(rank, list(parts))
        held = [entry for part in parts.values() for entry in sorted(part)]
        return [i for _, i, _ in held], [j for _, _, j in held]

    # who still reads

    def sending(self, cells: list[int], until: int) -> None:
        """Note that cells are being sent until a tick."""
        if self._tracks:
            for cell in cells:
                self._busy[cell] = max(self._busy.get(cell, -1), until)

    def all_free(self, cells: list[int], tick: int) -> bool:
        """Whether nobody sends cells after a tick."""
        return all(self._busy.get(cell, -1) <= tick for cell in cells)

    def free_at(self, column: int) -> int:
        """Tick from which on nobody sends what the chunk's output cell still holds."""
        return max(self._alias_busy[column], self._busy.get(self.output[column], -1))

    def outputs_free(self, columns: list[int], tick: int) -> bool:
        """Whether chunks belong side by side in the output, which nobody sends after a tick."""
        first = self.output[columns[0]]
        return first >= 0 and all(
            self.output[c] == first + i and self.free_at(c) <= tick for i, c in enumerate(columns)
        )
