"""Open the fonts of matplotlib before the tests, because it keeps their files open."""

from __future__ import annotations

import pytest

from rookery.run.log.curve import draw_curve


@pytest.fixture(scope="session", autouse=True)
def fonts_are_open(tmp_path_factory: pytest.TempPathFactory) -> None:
    draw_curve(tmp_path_factory.mktemp("fonts") / "curve.png", [1], [1.0], "fonts")
