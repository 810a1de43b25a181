"""Choice between single envs and ALE's vectorized env for a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rookery.common.cpus import usable_cpus
from rookery.errors import ConfigError, RookeryError
from rookery.run.env_source import EnvSource
from rookery.run.settings import CollectorName, TrainSettings

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
