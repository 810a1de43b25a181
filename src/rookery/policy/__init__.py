"""Who acts: policies, free of torch until one with a network is made; networks in torch."""

from rookery.policy.base import Policy, PolicyStep, SplitPolicy
from rookery.policy.factory import make_policy
from rookery.policy.numpy.numpy_policy import NumpyPolicy

__all__ = ["NumpyPolicy", "Policy", "PolicyStep", "SplitPolicy", "make_policy"]
