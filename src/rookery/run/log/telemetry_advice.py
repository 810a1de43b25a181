"""Advice from the telemetry of a run: pure functions of the measured statistics.

Every sentence names the numbers and an option that helps. Advice needs 20 seconds of training and
50 steps of each env, so that a preempted process or slow first steps do not cause it.
`TelemetryLog` prints a sentence once, after two measurements in a row have found it.

The memory of the calling process gets no advice, because a replay buffer grows for hours.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from rookery.common.resources import MemoryRoom
from rookery.vector.statistics.snapshot import EnvStatistics, Statistics, WorkerStatistics
from rookery.vector.statistics.table import duration, size

_SURE_AFTER_S = 20.0
_FEWEST_STEPS = 50  # of each env
_SLOW_S = 2e-4  # mean step time; below it, preemption can cause the difference
_SLOWER = 3.0  # times the median of the others
_BUSIER = 1.5  # times the mean of the other workers
_HELD_UP = 0.5  # share of the steps
_LEAST_GROWTH_BYTES = 16 * 2**20
_SOON_H = 48.0
_LONG_LOOK_S = 1.0
_CROWDED = 1.5  # runnable threads per CPU
_SEVERAL = 1.5  # runnable threads in one worker
_MOSTLY = 0.7  # share of the time
_RESETS = 0.5  # share of the envs' time


@dataclass(frozen=True)
class Surroundings:
    """The machine, settings and times of a run, which determine what its telemetry means.

    Attributes:
        cpus: number of usable CPUs.
        room: available memory.
        unix_time: current Unix time in seconds.
        collector: name of the collector, see `TrainSettings.collector`; not "auto".
        is_chosen: True if ``backend="auto"`` measured and chose the backend.
        max_worker_rss_mb: memory in MiB at which a worker is replaced; None means never.
        policy_s: seconds in which the policy acted.
        env_s: seconds of env steps.
        wait_s: seconds of waiting for envs.
        learn_s: seconds of learning.
    """

    cpus: int
    room: MemoryRoom
    unix_time: float
    collector: str = "caller"
    is_chosen: bool = False
    max_worker_rss_mb: float | None = None
    policy_s: float = 0.0
    env_s: float = 0.0
    wait_s: float = 0.0
    learn_s: float = 0.0


def judged(statistics: Statistics, around: Surroundings) -> dict[str, str]:
    """Return the advice by topic; empty while the measured time is too short."""
    if statistics.seconds < _SURE_AFTER_S:
        return {}
    found = {
        "slow env": on_slow_env(statistics),
        "loaded worker": on_loaded_worker(statistics),
        "leak": on_leak(statistics, around),
        "threads": on_threads(statistics, around),
        "balance": on_balance(statistics, around),
        "resets": on_resets(statistics, around),
    }
    return {topic: sentence for topic, sentence in found.items() if sentence is not None}


def on_slow_env(statistics: Statistics) -> str | None:
    """Return advice if one env is far slower than the others and delays them."""
    slow = _slow_env(statistics)
    if slow is None:
        return None
    others = _median_of_others(statistics, slow)
    held_up = ""
    if slow.straggler_share is not None:
        held_up = f", and was the last to finish in {slow.straggler_share:.0%} of the steps"
    backend = statistics.workers[slow.worker]
    if backend.in_caller:
        way_out = "worker processes (--backend process --isolate) step the others beside it"
    elif len(backend.env_ids) > 1:
        way_out = "isolate=True (--isolate) gives each env its own worker, so none waits for it"
    else:
        way_out = (
            "it already has its own worker; send() and recv(), or --collector async with impala, "
            "do not wait for a single env"
        )
    return (
        f"env {slow.env_id} takes {duration(slow.step_mean_s)} per step (p99 "
        f"{duration(slow.step_p99_s)}), the others take {duration(others)}{held_up}; {way_out}"
    )


def _slow_env(statistics: Statistics) -> EnvStatistics | None:
    known = [e for e in statistics.envs if e.step_mean_s is not None and e.steps >= _FEWEST_STEPS]
    if len(known) < 2:
        return None
    slow = max(known, key=lambda env: env.step_mean_s or 0.0)
    mean_s = slow.step_mean_s or 0.0
    is_slow = mean_s >= max(_SLOW_S, _SLOWER * _median_of_others(statistics, slow))
    holds_up = slow.straggler_share is None or slow.straggler_share >= _HELD_UP
    return slow if is_slow and holds_up else None


def _median_of_others(statistics: Statistics, slow: EnvStatistics) -> float:
    return median(
        env.step_mean_s
        for env in statistics.envs
        if env is not slow and env.step_mean_s is not None and env.steps >= _FEWEST_STEPS
    )


def on_loaded_worker(statistics: Statistics) -> str | None:
    """Return advice if one worker is far busier than the others, but not because of one env."""
    workers = [backend for backend in statistics.workers if not backend.in_caller]
    if len(workers) < 2 or any(env.steps < _FEWEST_STEPS for env in statistics.envs):
        return None
    loaded = max(workers, key=lambda backend: backend.busy_s)
    others = [backend for backend in workers if backend is not loaded]
    mean_s = fmean(backend.busy_s for backend in others)
    is_loaded = loaded.busy_s >= _BUSIER * mean_s
    matters = loaded.busy_s - mean_s >= 0.15 * statistics.seconds
    holds_up = loaded.straggler_share is None or loaded.straggler_share >= _HELD_UP
    slow = _slow_env(statistics)
    is_known = slow is not None and slow.env_id in loaded.env_ids
    if not (is_loaded and matters and holds_up) or is_known:
        return None
    count, fewest = len(loaded.env_ids), min(len(backend.env_ids) for backend in others)
    way_out = (
        "isolate=True (--isolate) shows which of its envs are slow, and gives each env a worker"
    )
    if count > fewest:
        way_out = (
            f"it has {count} envs, another worker has {fewest}: choose a num_workers "
            "(--num-workers) that divides num_envs"
        )
    return (
        f"{_named(statistics, loaded)} was busy for {duration(loaded.busy_s)}, the others for "
        f"{duration(mean_s)} on average, and all wait for it; {way_out}"
    )


def on_leak(statistics: Statistics, around: Surroundings) -> str | None:
    """Return advice if the memory of workers grows and will be exhausted within two days."""
    growing = [backend for backend in statistics.workers if _grows(backend)]
    if not growing:
        return None
    worst = max(growing, key=lambda backend: backend.rss_bytes_per_hour or 0.0)
    rate, used = worst.rss_bytes_per_hour or 0.0, worst.rss_bytes or 0
    total = sum(backend.rss_bytes_per_hour or 0.0 for backend in growing)
    hours, limit = around.room.left_bytes / total, f"the memory of {around.room.owner}"
    limit += f" ({size(around.room.left_bytes)} are left)"
    way_out = (
        "--on-fault restart with --max-worker-rss-mb replaces workers before that, between episodes"
    )
    if around.max_worker_rss_mb is not None:
        until = max(around.max_worker_rss_mb * 2**20 - used, 0.0) / rate
        if until <= hours:
            hours, limit = until, f"max_worker_rss_mb={around.max_worker_rss_mb:g}"
            way_out = "it is replaced then, between episodes"
    if hours > _SOON_H:
        return None
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(around.unix_time + 3600 * hours))
    more = f", and {len(growing) - 1} more grow" if len(growing) > 1 else ""
    which = "" if len(worst.env_ids) == 1 else "; --isolate shows which env it is"
    return (
        f"{_named(statistics, worst)} grows by {size(rate)} of memory per hour (it has "
        f"{size(used)}){more}: {limit} will be reached in {hours:.1f} hours, at {when}. An env "
        f"does not free memory{which}; {way_out}"
    )


def _grows(backend: WorkerStatistics) -> bool:
    rate, growth = backend.rss_bytes_per_hour, backend.rss_growth_bytes
    return rate is not None and growth is not None and rate > 0 and growth >= _LEAST_GROWTH_BYTES


def on_threads(statistics: Statistics, around: Surroundings) -> str | None:
    """Return advice if far more threads are runnable than there are CPUs."""
    caller = statistics.caller
    if caller.look_s is None or caller.look_s < _LONG_LOOK_S or caller.runnable_threads is None:
        return None
    workers = [c for c in statistics.workers if c.runnable_threads is not None]
    runnable = caller.runnable_threads + sum(c.runnable_threads or 0.0 for c in workers)
    if runnable <= _CROWDED * around.cpus + 0.5:
        return None
    said = f"{runnable:.1f} threads on average compete for {around.cpus} CPUs"
    most = max(workers, key=lambda backend: backend.runnable_threads or 0.0, default=None)
    if most is not None and (most.runnable_threads or 0.0) >= _SEVERAL:
        return (
            f"{said}; {most.runnable_threads:.1f} of them in {_named(statistics, most)}. "
            "threads_per_worker=1 (--threads-per-worker 1) limits those of numerical libraries; "
            "envs must not set their number themselves"
        )
    if len(workers) > around.cpus:
        return f"{said}; num_workers={around.cpus} (--num-workers {around.cpus}) uses each CPU once"
    return (
        f"{said}; {caller.runnable_threads:.1f} of them in the calling process. The environment "
        f"variable OMP_NUM_THREADS={max(around.cpus - len(workers), 1)} limits those of "
        "numerical libraries"
    )


def on_balance(statistics: Statistics, around: Surroundings) -> str | None:
    """Return advice if envs take far more time than the policy, or the reverse."""
    total_s = around.policy_s + around.env_s + around.wait_s + around.learn_s
    if around.collector != "caller" or total_s < _SURE_AFTER_S / 2:
        return None
    num_envs = len(statistics.envs)
    most = min(around.cpus, num_envs)
    if around.policy_s >= max(3 * around.env_s, _MOSTLY * total_s):
        said = (
            f"the policy took {around.policy_s / total_s:.0%} of the time, env steps "
            f"{around.env_s / total_s:.0%}"
        )
        if most > 1:
            return (
                f"{said}; --collector workers lets copies of the policy act in all workers at "
                f"once, and a larger num_envs (--num-envs, now {num_envs}) makes acting more "
                "efficient"
            )
        return f"{said}; a larger num_envs (--num-envs, now {num_envs}) makes acting more efficient"
    if around.is_chosen or around.env_s < max(3 * around.policy_s, _MOSTLY * total_s):
        return None
    num_workers = sum(not backend.in_caller for backend in statistics.workers)
    if num_workers + any(backend.in_caller for backend in statistics.workers) >= most:
        return None
    option = "--backend process" if num_workers == 0 else f"--num-workers {most}"
    return (
        f"env steps took {around.env_s / total_s:.0%} of the time, the policy "
        f"{around.policy_s / total_s:.0%}; {max(num_workers, 1)} of {around.cpus} CPUs step "
        f"{num_envs} envs: {option} uses {most}"
    )


def on_resets(statistics: Statistics, around: Surroundings) -> str | None:
    """Return advice if resets take most of the envs' time."""
    share, mean_s, count = reset_share(statistics.envs)
    if share is None or share < _RESETS or count < 20 + len(statistics.envs):
        return None
    busy_s = sum(backend.busy_s for backend in statistics.workers)
    if busy_s < 0.2 * statistics.seconds:  # envs take little of the run's time
        return None
    length = sum(env.steps for env in statistics.envs) / count
    way_out = "a larger num_workers (--num-workers) resets more envs at once"
    if around.collector == "caller":
        way_out += ", and with --collector workers a reset delays only the envs of its worker"
    return (
        f"resets took {share:.0%} of the envs' time ({duration(mean_s)} each, after episodes of "
        f"{length:.0f} steps); make reset() cheaper or episodes longer. Otherwise {way_out}"
    )


def reset_share(envs: Sequence[EnvStatistics]) -> tuple[float | None, float, int]:
    """Return the share of resets in the envs' time, their mean seconds, and their number."""
    reset_s = sum((env.reset_mean_s or 0.0) * env.resets for env in envs)
    step_s = sum((env.step_mean_s or 0.0) * env.steps for env in envs)
    count = sum(env.resets for env in envs if env.reset_mean_s is not None)
    if not count or not math.isfinite(reset_s + step_s) or step_s <= 0:
        return None, 0.0, count
    return reset_s / (reset_s + step_s), reset_s / count, count


def _named(statistics: Statistics, backend: WorkerStatistics) -> str:
    place = statistics.workers.index(backend)
    first, last = backend.env_ids[0], backend.env_ids[-1]
    envs = f"env {first}" if first == last else f"envs {first} to {last}"
    return f"worker {place} ({envs}, process {backend.pid})"
