"""Copies: what SyncVectorEnv needs of an env to be compared with."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import gymnasium as gym


class Copies(gym.Wrapper[Any, Any, Any, Any]):
    """Returns what never changes; only for SyncVectorEnv.

    Of an env that draws into one buffer, SyncVectorEnv in the same-step mode returns as the final
    observation what the reset has drawn over it; rookery returns the final one.
    """

    def reset(self, **kwargs: Any) -> Any:
        return deepcopy(super().reset(**kwargs))

    def step(self, action: Any) -> Any:
        return deepcopy(super().step(action))
