"""Invalid calls are refused, with errors that handlers for Gymnasium's errors catch."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import rookery
from rookery.testing import Faulty

CLASSES = [rookery.SerialVectorEnv, rookery.ProcessVectorEnv]


class Shaped(gym.Env[Any, Any]):
    """An env of whatever observation space; it is never stepped."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, space: gym.Space[Any], folder: Path | None = None) -> None:
        self.observation_space = space
        self._folder = folder

    def close(self) -> None:
        if self._folder is not None:
            (self._folder / f"closed-{id(self)}-{os.getpid()}").touch()


@pytest.mark.parametrize("kind", CLASSES)
def test_a_vector_env_of_no_env_is_refused(kind: Any) -> None:
    with pytest.raises(rookery.UsageError, match="at least one env"):
        kind([])


@pytest.mark.parametrize("kind", CLASSES)
def test_spaces_that_differ_are_a_runtime_error_as_in_gymnasium(kind: Any, tmp_path: Path) -> None:
    spaces = [gym.spaces.Box(0, 1, (2,)), gym.spaces.Box(0, 2, (2,))]
    with pytest.raises(RuntimeError) as error:
        kind([partial(Shaped, space, tmp_path) for space in spaces])
    assert isinstance(error.value, rookery.SpaceError)
    assert len(list(tmp_path.iterdir())) == 2  # the envs were built, and are closed


@pytest.mark.parametrize("kind", CLASSES)
def test_spaces_that_cannot_be_batched_are_a_space_error(kind: Any) -> None:
    spaces = [gym.spaces.Box(0, 1, (2,)), gym.spaces.Box(0, 1, (2,), np.float64)]
    with pytest.raises(rookery.SpaceError, match="dtype"):
        kind([partial(Shaped, space) for space in spaces], observation_mode="different")
    with pytest.raises(rookery.UsageError, match="a pair of spaces"):
        kind([Faulty], observation_mode=(1, 2))


@pytest.mark.parametrize("kind", CLASSES)
def test_calls_that_would_pass_by_the_vector_env_are_refused(kind: Any) -> None:
    venv = kind([Faulty, Faulty])
    for name in ("reset", "step", "close"):
        with pytest.raises(ValueError, match=rf"call {name}\(\) of the vector env"):
            venv.call(name)
    with pytest.raises(TypeError, match="reset_mask"):
        venv.reset(options={"reset_mask": None})
    venv.close()


@pytest.mark.parametrize("kind", CLASSES)
def test_seeds_may_be_an_array(kind: Any) -> None:
    venv = kind([Faulty, Faulty])
    obs, _ = venv.reset(seed=np.array([7, 3]))
    assert obs[:, 1].tolist() == [7, 3]
    venv.close()


def test_the_envs_of_a_serial_vector_env_are_at_hand() -> None:
    venv = rookery.SerialVectorEnv([Faulty, Faulty])
    assert [env.label for env in venv.envs] == ["plain", "plain"]
    venv.close()
