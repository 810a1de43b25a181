"""What a search may choose: as data, changed by its user, and stored as Optuna can."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rookery
from rookery.run.algorithms import BUILT_IN
from rookery.tuning.hyperparameters.search import alike, fitted
from rookery.tuning.hyperparameters.space import Dimension, SearchSpace, read_changes
from rookery.tuning.hyperparameters.study import Question


def _question(algo: str = "ppo", **changes: Any) -> Question:
    values = {
        "algo": algo, "env": "CartPole-v1", "env_kwargs": {}, "wrappers": (), "env_module": None,
        "base": {}, "space": {}, "total_steps": 20_000, "evaluations": 5, "eval_episodes": 10,
        "seed": 0,
    }  # fmt: skip
    return Question(**{**values, **changes})


@pytest.mark.parametrize("algo", BUILT_IN)
def test_every_choice_and_bound_of_an_algorithm_is_a_setting_that_can_be(algo: str) -> None:
    space = SearchSpace.of(algo)
    assert {"learning_rate", "gamma", "hidden_sizes"} <= {d.name for d in space.dimensions}
    for dimension in space.dimensions:
        ends = (dimension.low, dimension.high)
        for value in ends if dimension.choices is None else dimension.choices:
            run, own = fitted(_question(algo), {dimension.name: value})
            config = BUILT_IN[algo][0].from_dict(own)
            config.check(run.get("num_envs", 8))
            assert dimension.from_stored(dimension.to_stored(value)) == value


def test_a_user_narrows_a_range_adds_a_setting_and_fixes_another() -> None:
    changes = {
        "learning_rate": {"low": 1e-4, "high": 1e-3},
        "normalize_obs": {"choices": [True, False]},
        "gamma": 0.99,
        "num_envs": 4,
    }
    space = SearchSpace.of("ppo", changes)
    found = {dimension.name: dimension for dimension in space.dimensions}
    assert found["learning_rate"] == Dimension("learning_rate", 1e-4, 1e-3)
    assert found["normalize_obs"].choices == (True, False)
    assert space.fixed == {"gamma": 0.99, "num_envs": 4}
    assert SearchSpace.from_dict("ppo", json.loads(json.dumps(space.to_dict()))) == space


def test_whole_settings_have_whole_ranges() -> None:
    space = SearchSpace.of("ppo", {"num_epochs": {"low": 1, "high": 20}})
    (dimension,) = [d for d in space.dimensions if d.name == "num_epochs"]
    assert dimension.whole and isinstance(dimension.low, int)
    with pytest.raises(rookery.ConfigError, match="num_epochs is a whole number"):
        SearchSpace.of("ppo", {"num_epochs": {"low": 0.5, "high": 20}})


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"gama": 0.9}, "did you mean gamma"),
        ({"seed": {"low": 0, "high": 9}}, "'seed' is not among the settings"),
        ({"gamma": {"min": 0, "max": 1}}, "'max' is not among the parts|'min' is not among"),
        ({"gamma": {"low": 0.9}}, "low and high must be two numbers"),
        ({"gamma": {"low": 1, "high": 0.9}}, "low must be less than high"),
        ({"gamma": {"low": 0, "high": 0.9, "log": True}}, "above 0 where log is true"),
        ({"gamma": {"choices": []}}, "choices must be a list"),
        ({"gamma": {"choices": [0.9, 0.9]}}, "comes twice"),
        ({"gamma": {"choices": [0.9], "low": 0}}, "stand alone"),
        ({"hidden_sizes": {"low": 1, "high": 9}}, "hidden_sizes has no range"),
        ({"activation": {"low": 1, "high": 9}}, "activation has no range"),
        (dict.fromkeys(SearchSpace.of("ppo").to_dict(), 1), "nothing to search"),
    ],
)
def test_an_invalid_space_is_an_error(changes: Any, complaint: str) -> None:
    with pytest.raises(rookery.ConfigError, match=complaint):
        SearchSpace.of("ppo", changes)


def test_the_error_names_an_unreadable_file_of_changes(tmp_path: Path) -> None:
    file = tmp_path / "space.json"
    with pytest.raises(rookery.ConfigError, match=r"cannot read --space .*space.json: No such"):
        read_changes(str(file))
    for content, complaint in (("{", "is not JSON"), ("[1]", r"must hold an object.*not \[1\]")):
        file.write_text(content)
        with pytest.raises(rookery.ConfigError, match=complaint):
            read_changes(str(file))


def test_the_first_settings_are_moved_into_the_space() -> None:
    space = SearchSpace.of("ppo")
    stored = space.stored({"entropy_coef": 0.0, "gamma": 0.98, "num_steps": 33, "clip_range": 0.2})
    assert stored == {"entropy_coef": 1e-8, "gamma": 0.98, "clip_range": 0.2}  # 33 is no choice


def test_lists_are_stored_as_text() -> None:
    dimension = Dimension("hidden_sizes", choices=(None, [64, 64]))
    assert dimension.to_stored((64, 64)) == "[64, 64]" and dimension.to_stored(None) is None
    assert dimension.from_stored("[64, 64]") == [64, 64]


def test_rollouts_and_minibatches_are_cut_to_what_a_trial_has() -> None:
    settings = {"num_envs": 16, "num_steps": 2048, "minibatch_size": 8192}
    run, own = fitted(_question(total_steps=8000), settings)
    assert run == {"num_envs": 16}
    assert own == {"num_steps": 100, "minibatch_size": 1600}  # an evaluation every 1600 steps
    assert fitted(_question("sac"), {"gamma": 0.9}) == ({}, {"gamma": 0.9})


def test_reasons_that_differ_only_in_numbers_are_alike() -> None:
    assert alike("env 3: loss 1.5e-7") == alike("env 12: loss 2")
    assert alike("ValueError: x") != alike("TypeError: x")
