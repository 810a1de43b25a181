"""ServedCollector: the policy acts here, on all envs in workers that have finished a step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from rookery.collect.base import Collector, CollectorStatistics, refuse_held_noise, refuse_memory
from rookery.collect.fill_rollout import add_values, decider, episode_ends, fault_mask
from rookery.common.seeding import consecutive_seeds
from rookery.common.trees import assign, copy, take
from rookery.errors import ConfigError, UsageError, WorkerError
from rookery.policy.actions import packed_form
from rookery.policy.base import Policy
from rookery.rollout import Rollout, Tree
from rookery.rollout.rollout import Finals
from rookery.rollout.text import array_leaves, holds_text, text_as_arrays
from rookery.vector.base import VectorEnv
from rookery.vector.statistics.snapshot import Statistics


class ServedCollector(Collector):
    """Acts on all envs that have answered, in one batch, while workers step the others.

    Within a rollout, no env waits for a slower env. The longer the policy takes, the more envs
    answer meanwhile, so its next batch is larger. This is useful for large networks, on a GPU or
    with many threads, and for steps of unequal duration.

    Every env makes T steps, but the batches depend on the speed of the envs. So random actions, and
    the last bits of floats, differ between runs.
    """

    def __init__(
        self,
        venv: VectorEnv,
        policy: Policy,
        num_steps: int,
        *,
        min_envs: int = 1,
        seed: int | Sequence[int | None] | None = None,
        values: bool = True,
        info_keys: Sequence[str] = (),
        between_steps: Callable[[], None] = lambda: None,
    ) -> None:
        """Create the collector; the first `collect` resets the envs.

        Args:
            venv: a vector env with ``autoreset_mode="same_step"`` and ``backend="process"``,
                because only workers step while this process acts.
            policy: policy that acts, without memory and without noise that lasts several steps.
            num_steps: steps of every env in a rollout, ``T``.
            min_envs: smallest batch to act on, except at the end of a rollout.
            seed: seed or seeds of the first reset.
            values: False leaves log probabilities and values zero, for learners that do not need
                them.
            info_keys: keys of numbers in the infos of episode ends, which a rollout stores in
                ``final_info``.
            between_steps: called before every wait for envs. If it raises, `collect` raises, and
                the next `collect` continues the rollout.

        Raises:
            ConfigError: this collector does not support the vector env or the policy.
        """
        refuse_memory(policy, "ServedCollector")
        refuse_held_noise(policy, "ServedCollector")
        if AutoresetMode(venv.metadata["autoreset_mode"]) is not AutoresetMode.SAME_STEP:
            raise ConfigError("ServedCollector needs a vector env with autoreset_mode='same_step'")
        if not 1 <= min_envs <= venv.num_envs:
            raise ConfigError(
                f"min_envs must lie in 1 to {venv.num_envs}, the number of envs, but is {min_envs}"
            )
        self.num_envs, self.num_steps = venv.num_envs, num_steps
        self._venv, self._policy, self._min_envs = venv, policy, min_envs
        self._seeds = consecutive_seeds(seed, venv.num_envs)
        self._space = venv.single_observation_space
        array_leaves(self._space)  # raises if a rollout cannot hold the observations
        self._has_text = holds_text(self._space)
        self._values, self._info_keys = values, tuple(info_keys)
        self._between_steps = between_steps
        self._decide = decider(policy)
        self._obs: Tree = None  # start of the next rollout, filled as envs finish
        self._rows = np.full(venv.num_envs, num_steps)  # steps that each env has made
        self._num_busy = 0  # envs with a pending step
        self._is_broken = False  # pending steps cannot be completed
        self._storage: Rollout | None = None
        self._final: list[tuple[int, int, Tree, dict[str, float]]] = []
        self._lost_rows = 0
        self._after_reset = np.zeros(venv.num_envs, np.bool_)

    def collect(self) -> Rollout:
        if self._obs is None or self._is_broken:
            self.reset()
        rollout = self._storage
        if rollout is None or not self._num_busy:
            rollout = self._begin()
        while self._num_busy:
            self._between_steps()
            self._is_broken = True
            self._receive(rollout)
            self._is_broken = False
        return self._completed(rollout)

    def reset(self, seed: Sequence[int] | None = None) -> None:
        self._is_broken = True
        self._drop_pending()
        seeds, self._seeds = self._seeds if seed is None else list(seed), [None] * self.num_envs
        obs, _ = self._venv.reset(seed=seeds)
        self._obs = copy(self._as_arrays(obs))
        self._num_busy, self._is_broken = 0, False
        self._after_reset[:] = True

    def _drop_pending(self) -> None:
        """Receive and drop all pending answers; after an interruption their number is unknown."""
        with suppress(UsageError):  # none is left, or the reset drops them
            while True:
                with suppress(WorkerError):  # an interrupted rollout has reported it already
                    self._venv.recv()

    def _as_arrays(self, obs: Tree) -> Tree:
        return text_as_arrays(self._space, obs) if self._has_text else obs

    def _begin(self) -> Rollout:
        """Start a rollout by acting on all envs."""
        shape, dtype = packed_form(self._venv.single_action_space)
        action = np.empty((self.num_envs, *shape), dtype)
        self._storage = rollout = Rollout.allocate(self.num_steps, self._obs, action)
        rollout.valid[:] = True
        self._rows[:] = 0
        self._final.clear()
        self._policy.current_version()
        self._is_broken = True
        self._serve(rollout, self._obs, np.arange(self.num_envs))
        self._is_broken = False
        return rollout

    def _serve(self, rollout: Rollout, obs: Tree, ids: npt.NDArray[np.int64]) -> None:
        """Act on the observations of some envs, and start their steps."""
        before = time.perf_counter()
        row = self._rows[ids], ids
        assign(rollout.obs, row, obs)
        action = self._decide(rollout, row, obs)
        rollout.action[row] = action
        to_env = self._policy.to_env(action)
        decided = time.perf_counter()
        self._venv.send(to_env, ids)
        self._num_busy += len(ids)
        self.env_s += time.perf_counter() - decided
        self.policy_s += decided - before

    def _receive(self, rollout: Rollout) -> None:
        """Wait for envs, store their results, and act on the envs that have steps left."""
        waited = time.perf_counter()
        answer = self._venv.recv(min_envs=min(self._min_envs, self._num_busy))
        seen, reward, terminated, truncated, info, ids = answer
        self.env_s += time.perf_counter() - waited
        self._num_busy -= len(ids)
        obs, rows = self._as_arrays(seen), self._rows[ids]
        rollout.reward[rows, ids] = reward
        rollout.terminated[rows, ids], rollout.truncated[rows, ids] = terminated, truncated
        if info:
            self._read(rollout, info, rows, ids)
        self._rows[ids] += 1
        has_next = rows + 1 < self.num_steps
        if not has_next.all():
            assign(self._obs, ids[~has_next], take(obs, ~has_next))
            obs, ids = take(obs, has_next), ids[has_next]
        if len(ids):
            self._serve(rollout, obs, ids)

    def _read(
        self,
        rollout: Rollout,
        info: dict[str, Any],
        rows: npt.NDArray[np.int64],
        ids: npt.NDArray[np.int64],
    ) -> None:
        """Store the final observations and the faults that some steps report."""
        for place, obs, numbers in episode_ends(info, self._obs, self._as_arrays, self._info_keys):
            self._final.append((int(rows[place]), int(ids[place]), obs, numbers))
        lost = fault_mask(info)
        if lost is not None:
            rollout.valid[rows[lost], ids[lost]] = False
            self._lost_rows += int(lost.sum())

    def _completed(self, rollout: Rollout) -> Rollout:
        rollout.last_obs = copy(self._obs)
        self._final.sort(key=lambda end: end[:2])
        Finals.of(self._final, self._obs).put_into(rollout)
        rollout.after_reset[:] = self._after_reset
        self._after_reset[:] = False
        if self._values:
            add_values(self._policy, rollout)
        rollout.policy_version[:] = self._policy.version
        self._storage = None
        return rollout

    def statistics(self) -> CollectorStatistics:
        return CollectorStatistics(self._venv.restarts, self._lost_rows)

    def telemetry(self) -> Statistics | None:
        return self._venv.statistics()
