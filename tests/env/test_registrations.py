"""What the caller registered with Gymnasium is what its workers make."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec, WrapperSpec
from patience import PATIENCE_S

import rookery
from rookery.env import registrations

METHODS = ["forkserver", "spawn", "fork"]


class Mine(gym.Env[Any, Any]):
    observation_space = gym.spaces.Discrete(100)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, value: int = 7, render_mode: str | None = None) -> None:
        self.value = value

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.value, {}

    def step(self, action: Any) -> Any:
        return self.value, 1.0, False, False, {}


@pytest.fixture(autouse=True)
def registry() -> Iterator[dict[str, EnvSpec]]:
    """The registry, restored afterwards."""
    before = dict(gym.registry)
    yield gym.registry
    gym.registry.clear()
    gym.registry.update(before)


def _made(env_id: str, method: str) -> tuple[Any, ...]:
    """What a worker makes of an id: class, observation, length of an episode."""
    with rookery.make_vec(env_id, 2, backend="process", num_workers=1, start_method=method) as venv:
        obs, _ = venv.reset(seed=0)
        (name, _) = venv.apply(lambda env: type(env.unwrapped).__name__)
        (limit, _) = venv.apply(lambda env: env.spec.max_episode_steps)
    return name, obs.tolist(), limit


def _register_again(env_id: str, *args: Any, **kwargs: Any) -> None:
    gym.registry.pop(env_id)
    gym.register(env_id, *args, **kwargs)


@pytest.mark.parametrize("method", METHODS)
def test_a_stock_id_that_was_registered_again_is_the_callers(method: str) -> None:
    _register_again("CartPole-v1", Mine, max_episode_steps=9)
    assert _made("CartPole-v1", method) == ("Mine", [7, 7], 9)


@pytest.mark.parametrize("method", METHODS)
def test_a_stock_id_with_another_length_has_that_length(method: str) -> None:
    spec = gym.spec("CartPole-v1")
    _register_again("CartPole-v1", spec.entry_point, max_episode_steps=9)
    assert _made("CartPole-v1", method)[::2] == ("CartPoleEnv", 9)


def test_a_stock_spec_that_was_changed_in_place_is_the_callers() -> None:
    spec = gym.spec("CartPole-v1")
    spec.max_episode_steps = 11
    try:
        assert _made("CartPole-v1", "forkserver")[2] == 11
    finally:
        spec.max_episode_steps = 500


@pytest.mark.parametrize("method", METHODS)
def test_an_id_of_ones_own_may_name_a_stock_entry_point(method: str) -> None:
    gym.register("Pole-v0", "gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=5)
    assert _made("Pole-v0", method)[::2] == ("CartPoleEnv", 5)


def test_wrappers_and_arguments_of_a_spec_travel() -> None:
    gym.register(
        "Wrapped-v0",
        Mine,
        kwargs={"value": np.int64(3)},
        vector_entry_point=lambda **kwargs: None,
        additional_wrappers=(
            WrapperSpec("Max", "gymnasium.wrappers:TimeLimit", {"max_episode_steps": 4}),
        ),
    )
    assert _made("Wrapped-v0", "forkserver") == ("Mine", [3, 3], 4)


def test_a_vector_entry_point_that_cannot_travel_does_not_keep_the_env_behind() -> None:
    lock = threading.Lock()
    gym.register("Locked-v0", Mine, vector_entry_point=lambda **kwargs: lock)
    assert _made("Locked-v0", "forkserver")[0] == "Mine"


def test_an_env_that_cannot_travel_is_missed_only_when_it_is_made() -> None:
    lock = threading.Lock()
    gym.register("Locked-v0", lambda: lock)
    gym.register("Other-v0", Mine)
    assert _made("Other-v0", "forkserver")[0] == "Mine"
    with pytest.raises(rookery.PicklingError, match=r"Locked-v0.*entry_point.*\(lock\).*fork"):
        _made("Locked-v0", "forkserver")


def _other_names(env: Any) -> Any:
    return {name: spec.entry_point for name, spec in gym.registry.items()}


def test_what_the_caller_deleted_is_gone_and_all_else_is_as_in_the_caller(
    registry: dict[str, EnvSpec],
) -> None:
    del registry["Taxi-v4" if "Taxi-v4" in registry else "Taxi-v3"]
    with rookery.make_vec("CartPole-v1", 1, backend="process") as venv:
        (there,) = venv.apply(_other_names)
        strings = {k: v for k, v in there.items() if isinstance(v, str)}
    here = {k: s.entry_point for k, s in registry.items() if isinstance(s.entry_point, str)}
    assert strings == here and there.keys() == registry.keys()


def test_a_fresh_worker_keeps_the_stock_specs_that_it_has(tmp_path: Path) -> None:
    script = """
