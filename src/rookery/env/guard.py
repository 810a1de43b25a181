"""Stub until the real one is merged."""
from typing import Any
def step_problem(result: Any) -> str | None:
    if not isinstance(result, tuple) or len(result) != 5:
        return "step must return 5"
    if not isinstance(result[4], dict):
        return "info must be dict"
    return None
def reset_problem(result: Any) -> str | None:
    if not isinstance(result, tuple) or len(result) != 2:
        return "reset must return 2"
    if not isinstance(result[1], dict):
        return "info must be dict"
    return None
