"""The table of algorithms: name -> settings and learner. A new algorithm is one entry here."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from gymnasium import Space

from rookery.errors import ConfigError
from rookery.learn.base import Learner
from rookery.learn.config import A2CConfig, Config, DQNConfig, ImpalaConfig, PPOConfig, SACConfig
from rookery.training.settings import CollectorName, TrainSettings


@dataclass(frozen=True, slots=True)
class Algorithm:
    """What the training loop needs to know of an algorithm.

    Attributes:
        name: what it is called on the command line and in config.json.
        title: what it is called in pictures.
        config: the class of its settings.
        address: ``"module:Class"`` of its learner, imported when used.
        collectors: which collectors it can learn from; "auto" is the first.
    """

    name: str
    title: str
    config: type[Config]
    address: str
    collectors: tuple[CollectorName, ...]

    @property
    def learner(self) -> type[Learner]:
        """The class that learns."""
        module, _, name = self.address.partition(":")
        learner: type[Learner] = getattr(importlib.import_module(module), name)
        return learner

    def make_policy(
        self,
        config: Config,
        observation_space: Space[Any],
        action_space: Space[Any],
        seed: int,
    ) -> Any:
        """Build the policy that acts while this algorithm learns; see `Learner.make_policy`."""
        return self.learner.make_policy(config, observation_space, action_space, seed)

    def collector(self, config: Config, settings: TrainSettings) -> CollectorName:
        """Decide who collects for a run.

        Raises:
            ConfigError: whoever was asked for cannot.
        """
        if settings.collector == "auto":
            name = self.collectors[0]
        else:
            name = settings.collector
        if name not in self.collectors:
            raise ConfigError(
                f"{self.name} cannot learn from collector {name!r}, "
                f"{_LACKS[name]}; choose from {', '.join(map(repr, self.collectors))}"
            )
        if name != "caller":
            _check_workers(name, config, settings)
        return name


_LACKS = {
    "workers": "because how it explores does not travel with the weights",
    "async": "whose rollouts are of older weights than it corrects for",
}

_ANYWHERE: tuple[CollectorName, ...] = ("caller", "workers")
ALGORITHMS = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm("ppo", "PPO", PPOConfig, "rookery.learn.ppo:PPO", _ANYWHERE),
        Algorithm("a2c", "A2C", A2CConfig, "rookery.learn.a2c:A2C", _ANYWHERE),
        Algorithm(
            "impala",
            "IMPALA",
            ImpalaConfig,
            "rookery.learn.impala:Impala",
            ("async", "workers", "caller"),
        ),
        Algorithm("dqn", "DQN", DQNConfig, "rookery.learn.dqn:DQN", ("caller",)),
        Algorithm("sac", "SAC", SACConfig, "rookery.learn.sac:SAC", ("caller",)),
    )
}


def _check_workers(name: CollectorName, config: Config, settings: TrainSettings) -> None:
    """Complain of what workers that collect by themselves cannot do."""
    cannot = {
        "backend='serial', which starts none": settings.backend == "serial",
        "caller_steps=True: this process has no share of their envs": settings.caller_steps,
        "on_fault='restart': a failed worker is not replaced": settings.faults().restarts,
        "recurrent policies, whose memory does not travel": config.is_recurrent,
    }
    for what, is_asked in cannot.items():
        if is_asked:
            raise ConfigError(
                f"workers that collect by themselves (collector {name!r}) do not go with {what}; "
                "choose collector 'caller'"
            )


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
