"""What importing rookery costs."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("torch", "tyro", "rich", "tensorboard", "matplotlib", "stable_baselines3")


def test_importing_rookery_loads_no_learning_library():
    code = f"import rookery, sys; print([name for name in {HEAVY!r} if name in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.stdout.strip() == "[]", result.stdout + result.stderr
