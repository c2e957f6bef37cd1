"""Results as a pandas table, CSV or parquet."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from explorer.errors import InputError, Problem
from explorer.store.store import Store

if TYPE_CHECKING:
    import pandas as pd


def to_frame(store: Store) -> pd.DataFrame:
    """One line per point, failed ones too, in the store's order, with the ``results`` columns.

    Columns that are whole numbers where they are known (``requested_bytes``, ``nodes``) keep that
    type with missing values.
    """
    import pandas as pd

    columns, rows = store.results()
    frame = pd.DataFrame(rows, columns=columns)
    whole = ("nodes", "chunks", "ranks", "requested_bytes", "size_bytes", "chunks_per_rank")
    return frame.astype(dict.fromkeys(whole, "Int64") | {"limited": "boolean"})


def to_csv(store: Store, path: Path) -> None:
    """Write :func:`to_frame` as CSV."""
    to_frame(store).to_csv(path, index=False, lineterminator="\n")


def to_parquet(store: Store, path: Path) -> None:
    """Write :func:`to_frame` as parquet.

    Raises
    ------
    InputError
        If pyarrow is not installed.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise InputError(
            Problem(str(path), "parquet needs pyarrow: pip install 'collective-explorer[parquet]'")
        )
    to_frame(store).to_parquet(path, index=False)
