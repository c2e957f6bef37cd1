"""Program to and from the compressed npz bytes that a store keeps; equal programs, equal bytes."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import fields

import numpy as np

from explorer.errors import InputError, Problem
from sim.program import Program

_ARRAYS = tuple(f.name for f in fields(Program) if "Array" in str(f.type))
_SCALARS = tuple(f.name for f in fields(Program) if f.name not in _ARRAYS)


def program_bytes(program: Program) -> bytes:
    """Pack a program: its arrays as they are, its other fields as JSON under ``header``."""
    header = json.dumps({name: getattr(program, name) for name in _SCALARS})
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        header=np.frombuffer(header.encode(), dtype=np.uint8),
        **{name: getattr(program, name) for name in _ARRAYS},
    )
    return buffer.getvalue()


def program_from_bytes(data: bytes, where: str = "program") -> Program:
    """Unpack a program.

    Raises
    ------
    InputError
        If the bytes are not a packed program; ``where`` names them.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as packed:
            header = json.loads(packed["header"].tobytes())
            return Program(**header, **{name: packed[name] for name in _ARRAYS})
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(Problem(where, f"is not a packed program: {error}")) from None
