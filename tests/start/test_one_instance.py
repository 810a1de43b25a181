"""A native library that allows one instance per process: isolate=True runs it in parallel."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from programs import output_of

import rookery
from rookery.vector.auto.choose import Choice

SOURCE = """
static int instances = 0;
int simulator_open(void) { return ++instances; }
int simulator_step(int x) { return 2 * x; }
"""

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


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


@needs_compiler
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


SCRIPT = """
import ctypes
import sys
import gymnasium as gym
import rookery

library = ctypes.CDLL(sys.argv[1])

class Simulator(gym.Env):
    def __init__(self):
        library.simulator_open()

gym.register("Simulator-v0", Simulator)
for env in (Simulator, "Simulator-v0"):
    try:
        rookery.make_vec(env, 2, isolate=True)
    except rookery.RookeryError as error:
        print(error)
"""


@needs_compiler
def test_the_error_about_a_library_that_is_a_global_says_what_to_do(library: str) -> None:
    first, second = output_of(SCRIPT, [library]).splitlines()
    assert "env.__init__ uses the global 'library': ctypes.CDLL" in first
    assert "spec.entry_point.__init__ uses the global 'library' (CDLL)" in second
    for line in (first, second):
        assert "Load the native library in the env's __init__, or in a module" in line


LOCK = threading.Lock()


class OneInstance(gym.Env[Any, Any]):
    """Allows one instance per process, without a native library."""

    observation_space = gym.spaces.Discrete(2)
    action_space = gym.spaces.Discrete(2)
    instances = 0

    def __init__(self, most: int = 1, **_kwargs: Any) -> None:
        with LOCK:
            if OneInstance.instances >= most:
                raise RuntimeError("the simulator is already open in this process")
            OneInstance.instances += 1

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        return 0, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        return 0, 0.0, False, False, {}

    def close(self) -> None:
        with LOCK:
            OneInstance.instances -= 1


WAY_OUT = "If the simulator allows one instance per process, use isolate=True"


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_the_error_of_the_second_env_of_a_worker_names_isolate(method: str) -> None:
    with pytest.raises(rookery.EnvFailed) as caught:
        rookery.ProcessVectorEnv([OneInstance] * 4, num_workers=2, start_method=method)
    first, second = str(caught.value).splitlines()
    assert "already open" in first
    first_id = caught.value.env_ids[0] - 1
    assert caught.value.envs_in_process == (first_id, first_id + 1)
    assert f"Envs {first_id}-{first_id + 1} share the worker process. {WAY_OUT}" in second


@pytest.mark.parametrize("backend", ["serial", "thread"])
def test_envs_of_the_calling_process_name_the_way_out(backend: str) -> None:
    with pytest.raises(rookery.EnvFailed) as caught:
        rookery.make_vec(
            OneInstance, 2, backend=backend, num_workers=None if backend == "serial" else 2
        )
    assert f"Envs 0-1 share the calling process. {WAY_OUT}" in str(caught.value)


def test_auto_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    choice = Choice("serial", 0, False, None, (), "chosen by the test")
    monkeypatch.setattr("rookery.vector.auto.choose.choose", lambda *_args, **_options: choice)
    with pytest.raises(rookery.EnvFailed) as caught:
        rookery.make_vec(OneInstance, 2, backend="auto")
    assert f"Envs 0-1 share the calling process. {WAY_OUT}" in str(caught.value)


def test_sb3s_adapter_names_the_way_out() -> None:
    sb3 = pytest.importorskip("rookery.integrations.sb3")
    with pytest.raises(rookery.EnvFailed) as caught:
        sb3.RookeryVecEnv([OneInstance] * 2, backend="process", num_workers=1)
    assert f"Envs 0-1 share the worker process. {WAY_OUT}" in str(caught.value)


@pytest.mark.parametrize("options", [{"isolate": True}, {"backend": "process", "num_workers": 1}])
def test_the_first_env_of_a_process_does_not(options: dict[str, Any]) -> None:
    with pytest.raises(rookery.EnvFailed) as caught:
        rookery.make_vec(OneInstance, 2, env_kwargs={"most": 0}, **options)
    assert "isolate" not in str(caught.value)
    assert caught.value.envs_in_process == ()
