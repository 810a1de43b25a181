"""The table of algorithms: name -> settings and learner. A new algorithm is one entry here."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rookery.collect.base import Collector
from rookery.collect.sync import SyncCollector
from rookery.errors import ConfigError
from rookery.learn.base import Learner
from rookery.learn.config import A2CConfig, Config, DQNConfig, PPOConfig, SACConfig
from rookery.vector.base import VectorEnv

# (venv, policy, config, learner class, env seeds, what to call before every step) -> collector
MakeCollector = Callable[
    [VectorEnv, Any, Config, "type[Learner]", Sequence[int], Callable[[], None]], Collector
]


def sync_collector(
    venv: VectorEnv,
    policy: Any,
    config: Config,
    learner: type[Learner],
    seeds: Sequence[int],
    between_steps: Callable[[], None],
) -> Collector:
    """Collect in this process, policy and envs in turn: what most algorithms want."""
    return SyncCollector(
        venv,
        policy,
        config.num_steps,
        seed=seeds,
        copy=False,
        values=learner.reads_values,
        between_steps=between_steps,
    )


@dataclass(frozen=True, slots=True)
class Algorithm:
    """What the training loop needs to know of an algorithm.

    Attributes:
        name: what it is called on the command line and in config.json.
        title: what it is called in pictures.
        config: the class of its settings.
        address: ``"module:Class"`` of its learner, imported when used.
        collector: makes what collects its rollouts.
    """

    name: str
    title: str
    config: type[Config]
    address: str
    collector: MakeCollector = sync_collector

    @property
    def learner(self) -> type[Learner]:
        """The class that learns."""
        module, _, name = self.address.partition(":")
        learner: type[Learner] = getattr(importlib.import_module(module), name)
        return learner

    def make_policy(self, venv: VectorEnv, config: Config, seed: int) -> Any:
        """Build the policy that acts while this algorithm learns; see `Learner.make_policy`."""
        observation_space, action_space = venv.single_observation_space, venv.single_action_space
        return self.learner.make_policy(config, observation_space, action_space, seed)


ALGORITHMS = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm("ppo", "PPO", PPOConfig, "rookery.learn.ppo:PPO"),
        Algorithm("a2c", "A2C", A2CConfig, "rookery.learn.a2c:A2C"),
        Algorithm("dqn", "DQN", DQNConfig, "rookery.learn.dqn:DQN"),
        Algorithm("sac", "SAC", SACConfig, "rookery.learn.sac:SAC"),
    )
}


def algorithm_of(algo: str | Config) -> tuple[Algorithm, Config]:
    """Find the algorithm that a name or settings mean, and its settings.

    Raises:
        ConfigError: there is none.
    """
    if isinstance(algo, str) and algo in ALGORITHMS:
        return ALGORITHMS[algo], ALGORITHMS[algo].config()
    for algorithm in ALGORITHMS.values():
        if isinstance(algo, algorithm.config):
            return algorithm, algo
    raise ConfigError(
        f"algo {algo!r} is not known; choose from {', '.join(map(repr, ALGORITHMS))}, "
        "or pass settings such as rookery.PPOConfig()"
    )
