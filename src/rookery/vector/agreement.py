"""Which spaces a vector env has, given what its envs have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from gymnasium import Space
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector.utils import batch_differing_spaces, batch_space

from rookery.env.description import Description
from rookery.errors import ConfigError, SpaceError
from rookery.worker.fault_policy import FaultPolicy

ObservationMode: TypeAlias = Any  # "same", "different" or (batched space, single space)


@dataclass(frozen=True)
class Spaces:
    """The four spaces of a vector env, under Gymnasium's names."""

    single_observation_space: Space[Any]
    single_action_space: Space[Any]
    observation_space: Space[Any]
    action_space: Space[Any]


def num_buffers(copy: bool, faults: FaultPolicy) -> int:
    """How many buffers there have to be for results, which are written in turn.

    Args:
        copy: whether results are copied out; else the caller reads one while another is written.
        faults: whether a step may be closed that tore a row; the other buffer has the last one.
    """
    return 1 if copy and not faults.restarts else 2


def agree(
    parts: Sequence[range], descriptions: Sequence[Description], observation_mode: ObservationMode
) -> Spaces:
    """Check that the envs' spaces go together, and batch them.

    Args:
        parts: of each backend, the ids of its envs.
        descriptions: of each backend, what its envs are.
        observation_mode: see :class:`rookery.ProcessVectorEnv`.

    Raises:
        SpaceError: when they do not.
        ConfigError: when the mode is none.
    """
    num_envs = parts[-1].stop
    pairs = [pair for description in descriptions for pair in description.spaces]
    single, action = pairs[0]
    if isinstance(observation_mode, tuple) and len(observation_mode) == 2:
        batched, single = observation_mode
        if not isinstance(batched, Space) or not isinstance(single, Space):
            raise ConfigError(f"observation_mode must hold two spaces, got {observation_mode!r}")
    elif observation_mode == "same":
        batched = batch_space(single, num_envs)
    elif observation_mode == "different":
        batched = _batched_differing(_per_env(parts, descriptions))
    else:
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
