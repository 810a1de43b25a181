"""RookeryVecEnv does what Stable-Baselines3's own vector envs do."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from backends import BACKENDS
from sb3_envs import (
    Compiled,
    DictWalk,
    Holder,
    ImageWalk,
    NestedWalk,
    OldReset,
    ThriftyWalk,
    TupleWalk,
    Walk,
)
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv

import rookery
from rookery.integrations.sb3 import RookeryVecEnv
from rookery.testing import Fault, Faulty

NUM_ENVS = 3
STEPS = 12

Make = Callable[..., RookeryVecEnv]


@pytest.fixture(params=list(BACKENDS))
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    made: list[RookeryVecEnv] = []

    def make_one(*env_fns: Callable[[], Any], **options: Any) -> RookeryVecEnv:
        backend = BACKENDS[request.param].options
        made.append(RookeryVecEnv(env_fns or [Walk] * NUM_ENVS, **backend, **options))
        return made[-1]

    yield make_one
    for vec_env in made:
        vec_env.close()


def _cart_pole() -> Any:
    return Monitor(gym.make("CartPole-v1", max_episode_steps=5))


ENV_FNS: dict[str, list[Callable[[], Any]]] = {
    "cart-pole": [_cart_pole] * 3,
    "truncated": [partial(Walk, length) for length in (3, 5)],
    "terminated": [partial(Walk, length, "terminated") for length in (3, 3)],
    "both-flags": [partial(Walk, length, "both") for length in (2, 3)],
    "dict": [partial(DictWalk, length) for length in (2, 4)],
}


def _trajectory(vec_env: VecEnv) -> list[tuple[Any, ...]]:
    """All that a vector env returns: for each step observations, rewards, dones, infos, resets."""
    vec_env.seed(7)
    vec_env.action_space.seed(0)
    seen: list[tuple[Any, ...]] = [(vec_env.reset(), list(vec_env.reset_infos))]
    for _ in range(STEPS):
        actions = np.array([vec_env.action_space.sample() for _ in range(vec_env.num_envs)])
        obs, rewards, dones, infos = vec_env.step(actions)
        seen.append((obs, rewards, dones, _timeless(infos), list(vec_env.reset_infos)))
    vec_env.close()
    return seen


def _timeless(infos: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out what a Monitor says of wall-clock time."""
    return [
        {k: {**v, "t": 0.0} if k == "episode" else v for k, v in info.items()} for info in infos
    ]


def _dtypes(obs: Any) -> list[Any]:
    parts = obs.values() if isinstance(obs, dict) else [obs]
    return [(part.dtype, part.shape) for part in parts]


@pytest.mark.parametrize("name", list(ENV_FNS))
def test_trajectories_equal_those_of_dummy_vec_env(make: Make, name: str) -> None:
    ours, theirs = _trajectory(make(*ENV_FNS[name])), _trajectory(DummyVecEnv(ENV_FNS[name]))
    np.testing.assert_equal(ours, theirs)
    for part in range(3):
        assert _dtypes(ours[-1][part]) == _dtypes(theirs[-1][part])


