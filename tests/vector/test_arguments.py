"""Arguments that cannot be meant are refused by name, before anything is started."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
import pytest

import rookery
from rookery.common.seeding import consecutive_seeds
from rookery.testing import Faulty
from rookery.vector.reset import separated

BACKENDS = ["serial", "process", "auto"]


class Touches(Faulty):
    """Leaves a file wherever it is built."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        (folder / f"built-{os.getpid()}").touch()


@pytest.mark.parametrize("kind", [rookery.ProcessVectorEnv, rookery.SerialVectorEnv])
@pytest.mark.parametrize("envs", ["CartPole-v1", Faulty, 4])
def test_what_is_no_list_of_envs_is_told_what_takes_it(kind: Any, envs: Any) -> None:
    with pytest.raises(rookery.ConfigError, match=r"a list of callables.*make_vec takes an id"):
        kind(envs)


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("num_envs must be a whole number of at least 1, got 2.0", {"num_envs": 2.0}),
    ("num_envs must be .*got True", {"num_envs": True}),
    ("num_envs must be .*got 0", {"num_envs": 0}),
    ("num_envs must be .*got '3'", {"num_envs": "3"}),
    ("num_workers must be .*got 0", {"num_workers": 0}),
    ("num_workers must be .*got -1", {"num_workers": -1}),
    ("num_workers must be .*got 2.5", {"num_workers": 2.5}),
    ("wrappers must be .*wrappers=.TimeLimit.", {"wrappers": gym.wrappers.TimeLimit}),
    ("wrappers must be .*got 3", {"wrappers": 3}),
    (r"wrappers\[1\] must be a callable.*got 'name'", {"wrappers": [lambda env: env, "name"]}),
    (r"wrappers\[0\] must be a callable", {"wrappers": "text"}),
    ("env_kwargs must be a mapping.*got 5", {"env_kwargs": 5}),
    ("env_kwargs must be a mapping", {"env_kwargs": [("folder", 3)]}),
    ("env_kwargs must be a mapping", {"env_kwargs": {1: 3}}),
    ("faults must be a rookery.FaultPolicy or None, got {} .dict", {"faults": {}}),
    ("faults must be .*got 'restart'", {"faults": "restart"}),
    ("threads_per_worker must be .*got 0", {"threads_per_worker": 0}),
    ("threads_per_worker must be .*got 1.5", {"threads_per_worker": 1.5}),
    ("isolate must be True or False, got 'no'", {"isolate": "no"}),
    ("caller_steps must be True or False, got 2", {"caller_steps": 2}),
    ("copy must be True or False, got None", {"copy": None}),
    ("autoreset_mode must be one of .*got 3", {"autoreset_mode": 3}),
    ("autoreset_mode must be one of .*got 'next'", {"autoreset_mode": "next"}),
    ("autoreset_mode must be one of", {"autoreset_mode": np.zeros(2)}),
    ("start_method must be one of .*'thread'", {"start_method": "thread"}),
    ("crash_dir must be a path, got 3", {"crash_dir": 3}),
    ("crash_dir must be a folder that can be written to", {"crash_dir": __file__}),
    ("crash_dir must be a folder that can be written to", {"crash_dir": f"{__file__}/inside"}),
    ("crash_dir must be a folder that can be written to", {"crash_dir": "a\0b"}),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("words", "arguments"), WRONG)
def test_an_argument_that_cannot_be_meant_is_named_before_anything_starts(
    words: str, arguments: dict[str, Any], backend: str, tmp_path: Path
) -> None:
    children = set(psutil.Process().children(recursive=True))
    usual = {"num_envs": 2, "env_kwargs": {"folder": tmp_path}}
    with pytest.raises(rookery.ConfigError, match=words):
        rookery.make_vec(Touches, backend=backend, **{**usual, **arguments})
    assert not set(psutil.Process().children(recursive=True)) - children
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("backend", [None, 3, "threads", ["serial"]])
def test_a_backend_that_does_not_exist_is_refused(backend: Any) -> None:
    with pytest.raises(rookery.ConfigError, match="backend must be one of"):
        rookery.make_vec("CartPole-v1", 2, backend=backend)


def test_numbers_and_sequences_of_other_libraries_are_taken() -> None:
    with rookery.make_vec(
        "CartPole-v1", np.int64(2), "serial", num_workers=np.int32(1), wrappers=None, env_kwargs={}
    ) as venv:
        assert venv.num_envs == 2
        venv.reset(seed=np.array([3, 4]))
        venv.reset(seed=np.int16(3))
        venv.reset(seed=range(2))


