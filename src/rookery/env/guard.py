"""Explanations of unusable values that an env returned.

These functions run only after a value could not be used, so that the error names the expected and
the actual value. They cost nothing while an env is correct.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from rookery.common.env_errors import describe, in_words

_SPACES = ("observation_space", "action_space")
_RESET = "(observation, info)"
_STEP = "(observation, reward, terminated, truncated, info)"


def env_problem(env: Any) -> str | None:
    """Explain why ``env`` cannot be stepped as an env, or return None if it can."""
    if not isinstance(env, gym.Env):
        return _no_env(env)
    for name in (*_SPACES, "metadata", "render_mode"):
        problem = _attribute_problem(env, name)
        if problem is not None:
            return problem
    # Reading the spec of a wrapper makes a deep copy, which may be large.
    return _attribute_problem(env.unwrapped, "spec")


def reset_problem(result: Any) -> str | None:
    """Explain why a result of ``reset`` cannot be used, or return None.

    None means that only the observation can be the cause.
    """
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        return f"reset must return {_RESET}, but returned {_returned(result)}{_old_reset(result)}"
    return _info_problem("reset", result[1])


def step_problem(result: Any) -> str | None:
    """Explain why a result of ``step`` cannot be used, or return None.

    None means that only the observation can be the cause.
    """
    if not isinstance(result, (tuple, list)) or len(result) != 5:
        return f"step must return {_STEP}, but returned {_returned(result)}{_old_step(result)}"
    _, reward, terminated, truncated, info = result
    return (
        _reward_problem(reward)
        or _flag_problem("terminated", terminated)
        or _flag_problem("truncated", truncated)
        or _info_problem("step", info)
    )


def reward_as_float(value: Any) -> float:
    """Convert a reward as ``gymnasium.vector.SyncVectorEnv`` does: None is nan, ``"1"`` is 1.

    Raises:
        TypeError: the value is not a number. The message describes it.
    """
    cell = np.zeros(1)
    try:
        cell[0] = value
    except Exception as error:  # a value's own conversion may raise anything
        raise TypeError(
            f"step returned {_kind(value)} as reward, which is no single number: {in_words(value)} "
            f"({describe(error, 200)})"
        ) from error
    return float(cell[0])


def _no_env(env: Any) -> str:
    wanted = "an env must be a gymnasium.Env"
    if env is None:
        return f"{wanted}, but None came; a factory must return the env that it makes"
    if isinstance(env, type):
        return (
            f"{wanted}, but the class {env.__qualname__} itself came; a factory must call it, and "
            "return what it makes"
        )
    if isinstance(env, gym.vector.VectorEnv):
        return f"{wanted}, but a vector env came ({type(env).__name__}); a factory makes one env"
    if any(base.__module__.partition(".")[0] == "gym" for base in type(env).__mro__):
        return (
            f"{wanted}, but {_kind(env)} came, which belongs to gym, Gymnasium's predecessor; "
            "shimmy's GymV21CompatibilityV0 and GymV26CompatibilityV0 make Gymnasium's of such envs"
        )
    return (
        f"{wanted}, but {_kind(env)} came, not a gymnasium.Env; derive a class that only looks "
        "like one from gymnasium.Env"
    )


def _attribute_problem(env: Any, name: str) -> str | None:
    try:
        value = getattr(env, name)
    except (Exception, SystemExit) as error:
        if name in _SPACES and type(error) is AttributeError and error.name == name:
            return (
                f"{_kind(error.obj)} has no {name}; set self.{name} to a gymnasium.spaces.Space "
                "in its constructor, or in the class"
            )
        return (
            f"reading {name} of {_kind(env)} raised {type(error).__name__}{_place(error)}: "
            f"{describe(error)}"
        )
    if name in _SPACES and not isinstance(value, gym.Space):
        hint = "; call it" if callable(value) else ""
        if type(value).__module__.partition(".")[0] == "gym":
            hint = "; it belongs to gym, Gymnasium's predecessor"
        return (
            f"{name} of {_kind(env)} must be a gymnasium.spaces.Space, but is {_kind(value)}: "
            f"{in_words(value)}{hint}"
        )
    if name == "metadata" and not isinstance(value, Mapping):
        return f"metadata of {_kind(env)} must be a dict, but is {_kind(value)}: {in_words(value)}"
    return None


def _place(error: BaseException) -> str:
    """Return file and line where an exception was raised, since the error has no traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def _returned(result: Any) -> str:
    if isinstance(result, (tuple, list)):
        plural = "" if len(result) == 1 else "s"
        return f"{len(result)} value{plural}: {in_words(result)}"
    return f"{_kind(result)}: {in_words(result)}" if result is not None else "None"


def _old_reset(result: Any) -> str:
    if result is None or isinstance(result, (tuple, list)):
        return ""
    return (
        ". An observation alone is what gym before 0.26 returned; Gymnasium wants an info beside it"
    )


def _old_step(result: Any) -> str:
    if isinstance(result, (tuple, list)) and len(result) == 4:
        return (
            ". Four values (observation, reward, done, info) are what gym before 0.26 returned; "
            "Gymnasium tells a true end (terminated) from a time limit (truncated)"
        )
    return ""


def _reward_problem(reward: Any) -> str | None:
    try:
        reward_as_float(reward)
    except TypeError as error:
        return str(error)
    return None


def _flag_problem(name: str, value: Any) -> str | None:
    try:
        bool(value)
    except Exception as error:  # a value's own conversion may raise anything
        return (
            f"step returned {_kind(value)} as {name}, which is neither true nor false: "
            f"{in_words(value)} ({describe(error, 200)})"
        )
    return None


def _info_problem(call: str, info: Any) -> str | None:
    if isinstance(info, Mapping):
        return None
    found = "None" if info is None else f"{_kind(info)}: {in_words(info)}"
    return f"{call} must return a dict as info, but returned {found}"


def _kind(value: Any) -> str:
    """Return the type of a value in words, with shape and dtype for arrays."""
    if value is None:
        return "None"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    name = type(value).__qualname__
    return f"an {name}" if name[0].lower() in "aeiou" else f"a {name}"
