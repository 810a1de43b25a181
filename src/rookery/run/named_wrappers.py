"""Wrappers named as ``module:name`` on the command line and in config.json."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym

from rookery.common.arguments import did_you_mean
from rookery.common.importing import imported, reference
from rookery.errors import ConfigError


@dataclass(frozen=True, slots=True)
class NamedWrapper:
    """A wrapper that is imported by its address, such as a partial defined in a module.

    Attributes:
        address: ``module:name``.
    """

    address: str

    def __call__(self, env: gym.Env[Any, Any]) -> Any:
        """Wrap ``env``."""
        return imported(self.address)(env)


def address_of(wrapper: Any) -> str | None:
    """Return the address ``module:name`` of a wrapper, or None."""
    return wrapper.address if isinstance(wrapper, NamedWrapper) else reference(wrapper)


def source_of(wrapper: Any) -> str:
    """Return the address of the class or function that a wrapper or partial calls, or ""."""
    found = imported(wrapper.address) if isinstance(wrapper, NamedWrapper) else wrapper
    while isinstance(found, partial):
        found = found.func
    return reference(found) or ""


def named(address: str, wrapper: Any) -> Callable[[Any], Any]:
    """Return the wrapper found at an address, in a form that remembers the address."""
    return wrapper if reference(wrapper) == address else NamedWrapper(address)


def wrapper_at(address: str) -> Callable[[Any], Any]:
    """Import and check the wrapper at ``module:name``.

    Raises:
        ConfigError: the address cannot be imported, or the object cannot wrap an env.
    """
    module_name, colon, path = address.partition(":")
    if not (module_name and colon and path):
        raise ConfigError(f"--wrapper {address}: write module:Class, such as my_module:MyWrapper")
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(f"--wrapper {address}: cannot import {module_name!r}: {error}") from error
    for name in path.split("."):
        if not hasattr(found, name):
            hint = did_you_mean(name, dir(found))
            raise ConfigError(
                f"--wrapper {address}: {module_name} has no {name!r}{hint and '; ' + hint}"
            )
        found = getattr(found, name)
    problem = _problem(found)
    if problem:
        raise ConfigError(f"--wrapper {address}: {problem}")
    return named(address, found)


def _problem(found: Any) -> str:
    """Return the reason why an object cannot wrap an env; empty if it can."""
    if not callable(found):
        return f"it is a {type(found).__name__}, not a callable Env -> Env"
    if isinstance(found, type) and not issubclass(found, gym.Env):
        return f"the class {found.__name__} is not a gymnasium.Wrapper"
    try:
        inspect.signature(found).bind(None)
    except ValueError:  # a C function without a signature
        return ""
    except TypeError as error:
        return (
            f"it cannot be called with only an env ({error}); name a function that passes the "
            "other arguments"
        )
    return ""
