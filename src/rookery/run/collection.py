"""The choice of a run's collector and backend, and the envs, policy and collector themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from gymnasium import Space

from rookery.collect.base import Collector
from rookery.collect.double import DoubleBufferedCollector
from rookery.collect.served import ServedCollector
from rookery.collect.sync import SyncCollector
from rookery.collect.workers import WorkerCollector
from rookery.common.cpus import usable_cpus
from rookery.common.seeding import env_seeds
from rookery.errors import ConfigError, RookeryError, SpaceError
from rookery.learn.base import Algorithm
from rookery.learn.config_base import Config
from rookery.learn.parallel.peers import ALONE, Peers
from rookery.policy.base import Policy
from rookery.run import checks
from rookery.run.algorithms import config_of, is_own, name_of
from rookery.run.checkpoint.env_states import capture_all, restore_all
from rookery.run.env_source import EnvSource
from rookery.run.learners.share import Share
from rookery.run.log.clock import CallerMeter, Meter, WorkerMeter
from rookery.run.settings import CollectorName, TrainSettings
from rookery.vector.base import VectorEnv

_NO_STATES = "ALE's vectorized env cannot save or restore the states of its games"

PolicyMaker = Callable[[Space[Any], Space[Any]], Policy]


class Collection:
    """The envs of a run, the policy that acts in them, and the collector.

    Attributes:
        policy: the acting policy, which holds the weights.
        collector: source of rollouts.
        spaces: observation space and action space of one env.
        meter: measures how the collection time is spent.
        venv: the envs, if evaluation can use them; else None.
        runs_ahead: rollouts may come from older weights than the policy's.
    """

    policy: Any
    collector: Collector
    spaces: tuple[Space[Any], Space[Any]]
    meter: Meter
    venv: VectorEnv | None = None
    runs_ahead: bool = False
    _envs: str  # what error messages call the envs
    _stack: ExitStack  # closes the envs

    def capture_envs(self, between_steps: bool) -> tuple[list[bytes] | None, str]:
        """Return the state of every env, or None and the reason why they cannot be saved.

        Args:
            between_steps: no step of the envs was interrupted.
        """
        return None, f"{self._envs} are not saved"

    def restore_envs(self, states: list[bytes]) -> None:
        """Restore in every env the state that `capture_envs` returned for it."""
        raise ConfigError(f"{self._envs} cannot restore states")

    def close(self) -> None:
        """Close the envs; may be called twice."""
        self._stack.close()


class CallerCollection(Collection):
    """Collection in which the policy acts in this process, after all envs have stepped."""

    def __init__(
        self, source: EnvSource, algorithm: Algorithm, settings: TrainSettings,
        make_policy: PolicyMaker, check: Callable[[], None], seeds: list[int],
    ) -> None:  # fmt: skip
        with ExitStack() as stack:
            venv = stack.enter_context(source.make(settings.num_envs, **settings.vector_options()))
            self.venv: VectorEnv = venv
            self.spaces = venv.single_observation_space, venv.single_action_space
            self.policy = make_policy(*self.spaces)
            self.collector = SyncCollector(
                venv,
                self.policy,
                algorithm.num_steps,
                copy=False,
                **_acting_here(source, algorithm, settings, check, seeds),
            )
            self.meter = CallerMeter(self.collector, venv)
            self._stack = stack.pop_all()

    def capture_envs(self, between_steps: bool) -> tuple[list[bytes] | None, str]:
        if self.venv.backend == "native":
            return None, _NO_STATES
        if not between_steps:
            return None, "the run was interrupted during a step of the envs"
        states, reason = capture_all(self.venv)
        return states, reason and f"the envs' states cannot be saved ({reason})"

    def restore_envs(self, states: list[bytes]) -> None:
        if self.venv.backend == "native":
            raise ConfigError(_NO_STATES)
        restore_all(self.venv, states)


class DoubleCollection(Collection):
    """Collection in which the policy acts on one half of the envs while workers step the other."""

    _envs = "envs of the double collector"

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


class ServedCollection(Collection):
    """Collection in which the policy acts on the envs that are ready while workers step others."""

    _envs = "envs of the served collector"

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
    """Create a vector env of one half of the envs in half of the workers; half 0 is the larger."""
    num_envs = (settings.num_envs + 1 - half) // 2
    workers = max((settings.num_workers or usable_cpus()) // 2, 1)
    options = {**settings.vector_options(), "backend": "process", "caller_steps": False}
    return source.make(num_envs, **{**options, "num_workers": min(workers, num_envs)})


class WorkerCollection(Collection):
    """Collection in which copies of the policy act in worker processes."""

    _envs = "envs of the collectors workers and async"

    def __init__(
        self, source: EnvSource, algorithm: Algorithm, settings: TrainSettings,
        make_policy: PolicyMaker, check: Callable[[], None], seeds: list[int],
        collector: CollectorName,
    ) -> None:  # fmt: skip
        self.runs_ahead = collector == "async"
        with ExitStack() as stack:
            self.collector = workers = stack.enter_context(
                WorkerCollector(
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
            )
            self.policy = workers.policy
            self.spaces = workers.single_observation_space, workers.single_action_space
            self.meter = WorkerMeter(workers, self.runs_ahead)
            self._stack = stack.pop_all()


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
    """Start the envs with a new policy.

    Args:
        source: source of the envs.
        algorithm: creates the policy.
        settings: settings of the run, or of a learner's share of it.
        collector: name of the collector; not "auto".
        policy_seed: seed of the policy's weights and actions.
        check: called before every step, or ten times a second while waiting for workers. Its
            exceptions end the collection.
        share: the learner's share of the run's envs; None means all.
        peers: the learners of the run.
    """

    def make_policy(observation_space: Space[Any], action_space: Space[Any]) -> Policy:
        try:
            policy = algorithm.make_policy(observation_space, action_space, policy_seed)
        except SpaceError as error:
            raise SpaceError(f"{source.name}: {error}. {_way_out(source)}") from error
        if is_own(algorithm):
            checks.check_policy(algorithm, policy)
        if peers.size == 1:
            algorithm.start(policy, settings.num_envs, settings.seed)
        else:
            algorithm.start(policy, settings.num_envs, settings.seed, peers)  # type: ignore[call-arg]
        if is_own(algorithm):
            checks.check_state(algorithm)
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
    """Return the arguments of collectors whose policy acts in this process."""
    return {
        "seed": seeds,
        "values": getattr(algorithm, "reads_values", True),
        "info_keys": _info_keys(source, settings),
        "between_steps": check,
    }


def _info_keys(source: EnvSource, settings: TrainSettings) -> tuple[str, ...]:
    """Return the keys to read from the infos of episode ends."""
    return tuple(dict.fromkeys((*settings.info_keys, *source.episode_keys())))


def _way_out(source: EnvSource) -> str:
    """Return advice for an env whose spaces no built-in network supports."""
    wrapper = "those of gymnasium.wrappers"
    if source.name.startswith(("MiniGrid-", "BabyAI-")):
        wrapper = "minigrid.wrappers.ImgObsWrapper, which leaves the text of the mission out"
    return (
        f"Change them with a wrapper, such as {wrapper}: wrappers=[...] in Python, or a function "
        "that creates the wrapped env, as 'my_module:make_env'"
    )


# ---------------------------------------------------------------- choice


def collector_for(algorithm: Algorithm, settings: TrainSettings) -> CollectorName:
    """Return the name of the run's collector; "auto" selects one.

    Raises:
        ConfigError: the requested collector does not support the algorithm or the settings.
    """
    possible = collectors_of(algorithm)
    name = settings.collector
    if name == "auto":  # only collectors in this process step native batches
        is_native = settings.backend == "native" and "caller" in possible
        name = "caller" if is_native else possible[0]
        if settings.cluster is not None and name == "caller" and "workers" in possible:
            name = "workers"
    if name not in possible:
        raise ConfigError(
            f"{name_of(algorithm)} cannot learn from collector {name!r}, {_REASONS[name]}; choose "
            f"from {', '.join(map(repr, possible))}"
        )
    if name in PARTLY:
        _check_parts(name, algorithm, settings)
    elif name != "caller":
        _check_workers(name, settings)
    return name


def collectors_of(algorithm: Algorithm) -> tuple[Any, ...]:
    """Return the collectors that an algorithm supports, the default first.

    An algorithm with collector "caller" also supports the other collectors in this process.
    """
    named: tuple[Any, ...] = getattr(algorithm, "collectors", Algorithm.collectors)
    others = [name for name in PARTLY if "caller" in named and name not in named]
    return (*named, *others)


# Collectors in this process that act on a part of the envs while the others step.
PARTLY = {
    "double": "alternating halves of the envs",
    "served": "serving envs as they finish",
}
_REASONS = {
    "caller": "because its policy does not act in this process",
    "double": "because its policy does not act in this process",
    "served": "because its policy does not act in this process",
    "workers": "because its exploration state is not sent to workers",
    "async": "because it does not correct for rollouts of older weights",
}


def keeps_something_of_each_env(algorithm: Algorithm) -> bool:
    """Return True if the policy keeps a memory or exploration noise for each env."""
    config = config_of(algorithm)
    return config is not None and (config.is_recurrent or _holds_noise(config))


def _holds_noise(config: Config) -> bool:
    own_noise = getattr(config, "exploration_noise_kind", "normal") != "normal"
    return own_noise or bool(getattr(config, "state_dependent_noise", False))


def _check_parts(name: str, algorithm: Algorithm, settings: TrainSettings) -> None:
    """Raise if a collector that acts on parts of the envs does not support the settings."""
    config = config_of(algorithm)
    unsupported = {
        "backend='serial', which steps all envs in this process": settings.backend == "serial",
        "backend='native', which steps all envs together": settings.backend == "native",
        "caller_steps=True, because this process acts while envs step": settings.caller_steps,
        "isolate=True": settings.isolate and name == "double",
        "a single env": settings.num_envs < 2,
        "a recurrent policy": config is not None and config.is_recurrent,
        "exploration noise over several steps": config is not None and _holds_noise(config),
    }
    _refuse(name, PARTLY[name], unsupported)


def _check_workers(name: str, settings: TrainSettings) -> None:
    """Raise if a collector in the workers does not support the settings."""
    unsupported = {
        "backend='serial', which starts no workers": settings.backend == "serial",
        "backend='native', which steps all envs together": settings.backend == "native",
        "caller_steps=True, because the workers step all envs": settings.caller_steps,
    }
    _refuse(name, "the policy acts in the workers", unsupported)


def _refuse(name: str, how: str, unsupported: Mapping[str, Any]) -> None:
    """Raise for the first of the unsupported settings that is set."""
    for what, is_set in unsupported.items():
        if is_set:
            raise ConfigError(
                f"collector {name!r} ({how}) does not support {what}; choose collector 'caller'"
            )


# On 2 shared CPUs, ALE's vectorized env made 1.1 times (Pong, 1 env) to 1.5 times (Pong and
# Breakout, 8 envs) as many steps per second as the Python wrappers with the faster of serial and
# two workers. It needed 0.84 to 0.93 times the CPU time of serial per step. About 50 of 450 us per
# step run in this process alone, so more than 8 CPUs would wait for it (estimated, not measured).
MOST_CPUS = 8


def stepped(
    source: EnvSource,
    settings: TrainSettings,
    collector: CollectorName,
    saved: Mapping[str, Any] | None = None,
) -> EnvSource:
    """Return the source with ``in_batch`` set if backend native is requested or faster.

    Args:
        source: source of the envs.
        settings: settings of the run.
        collector: name of the collector; not "auto".
        saved: state of the run to resume. If it holds envs' states, auto keeps single envs.

    Raises:
        ConfigError: backend native is requested but not possible, or see `EnvSource.arguments`.
    """
    if settings.backend == "native":
        source.arguments()  # raises the errors that concern single envs too
        try:
            _require_batch(settings)
            source.batch_arguments()
        except ConfigError as error:
            raise ConfigError(
                f"{source.name}: backend 'native' cannot train it: {error}; backend 'auto' can"
            ) from error
        return replace(source, in_batch=True)
    has_env_states = bool((saved or {}).get("companions", {}).get("env_states"))
    is_here = settings.backend == "auto" and settings.cluster is None and collector == "caller"
    is_open = is_here and not has_env_states
    if not is_open or settings.num_workers or usable_cpus() > MOST_CPUS:
        return source
    try:
        _require_batch(settings)
        source.batch_arguments()
    except RookeryError:  # building the envs raises it again if it concerns them
        return source
    return replace(source, in_batch=True)


def _require_batch(settings: TrainSettings) -> None:
    """Raise for settings that need single envs.

    Raises:
        ConfigError: such a setting is used.
    """
    faults = settings.faults()
    needs_worker = faults.restarts or faults.has_deadline or faults.max_worker_rss_mb
    single = {
        "isolate": settings.isolate,
        "caller_steps": settings.caller_steps is not None,
        "start_method without num_workers": settings.start_method and not settings.num_workers,
        "info_keys": settings.info_keys,
    }
    for name, is_given in single.items():
        if is_given:
            raise ConfigError(f"{name} needs envs that are stepped one by one")
    if needs_worker and not settings.num_workers:
        raise ConfigError(
            "deadlines and restarts need a batch in a worker process (num_workers=1 or more)"
        )
