"""Several runs in one picture."""

from __future__ import annotations

import io

import numpy as np
import pytest
from matplotlib.figure import Figure

from rookery.report.comparison import Curve, Panel, draw_comparison, draw_group, spread_of


def _line(*points: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.array(points, np.float64).T
    return x, y


def test_runs_with_different_steps_share_a_common_grid() -> None:
    spread = spread_of([_line((0, 0), (10, 10)), _line((0, 2), (5, 7), (10, 12))], points=5)
    np.testing.assert_allclose(spread.grid, [0, 2.5, 5, 7.5, 10])
    np.testing.assert_allclose(spread.mean, [1, 3.5, 6, 8.5, 11])
    np.testing.assert_allclose(spread.std, [1, 1, 1, 1, 1])
    assert spread.num_runs.tolist() == [2] * 5


def test_means_use_the_runs_that_reached_a_step() -> None:
    spread = spread_of([_line((0, 1), (4, 1)), _line((2, 3), (3, 3)), _line((8, 5), (8.5, 5))], 18)
    at = {float(x): i for i, x in enumerate(spread.grid)}
    assert [spread.num_runs[at[x]] for x in (0.0, 2.5, 4.0, 6.0, 8.0)] == [1, 2, 1, 0, 1]
    means = [spread.mean[at[x]] for x in (0.0, 2.5, 4.0, 6.0, 8.0)]
    np.testing.assert_allclose(means, [1, 2, 1, np.nan, 5])
    assert np.isnan(spread.std[at[6.0]]) and spread.std[at[2.5]] == 1.0


def test_runs_of_one_point_are_drawn() -> None:
    lone, long = _line((3, 100)), _line((0, 10), (7, 10))
    spread = spread_of([lone, long, long], points=5)
    at = spread.grid.tolist().index(3)
    assert spread.num_runs[at] == 3 and spread.mean[at] == 40
    for runs in ([_line((1024, 10)), _line((2048, 20))], [lone, long, long]):
        axes = Figure().add_subplot()
        draw_group(axes, Curve("runs", runs), 0)
        seen = [line.get_xydata()[line.get_markevery()].tolist() for line in axes.get_lines()]
        assert seen == [[[1024, 10], [2048, 20]], []] if len(runs) == 2 else [[], [[3, 40]]]


def test_runs_at_a_single_step_have_a_spread() -> None:
    spread = spread_of([_line((7, 1)), _line((7, 3))])
    assert (spread.grid.tolist(), spread.mean.tolist(), spread.std.tolist()) == ([7], [2], [1])


@pytest.mark.parametrize(
    ("format", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")]
)
def test_comparisons_are_drawn_in_every_format(format: str, start: bytes) -> None:
    curves = [
        Curve("one point", [_line((1, 1))]),
        Curve("one run", [_line((1, 1), (5, 3))], [(5, 4.0, 1.0), (6, np.nan, np.nan)]),
        Curve("$two_runs$", [_line((1, 1), (5, 3)), _line((2, 1), (9, 3))], [(5, 4.0, 1.0)]),
    ]
    many = [Curve(f"_setting={i} " * 12, [_line((1, i), (2, i))]) for i in range(24)]
    file = io.BytesIO()
    panels = [Panel("$", curves), Panel("many", many), Panel("c", curves), Panel("d", curves)]
    draw_comparison(file, panels, "x", "a_$metric", format)
    assert file.getvalue().startswith(start)


def test_a_single_run_is_drawn_smoothed_and_raw() -> None:
    x = np.arange(5000.0)
    noise = np.random.default_rng(0).normal(0, 1, len(x))
    axes = Figure().add_subplot()
    draw_group(axes, Curve("one", [(x, 3 * x + noise)]), 0, is_smoothed=True)
    raw, mean = axes.get_lines()
    assert len(raw.get_xdata()) == 5000 and len(mean.get_xdata()) == 400
    inner = mean.get_xydata()[10:-10]
    assert np.abs(inner[:, 1] - 3 * inner[:, 0]).max() < 2  # neither noise nor a lag of 50 values
    (band,) = axes.collections
    place, value = band.get_paths()[0].vertices.T
    edges = value[place == mean.get_xdata()[200]]
    np.testing.assert_allclose(np.ptp(edges) / 2, 3 * np.std(np.arange(100)), rtol=0.02)


def test_few_points_are_not_smoothed() -> None:
    axes = Figure().add_subplot()
    points = _line(*((i, i % 2) for i in range(20)))
    draw_group(axes, Curve("few", [points]), 0, is_smoothed=True)
    np.testing.assert_array_equal(axes.get_lines()[1].get_ydata(), points[1])
