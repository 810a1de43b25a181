"""Normalization of observations and rewards by running statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rookery.rollout.rollout import Rollout

EPSILON = 1e-8


class BatchMoments(NamedTuple):
    """Moments of a batch.

    Attributes:
        num_samples: number of samples.
        mean: mean of the samples, float64 ``[*shape]``.
        squares: sum of squared distances from the mean, float64 ``[*shape]``.
    """

    num_samples: int
    mean: npt.NDArray[np.float64]
    squares: npt.NDArray[np.float64]


# Returns the batch moments of all learners, given those of this learner.
Gather: TypeAlias = "Callable[[BatchMoments], list[BatchMoments]]"


def only_own(moments: BatchMoments) -> list[BatchMoments]:
    """Return the moments of a single learner."""
    return [moments]


class RunningMoments:
    """Mean and variance of all samples so far, per feature.

    Batches are merged by the parallel form of Welford's update (Chan, Golub and LeVeque 1979,
    equation 2.1), which is exact and does not lose digits when the mean is large.

    Args:
        shape: shape of one sample.

    Attributes:
        count: number of samples.
        mean: mean of the samples, float64 ``[*shape]``.
        squares: sum of squared distances from the mean, float64 ``[*shape]``.
    """

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self.count = 0
        self.mean = np.zeros(shape, np.float64)
        self.squares = np.zeros(shape, np.float64)
        self._refresh()

    def update(self, batch: npt.NDArray[Any], gather: Gather = only_own) -> None:
        """Merge ``batch``, ``[N, *shape]``, without rows that are not finite.

        ``gather`` returns the batch moments of all learners that share these statistics.
        """
        is_finite = np.isfinite(batch)
        if not is_finite.all():
            batch = batch[is_finite.reshape(len(batch), -1).all(axis=1)]
        own = BatchMoments(0, np.zeros_like(self.mean), np.zeros_like(self.mean))
        if len(batch):
            mean = batch.mean(axis=0, dtype=np.float64)
            own = BatchMoments(len(batch), mean, np.square(batch - mean).sum(axis=0))
        for moments in gather(own):
            self._merge(moments)
        self._refresh()

    def _merge(self, added: BatchMoments) -> None:
        if not added.num_samples:
            return
        total = self.count + added.num_samples
        distance = added.mean - self.mean
        # asarray: arithmetic turns arrays without axes into numpy scalars.
        self.mean = np.asarray(self.mean + distance * (added.num_samples / total))
        change = added.squares + distance**2 * (self.count * added.num_samples / total)
        self.squares = np.asarray(self.squares + change)
        self.count = total

    @property
    def variance(self) -> npt.NDArray[np.float64]:
        """Population variance, float64 ``[*shape]``; one before the first sample."""
        return self.squares / self.count if self.count else np.ones_like(self.mean)

    def normalize(self, values: npt.NDArray[np.float32], limit: float) -> npt.NDArray[np.float32]:
        """Return ``values`` (float32 ``[..., *shape]``) standardised and clipped to +-``limit``."""
        scaled = np.subtract(values, self._mean)
        scaled *= self._scale
        return np.clip(scaled, -limit, limit, out=scaled)

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain data."""
        return {"count": self.count, "mean": self.mean.copy(), "squares": self.squares.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state of `state_dict`."""
        self.count = int(state["count"])
        self.mean = np.asarray(state["mean"], np.float64)
        self.squares = np.asarray(state["squares"], np.float64)
        self._refresh()

    def _refresh(self) -> None:
        self._mean = self.mean.astype(np.float32)
        self._scale = (1.0 / np.sqrt(self.variance + EPSILON)).astype(np.float32)


class RewardScaler:
    """Divides rewards by the running standard deviation of the discounted return.

    The return is accumulated forwards, ``g_t = gamma * g_{t-1} + r_t`` within an episode, as in
    Engstrom et al. (2020), section 3. The mean is not subtracted: that would change the task.

    Args:
        num_envs: number of envs, ``B``.
        gamma: discount.
        limit: maximum absolute value of a scaled reward.
    """

    def __init__(self, num_envs: int, gamma: float, limit: float = 10.0) -> None:
        self.moments = RunningMoments()
        self._return = np.zeros(num_envs, np.float32)
        self._gamma = gamma
        self._limit = limit

    def scale(self, rollout: Rollout, gather: Gather = only_own) -> npt.NDArray[np.float32]:
        """Merge the rollout's returns into the statistics, then return its scaled rewards.

        ``gather`` returns the batch moments of all learners that share these statistics.

        Returns:
            float32 ``[T, B]``, clipped to +-``limit``.
        """
        returns = np.empty_like(rollout.reward)
        decay = np.where(rollout.done, 0.0, self._gamma).astype(np.float32)
        carried = np.where(rollout.after_reset, np.float32(0), self._return)
        for t, reward in enumerate(rollout.reward):
            returns[t] = carried + reward
            carried = returns[t] * decay[t]
        # A return that is not finite would make all later returns of the env not finite.
        self._return = np.where(np.isfinite(carried), carried, np.float32(0))
        self.moments.update(returns[rollout.valid], gather)
        scale = 1.0 / np.sqrt(self.moments.variance + EPSILON)
        return np.asarray(
            np.clip(rollout.reward * np.float32(scale), -self._limit, self._limit), np.float32
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain data."""
        return {"moments": self.moments.state_dict(), "return": self._return.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state of `state_dict`."""
        self.moments.load_state_dict(state["moments"])
        found = np.asarray(state["return"], np.float32)
        # If the number of learners changed, the returns of this learner's envs restart at 0.
        self._return = found if found.shape == self._return.shape else self._return * 0
