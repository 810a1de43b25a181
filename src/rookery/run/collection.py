"""How a run collects: the policy acts in this process, or in the workers beside the envs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from gymnasium import Space

from rookery.collect.base import Collector
from rookery.collect.double import DoubleBufferedCollector
from rookery.collect.served import ServedCollector
from rookery.collect.sync import SyncCollector
from rookery.collect.workers import WorkerCollector
from rookery.common.cpus import usable_cpus
from rookery.common.seeding import env_seeds
from rookery.errors import ConfigError, SpaceError
from rookery.learn.base import Algorithm
from rookery.learn.parallel.peers import ALONE, Peers
from rookery.policy.base import Policy
from rookery.run import custom_algorithm as own_algorithm
from rookery.run.algorithms import is_own
from rookery.run.checkpoint.env_states import capture_all, restore_all
from rookery.run.env_source import EnvSource
from rookery.run.learners.share import Share
from rookery.run.log.clock import CallerMeter, Meter, WorkerMeter
from rookery.run.settings import CollectorName, TrainSettings
from rookery.vector.base import VectorEnv

_NO_STATES = "ALE's batches neither give the states of their games nor take them back"

PolicyMaker = Callable[[Space[Any], Space[Any]], Policy]


class Collection(ABC):
    """The envs of a run, the policy that acts in them, and the collector.

    Attributes:
        policy: who acts; carries the weights.
        collector: hands out rollouts.
        spaces: observation space and action space of one env.
        meter: knows how its time was spent.
        venv: the envs, if they can be played in beside the collector.
        runs_ahead: whether rollouts may be of older weights than the policy's.
    """

    policy: Any
    collector: Collector
    spaces: tuple[Space[Any], Space[Any]]
    meter: Meter
    venv: VectorEnv | None = None
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
    def close(self) -> None:
        """Close the envs; twice is fine."""


class CallerCollection(Collection):
    """The policy acts in this process, by turns with a vector env."""

    def __init__(
        self, source: EnvSource, algorithm: Algorithm, settings: TrainSettings,
        make_policy: PolicyMaker, check: Callable[[], None], seeds: list[int],
    ) -> None:  # fmt: skip
        venv = source.make(settings.num_envs, **settings.vector_options())
        self.venv: VectorEnv = venv
        self.spaces = venv.single_observation_space, venv.single_action_space
        try:
            self.policy = make_policy(*self.spaces)
            self.collector = SyncCollector(
                venv,
                self.policy,
                algorithm.num_steps,
                copy=False,
                **_acting_here(source, algorithm, settings, check, seeds),
            )
        except BaseException:
            venv.close()
            raise
        self.meter = CallerMeter(self.collector, venv)

    def capture_envs(self, between_steps: bool) -> tuple[list[bytes] | None, str]:
        if self.venv.backend == "native":
            return None, _NO_STATES
        if not between_steps:
            return None, "the run was broken off amid a step of the envs"
        states, reason = capture_all(self.venv)
        return states, reason and f"the envs' states cannot be saved ({reason})"

    def restore_envs(self, states: list[bytes]) -> None:
        if self.venv.backend == "native":
            raise ConfigError(_NO_STATES)
        restore_all(self.venv, states)

    def close(self) -> None:
        self.venv.close()


class PartlyCollection(Collection):
    """The policy acts in this process, on a part of the envs while workers step the others."""

    _envs: str  # which they are, for messages
    _stack: ExitStack  # closes them

    def capture_envs(self, between_steps: bool) -> tuple[list[bytes] | None, str]:
        return None, f"{self._envs} are not saved"

    def restore_envs(self, states: list[bytes]) -> None:
        raise ConfigError(f"{self._envs} take no states back")

    def close(self) -> None:
        self._stack.close()


class DoubleCollection(PartlyCollection):
    """The policy acts in this process, on one half of the envs while workers step the other."""

    _envs = "envs that step by halves"

    def __init__(
        self, source: EnvSource, algorithm: Algorithm, settings: TrainSettings,
        make_policy: PolicyMaker, check: Callable[[], None], seeds: list[int],
    ) -> None:  # fmt: skip
        with ExitStack() as stack:
            first, second = (stack.enter_context(_half(source, settings, half)) for half in (0, 1))
            self.spaces = first.single_observation_space, first.single_action_space
            self.policy = make_policy(*self.spaces)
            self.collector = DoubleBufferedCollector(
                (first, second),
                self.policy,
                algorithm.num_steps,
                **_acting_here(source, algorithm, settings, check, seeds),
            )
            self.meter = CallerMeter(self.collector, first, second)
            self._stack = stack.pop_all()


class ServedCollection(PartlyCollection):
    """The policy acts in this process, on whichever envs are ready, while workers step others."""

    _envs = "envs that are served as they come"

    def __init__(
        self, source: EnvSource, algorithm: Algorithm, settings: TrainSettings,
        make_policy: PolicyMaker, check: Callable[[], None], seeds: list[int],
    ) -> None:  # fmt: skip
        options = {**settings.vector_options(), "backend": "process", "caller_steps": False}
        with ExitStack() as stack:
            venv = stack.enter_context(source.make(settings.num_envs, **options))
            self.spaces = venv.single_observation_space, venv.single_action_space
            self.policy = make_policy(*self.spaces)
            self.collector = ServedCollector(
                venv,
                self.policy,
                algorithm.num_steps,
                **_acting_here(source, algorithm, settings, check, seeds),
            )
            self.meter = CallerMeter(self.collector, venv)
            self._stack = stack.pop_all()


def _half(source: EnvSource, settings: TrainSettings, half: int) -> VectorEnv:
    """One half of the envs, the larger one first, in half of the workers."""
    num_envs = (settings.num_envs + 1 - half) // 2
    workers = max((settings.num_workers or usable_cpus()) // 2, 1)
    options = {**settings.vector_options(), "backend": "process", "caller_steps": False}
    return source.make(num_envs, **{**options, "num_workers": min(workers, num_envs)})


class WorkerCollection(Collection):
    """Copies of the policy act in worker processes."""

    def __init__(
        self, source: EnvSource, algorithm: Algorithm, settings: TrainSettings,
        make_policy: PolicyMaker, check: Callable[[], None], seeds: list[int],
        collector: CollectorName,
    ) -> None:  # fmt: skip
        self.runs_ahead = collector == "async"
        self.collector = workers = WorkerCollector(
            **source.arguments(),
            policy=make_policy,
            num_envs=settings.num_envs,
            num_steps=algorithm.num_steps,
            mode="async" if self.runs_ahead else "sync",
            seed=seeds,
            max_policy_lag=settings.max_policy_lag,
            info_keys=_info_keys(source, settings),
            between_waits=check,
            **settings.worker_options(),
        )
        self._close = workers.close
        self.policy = workers.policy
        self.spaces = workers.single_observation_space, workers.single_action_space
        self.meter = WorkerMeter(workers, self.runs_ahead)

    def capture_envs(self, between_steps: bool) -> tuple[list[bytes] | None, str]:
        return None, "envs of workers that collect by themselves are not saved"

    def restore_envs(self, states: list[bytes]) -> None:
        raise ConfigError("envs of which workers collect by themselves take no states back")

    def close(self) -> None:
        self._close()


def open_collection(
    source: EnvSource,
    algorithm: Algorithm,
    settings: TrainSettings,
    collector: CollectorName,
    policy_seed: int,
    check: Callable[[], None],
    share: Share | None = None,
    peers: Peers = ALONE,
) -> Collection:
    """Start the envs and bring a fresh policy to them.

    Args:
        source: what the envs are.
        algorithm: decides the policy.
        settings: those of the run, or of a learner's share of it.
        collector: who collects; not "auto".
        policy_seed: of the policy's weights and of the actions that it draws.
        check: called before every step, or ten times a second while workers are waited for; what
            it raises leaves the collecting.
        share: which of the run's envs these are; None means all.
        peers: those who learn together.
    """

    def make_policy(observation_space: Space[Any], action_space: Space[Any]) -> Policy:
        try:
            policy = algorithm.make_policy(observation_space, action_space, policy_seed)
        except SpaceError as error:
            raise SpaceError(f"{source.name}: {error}. {_way_out(source)}") from error
        if is_own(algorithm):
            own_algorithm.check_policy(algorithm, policy)
        if peers.size == 1:
            algorithm.start(policy, settings.num_envs, settings.seed)
        else:
            algorithm.start(policy, settings.num_envs, settings.seed, peers)  # type: ignore[call-arg]
        if is_own(algorithm):
            own_algorithm.check_state(algorithm)
        return policy

    share = share or Share(0, 1, settings.num_envs)
    seeds = share.of(env_seeds(settings.seed, share.num_envs))
    given = source, algorithm, settings, make_policy, check, seeds
    if collector == "caller":
        return CallerCollection(*given)
    if collector == "double":
        return DoubleCollection(*given)
    if collector == "served":
        return ServedCollection(*given)
    return WorkerCollection(*given, collector)


def _acting_here(
    source: EnvSource, algorithm: Algorithm, settings: TrainSettings,
    check: Callable[[], None], seeds: list[int],
) -> dict[str, Any]:  # fmt: skip
    """What every collector is told whose policy acts in this process."""
    return {
        "seed": seeds,
        "values": getattr(algorithm, "reads_values", True),
        "info_keys": _info_keys(source, settings),
        "between_steps": check,
    }


def _info_keys(source: EnvSource, settings: TrainSettings) -> tuple[str, ...]:
    """What is read of the infos with which episodes end."""
    return tuple(dict.fromkeys((*settings.info_keys, *source.episode_keys())))


def _way_out(source: EnvSource) -> str:
    """What to do about an env whose spaces no built-in network takes."""
    wrapper = "those of gymnasium.wrappers"
    if source.name.startswith(("MiniGrid-", "BabyAI-")):
        wrapper = "minigrid.wrappers.ImgObsWrapper, which leaves the text of the mission out"
    return (
        f"Change them by a wrapper, such as {wrapper}: wrappers=[...] in Python, or a function "
        "that makes the wrapped env, as 'my_module:make_env'"
    )
