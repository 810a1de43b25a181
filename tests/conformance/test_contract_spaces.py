"""Spaces, metadata and arguments: what a vector env says of itself, Gymnasium's and ours alike."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from conformance_envs import (
    IS_GYMNASIUM_1_3,
    DictEnv,
    ImageEnv,
    MultiDiscreteEnv,
    TupleActionEnv,
)
from contract_backends import MODES, NUM_ENVS, Open, scripted
from contract_envs import Scripted
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

import rookery

BOUNDED = [partial(Scripted, high=high) for high in (1.0, 2.0, 3.0)]
# Gymnasium says only that something went wrong at run time; ours says that it is about spaces.
REFUSALS = (RuntimeError, gym.error.CustomSpaceError)


def test_it_is_a_vector_env_with_num_envs(open_any: Open) -> None:
    venv = open_any()
    assert isinstance(venv, gym.vector.VectorEnv)
    assert venv.num_envs == NUM_ENVS
    assert venv.unwrapped is venv
    assert venv.closed is False


@pytest.mark.parametrize("env", [DictEnv, ImageEnv, MultiDiscreteEnv, TupleActionEnv, Scripted])
def test_the_batch_spaces_batch_the_single_ones(open_any: Open, env: Any) -> None:
    venv, single = open_any([env] * 2), env()
    assert venv.single_observation_space == single.observation_space
    assert venv.single_action_space == single.action_space
    assert venv.observation_space == batch_space(single.observation_space, 2)
    assert venv.action_space == batch_space(single.action_space, 2)


def test_everything_returned_lies_in_the_batch_space(open_any: Open) -> None:
    venv = open_any([DictEnv] * NUM_ENVS)
    assert venv.reset(seed=3)[0] in venv.observation_space
    assert venv.step(venv.action_space.sample())[0] in venv.observation_space


@pytest.mark.parametrize("mode", list(MODES))
def test_the_metadata_is_a_copy_of_the_first_envs_with_the_mode_added(
    open_any: Open, mode: str
) -> None:
    before = dict(Scripted.metadata)  # into which Gymnasium 1.3 may have written itself
    assert IS_GYMNASIUM_1_3 or "autoreset_mode" not in before
    venv = open_any(autoreset_mode=MODES[mode])
    assert venv.metadata == {**before, "autoreset_mode": MODES[mode]}
    assert venv.metadata is not Scripted.metadata and Scripted.metadata == before


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_mode_can_be_given_by_its_value(open_any: Open, mode: AutoresetMode) -> None:
    assert open_any(autoreset_mode=mode.value).metadata["autoreset_mode"] is mode


def test_an_unknown_mode_is_a_value_error(open_any: Open) -> None:
    with pytest.raises(ValueError):
        open_any(autoreset_mode="Sometimes")


def test_the_render_mode_is_that_of_the_envs(open_any: Open) -> None:
    assert open_any().render_mode is None
    assert open_any(scripted(render_mode="rgb_array")).render_mode == "rgb_array"


def test_env_functions_have_no_spec_that_could_make_the_vector_env_again(open_any: Open) -> None:
    assert open_any().spec is None


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_registered_id_is_the_spec_and_stands_in_the_repr(
    gymnasiums_arena: None, mode: Any
) -> None:
    backend = {"sync": "serial", "async": "process"}[mode]
    theirs = gym.make_vec("CartPole-v1", 2, vectorization_mode=mode)
    ours = rookery.make_vec("CartPole-v1", 2, backend=backend)
    for venv in (theirs, ours):
        assert venv.spec.id == "CartPole-v1"
        assert repr(venv) == f"{type(venv).__name__}(CartPole-v1, num_envs=2)"
        venv.close()


def test_the_repr_names_class_and_number_of_envs(open_any: Open) -> None:
    venv = open_any()
    assert repr(venv) == f"{type(venv).__name__}(num_envs=3)"


# ---------------------------------------------------------------- observation_mode


def test_envs_with_different_bounds_are_refused_by_default(open_any: Open) -> None:
    with pytest.raises(REFUSALS, match="different"):
        open_any(BOUNDED)


def test_the_different_mode_batches_different_bounds(open_any: Open) -> None:
    venv = open_any(BOUNDED, observation_mode="different")
    assert venv.observation_space.high.tolist() == [[1, 1], [2, 2], [3, 3]]
    assert venv.single_observation_space == Scripted(high=1.0).observation_space
    assert venv.reset(seed=0)[0].tolist() == [[0, 1]] * 3


def test_a_pair_of_spaces_is_taken_as_batched_and_single(open_any: Open) -> None:
    single = gym.spaces.Box(0, 9, (2,), np.float32)
    batch = gym.spaces.Box(0, 9, (3, 2), np.float32)
    venv = open_any(BOUNDED, observation_mode=(batch, single))
    assert venv.observation_space is batch
    assert venv.single_observation_space is single


def test_a_pair_of_spaces_must_have_the_shape_and_dtype_of_the_envs(open_any: Open) -> None:
    pair = (gym.spaces.Box(0, 9, (2, 2), np.float32), gym.spaces.Box(0, 9, (2,), np.float32))
    with pytest.raises(REFUSALS):
        open_any([Scripted, ImageEnv], observation_mode=pair)


def test_the_different_mode_wants_one_dtype(open_any: Open) -> None:
    with pytest.raises((ValueError, *REFUSALS), match="dtype"):
        open_any([Scripted, ImageEnv], observation_mode="different")


def test_different_action_spaces_are_refused(open_any: Open) -> None:
    with pytest.raises(REFUSALS, match="action space"):
        open_any([Scripted, partial(Scripted, num_actions=7)])


def test_an_unknown_observation_mode_is_a_value_error(open_any: Open) -> None:
    with pytest.raises(ValueError, match="observation_mode"):
        open_any(observation_mode="any")


# ---------------------------------------------------------------- copies


def test_a_copy_never_changes(open_any: Open) -> None:
    venv = open_any(copy=True)
    results = [venv.reset()[0], *(venv.step(np.zeros(3, int))[0] for _ in range(3))]
    assert [result[0, 0] for result in results] == [0, 1, 2, 3]


def test_without_copies_an_observation_is_overwritten_in_the_end(open_any: Open) -> None:
    """Gymnasium overwrites at the next step, rookery at the step after the next."""
    venv = open_any(copy=False)
    venv.reset()
    first = venv.step(np.zeros(3, int))[0]
    venv.step(np.zeros(3, int))
    third = venv.step(np.zeros(3, int))[0]
    assert np.shares_memory(first, third)
    assert first[0, 0] == 3


def test_nested_observations_are_copied_to_the_last_leaf(open_any: Open) -> None:
    venv = open_any([DictEnv] * 2)
    first = venv.reset(seed=1)[0]
    level = first["inner"]["pair"][0].copy()
    venv.step(venv.action_space.sample())
    assert (first["inner"]["pair"][0] == level).all()


def test_an_env_may_use_one_buffer_for_all_its_observations(open_any: Open) -> None:
    venv = open_any([ImageEnv] * 2)
    first = venv.reset(seed=1)[0]
    kept = first.copy()
    second = venv.step(np.array([5, 5]))[0]
    assert (first == kept).all() and (first != second).any()
