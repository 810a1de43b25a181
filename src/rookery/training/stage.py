"""Stages: where the policy and the envs of a run meet, in this process or in the workers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from gymnasium import Space

from rookery.collect.base import Collector
from rookery.collect.sync import SyncCollector
from rookery.collect.workers import WorkerCollector
from rookery.env.seeding import env_seeds
from rookery.errors import ConfigError
from rookery.learn.config import Config
from rookery.training.algorithms import Algorithm
from rookery.training.clock import CallerMeter, Meter, WorkerMeter
from rookery.training.env_states import capture_all, restore_all
from rookery.training.interrupt import InterruptShield
from rookery.training.settings import CollectorName, TrainSettings
from rookery.training.source import EnvSource
from rookery.vector.base import VectorEnv

PolicyMaker = Callable[[Space[Any], Space[Any]], Any]


class Stage(ABC):
    """The envs of a run, the policy that acts in them, and the collector that watches.

    Attributes:
        policy: who acts; carries the weights.
        collector: hands out rollouts.
        meter: knows how its time was spent.
        shield: keeps signals until they do no harm.
        runs_ahead: whether rollouts may be of older weights than the policy's.
    """

    policy: Any
    collector: Collector
    meter: Meter
    shield: InterruptShield
    runs_ahead: bool = False

    @abstractmethod
    def capture_envs(self, between_steps: bool) -> tuple[list[bytes] | None, str]:
        """The state of every env, or None and why they cannot be had.

        Args:
            between_steps: whether the collector knows where it stands.
        """

    @abstractmethod
    def restore_envs(self, states: list[bytes]) -> None:
        """Give every env what `capture_envs` returned for it."""

    @abstractmethod
    def evaluation_envs(self, episodes: int) -> AbstractContextManager[VectorEnv]:
        """Enter a vector env for some episodes of evaluation; training is over then."""

    @abstractmethod
    def close(self) -> None:
        """Close the envs; twice is fine."""

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class CallerStage(Stage):
    """The policy acts in this process, by turns with a vector env."""

    def __init__(
        self, source: EnvSource, algorithm: Algorithm, config: Config, settings: TrainSettings,
        make_policy: PolicyMaker,
    ) -> None:  # fmt: skip
        self.shield = InterruptShield()
        self._venv = venv = source.make(settings.num_envs, **settings.vector_options())
        try:
            self.policy = make_policy(venv.single_observation_space, venv.single_action_space)
            self.collector = SyncCollector(
                venv,
                self.policy,
                config.num_steps,
                seed=env_seeds(settings.seed, settings.num_envs),
                copy=False,
                values=algorithm.learner.reads_values,
                between_steps=self.shield.check,
            )
        except BaseException:
            venv.close()
            raise
        self.meter = CallerMeter(self.collector, venv)

    def capture_envs(self, between_steps: bool) -> tuple[list[bytes] | None, str]:
        if not between_steps:
            return None, "the run was broken off amid a step of the envs"
        states, reason = capture_all(self._venv)
        return states, reason and f"the envs' states cannot be saved ({reason})"

    def restore_envs(self, states: list[bytes]) -> None:
        restore_all(self._venv, states)

    @contextmanager
    def evaluation_envs(self, episodes: int) -> Iterator[VectorEnv]:
        """Enter the vector env of the training itself."""
        yield self._venv

    def close(self) -> None:
        self._venv.close()


class WorkerStage(Stage):
    """Copies of the policy act in worker processes; no envs are beside theirs."""

    def __init__(
        self, source: EnvSource, config: Config, settings: TrainSettings,
        make_policy: PolicyMaker, collector: CollectorName,
    ) -> None:  # fmt: skip
        self.shield = InterruptShield()
        self.runs_ahead = collector == "async"
        self._source, self._settings, self._collector_name = source, settings, collector
        self.collector = self._crew = WorkerCollector(
            **source.arguments(),
            policy=make_policy,
            num_envs=settings.num_envs,
            num_steps=config.num_steps,
            mode="async" if self.runs_ahead else "sync",
            seed=env_seeds(settings.seed, settings.num_envs),
            max_policy_lag=settings.max_policy_lag,
            between_waits=self.shield.check,
            **settings.worker_options(),
        )
        self.policy = self._crew.policy
        self.meter = WorkerMeter(self.collector, self.runs_ahead)

    def capture_envs(self, between_steps: bool) -> tuple[list[bytes] | None, str]:
        return None, "envs of workers that collect by themselves are not saved"

    def restore_envs(self, states: list[bytes]) -> None:
        raise ConfigError("envs of which workers collect by themselves take no states back")

    @contextmanager
    def evaluation_envs(self, episodes: int) -> Iterator[VectorEnv]:
        """Close the envs of the training, and enter others, no more than there are episodes."""
        self.close()
        settings = self._settings
        num_envs = settings.num_evaluation_envs(self._collector_name, episodes)
        with self._source.make(num_envs, **settings.vector_options()) as venv:
            yield venv

    def close(self) -> None:
        self._crew.close()


def open_stage(
    source: EnvSource,
    algorithm: Algorithm,
    config: Config,
    settings: TrainSettings,
    collector: CollectorName,
    policy_seed: int,
) -> Stage:
    """Start the envs, and bring a fresh policy to them.

    Args:
        source: what the envs are.
        algorithm: decides the policy.
        config: its settings.
        settings: those of the run.
        collector: who collects; not "auto".
        policy_seed: of the policy's weights and of the actions that it draws.
    """

    def make_policy(observation_space: Space[Any], action_space: Space[Any]) -> Any:
        return algorithm.make_policy(config, observation_space, action_space, policy_seed)

    if collector == "caller":
        return CallerStage(source, algorithm, config, settings, make_policy)
    return WorkerStage(source, config, settings, make_policy, collector)
