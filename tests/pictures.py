"""Learning curves, of which most tests need none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from rookery.run.log.curve import draw_curve

DRAWS = "rookery.run.trainer.draw_curve"  # where a run looks for what draws


@contextmanager
def one_for_all(folder: Path) -> Iterator[None]:
    """Draw one curve, and have every run of the block take it, for drawing is most of a short run.

    Matplotlib keeps the files of its fonts open from then on, which no test is to blame for.

    Args:
        folder: for the picture.
    """
    picture = folder / "curve.png"
    with picture.open("wb") as drawn:
        draw_curve(drawn, [1], [1.0], "one for all")

    def take(file: BinaryIO, *_: Any, **__: Any) -> None:
        file.write(picture.read_bytes())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DRAWS, take)
        yield
