"""Options of a reset: what is meant for the envs, and the mask of those to reset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from rookery.common.arguments import unfit
from rookery.errors import ConfigError

Options: TypeAlias = "dict[str, Any] | Sequence[dict[str, Any] | None] | None"


def separated(options: Options, num_envs: int) -> tuple[Options, list[bool] | None]:
    """Options for the envs, and the mask that was among them.

    Raises:
        ConfigError: when they are neither a mapping nor a sequence with one, or None, for each env.
        TypeError: when the mask is no bool array, as in Gymnasium.
    """
    if options is None:
        return None, None
    if not isinstance(options, Mapping):
        return _per_env(options, num_envs), None
    own = dict(options)
    if "reset_mask" not in own:
        return own, None
    mask = _checked_mask(own.pop("reset_mask"), num_envs)
    return own, mask


def _per_env(options: Any, num_envs: int) -> list[dict[str, Any] | None]:
    if isinstance(options, (str, bytes)) or not isinstance(options, Sequence):
        raise unfit("options", "None, a dict, or a sequence with one for each env", options)
    if len(options) != num_envs:
        raise ConfigError(f"options has {len(options)} entries for {num_envs} envs")
    for i, own in enumerate(options):
        if own is not None and not isinstance(own, Mapping):
            raise unfit(f"options[{i}]", "a dict or None", own)
    return [None if own is None else dict(own) for own in options]


def _checked_mask(mask: Any, num_envs: int) -> list[bool]:
    """A reset mask, checked as Gymnasium does."""
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
        kind = mask.dtype if isinstance(mask, np.ndarray) else type(mask).__name__
        raise TypeError(f"options['reset_mask'] must be a bool numpy array, got {kind}")
    if mask.shape != (num_envs,):
        raise ConfigError(f"options['reset_mask'] must have shape ({num_envs},), got {mask.shape}")
    if not mask.any():
        raise ConfigError("options['reset_mask'] selects no env")
    return list(mask.tolist())
