"""Observations of hundreds of kilobytes and infos of megabytes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from backends import BACKENDS
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from patience import PATIENCE_S

import rookery

NUM_ENVS = 3


class Large(gym.Env[Any, Any]):
    """A random image of 300 kB, and in every other step an info of a size of its own.

    Args:
        info_bytes: size of the array in the infos; 0 for no info.
    """

    observation_space = gym.spaces.Box(0, 255, (320, 320, 3), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, info_bytes: int) -> None:
        self._info_bytes = info_bytes

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._obs(), self._info()

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self._steps += 1
        info = self._info() if action else {}
        return self._obs(), 1.0, self._steps == 4, False, info

    def _obs(self) -> Any:
        return self.np_random.integers(0, 256, self.observation_space.shape, dtype=np.uint8)

    def _info(self) -> dict[str, Any]:
        if not self._info_bytes:
            return {}
        frame = np.full(self._info_bytes, self._steps, np.uint8)
        return {"frame": frame, "text": "z" * (self._info_bytes // 2)}


def _assert_same(ours: Any, theirs: Any) -> None:
    for one, other in zip(ours[:-1], theirs[:-1], strict=True):
        np.testing.assert_array_equal(one, other)
    assert ours[-1].keys() == theirs[-1].keys()
    for key, value in theirs[-1].items():
        if key not in ("final_obs", "final_info"):
            np.testing.assert_array_equal(ours[-1][key], value)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("info_bytes", [100, 1_500_000], ids=["image", "image and large info"])
@pytest.mark.parametrize("backend", list(BACKENDS))
def test_large_values_arrive_as_over_gymnasium(
    backend: str, info_bytes: int, mode: AutoresetMode
) -> None:
    make = partial(Large, info_bytes)
    plain = SyncVectorEnv([make] * NUM_ENVS, autoreset_mode=mode)
    with rookery.make_vec(make, NUM_ENVS, autoreset_mode=mode, **BACKENDS[backend].options) as venv:
        _assert_same(venv.reset(seed=1), plain.reset(seed=1))
        for step in range(9):
            actions = np.array([step % 2, 1, 0])
            _assert_same(venv.step(actions), plain.step(actions))
    plain.close()


@pytest.mark.parametrize("backend", list(BACKENDS))
def test_large_infos_arrive_in_partial_batches(backend: str) -> None:
    options = BACKENDS[backend].options
    with rookery.make_vec(partial(Large, 800_000), 4, **options) as venv:
        venv.send_reset(seed=1)
        info = venv.recv(min_envs=4, timeout=PATIENCE_S)[4]
        assert info["frame"].shape == (4, 800_000)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads /proc")
def test_one_large_info_does_not_take_memory_for_all_envs_for_ever() -> None:
    with rookery.make_vec(
        [partial(Large, 20_000_000), *[partial(Large, 0)] * 7], backend="process", num_workers=1
    ) as venv:
        venv.reset(seed=0)
        before = _shared_bytes()
        venv.step(np.array([1] + [0] * 7))
        for _ in range(3):
            venv.step(np.zeros(8, int))
        assert _shared_bytes() - before < 4 * 30_000_000


def _shared_bytes() -> int:
    """How much address space the shared mappings of this process take."""
    rows = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    ends = [row[0].split("-") for row in rows if row[1].endswith("s")]
    return sum(int(end, 16) - int(start, 16) for start, end in ends)
