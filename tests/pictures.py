"""Learning curves, of which most tests need none."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rookery.telemetry import curve

draw_curve = curve.draw_curve  # the one that draws


@contextmanager
def one_for_all(folder: Path) -> Iterator[None]:
    """Draw one curve, and have every run of the block take it, for drawing is most of a short run.

    Matplotlib keeps the files of its fonts open from then on, which no test is to blame for.

    Args:
        folder: for the picture.
    """
    picture = folder / "curve.png"
    draw_curve(picture, [1], [1.0], "one for all")

    def take(path: Path, *_: Any) -> None:
        shutil.copyfile(picture, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curve, "draw_curve", take)
        yield
