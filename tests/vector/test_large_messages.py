"""Infos of any size arrive, whoever is waited for, and cost no memory that stays."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gated_envs import NO_HURRY_S, Gated, make
from patience import PATIENCE_S

import rookery

BACKENDS = ["serial", "thread", "process"]


class Picture(gym.Env[Any, Any]):
    """Tells a picture that is larger than a pipe's buffer, when it is reset and in a step 1."""

    observation_space = gym.spaces.Box(0, 9999, (1,), np.int64)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, folder: str = ".", size_bytes: int = 800_000) -> None:
        self._folder, self._size_bytes = Path(folder), size_bytes

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._seed = seed
        return np.array([0]), {} if options else self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.array([1]), 1.0, False, False, self._info() if action else {}

    def close(self) -> None:
        if self._folder != Path("."):  # nobody asked for it
            (self._folder / f"closed-{self._seed}").touch()

    def _info(self) -> dict[str, Any]:
        return {"frame": np.full(self._size_bytes, (self._seed or 0) % 256, np.uint8)}


@pytest.mark.parametrize("kind", BACKENDS)
def test_several_envs_of_one_worker_tell_more_than_a_pipe_holds(kind: str) -> None:
    options = {} if kind == "serial" else {"num_workers": 1}
    with make(kind, Picture, 3, **options) as venv:
        venv.send_reset(seed=5)
        *_, info, ids = venv.recv(min_envs=3, timeout=PATIENCE_S)
        frames = dict(zip(ids.tolist(), info["frame"], strict=True))
        assert {i: (len(frames[i]), int(frames[i][-1])) for i in frames} == {
            i: (800_000, 5 + i) for i in range(3)
        }
        venv.send(np.ones(3, int))
        assert len(venv.recv(min_envs=3, timeout=PATIENCE_S)[5]) == 3


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_what_nobody_received_does_not_keep_the_envs_from_being_closed(
    kind: str, tmp_path: Path
) -> None:
    venv = make(kind, Picture, 3, num_workers=1, kwargs={"folder": str(tmp_path)})
    venv.send_reset(seed=5)
    venv.close(timeout=NO_HURRY_S)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["closed-5", "closed-6", "closed-7"]


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_one_huge_info_leaves_no_huge_memory() -> None:
    with make("process", Picture, 16, num_workers=2, kwargs={"size_bytes": 20_000_000}) as venv:
        venv.reset(options={"is_silent": True})
        one = np.arange(16) == 9
        for told in (one, ~one & False, one, ~one & False):
            info = venv.step(told.astype(int))[4]
            assert [len(frame) for frame in info.get("frame", np.zeros(16))[told]] == [
                20_000_000
            ] * sum(told)
        assert _shared_bytes() < 200_000_000


def _shared_bytes() -> int:
    """How much this process shares with others, in bytes."""
    total = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        found = re.match(r"([0-9a-f]+)-([0-9a-f]+) ...s.*rookery", line)
        if found:
            total += int(found[2], 16) - int(found[1], 16)
    return total


@pytest.mark.parametrize("kind", BACKENDS)
def test_steps_of_single_envs_are_counted(kind: str) -> None:
    with make(kind, Picture, 3, kwargs={"size_bytes": 10}) as venv:
        venv.send_reset(seed=1)
        venv.recv(min_envs=3, timeout=PATIENCE_S)
        venv.send(np.zeros(2, int), [0, 2])
        venv.recv(min_envs=2, timeout=PATIENCE_S)
        assert venv.statistics().env_steps == 2
        venv.step(np.zeros(3, int))
        assert venv.statistics().env_steps == 5


@pytest.mark.parametrize("kind", BACKENDS)
def test_sending_leaves_the_views_of_the_last_step_alone(kind: str) -> None:
    with make(kind, Gated, 3, copy=False) as venv:
        venv.reset(seed=1)
        obs = venv.step(np.zeros(3, int))[0]
        venv.send(np.zeros(3, int))
        venv.recv(min_envs=3, timeout=PATIENCE_S)
        assert obs[:, 0].tolist() == [1, 1, 1]


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="stops a worker by a signal")
def test_recv_ends_in_time_though_a_worker_is_stopped_amid_a_message() -> None:
    size_bytes = 20_000_000  # which no memory is shared for
    kwargs = {"size_bytes": size_bytes}
    with make("process", Picture, 2, num_workers=2, kwargs=kwargs) as venv:
        venv.reset(seed=5)
        venv.send(np.ones(2, int))
        waits = NO_HURRY_S * 100
        while venv._orders.asked[0] != venv._orders.answered[0] and waits:
            waits -= 1
            time.sleep(0.01)
        os.kill(venv.pids[0], signal.SIGSTOP)  # it has said that there is more, and waits to tell
        try:
            with pytest.raises(rookery.WorkerTimeout, match="recv"):
                venv.recv(min_envs=2, timeout=0.3)
        finally:
            os.kill(venv.pids[0], signal.SIGCONT)
        *_, info, ids = venv.recv(min_envs=2, timeout=NO_HURRY_S)
        assert sorted(ids.tolist()) == [0, 1]
        assert [len(frame) for frame in info["frame"]] == [size_bytes] * 2
