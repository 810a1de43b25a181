"""Whether a run's envs are stepped one by one, or by the batch that their family has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rookery.common.cpus import usable_cpus
from rookery.errors import ConfigError, RookeryError
from rookery.run.env_source import EnvSource
from rookery.run.settings import CollectorName, TrainSettings

# On 2 CPUs, which other programs used too, ALE's batches made 1.1 (Pong, 1 env) to 1.5 times (Pong
# and Breakout, 8 envs) as many steps per second as the wrappers in Python did in the better of this
# process and two workers, with 0.84 to 0.93 of the former's CPU time per step. Of about 450 us per
# step 50 are this process's own, which CPUs cannot share: with more than 8 of them all would wait
# for it. This last is reckoned, not measured.
MOST_CPUS = 8


def stepped(
    source: EnvSource,
    settings: TrainSettings,
    collector: CollectorName,
    saved: Mapping[str, Any] | None = None,
) -> EnvSource:
    """The envs of a run, in a batch if one was asked for, or if it is faster.

    Args:
        source: the envs.
        settings: of the run.
        collector: who collects; not "auto".
        saved: where the run stands if it is gone on with. Amid episodes only single envs can.

    Raises:
        ConfigError: a batch was asked for, and cannot be; says why. Else as `EnvSource.arguments`.
    """
    if settings.backend == "native":
        source.arguments()  # complains of what nobody can step
        try:
            _check(settings)
            source.batch_arguments()
        except ConfigError as error:
            raise ConfigError(
                f"{source.name}: backend 'native' cannot train it: {error}; backend 'auto' can"
            ) from error
        return replace(source, in_batch=True)
    is_amid_episodes = bool((saved or {}).get("companions", {}).get("env_states"))
    is_here = settings.backend == "auto" and settings.cluster is None and collector == "caller"
    is_open = is_here and not is_amid_episodes
    if not is_open or settings.num_workers or usable_cpus() > MOST_CPUS:
        return source
    try:
        _check(settings)
        source.batch_arguments()
    except RookeryError:  # whoever makes the envs says what is wrong, if anything is
        return source
    return replace(source, in_batch=True)


def _check(settings: TrainSettings) -> None:
    """Complain of settings that are about single envs.

    Raises:
        ConfigError: for the first.
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
            raise ConfigError(f"{name} is about envs that are stepped one by one")
    if needs_worker and not settings.num_workers:
        raise ConfigError(
            "deadlines and restarts need a batch in a worker process (num_workers=1 or more)"
        )
