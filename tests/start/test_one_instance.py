"""A native library that allows one instance per process: isolate=True runs it in parallel."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import rookery

SOURCE = """
static int instances = 0;
int simulator_open(void) { return ++instances; }
int simulator_step(int x) { return 2 * x; }
"""

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


class Simulator(gym.Env[Any, Any]):
    observation_space = gym.spaces.Box(-100, 100, (1,), np.float32)
    action_space = gym.spaces.Discrete(10)

    def __init__(self, library: str) -> None:
        self._library = ctypes.CDLL(library)
        if self._library.simulator_open() > 1:
            raise RuntimeError("the simulator is already open in this process")

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs = np.full(1, self._library.simulator_step(int(action)), np.float32)
        return obs, 0.0, False, False, {}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("simulator")
    (folder / "simulator.c").write_text(SOURCE)
    target = folder / "simulator.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", target, folder / "simulator.c"], check=True)
    return str(target)


@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_isolated_envs_each_have_the_library_to_themselves(library: str, method: str) -> None:
    kwargs = {"library": library}
    with rookery.make_vec(
        Simulator, 4, isolate=True, env_kwargs=kwargs, start_method=method
    ) as venv:
        venv.reset()
        assert venv.step(np.arange(4))[0][:, 0].tolist() == [0, 2, 4, 6]
    with pytest.raises(rookery.EnvFailed, match="already open"):
        rookery.make_vec(Simulator, 2, backend="process", num_workers=1, env_kwargs=kwargs)
