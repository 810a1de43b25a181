"""scripts/outside puts our vector env where the tests of others expect the library's own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("sb3_contrib")
sys.path.append(str(Path(__file__).parent / "outside"))

import suite

PUBLISHED = """
from functools import partial

import gymnasium as gym
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

make_env = partial(gym.make, "CartPole-v1")  # which no worker needs this file for

@pytest.mark.parametrize("vec_env_class", [DummyVecEnv, SubprocVecEnv])
def test_who_it_is(vec_env_class):
    vec_env = vec_env_class([make_env])
    module = type(vec_env).__module__
    vec_env.close()
    assert module == "replacement"

def test_who_the_library_itself_takes():
    assert type(PPO("MlpPolicy", "CartPole-v1").env).__module__ == "replacement"

def test_what_both_can():
    vec_env = DummyVecEnv([make_env] * 3)
    assert vec_env.reset().shape == (3, 4)

def test_what_only_the_peer_can():
    assert DummyVecEnv([make_env]).envs

def test_nobody_runs():
    pytest.skip("not today")
"""
WHO = [f"test_who_it_is[{name}]" for name in ("DummyVecEnv", "SubprocVecEnv")]
WHO += ["test_who_the_library_itself_takes"]


@pytest.mark.slow
def test_published_tests_run_on_our_vector_env(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # none is needed, some are slow
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\nmarkers = ["expensive"]\n')
    file = tmp_path / "test_published.py"
    file.write_text(PUBLISHED)
    comparison = suite.Comparison("package", file.name)
    for contender in suite.CONTENDERS:
        comparison.outcomes[contender] = suite.run_file(tmp_path, file, contender, False)
    theirs, ours = (comparison.outcomes[name] for name in (suite.PEER, suite.OURS))
    assert [ours.tests[f"{file.name}::{test}"][0] for test in WHO] == ["passed"] * 3
    assert [theirs.tests[f"{file.name}::{test}"][0] for test in WHO] == ["failed"] * 3
    assert ours.count("skipped") == theirs.count("skipped") == 1
    assert list(comparison.unexplained()) == [f"{file.name}::test_what_only_the_peer_can"]


def test_what_is_known_of_a_test_may_be_of_some_parameters_only() -> None:
    name = "somewhere/tests/test_vec_envs.py::test_vecenv_custom_calls"
    assert suite.known.find(f"{name}[None-DummyVecEnv]", "private") is not None
    assert suite.known.find(f"{name}[None-SubprocVecEnv]", "private") is None
    assert suite.known.find(f"{name}[None-DummyVecEnv]", "own-process") is None
