"""What an expert would say of a run, seeing its telemetry: pure functions of what was measured.

Every sentence names the figures and the flag that helps. Nothing is said before there is evidence:
a third of a minute, and so many steps that a preempted process or the first steps, which load what
they need, do not decide. `TelemetryLog` says a sentence once, when two looks in a row have found
it.

Memory of the calling process is left alone: a replay fills for hours, and is no leak.
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
_SLOW_S = 2e-4  # of a step's mean; of faster ones, a preempted process can be the reason
_SLOWER = 3.0  # times the median of the others
_BUSIER = 1.5  # times the mean of the other workers
_HELD_UP = 0.5  # share of the steps
_LEAST_GROWTH_BYTES = 16 * 2**20
_SOON_H = 48.0
_LONG_LOOK_S = 1.0
_CROWDED = 1.5  # threads that want to compute, per CPU
_SEVERAL = 1.5  # such threads in one worker
_MOSTLY = 0.7  # of the time
_RESETS = 0.5  # of the time of the envs


@dataclass(frozen=True)
class Surroundings:
    """What a run's telemetry is judged by.

    Attributes:
        cpus: that may be used.
        room: for memory.
        unix_time: now.
        collector: see `TrainSettings.collector`; not "auto".
        is_chosen: whether the backend was measured and chosen by ``backend="auto"``.
        max_worker_rss_mb: at which a worker is replaced; None means never.
        policy_s: seconds of deciding so far, as in the metrics.
        env_s: of stepping.
        wait_s: of waiting.
        learn_s: of learning.
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
    """What is to be said, by a name for the matter; nothing while there is too little evidence."""
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
    return {matter: sentence for matter, sentence in found.items() if sentence is not None}


def on_slow_env(statistics: Statistics) -> str | None:
    """One env that takes far longer than the others, and holds them up."""
    slow = _slow_env(statistics)
    if slow is None:
        return None
    others = _median_of_others(statistics, slow)
    held_up = ""
    if slow.straggler_share is not None:
        held_up = (
            f", and was the one that all waited for in {slow.straggler_share:.0%} of the steps"
        )
    backend = statistics.workers[slow.worker]
    if backend.in_caller:
        way_out = "worker processes (--backend process --isolate) step the others beside it"
    elif len(backend.env_ids) > 1:
        way_out = (
            "isolate=True (--isolate) gives it a worker of its own, so that no env waits behind it"
        )
    else:
        way_out = (
            "it has a worker of its own already; send() and recv(), or --collector async with "
            "impala, wait for no single env"
        )
    return (
        f"env {slow.env_id} takes {duration(slow.step_mean_s)} per step (p99 "
        f"{duration(slow.step_p99_s)}) where the others take {duration(others)}{held_up}; {way_out}"
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
    """One worker that has far more to do than the others, and not because of one env alone."""
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
    way_out = "isolate=True (--isolate) shows which of its envs are slow, and gives each a worker"
    if count > fewest:
        way_out = (
            f"it has {count} envs where another has {fewest}: choose num_workers (--num-workers) "
            "so that it divides num_envs"
        )
    return (
        f"{_named(statistics, loaded)} was busy for {duration(loaded.busy_s)} where the others "
        f"were for {duration(mean_s)}, and all wait for it; {way_out}"
    )


def on_leak(statistics: Statistics, around: Surroundings) -> str | None:
    """Workers whose memory grows without end, and when it will be used up."""
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
        f"keeps what it should let go{which}; {way_out}"
    )


def _grows(backend: WorkerStatistics) -> bool:
    rate, growth = backend.rss_bytes_per_hour, backend.rss_growth_bytes
    return rate is not None and growth is not None and rate > 0 and growth >= _LEAST_GROWTH_BYTES


