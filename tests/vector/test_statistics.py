"""``statistics()`` counts what was done, on every backend."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

import numpy as np
import pytest
from backends import BACKENDS, VARIANTS
from native_envs import Counting

import rookery
from rookery import FaultPolicy
from rookery.testing import Fault, Faulty

_OPTIONS: dict[str, dict[str, Any]] = {
    **{name: dict(backend.options) for name, backend in BACKENDS.items()},
    "thread": {"backend": "thread", "num_workers": 2},
}
_STEPS = 60
_NUM_ENVS = 4


def _actions(seed: int) -> np.ndarray:
    """Actions ``[T, B]``, some of which end the episode."""
    rng = np.random.default_rng(seed)
    ends = np.array([0, 0, 0, 0, Fault.END, Fault.TRUNCATE])
    return ends[rng.integers(0, len(ends), (_STEPS, _NUM_ENVS))]


def _drive(venv: rookery.VectorEnv, mode: str) -> tuple[list[int], list[int], list[int]]:
    """Step as ``mode`` allows, and count what a plain loop would: steps, episodes, resets."""
    steps, episodes, resets = ([0] * _NUM_ENVS for _ in range(3))
    venv.reset(seed=1)
    resets = [count + 1 for count in resets]
    ended = np.zeros(_NUM_ENVS, np.bool_)
    for action in _actions(2):
        if mode == "disabled" and ended.any():
            venv.reset(options={"reset_mask": ended})
            resets = [r + int(e) for r, e in zip(resets, ended, strict=True)]
            ended[:] = False
        is_reset = ended.copy() if mode == "next_step" else np.zeros(_NUM_ENVS, np.bool_)
        _, _, terminated, truncated, _ = venv.step(action)
        ended = terminated | truncated
        for i in range(_NUM_ENVS):
            steps[i] += not is_reset[i]
            resets[i] += int(is_reset[i] or (mode == "same_step" and ended[i]))
            episodes[i] += int(ended[i])
    return steps, episodes, resets


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
@pytest.mark.parametrize("backend", _OPTIONS)
def test_steps_episodes_and_resets_are_those_that_were_made(backend: str, mode: str) -> None:
    with rookery.make_vec(Faulty, _NUM_ENVS, autoreset_mode=mode, **_OPTIONS[backend]) as venv:
        steps, episodes, resets = _drive(venv, mode)
        statistics = venv.statistics()
    envs = statistics.envs
    assert [env.env_id for env in envs] == list(range(_NUM_ENVS))
    assert [env.steps for env in envs] == steps
    assert [env.episodes for env in envs] == episodes
    assert [env.resets for env in envs] == resets
    assert statistics.vector_steps == _STEPS
    assert statistics.env_steps == _STEPS * _NUM_ENVS
    for env in envs:
        backend_of = statistics.workers[env.worker]
        assert env.env_id in backend_of.env_ids
        assert 0 < env.step_p50_s <= env.step_p99_s and env.step_mean_s > 0
        assert env.reset_mean_s > 0 and env.reset_p99_s > 0
        assert env.wait_s >= 0
    assert sum(env.straggler_share for env in envs) == pytest.approx(1.0)


def test_a_worker_that_was_spawned_counts_too() -> None:
    options = VARIANTS["spawn-2"].options
    with rookery.make_vec(Faulty, _NUM_ENVS, autoreset_mode="same_step", **options) as venv:
        steps, episodes, _ = _drive(venv, "same_step")
        envs = venv.statistics().envs
    assert [env.steps for env in envs] == steps
    assert [env.episodes for env in envs] == episodes


@pytest.mark.parametrize("backend", _OPTIONS)
def test_partial_batches_are_counted_env_by_env(backend: str) -> None:
    with rookery.make_vec(
        Faulty, _NUM_ENVS, autoreset_mode="same_step", **_OPTIONS[backend]
    ) as venv:
        venv.reset(seed=0)
        venv.step(np.zeros(_NUM_ENVS, np.int64))
        for ids in ([0], [2, 3], [2], [0, 2]):
            venv.send(np.full(len(ids), Fault.END), ids)
            venv.recv(min_envs=len(ids))
        venv.send_reset(env_ids=[1])
        venv.recv()
        statistics = venv.statistics()
    assert [env.steps for env in statistics.envs] == [3, 1, 4, 2]
    assert [env.episodes for env in statistics.envs] == [2, 0, 3, 1]
    assert [env.resets for env in statistics.envs] == [3, 2, 4, 2]
    assert statistics.env_steps == 4 + 6


@pytest.mark.parametrize("mode", ["disabled", "same_step"])
@pytest.mark.parametrize("num_workers", [None, 2])
def test_native_batches_count_and_share_their_time(num_workers: int | None, mode: str) -> None:
    with rookery.make_vec(
        Counting, _NUM_ENVS, "native", num_workers=num_workers, autoreset_mode=mode
    ) as venv:
        venv.reset(seed=0)
        for _ in range(12):
            ended = np.logical_or(*venv.step(np.zeros(_NUM_ENVS, np.int64))[2:4])
            if mode == "disabled" and ended.any():
                venv.reset(options={"reset_mask": ended})
        envs = venv.statistics().envs
    lengths = [3 + i % (_NUM_ENVS // (num_workers or 1)) for i in range(_NUM_ENVS)]
    assert [env.steps for env in envs] == [12] * _NUM_ENVS
    assert [env.episodes for env in envs] == [12 // length for length in lengths]
    assert [env.resets for env in envs] == [1 + 12 // length for length in lengths]
    assert all(env.step_mean_s > 0 for env in envs)
    assert all(env.straggler_share is None for env in envs)


def test_counts_and_causes_outlive_workers() -> None:
    with rookery.make_vec(
        Faulty, 4, "process", num_workers=2, autoreset_mode="same_step",
        faults=FaultPolicy("restart"),
    ) as venv:  # fmt: skip
        venv.reset(seed=0)
        for action in (0, 0, Fault.RAISE, 0, Fault.KILL, 0):
            venv.step(np.array([action, 0, 0, 0]))
        statistics = venv.statistics()
        assert statistics.workers[0].pid in venv.pids
    first, second = statistics.workers
    assert (first.restarts, second.restarts) == (2, 0)
    assert [cause.fault for cause in first.restart_causes] == ["EnvFailed", "WorkerDied"]
    assert first.restart_causes[0].env_ids == (0,) and second.restart_causes == ()
    assert str(first.restart_causes[0]) == "EnvFailed (env 0)"
    steps = [env.steps for env in statistics.envs]
    assert steps[2:] == [6, 6]
    assert steps[1] in (5, 6)  # the batch that was killed amid its step may have counted it
    assert statistics.envs[0].resets == 3


def test_a_worker_that_a_reset_has_brought_back_says_why() -> None:
    with rookery.make_vec(Faulty, 2, "process", num_workers=1) as venv:
        venv.reset(seed=0)
        with pytest.raises(rookery.WorkerDied):
            venv.step(np.array([Fault.KILL, 0]))
        venv.reset(seed=0)
        venv.step(np.zeros(2, np.int64))
        (backend,) = venv.statistics().workers
        assert backend.restarts == 1
        assert [cause.fault for cause in backend.restart_causes] == ["WorkerDied"]


@pytest.mark.parametrize("backend", _OPTIONS)
def test_nothing_is_known_before_a_step_and_all_is_after_close(backend: str) -> None:
    venv = rookery.make_vec(Faulty, _NUM_ENVS, **_OPTIONS[backend])
    before = venv.statistics()
    assert {env.steps for env in before.envs} == {0}
    assert {env.step_mean_s for env in before.envs} == {None}
    assert {env.wait_s for env in before.envs} == {None}
    _plain_data(before)
    venv.reset(seed=0)
    for _ in range(5):
        venv.step(np.zeros(_NUM_ENVS, np.int64))
    assert {env.steps for env in before.envs} == {0}  # a snapshot
    live = venv.statistics()
    venv.close()
    last = venv.statistics()
    assert [env.steps for env in last.envs] == [5] * _NUM_ENVS
    assert last is venv.statistics()
    assert [c.pid for c in last.workers] == [c.pid for c in live.workers]
    assert venv.busy_s == tuple(c.busy_s for c in last.workers) and venv.restarts == 0
    _plain_data(last)


def _plain_data(statistics: rookery.vector.statistics.snapshot.Statistics) -> None:
    """Statistics are frozen, are JSON without NaN, and can be read by people."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        statistics.envs[0].steps = 3  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        statistics.caller.waited_s = 3.0  # type: ignore[misc]
    data = statistics.to_dict()
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert set(data) == {"envs", "workers", "caller"}
    assert {len(column) for column in data["envs"].values()} == {_NUM_ENVS}
    assert data["caller"]["rss_bytes"] > 2**20 and data["caller"]["threads"] >= 1
    for worker, backend in zip(data["workers"], statistics.workers, strict=True):
        assert worker["env_ids"] == [backend.env_ids[0], backend.env_ids[-1]]
        has_process = backend.pid != os.getpid()
        assert (worker["rss_bytes"] is not None) == has_process
    text = str(statistics)
    assert "nan" not in text and "None" not in text and "-" in text
    rows = [line.split()[0] for line in text.splitlines() if line and line.split()[0].isdigit()]
    assert len(rows) >= _NUM_ENVS


def test_who_waits_for_a_slow_worker_sees_who_it_was() -> None:
    with rookery.make_vec(Faulty, 2, "process", num_workers=2) as venv:
        venv.reset(seed=0)
        for _ in range(3):
            venv.step(np.array([0, Fault.PAUSE]))  # 0.4 s
        statistics = venv.statistics()
    fast, slow = statistics.envs
    assert slow.straggler_share > fast.straggler_share
    assert slow.step_p50_s > 0.3
    assert statistics.caller.waited_s > 1.0
    assert statistics.workers[1].straggler_share == slow.straggler_share
    assert statistics.workers[1].straggler_s > 0.1
    assert fast.wait_s > 0.3


def test_of_a_thousand_envs_the_slowest_are_shown() -> None:
    with rookery.make_vec(Faulty, 100, "serial") as venv:
        venv.reset(seed=0)
        venv.step(np.zeros(100, np.int64))
        text = str(venv.statistics())
    assert "the 32 slowest of 100 envs" in text and len(text.splitlines()) < 45