@pytest.mark.parametrize("name", ["cart-pole", "truncated", "dict"])
def test_trajectories_equal_those_of_subproc_vec_env(name: str) -> None:
    # Forked, the workers of both have imported torch already.
    process = {**BACKENDS["process"].options, "start_method": "fork"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", (RuntimeWarning, DeprecationWarning))  # torch has threads
        ours = _trajectory(RookeryVecEnv(ENV_FNS[name], **process))
        theirs = _trajectory(SubprocVecEnv(ENV_FNS[name], start_method="fork"))
    for i, (obs, rewards, *rest) in enumerate(theirs[1:], 1):
        theirs[i] = (obs, rewards.astype(np.float32), *rest)
    np.testing.assert_equal(ours, theirs)
    assert _dtypes(ours[-1][0]) == _dtypes(theirs[-1][0])


def test_tuples_are_stacked_one_by_one(make: Make) -> None:
    vec_env = make(TupleWalk, TupleWalk)
    walks, counts = vec_env.reset()
    assert walks.shape == (2, 2) and counts.tolist() == [0, 0]
    actions = [vec_env.action_space.sample() for _ in range(2)]
    (walks, counts), *_ = vec_env.step(actions)
    assert counts.tolist() == [1, 1]


def test_nested_observations_are_refused_as_sb3_does(make: Make) -> None:
    with pytest.raises(NotImplementedError, match=r"[Nn]ested"):
        make(NestedWalk, NestedWalk)


def test_every_info_says_whether_a_limit_cut_the_episode(make: Make) -> None:
    vec_env = make(Walk, partial(Walk, 3, "both"), partial(Walk, 3, "terminated"))
    vec_env.reset()
    flags = [[info["TimeLimit.truncated"] for info in vec_env.step([1, 1, 1])[3]] for _ in range(4)]
    assert flags == [[False] * 3, [False] * 3, [True, False, False], [False] * 3]


def test_returned_arrays_do_not_change_later(make: Make) -> None:
    vec_env = make(ThriftyWalk, ThriftyWalk)
    kept = [vec_env.reset()]
    infos = []
    for _ in range(5):
        obs, *_, info = vec_env.step([1, 1])
        kept.append(obs)
        infos.append(info)
    assert [obs[0, 1] for obs in kept] == [0, 1, 2, 0, 1, 2]
    assert len({float(info[0]["position"]) for info in infos}) == 5
    assert "terminal_observation" not in infos[3][0]


def test_seeds_and_options_are_used_once(make: Make) -> None:
    vec_env = make()
    assert vec_env.seed(5) == [5, 6, 7]
    vec_env.set_options([{"a": 1}, {}, {"b": 2}])
    vec_env.reset()
    vec_env.set_options({"c": 3})
    vec_env.reset()
    vec_env.reset()
    assert vec_env.get_attr("seeds_seen") == [[seed, None, None] for seed in (5, 6, 7)]
    assert vec_env.get_attr("options_seen") == [
        [{"a": 1}, {"c": 3}, None],
        [None, {"c": 3}, None],
        [{"b": 2}, {"c": 3}, None],
    ]


def test_attributes_and_methods_of_chosen_envs(make: Make) -> None:
    vec_env = make()
    vec_env.set_attr("length", 10, indices=[0, -1])
    vec_env.set_attr("length", 7, indices=1)
    assert vec_env.get_attr("length") == [10, 7, 10]
    assert vec_env.get_attr("length", indices=iter([1, 0])) == [7, 10]
    assert vec_env.env_method("scaled", 2, indices=[2, 1], offset=1) == [21, 15]
    with pytest.raises(IndexError):
        vec_env.get_attr("length", indices=3)


def test_the_outermost_wrapper_is_asked_and_set(make: Make) -> None:
    vec_env = make(lambda: Holder(Walk()), lambda: Walk())
    vec_env.set_attr("length", 99)
    assert vec_env.get_attr("length") == [99, 99]
    assert vec_env.env_method("scaled", 1) == [3, 99]  # a wrapper's attribute is not its env's
    vec_env.env_method("set_wrapper_attr", "end", "terminated")
    assert vec_env.get_attr("end") == ["terminated"] * 2
    assert vec_env.env_is_wrapped(Holder) == [True, False]
    assert vec_env.env_is_wrapped(Holder, indices=1) == [False]


def test_has_attr_accepts_values_that_cannot_be_pickled(make: Make) -> None:
    def make_env() -> Any:
        env = Walk()
        env.generator = (i for i in range(3))  # type: ignore[attr-defined]
        return env

    vec_env = make(make_env, make_env)
    assert vec_env.has_attr("generator") and not vec_env.has_attr("compass")
    with pytest.raises(AttributeError, match="compass"):
        vec_env.get_attr("compass")


def test_frames_come_from_every_env(make: Make) -> None:
    vec_env = make()
    vec_env.reset()
    vec_env.step([1, 1, 1])
    assert [image.max() for image in vec_env.get_images()] == [1, 1, 1]
    assert vec_env.render_mode == "rgb_array"
    frame = vec_env.render()
    assert frame is not None and frame.shape == (16, 16, 3)


def test_envs_that_do_not_render_say_so() -> None:
    vec_env = make_vec_env(
        "CartPole-v1", 2, vec_env_cls=RookeryVecEnv, env_kwargs={"render_mode": None}
    )
    with pytest.warns(UserWarning, match="render_mode='rgb_array'"):
        assert vec_env.get_images() == [None, None]
    vec_env.close()


def test_a_reset_without_options_is_enough(make: Make) -> None:
    vec_env = make(OldReset, lambda: Monitor(OldReset()))
    vec_env.seed(3)
    vec_env.reset()
    for _ in range(4):
        vec_env.step([1, 1])
    assert vec_env.get_attr("seeds_seen") == [[3, None], [4, None]]


def test_a_reset_whose_signature_is_unknown_gets_its_options(make: Make) -> None:
    vec_env = make(Compiled, Compiled)
    vec_env.set_options({"a": 1})
    vec_env.reset()
    assert vec_env.get_attr("options_seen") == [[{"a": 1}]] * 2


@pytest.mark.slow
def test_objects_that_are_not_envs_are_refused_as_in_sb3(make: Make) -> None:
    with pytest.raises(ValueError, match="not a Gymnasium environment"):
        make(object, object)


def test_one_env_returned_twice_is_refused(make: Make) -> None:
    env = Walk()
    with pytest.raises(rookery.ConfigError, match=r"the same object|return the same env"):
        make(*[lambda: env] * 5)


def test_close_may_be_called_twice_but_a_closed_env_refuses_steps(make: Make) -> None:
    vec_env = make()
    vec_env.reset()
    vec_env.step_async(np.array([1, 1, 1]))
    vec_env.close()
    vec_env.close()
    with pytest.raises(rookery.ClosedError):
        vec_env.reset()


def test_a_reset_drops_the_pending_step(make: Make) -> None:
    vec_env = make()
    vec_env.reset()
    vec_env.step_async(np.array([1, 1, 1]))
    assert vec_env.reset()[:, 1].tolist() == [0, 0, 0]
    with pytest.raises(rookery.NoPendingCallError):
        vec_env.step_wait()


def test_an_env_that_raises_is_named(make: Make) -> None:
    vec_env = make()
    vec_env.reset()
    vec_env.set_attr("unlucky", True, indices=1)
    with pytest.raises(rookery.EnvFailed, match=r"Env 1 .*no luck") as caught:
        vec_env.step([1, 1, 1])
    assert isinstance(caught.value, KeyError) and caught.value.env_ids == (1,)


def test_an_env_whose_process_dies_is_named() -> None:
    vec_env = RookeryVecEnv([Faulty] * 3, backend="process", isolate=True)
    vec_env.reset()
    with pytest.raises(rookery.WorkerDied, match="SIGKILL") as caught:
        vec_env.step(np.array([0, Fault.KILL, 0]))
    assert caught.value.env_ids == (1,)
    vec_env.close()


def test_a_restarted_env_truncates_its_episode() -> None:
    policy = rookery.FaultPolicy(on_fault="restart")
    vec_env = RookeryVecEnv([Faulty] * 2, isolate=True, faults=policy)
    vec_env.reset()
    vec_env.step(np.array([0, 0]))
    obs, rewards, dones, infos = vec_env.step(np.array([Fault.RAISE, 0]))
    assert dones.tolist() == [True, False] and rewards.tolist() == [0, 1]
    assert infos[0]["TimeLimit.truncated"] and infos[0]["fault"]["env_ids"] == (0,)
    assert infos[0]["terminal_observation"][0] == 1 and obs[:, 0].tolist() == [0, 2]
    vec_env.close()


def test_the_choice_of_auto_is_available() -> None:
    vec_env = make_vec_env("CartPole-v1", n_envs=2, vec_env_cls=RookeryVecEnv)
    assert vec_env.vector_env.choice.measurement is not None
    vec_env.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start_method": "illegal_method"}, "start_method must be one of"),
        ({"autoreset_mode": "next_step"}, "leave it out"),
        ({"backend": "threads"}, "backend must be one of"),
    ],
)
def test_invalid_settings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(rookery.ConfigError, match=message):
        RookeryVecEnv([Walk], **options)


def test_workers_import_neither_sb3_nor_torch() -> None:
    def loaded(_env: Any) -> list[str]:
        return [name for name in ("torch", "stable_baselines3") if name in sys.modules]

    vec_env = RookeryVecEnv([lambda: gym.make("CartPole-v1")] * 2, backend="process")
    vec_env.reset()
    assert vec_env.has_attr("gravity") and vec_env.env_is_wrapped(Holder) == [False, False]
    assert vec_env.vector_env.apply(loaded) == [[], []]
    vec_env.close()


def test_without_sb3_the_pip_command_is_named() -> None:
    code = (
        "import sys; sys.modules['stable_baselines3'] = None\n"
        "import rookery\n"
        "try: import rookery.integrations.sb3\n"
        "except rookery.MissingExtra as error: print(error)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert "pip install 'rookery[sb3]'" in result.stdout, result.stderr


def test_images_are_recognized(make: Make) -> None:
    vec_env = make(ImageWalk, ImageWalk)
    assert vec_env.observation_space == ImageWalk.observation_space
    assert vec_env.reset().dtype == np.uint8
