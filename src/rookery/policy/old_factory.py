"""One call from spaces to a policy that acts."""

from __future__ import annotations

from typing import Any, TypeAlias

import gymnasium.spaces as spaces
import numpy as np
import numpy.typing as npt

from rookery.errors import MissingExtra
from rookery.policy.mlp_policy import MLPPolicy
from rookery.policy.old_model import ActorCriticModel, PolicySpec

# MLPPolicy, or TorchPolicy, which cannot be named here without importing torch.
ActorCriticPolicy: TypeAlias = Any


def make_policy(
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    *,
    hidden_sizes: tuple[int, ...] | None = None,
    activation: str = "tanh",
    normalize_obs: bool = False,
    memory_size: int = 0,
    seed: int = 0,
    parameters: npt.NDArray[np.float32] | None = None,
) -> ActorCriticPolicy:
    """Build an actor-critic policy for the spaces of one env.

    Args:
        observation_space: of one env (``venv.single_observation_space``).
        action_space: of one env (``venv.single_action_space``).
        hidden_sizes: widths of the hidden layers of actor and critic, which share none.
        activation: "tanh" or "relu".
        normalize_obs: standardise observations by running statistics.
        memory_size: numbers that a recurrent policy remembers; 0 remembers nothing.
        seed: of the initial weights and of the drawn actions.
        parameters: float32 ``[size]`` to act with, not copied; None draws initial ones.

    Returns:
        `MLPPolicy`, which needs no torch, or `TorchPolicy` where observations hold images.

    Raises:
        SpaceError: a space has no built-in network or distribution.
    """
    spec = PolicySpec(
        observation_space, action_space, hidden_sizes, activation, normalize_obs, memory_size
    )
    return policy_for(ActorCriticModel(spec, parameters, seed), seed)


def policy_for(model: ActorCriticModel, seed: int = 0) -> ActorCriticPolicy:
    """Build the fastest actor for ``model``; its actions are drawn by a generator of ``seed``."""
    # Weights were drawn from the seed itself; actions come from its child stream.
    stream = int(np.random.SeedSequence(seed).spawn(1)[0].generate_state(1)[0])
    if not model.encoder.image_shapes:
        return MLPPolicy(model, stream)
    try:
        from rookery.policy.old_torch_policy import TorchPolicy
    except ImportError as error:
        raise MissingExtra("image policies need torch: pip install 'rookery[train]'") from error
    return TorchPolicy(model, stream)


def actor_critic_policy(config: Any, observation_space: Any, action_space: Any, seed: int) -> Any:
    """Build the policy of a learner that is not yet in torch."""
    return make_policy(
        observation_space,
        action_space,
        hidden_sizes=config.hidden_sizes,
        activation=config.activation,
        normalize_obs=config.normalize_obs,
        seed=seed,
    )
