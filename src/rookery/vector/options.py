"""Options of a reset: what is meant for the envs, and the mask of those to reset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from rookery.errors import ConfigError

Options: TypeAlias = "dict[str, Any] | Sequence[dict[str, Any] | None] | None"


def separated(options: Options, num_envs: int) -> tuple[Options, list[bool] | None]:
    """Options for the envs, and the mask that was among them.

    Raises:
        TypeError, ConfigError: when they cannot be meant.
    """
    if options is None:
        return None, None
    if not isinstance(options, dict):
        if len(options) != num_envs:
            raise ConfigError(f"options has {len(options)} entries for {num_envs} envs")
        return list(options), None
    if "reset_mask" not in options:
        return dict(options), None
    own = {key: value for key, value in options.items() if key != "reset_mask"}
    return own, _checked_mask(options["reset_mask"], num_envs)


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
