from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rookery.cli import main
from rookery.env.recipe import make_recipes
from rookery.testing import Finding
from rookery.testing.env_check import examine_all


def _findings(source: Any, **kwargs: Any) -> dict[str, Finding]:
    (recipe,) = make_recipes(source, 1, kwargs, ())
    return {finding.check: finding for finding in examine_all(recipe)}


@pytest.mark.slow
def test_a_healthy_env_has_nothing_that_would_break_a_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["doctor", "CartPole-v1", "--json"]) == 0
    findings = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    by_check = {finding["check"]: finding["verdict"] for finding in findings}
    for check in (
        "recipe can be pickled",
        "start method spawn",
        "seeding is reproducible",
        "memory",
    ):
        assert by_check[check] == "ok"


class Sloppy(gym.Env[Any, Any]):
    """Ignores its seed and leaves its space."""

    observation_space = gym.spaces.Box(0, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.random.default_rng().uniform(5, 6, 2), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.random.default_rng().uniform(5, 6, 2), 0.0, False, False, {}


@pytest.mark.slow
def test_what_would_break_a_run_fails_with_the_way_out() -> None:
    findings = _findings(Sloppy)
    assert findings["seeding is reproducible"].verdict == "fail"
    assert findings["observations are in their space"].verdict == "fail"
    assert "np_random" in findings["seeding is reproducible"].way_out
    assert (
        "reset returned float64 [2], from 5" in findings["observations are in their space"].detail
    )


BAD_ENVS = """
import time

import gymnasium as gym
import numpy as np


class Good(gym.Env):
    observation_space = gym.spaces.Box(-2, 2, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.obs(), {}

    def step(self, action):
        return self.obs(), 0.0, False, False, {}

    def obs(self):
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)


class NotANumber(Good):
    def obs(self):
        return super().obs() * np.float32(np.nan)


class WrongDtype(Good):
    def obs(self):
        return super().obs().astype(np.float64)


class OutOfItsSpace(Good):
    def obs(self):
        return super().obs() + np.float32(5)


class GlobalStream(Good):
    def obs(self):
        return np.random.uniform(-1, 1, 2).astype(np.float32)


class Hangs(Good):
    def step(self, action):
        time.sleep(10**6)


class HangsWhenBuilt(Good):
    def __init__(self):
        time.sleep(10**6)


THE_ONLY_ONE = Good()


def make_the_only_one():
    return THE_ONLY_ONE
"""


@pytest.fixture
def bad_envs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of bad envs in the current folder, where the doctor finds it."""
    (tmp_path / "ill_envs.py").write_text(BAD_ENVS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "ill_envs", raising=False)
    monkeypatch.setattr("rookery.testing.env_check.START_METHODS", ())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("NotANumber", "no NaN"),
        ("WrongDtype", "observations are in their space"),
        ("OutOfItsSpace", "observations are in their space"),
        ("GlobalStream", "seeding is reproducible"),
        ("make_the_only_one", "two in one process"),
        ("Hangs", "step: did not end within 5 s"),
        ("HangsWhenBuilt", "the constructor: did not end within 5 s"),
    ],
)
def test_what_would_break_a_run_is_exit_code_1(
    name: str, told: str, bad_envs: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", f"ill_envs:{name}", "--deadline", "5"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("fail") and told in line], lines


def test_a_good_env_of_that_module_is_exit_code_0(bad_envs: None) -> None:
    assert main(["doctor", "ill_envs:Good"]) == 0


def test_a_missing_attribute_is_named_with_near_ones(
    bad_envs: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "ill_envs:GlobalSteam"]) == 2
    error = capsys.readouterr().err
    assert "'ill_envs' has no attribute 'GlobalSteam'" in error and "GlobalStream" in error


def test_an_env_that_cannot_be_built_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "rookery.testing:Faulty", "--env-kwargs", '{"fail": "make"}']) == 1
    assert "no make today" in capsys.readouterr().out


def test_bad_arguments_are_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "CartPole-v9"]) == 2
    assert main(["doctor"]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert main(["doctor", "CartPole-v1", "--deadline", "0"]) == 2
    assert len(errors) == 2 and "CartPole-v1" in errors[0]
