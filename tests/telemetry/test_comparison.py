"""Several runs in one picture."""

from __future__ import annotations

import io

import numpy as np
import pytest

from rookery.telemetry.comparison import Curve, Panel, draw_comparison, spread_of


def _line(*points: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.array(points, np.float64).T
    return x, y


def test_runs_with_points_elsewhere_meet_on_a_common_grid() -> None:
    spread = spread_of([_line((0, 0), (10, 10)), _line((0, 2), (5, 7), (10, 12))], points=5)
    np.testing.assert_allclose(spread.grid, [0, 2.5, 5, 7.5, 10])
    np.testing.assert_allclose(spread.mean, [1, 3.5, 6, 8.5, 11])
    np.testing.assert_allclose(spread.std, [1, 1, 1, 1, 1])
    assert spread.num_runs.tolist() == [2] * 5


def test_where_a_run_has_not_come_the_others_count() -> None:
    spread = spread_of([_line((0, 1), (4, 1)), _line((2, 3), (3, 3)), _line((8, 5), (8.5, 5))], 18)
    at = {float(x): i for i, x in enumerate(spread.grid)}
    assert [spread.num_runs[at[x]] for x in (0.0, 2.5, 4.0, 6.0, 8.0)] == [1, 2, 1, 0, 1]
    means = [spread.mean[at[x]] for x in (0.0, 2.5, 4.0, 6.0, 8.0)]
    np.testing.assert_allclose(means, [1, 2, 1, np.nan, 5])
    assert np.isnan(spread.std[at[6.0]]) and spread.std[at[2.5]] == 1.0


def test_one_place_is_a_grid_too() -> None:
    spread = spread_of([_line((7, 1)), _line((7, 3))])
    assert (spread.grid.tolist(), spread.mean.tolist(), spread.std.tolist()) == ([7], [2], [1])


@pytest.mark.parametrize(
    ("format", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")]
)
def test_a_comparison_is_a_picture_of_any_format(format: str, start: bytes) -> None:
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
