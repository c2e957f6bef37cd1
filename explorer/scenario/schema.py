"""Schema of one scenario section: a machine and the axes that are swept on it.

Validated with a context of known :class:`~explorer.scenario.words.Words` and the folder that
file names are relative to. Every axis takes one value or a list.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NoReturn

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
)
from pydantic_core import PydanticCustomError

from explorer.core.collective import COLLECTIVES
from explorer.core.costs import CostModel
from explorer.errors import InputError, nearest
from explorer.scenario.words import FIDELITIES, PLACEMENTS, Words
from explorer.units import parse_sizes
from sim.protocols import PROTOCOLS

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,62}")
"""Names of scenarios: they become file names."""

PROFILE = "profile"
"""Word for ``sizes`` of a TACCL profile: one chunk, in the profile's own units."""

DEFAULT_CHUNKS = "default"
"""Word for ``chunks``: the sketch's own count, else 1."""

NO_SKETCH = "none"
"""Word for ``sketches``: search without a sketch."""


def refuse(message: str) -> NoReturn:
    """Report a problem of the value under validation."""
    raise PydanticCustomError("scenario", "{message}", {"message": message})


def _words(info: ValidationInfo) -> Words:
    words = (info.context or {})["words"]
    if not isinstance(words, Words):
        raise TypeError("a section is validated with words in its context")
    return words


def _is_file(value: str, info: ValidationInfo) -> bool:
    """Whether the value names a file beside the scenario."""
    return Path((info.context or {})["folder"], value).is_file()


def _one_of(allowed: Callable[[Words], tuple[str, ...]]) -> AfterValidator:
    def check(value: str, info: ValidationInfo) -> str:
        words = allowed(_words(info))
        if value not in words:
            refuse(f"got {value!r}, {nearest(value, words)}")
        return value

    return AfterValidator(check)


def _fixed(*words: str) -> AfterValidator:
    return _one_of(lambda _: words)


def _text(value: object) -> object:
    """Refuse what is not text, with what was got."""
    return value if isinstance(value, str) else refuse(f"got {value!r}, expected text")


def _whole(most: int) -> BeforeValidator:
    def check(value: object) -> object:
        number = int(value) if isinstance(value, float) and value.is_integer() else value
        if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= most:
            refuse(f"got {value!r}, expected a whole number from 1 to {most}")
        return number

    return BeforeValidator(check)


def _seconds(value: object) -> object:
    bad = isinstance(value, bool) or not isinstance(value, (int, float))
    if bad or not 0 < float(str(value)) < 1e9:
        refuse(f"got {value!r}, expected seconds above 0")
    return value


def _name(value: str) -> str:
    if not NAME.fullmatch(value):
        refuse(f"got {value!r}, expected at most 63 of A-Z a-z 0-9 _ . + -")
    return value


def _topology(value: str, info: ValidationInfo) -> str:
    words = _words(info).topologies
    if value.partition(":")[0] in words or _is_file(value, info):
        return value
    refuse(f"got {value!r}, neither a builder nor a file beside the scenario; "
           f"{nearest(value.partition(':')[0], words)}")  # fmt: skip


def _sketch(value: str, info: ValidationInfo) -> str:
    words = (*_words(info).sketches, NO_SKETCH)
    if value in words or _is_file(value, info):
        return value
    refuse(f"got {value!r}, neither a sketch nor a file beside the scenario; "
           f"{nearest(value, words)}")  # fmt: skip


def _sizes(value: object) -> tuple[int | None, ...]:
    """Sizes of one entry, which may be a range."""
    if value == PROFILE:
        return (None,)
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        refuse(f"got {value!r}, expected a size such as 64K, a range such as 1K..1G x4,"
               f" or {PROFILE}")  # fmt: skip
    try:
        return tuple(parse_sizes(str(value) if isinstance(value, float) else value))
    except InputError as error:
        refuse("; ".join(problem.message for problem in error.problems))


def _chunks(value: object) -> object:
    if value == DEFAULT_CHUNKS:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 1024:
        refuse(f"got {value!r}, expected a whole number from 1 to 1024, or {DEFAULT_CHUNKS}")
    return value


def _root(value: object) -> object:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        refuse(f"got {value!r}, expected a rank from 0")
    return value


