"""Plots: one readable picture per machine and collective, the same bytes for the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from explorer.compare.algorithm import setting_of
from explorer.compare.ranking import rank
from explorer.errors import InputError
from explorer.report.plots import MAX_LINES, draw, file_names, plot_rows


def rows(
    methods: dict[str, tuple[float, float]], sizes: list[int], **changes: Any
) -> list[dict[str, Any]]:
    return [
        {
            "point": f"{method}-{size}",
            "topology": "ndv2",
            "nodes": 2,
            "ranks": 16,
            "collective": "allgather",
            "placement": "out",
            "method": method,
            "cost_model": "exclusive",
            "fidelity": "ideal",
            "requested_bytes": size,
            "size_bytes": size,
            "time_us": alpha + beta * size,
            "busbw_gbs": size / (alpha + beta * size) / 1e3 * 15 / 16,
            "bound_us": 1 + 1e-5 * size,
            **changes,
        }
        for method, (alpha, beta) in methods.items()
        for size in sizes
    ]


SIZES = [1 << k for k in range(10, 31, 4)]
TWO = {"ring": (40.0, 1e-4), "milp": (9.0, 2e-4)}


def test_one_file_per_machine_and_collective_with_plain_names(tmp_path: Path) -> None:
    given = rows(TWO, SIZES) + rows(TWO, SIZES, collective="alltoall")
    given += rows(TWO, SIZES, topology="my machines/a b.yaml", nodes=1)
    files = plot_rows(given, tmp_path / "new")
    assert [f.name for f in files] == [
        "my-machines-a-b.yaml_allgather.png",
        "ndv2-x2_allgather.png",
        "ndv2-x2_alltoall.png",
    ]
    again = plot_rows(reversed(given), tmp_path / "again")
    assert [f.read_bytes() for f in files] == [f.read_bytes() for f in again]
    picture = imread(files[0])
    assert picture.shape[0] > 500
    assert np.ptp(picture) > 0.9


def test_settings_that_share_machine_and_collective_get_names_that_differ() -> None:
    given = rows(TWO, SIZES) + rows(TWO, SIZES, placement="in") + rows(TWO, SIZES, topology="ndv2 ")
    settings = sorted({setting_of(r) for r in given}, key=repr)
    names = file_names(settings)
    assert len(set(names)) == 3
    assert file_names(settings) == names
    assert any("_in_ideal_exclusive" in name for name in names)


def test_lines_differ_without_colour_and_the_bound_is_among_them() -> None:
    many = {f"m{i:02}": (5.0 + i, 1e-4) for i in range(14)}
    given = rank(rows(many, SIZES))
    figure = draw(setting_of(given[0]), given)
    time_axes, busbw_axes = figure.axes
    lines = time_axes.get_lines()
    assert [line.get_label() for line in lines] == [
        *(f"m{i:02}" for i in range(MAX_LINES)),
        "bound of the machine",
    ]
    looks = {(line.get_marker(), str(line.get_linestyle())) for line in lines}
    assert len(looks) == len(lines)
    (legend,) = figure.legends
    assert legend.get_title().get_text().startswith("4 more")
    assert len(busbw_axes.get_lines()) == len(lines)
    bound = lines[-1]
    assert list(bound.get_xdata()) == SIZES
    assert bound.get_ydata()[0] == pytest.approx(1 + 1e-5 * 1024)
    # busbw of the bound: 15/16 of size over time.
    best = busbw_axes.get_lines()[-1].get_ydata()[-1]
    assert best == pytest.approx(SIZES[-1] / (1 + 1e-5 * SIZES[-1]) / 1e3 * 15 / 16)


def test_sizes_are_written_as_people_say_them_on_an_axis_of_powers_of_two() -> None:
    given = rank(rows(TWO, [1000, 1048560, 1 << 30]))
    figure = draw(setting_of(given[0]), given)
    figure.canvas.draw()
    axes = figure.axes[0]
    ticks = [text.get_text() for text in axes.get_xticklabels()]
    assert axes.get_xscale() == "log"
    assert ticks[:3] == ["512", "4K", "32K"]
    assert 4 <= len(ticks) <= 10


def test_what_has_no_size_or_time_is_left_out(tmp_path: Path) -> None:
    given = rows(TWO, [0], time_us=0.0, busbw_gbs=None, bound_us=0.0)
    given += rows(TWO, [1024], time_us=None, busbw_gbs=None)
    given += rows(TWO, [4096], ranks=1, time_us=0.0, busbw_gbs=None)
    assert plot_rows(given, tmp_path) == []
    assert len(plot_rows(given + rows(TWO, [1024]), tmp_path)) == 1
    assert len(plot_rows(rows(TWO, [1024], busbw_gbs=None, bound_us=None), tmp_path)) == 1


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be made"):
        plot_rows(rows(TWO, SIZES), tmp_path / "file" / "plots")
