"""The function that builds a policy for two spaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium.spaces as spaces
import numpy as np

from rookery.errors import MissingExtra
from rookery.policy.base import ACTIONS, WEIGHTS, seed_for
from rookery.policy.network_policy import NetworkPolicy
from rookery.policy.numpy.numpy_policy import NetworkSpec, numpy_policy

if TYPE_CHECKING:
    from rookery.policy.torch.policy_module import PolicyModule


def make_policy(
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    *,
    seed: int = 0,
    num_exploration: int = 0,
    **network: Any,
) -> NetworkPolicy:
    """Build a policy for the spaces of one env.

    Args:
        observation_space: observation space of one env (``venv.single_observation_space``).
        action_space: action space of one env (``venv.single_action_space``).
        seed: seed of the initial weights and of the drawn actions; both streams are independent.
        num_exploration: number of exploration settings; see `rookery.policy.model.Model`.
        network: arguments of `rookery.policy.torch.policy_module.PolicyModule`: ``encoder``,
            ``network``, ``build``, and the fields of its `NetworkSettings`.

    Returns:
        A policy that acts in numpy if the network is small and built in, otherwise in torch. Its
        ``model`` is a `rookery.policy.model.Model` of a `PolicyModule`.

    Raises:
        ConfigError: a custom module has the wrong inputs or outputs.
        MissingExtra: torch is not installed.
        SpaceError: a space has no built-in encoder or distribution.
    """
    try:
        from rookery.policy.model import Model
        from rookery.policy.torch.policy_module import PolicyModule
        from rookery.policy.torch.torch_policy import TorchPolicy
    except ImportError as error:
        raise MissingExtra("networks need torch: pip install 'rookery[train]'") from error
    module = PolicyModule(observation_space, action_space, seed=seed_for(seed, WEIGHTS), **network)
    model = Model(module, num_exploration)
    rng = np.random.default_rng(seed_for(seed, ACTIONS))
    spec = _numpy_spec(module, observation_space, model.flat.shapes)
    if spec is None:
        return TorchPolicy.of(model, observation_space, rng)
    mean = scale = np.empty(0, np.float32)
    if module.normalizer is not None:
        mean, scale = module.normalizer.mean.numpy(), module.normalizer.scale.numpy()
    return numpy_policy(spec, model, mean, scale, rng)


def _numpy_spec(
    module: PolicyModule, observation_space: spaces.Space[Any], shapes: dict[str, Any]
) -> NetworkSpec | None:
    """Describe ``module`` for numpy, or return None if only torch can run a part of it.

    Types are compared exactly: a subclass of a built-in part may compute something else.
    """
    from rookery.policy.torch.encoders import FeatureEncoder, Numbers, OneHot
    from rookery.policy.torch.networks import ActorCritic, SquashedActor
    from rookery.policy.torch.policy_module import PolicyModule
    from rookery.policy.torch.value_networks import QNetwork, QuantileNetwork

    network, encoder = module.network, module.encoder
    if type(module) is not PolicyModule or type(encoder) is not FeatureEncoder:
        return None
    if not all(type(part) in (Numbers, OneHot) for part in encoder.parts):
        return None
    if type(network) not in (ActorCritic, QNetwork, QuantileNetwork, SquashedActor):
        return None
    towers: Any = network.layers if isinstance(network, SquashedActor) else network.towers
    return NetworkSpec(
        observation_space,
        module.layout,
        shapes,
        towers.activation,
        network.core_name if isinstance(network, ActorCritic) else "none",
        module.memory_width,
        getattr(network, "num_quantiles", 0),
    )