def _listed(value: object) -> object:
    """Let an axis be one value or a list of at least one."""
    if value == []:
        refuse("is empty, expected at least one value")
    return value if isinstance(value, list) else [value]


Text = Annotated[str, BeforeValidator(_text)]
Topology = Annotated[Text, AfterValidator(_topology)]
Collective = Annotated[Text, _fixed(*COLLECTIVES)]
Method = Annotated[Text, _one_of(lambda words: words.methods)]
Sketch = Annotated[Text, AfterValidator(_sketch)]
Dialect = Annotated[Text, _one_of(lambda words: words.dialects)]
Sizes = Annotated[tuple[int | None, ...], BeforeValidator(_sizes)]
Chunks = Annotated[int | None, BeforeValidator(_chunks)]
Small = Annotated[int, _whole(64)]
Seconds = Annotated[float, BeforeValidator(_seconds)]
_AXIS = BeforeValidator(_listed)


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Limits(_Model):
    """When to stop searching."""

    time_s: Seconds | None = Field(
        None, description="Wall-clock seconds of one synthesis; results then depend on the machine."
    )
    nodes: Annotated[int, _whole(10**9)] | None = Field(
        None, description="Branch-and-bound nodes of each solver run."
    )
    point_s: Seconds | None = Field(
        None, description="Wall-clock seconds of one point; its worker is killed, the point fails."
    )


class Section(_Model):
    """One machine and what is swept on it."""

    name: Annotated[Text, AfterValidator(_name)] = Field(
        description="Unique in the file; with one scenario in the file, the file's name."
    )
    topology: Topology = Field(description="Builder, or a file relative to the scenario.")
    nodes: Annotated[tuple[Annotated[int, _whole(4096)], ...] | None, _AXIS] = Field(
        None, description="Node counts, for builders and for files of one node."
    )
    collectives: Annotated[tuple[Collective, ...], _AXIS] = Field(description="Collectives.")
    sizes: Annotated[tuple[Sizes, ...], _AXIS] = Field(
        description="Sizes as nccl-tests counts them; ranges `1K..1G x4`; or `profile`."
    )
    fidelity: Annotated[Text, _fixed(*FIDELITIES)] = Field(
        description="`ideal` or `runtime`: what simulated times include."
    )
    methods: Annotated[tuple[Method, ...], _AXIS] = Field(
        description="Synthesizers and baselines to compare."
    )
    sketches: Annotated[tuple[Sketch, ...], _AXIS] = Field(
        (NO_SKETCH,), description="Sketches for the synthesizers; files relative to the scenario."
    )
    chunks: Annotated[tuple[Chunks, ...], _AXIS] = Field(
        (None,), description="Chunks per rank; `default` is the sketch's own count, else 1."
    )
    placement: Annotated[tuple[Annotated[Text, _fixed(*PLACEMENTS)], ...], _AXIS] = Field(
        ("out",), description="Calls a program serves: `in`, `out` or `both`."
    )
    root: Annotated[int, BeforeValidator(_root)] = Field(
        0, description="Root of broadcast and reduce."
    )
    cost_model: Annotated[Text, _fixed(*CostModel)] = Field(
        CostModel.EXCLUSIVE.value, description="`exclusive` or `pipelined`."
    )
    protocols: Annotated[tuple[Annotated[Text, _fixed(*PROTOCOLS)], ...], _AXIS] = Field(
        ("Simple",), description="Wire protocols: `Simple`, `LL`, `LL128`."
    )
    channels: Annotated[tuple[Small, ...], _AXIS] = Field(
        (1,), description="Channels of a baseline."
    )
    instances: Annotated[tuple[Small, ...], _AXIS] = Field(
        (1,), description="Parallel copies over split chunks."
    )
    dialect: Dialect = Field(
        "executor", description="Runtime whose limits programs must respect, or `unlimited`."
    )
    limits: Limits = Field(
        Limits(time_s=None, nodes=None, point_s=None), description="When to stop."
    )

    @property
    def all_sizes(self) -> tuple[int | None, ...]:
        """Sizes with ranges written out, in order, none twice."""
        return tuple(dict.fromkeys(size for entry in self.sizes for size in entry))
