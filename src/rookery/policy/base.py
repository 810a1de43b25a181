"""What a policy is, without torch: observations in, actions with their log probability out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rookery.common.trees import Tree
from rookery.policy.held_noise import HeldNoise

if TYPE_CHECKING:
    from rookery.policy.weights import Weights


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
        held_noise: what it holds of its noise from step to step for B envs; None where it holds
            none, or none yet.
        model: what a learner changes; None for a policy that stays as it is. Copies of the policy
            in other processes are kept up to date through it.
    """

    version: int = 0
    memory: npt.NDArray[np.float32] | None = None
    is_recurrent: bool = False
    follows_episodes: bool = False
    held_noise: HeldNoise | None = None
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