@pytest.mark.parametrize(
    ("seed", "words"),
    [
        (1.5, "seed must be None, a whole number, or a sequence.*got 1.5"),
        (-1, "seed must be a whole number of at least 0, got -1"),
        (True, "seed must be None"),
        ("12", "seed must be None.*got '12'"),
        ({0: 1, 1: 2}, "seed must be None"),
        ({1, 2}, "seed must be None"),
        (np.array(1.5), "seed must be None"),
        (np.random.SeedSequence(3), "seed must be None"),
        ([1, 2.0], r"seed\[1\] must be a whole number of at least 0, got 2.0"),
        ([-3, 1], r"seed\[0\] must be .*got -3"),
        (["1", "2"], r"seed\[0\] must be .*got '1'"),
        (np.array([1.0, 2.0]), r"seed\[0\] must be"),
        (np.zeros((2, 2), int), r"seed\[0\] must be"),
        ([1], "seed has 1 entries for 2 envs"),
    ],
)
@pytest.mark.parametrize("backend", ["serial", "process"])
def test_a_seed_that_is_none_is_refused_and_changes_nothing(
    seed: Any, words: str, backend: str
) -> None:
    with rookery.make_vec("CartPole-v1", 2, backend=backend, num_workers=1) as venv:
        venv.reset(seed=0)
        with pytest.raises(rookery.ConfigError, match=words):
            venv.reset(seed=seed)
        obs = venv.step(np.zeros(2, int))[0]
    with rookery.make_vec("CartPole-v1", 2, backend="serial") as venv:
        venv.reset(seed=0)
        np.testing.assert_array_equal(obs, venv.step(np.zeros(2, int))[0])


def test_seeds_are_ints_whatever_they_came_as() -> None:
    for seed in (np.array([3, 4]), (np.uint8(3), 4), range(3, 5), 3, np.int64(3), np.array(3)):
        seeds = consecutive_seeds(seed, 2)
        assert seeds == [3, 4] and all(type(value) is int for value in seeds)
    assert consecutive_seeds(np.array([None, 2]), 2) == [None, 2]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (5, "options must be None, a dict, or a sequence.*got 5"),
        ("ab", "options must be None"),
        ({1, 2}, "options must be None"),
        ([{}, 3], r"options\[1\] must be a dict or None, got 3"),
        ([{}], "options has 1 entries for 2 envs"),
        ({"reset_mask": np.array([True])}, "reset_mask"),
    ],
)
def test_options_that_are_none_are_refused(options: Any, words: str) -> None:
    with pytest.raises(rookery.ConfigError, match=words):
        separated(options, 2)


def test_options_are_copied_and_leave_the_mask_out() -> None:
    given = {"size": 3, "reset_mask": np.array([True, False])}
    own, mask = separated(given, 2)
    assert own == {"size": 3} and mask == [True, False] and "reset_mask" in given
    several = ({"size": 1}, None)
    assert separated(several, 2) == ([{"size": 1}, None], None)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_restarts": -1}, "max_restarts must be a whole number of at least 0"),
        ({"max_restarts": 1.5}, "max_restarts"),
        ({"max_restarts": None}, "max_restarts"),
        ({"window_s": 0}, "window_s must be a finite number above 0, got 0"),
        ({"window_s": None}, "window_s"),
        ({"step_timeout_s": float("nan")}, "step_timeout_s must be .*got nan"),
        ({"step_timeout_s": float("inf")}, "step_timeout_s"),
        ({"step_timeout_s": "3"}, "step_timeout_s must be .*got '3'"),
        ({"step_timeout_s": True}, "step_timeout_s"),
        ({"step_timeout_s": [1]}, "step_timeout_s"),
        ({"reset_timeout_s": -2.0}, "reset_timeout_s"),
        ({"on_fault": "restart", "max_worker_rss_mb": "1G"}, "max_worker_rss_mb"),
        ({"on_fault": ["restart"]}, "on_fault"),
    ],
)
def test_a_fault_policy_of_no_numbers_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(rookery.ConfigError, match=words):
        rookery.FaultPolicy(**settings)
    assert rookery.FaultPolicy(step_timeout_s=np.float32(3)).has_deadline
