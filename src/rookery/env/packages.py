"""Packages that register envs of which the id tells whose they are."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass

import gymnasium as gym

from rookery.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Package:
    """A package that registers envs.

    Attributes:
        begins: how their ids begin.
        ends: how their ids end.
        module: which registers them when it is imported.
        pip: what pip calls it.
    """

    begins: str
    ends: str
    module: str
    pip: str


PACKAGES = (
    Package("ALE/", "", "ale_py", "ale-py"),
    Package("", "NoFrameskip-v4", "ale_py", "ale-py"),
    Package("MiniGrid-", "", "minigrid", "minigrid"),
    Package("BabyAI-", "", "minigrid", "minigrid"),
)


def package_of(env_id: str) -> Package | None:
    """The package that registers such an id; None for ids of which nobody knows."""
    for package in PACKAGES:
        if env_id.startswith(package.begins) and env_id.endswith(package.ends):
            return package
    return None


def is_installed(module: str) -> bool:
    """Whether a module can be imported; it is not imported."""
    return importlib.util.find_spec(module) is not None


def register(env_id: str) -> None:
    """Import the package that registers an id, if nobody has registered it and it is installed.

    Raises:
        ConfigError: it is installed, and cannot be imported.
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
