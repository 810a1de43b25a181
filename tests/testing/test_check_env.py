"""check_env passes a good env, and tells what is wrong with every bad one."""

from __future__ import annotations

import sys
import threading
from typing import Any

import bad_envs
import gymnasium as gym
import pytest

import rookery
from rookery.testing import CheckFailed, Finding, check_env

# Class, the check that fails, and a part of what it says.
BAD = [
    ("NumpysStream", "seeding is reproducible", "np.random or random"),
    ("PythonsStream", "seeding is reproducible", "np.random or random"),
    ("SeedsTheGlobalStream", "seeding is reproducible", "same process"),
    ("IgnoresItsSeed", "seeding is reproducible", "same seed"),
    ("RemembersTheLastEpisode", "seeding is reproducible", "twice"),
    ("NotANumber", "no NaN", "step returned float32"),
    ("RewardIsNan", "no NaN", "a reward is nan"),
    ("WrongDtype", "observations are in their space", "float64"),
    ("WrongShape", "observations are in their space", "[1]"),
    ("OutOfItsSpace", "observations are in their space", "from "),
    ("OldStep", "reset and step return what they should", "a tuple of 4"),
    ("OldReset", "reset and step return what they should", "(observation, info)"),
    ("InfoIsNone", "reset and step return what they should", "not a dict"),
    ("RewardIsText", "reset and step return what they should", "not a number"),
    ("FlagIsText", "reset and step return what they should", "not a bool"),
    ("NoSpaces", "can be built", "observation_space"),
    ("RaisesInStep", "behaviour", "KeyError: 'lost key'"),
    ("RaisesWhenBuilt", "can be built", "no such simulator"),
    ("EndsItsProcess", "step", "exit code 3"),
    ("EndsItsProcessWell", "step", "exit code 0"),
    ("EndsAllWhenBuiltTwice", "two in one process", "exit code 0"),
    ("TellsALockAtTheEnd", "infos can be pickled", "info['lock'], a lock"),
    ("OneAtATime", "two in one process", "in use"),
    ("Singleton", "two in one process", "same env twice"),
]
HANGING = [
    ("HangsInStep", "step", "in step"),
    ("HangsInReset", "reset", "in reset"),
    ("HangsWhenBuilt", "the constructor", "in __init__"),
]


@pytest.fixture(scope="module", autouse=True)
def only_the_env_itself() -> Any:
    """Look at each env by itself; that envs are tried in workers too is tested once."""
    patch = pytest.MonkeyPatch()
    patch.setattr("rookery.testing.env_check.START_METHODS", ())
    yield patch
    patch.undo()


def _failures(env: Any, **options: Any) -> list[Finding]:
    return [f for f in check_env(env, raises=False, **options) if f.verdict == "fail"]


@pytest.mark.slow
def test_a_good_env_passes_in_workers_too(only_the_env_itself: Any) -> None:
    with only_the_env_itself.context() as patch:
        patch.setattr("rookery.testing.env_check.START_METHODS", ("spawn",))
        findings = check_env(bad_envs.Good, raises=False)
    assert {f.check for f in findings if f.verdict == "ok"} >= {
        "recipe can be pickled",
        "can be built",
        "start method spawn",
        "two in one process",
        "two processes",
        "seeding is reproducible",
        "seeds are distinct",
    }
    assert not [f for f in findings if f.verdict == "fail"]


@pytest.mark.parametrize(("name", "check", "text"), BAD, ids=[name for name, *_ in BAD])
def test_a_bad_env_is_told_of(name: str, check: str, text: str) -> None:
    failures = _failures(getattr(bad_envs, name))
    assert [failure.check for failure in failures] == [check]
    assert text in failures[0].detail
    assert failures[0].way_out or check == "step"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "check", "text"), HANGING, ids=[name for name, *_ in HANGING])
def test_what_hangs_is_ended_and_named_with_its_line(name: str, check: str, text: str) -> None:
    (failure,) = _failures(getattr(bad_envs, name), deadline_s=5.0)
    assert failure.check == check
    assert "within 5 s" in failure.detail and "bad_envs.py" in failure.detail
    assert text in failure.detail and "timeout_s" in failure.way_out


def test_failures_are_raised_together() -> None:
    class TwoFaults(bad_envs.NumpysStream):
        def obs(self) -> Any:
            return super().obs() + 20

    with pytest.raises(CheckFailed) as caught:
        check_env(TwoFaults)
    assert "seeding is reproducible" in str(caught.value)
    assert "observations are in their space" in str(caught.value)


def test_what_cannot_travel_is_named() -> None:
    (failure,) = _failures(bad_envs.Good, env_kwargs={"lock": threading.Lock()})
    assert "env_kwargs['lock']" in failure.detail and "Deferred" in failure.way_out


def test_an_env_made_from_an_id_is_built_again() -> None:
    env = gym.make("CartPole-v1")
    assert check_env(env) == []
    env.close()
    with pytest.raises(rookery.ConfigError, match="callable"):
        check_env(bad_envs.Good())


def test_what_the_caller_registered_is_known_to_the_trial() -> None:
    gym.register("GoodOne-v0", bad_envs.Good)
    try:
        assert _failures("GoodOne-v0") == []
    finally:
        del gym.registry["GoodOne-v0"]


def test_a_trial_leaves_the_global_streams_and_path_of_the_caller_alone() -> None:
    import random

    before, path = random.getstate(), list(sys.path)
    check_env(bad_envs.Good)
    assert random.getstate() == before and sys.path == path
