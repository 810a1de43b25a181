"""Policies, which choose actions for observations, and their networks.

The folders above ``vector`` and ``rollout`` may import this one; only ``torch/`` and ``model.py``
load torch. Start reading in ``base.py``, then ``network_policy.py``.
"""

from rookery.policy.base import Policy, PolicyStep, SplitPolicy
from rookery.policy.factory import make_policy
from rookery.policy.numpy.numpy_policy import NumpyPolicy

__all__ = ["NumpyPolicy", "Policy", "PolicyStep", "SplitPolicy", "make_policy"]
