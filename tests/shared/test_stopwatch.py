"""Counters of envs: exact counts, samples of the times of fast envs, all times of slow envs."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from typing import Any

import gymnasium
import numpy as np

import rookery
from rookery.shared.stopwatch import (
    ALWAYS_FROM_S,
    COMPARED,
    EPISODES,
    EXTRA,
    SLOWEST,
    SPARSELY,
    WAIT_NS,
    EnvCounters,
    Stopwatch,
    columns,
)


def _words(num_envs: int) -> EnvCounters:
    sizes = columns(num_envs).items()
    return EnvCounters({name: np.zeros(shape, dtype) for name, (shape, dtype) in sizes})


def _watch(words: EnvCounters, ids: range) -> Stopwatch:
    watch = Stopwatch(words, ids)
    watch.time_steps([_ECHO] * len(ids))
    return watch


class _Echo:
    def step(self, action: int) -> int:
        return action


_ECHO = _Echo()


def _step(watch: Stopwatch, took_s: float, count: int) -> bool:
    """Make one step of a batch as `EnvBatch` does; return True if it was timed."""
    is_timed = watch.stepped[0] is not _ECHO
    assert [env.step(7) for env in watch.stepped] == [7] * count
    _end(watch, took_s, count, 0.0)
    return is_timed


def _end(watch: Stopwatch, took_s: float, count: int, busy_s: float) -> None:
    watch.until_timed -= 1
    if watch.until_timed <= 0:
        watch.end(took_s, count, busy_s)


def test_some_steps_of_fast_envs_and_all_steps_of_slow_envs_are_timed() -> None:
    words = _words(2)
    watch = _watch(words, range(2))
    fast = [_step(watch, 1e-6, 2) for _ in range(499)]
    timed = [i for i, is_timed in enumerate(fast) if is_timed]
    assert timed[:7] == [2, 4, 8, 16, 32, 64, 128]
    assert set(np.diff(timed[6:]).tolist()) == {SPARSELY}
    slow = [_step(watch, 1.0, 2) for _ in range(200)]
    assert len(slow) > SPARSELY and all(slow[SPARSELY:]) and not all(slow)
    assert words.steps.sum(axis=1).tolist() == [sum(fast) + sum(slow)] * 2
    again = [_step(watch, 1e-6, 2) for _ in range(100)]
    assert sum(again) < 10


def test_the_slowest_env_is_recorded_with_its_resets() -> None:
    words = _words(4)
    watch = _watch(words, range(1, 4))
    for _ in range(5):
        watch.note_reset(1, 10**12)
        _step(watch, 1.0, 3)
    assert words.words[1, COMPARED] == 3
    assert words.words[:, SLOWEST].tolist() == [0, 0, 3, 0]
    assert words.resets.sum(axis=1).tolist() == [0, 0, 5, 0]


def test_a_batch_continues_the_counters_of_a_lost_one() -> None:
    words = _words(2)
    for _ in range(2):
        watch = _watch(words, range(2))
        for _ in range(5):
            _step(watch, 1e-6, 2)
        watch.episodes[1] += 1
        watch.extra[0] += 1
        watch.extra[1] -= 1
    assert words.words[:, EPISODES].tolist() == [0, 2]
    assert words.words[:, EXTRA].tolist() == [2, -2]


def test_an_interrupted_step_is_timed_when_it_is_repeated() -> None:
    words = _words(1)
    watch = _watch(words, range(1))
    for _ in range(2):
        _step(watch, 1.0, 1)
    watch.stepped[0].step(0)  # and an interruption comes
    assert _step(watch, 1.0, 1)
    assert words.steps.sum() == 1


def test_waiting_is_the_time_in_which_the_batch_was_not_busy() -> None:
    words = _words(1)
    watch = _watch(words, range(1))
    watch.begin(time.perf_counter() - 10.0, 5.0)
    for made in (1, 2, 3):
        _end(watch, 1.0, 1, 5.0 + made)  # 3 s busy of 10 or more
    assert 7 * 10**9 <= words.words[0, WAIT_NS] < 100 * 10**9
    before = int(words.words[0, WAIT_NS])
    later = _watch(words, range(1))
    later.begin(time.perf_counter() - 20.0, 0.0)
    for _ in range(3):
        _end(later, 1.0, 1, 0.0)
    assert words.words[0, WAIT_NS] >= before + 20 * 10**9


class _Resets(gymnasium.Env[np.ndarray, int]):
    """Resets fast or slowly; every tenth reset raises."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, is_slow: bool) -> None:
        self.is_slow, self.made = is_slow, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.made += 1
        if self.made % 10 == 0:
            raise ValueError("no")
        if self.is_slow:
            time.sleep(ALWAYS_FROM_S)
        return np.zeros(1, np.float32), {}


def test_some_fast_resets_and_all_slow_resets_are_timed() -> None:
    fns = [partial(_Resets, is_slow) for is_slow in (True, False)]
    with rookery.make_vec(fns, backend="serial") as venv:
        for _ in range(60):
            with suppress(rookery.EnvFailed):
                venv.reset()
        timed = venv._arrays.counters.resets.sum(axis=1)
        assert [env.resets for env in venv.statistics().envs] == [54, 54]
    assert timed[0] == 54 and 0 < timed[1] < 54
