"""Placement of a run: choice of the collector, and of single envs or ALE's vectorized env."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rookery.common.cpus import usable_cpus
from rookery.errors import ConfigError, RookeryError
from rookery.learn.base import Algorithm
from rookery.learn.config_base import Config
from rookery.run.algorithms import config_of, name_of
from rookery.run.env_source import EnvSource
from rookery.run.settings import CollectorName, TrainSettings


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
    for what, is_asked in unsupported.items():
        if is_asked:
            raise ConfigError(
                f"collector {name!r} ({PARTLY[name]}) does not support {what}; choose collector "
                "'caller'"
            )


def _check_workers(name: str, settings: TrainSettings) -> None:
    """Raise if a collector in the workers does not support the settings."""
    unsupported = {
        "backend='serial', which starts no workers": settings.backend == "serial",
        "backend='native', which steps all envs together": settings.backend == "native",
        "caller_steps=True, because the workers step all envs": settings.caller_steps,
    }
    for what, is_asked in unsupported.items():
        if is_asked:
            raise ConfigError(
                f"collector {name!r} (the policy acts in the workers) does not support {what}; "
                "choose collector 'caller'"
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
            _check(settings)
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
        _check(settings)
        source.batch_arguments()
    except RookeryError:  # building the envs raises it again if it concerns them
        return source
    return replace(source, in_batch=True)


def _check(settings: TrainSettings) -> None:
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
