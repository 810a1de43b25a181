"""The public calls of a vector env, on every backend."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
import pytest
from backends import BACKENDS
from gymnasium.vector import AutoresetMode

import rookery
from rookery.testing import Fault, Faulty, OddError

NUM_ENVS = 3

Make = Callable[..., rookery.VectorEnv]


@pytest.fixture(params=list(BACKENDS))
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    made: list[rookery.VectorEnv] = []

    def make_one(env: Any = Faulty, num_envs: int | None = NUM_ENVS, **options: Any) -> Any:
        made.append(rookery.make_vec(env, num_envs, **BACKENDS[request.param].options, **options))
        return made[-1]

    yield make_one
    for venv in made:
        venv.close()


def _actions(*numbers: int) -> Any:
    return np.array(numbers)


def test_it_is_a_gymnasium_vector_env(make: Make) -> None:
    venv = make(env_kwargs={"render_mode": "rgb_array"})
    assert isinstance(venv, gym.vector.VectorEnv)
    assert venv.num_envs == NUM_ENVS
    assert venv.single_observation_space == Faulty.observation_space
    assert venv.observation_space.shape == (NUM_ENVS, 2)
    assert venv.metadata == {**Faulty.metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}
    assert venv.render_mode == "rgb_array"
    assert venv.spec is None


def test_the_spec_of_a_registered_env_is_known(make: Make) -> None:
    venv = make("CartPole-v1")
    assert venv.spec is not None and venv.spec.id == "CartPole-v1"
    assert "CartPole-v1" in repr(venv)


def test_calls_attributes_and_frames_come_from_every_env(make: Make) -> None:
    venv = make()
    venv.reset()
    venv.step(_actions(1, 1, 1))
    assert venv.call("double", 4) == (8, 8, 8)
    assert venv.get_attr("label") == ("plain",) * 3
    venv.set_attr("label", ["a", "b", "c"])
    assert venv.get_attr("label") == ("a", "b", "c")
    venv.set_attr("label", "same")
    assert venv.call("label") == ("same",) * 3
    assert [frame.shape for frame in venv.render()] == [(2, 2, 3)] * 3


def test_functions_are_applied_where_the_envs_live(make: Make) -> None:
    venv = make("CartPole-v1", 3)
    assert venv.apply(lambda env: env.unwrapped.spec.id) == ["CartPole-v1"] * 3
    venv.apply(lambda env: setattr(env.unwrapped, "gravity", 5.0), [2, 0])
    assert venv.apply(lambda env: env.unwrapped.gravity, [1, 2]) == [9.8, 5.0]
    with pytest.raises(rookery.UsageError, match="apply: env_ids must lie in 0 to 2"):
        venv.apply(repr, [3])


def test_each_env_may_have_options_of_its_own(make: Make) -> None:
    venv = make("CartPole-v1", 3)
    narrow = {"low": 0.0, "high": 0.0}
    obs, _ = venv.reset(seed=0, options=[narrow, None, narrow])
    assert [bool(row.any()) for row in obs] == [False, True, False]
    with pytest.raises(rookery.UsageError, match="2 entries for 3 envs"):
        venv.reset(options=[None, None])


def test_infos_can_be_had_as_one_dict_for_each_env(make: Make) -> None:
    venv = make(env_kwargs={"render_mode": "rgb_array"})
    plain = make(env_kwargs={"render_mode": "rgb_array"})
    venv.infos_per_env = True
    _, vector_form = plain.reset(seed=0)
    _, infos = venv.reset(seed=0)
    assert len(infos) == NUM_ENVS and all(type(info) is dict for info in infos)
    for key in (key for key in vector_form if not key.startswith("_")):
        assert [info[key] for info in infos] == list(vector_form[key])


def test_wrong_numbers_of_values_are_refused(make: Make) -> None:
    venv = make()
    with pytest.raises(rookery.ConfigError, match="2 values for 3 envs"):
        venv.set_attr("label", ["a", "b"])
    with pytest.raises(ValueError):
        venv.reset(seed=[1, 2])


@pytest.mark.parametrize(
    "actions", [0, [0, 0], np.zeros((3, 1), int), np.array(["a", "b", "c"]), np.zeros(3, complex)]
)
def test_actions_of_a_wrong_shape_or_kind_are_refused(make: Make, actions: Any) -> None:
    venv = make()
    venv.reset()
    with pytest.raises(rookery.SpaceError, match="action has"):
        venv.step(actions)
    assert venv.step(_actions(0, 0, 0))[0][:, 0].tolist() == [1, 1, 1]


def test_actions_reach_the_env_in_the_type_they_were_given(make: Make) -> None:
    venv = make("Pendulum-v1")
    venv.action_space.seed(1)
    action = venv.action_space.sample().astype(np.float64) / 3
    reference = gym.vector.SyncVectorEnv([lambda: gym.make("Pendulum-v1")] * 3)
    venv.reset(seed=5)
    reference.reset(seed=5)
    assert (venv.step(action)[1] == reference.step(action)[1]).all()
    reference.close()


def test_a_mask_resets_some_envs_only(make: Make) -> None:
    for copy in (True, False):
        venv = make(copy=copy)
        venv.reset(seed=1)
        venv.step(_actions(1, 1, 1))
        obs, _ = venv.reset(options={"reset_mask": np.array([False, True, False])})
        assert obs[:, 0].tolist() == [1, 0, 1]
        assert venv.step(_actions(1, 1, 1))[0][:, 0].tolist() == [2, 1, 2]


@pytest.mark.parametrize(
    "mask", [[True, False, True], np.ones(2, bool), np.zeros(3, bool), np.ones(3, int)]
)
def test_a_mask_that_cannot_be_meant_is_refused(make: Make, mask: Any) -> None:
    venv = make()
    with pytest.raises((TypeError, ValueError), match="reset_mask"):
        venv.reset(options={"reset_mask": mask})


def test_views_stay_valid_until_the_step_after_the_next(make: Make) -> None:
    venv = make(copy=False)
    venv.reset()
    first = venv.step(_actions(1, 1, 1))[0]
    second = venv.step(_actions(1, 1, 1))[0]
    assert (first[:, 0].tolist(), second[:, 0].tolist()) == ([1, 1, 1], [2, 2, 2])
    third = venv.step(_actions(1, 1, 1))[0]
    assert np.shares_memory(first, third)


def test_copies_never_change(make: Make) -> None:
    venv = make()
    venv.reset()
    results = [venv.step(_actions(1, 1, 1)) for _ in range(4)]
    assert [int(result[0][0, 0]) for result in results] == [1, 2, 3, 4]


def test_calls_out_of_order_are_errors_that_gymnasiums_handlers_catch(make: Make) -> None:
    venv = make()
    venv.reset()
    with pytest.raises(gym.error.NoAsyncCallError):
        venv.step_wait()
    venv.step_async(_actions(1, 1, 1))
    for call in (venv.reset, partial(venv.call, "label"), partial(venv.step, _actions(0, 0, 0))):
        with pytest.raises(gym.error.AlreadyPendingCallError, match=r"step_wait\(\) ends it"):
            call()
    assert venv.step_wait()[0][:, 0].tolist() == [1, 1, 1]
    venv.close()
    venv.close()
    for call in (venv.reset, partial(venv.call, "label"), partial(venv.step, _actions(0, 0, 0))):
        with pytest.raises(gym.error.ClosedEnvironmentError):
            call()


def test_an_exception_in_step_names_the_env_and_is_still_of_its_type(make: Make) -> None:
    venv = make()
    venv.reset(seed=40)
    venv.step(_actions(0, 0, 0))
    for wanted in (KeyError, rookery.EnvFailed):
        with pytest.raises(wanted) as caught:
            venv.step(_actions(0, -1, 0))
        error = caught.value
        assert isinstance(error, rookery.EnvFailed)
        assert error.env_ids == (1,) and error.command == "step" and error.seed == 41
        assert error.last_action == -1
        assert "Env 1 (Faulty) raised KeyError in step (seed 41" in str(error)
        assert isinstance(error.__cause__, KeyError)
        venv.reset(seed=40)
        venv.step(_actions(0, 0, 0))


def test_an_exception_that_needs_other_arguments_arrives_too(make: Make) -> None:
    venv = make()
    venv.reset()
    with pytest.raises(rookery.EnvFailed, match="OddError") as caught:
        venv.step(_actions(-5, 0, 0))
    assert isinstance(caught.value.__cause__, OddError)
    assert caught.value.__cause__.code == 7


def test_an_env_that_exits_is_an_error_not_an_exit(make: Make) -> None:
    venv = make()
    venv.reset()
    with pytest.raises(rookery.EnvFailed, match="SystemExit"):
        venv.step(_actions(0, 0, -7))


def test_a_wrong_observation_shape_is_the_envs_failure(make: Make) -> None:
    venv = make()
    venv.reset()
    with pytest.raises(rookery.EnvFailed, match=r"observation has shape \(3,\).*\(2,\)") as caught:
        venv.step(_actions(0, 0, -8))
    assert isinstance(caught.value, rookery.SpaceError)


def test_nan_in_observations_is_warned_of_once(make: Make) -> None:
    venv = make()
    venv.reset()
    with pytest.warns(UserWarning, match=r"envs \[1\] contain NaN"):
        obs = venv.step(_actions(0, Fault.NOT_A_NUMBER, 0))[0]
    assert np.isnan(obs[1]).all()
    for _ in range(600):
        venv.step(_actions(0, Fault.NOT_A_NUMBER, 0))


def test_an_observation_of_a_wrong_kind_is_the_envs_failure(make: Make) -> None:
    venv = make()
    venv.reset()
    with pytest.raises(rookery.EnvFailed, match="observation has dtype <U1"):
        venv.step(_actions(0, Fault.WRONG_DTYPE, 0))


def test_an_env_that_cannot_be_built_leaves_nothing(make: Make) -> None:
    with pytest.raises(ValueError, match=r"Env 0 .* raised ValueError in make.*no make today"):
        make(env_kwargs={"fail": "make"})
    with pytest.raises(rookery.EnvFailed, match=r"Env 2 .* in make"):
        make([Faulty, Faulty, partial(Faulty, fail="make")])


def test_exceptions_in_reset_and_close_are_raised_where_they_belong(make: Make) -> None:
    with pytest.raises(ValueError, match=r"in reset .*no reset today"):
        make(env_kwargs={"fail": "reset"}).reset()
    venv = make(env_kwargs={"fail": "close"})
    with pytest.raises(ValueError, match=r"in close .*no close today"):
        venv.close()
    assert venv.closed
    venv.close()


def test_the_disabled_mode_wants_ended_envs_reset(make: Make) -> None:
    venv = make("CartPole-v1", autoreset_mode="disabled")
    venv.reset(seed=0)
    while not venv.step(_actions(1, 1, 1))[2].any():
        pass
    with pytest.raises(rookery.UsageError, match="reset_mask"):
        venv.step(_actions(1, 1, 1))


def test_envs_with_different_spaces_need_a_mode_that_allows_it(make: Make) -> None:
    fns = [lambda high=high: _Bounded(high) for high in (1.0, 2.0, 3.0)]
    with pytest.raises(rookery.SpaceError, match="observation_mode='different'"):
        make(fns)
    venv = make(fns, observation_mode="different")
    assert venv.observation_space.high[:, 0].tolist() == [1, 2, 3]
    with pytest.raises(rookery.ConfigError, match="observation_mode"):
        make(fns, observation_mode="any")


class _Bounded(gym.Env[Any, Any]):
    action_space = gym.spaces.Discrete(2)

    def __init__(self, high: float) -> None:
        self.observation_space = gym.spaces.Box(0, high, (1,), np.float32)


@pytest.mark.parametrize("backend", list(BACKENDS))
def test_a_vector_env_that_is_dropped_cleans_up_after_itself(backend: str, tmp_path: Path) -> None:
    venv = rookery.make_vec(partial(Noting, tmp_path), 2, **BACKENDS[backend].options)
    venv.reset()
    pids = venv.pids
    assert bool(pids) == BACKENDS[backend].has_workers
    del venv
    gc.collect()
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == 2


class Noting(Faulty):
    """Adds a letter to its process's file when it is closed."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._file = folder / f"{os.getpid()}-{id(self)}"

    def close(self) -> None:
        with self._file.open("a") as file:
            file.write("x")


def test_a_caller_that_leaves_in_the_middle_cleans_up(make: Make) -> None:
    with pytest.raises(ZeroDivisionError), make() as venv:
        venv.reset()
        venv.step_async(_actions(1, 1, 1))
        raise ZeroDivisionError
    assert venv.closed


def test_statistics_count_steps_and_busy_time(make: Make) -> None:
    venv = make()
    venv.reset()
    for _ in range(5):
        venv.step(_actions(1, 1, 1))
    statistics = venv.statistics()
    assert statistics.vector_steps == 5 and statistics.env_steps == 15
    assert [i for share in statistics.workers for i in share.env_ids] == [0, 1, 2]
    assert all(share.busy_s > 0 for share in statistics.workers)


def test_unknown_settings_are_refused_before_anything_starts() -> None:
    for options in (
        {"backend": "threads"},
        {"autoreset_mode": "sometimes"},
        {"start_method": "magic"},
        {"backend": "serial", "isolate": True},
        {"backend": "process", "num_workers": 0},
        {"isolate": True, "num_workers": 1},
        {"isolate": True, "caller_steps": True},
    ):
        with pytest.raises(ValueError):
            rookery.make_vec(Faulty, 2, **options)
