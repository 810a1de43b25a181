"""Episode returns and lengths from the stream of rewards and flags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rookery.rollout.rollout import Rollout


@dataclass(frozen=True, slots=True)
class Episodes:
    """Ended episodes.

    Attributes:
        env_ids: env of each episode, int64 ``[K]``.
        returns: undiscounted sums of rewards, float64 ``[K]``.
        lengths: numbers of steps, int64 ``[K]``.
        times: rows of the rollout in which the episodes ended, int64 ``[K]``.
    """

    env_ids: npt.NDArray[np.int64]
    returns: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.int64]
    times: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.returns)


class EpisodeTracker:
    """Follows the episodes of B envs across rollouts.

    Args:
        num_envs: number of envs, ``B``.
    """

    def __init__(self, num_envs: int) -> None:
        self._return = np.zeros(num_envs, np.float64)
        self._length = np.zeros(num_envs, np.int64)

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain data."""
        return {"return": self._return.copy(), "length": self._length.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state of `state_dict`."""
        self._return = np.asarray(state["return"], np.float64)
        self._length = np.asarray(state["length"], np.int64)

    def update(self, rollout: Rollout) -> Episodes:
        """Process the next rollout and return the episodes that ended in it, by env and time.

        Episodes that a fault or a reset cut off are excluded, because their return is unknown.
        """
        anew = rollout.env_ids[rollout.after_reset]
        self._return[anew], self._length[anew] = 0.0, 0
        return self.add(rollout.reward, rollout.done, rollout.valid, rollout.env_ids)

    def add(
        self,
        reward: npt.NDArray[np.float32],
        done: npt.NDArray[np.bool_],
        valid: npt.NDArray[np.bool_],
        env_ids: npt.NDArray[np.int64] | slice = slice(None),
    ) -> Episodes:
        """Process ``[T, B]`` arrays of the envs ``env_ids``, by default all; see `update`."""
        total = np.cumsum(reward, axis=0, dtype=np.float64) + self._return[env_ids]
        steps = np.cumsum(valid, axis=0, dtype=np.int64) + self._length[env_ids]
        columns, times = np.nonzero(done.T)
        at_end = total[times, columns], steps[times, columns]
        returns, lengths = (_differences(values, columns) for values in at_end)
        # Only the last end of each env counts here: fancy assignment keeps the last value.
        carried = np.zeros_like(total[-1]), np.zeros_like(steps[-1])
        for carry, values in zip(carried, at_end, strict=True):
            carry[columns] = values
        self._return[env_ids] = total[-1] - carried[0]
        self._length[env_ids] = steps[-1] - carried[1]
        whole = valid[times, columns]
        ids = np.arange(len(self._return))[env_ids]
        return Episodes(ids[columns[whole]], returns[whole], lengths[whole], times[whole])


def _differences(
    values: npt.NDArray[np.generic], env_ids: npt.NDArray[np.int64]
) -> npt.NDArray[Any]:
    """Subtract from each value the one before it, where both belong to the same env."""
    before = np.zeros_like(values)
    same = env_ids[1:] == env_ids[:-1]
    before[1:][same] = values[:-1][same]
    return np.asarray(values - before)
