"""What became of the episodes of a run."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from rookery.rollout import EpisodeTracker, Rollout
from rookery.rollout.episodes import Episodes

RECENT_EPISODES = 100
MAX_POINTS = 20_000


class History:
    """The recent episodes for metrics, and a bounded number of them for the curve.

    A long run keeps every second, fourth, ... of all its episodes, so that its beginning is not
    drawn from fewer of them than its end.

    Args:
        num_envs: of the rollouts.
        max_points: how many episodes are kept.
        episode_keys: under which names ``final_info`` of the rollouts has return and length of a
            whole episode; what ends without them is a part of one. Empty: rewards and ends are
            those of the rollouts.

    Attributes:
        episodes: how many ended.
        steps: env steps, all envs together, when each kept episode ended.
        returns: the kept episodes' returns.
    """

    def __init__(
        self, num_envs: int, max_points: int = MAX_POINTS, episode_keys: tuple[str, ...] = ()
    ) -> None:
        self.episodes = 0
        self._episode_keys = episode_keys
        self._infos: dict[str, deque[float]] = {}
        self._has_looked = False  # for keys that no info has
        self.steps: list[int] = []
        self.returns: list[float] = []
        self._tracker = EpisodeTracker(num_envs)
        self._recent: deque[tuple[float, int]] = deque(maxlen=RECENT_EPISODES)
        self._max_points = max_points
        self._stride = 1  # every so manieth episode is kept

    def add(self, steps: int, rollout: Rollout) -> None:
        """Take in a rollout that ended at ``steps``."""
        ended = self._ended(rollout)
        order = np.argsort(ended.times, kind="stable")
        returns = ended.returns[order].tolist()
        self._recent.extend(zip(returns, ended.lengths[order].tolist(), strict=True))
        left = (rollout.num_steps - 1 - ended.times[order]) * rollout.num_envs
        self._keep((steps - left).tolist(), returns)
        for key, values in rollout.final_info.items():
            if key in self._episode_keys:
                continue
            kept = self._infos.setdefault(key, deque(maxlen=RECENT_EPISODES))
            kept.extend(values[np.isfinite(values)].tolist())

    def _keep(self, steps: list[int], returns: list[float]) -> None:
        """Keep those of the episodes that ended whose number the stride divides."""
        first = self._stride - 1 - self.episodes % self._stride
        self.episodes += len(returns)
        self.steps += steps[first :: self._stride]
        self.returns += returns[first :: self._stride]
        while len(self.returns) > self._max_points:
            del self.returns[::2], self.steps[::2]
            self._stride *= 2

    def _ended(self, rollout: Rollout) -> Episodes:
        """The episodes that ended in a rollout."""
        ended = self._tracker.update(rollout)
        if not self._episode_keys or not rollout.final_info:  # which is empty where nothing ended
            return ended
        returns, lengths = (rollout.final_info[key] for key in self._episode_keys)
        whole = np.isfinite(returns)
        times, env_ids = rollout.final_index[whole].T
        return Episodes(env_ids, returns[whole], lengths[whole].astype(np.int64), times)

    def warn_of_missing(self, keys: Sequence[str]) -> None:
        """Say once, when many episodes have ended, which keys of infos none of them had."""
        if self._has_looked or self.episodes < RECENT_EPISODES:
            return
        self._has_looked = True
        missing = [repr(key) for key in keys if not self._infos.get(key)]
        if missing:
            gym.logger.warn(
                "%s",
                f"info_keys: {self.episodes} episodes have ended, and the info of none of their "
                f"last steps held a number under {', '.join(missing)}",
            )

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on from here, as plain data."""
        return {
            "episodes": self.episodes,
            "stride": self._stride,
            "steps": list(self.steps),
            "returns": list(self.returns),
            "recent": [list(pair) for pair in self._recent],
            "infos": {key: list(values) for key, values in self._infos.items()},
            "tracker": self._tracker.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self.episodes = int(state["episodes"])
        self._stride = int(state.get("stride", 1))  # checkpoints of earlier versions have none
        self.steps, self.returns = list(state["steps"]), list(state["returns"])
        self._recent.clear()
        self._recent.extend((float(total), int(length)) for total, length in state["recent"])
        self._infos = {
            key: deque(values, maxlen=RECENT_EPISODES) for key, values in state["infos"].items()
        }
        self._tracker.load_state_dict(state["tracker"])

    def metrics(self) -> dict[str, float]:
        """Means over the recent episodes; their number alone before the first one ended."""
        if not self._recent:
            return {"episodes": 0.0}
        returns, lengths = np.array(self._recent, np.float64).T
        return {
            "episodes": float(self.episodes),
            "episode_return_mean": float(returns.mean()),
            "episode_length_mean": float(lengths.mean()),
            **{f"episode_{key}_mean": float(np.mean(v)) for key, v in self._infos.items() if v},
        }
