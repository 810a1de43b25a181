"""Wrappers of a run's envs: the preprocessing of env families, and wrappers named by address.

A run applies the family's wrappers before the user's wrappers. Arguments of the user override the
family's arguments of the same name.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from rookery.common.arguments import did_you_mean
from rookery.common.importing import imported, reference, register
from rookery.env.recipe import find_spec
from rookery.env.wrappers import atari, minigrid
from rookery.env.wrappers.atari_native import AtariGames
from rookery.errors import ConfigError, UnknownEnvError

Wrapper = Callable[[Any], Any]


@dataclass(frozen=True)
class Family:
    """A group of envs with the same preprocessing.

    Attributes:
        name: name of the family.
        modules: prefixes of the modules that define its envs.
        ids: prefixes of its envs' ids, regardless of the module.
        training: wrappers of training envs, the innermost first.
        evaluation: wrappers of evaluation envs, the innermost first.
        env_kwargs: default arguments of the envs.
        allowed_kwargs: maps an argument's name to the values that the wrappers support. Arguments
            that are not listed may have any value.
        frame_stack: number of stacked observations; None disables stacking.
        episode_keys: info keys of the return and length of a complete episode, if the wrappers
            change rewards or episode ends; else None.
        instead: prefixes of wrapper addresses ``module:name``. If the user applies such a wrapper,
            the family's preprocessing is disabled.
        inside: prefixes of wrapper addresses. Such wrappers are applied before ``training`` if they
            come first among the user's wrappers.
        mark: class of a family wrapper, used to detect that a built env already has them. All
            wrappers that ``instead`` names lie inside it.
        entry_points: maps entry points of its envs to replacements that create the same envs.
        needs: module and pip name of a package that the wrappers need.
        batch: vectorized env that steps all envs with the preprocessing of ``training``, or None.
        note: description of the preprocessing, with ``{frames}`` for the number of observations.
    """

    name: str
    modules: tuple[str, ...]
    ids: tuple[str, ...] = ()
    training: tuple[Wrapper, ...] = ()
    evaluation: tuple[Wrapper, ...] = ()
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    allowed_kwargs: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    frame_stack: int | None = None
    episode_keys: tuple[str, str] | None = None
    instead: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()
    mark: type[gym.Wrapper[Any, Any, Any, Any]] | None = None
    entry_points: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, str] | None = None
    batch: type[AtariGames] | None = None
    note: str = ""


FAMILIES = (
    Family(
        "atari",
        modules=("ale_py",),
        ids=("ALE/",),
        training=(atari.for_training,),
        evaluation=(atari.for_evaluation,),
        # The wrapper reads the screen itself. With obs_type "rgb" the env would also render an
        # unused colour image of every frame.
        env_kwargs={"frameskip": 1, "obs_type": "grayscale"},
        allowed_kwargs={
            "frameskip": (1,),
            "obs_type": ("grayscale", "rgb"),
            "continuous": (False,),
            "sound_obs": (False,),
        },
        frame_stack=4,
        episode_keys=(atari.GAME_RETURN, atari.GAME_LENGTH),
        instead=(
            "gymnasium.wrappers.atari_preprocessing:",
            "stable_baselines3.common.atari_wrappers:",
        ),
        mark=atari.Lives,
        entry_points={"ale_py.env:AtariEnv": "rookery.env.wrappers.quiet_ale:AtariEnv"},
        needs=("cv2", "opencv-python-headless"),
        batch=AtariGames,
        note="Atari preprocessing (84x84 grey, {frames} frames, skip 4; rewards clipped and lives "
        "end episodes in training only)",
    ),
    Family(
        "minigrid",
        modules=("minigrid",),
        ids=("MiniGrid-", "BabyAI-"),
        training=(minigrid.Grid,),
        evaluation=(minigrid.Grid,),
        instead=tuple(
            f"minigrid.wrappers:{name}"
            for name in ("DictObs", "FlatObs", "ImgObs", "OneHotPartialObs", "SymbolicObs")
        ),
        inside=("minigrid.wrappers:FullyObs", "minigrid.wrappers:ViewSize"),
        mark=minigrid.GridWithMission,
        note="MiniGrid preprocessing (cells in sight as choices, and the direction; no mission)",
    ),
    Family("mujoco", modules=("gymnasium.envs.mujoco",)),
    Family("classic_control", modules=("gymnasium.envs.classic_control",)),
    Family("box2d", modules=("gymnasium.envs.box2d",)),
)


def family_of(env: Any) -> Family | None:
    """Return the family of an env, or None.

    This imports the package that registers the id, if it is known and installed.

    Args:
        env: a Gymnasium id, ``"module:Id"`` or an EnvSpec; a callable has no family.
    """
    if isinstance(env, EnvSpec):
        return _family(env.id, _module(env))
    if not isinstance(env, str):
        return None
    register(env)
    try:
        spec = find_spec(env)
    except UnknownEnvError:
        return _family(env, "") if ":" not in env else None
    return _family(spec.id, _module(spec))


def _family(env_id: str, module: str) -> Family | None:
    for family in FAMILIES:
        of_module = any(module == each or module.startswith(f"{each}.") for each in family.modules)
        if of_module or env_id.startswith(family.ids):
            return family
    return None


def _module(spec: EnvSpec) -> str:
    """Return the module that defines an env; empty if unknown."""
    entry = spec.entry_point
    return entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", "")


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
