"""Comparing what runs leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rookery.run.checkpoint.files import load_checkpoint


def assert_equal(a: Any, b: Any, path: str = "") -> None:
    """Compare plain data exactly, and name where it differs."""
    if isinstance(a, dict):
        assert a.keys() == b.keys(), path
        for key in a:
            assert_equal(a[key], b[key], f"{path}.{key}")
    elif isinstance(a, list):
        assert len(a) == len(b), path
        for k, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_equal(x, y, f"{path}[{k}]")
    else:
        np.testing.assert_array_equal(a, b, err_msg=path)


def assert_same_run(one: Path, other: Path) -> None:
    """Compare where two runs stand, but for times and the number of checkpoints on the way."""
    states = [load_checkpoint(path / "checkpoint.pt") for path in (one, other)]
    for state in states:
        for name in ("seconds", "saves", "companions"):
            del state[name]
        if not state["collector"]["row"]:
            del state["collector"]["final"]  # of a rollout that is over, if it is still there
    assert_equal(*states)
