"""Numbers that are not finite, noticed where they arise: in what envs give, and in learning."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from rookery.common.trees import Tree, made_finite
from rookery.errors import TrainingDiverged
from rookery.rollout import Rollout

MOST_IN_A_ROW = 10  # rollouts, or updates, before a run is given up
_OF_LEARNER = ("policy_loss", "value_loss", "gradient_norm")


class FiniteRollouts:
    """Leaves transitions out of learning that hold numbers which are not finite, and counts them.

    After ten rollouts in a row with such transitions, or ten updates in a row whose loss or
    gradient was not finite, the run ends: nothing good is to be expected any more.
    """

    def __init__(self) -> None:
        self._left_out = 0
        self._bad_rollouts = self._bad_updates = 0
        self._told: set[int] = set()

    def check(self, rollout: Rollout) -> None:
        """Mark transitions invalid that hold such numbers, and put zeros in their place.

        Raises:
            TrainingDiverged: for the tenth rollout in a row.
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
        # Where a worker goes on stays as it was shown: the next rollout tells of it again.
        rollout.last_obs = made_finite(rollout.last_obs)
        rollout.last_value[~np.isfinite(rollout.last_value)] = 0.0
        self._bad_rollouts += 1
        said = (
            f"Env {', '.join(map(str, envs))} {what} that is not finite (NaN, infinite, or too "
            "large for float32); "
            "such transitions are left out of learning"
        )
        if self._bad_rollouts >= MOST_IN_A_ROW:
            raise TrainingDiverged(
                f"{said}. It was so in {MOST_IN_A_ROW} rollouts in a row, and the run was ended; "
                "the last checkpoint holds what was learned before"
            )
        if not self._told.issuperset(envs):
            self._told.update(envs)
            gym.logger.warn("%s", said)

    def note(self, metrics: Mapping[str, float]) -> None:
        """Take in what an update of the learner has told.

        Raises:
            TrainingDiverged: loss or gradient were not finite for the tenth time in a row.
        """
        bad = [name for name in _OF_LEARNER if not math.isfinite(metrics.get(name, 0.0))]
        self._bad_updates = self._bad_updates + 1 if bad else 0
        if self._bad_updates >= MOST_IN_A_ROW:
            raise TrainingDiverged(
                f"{' and '.join(bad)} were not finite in {MOST_IN_A_ROW} updates in a row, and the "
                "run was ended; the last checkpoint holds what was learned before. A smaller "
                "learning_rate or max_grad_norm, or normalize_obs and normalize_reward, may help"
            )

    def metrics(self) -> dict[str, float]:
        """How many transitions were left out; empty if none was."""
        return {"nonfinite_transitions": float(self._left_out)} if self._left_out else {}

    def _bad(self, rollout: Rollout) -> npt.NDArray[np.bool_] | None:
        """bool ``[T, B]``, transitions that hold such numbers; None if none does."""
        trees = rollout.obs, rollout.last_obs, rollout.final_obs
        # A sum is finite if all its terms are, but for sums that overflow, which a look at each
        # tells apart: 20 us instead of 200 for a megabyte.
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
    """bool ``[T, B]``, rows in which what the policy made of an observation is not finite."""
    bad = np.zeros(rollout.reward.shape, np.bool_)
    for leaf in _floats(rollout.action):
        bad |= ~np.isfinite(leaf).reshape(*bad.shape, -1).all(axis=2)
    for column in (rollout.log_prob, rollout.value):
        is_finite = np.isfinite(column)
        if is_finite.any():  # else it is nobody's: action values have no log probability
            bad |= ~is_finite
    for leaf in _floats(rollout.memory):
        has_begun_anew = np.cumsum(rollout.done, axis=0) > rollout.done
        bad |= ~(has_begun_anew | np.isfinite(leaf).all(axis=1))
    return bad


def _what(rollout: Rollout) -> str:
    """What is not finite, for the message."""
    if not np.isfinite(rollout.reward).all():
        return "gave a reward"
    shown = _floats(rollout.obs, rollout.last_obs, rollout.final_obs)
    if all(np.isfinite(leaf).all() for leaf in shown):
        return "was given a decision"
    return "gave an observation"


def _floats(*trees: Tree) -> Iterator[npt.NDArray[np.floating]]:
    """The arrays of floats of some trees."""
    for tree in trees:
        if tree is None:
            continue
        if isinstance(tree, dict):
            yield from _floats(*tree.values())
        elif isinstance(tree, tuple):
            yield from _floats(*tree)
        elif tree.dtype.kind == "f":
            yield tree
