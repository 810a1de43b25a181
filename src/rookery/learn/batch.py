"""From a rollout to one flat batch with advantages: what on-policy learners share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rookery.policy.encoder import Features
from rookery.policy.old_model import ActorCriticModel
from rookery.rollout import Rollout, gae
from rookery.rollout.tree import merge_axes, take

Floats: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Batch:
    """N transitions.

    Attributes:
        features: encoded observations, `Features` or `Sequences`.
        action: ``[N, K]``, encoded by the action head.
        log_prob: float32 ``[N]``, when the action was drawn.
        value: float32 ``[N]``, when the action was drawn.
        advantage: float32 ``[N]``.
        returns: float32 ``[N]``, what the value should be.
    """

    features: Any
    action: npt.NDArray[Any]
    log_prob: Floats
    value: Floats
    advantage: Floats
    returns: Floats

    def __len__(self) -> int:
        return len(self.log_prob)

    @property
    def rows_per_item(self) -> int:
        """One: rows are shuffled by themselves."""
        return 1

    def whole(self) -> Batch:
        """Return all transitions."""
        return self

    def take(self, index: npt.NDArray[np.int64]) -> Batch:
        """Return the transitions ``index``, int64 ``[M]``."""
        vector, images = self.features
        features = Features(vector[index], tuple(image[index] for image in images))
        columns = (self.action, self.log_prob, self.value, self.advantage, self.returns)
        return Batch(features, *(column[index] for column in columns))


def advantage_batch(
    rollout: Rollout, reward: Floats, model: ActorCriticModel, gamma: float, gae_lambda: float
) -> Batch:
    """Estimate advantages, leave invalid rows out, and make one flat batch of the rest.

    Args:
        rollout: what was experienced.
        reward: float32 ``[T, B]``, the rollout's, or scaled.
        model: encodes observations and actions.
        gamma: discount.
        gae_lambda: lambda of generalised advantage estimation.
    """
    advantage, returns = gae(
        reward,
        rollout.value,
        rollout.last_value,
        rollout.terminated,
        rollout.truncated,
        rollout.final_value,
        gamma=gamma,
        gae_lambda=gae_lambda,
        valid=rollout.valid,
    )
    obs, action = merge_axes(rollout.obs), merge_axes(rollout.action)
    columns = [rollout.log_prob, rollout.value, advantage, returns]
    columns = [column.reshape(-1) for column in columns]
    if not rollout.valid.all():
        rows = np.flatnonzero(rollout.valid)
        obs, action = take(obs, rows), action[rows]
        columns = [column[rows] for column in columns]
    return Batch(model.encode(obs), model.head.encode(action), *columns)


def observe(rollout: Rollout, model: Any) -> None:
    """Merge the rollout's valid observations into the statistics of ``model``, if it has any."""
    if model.normalizer is None:
        return
    model.observe(take(merge_axes(rollout.obs), rollout.valid.ravel()))
