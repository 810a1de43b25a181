"""Calls of a native env: by its own ``call`` and ``set_attr``, or of the native env itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymnasium.utils.env_checker import data_equivalence

from rookery.errors import UsageError


def call_native(
    env: Any, num_envs: int, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Sequence[Any]:
    """What a method or attribute gives, one for each env.

    Raises:
        AttributeError: when there is none of this name.
    """
    if name != "render" and callable(getattr(env, "call", None)):
        return tuple(env.call(name, *args, **kwargs))
    attribute = getattr(env, name)
    value = attribute(*args, **kwargs) if callable(attribute) else attribute
    if isinstance(value, (list, tuple)) and len(value) == num_envs:
        return value
    return [value] * num_envs


def set_native_attr(env: Any, name: str, values: list[Any]) -> None:
    """Set an attribute, given one value for each env.

    Raises:
        AttributeError: when the native env has none of this name.
        UsageError: when values differ, and the native env has one for all.
    """
    if callable(getattr(env, "set_attr", None)):
        env.set_attr(name, values)
        return
    getattr(env, name)  # a new attribute would be nobody's
    if any(value is not values[0] and not data_equivalence(value, values[0]) for value in values):
        raise UsageError(
            f"set_attr({name!r}): {type(env).__name__} has one attribute for all its envs, so they "
            "cannot be given different values"
        )
    setattr(env, name, values[0])