import gymnasium as gym, rookery
def kept(env):
    import gymnasium
    return sorted(gymnasium.registry._kept)
for method in ("forkserver", "spawn"):
    with rookery.make_vec("CartPole-v1", 1, backend="process", start_method=method) as venv:
        print(venv.apply(kept))
"""
    assert _run(tmp_path, script) == "[[]]\n[[]]\n"


def _run(folder: Path, script: str) -> str:
    (folder / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "script.py"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


MAIN = """
import gymnasium as gym, rookery

class Mine(gym.Env):
    observation_space = gym.spaces.Discrete(100)
    action_space = gym.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return 7, {}
    def step(self, action):
        return 7, 1.0, False, False, {}

class Twice(gym.ObservationWrapper, gym.utils.RecordConstructorArgs):
    def __init__(self, env):
        gym.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)
    def observation(self, obs):
        return 2 * obs

wrapper = gym.envs.registration.WrapperSpec("Twice", "__main__:Twice", {})
gym.register("Mine-v0", "__main__:Mine", additional_wrappers=(wrapper,))
nested = lambda: gym.make("Mine-v0")
for source in ("Mine-v0", nested):
    with rookery.make_vec(source, 2, backend="process", start_method=METHOD) as venv:
        spec = venv.apply(lambda env: env.unwrapped.spec.entry_point)
        print(venv.reset(seed=0)[0].tolist(), spec)
"""


@pytest.mark.parametrize("method", METHODS)
def test_entry_points_may_be_named_in_the_script(tmp_path: Path, method: str) -> None:
    out = _run(tmp_path, MAIN.replace("METHOD", repr(method)))
    assert out == "[14, 14] ['__main__:Mine', '__main__:Mine']\n" * 2


PLUGIN = """
import gymnasium as gym

class Plugged(gym.Env):
    observation_space = gym.spaces.Discrete(100)
    action_space = gym.spaces.Discrete(2)
    def __init__(self, value=1):
        self.value = value
    def reset(self, *, seed=None, options=None):
        return self.value, {}
    def step(self, action):
        return self.value, 1.0, False, False, {}

gym.register("Plugged-v0", "plugin:Plugged")
gym.register("CartPole-v1", "plugin:Plugged", kwargs={"value": 5})
"""

AFTER_PLUGIN = """
import warnings
warnings.simplefilter("ignore")
import gymnasium as gym, rookery
import plugin
gym.register("Plugged-v0", "plugin:Plugged", kwargs={"value": 9})
gym.register("CartPole-v1", "plugin:Plugged", kwargs={"value": 8})
for source in ("Plugged-v0", "CartPole-v1", "plugin:CartPole-v1"):
    with rookery.make_vec(source, 3, backend="process", num_workers=1, start_method=METHOD) as venv:
        print(venv.reset(seed=0)[0].tolist())
"""


@pytest.mark.parametrize("method", METHODS)
def test_a_plug_in_imported_in_the_worker_does_not_overrule_the_caller(
    tmp_path: Path, method: str
) -> None:
    (tmp_path / "plugin.py").write_text(PLUGIN)
    out = _run(tmp_path, AFTER_PLUGIN.replace("METHOD", repr(method)))
    assert out == "[9, 9, 9]\n[8, 8, 8]\n[8, 8, 8]\n"


BEFORE_PLUGIN = """
import warnings
warnings.simplefilter("ignore")
import gymnasium as gym, rookery

def imported():
    import plugin
    return gym.make("CartPole-v1")

def registered():
    gym.register("CartPole-v1", "plugin:Plugged", kwargs={"value": 6})
    return gym.make("CartPole-v1")

for source in (imported, registered):
    with rookery.make_vec(source, 2, backend="process", num_workers=1, start_method=METHOD) as venv:
        print(venv.reset(seed=0)[0].tolist())
"""


@pytest.mark.parametrize("method", METHODS)
def test_what_an_env_registers_itself_counts_as_in_the_calling_process(
    tmp_path: Path, method: str
) -> None:
    (tmp_path / "plugin.py").write_text(PLUGIN)
    out = _run(tmp_path, BEFORE_PLUGIN.replace("METHOD", repr(method)))
    assert out == "[5, 5]\n[6, 6]\n"


def test_thousands_of_specs_fit_into_the_buffer_of_a_pipe() -> None:
    for i in range(2000):
        gym.register(
            f"ALE/Game{i}-v5",
            "ale_py.env:AtariEnv",
            kwargs={"game": f"game{i}", "obs_type": "rgb", "frameskip": 4},
        )
    assert len(registrations.collect().packed) < 64_000
