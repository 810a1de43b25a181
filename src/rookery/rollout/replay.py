"""Old experience, kept to learn from again: a ring of rows over all envs."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rookery.rollout.priorities import Priorities
from rookery.rollout.rollout import Rollout
from rookery.rollout.tree import Tree, assign, copy, stack, take, tree_map, zeros_rows

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float32]

_COLUMNS = ("obs", "action", "reward", "terminated", "truncated", "valid")


class Transitions(NamedTuple):
    """N steps, or sums of a few steps, out of a replay.

    Attributes:
        place: int64 ``[N]``, where they lie in the replay.
        obs: ``[N, *obs]``.
        action: ``[N, *action]``.
        reward: float32 ``[N]``, the discounted sum of up to ``n_step`` rewards.
        next_obs: ``[N, *obs]``, what followed the last of them, in the same episode.
        discount: float32 ``[N]``, what a value of ``next_obs`` counts: ``gamma ** steps``, or zero
            where the episode terminated.
        weight: float32 ``[N]``, corrects for drawing some more often than others; ones where all
            are drawn alike.
    """

    place: Ints
    obs: Tree
    action: npt.NDArray[Any]
    reward: Floats
    next_obs: Tree
    discount: Floats
    weight: Floats


class Replay:
    """The last transitions of B envs.

    Row ``[r, b]`` holds what env b showed, was told and answered. What it showed next is the next
    row's observation and is stored once only; where an episode was truncated there is no such row,
    and the true final observation is kept aside. One row beyond the newest holds the observations
    that nobody acted on yet.

    Args:
        num_rows: how many rows are kept, so ``num_rows * num_envs`` transitions.
        num_envs: B.
        gamma: discount within sums of rewards.
        n_step: the most rewards in one sum (Sutton 1988); a sum ends with its episode, before an
            invalid row, and at the newest row.
        priority_exponent: alpha of prioritised replay; None draws all transitions alike.
    """

    def __init__(
        self,
        num_rows: int,
        num_envs: int,
        *,
        gamma: float,
        n_step: int = 1,
        priority_exponent: float | None = None,
    ) -> None:
        self._num_places = num_rows + 1
        self._num_envs = num_envs
        self._gamma = np.float32(gamma)
        self._n_step = n_step
        self._rows: dict[str, Tree] = {}
        self._final_obs: dict[int, dict[int, Tree]] = {}  # row -> env -> observation
        self._head = 0  # the row beyond the newest
        self._num_rows = 0
        self._priorities: Priorities | None = None
        if priority_exponent is not None:
            self._priorities = Priorities(self._num_places * num_envs, priority_exponent)

    def __len__(self) -> int:
        """Count the transitions that can be drawn."""
        return int(self._rows["valid"].sum()) if self._rows else 0

    # ---------------------------------------------------------------- writing

    def add(self, rollout: Rollout) -> None:
        """Take in a rollout that follows the one before it; its arrays are copied."""
        num_steps = rollout.num_steps
        if not self._rows:
            self._allocate(rollout)
        self._end_episodes(rollout.after_reset)
        places = (self._head + np.arange(num_steps + 1)) % self._num_places
        for name in _COLUMNS:
            assign(self._rows[name], places[:-1], getattr(rollout, name))
        self._head = int(places[-1])
        assign(self._rows["obs"], self._head, rollout.last_obs)
        self._rows["valid"][self._head] = False
        self._num_rows = min(self._num_rows + num_steps, self._num_places - 1)
        for place in places.tolist():
            self._final_obs.pop(place, None)
        self._keep_final_obs(rollout, places)
        if self._priorities:
            index = places[:, None] * self._num_envs + np.arange(self._num_envs)
            self._priorities.admit(index.ravel(), self._rows["valid"][places].ravel())

    def _end_episodes(self, after_reset: npt.NDArray[np.bool_]) -> None:
        """Note that envs were reset from outside: the newest rows were their episodes' last."""
        if not self._num_rows:
            return
        newest = (self._head - 1) % self._num_places
        going_on = after_reset & ~self._done(newest)
        self._rows["truncated"][newest, going_on] = True
        final = take(self._rows["obs"], self._head)
        kept = {int(b): copy(take(final, b)) for b in np.flatnonzero(going_on)}
        if not kept:
            return
        self._final_obs.setdefault(newest, {}).update(kept)

    def _allocate(self, rollout: Rollout) -> None:
        for name in _COLUMNS:
            row = take(getattr(rollout, name), 0)
            self._rows[name] = zeros_rows(self._num_places, row)

    def _keep_final_obs(self, rollout: Rollout, places: Ints) -> None:
        for k, (t, b) in enumerate(rollout.final_index.tolist()):
            if rollout.truncated[t, b] and not rollout.terminated[t, b]:
                at = self._final_obs.setdefault(int(places[t]), {})
                at[b] = copy(take(rollout.final_obs, k))

    # ---------------------------------------------------------------- reading

    def sample(self, count: int, rng: np.random.Generator, beta: float = 1.0) -> Transitions:
        """Draw ``count`` valid transitions, with replacement; there must be one.

        Args:
            count: N.
            rng: draws them.
            beta: how far prioritised drawing is corrected for, from 0 to 1: the weights are
                ``(N * P(i)) ** -beta``, divided by the largest (Schaul et al. 2016, section 3.4).
        """
        if self._priorities is None:
            return self.gather(self._draw(count, rng))
        index, probability = self._priorities.draw(count, rng)
        weight = probability**-beta
        weight /= weight.max()
        return self.gather(index, weight.astype(np.float32))

    def gather(self, index: Ints, weight: Floats | None = None) -> Transitions:
        """Read the transitions at the places ``index``, int64 ``[N]``."""
        row, env = np.divmod(index, self._num_envs)
        reward, last, discount = self._sum_rewards(row, env)
        rows = self._rows
        next_obs = take(rows["obs"], ((last + 1) % self._num_places, env))
        terminated = rows["terminated"][last, env]
        cut = np.flatnonzero(rows["truncated"][last, env] & ~terminated)
        if len(cut):
            final = [self._final_obs[int(last[i])][int(env[i])] for i in cut]
            assign(next_obs, cut, stack(final, next_obs))
        discount[terminated] = 0.0
        return Transitions(
            place=index,
            obs=take(rows["obs"], (row, env)),
            action=rows["action"][row, env],
            reward=reward,
            next_obs=next_obs,
            discount=discount,
            weight=np.ones(len(index), np.float32) if weight is None else weight,
        )

    def set_errors(self, index: Ints, error: Floats) -> None:
        """Tell what errors, float32 ``[N]``, the transitions ``index`` had; priorities follow."""
        if self._priorities:
            self._priorities.learn(index, error)

    def _draw(self, count: int, rng: np.random.Generator) -> Ints:
        valid = self._rows["valid"]
        index = np.empty(count, np.int64)
        missing = np.ones(count, np.bool_)
        while missing.any():
            offset = rng.integers(self._num_rows * self._num_envs, size=int(missing.sum()))
            oldest = (self._head - self._num_rows) * self._num_envs
            index[missing] = (oldest + offset) % (self._num_places * self._num_envs)
            missing = ~valid.reshape(-1)[index]
        return index

    def _sum_rewards(self, row: Ints, env: Ints) -> tuple[Floats, Ints, Floats]:
        """Sum discounted rewards from ``[row, env]`` on.

        Returns:
            The sums, the rows of the last reward in each, and ``gamma ** steps``.
        """
        rows, last = self._rows, row
        reward = rows["reward"][row, env]
        discount = np.full(len(row), self._gamma, np.float32)
        goes_on = ~self._done((row, env))
        for _ in range(self._n_step - 1):
            following = (last + 1) % self._num_places
            # The row beyond the newest is never valid.
            goes_on &= rows["valid"][following, env]
            last = np.where(goes_on, following, last)
            reward += goes_on * discount * rows["reward"][following, env]
            discount[goes_on] *= self._gamma
            goes_on &= ~self._done((following, env))
        return reward, last, discount

    def _done(self, where: Any) -> npt.NDArray[np.bool_]:
        return np.asarray(self._rows["terminated"][where] | self._rows["truncated"][where])

    # ---------------------------------------------------------------- saving

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on from here, as plain data."""
        # Before the ring has come round, nothing lies beyond the head.
        full = self._num_rows == self._num_places - 1
        used = slice(0, self._num_places if full else self._head + 1)
        return {
            "rows": {name: copy(take(column, used)) for name, column in self._rows.items()},
            "head": self._head,
            "num_rows": self._num_rows,
            "final_obs": [
                [row, env, copy(obs)]
                for row, by_env in self._final_obs.items()
                for env, obs in by_env.items()
            ],
            "priorities": self._priorities.state_dict() if self._priorities else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        for name, saved in state["rows"].items():
            column = zeros_rows(self._num_places, tree_map(lambda a: a[0], _trees(saved)))
            assign(column, slice(0, len(state["rows"]["valid"])), _trees(saved))
            self._rows[name] = column
        self._head, self._num_rows = int(state["head"]), int(state["num_rows"])
        self._final_obs = {}
        for row, env, obs in state["final_obs"]:
            self._final_obs.setdefault(int(row), {})[int(env)] = _trees(obs)
        if self._priorities:
            self._priorities.load_state_dict(state["priorities"])


def _trees(saved: Any) -> Tree:
    """Turn the lists of plain data back into the tuples of a tree."""
    if isinstance(saved, dict):
        return {key: _trees(branch) for key, branch in saved.items()}
    return tuple(map(_trees, saved)) if isinstance(saved, (list, tuple)) else np.asarray(saved)
