"""Who acts: the torch-free contract, networks for both numpy and torch, and a factory."""

from rookery.policy.base import Policy, PolicyStep, SplitPolicy
from rookery.policy.factory import make_policy, policy_for
from rookery.policy.mlp_policy import MLPPolicy
from rookery.policy.model import ActorCriticModel, PolicySpec
from rookery.policy.network import Evaluation, Network, network_for

__all__ = [
    "ActorCriticModel",
    "Evaluation",
    "MLPPolicy",
    "Network",
    "Policy",
    "PolicySpec",
    "PolicyStep",
    "SplitPolicy",
    "make_policy",
    "network_for",
    "policy_for",
]
