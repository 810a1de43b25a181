"""What was experienced: the ``[T, B, ...]`` data between a collector and a learner."""

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
