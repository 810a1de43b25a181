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
    """Noise that a policy keeps between steps, with one row for each of B envs.

    A policy replaces this object and never changes it in place. Code that lets the policy act in
    other envs for a while, such as an evaluation, restores it afterwards.

    Attributes:
        values: float32 ``[B, ...]``.
        age: number of steps that used the values.
    """

    values: npt.NDArray[np.float32]
    age: int


def noise_to_dict(held: NoiseState | None) -> dict[str, Any] | None:
    """Return the noise as plain data."""
    return None if held is None else {"values": held.values.copy(), "age": held.age}


def noise_from_dict(state: Mapping[str, Any] | None) -> NoiseState | None:
    """Return the noise from the result of `noise_to_dict`."""
    return None if state is None else NoiseState(np.array(state["values"], "f4"), int(state["age"]))


class PolicyStep(NamedTuple):
    """One decision for B envs.

    Attributes:
        action: ``[B, *action]``, as drawn; for a Dict or Tuple space rows ``[B, K]``.
            `Policy.to_env` converts it to actions for the env.
        log_prob: float32 ``[B]``, log probability (density) of ``action``.
        value: float32 ``[B]``, estimated discounted return from the observation onwards.
    """

    action: npt.NDArray[Any]
    log_prob: npt.NDArray[np.float32]
    value: npt.NDArray[np.float32]


class Policy(ABC):
    """Base class of policies. Subclasses must define `act` only.

    Attributes:
        version: number of changes of the weights; rollouts record it.
        memory: float32 ``[B, M]``, memory of a recurrent policy for B envs; None without a memory
            and before the first step.
        is_recurrent: whether the policy has a memory; then `begin_episodes` must be called.
        follows_episodes: whether `begin_episodes` must be called for another reason.
        noise_state: noise that the policy keeps between steps for B envs; None without such noise
            and before the first step.
        model: the weights that a learner changes; None for a policy without weights. Copies of the
            policy in other processes receive new weights through it.
    """

    version: int = 0
    memory: npt.NDArray[np.float32] | None = None
    is_recurrent: bool = False
    follows_episodes: bool = False
    noise_state: NoiseState | None = None
    model: Weights | None = None

    @abstractmethod
    def act(self, obs: Tree, deterministic: bool = False) -> PolicyStep:
        """Choose actions for a batch of observations ``[B, *obs]``.

        Args:
            obs: a batch of observations, which the caller may overwrite after the call.
            deterministic: choose the most probable action instead of drawing one.
        """

    def value(self, obs: Tree) -> npt.NDArray[np.float32]:
        """Return the values of a batch of observations ``[N, *obs]``: float32 ``[N]``."""
        return self.act(obs, deterministic=True).value

    def begin_episodes(self, env_ids: npt.NDArray[np.bool_]) -> None:
        """Clear the memory of the envs that bool ``[B]`` selects, because new episodes begin there.

        Policies with a memory, or with noise that follows episodes, always act for the same batch
        of envs in the same order.
        """
        return

    def current_version(self) -> int:
        """Return ``version``, increased if the weights changed since the last call.

        Collectors call this before every rollout.
        """
        return self.version

    def to_env(self, action: npt.NDArray[Any]) -> Any:
        """Convert drawn actions to the env's action space, for example by clipping to bounds."""
        return action

    def use_stream(self, index: int) -> None:  # noqa: B027
        """Switch to the ``index``-th random stream derived from the current generator.

        Copies of one policy that act in parallel must not draw the same numbers. Stream 0 is the
        current generator itself. A policy without random numbers does not override this.
        """


def follows_episodes(policy: Policy) -> bool:
    """Return True if `Policy.begin_episodes` must be called when episodes begin.

    A policy object that does not derive from `Policy` may lack the attribute.
    """
    return bool(policy.is_recurrent or getattr(policy, "follows_episodes", False))


class SplitPolicy(Policy):
    """A policy that acts in two steps: draw actions now, assess a whole rollout later.

    While the envs wait, only the actions are needed. The log probabilities and values of all
    ``T * B`` steps then take one large forward pass instead of T small ones.
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
            obs: observations ``[N, *obs]``.
            action: actions ``[N, *action]`` that `sample` drew with the current weights.
        """

    def act(self, obs: Tree, deterministic: bool = False) -> PolicyStep:
        """Draw actions and assess them."""
        action = self.sample(obs, deterministic)
        return PolicyStep(action, *self.assess(obs, action))


# Purposes of random numbers. The seeds of envs are the children [0], [1], ... of a run's seed.
# These are grandchildren, so all seeds differ.
WEIGHTS, ACTIONS, MINIBATCHES, EXPLORATION = range(4)
_POLICY_BRANCH = 2**31


def seed_for(seed: int, purpose: int, *more: int) -> int:
    """Derive the seed for one purpose from the seed of a run.

    Args:
        seed: seed of the run.
        purpose: `WEIGHTS`, `ACTIONS`, `MINIBATCHES` or `EXPLORATION`.
        more: indices that distinguish several seeds of one purpose.
    """
    child = np.random.SeedSequence(seed, spawn_key=(_POLICY_BRANCH, purpose, *more))
    return int(child.generate_state(1, np.uint64)[0]) >> 1


def stream(rng: np.random.Generator, index: int) -> np.random.Generator:
    """Return the ``index``-th generator derived from the state of ``rng``; 0 is ``rng`` itself.

    The state is used instead of the seed, so that a run resumed from a checkpoint does not repeat
    the random numbers of its start.
    """
    if index == 0:
        return rng
    words = rng.integers(2**32, size=4)
    return np.random.default_rng([*words.tolist(), index])
