"""Curves and numbers as text."""

from __future__ import annotations

import numpy as np
import pytest

from rookery.report.text_curve import bar, column_range, curve_lines, sparkline
from rookery.report.units import (
    bytes_text,
    count_text,
    duration_text,
    interval_text,
    number_text,
    percent_text,
)


def test_a_line_rises_from_the_lower_left_to_the_upper_right() -> None:
    x = np.arange(5.0)
    assert curve_lines(x, x, 5, 5, ascii_only=True) == [
        "    *", "   **", " *** ", "**   ", "*    ",
    ]  # fmt: skip
    first, second = curve_lines(x, x, 4, 2, ascii_only=False)
    assert first[0] == second[-1] == chr(0x2800) and first[-1] != chr(0x2800) != second[0]


def test_a_peak_between_two_columns_is_drawn() -> None:
    x = np.arange(101.0)
    y = np.where(x == 33, 9.0, 0.0)
    low, high = column_range(x, y, 10)
    np.testing.assert_array_equal(high, [0, 0, 0, 9, 0, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(low, np.zeros(10))


@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_point_and_a_constant_are_drawn(ascii_only: bool) -> None:
    for x in (np.ones(1), np.arange(3.0)):
        lines = curve_lines(x, np.full(len(x), -7.0), 6, 3, ascii_only)
        assert [len(line) for line in lines] == [6, 6, 6]
        assert set("".join(lines)) - {" ", chr(0x2800)}


def test_sparklines_begin_at_zero() -> None:
    x = np.arange(8.0)
    assert sparkline(x, np.ones(8), 4, False) == "████"
    assert sparkline(x, np.array([0, 0, 4, 4, 4, 8, 8, 8.0]), 8, False)[-1] == "█"
    assert sparkline(x, np.zeros(8), 4, False) == sparkline(x[:0], x[:0], 4, False) == ""


@pytest.mark.parametrize("share", [0.0, 1e-9, 0.3, 1.0, 7.0, -1.0, np.nan])
def test_bars_have_the_length_of_their_share(share: float) -> None:
    assert len(bar(share, 10, False)) == len(bar(share, 10, True)) == 10
    assert bool(bar(share, 10, False).strip()) == (share > 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (number_text(0), "0"), (number_text(1), "1"), (number_text(-1.234), "-1.23"),
        (number_text(12.34), "12.3"), (number_text(999.4), "999"), (number_text(999.9), "1k"),
        (number_text(30208), "30.2k"), (number_text(1e6), "1M"), (number_text(4e-5), "4.0e-05"),
        (number_text(None), "–"), (number_text(np.nan), "–"), (number_text(np.inf), "–"),
        (count_text(1234), "1234"), (count_text(12345), "12.3k"),
        (interval_text(2.43e-5), "24.3 µs"), (interval_text(1.5), "1.5 s"),
        (interval_text(9.999e-4), "1 ms"), (interval_text(0), "0 s"), (interval_text(None), "–"),
        (duration_text(0.2), "0:00"), (duration_text(59.7), "1:00"),
        (duration_text(3723), "1:02:03"),
        (duration_text(2 * 86400 + 3 * 3600 + 240), "2 d 03:04"), (duration_text(np.inf), "–"),
        (bytes_text(120 * 2**20), "120 MiB"), (bytes_text(0), "0 B"), (bytes_text(1023.9), "1 KiB"),
        (bytes_text(2**20, signed=True), "+1 MiB"), (bytes_text(-(2**20), signed=True), "-1 MiB"),
        (percent_text(0.123), "12 %"), (percent_text(0.001), "<1 %"), (percent_text(0), "0 %"),
        (percent_text(np.nan), "–"),
    ],
)  # fmt: skip
def test_numbers_have_three_digits_and_a_unit(text: str, expected: str) -> None:
    assert text == expected
