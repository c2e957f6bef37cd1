"""Notebooks are kept without outputs, and without logic that belongs into the package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

NOTEBOOKS = sorted(Path(__file__).parent.parent.joinpath("notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_no_outputs_and_defines_nothing(path: Path) -> None:
    cells = [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]
    assert cells
    for cell in cells:
        assert (cell["outputs"], cell["execution_count"]) == ([], None)
        source = "".join(cell["source"])
        assert "def " not in source
        assert "class " not in source
