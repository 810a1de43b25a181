"""Differences between expected and actual values, to the last bit, with the path to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

_MOST_CHARACTERS = 300


@dataclass(frozen=True)
class Difference:
    """The first place where two values differ.

    Attributes:
        path: the path to the place, such as ``info['final_obs'][2]``.
        expected: the expected value.
        came: the actual value.
        env: the index on the path that is a row of a batch, or None.
    """

    path: str
    expected: Any
    came: Any
    env: int | None = None


class CheckFailed(AssertionError):
    """A vector env or an env did not do what it should.

    Attributes:
        operation: the call with the wrong result, such as ``step([0, 1])``.
        env: the row with the wrong value, or None.
        path: the path to the value in the result.
        expected: the expected value.
        came: the actual value.
        history: all operations so far, this one last; repeating them repeats the failure.
    """

    def __init__(
        self, operation: str, difference: Difference, history: Sequence[str] = (), why: str = ""
    ) -> None:
        self.operation = operation
        self.env = difference.env
        self.path = difference.path
        self.expected = difference.expected
        self.came = difference.came
        self.history = tuple(history)
        place = f"env {self.env}, " if self.env is not None else ""
        lines = [
            f"{operation}: {place}{self.path}{': ' + why if why else ''}",
            f"  expected: {_described(self.expected)}",
            f"  came:     {_described(self.came)}",
        ]
        if self.history:
            lines.append("Operations so far:")
            lines += [f"  {i}. {text}" for i, text in enumerate(self.history, 1)]
        super().__init__("\n".join(lines))


def _described(value: Any) -> str:
    if isinstance(value, np.ndarray) and value.dtype != object:
        text = f"{value.dtype} {list(value.shape)} {value.tolist()!r}"
    else:
        text = f"{type(value).__name__} {value!r}"
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + "..."


def find_difference(expected: Any, came: Any, path: str) -> Difference | None:
    """Return the first difference in type, dtype, shape, keys or any bit, or None.

    NaN values with the same bits are equal; 0.0 and -0.0 are not. The order of keys does not count.
    """
    if isinstance(expected, np.ndarray) and isinstance(came, np.ndarray):
        return _between_arrays(expected, came, path)
    if type(expected) is not type(came):
        return Difference(path, expected, came)
    if isinstance(expected, dict):
        return _between_dicts(expected, came, path)
    if isinstance(expected, (tuple, list)):
        if len(expected) != len(came):
            return Difference(path, expected, came)
        return _between_sequences(expected, came, path)
    if isinstance(expected, np.random.Generator):
        states = expected.bit_generator.state, came.bit_generator.state
        return find_difference(*states, f"{path}.bit_generator.state")
    return None if _same_leaf(expected, came) else Difference(path, expected, came)


def _first(differences: Any) -> Difference | None:
    return next((difference for difference in differences if difference is not None), None)


def _same_leaf(expected: Any, came: Any) -> bool:
    if isinstance(expected, np.generic):
        return bool(expected.dtype == came.dtype) and expected.tobytes() == came.tobytes()
    if isinstance(expected, float):
        return bool(expected.hex() == came.hex())  # 0.0 and -0.0 differ, NaN equals NaN
    return expected is came or bool(expected == came)


def _between_dicts(expected: Any, came: Any, path: str) -> Difference | None:
    if expected.keys() != came.keys():
        key = min(expected.keys() ^ came.keys(), key=str)
        missing = "<no such key>"
        return Difference(f"{path}[{key!r}]", expected.get(key, missing), came.get(key, missing))
    return _first(find_difference(expected[k], came[k], f"{path}[{k!r}]") for k in expected)


def _between_sequences(expected: Any, came: Any, path: str) -> Difference | None:
    for i, (a, b) in enumerate(zip(expected, came, strict=True)):
        found = find_difference(a, b, f"{path}[{i}]")
        if found is not None:
            return found if found.env is not None else replace(found, env=i)
    return None


def _between_arrays(expected: Any, came: Any, path: str) -> Difference | None:
    if expected.dtype != came.dtype or expected.shape != came.shape:
        return Difference(path, expected, came)
    if expected.tobytes() == came.tobytes() and expected.dtype != object:
        return None
    if expected.ndim == 0:
        return Difference(path, expected, came)
    for row, (a, b) in enumerate(zip(expected, came, strict=True)):
        found = find_difference(a, b, f"{path}[{row}]")
        if found is not None and expected.dtype == object:
            return replace(found, env=row)
        if found is not None:
            return Difference(f"{path}[{row}]", a, b, row)
    return None
