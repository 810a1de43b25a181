"""Packages that register envs of which the id tells whose they are."""

from __future__ import annotations

import importlib
import importlib.util
from contextlib import suppress
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
        is_left_out: whether people often leave out how the ids begin.
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


def meant_ids(env_id: str) -> list[str]:
    """How an unknown id is written that a package knows which is installed; it is imported."""
    for package in PACKAGES:
        full = f"{package.begins}{env_id}"
        if not package.is_left_out:
            continue
        with suppress(ConfigError):  # one that is broken may have nothing to do with it
            register(full)
        if env_id in gym.registry:
            return [f"{package.module}:{env_id}"]
        if full in gym.registry:
            return [full]
    return []
