"""Advice from telemetry has numbers and an option, and is printed only if it helps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rookery.common.resources import MemoryRoom
from rookery.run.log.telemetry_advice import Surroundings, judged
from rookery.run.log.telemetry_log import TelemetryLog, scalars
from rookery.vector.statistics.snapshot import (
    CallerStatistics,
    EnvStatistics,
    Statistics,
    WorkerStatistics,
)

_GIB = 2.0**30
_MIB = 2.0**20
AROUND = Surroundings(
    cpus=4, room=MemoryRoom(16 * _GIB, 8 * _GIB, "this container"), unix_time=0.0,
    policy_s=20.0, env_s=30.0, wait_s=2.0, learn_s=25.0,
)  # fmt: skip


def _env(i: int, **changes: Any) -> EnvStatistics:
    own = EnvStatistics(
        env_id=i, worker=i // 4, steps=10_000, episodes=100, resets=101, step_mean_s=1e-3,
        step_p50_s=1e-3, step_p99_s=2e-3, reset_mean_s=2e-3, reset_p99_s=3e-3, wait_s=20.0,
        straggler_share=1 / 8,
    )  # fmt: skip
    return replace(own, **changes)


def _worker(i: int, **changes: Any) -> WorkerStatistics:
    own = WorkerStatistics(
        pid=100 + i, env_ids=range(4 * i, 4 * i + 4), busy_s=40.0, in_caller=False,
        straggler_share=0.5, straggler_s=1e-4, rss_bytes=int(100 * _MIB),
        rss_bytes_per_hour=2 * _MIB, rss_growth_bytes=0.0, cpu_percent=70.0, threads=3,
        runnable_threads=0.8, descriptors=9,
    )  # fmt: skip
    return replace(own, **changes)


HEALTHY = Statistics(
    vector_steps=10_000, env_steps=80_000, workers=(_worker(0), _worker(1)),
    envs=tuple(_env(i) for i in range(8)), seconds=100.0,
    caller=CallerStatistics(
        waited_s=30.0, look_s=10.0, rss_bytes=int(300 * _MIB), rss_bytes_per_hour=900 * _MIB,
        rss_growth_bytes=90 * _MIB, cpu_percent=40.0, threads=8, runnable_threads=0.5,
        descriptors=20,
    ),
)  # fmt: skip


def _with_env(i: int, **changes: Any) -> Statistics:
    envs = list(HEALTHY.envs)
    envs[i] = _env(i, **changes)
    return replace(HEALTHY, envs=tuple(envs))


def _with_worker(i: int, **changes: Any) -> Statistics:
    backends = list(HEALTHY.workers)
    backends[i] = _worker(i, **changes)
    return replace(HEALTHY, workers=tuple(backends))


def _of(statistics: Statistics, matter: str, around: Surroundings = AROUND) -> str:
    found = judged(statistics, around)
    assert list(found) == [matter]
    return found[matter]


def test_healthy_statistics_get_no_advice() -> None:
    assert judged(HEALTHY, AROUND) == {}


def test_empty_statistics_get_no_advice() -> None:
    unknown = Statistics(0, 0, (WorkerStatistics(1, range(2), 0.0, True),), seconds=1e6)
    assert judged(unknown, replace(AROUND, policy_s=0, env_s=0, wait_s=0, learn_s=0)) == {}
    envs = tuple(EnvStatistics(i, 0) for i in range(2))
    assert judged(replace(unknown, envs=envs), AROUND) == {}


SLOW = _with_env(3, step_mean_s=10e-3, step_p99_s=12e-3, straggler_share=0.95)
LEAK = {"rss_bytes": int(_GIB), "rss_bytes_per_hour": 2 * _GIB, "rss_growth_bytes": 80 * _MIB}


def test_a_slow_env_is_named_with_numbers_and_an_option() -> None:
    said = _of(SLOW, "slow env")
    assert said.startswith("env 3 takes 10 ms per step (p99 12 ms), the others take 1 ms")
    assert "95%" in said and "--isolate" in said
    backends = (WorkerStatistics(1, range(8), 90.0, True),)
    envs = tuple(replace(env, worker=0) for env in SLOW.envs)
    assert "--backend process" in _of(replace(SLOW, workers=backends, envs=envs), "slow env")
    alone = tuple(_worker(i, env_ids=range(i, i + 1), runnable_threads=0.5) for i in range(8))
    envs = tuple(replace(env, worker=env.env_id) for env in SLOW.envs)
    assert "send() and recv()" in _of(replace(SLOW, workers=alone, envs=envs), "slow env")


@pytest.mark.parametrize(
    "statistics",
    [
        _with_env(3, step_mean_s=2.5e-3, straggler_share=0.9),  # not that much slower
        _with_env(3, step_mean_s=10e-3, straggler_share=0.2),  # holds nobody up
        _with_env(3, step_mean_s=10e-3, straggler_share=0.9, steps=20),  # its first steps
        replace(
            _with_env(3, step_mean_s=90e-6, straggler_share=0.9),  # as any preempted process
            envs=tuple(
                _env(i, step_mean_s=90e-6 if i == 3 else 5e-6, reset_mean_s=1e-5) for i in range(8)
            ),
        ),
        replace(SLOW, seconds=5.0),
    ],
)
def test_a_slightly_slow_env_gets_no_advice(statistics: Statistics) -> None:
    assert judged(statistics, AROUND) == {}


def test_an_overloaded_worker_is_named() -> None:
    loaded = _with_worker(1, busy_s=90.0, straggler_share=0.97)
    said = _of(loaded, "loaded worker")
    assert "worker 1 (envs 4 to 7, process 101) was busy for 90 s" in said
    assert "the others for 40 s on average" in said and "--isolate" in said
    uneven = (_worker(0, env_ids=range(2)), _worker(1, env_ids=range(2, 8), busy_s=90.0))
    said = _of(replace(HEALTHY, workers=uneven), "loaded worker")
    assert "it has 6 envs, another worker has 2" in said and "--num-workers" in said


def test_a_slightly_busier_worker_gets_no_advice() -> None:
    assert judged(_with_worker(1, busy_s=55.0), AROUND) == {}
    assert judged(_with_worker(1, busy_s=90.0, straggler_share=0.3), AROUND) == {}
    idle = (_worker(0, busy_s=1.0), _worker(1, busy_s=3.0))
    assert judged(replace(HEALTHY, workers=idle), AROUND) == {}
    backends = (_worker(0, busy_s=90.0), _worker(1))
    assert list(judged(replace(SLOW, workers=backends), AROUND)) == ["slow env"]
    caller = (_worker(0), _worker(1, in_caller=True, busy_s=90.0))
    assert judged(replace(HEALTHY, workers=caller), AROUND) == {}


def test_a_leak_is_reported_with_rate_and_time() -> None:
    said = _of(_with_worker(0, **LEAK), "leak")
    assert "worker 0 (envs 0 to 3, process 100) grows by 2048 MiB of memory per hour" in said
    assert "this container (8192 MiB are left)" in said and "in 4.0 hours, at 19" in said
    assert "--max-worker-rss-mb" in said and "--on-fault restart" in said
    both = (_worker(0, **LEAK), _worker(1, **LEAK))
    said = _of(replace(HEALTHY, workers=both), "leak")
    assert "and 1 more grow" in said and "in 2.0 hours" in said


def test_a_lower_memory_limit_of_the_worker_is_named() -> None:
    around = replace(AROUND, max_worker_rss_mb=2048.0)
    said = _of(_with_worker(0, **LEAK), "leak", around)
    assert "max_worker_rss_mb=2048 will be reached in 0.5 hours" in said
    assert "it is replaced then" in said


@pytest.mark.parametrize(
    "leak",
    [
        {**LEAK, "rss_growth_bytes": 4 * _MIB},  # nobody knows yet
        {**LEAK, "rss_growth_bytes": None},
        {**LEAK, "rss_bytes_per_hour": 20 * _MIB},  # in weeks
        {**LEAK, "rss_bytes_per_hour": -2 * _GIB, "rss_growth_bytes": -80 * _MIB},
    ],
)
def test_small_or_uncertain_growth_gets_no_advice(leak) -> None:
    assert judged(_with_worker(0, **leak), AROUND) == {}


def test_too_many_threads_cause_advice_with_an_option() -> None:
    crowded = tuple(_worker(i, runnable_threads=8.0) for i in range(2))
    said = _of(replace(HEALTHY, workers=crowded), "threads")
    assert "16.5 threads on average compete for 4 CPUs" in said
    assert "8.0 of them in worker 0" in said and "--threads-per-worker 1" in said
    many = tuple(_worker(i, env_ids=range(i, i + 1), runnable_threads=1.0) for i in range(8))
    envs = tuple(replace(env, worker=env.env_id) for env in HEALTHY.envs)
    said = _of(replace(HEALTHY, workers=many, envs=envs), "threads")
    assert "--num-workers 4" in said
    caller = replace(HEALTHY.caller, runnable_threads=12.0)
    assert "OMP_NUM_THREADS=2" in _of(replace(HEALTHY, caller=caller), "threads")


def test_few_or_unknown_threads_get_no_advice() -> None:
    some = tuple(_worker(i, runnable_threads=2.5) for i in range(2))
    assert judged(replace(HEALTHY, workers=some), AROUND) == {}
    unknown = replace(HEALTHY.caller, runnable_threads=None)
    assert judged(replace(HEALTHY, caller=unknown), AROUND) == {}
    crowded = tuple(_worker(i, runnable_threads=8.0) for i in range(2))
    brief = replace(HEALTHY.caller, look_s=0.2)
    assert judged(replace(HEALTHY, workers=crowded, caller=brief), AROUND) == {}


def test_envs_much_slower_than_the_policy_get_more_workers() -> None:
    slow = replace(AROUND, policy_s=3.0, env_s=90.0, learn_s=5.0)
    said = _of(HEALTHY, "balance", slow)
    assert "env steps took 90% of the time, the policy 3%" in said
    assert "--num-workers 4 uses 4" in said
    serial = (WorkerStatistics(1, range(8), 90.0, True),)
    envs = tuple(replace(env, worker=0) for env in HEALTHY.envs)
    said = _of(replace(HEALTHY, workers=serial, envs=envs), "balance", slow)
    assert "--backend process" in said


def test_a_policy_much_slower_than_the_envs_gets_more_envs_or_the_workers() -> None:
    slow = replace(AROUND, policy_s=90.0, env_s=3.0, learn_s=5.0)
    said = _of(HEALTHY, "balance", slow)
    assert "the policy took 90% of the time, env steps 3%" in said
    assert "--collector workers" in said and "--num-envs, now 8" in said
    alone = replace(HEALTHY, workers=tuple(_worker(i, runnable_threads=0.4) for i in range(2)))
    assert "--collector" not in _of(alone, "balance", replace(slow, cpus=1))


@pytest.mark.parametrize(
    "around",
    [
        replace(AROUND, policy_s=3.0, env_s=90.0, cpus=2),  # all that there are
        replace(AROUND, policy_s=3.0, env_s=90.0, is_chosen=True),  # it was measured
        replace(AROUND, policy_s=0.1, env_s=5.0, learn_s=0.2),  # too early
        replace(AROUND, policy_s=3.0, env_s=90.0, learn_s=80.0),  # the learner is slower
        replace(AROUND, policy_s=90.0, env_s=3.0, collector="workers"),
    ],
)
def test_imbalance_without_a_remedy_gets_no_advice(around: Surroundings) -> None:
    assert judged(HEALTHY, around) == {}


def test_frequent_resets_cause_advice() -> None:
    envs = tuple(_env(i, steps=10_000, resets=1000, reset_mean_s=40e-3) for i in range(8))
    said = _of(replace(HEALTHY, envs=envs), "resets")
    assert "resets took 80% of the envs' time (40 ms each, after episodes of 10 steps)" in said
    assert "--num-workers" in said and "--collector workers" in said
    once = tuple(_env(i, resets=1, reset_mean_s=90.0) for i in range(8))  # the first, which loads
    assert judged(replace(HEALTHY, envs=once), AROUND) == {}


def test_unknown_scalars_are_left_out() -> None:
    values = scalars(HEALTHY)
    assert values["telemetry/step_p99_s_max"] == 2e-3
    assert values["telemetry/load_imbalance"] == 1.0
    assert values["telemetry/rss_bytes"] == 500 * _MIB
    assert values["telemetry/rss_bytes_per_hour"] == 904 * _MIB
    assert values["telemetry/cpu_percent"] == 180.0
    nothing = Statistics(0, 0, (WorkerStatistics(1, range(1), 0.0, True),), (EnvStatistics(0, 0),))
    assert scalars(nothing) == {}
    assert "telemetry/cpu_percent" not in scalars(_with_worker(0, cpu_percent=None))


# ---------------------------------------------------------------- when it is said


def _log(path: Path, answers: list[Statistics], interval_s: float = 1e-9) -> TelemetryLog:
    given = iter(answers)
    return TelemetryLog(path, interval_s, lambda: next(given), None, {})


def test_advice_is_printed_once_after_two_measurements(tmp_path: Path, capsys) -> None:
    answers = [SLOW, HEALTHY, SLOW, SLOW, SLOW, HEALTHY, SLOW, SLOW]
    log, said = _log(tmp_path / "telemetry.jsonl", answers), []
    for step in range(1, 1 + len(answers)):
        assert log.look(step, 1.0, {})
        said.append(capsys.readouterr().err.count("rookery: advice: env 3 takes"))
    assert said == [0, 0, 0, 1, 0, 0, 0, 0]


def test_telemetry_is_measured_only_at_its_interval(tmp_path) -> None:
    path = tmp_path / "telemetry.jsonl"
    for interval_s in (0.0, 1e9):
        log = _log(path, [HEALTHY], interval_s)
        assert log.look(1, 1.0, {}) == {}
        assert not path.exists()
    log.finish(1, 1.0)
    assert path.exists()
