"""The plain collector: policy and vector env alternate in the calling process."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv

from rookery.collect.base import Collector, CollectorStatistics
from rookery.collect.fill_rollout import add_values, decider, episode_ends, fault_mask, info_numbers
from rookery.common.trees import assign, copy, take, tree_map
from rookery.env.wrappers.action_mask import MASK_KEY
from rookery.errors import ConfigError
from rookery.policy.actions import packed_form
from rookery.policy.base import Policy, follows_episodes, noise_from_dict, noise_to_dict
from rookery.rollout import Rollout, Tree
from rookery.rollout.rollout import Finals, numbers_of
from rookery.rollout.text import array_leaves, holds_text, text_as_arrays
from rookery.vector.base import VectorEnv as HalvedVectorEnv
from rookery.vector.statistics.snapshot import Statistics

# The columns of a rollout that are written step by step.
_STEPPED = ("obs", "action", "reward", "terminated", "truncated", "log_prob", "value")


class SyncCollector(Collector):
    """Collects rollouts from any ``gymnasium.vector.VectorEnv``, in every autoreset mode.

    All modes produce the same data, except for rows in which next_step only resets an env; these
    are marked invalid.
    """

    def __init__(
        self,
        venv: VectorEnv[Any, Any, Any],
        policy: Policy,
        num_steps: int,
        *,
        seed: int | Sequence[int] | None = None,
        copy: bool = True,
        values: bool = True,
        info_keys: Sequence[str] = (),
        between_steps: Callable[[], None] = lambda: None,
    ) -> None:
        """Create the collector; the first `collect` resets the envs.

        Args:
            venv: the envs; ``make_vec(..., copy=False)`` is safe here.
            policy: policy that acts. A `SplitPolicy` is faster.
            num_steps: steps of every env in a rollout, ``T``.
            seed: seed or seeds of the first reset.
            copy: False reuses the rollout's arrays, which are then valid until the next `collect`.
            values: False leaves log probabilities and values zero, for learners that do not need
                them.
            info_keys: keys of numbers in the infos of episode ends, which a rollout stores in
                ``final_info``.
            between_steps: called before every step. If it raises, `collect` raises, and the next
                `collect` continues the rollout.
        """
        self.num_envs = venv.num_envs
        self.num_steps = num_steps
        self._venv = venv
        self._policy = policy
        self._seed = seed
        self._copy = copy
        self._mode = AutoresetMode(venv.metadata["autoreset_mode"])
        if policy.is_recurrent and self._mode is AutoresetMode.NEXT_STEP:
            raise ConfigError(
                "recurrent policies need autoreset_mode 'same_step' or 'disabled': in 'next_step' "
                "they would remember the rows that only reset an env"
            )
        self._space = venv.single_observation_space
        array_leaves(self._space)  # raises if a rollout cannot hold the observations
        self._has_text = holds_text(self._space)
        self._values = values
        self._between_steps = between_steps
        self._decide = decider(policy)
        self._follows_episodes = follows_episodes(policy)
        self._obs: Tree = None
        self._row = 0
        self._is_stepping = False
        self._storage: Rollout | None = None
        self._ended = np.zeros(venv.num_envs, np.bool_)
        self._faulted: list[tuple[int, npt.NDArray[np.bool_]]] = []
        self._final: list[tuple[int, int, Tree, dict[str, float]]] = []
        self._info_keys = tuple(info_keys)
        self._lost_rows = 0
        self._after_reset = np.zeros(venv.num_envs, np.bool_)

    def collect(self) -> Rollout:
        for _ in self.steps():
            pass
        return self.result()

    def steps(self) -> Generator[None, None, None]:
        """Make the steps of a rollout, yielding while the envs step; call `result` afterwards."""
        if self._obs is None or self._is_stepping:
            self.reset()
        if self._row == 0:
            self._storage = self._rows()
            self._faulted.clear()
            self._final.clear()
            self._policy.current_version()
            if self._policy.memory is not None:
                self._storage.memory = self._policy.memory.copy()
        assert self._storage is not None
        return self._run(self._storage)

    def result(self) -> Rollout:
        """Complete and return the rollout after its `steps`."""
        rollout = self._storage
        assert rollout is not None
        self._mark_valid(rollout)
        self._add_finals(rollout)
        rollout.after_reset[:] = self._after_reset
        self._after_reset[:] = False
        if self._values:
            add_values(self._policy, rollout)
        rollout.policy_version[:] = self._policy.version
        self._row = 0
        return rollout

    def reset(self, seed: Sequence[int] | None = None) -> None:
        """Reset all envs and start a rollout; the first `collect` does this automatically.

        Args:
            seed: seeds of the envs; None uses the constructor's seed at the first reset only.
        """
        chosen = self._seed if seed is None else seed
        self._seed = None
        obs, info = self._venv.reset(seed=chosen)  # type: ignore[arg-type]
        self._obs = self._as_arrays(obs)
        if MASK_KEY in info and not (isinstance(self._obs, dict) and MASK_KEY in self._obs):
            gym.logger.warn(
                "%s",
                "The envs' infos hold a mask of legal actions (action_mask), which is ignored; to "
                "use it, wrap the envs in rookery.ActionMaskFromInfo (masks_from_info=True in "
                "training, --masks-from-info)",
            )
        self._policy.begin_episodes(np.ones(self.num_envs, np.bool_))
        self._ended[:] = False
        self._row, self._is_stepping = 0, False
        self._after_reset[:] = True

    def _as_arrays(self, obs: Tree) -> Tree:
        return text_as_arrays(self._space, obs) if self._has_text else obs

    def _rows(self) -> Rollout:
        if self._storage is None or self._copy:
            shape, dtype = packed_form(self._venv.single_action_space)
            action = np.empty((self.num_envs, *shape), dtype)
            self._storage = Rollout.allocate(self.num_steps, self._obs, action)
        return self._storage

    def _run(self, rollout: Rollout) -> Generator[None, None, None]:
        """Step the envs; work that can be done for all rows at once is left to `result`."""
        (begin, wait), to_env, obs = _halves_of_step(self._venv), self._policy.to_env, self._obs
        rewards, terminated, truncated = rollout.reward, rollout.terminated, rollout.truncated
        for t in range(self._row, self.num_steps):
            self._between_steps()
            self._is_stepping = True
            before = time.perf_counter()
            assign(rollout.obs, t, obs)
            action = self._decide(rollout, t, take(rollout.obs, t))
            rollout.action[t] = action
            decided = time.perf_counter()
            begin(to_env(action))
            begun = time.perf_counter()
            try:
                yield
            except GeneratorExit:  # the caller stopped; leave no step pending
                wait()
                raise
            waited = time.perf_counter()
            seen, rewards[t], terminated[t], truncated[t], info = wait()
            obs = self._as_arrays(seen)
            self.env_s += time.perf_counter() - waited + begun - decided
            self.policy_s += decided - before
            if info:
                self._read(info, t)
            if self._mode is AutoresetMode.DISABLED:
                obs = self._reset_ended(obs, terminated[t] | truncated[t], t, info)
            elif self._mode is AutoresetMode.NEXT_STEP and self._info_keys:
                self._note_infos(info, terminated[t] | truncated[t], t)
            if self._follows_episodes:
                self._policy.begin_episodes(terminated[t] | truncated[t])
            self._obs, self._row, self._is_stepping = obs, t + 1, False

    def _read(self, info: dict[str, Any], t: int) -> None:
        """Store the final observations (same_step) and the faults that step ``t`` reports."""
        for b, obs, numbers in episode_ends(info, self._obs, self._as_arrays, self._info_keys):
            self._final.append((t, b, obs, numbers))
        faulted = fault_mask(info)
        if faulted is not None:
            self._faulted.append((t, faulted))

    def _reset_ended(
        self, obs: Tree, ended: npt.NDArray[np.bool_], t: int, info: dict[str, Any]
    ) -> Tree:
        """Reset the envs with a finished episode (mode disabled)."""
        if not ended.any():
            return obs
        for b in np.flatnonzero(ended).tolist():
            self._final.append((t, b, copy(take(obs, b)), info_numbers(info, b, self._info_keys)))
        return self._as_arrays(self._venv.reset(options={"reset_mask": ended})[0])

    def _note_infos(self, info: dict[str, Any], ended: npt.NDArray[np.bool_], t: int) -> None:
        """Store the infos of ended episodes; their final observations come later (next_step)."""
        for b in np.flatnonzero(ended).tolist():
            self._final.append((t, b, None, info_numbers(info, b, self._info_keys)))

    def _mark_valid(self, rollout: Rollout) -> None:
        rollout.valid[:] = True
        if self._mode is AutoresetMode.NEXT_STEP:
            ended = rollout.done
            rollout.valid[0] = ~self._ended
            rollout.valid[1:] = ~ended[:-1]
            self._ended = ended[-1]
        for t, mask in self._faulted:
            rollout.valid[t] &= ~mask
            self._lost_rows += int(mask.sum())

    def _add_finals(self, rollout: Rollout) -> None:
        rollout.last_obs = copy(self._obs)
        if self._mode is not AutoresetMode.NEXT_STEP:
            Finals.of(self._final, self._obs).put_into(rollout)
            return
        index = np.argwhere(rollout.done)
        noted = {(t, b): numbers for t, b, _, numbers in self._final}
        none = numbers_of({}, self._info_keys)  # of the row that only resets an env
        found = [noted.get((t, b), none) for t, b in index.tolist()]
        info = {key: np.array([each[key] for each in found]) for key in self._info_keys}
        Finals(index, _following(rollout, index), info).put_into(rollout)

    def statistics(self) -> CollectorStatistics:
        restarts = self._venv.restarts if isinstance(self._venv, HalvedVectorEnv) else 0
        return CollectorStatistics(restarts, self._lost_rows)

    def telemetry(self) -> Statistics | None:
        return self._venv.statistics() if isinstance(self._venv, HalvedVectorEnv) else None

    def state_dict(self) -> dict[str, Any] | None:
        """Return the collector's state as plain data, also during a rollout.

        It belongs together with the envs' states. None before the first `collect` and after an
        interrupted step.
        """
        if self._obs is None or self._is_stepping:
            return None
        rows = slice(0, self._row)
        rollout = self._storage if self._row else None
        return {
            "obs": copy(self._obs),
            "ended": self._ended.copy(),
            "row": self._row,
            "rows": {name: copy(take(getattr(rollout, name), rows)) for name in _STEPPED}
            if rollout
            else None,
            "memory": _copied(self._policy.memory),
            "first_memory": _copied(rollout.memory) if rollout else None,
            "held_noise": noise_to_dict(getattr(self._policy, "noise_state", None)),
            "faulted": [[t, mask.copy()] for t, mask in self._faulted],
            "final": [
                [t, b, None if obs is None else copy(obs), numbers]
                for t, b, obs, numbers in self._final
            ],
            "after_reset": self._after_reset.copy(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a state of `state_dict`; the envs must have been reset."""
        like = self._obs
        self._obs = _as_tree(state["obs"], like)
        self._ended = np.array(state["ended"], np.bool_)
        self._row = int(state["row"])
        self._policy.memory = _copied(state["memory"])
        self._policy.noise_state = noise_from_dict(state.get("held_noise"))
        self._after_reset = np.array(state["after_reset"], np.bool_)
        if self._row == 0:
            return
        self._storage = rollout = self._rows()
        rollout.memory = _copied(state["first_memory"])
        for name in _STEPPED:
            whole = getattr(rollout, name)
            assign(whole, slice(0, self._row), _as_tree(state["rows"][name], whole))
        self._faulted = [(int(t), np.array(mask, np.bool_)) for t, mask in state["faulted"]]
        self._final = [
            (int(t), int(b), None if obs is None else _as_tree(obs, like), dict(numbers))
            for t, b, obs, numbers in state["final"]
        ]


def _copied(memory: Any) -> npt.NDArray[np.float32] | None:
    return None if memory is None else np.array(memory, np.float32)


def _as_tree(saved: Any, like: Tree) -> Tree:
    """Convert plain data to the structure and dtypes of ``like``."""
    return tree_map(lambda a, values: np.array(values, a.dtype), like, saved)


def _halves_of_step(
    venv: VectorEnv[Any, Any, Any],
) -> tuple[Callable[[Any], None], Callable[[], Any]]:
    """Return functions that start a step and wait for it; other vector envs step while waiting."""
    if isinstance(venv, HalvedVectorEnv):
        return venv.step_async, venv.step_wait
    begun: list[Any] = []
    return begun.append, lambda: venv.step(begun.pop())


def _following(rollout: Rollout, index: npt.NDArray[np.int64]) -> Tree:
    """Return the observations ``[K, ...]`` after rows ``(t, b)``, in next_step the final ones."""
    t, b = index.T
    after = t + 1
    inside = after < rollout.num_steps
    final = take(rollout.obs, (np.minimum(after, rollout.num_steps - 1), b))
    assign(final, ~inside, take(rollout.last_obs, b[~inside]))
    return final
