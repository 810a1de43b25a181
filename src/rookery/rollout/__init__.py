"""Rollouts, the ``[T, B, ...]`` data between collectors and learners, and functions on them.

Every folder above ``common`` and ``shared`` may import this one. Start reading in ``rollout.py``.
"""

from rookery.common.trees import Tree
from rookery.rollout.episodes import Episodes, EpisodeTracker
from rookery.rollout.normalize import RewardScaler, RunningMoments
from rookery.rollout.returns import gae
from rookery.rollout.rollout import Rollout

__all__ = [
    "EpisodeTracker",
    "Episodes",
    "RewardScaler",
    "Rollout",
    "RunningMoments",
    "Tree",
    "gae",
]
