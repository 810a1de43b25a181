"""A policy without chance, for tests that compare who collects."""

from rookery.policy import make_policy
from rookery.policy.base import SplitPolicy


class Certain(SplitPolicy):
    """Takes the most probable action, so that no order of calls matters."""

    def __init__(self, venv):
        self.inner = make_policy(venv.single_observation_space, venv.single_action_space, seed=4)

    def sample(self, obs, deterministic=False):
        return self.inner.sample(obs, deterministic=True)

    def assess(self, obs, action):
        return self.inner.assess(obs, action)

    def value(self, obs):
        return self.inner.value(obs)
