from __future__ import annotations

import json
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rookery.cli import main
from rookery.diagnosis import Finding, examine
from rookery.env.recipe import make_recipes


def _findings(source: Any, **kwargs: Any) -> dict[str, Finding]:
    (recipe,) = make_recipes(source, 1, kwargs, ())
    return {finding.check: finding for finding in examine(recipe)}


def test_a_healthy_env_has_nothing_that_would_break_a_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["doctor", "CartPole-v1", "--json"]) == 0
    findings = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    by_check = {finding["check"]: finding["verdict"] for finding in findings}
    for check in ("recipe can travel", "start method spawn", "seeding is reproducible", "memory"):
        assert by_check[check] == "ok"


class Sloppy(gym.Env[Any, Any]):
    """Ignores its seed and leaves its space."""

    observation_space = gym.spaces.Box(0, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.random.default_rng().uniform(5, 6, 2), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.random.default_rng().uniform(5, 6, 2), 0.0, False, False, {}


def test_what_is_odd_is_noted_with_the_way_out() -> None:
    findings = _findings(Sloppy)
    assert findings["seeding is reproducible"].verdict == "note"
    assert "np_random" in findings["seeding is reproducible"].way_out
    assert (
        "reset returned float64 [2], from 5" in findings["observations are in their space"].detail
    )


def test_an_env_that_cannot_be_built_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "rookery.testing:Faulty", "--env-kwargs", '{"fail": "make"}']) == 1
    assert "no make today" in capsys.readouterr().out


def test_bad_arguments_are_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "CartPole-v9"]) == 2
    assert main(["doctor"]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2 and "CartPole-v1" in errors[0]
