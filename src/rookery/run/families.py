"""Families of envs, and what a run does to the envs of each where its user says nothing else.

A run puts the family's wrappers inside of the user's own, and gives the env the family's arguments
where the user gives none of the name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from rookery.common.packages import register
from rookery.env.recipe import find_spec
from rookery.env.wrappers import atari, minigrid
from rookery.env.wrappers.atari_native import AtariGames
from rookery.errors import UnknownEnvError

Wrapper = Callable[[Any], Any]


@dataclass(frozen=True)
class Family:
    """Envs that are preprocessed alike.

    Attributes:
        name: of the family.
        modules: how the modules begin that its envs are defined in.
        ids: how its envs' ids begin, wherever they are defined.
        training: wrappers of envs to learn from, the first one innermost.
        evaluation: wrappers of envs to evaluate in.
        env_kwargs: arguments of the envs.
        allowed_kwargs: by name, the values of the user's own arguments that the wrappers can work
            with; arguments that are not named may have any.
        frame_stack: how many observations are seen at once; None stacks none.
        episode_keys: what the infos of last steps call return and length of a whole episode, where
            an env's own rewards and ends are others; None where they are the same.
        instead: how the addresses begin, ``module:name``, of wrappers of which one among the user's
            own stands for all of this.
        inside: how the addresses begin of wrappers whose result ``training`` can read: where they
            come first among the user's own, they lie inside of it.
        mark: the class of one of its wrappers, by which a built env is seen to have them; all that
            ``instead`` may name lies beneath it.
        entry_points: by those of its envs, others that make the same envs, but as a run has them.
        needs: module and pip's name of what the wrappers need.
        batch: what steps all envs of a run at once, as ``training`` would have them; None: nothing.
        note: what is done, in words, with ``{frames}`` for the number of observations.
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
        # The screen is read by the wrapper; in colour the env would make another one that nobody
        # sees, for every frame.
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
    """The family of an env.

    The package that registers an id is imported, where it is known and installed.

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
    """The module that an env is defined in; empty where none is told."""
    entry = spec.entry_point
    return entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", "")
