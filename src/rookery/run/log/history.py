"""The episodes of a run: means for metrics, and points of the learning curve."""

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
    """Recent episodes for metrics, and a bounded number of episodes for the learning curve.

    A long run keeps every second, then every fourth episode and so on, evenly over its length.

    Args:
        num_envs: number of envs in the rollouts.
        max_points: largest number of kept episodes.
        episode_keys: names in ``final_info`` of the return and length of a complete episode. An end
            without these values ends only a part of an episode. If empty, returns and lengths are
            computed from the rewards and ends in the rollouts.

    Attributes:
        episodes: number of ended episodes.
        steps: env steps of all envs at the end of each kept episode.
        returns: return of each kept episode.
    """

    def __init__(
        self, num_envs: int, max_points: int = MAX_POINTS, episode_keys: tuple[str, ...] = ()
    ) -> None:
        self.episodes = 0
        self._episode_keys = episode_keys
        self._infos: dict[str, deque[float]] = {}
        self._has_checked = False  # `warn_of_missing` has checked the keys
        self.steps: list[int] = []
        self.returns: list[float] = []
        self._tracker = EpisodeTracker(num_envs)
        self._recent: deque[tuple[float, int]] = deque(maxlen=RECENT_EPISODES)
        self._max_points = max_points
        self._stride = 1  # episodes per kept episode

    def add(self, steps: int, rollout: Rollout) -> None:
        """Add the episodes of a rollout that ended at env step ``steps``."""
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
        """Keep the episodes whose number is a multiple of the stride."""
        first = self._stride - 1 - self.episodes % self._stride
        self.episodes += len(returns)
        self.steps += steps[first :: self._stride]
        self.returns += returns[first :: self._stride]
        while len(self.returns) > self._max_points:
            del self.returns[::2], self.steps[::2]
            self._stride *= 2

    def _ended(self, rollout: Rollout) -> Episodes:
        """Return the episodes that ended in a rollout."""
        ended = self._tracker.update(rollout)
        if not self._episode_keys or not rollout.final_info:  # empty if no episode ended
            return ended
        returns, lengths = (rollout.final_info[key] for key in self._episode_keys)
        whole = np.isfinite(returns)
        times, env_ids = rollout.final_index[whole].T
        return Episodes(env_ids, returns[whole], lengths[whole].astype(np.int64), times)

    def warn_of_missing(self, keys: Sequence[str]) -> None:
        """Warn once, after 100 episodes, about ``info_keys`` that no final info had."""
        if self._has_checked or self.episodes < RECENT_EPISODES:
            return
        self._has_checked = True
        missing = [repr(key) for key in keys if not self._infos.get(key)]
        if missing:
            gym.logger.warn(
                "%s",
                f"info_keys: {self.episodes} episodes have ended, but no info of a last step "
                f"had a number under {', '.join(missing)}",
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain data."""
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
        """Restore the state that `state_dict` returned."""
        self.episodes = int(state["episodes"])
        self._stride = int(state.get("stride", 1))  # missing in checkpoints of earlier versions
        self.steps, self.returns = list(state["steps"]), list(state["returns"])
        self._recent.clear()
        self._recent.extend((float(total), int(length)) for total, length in state["recent"])
        self._infos = {
            key: deque(values, maxlen=RECENT_EPISODES) for key, values in state["infos"].items()
        }
        self._tracker.load_state_dict(state["tracker"])

    def metrics(self) -> dict[str, float]:
        """Return the number of episodes, and means over the last 100 if there are any."""
        if not self._recent:
            return {"episodes": 0.0}
        returns, lengths = np.array(self._recent, np.float64).T
        return {
            "episodes": float(self.episodes),
            "episode_return_mean": float(returns.mean()),
            "episode_length_mean": float(lengths.mean()),
            **{f"episode_{key}_mean": float(np.mean(v)) for key, v in self._infos.items() if v},
        }
