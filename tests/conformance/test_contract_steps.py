"""reset and step: seeds, options, masks, shapes and dtypes, Gymnasium's and ours alike."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from contract_backends import MODES, NUM_ENVS, Open, cues
from contract_envs import Cue, Lost, Typed

# AsyncVectorEnv warns of an exception before it raises it.
REPORTS = pytest.mark.filterwarnings(r"ignore:.*ERROR.*:UserWarning")


def _cartpoles(open_any: Open) -> Any:
    return open_any([lambda: gym.make("CartPole-v1")] * NUM_ENVS)


# ---------------------------------------------------------------- seeds and options


@pytest.mark.parametrize(
    ("seed", "per_env"),
    [
        (None, [None, None, None]),
        (5, [5, 6, 7]),
        ([3, None, 9], [3, None, 9]),
        ((1, 2, 3), [1, 2, 3]),
        (0, [0, 1, 2]),
    ],
)
def test_seeds_reach_the_envs(open_any: Open, seed: Any, per_env: list[Any]) -> None:
    venv = open_any()
    venv.reset(seed=seed)
    assert [seeds[-1] for seeds in venv.get_attr("seeds")] == per_env


@pytest.mark.parametrize("seed", [[1, 2], [1, 2, 3, 4], []])
def test_a_list_of_seeds_must_have_one_for_each_env(open_any: Open, seed: list[int]) -> None:
    venv = open_any()
    with pytest.raises(ValueError):
        venv.reset(seed=seed)
    assert venv.reset(seed=[1, 2, 3])[0][:, 1].tolist() == [1, 1, 1]


def test_equal_seeds_give_equal_episodes_and_others_do_not(open_any: Open) -> None:
    venv = _cartpoles(open_any)
    first, second, other = (venv.reset(seed=seed)[0] for seed in (7, 7, 8))
    assert (first == second).all()
    assert (first[1:] == other[:-1]).all() and (first != other).any()


def test_without_a_seed_the_generators_go_on(open_any: Open) -> None:
    venv = _cartpoles(open_any)
    runs = []
    for _ in range(2):
        venv.reset(seed=7)
        runs.append(venv.reset()[0])
    assert (runs[0] == runs[1]).all()
    assert (runs[0] != venv.reset(seed=7)[0]).any()


def test_the_seeds_of_all_envs_can_be_read(open_any: Open) -> None:
    venv = _cartpoles(open_any)
    venv.reset(seed=40)
    assert venv.np_random_seed == (40, 41, 42)
    assert len(venv.np_random) == NUM_ENVS
    assert all(isinstance(rng, np.random.Generator) for rng in venv.np_random)


def test_options_reach_every_env(open_any: Open) -> None:
    venv = open_any()
    venv.reset(options={"level": 3})
    venv.reset()
    assert venv.get_attr("options") == ([{"level": 3}, None],) * 3


# ---------------------------------------------------------------- reset_mask


@pytest.mark.parametrize("mode", list(MODES))
def test_a_mask_resets_the_envs_that_it_selects(open_any: Open, mode: str) -> None:
    venv = open_any(autoreset_mode=MODES[mode])
    venv.reset()
    venv.step(cues(0, 0, 0))
    obs, infos = venv.reset(options={"reset_mask": np.array([True, False, True])})
    assert obs.tolist() == [[0, 2], [1, 1], [0, 2]]
    assert infos["resets"].tolist() == [2, 0, 2]
    assert infos["_resets"].tolist() == [True, False, True]
    assert venv.step(cues(0, 0, 0))[0].tolist() == [[1, 2], [2, 1], [1, 2]]


@pytest.mark.parametrize("mode", ["next_step", "disabled"])
def test_an_ended_episode_that_a_mask_resets_is_not_reset_again(open_any: Open, mode: str) -> None:
    venv = open_any(autoreset_mode=MODES[mode])
    venv.reset()
    ended = venv.step(cues(Cue.TERMINATE, 0, Cue.TRUNCATE))
    venv.reset(options={"reset_mask": ended[2] | ended[3]})
    obs, reward, *_ = venv.step(cues(0, 0, 0))
    assert obs.tolist() == [[1, 2], [2, 1], [1, 2]]
    assert reward.tolist() == [1, 2, 1]


def test_seeds_and_other_options_go_to_the_selected_envs_only(open_any: Open) -> None:
    venv = open_any()
    venv.reset(seed=1)
    venv.reset(seed=[7, 8, 9], options={"reset_mask": np.array([False, True, True]), "level": 1})
    assert venv.get_attr("seeds") == ([1], [2, 8], [3, 9])
    assert venv.get_attr("options") == ([None], [None, {"level": 1}], [None, {"level": 1}])


@pytest.mark.parametrize(
    ("mask", "error"),
    [
        ([True, False, True], TypeError),
        (np.ones(2, bool), ValueError),
        (np.ones((3, 1), bool), ValueError),
        (np.zeros(3, bool), ValueError),
        (np.ones(3, int), TypeError),
    ],
)
def test_a_mask_that_is_none_is_refused(open_any: Open, mask: Any, error: type) -> None:
    venv = open_any()
    venv.reset()
    with pytest.raises(error, match="reset_mask"):
        venv.reset(options={"reset_mask": mask})
    assert venv.step(cues(0, 0, 0))[0][:, 0].tolist() == [1, 1, 1]


def test_our_reset_leaves_the_callers_options_as_they_were(open_ours: Open) -> None:
    """Gymnasium's takes the mask out of the caller's dict, so that it works only once."""
    venv = open_ours()
    venv.reset()
    options = {"reset_mask": np.array([True, False, False])}
    assert venv.reset(options=options)[0][:, 1].tolist() == [2, 1, 1]
    assert venv.reset(options=options)[0][:, 1].tolist() == [3, 1, 1]


# ---------------------------------------------------------------- results


def test_a_step_returns_arrays_with_a_row_for_each_env(open_any: Open) -> None:
    venv = open_any()
    venv.reset()
    obs, reward, terminated, truncated, infos = venv.step(cues(Cue.TERMINATE, Cue.TRUNCATE, 0))
    assert obs.dtype == np.float32 and obs.tolist() == [[1, 1], [1, 1], [1, 1]]
    assert reward.dtype == np.float64 and reward.tolist() == [1, 1, 1]
    assert terminated.dtype == np.bool_ and terminated.tolist() == [True, False, False]
    assert truncated.dtype == np.bool_ and truncated.tolist() == [False, True, False]
    assert infos["count"].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "reward", [2, 2.5, True, np.float32(2.5), np.int8(-3), np.array(0.5, np.float32)]
)
def test_rewards_of_any_number_type_become_float64(open_any: Open, reward: Any) -> None:
    venv = open_any([partial(Typed, reward)] * 2)
    venv.reset()
    rewards = venv.step(np.array([0, 0]))[1]
    assert rewards.dtype == np.float64 and rewards.tolist() == [float(reward)] * 2


@pytest.mark.parametrize("flag", [bool, np.bool_, int])
def test_flags_of_any_truth_type_become_bool(open_any: Open, flag: Any) -> None:
    venv = open_any([partial(Typed, 0.0, flag)] * 2)
    venv.reset()
    terminated, truncated = venv.step(np.array([1, 0]))[2:4]
    assert terminated.dtype == truncated.dtype == np.bool_
    assert terminated.tolist() == [True, False] and truncated.tolist() == [False, False]


def test_scalar_observations_are_batched_in_the_spaces_dtype(open_any: Open) -> None:
    venv = open_any([partial(Typed, 0.0)] * 2)
    obs = venv.reset()[0]
    assert obs.dtype == venv.observation_space.dtype and obs.tolist() == [-2, -2]
    assert venv.step(np.array([0, 0]))[0].tolist() == [2, 2]


def test_actions_may_be_any_sequence_for_a_discrete_space(open_any: Open) -> None:
    venv = open_any()
    venv.reset()
    for actions in (np.array([0, 0, 1]), np.array([0, 0, 1], np.int32), np.array([0, 0, 1], "u1")):
        venv.reset()
        assert venv.step(actions)[2].tolist() == [False, False, True]


@pytest.mark.parametrize("actions", [np.zeros(2, int), np.zeros(4, int)])
def test_a_wrong_number_of_actions_is_refused(open_ours: Open, actions: Any) -> None:
    """Gymnasium's SyncVectorEnv refuses too, but has stepped some envs before it notices."""
    venv = open_ours()
    venv.reset()
    with pytest.raises(gym.error.CustomSpaceError, match="action"):
        venv.step(actions)
    assert venv.step(cues(0, 0, 0))[0][:, 0].tolist() == [1, 1, 1]


# ---------------------------------------------------------------- failures


@REPORTS
def test_an_exception_keeps_its_type_and_its_text(open_any: Open) -> None:
    venv = open_any()
    venv.reset()
    with pytest.raises(Lost, match="the way home"):
        venv.step(cues(0, Cue.RAISE, 0))


@REPORTS
def test_a_built_in_exception_in_reset_keeps_its_type(open_any: Open) -> None:
    venv = _cartpoles(open_any)
    with pytest.raises(ValueError, match="Lower bound"):
        venv.reset(options={"low": 1.0, "high": 0.0})


def test_our_vector_env_goes_on_after_an_exception(open_ours: Open) -> None:
    """Gymnasium's AsyncVectorEnv has lost the worker then, and fails in every later call."""
    venv = open_ours()
    venv.reset()
    with pytest.raises(Lost):
        venv.step(cues(0, Cue.RAISE, 0))
    assert venv.reset()[0][:, 0].tolist() == [0, 0, 0]
    assert venv.step(cues(0, 0, 0))[1].tolist() == [1, 1, 1]
