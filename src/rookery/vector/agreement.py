"""Spaces and autoreset mode of a vector env, derived from those of its envs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from gymnasium import Space
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_differing_spaces, batch_space

from rookery.common.arguments import not_a_choice
from rookery.env.seam import Description
from rookery.errors import ConfigError, SpaceError

_MODES = sorted(mode.name.lower() for mode in AutoresetMode)

ObservationMode: TypeAlias = Any  # "same", "different" or (batched space, single space)


@dataclass(frozen=True)
class Spaces:
    """The four spaces of a vector env, under Gymnasium's names."""

    single_observation_space: Space[Any]
    single_action_space: Space[Any]
    observation_space: Space[Any]
    action_space: Space[Any]


def agree(
    parts: Sequence[range], descriptions: Sequence[Description], observation_mode: ObservationMode
) -> Spaces:
    """Check that the spaces of all envs are compatible, and batch them.

    Args:
        parts: env ids of each backend.
        descriptions: description of the envs of each backend.
        observation_mode: see :class:`rookery.ProcessVectorEnv`.

    Raises:
        SpaceError: the spaces are not compatible.
        ConfigError: the observation mode is invalid.
    """
    num_envs = parts[-1].stop
    pairs = [pair for description in descriptions for pair in description.spaces]
    single, action = pairs[0]
    batched: Space[Any]
    match observation_mode:
        case (Space() as batched, Space() as single):
            pass
        case "same":
            batched = batch_space(single, num_envs)
        case "different":
            batched = _batched_differing(_per_env(parts, descriptions))
        case _:
            raise ConfigError(
                "observation_mode must be 'same', 'different' or a pair of spaces, "
                f"got {observation_mode!r}"
            )
    for other, other_action in pairs[1:]:
        _check_alike(other, single, exactly=observation_mode == "same")
        if other_action != action:
            raise SpaceError(
                f"All envs must have the same action space; got {action} and {other_action}"
            )
    return Spaces(single, action, batched, batch_space(action, num_envs))


def _batched_differing(spaces: list[Any]) -> Any:
    try:
        return batch_differing_spaces(spaces)
    except (TypeError, ValueError, AssertionError) as error:
        raise SpaceError(f"The envs' observation spaces cannot be batched: {error}") from error


def _per_env(parts: Sequence[range], descriptions: Sequence[Description]) -> list[Any]:
    spaces = []
    for env_ids, description in zip(parts, descriptions, strict=True):
        obs = [obs for obs, _ in description.spaces]
        spaces += obs if len(obs) == len(env_ids) else obs * len(env_ids)
    return spaces


def _check_alike(space: Any, first: Any, exactly: bool) -> None:
    if exactly and space != first:
        raise SpaceError(
            f"All envs must have the same observation space; got {first} and {space}. If only "
            "their bounds differ, use observation_mode='different'."
        )
    if not exactly and not is_space_dtype_shape_equiv(space, first):
        raise SpaceError(
            f"The envs' observation spaces differ in shape or dtype: {first} and {space}"
        )


def parse_autoreset_mode(mode: Any) -> AutoresetMode:
    """Return the mode named ``"next_step"``, ``"same_step"`` or ``"disabled"``; accepts enums too.

    Raises:
        ConfigError: the mode is unknown.
    """
    if isinstance(mode, AutoresetMode):
        return mode
    for each in AutoresetMode:
        if isinstance(mode, str) and mode in (each.value, each.name, each.name.lower()):
            return each
    raise not_a_choice("autoreset_mode", mode, _MODES)


def check_mode(mode: AutoresetMode, descriptions: Iterable[Description]) -> None:
    """Raise if a native batch does not support the mode.

    Raises:
        ConfigError: with the modes that it supports.
    """
    for description in descriptions:
        modes = description.autoreset_modes
        if modes is not None and mode not in modes:
            known = " or ".join(repr(_name(each)) for each in modes)
            raise ConfigError(
                f"autoreset_mode={_name(mode)!r} is not supported by this native env, which "
                f"resets its envs itself. Use autoreset_mode={known}, create the env in another "
                "mode (env_kwargs, or in the callable), or run single envs with backend='process'"
            )


def _name(mode: AutoresetMode) -> str:
    return mode.name.lower()
