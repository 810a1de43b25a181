"""Replay of past transitions, with a ring buffer of rows for each env."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rookery.common.trees import Tree, assign, copy, stack, take, tree_map, zeros_rows
from rookery.rollout.priorities import Priorities
from rookery.rollout.rollout import Rollout

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float32]
Flags: TypeAlias = npt.NDArray[np.bool_]

_COLUMNS = ("obs", "action", "reward", "terminated", "truncated", "valid")


class Transitions(NamedTuple):
    """N sampled transitions of one or ``n_step`` steps.

    Attributes:
        place: int64 ``[N]``, places in the replay.
        obs: ``[N, *obs]``.
        action: ``[N, *action]``.
        reward: float32 ``[N]``, the discounted sum of up to ``n_step`` rewards.
        next_obs: ``[N, *obs]``, the observation after the last reward, in the same episode.
        discount: float32 ``[N]``, factor of the value of ``next_obs``: ``gamma ** steps``, or zero
            if the episode terminated.
        weight: float32 ``[N]``, importance weights of prioritised sampling; ones for uniform
            sampling.
        path_obs: ``[n_step - 1, N, *obs]``, the observations between ``obs`` and ``next_obs``;
            None without ``with_path`` and with ``n_step`` 1.
        path_discount: float32 ``[n_step - 1, N]``, factor of the reward after each of ``path_obs``
            in the sum; zero if the sum ended before.
    """

    place: Ints
    obs: Tree
    action: npt.NDArray[Any]
    reward: Floats
    next_obs: Tree
    discount: Floats
    weight: Floats
    path_obs: Tree | None = None
    path_discount: Floats | None = None


class _Sums(NamedTuple):
    """Discounted sums of rewards.

    Attributes:
        reward: float32 ``[N]``, the sums.
        last: int64 ``[N]``, the rows of the last reward in each.
        discount: float32 ``[N]``, ``gamma ** steps``.
        rows: int64 ``[N]`` for each further step, the rows of rewards that may be in the sum.
        discounts: float32 ``[N]`` for each, what those rewards counted.
    """

    reward: Floats
    last: Ints
    discount: Floats
    rows: list[Ints]
    discounts: list[Floats]


class Replay:
    """Replay buffer of the last transitions of B envs.

    Row ``[r, b]`` holds observation, action, reward and flags of one step of env b. The next
    observation is stored only once, in the next row. Final observations of truncated episodes are
    stored separately. The row after an env's newest row holds the observation without an action
    yet. Every env has a separate ring, so that rollouts of some of the envs can be added.

    Args:
        num_rows: number of rows, for ``num_rows * num_envs`` transitions.
        num_envs: number of envs, B.
        gamma: discount within sums of rewards.
        n_step: maximum number of rewards in one sum (Sutton 1988); a sum ends with its episode,
            before an invalid row, and at the newest row.
        priority_exponent: alpha of prioritised replay; None samples uniformly.
        with_path: include the observations within the sums in transitions.
    """

    def __init__(
        self,
        num_rows: int,
        num_envs: int,
        *,
        gamma: float,
        n_step: int = 1,
        priority_exponent: float | None = None,
        with_path: bool = False,
    ) -> None:
        self._num_places = num_rows + 1
        self._num_envs = num_envs
        self._gamma = np.float32(gamma)
        self._n_step = n_step
        self._with_path = with_path and n_step > 1
        self._rows: dict[str, Tree] = {}
        self._final_obs: dict[tuple[int, int], Tree] = {}  # by row and env
        self._heads = np.zeros(num_envs, np.int64)  # each env's row beyond the newest
        self._counts = np.zeros(num_envs, np.int64)  # each env's rows
        self._priorities: Priorities | None = None
        if priority_exponent is not None:
            self._priorities = Priorities(self._num_places * num_envs, priority_exponent)

    def __len__(self) -> int:
        """Count the transitions that can be drawn."""
        return int(np.count_nonzero(self._rows["valid"])) if self._rows else 0

    @property
    def is_empty(self) -> bool:
        """True if no rollout was added yet."""
        return not self._rows

    # ---------------------------------------------------------------- writing

    def add(self, rollout: Rollout) -> None:
        """Add a copy of a rollout.

        Its columns are the envs ``rollout.env_ids``. Each continues the env's last rollout.
        """
        if not self._rows:
            self._allocate(rollout)
        envs = rollout.env_ids
        self._end_episodes(envs[rollout.after_reset])
        places = (self._heads[envs] + np.arange(rollout.num_steps + 1)[:, None]) % self._num_places
        self._drop_final_obs(places, envs)
        for name in self._rows:
            assign(self._rows[name], (places[:-1], envs), getattr(rollout, name))
        self._heads[envs] = heads = places[-1]
        assign(self._rows["obs"], (heads, envs), rollout.last_obs)
        self._rows["valid"][heads, envs] = False
        # What would become of an old flag: a final observation to drop that there is none of.
        self._rows["truncated"][heads, envs] = False
        added = self._counts[envs] + rollout.num_steps
        self._counts[envs] = np.minimum(added, self._num_places - 1)
        self._keep_final_obs(rollout, places)
        self._admit(places, np.broadcast_to(envs, places.shape))

    def _admit(self, places: Ints, envs: Ints) -> None:
        if self._priorities:
            index = (places * self._num_envs + envs).ravel()
            self._priorities.admit(index, self._rows["valid"].reshape(-1)[index])

    def _end_episodes(self, envs: Ints) -> None:
        """Mark the newest rows of ``envs``, which were reset from outside, as episode ends."""
        for b in envs[self._counts[envs] > 0].tolist():
            newest, head = (self._heads[b] - 1) % self._num_places, self._heads[b]
            if not self._done((newest, b)):
                self._rows["truncated"][newest, b] = True
                self._final_obs[int(newest), b] = copy(take(self._rows["obs"], (head, b)))

    def _allocate(self, rollout: Rollout) -> None:
        num_envs = self._num_envs
        for name in _COLUMNS:
            like = take(getattr(rollout, name), (0, 0))
            self._rows[name] = tree_map(
                lambda a: np.zeros((self._num_places, num_envs, *np.shape(a)), a.dtype), like
            )

    def _drop_final_obs(self, places: Ints, envs: Ints) -> None:
        """Delete the final observations of rows that are about to be overwritten."""
        cut = self._rows["truncated"][places, envs] & ~self._rows["terminated"][places, envs]
        for t, k in np.argwhere(cut).tolist():
            self._final_obs.pop((int(places[t, k]), int(envs[k])), None)

    def _keep_final_obs(self, rollout: Rollout, places: Ints) -> None:
        for k, (t, b) in enumerate(rollout.final_index.tolist()):
            if rollout.truncated[t, b] and not rollout.terminated[t, b]:
                place = int(places[t, b]), int(rollout.env_ids[b])
                self._final_obs[place] = copy(take(rollout.final_obs, k))

    # ---------------------------------------------------------------- reading

    def sample(self, count: int, rng: np.random.Generator, beta: float = 1.0) -> Transitions:
        """Draw ``count`` valid transitions, with replacement; there must be one.

        Args:
            count: N.
            rng: draws them.
            beta: degree of the correction for prioritised sampling, from 0 to 1: the weights are
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
        sums = self._sum_rewards(row, env)
        rows, last = self._rows, sums.last
        following = (last + 1) % self._num_places
        next_obs = take(rows["obs"], (following, env))
        terminated = rows["terminated"][last, env]
        cut = np.flatnonzero(rows["truncated"][last, env] & ~terminated)
        if len(cut):
            final = [self._final_obs[int(last[i]), int(env[i])] for i in cut]
            assign(next_obs, cut, stack(final, next_obs))
        sums.discount[terminated] = 0.0
        path: tuple[Any, Any] = None, None
        if self._with_path:
            path = take(rows["obs"], (np.stack(sums.rows), env)), np.stack(sums.discounts)
        return Transitions(
            index,
            take(rows["obs"], (row, env)),
            rows["action"][row, env],
            sums.reward,
            next_obs,
            sums.discount,
            np.ones(len(index), np.float32) if weight is None else weight,
            *path,
        )

    def set_errors(self, index: Ints, error: Floats) -> None:
        """Set the priorities of the transitions ``index`` from their errors, float32 ``[N]``."""
        if self._priorities:
            self._priorities.learn(index, error)

    def _draw(self, count: int, rng: np.random.Generator) -> Ints:
        valid = self._rows["valid"].reshape(-1)
        ends = np.cumsum(self._counts)
        oldest = self._heads - self._counts
        index = np.empty(count, np.int64)
        missing = np.ones(count, np.bool_)
        while missing.any():
            drawn = rng.integers(ends[-1], size=int(missing.sum()))
            env = np.searchsorted(ends, drawn, side="right")
            row = (oldest[env] + drawn - (ends - self._counts)[env]) % self._num_places
            index[missing] = row * self._num_envs + env
            missing = ~valid[index]
        return index

    def _sum_rewards(self, row: Ints, env: Ints) -> _Sums:
        """Sum discounted rewards from ``[row, env]`` on."""
        rows, last = self._rows, row
        reward = rows["reward"][row, env]
        discount = np.full(len(row), self._gamma, np.float32)
        goes_on = ~self._done((row, env))
        sums = _Sums(reward, last, discount, [], [])
        for _ in range(self._n_step - 1):
            following = (last + 1) % self._num_places
            # The row beyond the newest is never valid.
            goes_on &= rows["valid"][following, env]
            last = np.where(goes_on, following, last)
            counts = goes_on * discount
            sums.rows.append(following)
            sums.discounts.append(counts)
            reward += counts * rows["reward"][following, env]
            discount[goes_on] *= self._gamma
            goes_on &= ~self._done((following, env))
        return sums._replace(last=last)

    def _done(self, where: Any) -> Flags:
        return np.asarray(self._rows["terminated"][where] | self._rows["truncated"][where])

    # ---------------------------------------------------------------- saving

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain data.

        The arrays are views, valid until the next `add`, because a copy of a large replay might
        not fit into memory.
        """
        # Before a ring has come round, nothing lies beyond its head.
        full = bool((self._counts == self._num_places - 1).any())
        used = slice(0, self._num_places if full else int(self._heads.max()) + 1)
        return {
            "rows": {name: take(column, used) for name, column in self._rows.items()},
            "heads": self._heads.copy(),
            "counts": self._counts.copy(),
            "final_obs": [[row, env, obs] for (row, env), obs in self._final_obs.items()],
            "priorities": self._priorities.state_dict() if self._priorities else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state of `state_dict`."""
        for name, saved in state["rows"].items():
            column = zeros_rows(self._num_places, tree_map(lambda a: a[0], _trees(saved)))
            assign(column, slice(0, len(state["rows"]["valid"])), _trees(saved))
            self._rows[name] = column
        self._heads[:], self._counts[:] = state["heads"], state["counts"]
        self._final_obs = {
            (int(row), int(env)): copy(_trees(obs)) for row, env, obs in state["final_obs"]
        }
        if self._priorities:
            self._priorities.load_state_dict(state["priorities"])


def _trees(saved: Any) -> Tree:
    """Turn the lists of plain data back into the tuples of a tree."""
    if isinstance(saved, dict):
        return {key: _trees(branch) for key, branch in saved.items()}
    return tuple(map(_trees, saved)) if isinstance(saved, (list, tuple)) else np.asarray(saved)
