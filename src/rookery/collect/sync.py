"""The plain collector: policy and vector env take turns in the calling process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv

from rookery.collect.base import Collector
from rookery.policy.base import Policy, SplitPolicy
from rookery.rollout import Rollout, Tree
from rookery.rollout.tree import assign, copy, merge_axes, stack, take


class SyncCollector(Collector):
    """Collects rollouts from any ``gymnasium.vector.VectorEnv``, in every autoreset mode.

    The three modes give the same data, apart from the rows in which next_step only resets an env;
    these are marked invalid.
    """

    def __init__(
        self,
        venv: VectorEnv[Any, Any, Any],
        policy: Policy,
        num_steps: int,
        *,
        seed: int | Sequence[int] | None = None,
        copy: bool = True,
    ) -> None:
        """Prepare; the envs are reset by the first `collect`.

        Args:
            venv: the envs; ``make_vec(..., copy=False)`` is safe here.
            policy: who acts. A `SplitPolicy` is faster.
            num_steps: T.
            seed: passed to the first reset.
            copy: False reuses the rollout's arrays, which are then valid until the next `collect`.
        """
        self.num_envs = venv.num_envs
        self.num_steps = num_steps
        self._venv = venv
        self._policy = policy
        self._seed = seed
        self._copy = copy
        self._mode = AutoresetMode(venv.metadata["autoreset_mode"])
        self._decide: Callable[[Rollout, int, Tree], npt.NDArray[Any]] = self._act
        if isinstance(policy, SplitPolicy):
            self._decide = self._sample
        self._obs: Tree = None
        self._storage: Rollout | None = None
        self._ended = np.zeros(venv.num_envs, np.bool_)
        self._faulted: list[tuple[int, npt.NDArray[np.bool_]]] = []
        self._final: list[tuple[int, int, Tree]] = []

    def collect(self) -> Rollout:
        if self._obs is None:
            self._obs, _ = self._venv.reset(seed=self._seed)  # type: ignore[arg-type]
        rollout = self._rows()
        self._faulted.clear()
        self._final.clear()
        self._run(rollout)
        self._mark_valid(rollout)
        self._add_final_obs(rollout)
        self._add_values(rollout)
        rollout.policy_version[:] = self._policy.version
        return rollout

    def _rows(self) -> Rollout:
        if self._storage is None or self._copy:
            space = self._venv.single_action_space
            action = np.empty((self.num_envs, *(space.shape or ())), space.dtype)
            self._storage = Rollout.allocate(self.num_steps, self._obs, action)
        return self._storage

    def _run(self, rollout: Rollout) -> None:
        """Step the envs. Everything that can be done for all rows at once is done afterwards."""
        step, to_env, obs = self._venv.step, self._policy.to_env, self._obs
        rewards, terminated, truncated = rollout.reward, rollout.terminated, rollout.truncated
        for t in range(self.num_steps):
            assign(rollout.obs, t, obs)
            action = self._decide(rollout, t, take(rollout.obs, t))
            rollout.action[t] = action
            obs, rewards[t], terminated[t], truncated[t], info = step(to_env(action))
            if info:
                self._read(info, t)
            if self._mode is AutoresetMode.DISABLED:
                obs = self._reset_ended(obs, terminated[t] | truncated[t], t)
        self._obs = obs

    def _sample(self, rollout: Rollout, t: int, obs: Tree) -> npt.NDArray[Any]:
        return self._policy.sample(obs)  # type: ignore[attr-defined, no-any-return]

    def _act(self, rollout: Rollout, t: int, obs: Tree) -> npt.NDArray[Any]:
        action, rollout.log_prob[t], rollout.value[t] = self._policy.act(obs)
        return action

    def _read(self, info: dict[str, Any], t: int) -> None:
        """Note the final observations (same_step) and the faults that step ``t`` reports."""
        if "final_obs" in info:
            for b in np.flatnonzero(info["_final_obs"]):
                self._final.append((t, int(b), copy(_of_env(info["final_obs"], b, self._obs))))
        if "fault" in info:
            self._faulted.append((t, np.array(info["_fault"], np.bool_)))

    def _reset_ended(self, obs: Tree, ended: npt.NDArray[np.bool_], t: int) -> Tree:
        """Reset the envs whose episode ended, where nobody else does (mode disabled)."""
        if not ended.any():
            return obs
        for b in np.flatnonzero(ended):
            self._final.append((t, int(b), copy(take(obs, b))))
        return self._venv.reset(options={"reset_mask": ended})[0]

    def _mark_valid(self, rollout: Rollout) -> None:
        rollout.valid[:] = True
        if self._mode is AutoresetMode.NEXT_STEP:
            ended = rollout.done
            rollout.valid[0] = ~self._ended
            rollout.valid[1:] = ~ended[:-1]
            self._ended = ended[-1]
        for t, mask in self._faulted:
            rollout.valid[t] &= ~mask

    def _add_final_obs(self, rollout: Rollout) -> None:
        rollout.last_obs = copy(self._obs)
        if self._mode is AutoresetMode.NEXT_STEP:
            rollout.final_index = np.argwhere(rollout.done)
            rollout.final_obs = _following(rollout, rollout.final_index)
        else:
            places = [(t, b) for t, b, _ in self._final]
            rollout.final_index = np.array(places, np.int64).reshape(-1, 2)
            rollout.final_obs = stack([obs for _, _, obs in self._final], self._obs)

    def _add_values(self, rollout: Rollout) -> None:
        """Compute what the envs did not have to wait for."""
        policy = self._policy
        if isinstance(policy, SplitPolicy):
            action = rollout.action.reshape(-1, *rollout.action.shape[2:])
            log_prob, value = policy.assess(merge_axes(rollout.obs), action)
            rollout.log_prob[:] = log_prob.reshape(rollout.log_prob.shape)
            rollout.value[:] = value.reshape(rollout.value.shape)
        rollout.last_value[:] = policy.value(rollout.last_obs)
        t, b = rollout.final_index.T
        cut = rollout.truncated[t, b] & ~rollout.terminated[t, b]
        rollout.final_value[:] = 0.0
        if cut.any():
            rollout.final_value[t[cut], b[cut]] = policy.value(take(rollout.final_obs, cut))


def _of_env(vectored: Any, b: Any, like: Tree) -> Tree:
    """Pick env b's observation out of gymnasium's vector info.

    There a Dict observation is a dict of arrays over the envs (with ``_key`` masks beside them);
    any other is one element of an object array.
    """
    if isinstance(vectored, dict):
        return {key: _of_env(vectored[key], b, branch) for key, branch in like.items()}
    return vectored[b]


def _following(rollout: Rollout, index: npt.NDArray[np.int64]) -> Tree:
    """Observations ``[K, ...]`` of the rows after ``(t, b)``: in next_step, the final ones."""
    t, b = index.T
    after = t + 1
    inside = after < rollout.num_steps
    final = take(rollout.obs, (np.minimum(after, rollout.num_steps - 1), b))
    assign(final, ~inside, take(rollout.last_obs, b[~inside]))
    return final
