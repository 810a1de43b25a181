"""``call`` and ``set_attr`` of a native env, with or without methods of these names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymnasium.utils.env_checker import data_equivalence

from rookery.errors import UsageError


def call_native(
    env: Any, num_envs: int, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Sequence[Any]:
    """Return the result of a method, or an attribute, for each env.

    Raises:
        AttributeError: the native env has no such method or attribute.
    """
    if name != "render" and callable(getattr(env, "call", None)):
        return tuple(env.call(name, *args, **kwargs))
    attribute = getattr(env, name)
    value = attribute(*args, **kwargs) if callable(attribute) else attribute
    if isinstance(value, (list, tuple)) and len(value) == num_envs:
        return value
    return [value] * num_envs


def set_native_attr(env: Any, name: str, values: list[Any]) -> None:
    """Set an attribute to one value per env.

    Raises:
        AttributeError: the native env has no such attribute.
        UsageError: the values differ, and the native env has one attribute for all envs.
    """
    if callable(getattr(env, "set_attr", None)):
        env.set_attr(name, values)
        return
    getattr(env, name)  # raises AttributeError for a name that the env does not have
    if any(value is not values[0] and not data_equivalence(value, values[0]) for value in values):
        raise UsageError(
            f"set_attr({name!r}): {type(env).__name__} has one attribute for all its envs, so they "
            "cannot be given different values"
        )
    setattr(env, name, values[0])
