"""Checks of the data that a run learns from, and of custom algorithms."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from rookery.common.arguments import whole_number
from rookery.common.trees import Tree, made_finite
from rookery.errors import ConfigError, TrainingDiverged
from rookery.learn.base import Algorithm
from rookery.rollout import Rollout
from rookery.run.checkpoint.files import as_plain
from rookery.run.log.journal import numbers

MOST_IN_A_ROW = 10  # bad rollouts, or bad updates, after which the run ends
_OF_LEARNER = ("policy_loss", "value_loss", "gradient_norm")


class FiniteRollouts:
    """Excludes transitions with numbers that are not finite from learning, and counts them.

    The run ends after ten rollouts in a row with such transitions, or after ten updates in a row
    with a loss or gradient that is not finite.
    """

    def __init__(self) -> None:
        self._left_out = 0
        self._bad_rollouts = self._bad_updates = 0
        self._reported: set[int] = set()

    def check(self, rollout: Rollout) -> None:
        """Mark transitions that are not finite as invalid, and replace the numbers by zeros.

        Raises:
            TrainingDiverged: this is the tenth such rollout in a row.
        """
        bad = self._bad(rollout)
        for leaf in _floats(rollout.memory):
            leaf[~np.isfinite(leaf)] = 0.0
        if bad is None:
            self._bad_rollouts = 0
            return
        envs = rollout.env_ids[bad.any(axis=0)].tolist()
        what = _what(rollout)
        self._left_out += int(np.count_nonzero(bad & rollout.valid))
        rollout.valid &= ~bad
        for column in (rollout.reward, rollout.value, rollout.log_prob, rollout.final_value):
            column[~np.isfinite(column)] = 0.0
        for leaf in _floats(rollout.obs, rollout.final_obs, rollout.action):
            leaf[~np.isfinite(leaf)] = 0.0
        # A copy: the worker continues from the original, which the next rollout contains again.
        rollout.last_obs = made_finite(rollout.last_obs)
        rollout.last_value[~np.isfinite(rollout.last_value)] = 0.0
        self._bad_rollouts += 1
        warning = (
            f"Env {', '.join(map(str, envs))} {what} that is not finite (NaN, infinite, or too "
            "large for float32); "
            "such transitions are left out of learning"
        )
        if self._bad_rollouts >= MOST_IN_A_ROW:
            raise TrainingDiverged(
                f"{warning}. This happened in {MOST_IN_A_ROW} rollouts in a row, so the run was "
                "stopped; the last checkpoint holds the policy from before"
            )
        if not self._reported.issuperset(envs):
            self._reported.update(envs)
            gym.logger.warn("%s", warning)

    def note(self, metrics: Mapping[str, float]) -> None:
        """Check the metrics of an update of the learner.

        Raises:
            TrainingDiverged: a loss or gradient was not finite for the tenth time in a row.
        """
        bad = [name for name in _OF_LEARNER if not math.isfinite(metrics.get(name, 0.0))]
        self._bad_updates = self._bad_updates + 1 if bad else 0
        if self._bad_updates >= MOST_IN_A_ROW:
            raise TrainingDiverged(
                f"{' and '.join(bad)} were not finite in {MOST_IN_A_ROW} updates in a row, so the "
                "run was stopped; the last checkpoint holds the policy from before. A smaller "
                "learning_rate or max_grad_norm, or normalize_obs and normalize_reward, may help"
            )

    def metrics(self) -> dict[str, float]:
        """Return the number of excluded transitions as a metric; empty if there are none."""
        return {"nonfinite_transitions": float(self._left_out)} if self._left_out else {}

    def _bad(self, rollout: Rollout) -> npt.NDArray[np.bool_] | None:
        """Return a mask bool ``[T, B]`` of transitions that are not finite; None if all are."""
        trees = rollout.obs, rollout.last_obs, rollout.final_obs
        # Sums are a fast first test (20 us instead of 200 us per MB). A sum that is not finite may
        # be an overflow, so the elements are checked below.
        suspects = [rollout.reward, *_floats(*trees, rollout.action, rollout.memory)]
        with np.errstate(over="ignore", invalid="ignore"):
            if all(np.isfinite(array.sum()) for array in suspects):
                return None
        bad = ~np.isfinite(rollout.reward)
        for leaf in _floats(rollout.obs):
            in_obs = ~np.isfinite(leaf).reshape(*bad.shape, -1).all(axis=2)
            bad |= in_obs
            bad[:-1] |= in_obs[1:]  # it followed from the row before
        for leaf in _floats(rollout.last_obs):
            bad[-1] |= ~np.isfinite(leaf).reshape(len(leaf), -1).all(axis=1)
        t, b = rollout.final_index.T
        for leaf in _floats(rollout.final_obs):
            if len(leaf):
                bad[t, b] |= ~np.isfinite(leaf).reshape(len(leaf), -1).all(axis=1)
        bad |= _badly_decided(rollout)
        return bad if bad.any() else None


def _badly_decided(rollout: Rollout) -> npt.NDArray[np.bool_]:
    """Return a mask bool ``[T, B]`` of rows in which an output of the policy is not finite."""
    bad = np.zeros(rollout.reward.shape, np.bool_)
    for leaf in _floats(rollout.action):
        bad |= ~np.isfinite(leaf).reshape(*bad.shape, -1).all(axis=2)
    for column in (rollout.log_prob, rollout.value):
        is_finite = np.isfinite(column)
        if is_finite.any():  # else the column is unused: action values have no log probability
            bad |= ~is_finite
    for leaf in _floats(rollout.memory):
        was_reset = np.cumsum(rollout.done, axis=0) > rollout.done
        bad |= ~(was_reset | np.isfinite(leaf).all(axis=1))
    return bad


def _what(rollout: Rollout) -> str:
    """Return the part of the warning that names the data that is not finite."""
    if not np.isfinite(rollout.reward).all():
        return "gave a reward"
    observations = _floats(rollout.obs, rollout.last_obs, rollout.final_obs)
    if all(np.isfinite(leaf).all() for leaf in observations):
        return "received a policy output"
    return "gave an observation"


def _floats(*trees: Tree) -> Iterator[npt.NDArray[np.floating]]:
    """Yield the float arrays of some trees."""
    for tree in trees:
        if tree is None:
            continue
        if isinstance(tree, dict):
            yield from _floats(*tree.values())
        elif isinstance(tree, tuple):
            yield from _floats(*tree)
        elif tree.dtype.kind == "f":
            yield tree


_POLICY = ("act", "begin_episodes", "to_env", "value", "is_recurrent", "model", "version")
_MODEL = ("parameters", "extras", "set_extras", "state_dict", "load_state_dict")


def check_settings(algorithm: Algorithm) -> None:
    """Check the attributes of a custom algorithm.

    Raises:
        ConfigError: `Algorithm.num_steps` is not a whole number from 1 on.
    """
    whole_number(f"num_steps of algorithm {_name(algorithm)}", algorithm.num_steps, 1)


def check_policy(algorithm: Algorithm, policy: Any) -> None:
    """Check the result of `Algorithm.make_policy`.

    Raises:
        ConfigError: the policy or its model lacks an attribute that a run needs.
    """
    what = f"make_policy of algorithm {_name(algorithm)} returned"
    way_out = "rookery.TorchPolicy(module, observation_space, action_space) is one"
    missing = [name for name in _POLICY if not hasattr(policy, name)]
    if missing:
        raise ConfigError(
            f"{what} {_kind(policy)}, which is not a rookery.Policy: it lacks "
            f"{', '.join(missing)}. {way_out}"
        )
    missing = [name for name in _MODEL if not hasattr(policy.model, name)]
    if missing:
        raise ConfigError(
            f"{what} a policy whose model, {_kind(policy.model)}, lacks {', '.join(missing)}; "
            f"the model must hold the weights. {way_out}"
        )


def check_state(algorithm: Algorithm) -> None:
    """Check, before training begins, that the state of an algorithm can be saved.

    Raises:
        ConfigError: `Algorithm.state_dict` does not return plain data.
    """
    what = f"state_dict of algorithm {_name(algorithm)}"
    state: Any = algorithm.state_dict()
    if not isinstance(state, Mapping):
        raise ConfigError(
            f"{what} returned {_kind(state)}, not a dict; return {{}} if there is no state"
        )
    as_plain({"it": state}, f"the data that {what} returned")


def learn(algorithm: Algorithm, rollout: Rollout, progress: float) -> dict[str, float]:
    """Let a custom algorithm learn from a rollout, and return its metrics.

    Raises:
        ConfigError: `Algorithm.update` does not return a dict of numbers.
    """
    metrics: Any = algorithm.update(rollout, progress)
    if not isinstance(metrics, Mapping):
        raise ConfigError(
            f"update of algorithm {_name(algorithm)} returned {_kind(metrics)}, not a dict of "
            "metrics by name; return {} if there are none"
        )
    return numbers(metrics)


def _name(algorithm: Algorithm) -> str:
    return repr(getattr(algorithm, "name", "") or type(algorithm).__name__)


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
