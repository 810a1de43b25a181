"""Actor: a copy of the policy that acts inside a worker, so that no step needs the caller."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode

from rookery.collect.fill_rollout import add_values, decider
from rookery.collect.rollout_buffers import (
    DROPPED,
    ROW,
    START,
    RolloutBuffers,
    RolloutShape,
)
from rookery.common.seeding import first_seed
from rookery.common.trees import assign, copy, take
from rookery.policy.base import Policy, follows_episodes
from rookery.rollout import Rollout, Tree
from rookery.rollout.rollout import Finals, numbers_of
from rookery.shared.row_buffer import ROWS_ONLY, RowExtras
from rookery.worker.loop import Methods, WorkerParts

RESET_ALL = "reset_all"  # request to start new episodes with given seeds


class ActorReport(NamedTuple):
    """Message of an actor about a rollout that it wrote to shared memory.

    Attributes:
        finals: episode ends, with columns counted within this worker; None if no episode ended.
        policy_s: seconds of the rollout outside env steps.
        env_s: seconds of the rollout in env steps.
    """

    finals: Finals | None
    policy_s: float
    env_s: float


@dataclass(frozen=True)
class ActorSpec:
    """Everything that a worker needs to create its actor.

    Attributes:
        shape: shape of the rollouts that all actors fill together.
        policy: the policy that every actor copies.
        first_id: index of the worker's first env.
        last_id: index after the worker's last env.
        stream: random stream of this copy; see `Policy.use_stream`.
        info_keys: keys of the numbers to keep from the infos of episode ends.
    """

    shape: RolloutShape
    policy: Policy
    first_id: int
    last_id: int
    stream: int
    info_keys: tuple[str, ...] = ()


def install_actor(parts: WorkerParts, spec: ActorSpec) -> Methods:
    """Create an actor in a worker and return its methods."""
    actor = Actor(parts, spec)
    return {"collect": actor.collect, RESET_ALL: actor.reset_all}


class StoppedError(Exception):
    """Raised in an actor when the collector is being closed."""


class EndsOfEpisodes:
    """Sink of infos that keeps only the final observations and numbers of ended episodes.

    Args:
        info_keys: keys of the numbers to keep from the infos.

    Attributes:
        t: the current row of the rollout.
        kept: row, env id, final observation and numbers of each ended episode.
    """

    has_extras = False

    def __init__(self, info_keys: Sequence[str]) -> None:
        self.used: set[int] = set()
        self.t = 0
        self.kept: list[tuple[int, int, Tree, dict[str, float]]] = []
        self._info_keys = info_keys

    def final(self, env_id: int, obs: Tree, info: dict[str, Any]) -> None:
        self.kept.append((self.t, env_id, deepcopy(obs), numbers_of(info, self._info_keys)))

    def post(self, env_id: int, info: dict[str, Any], final: Any = None) -> None:
        return

    def post_all(
        self, env_ids: Any, columns: Any, rest: Mapping[int, dict[str, Any]], order: Any
    ) -> None:
        for env_id, info in rest.items():
            if "final_obs" in info:
                self.final(env_id, info["final_obs"], info.get("final_info", {}))

    def joined(self, first_id: int, like: Tree) -> Finals | None:
        """Return the episode ends in the form of `ActorReport.finals`."""
        if not self.kept:
            return None
        own = [(t, env_id - first_id, obs, numbers) for t, env_id, obs, numbers in self.kept]
        return Finals.of(own, like)

    def clear(self, env_id: int) -> None:
        return

    def extras(self) -> RowExtras:
        return ROWS_ONLY


class Actor:
    """A policy copy that steps the envs of one worker T times per rollout."""

    def __init__(self, parts: WorkerParts, spec: ActorSpec) -> None:
        self._policy = policy = spec.policy
        policy.use_stream(spec.stream)
        shared = RolloutBuffers(spec.shape, policy.model)
        shared.map(parts.memory)
        self._weights, self._stop = shared.weights, shared.stop
        self._batch = parts.batch
        self._arrays = shared.arrays_for(parts.arrays)
        self._ends = EndsOfEpisodes(spec.info_keys)
        self._batch.attach(self._arrays, AutoresetMode.SAME_STEP, parts.progress, sink=self._ends)
        self._first_id, self._num_steps = spec.first_id, spec.shape.num_steps
        buffers = range(spec.shape.num_buffers)
        envs = slice(spec.first_id, spec.last_id)
        self._rollouts = [shared.rollout(buffer, envs) for buffer in buffers]
        first = self._rollouts[0]
        self._no_finals = Finals(first.final_index, first.final_obs, {})
        # Sliced once: a slice and its tuple cost 200 ns each, for every step and leaf.
        self._obs = [
            [take(shared.obs(buffer, envs), t) for t in range(self._num_steps + 1)]
            for buffer in buffers
        ]
        self._reset_obs = take(self._arrays.reset_obs, envs)
        self._words = shared.words(spec.first_id)
        self._info_keys = spec.info_keys
        self._follow_seed = parts.follow_seed
        self._is_reset = False  # reset since the last rollout
        self._was_reset = False  # reset at least once
        self._follows_episodes = follows_episodes(policy)
        self._decide = decider(policy)

    def reset_all(self, seeds: Sequence[int | None]) -> None:
        """Start new episodes in all envs, from which the next rollout starts.

        Args:
            seeds: a seed or None for each env.
        """
        ids, first = self._batch.ids, first_seed(seeds)
        if first is not None and not self._was_reset:
            self._follow_seed(first)
        self._batch.reset(len(self._arrays.obs) - 1, ids, seeds, [None] * len(ids))
        self._policy.begin_episodes(np.ones(len(ids), np.bool_))
        self._is_reset = self._was_reset = True

    def collect(self, buffer: int) -> ActorReport:
        """Fill a buffer, continuing from the previous buffer or from the rows already filled.

        Rows that a lost worker filled with the same weights are kept. A new worker resets its envs
        first.
        """
        started, busy_s = time.perf_counter(), self._batch.busy_s
        version = self._weights.read(self._policy.model)
        rollout = self._rollouts[buffer]
        if self._words[START] and (rollout.policy_version != version).any():
            self._words[DROPPED] += self._words[START] * rollout.num_envs
            self._words[START] = 0
        start = self._words[START]
        if not self._was_reset:
            self.reset_all([None] * rollout.num_envs)
        first_obs = self._reset_obs if self._is_reset else self._obs[buffer - 1][-1]
        assign(self._obs[buffer][start], ..., first_obs)
        self._ends.kept.clear()
        if start:
            self._leave_out_lost_ends(rollout, start)
        else:
            self._begin(rollout, version)
        self._is_reset = False
        self._run(buffer, rollout, start)
        finals = self._ends.joined(self._first_id, rollout.last_obs)
        (finals or self._no_finals).put_into(rollout)
        add_values(self._policy, rollout)
        env_s = self._batch.busy_s - busy_s
        return ActorReport(finals, time.perf_counter() - started - env_s, env_s)

    def _begin(self, rollout: Rollout, version: int) -> None:
        """Initialize the columns of a rollout that do not depend on its steps."""
        rollout.valid[:] = True
        rollout.policy_version[:] = version
        rollout.after_reset[:] = self._is_reset
        if rollout.memory is not None:
            rollout.memory[:] = self._policy.memory

    def _leave_out_lost_ends(self, rollout: Rollout, start: int) -> None:
        """Mark rows as invalid if their final observations were lost with a worker.

        The last known observation replaces the lost one. After a termination none is needed.
        """
        lost = (rollout.truncated & ~rollout.terminated)[:start]
        rollout.valid[:start] &= ~lost
        none = numbers_of({}, self._info_keys)
        for t, b in np.argwhere(lost).tolist():
            obs = copy(take(rollout.obs, (t, b)))
            self._ends.kept.append((t, self._first_id + b, obs, none))

    def _run(self, buffer: int, rollout: Rollout, start: int) -> None:
        """Step the envs; work that can be done for all rows at once is done afterwards."""
        step, to_env, decide = self._batch.step, self._policy.to_env, self._decide
        arrays, ends, actions, stop = self._arrays, self._ends, rollout.action, self._stop
        first, words = buffer * self._num_steps, self._words
        for t, obs in enumerate(self._obs[buffer][start:-1], start):
            if stop[0]:
                raise StoppedError
            action = decide(rollout, t, obs)
            actions[t] = action
            arrays.actions_now = copy(to_env(action))  # a copy, because an env may keep its action
            ends.t = t
            words[ROW] = first + t
            step(first + t)
            if self._follows_episodes:
                self._policy.begin_episodes(rollout.terminated[t] | rollout.truncated[t])
