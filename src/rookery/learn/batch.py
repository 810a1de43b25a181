"""Statistics of observations, for learners that are not yet in torch."""

from __future__ import annotations

from typing import Any

from rookery.rollout import Rollout
from rookery.rollout.tree import merge_axes, take


def observe(rollout: Rollout, model: Any) -> None:
    """Merge the rollout's valid observations into the statistics of ``model``, if it has any."""
    if model.normalizer is None:
        return
    model.observe(take(merge_axes(rollout.obs), rollout.valid.ravel()))
