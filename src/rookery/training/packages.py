"""Packages that register envs of which the id tells whose they are."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass

import gymnasium as gym


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
    """Import the package that registers an id, if nobody has registered it and it is installed."""
    package = package_of(env_id)
    if package is not None and env_id not in gym.registry and is_installed(package.module):
        importlib.import_module(package.module)