def on_threads(statistics: Statistics, around: Surroundings) -> str | None:
    """More threads that want to compute than there are CPUs."""
    caller = statistics.caller
    if caller.look_s is None or caller.look_s < _LONG_LOOK_S or caller.runnable_threads is None:
        return None
    workers = [c for c in statistics.workers if c.runnable_threads is not None]
    runnable = caller.runnable_threads + sum(c.runnable_threads or 0.0 for c in workers)
    if runnable <= _CROWDED * around.cpus + 0.5:
        return None
    said = (
        f"{runnable:.1f} threads want to compute on {around.cpus} CPUs, in the mean, and stand in "
        "each other's way"
    )
    most = max(workers, key=lambda backend: backend.runnable_threads or 0.0, default=None)
    if most is not None and (most.runnable_threads or 0.0) >= _SEVERAL:
        return (
            f"{said}; {most.runnable_threads:.1f} of them in {_named(statistics, most)}. "
            "threads_per_worker=1 (--threads-per-worker 1) caps those of numerical libraries, and "
            "an env that sets their number itself must not"
        )
    if len(workers) > around.cpus:
        return f"{said}; num_workers={around.cpus} (--num-workers {around.cpus}) is as many as fit"
    return (
        f"{said}; {caller.runnable_threads:.1f} of them in the calling process. The environment "
        f"variable OMP_NUM_THREADS={max(around.cpus - len(workers), 1)} caps those of numerical "
        "libraries"
    )


def on_balance(statistics: Statistics, around: Surroundings) -> str | None:
    """Envs much slower than the policy that waits for them, or the reverse."""
    total_s = around.policy_s + around.env_s + around.wait_s + around.learn_s
    if around.collector != "caller" or total_s < _SURE_AFTER_S / 2:
        return None
    num_envs = len(statistics.envs)
    most = min(around.cpus, num_envs)
    if around.policy_s >= max(3 * around.env_s, _MOSTLY * total_s):
        said = (
            f"deciding on actions took {around.policy_s / total_s:.0%} of the time, stepping "
            f"{around.env_s / total_s:.0%}"
        )
        if most > 1:
            return (
                f"{said}; --collector workers has copies of the policy act in all workers at once, "
                f"and more num_envs (--num-envs, now {num_envs}) make more of each decision"
            )
        return f"{said}; more num_envs (--num-envs, now {num_envs}) make more of each decision"
    if around.is_chosen or around.env_s < max(3 * around.policy_s, _MOSTLY * total_s):
        return None
    num_workers = sum(not backend.in_caller for backend in statistics.workers)
    if num_workers + any(backend.in_caller for backend in statistics.workers) >= most:
        return None
    option = "--backend process" if num_workers == 0 else f"--num-workers {most}"
    return (
        f"stepping envs took {around.env_s / total_s:.0%} of the time, deciding on actions "
        f"{around.policy_s / total_s:.0%}; {num_envs} envs are stepped by "
        f"{max(num_workers, 1)} of {around.cpus} CPUs: {option} uses {most}"
    )


def on_resets(statistics: Statistics, around: Surroundings) -> str | None:
    """Envs that are reset for most of their time."""
    share, mean_s, count = reset_share(statistics.envs)
    if share is None or share < _RESETS or count < 20 + len(statistics.envs):
        return None
    busy_s = sum(backend.busy_s for backend in statistics.workers)
    if busy_s < 0.2 * statistics.seconds:  # they are a small matter
        return None
    length = sum(env.steps for env in statistics.envs) / count
    way_out = "more num_workers (--num-workers) reset more of them side by side"
    if around.collector == "caller":
        way_out += ", and --collector workers has a reset hold up the envs of its worker alone"
    return (
        f"resets took {share:.0%} of the envs' time ({duration(mean_s)} each, after episodes of "
        f"{length:.0f} steps); make reset() cheaper or episodes longer, else {way_out}"
    )


def reset_share(envs: Sequence[EnvStatistics]) -> tuple[float | None, float, int]:
    """The share of resets in the time of some envs, their mean time, and how many there were."""
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
