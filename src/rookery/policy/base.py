"""The contract of acting: policies, the noise that they keep, and their random streams.

Nothing here needs torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rookery.common.trees import Tree

if TYPE_CHECKING:
    from rookery.policy.weights import Weights


class NoiseState(NamedTuple):
    """What a policy holds of noise for B envs, a row for each; it is replaced, never changed.

    Whoever lets a policy act elsewhere in between, an evaluation for instance, puts it back.

    Attributes:
        values: float32 ``[B, ...]``.
        age: steps for which it was held.
    """

    values: npt.NDArray[np.float32]
    age: int


def noise_to_dict(held: NoiseState | None) -> dict[str, Any] | None:
    """What is held, as plain data."""
    return None if held is None else {"values": held.values.copy(), "age": held.age}


def noise_from_dict(state: Mapping[str, Any] | None) -> NoiseState | None:
    """Undo `noise_to_dict`."""
    return None if state is None else NoiseState(np.array(state["values"], "f4"), int(state["age"]))


class PolicyStep(NamedTuple):
    """One decision for B envs.

    Attributes:
        action: ``[B, *action]``, as drawn; `Policy.to_env` makes it fit the env. Of a Dict or Tuple
            space it is rows ``[B, K]``, which `Policy.to_env` makes actions of.
        log_prob: float32 ``[B]``, log probability (density) of ``action``.
        value: float32 ``[B]``, estimated discounted return from the observation on.
    """

    action: npt.NDArray[Any]
    log_prob: npt.NDArray[np.float32]
    value: npt.NDArray[np.float32]


class Policy(ABC):
    """Who acts. Subclasses need `act` alone.

    Attributes:
        version: how many times the weights were changed; rollouts carry it.
        memory: float32 ``[B, M]``, what a recurrent policy remembers of the episodes of B envs;
            None where a policy remembers nothing, or nothing yet.
        is_recurrent: whether it has a memory; then `begin_episodes` must be called.
        follows_episodes: whether `begin_episodes` must be called for another reason.
        noise_state: what it holds of its noise from step to step for B envs; None where it holds
            none, or none yet.
        model: what a learner changes; None for a policy that stays as it is. Copies of the policy
            in other processes are kept up to date through it.
    """

    version: int = 0
    memory: npt.NDArray[np.float32] | None = None
    is_recurrent: bool = False
    follows_episodes: bool = False
    noise_state: NoiseState | None = None
    model: Weights | None = None

    @abstractmethod
    def act(self, obs: Tree, deterministic: bool = False) -> PolicyStep:
        """Decide for a batch of observations ``[B, *obs]``.

        Args:
            obs: a batch of observations; not kept, it may be overwritten after the call.
            deterministic: take the most probable action instead of drawing one.
        """

    def value(self, obs: Tree) -> npt.NDArray[np.float32]:
        """Value of a batch of observations ``[N, *obs]``: float32 ``[N]``."""
        return self.act(obs, deterministic=True).value

    def begin_episodes(self, env_ids: npt.NDArray[np.bool_]) -> None:
        """Forget what was before in the envs that bool ``[B]`` selects: new episodes begin there.

        Recurrent policies, and those that follow episodes, see one batch of envs at a time, always
        in the same order.
        """
        return

    def current_version(self) -> int:
        """Return ``version``, after a look whether the weights were changed since the last look.

        Collectors call it before they collect.
        """
        return self.version

    def to_env(self, action: npt.NDArray[Any]) -> Any:
        """Make drawn actions fit the env's action space, for example by clipping to its bounds."""
        return action

    def use_stream(self, index: int) -> None:  # noqa: B027
        """Draw from the ``index``-th of the streams that the present generator leads to.

        Copies of one policy that act side by side must not draw the same numbers. Stream 0 is the
        generator as it stands. A policy that draws nothing has nothing to do.
        """


def follows_episodes(policy: Any) -> bool:
    """Whether a policy must be told by `Policy.begin_episodes` where episodes begin."""
    return bool(policy.is_recurrent or getattr(policy, "follows_episodes", False))


class SplitPolicy(Policy):
    """A policy that can act in two halves: draw actions now, assess a whole rollout later.

    Only the drawn action is needed while envs wait for it. The log probability and the value of
    all ``T * B`` steps together cost one large forward pass instead of T small ones.
    """

    @abstractmethod
    def sample(self, obs: Tree, deterministic: bool = False) -> npt.NDArray[Any]:
        """Draw actions ``[B, *action]`` for a batch of observations; see `Policy.act`."""

    @abstractmethod
    def assess(
        self, obs: Tree, action: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Return log probability and value of N steps, float32 ``[N]`` each.

        Args:
            obs: ``[N, *obs]``.
            action: ``[N, *action]``, as `sample` drew them under the present weights.
        """

    def act(self, obs: Tree, deterministic: bool = False) -> PolicyStep:
        """Do both halves at once."""
        action = self.sample(obs, deterministic)
        return PolicyStep(action, *self.assess(obs, action))


# What random numbers are for. Envs' seeds are the children [0], [1], ... of a run's seed; these
# are grandchildren, so that no two of all are the same.
WEIGHTS, ACTIONS, MINIBATCHES, EXPLORATION = range(4)
_OURS = 2**31


def seed_for(seed: int, purpose: int, *more: int) -> int:
    """Derive the seed of one purpose from that of a run.

    Args:
        seed: of the run.
        purpose: `WEIGHTS`, `ACTIONS`, `MINIBATCHES` or `EXPLORATION`.
        more: tells apart several of one purpose.
    """
    child = np.random.SeedSequence(seed, spawn_key=(_OURS, purpose, *more))
    return int(child.generate_state(1, np.uint64)[0]) >> 1


def stream(rng: np.random.Generator, index: int) -> np.random.Generator:
    """Return the ``index``-th of the generators that the state of ``rng`` leads to; 0 is ``rng``.

    They follow from the state, not from the seed, so that a run which goes on from a checkpoint
    does not repeat the numbers of its beginning.
    """
    if index == 0:
        return rng
    words = rng.integers(2**32, size=4)
    return np.random.default_rng([*words.tolist(), index])
