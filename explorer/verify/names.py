"""Names of steps and thread blocks in findings, with their line where they come from a file."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sim.program import BUFFER_TEXT, OP_TEXT, Program

Index = int | np.integer[Any]


class Names:
    """Names the parts of one program.

    Parameters
    ----------
    program
        The program as written.
    step_line, block_line
        Line of every step and block in the file they were read from, or None.
    """

    def __init__(
        self,
        program: Program,
        step_line: npt.NDArray[np.int64] | None = None,
        block_line: npt.NDArray[np.int64] | None = None,
    ) -> None:
        self._program = program
        self._step_line = step_line
        self._block_line = block_line
        self._block = program.step_block()

    def step(self, step: Index) -> str:
        """``gpu 0 tb 1 step 3``, after ``line 14, `` for a file."""
        prefix = "" if self._step_line is None else f"line {self._step_line[step]}, "
        return prefix + self._program.where(int(step))

    def short(self, step: Index) -> str:
        """``gpu0 tb1 step3``."""
        block = int(self._block[step])
        local = int(step) - int(self._program.tb_first[block])
        return f"gpu{self._program.tb_rank[block]} tb{self._program.tb_id[block]} step{local}"

    def block(self, block: Index) -> str:
        """``gpu 0 tb 1``, after ``line 14, `` for a file."""
        prefix = "" if self._block_line is None else f"line {self._block_line[block]}, "
        return f"{prefix}gpu {self._program.tb_rank[block]} tb {self._program.tb_id[block]}"

    def op(self, step: Index) -> str:
        """Spelling of the step's instruction."""
        return OP_TEXT[int(self._program.op[step])]


def address(buffer: int, first: int, count: int = 1) -> str:
    """``o[3]`` or ``o[3..5]``."""
    last = "" if count == 1 else f"..{first + count - 1}"
    return f"{BUFFER_TEXT[buffer]}[{first}{last}]"


def ranges(numbers: list[int]) -> str:
    """Write sorted numbers shortly.

    Examples
    --------
    >>> ranges([0, 1, 2, 5])
    '0-2, 5'
    """
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    shown = [f"{a}" if a == b else f"{a}-{b}" for a, b in parts[:8]]
    return ", ".join(shown) + (", …" if len(parts) > 8 else "")
