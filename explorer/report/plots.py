"""Plots: time and bus bandwidth over size, one picture per machine and collective, as PNG.

Drawn on the Agg canvas directly, without pyplot and its global state. Lines differ in marker and
dash, not in colour alone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from explorer.compare.algorithm import Algorithm, Setting, algorithm_of, setting_of
from explorer.compare.ranking import rank
from explorer.errors import InputError, Problem
from explorer.units import format_size

MAX_LINES = 10
"""Lines in one picture; more cannot be told apart."""

# Okabe and Ito's palette (https://jfly.uni-koeln.de/color/), which stays distinct for colour-blind
# readers; yellow is left out, it vanishes on white.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (5, 1, 1, 1)))
_PLACEMENTS = {"in": "in place", "out": "out of place", "both": "in and out of place"}
_MAX_TICKS = 10

Series = dict[int, dict[str, Any]]


def plot_rows(rows: Iterable[dict[str, Any]], folder: str | Path) -> list[Path]:
    """Draw one picture per setting.

    Parameters
    ----------
    rows
        Result rows; those without a time, or at size zero, are not drawn.
    folder
        Where the files go, named ``MACHINE_COLLECTIVE.png``, with what else tells settings apart
        where a machine and collective have several.

    Returns
    -------
    list
        The files, in the order of their settings. Same rows, same bytes.
    """
    drawable = [r for r in rank(rows) if r["place"] and r["size_bytes"] and r["time_us"] > 0]
    groups = [(s, list(group)) for s, group in groupby(drawable, key=setting_of)]
    names = file_names([setting for setting, _ in groups])
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(Problem(str(target), f"cannot be made: {error.strerror}")) from None
    files = []
    for (setting, group), name in zip(groups, names, strict=True):
        figure = draw(setting, group)
        path = target / name
        figure.savefig(path, dpi=130, metadata={"Software": None})
        files.append(path)
    return files


def file_names(settings: Sequence[Setting]) -> list[str]:
    """Names of the pictures: machine and collective, and more only where two would be the same.

    Examples
    --------
    >>> out = Setting("ndv2", 2, 16, "allgather", 0, "out", "exclusive", "ideal", "us", "executor")
    >>> file_names([out])
    ['ndv2-x2_allgather.png']
    """
    short = [f"{s.machine} {s.collective}" for s in settings]
    names = []
    for setting, text in zip(settings, short, strict=True):
        name = "_".join((_word(setting.machine), setting.collective))
        if short.count(text) > 1:
            more = (setting.placement, setting.fidelity, setting.cost_model, setting.dialect)
            name = "_".join((name, *more, f"root{setting.root}"))
        names.append(name)
    return [
        f"{name}.png" if names.count(name) == 1 else f"{name}_{_digest(setting)}.png"
        for name, setting in zip(names, settings, strict=True)
    ]


def draw(setting: Setting, rows: Sequence[dict[str, Any]]) -> Figure:
    """Draw the rows of one setting: time on the left, bus bandwidth on the right."""
    figure = Figure(figsize=(12.5, 5.2), layout="constrained")
    FigureCanvasAgg(figure)
    time_axes, busbw_axes = figure.subplots(1, 2)
    series = _series(rows)
    chosen = _chosen(series)
    for i, algorithm in enumerate(chosen):
        _draw_line(time_axes, series[algorithm], "time_us", algorithm.label, i)
        _draw_line(busbw_axes, series[algorithm], "busbw_gbs", algorithm.label, i)
    _draw_bound(time_axes, busbw_axes, rows)
    sizes = sorted({int(row["size_bytes"]) for row in rows})
    for axes in (time_axes, busbw_axes):
        _size_axis(axes, sizes)
    time_axes.set_yscale("log")
    time_axes.set_ylabel("time (us)")
    busbw_axes.set_ylabel("bus bandwidth (GB/s)")
    busbw_axes.set_ylim(bottom=0)
    figure.suptitle(
        f"{setting.collective} on {setting.machine}, {setting.ranks} ranks"
        f" ({_PLACEMENTS[setting.placement]}, {setting.fidelity}, {setting.cost_model})"
    )
    hidden = len(series) - len(chosen)
    title = f"{hidden} more are never among the first and not drawn" if hidden else None
    handles, labels = time_axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, title=title)
    return figure


def _series(rows: Sequence[dict[str, Any]]) -> dict[Algorithm, Series]:
    """Rows of every algorithm by size; of several at one size the fastest, as they are ranked."""
    series: dict[Algorithm, Series] = {}
    for row in rows:
        series.setdefault(algorithm_of(row), {}).setdefault(row["size_bytes"], row)
    return series


def _chosen(series: dict[Algorithm, Series]) -> list[Algorithm]:
    """The algorithms to draw: by best place anywhere, then by how often they have it."""

    def merit(algorithm: Algorithm) -> tuple[Any, ...]:
        places = sorted(row["place"] for row in series[algorithm].values())
        return (places[0], -places.count(places[0]), algorithm.plainness)

    best = sorted(series, key=merit)[:MAX_LINES]
    return sorted(best, key=lambda a: a.label)


def _draw_line(axes: Axes, series: Series, key: str, label: str, i: int) -> None:
    points = [(size, row[key]) for size, row in sorted(series.items()) if row.get(key) is not None]
    axes.plot(
        [size for size, _ in points],
        [value for _, value in points],
        label=label,
        color=_COLORS[i % len(_COLORS)],
        linestyle=_DASHES[i % len(_DASHES)],
        marker=_MARKERS[i % len(_MARKERS)],
        markersize=6,
        markerfacecolor="none" if i % 2 else None,
        linewidth=1.6,
    )


def _draw_bound(time_axes: Axes, busbw_axes: Axes, rows: Sequence[dict[str, Any]]) -> None:
    """Draw the topology's bound: the lowest at each size, as rounding differs by chunks."""
    bounds: dict[int, float] = {}
    factor: dict[int, float] = {}
    for row in rows:
        size, bound = int(row["size_bytes"]), row.get("bound_us")
        if bound:
            bounds[size] = min(bound, bounds.get(size, bound))
        if row.get("busbw_gbs"):
            factor[size] = row["busbw_gbs"] * row["time_us"]
    style: dict[str, Any] = {"color": "black", "linewidth": 1.0, "linestyle": (0, (2, 2))}
    sizes = sorted(bounds)
    time_axes.plot(sizes, [bounds[s] for s in sizes], label="bound of the machine", **style)
    known = [s for s in sizes if s in factor]
    busbw_axes.plot(known, [factor[s] / bounds[s] for s in known], **style)


def _size_axis(axes: Axes, sizes: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    first, last = sizes[0].bit_length() - 1, sizes[-1].bit_length()
    stride = -(-(last - first + 1) // _MAX_TICKS)
    axes.xaxis.set_major_locator(FixedLocator([2.0**k for k in range(first, last + 1, stride)]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_size(round(value))))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("size (bytes, as nccl-tests counts)")
    axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _word(text: str) -> str:
    """Make a file name of a machine's name."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.") or "machine"


def _digest(setting: Setting) -> str:
    return hashlib.sha256(repr(setting).encode()).hexdigest()[:8]
