"""The learning curve of one run as a picture."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from rookery.run.log.curve import draw_curve, running_mean, running_std


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The figures that were saved."""
    figures: list[Any] = []
    save = Figure.savefig

    def note(figure: Any, *args: Any, **options: Any) -> None:
        figures.append(figure)
        save(figure, *args, **options)

    monkeypatch.setattr(Figure, "savefig", note)
    return figures


def _draw(*args: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    draw_curve(file, *args, **options)
    return file.getvalue()


def _labels(figure: Any) -> list[str]:
    legend = figure.axes[0].get_legend()
    return [] if legend is None else [text.get_text() for text in legend.get_texts()]


def test_the_running_mean_starts_with_a_shorter_window() -> None:
    np.testing.assert_allclose(running_mean(np.array([2.0, 4.0, 6.0]), 2), [2, 3, 5])


def test_a_centred_mean_does_not_lag() -> None:
    line = np.arange(9.0)
    np.testing.assert_allclose(running_mean(line, 3, is_centred=True)[1:-1], line[1:-1])
    np.testing.assert_allclose(running_mean(line, 3, is_centred=True)[[0, -1]], [0.5, 7.5])
    expected = [np.std(line[max(i - 1, 0) : i + 2]) for i in range(9)]
    np.testing.assert_allclose(running_std(line, 3, is_centred=True), expected)


def test_the_running_deviation_uses_the_window_of_the_mean() -> None:
    values = np.random.default_rng(0).normal(1e9, 1.0, 50)
    expected = [np.std(values[max(i - 6, 0) : i + 1]) for i in range(50)]
    np.testing.assert_allclose(running_std(values, 7), expected, atol=1e-4)


@pytest.mark.parametrize("count", [0, 1, 500])
def test_the_curve_is_a_png_file(count: int) -> None:
    picture = _draw(list(range(count)), [float(i) for i in range(count)], "a title")
    assert picture.startswith(b"\x89PNG")


def test_episodes_are_points_at_their_steps_with_a_running_mean(drawn: list[Any]) -> None:
    _draw([3, 8, 20], [1.0, 2.0, 6.0], "a title")
    episodes, mean = drawn[0].axes[0].get_lines()
    np.testing.assert_array_equal(episodes.get_xydata(), [[3, 1], [8, 2], [20, 6]])
    np.testing.assert_allclose(mean.get_xydata(), [[3, 1], [8, 1.5], [20, 3]])
    (band,) = drawn[0].axes[0].collections
    np.testing.assert_allclose(
        band.get_datalim(drawn[0].axes[0].transData).y1, 3 + np.std([1, 2, 6])
    )


def test_returns_that_are_not_finite_are_left_out(drawn: list[Any]) -> None:
    _draw([1, 2, 3, 4], [1.0, np.nan, np.inf, 3.0], "a title")
    _, mean = drawn[0].axes[0].get_lines()
    np.testing.assert_allclose(mean.get_xydata(), [[1, 1], [4, 2]])


def test_evaluations_are_points_with_error_bars(drawn: list[Any]) -> None:
    _draw([1], [1.0], "a title", evaluations=[(10, 5.0, 2.0), (20, np.nan, 1.0), (30, 7.0, 0.0)])
    (bars,) = drawn[0].axes[0].containers
    points, _, (spread,) = bars.lines
    np.testing.assert_array_equal(points.get_xydata(), [[10, 5], [30, 7]])
    np.testing.assert_array_equal(spread.get_segments()[0], [[10, 3], [10, 7]])
    assert "evaluation (mean ± std)" in _labels(drawn[0])


def test_evaluations_are_drawn_without_episodes(drawn: list[Any]) -> None:
    _draw([], [], "a title", evaluations=[(10, 5.0, 2.0)])
    assert _labels(drawn[0]) == ["evaluation (mean ± std)"]


def test_the_expected_score_is_a_horizontal_line(drawn: list[Any]) -> None:
    _draw([1], [1.0], "a title", expected=475.0, expected_label="paper")
    line = drawn[0].axes[0].get_lines()[-1]
    assert list(line.get_ydata()) == [475.0, 475.0]
    assert "paper: 475" in _labels(drawn[0])
    _draw([1], [1.0], "a title")
    assert not any(text.startswith("expected") for text in _labels(drawn[1]))


def test_dollars_in_a_title_are_escaped() -> None:
    assert _draw([1], [1.0], r"$\frac$").startswith(b"\x89PNG")
