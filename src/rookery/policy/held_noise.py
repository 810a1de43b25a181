"""Noise that a policy keeps from one step to the next: a part of how it explores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


class HeldNoise(NamedTuple):
    """What a policy holds of noise for B envs, a row for each; it is replaced, never changed.

    Whoever lets a policy act elsewhere in between, an evaluation for instance, puts it back.

    Attributes:
        values: float32 ``[B, ...]``.
        age: steps for which it was held.
    """

    values: npt.NDArray[np.float32]
    age: int


def held_to_state(held: HeldNoise | None) -> dict[str, Any] | None:
    """What is held, as plain data."""
    return None if held is None else {"values": held.values.copy(), "age": held.age}


def held_of_state(state: Mapping[str, Any] | None) -> HeldNoise | None:
    """Undo `held_to_state`."""
    return None if state is None else HeldNoise(np.array(state["values"], "f4"), int(state["age"]))
