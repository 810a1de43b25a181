"""Action distributions in numpy: from a network's outputs to actions, one file per family."""

from __future__ import annotations

from typing import Any

import gymnasium.spaces as spaces
import numpy as np

from rookery.errors import SpaceError
from rookery.policy.heads.base import ActionHead
from rookery.policy.heads.bernoulli import BernoulliHead
from rookery.policy.heads.categorical import CategoricalHead, MultiCategoricalHead
from rookery.policy.heads.gaussian import GaussianHead

__all__ = [
    "ActionHead",
    "BernoulliHead",
    "CategoricalHead",
    "GaussianHead",
    "MultiCategoricalHead",
    "action_head",
]


def action_head(space: spaces.Space[Any]) -> ActionHead:
    """Choose the family of distributions for an action space."""
    match space:
        case spaces.Discrete():
            return CategoricalHead(space)
        case spaces.MultiDiscrete():
            return MultiCategoricalHead(space)
        case spaces.MultiBinary():
            return BernoulliHead(space)
        case spaces.Box() if np.issubdtype(space.dtype, np.floating):
            return GaussianHead(space)
    kind = f"{type(space).__name__} of {space.dtype}" if space.dtype else type(space).__name__
    raise SpaceError(
        f"no built-in policy acts in action_space, a {kind}; Discrete, MultiDiscrete, MultiBinary "
        "and Box of floats are supported"
    )
