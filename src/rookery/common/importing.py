"""Importing by name: references such as ``module:qualname``, and packages that register envs."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym

from rookery.errors import ConfigError


def search_path() -> str:
    """Return the module search path for child processes: of this one, and rookery's folder."""
    own = str(Path(__file__).parents[2])
    places = [os.path.abspath(place) for place in sys.path]  # an empty entry is the current folder
    return os.pathsep.join(dict.fromkeys([*places, own]))


def reference(thing: Any) -> str | None:
    """Return ``module:qualname``, or None for lambdas, local functions and partials."""
    name = getattr(thing, "__qualname__", "<none>")
    return None if "<" in name else f"{thing.__module__}:{name}"


def imported(address: str) -> Any:
    """Import the object with the reference ``module:qualname``.

    Raises:
        ImportError, AttributeError: it does not exist.
    """
    module, _, path = address.partition(":")
    value: Any = importlib.import_module(module)
    for name in path.split("."):
        value = getattr(value, name)
    return value


@dataclass(frozen=True, slots=True)
class Package:
    """A package that registers envs.

    Attributes:
        begins: prefix of their ids.
        ends: suffix of their ids.
        module: module that registers them at import.
        pip: name of the package for pip.
        is_left_out: True if users often omit the prefix.
    """

    begins: str
    ends: str
    module: str
    pip: str
    is_left_out: bool = False


PACKAGES = (
    Package("ALE/", "", "ale_py", "ale-py", is_left_out=True),
    Package("", "NoFrameskip-v4", "ale_py", "ale-py"),
    Package("MiniGrid-", "", "minigrid", "minigrid"),
    Package("BabyAI-", "", "minigrid", "minigrid"),
)


def package_of(env_id: str) -> Package | None:
    """Return the package that registers an id, or None if it is unknown."""
    for package in PACKAGES:
        if env_id.startswith(package.begins) and env_id.endswith(package.ends):
            return package
    return None


def is_installed(module: str) -> bool:
    """Return True if a module is installed, without importing it."""
    return importlib.util.find_spec(module) is not None


def register(env_id: str) -> None:
    """Import the package that registers an id, if it is installed and the id is not registered.

    Raises:
        ConfigError: the package is installed but cannot be imported.
    """
    package = package_of(env_id)
    if package is None or env_id in gym.registry or not is_installed(package.module):
        return
    try:
        importlib.import_module(package.module)
    except ImportError as error:
        raise ConfigError(
            f"{env_id}: the package {package.module}, which registers such envs, cannot be "
            f"imported: {error}"
        ) from error


def meant_ids(env_id: str) -> list[str]:
    """Return the full form of an unknown id with an omitted prefix; import its package."""
    for package in PACKAGES:
        full = f"{package.begins}{env_id}"
        if not package.is_left_out:
            continue
        with suppress(ConfigError):  # a broken package may be unrelated to the id
            register(full)
        if env_id in gym.registry:
            return [f"{package.module}:{env_id}"]
        if full in gym.registry:
            return [full]
    return []
