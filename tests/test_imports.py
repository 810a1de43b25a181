"""What importing rookery gives and costs."""

from __future__ import annotations

import subprocess
import sys

import rookery
from rookery import errors

HEAVY = ("torch", "tyro", "rich", "tensorboard", "matplotlib", "stable_baselines3")


def test_importing_rookery_loads_no_learning_library():
    code = f"import rookery, sys; print([name for name in {HEAVY!r} if name in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.stdout.strip() == "[]", result.stdout + result.stderr


def test_every_error_that_is_raised_on_purpose_can_be_caught_by_its_name():
    names = [
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.RookeryError)
    ]
    assert {"SpaceValueError", "SpaceTypeError"} < set(names) <= set(rookery.__all__)
    assert all(getattr(rookery, name) is getattr(errors, name) for name in names)
