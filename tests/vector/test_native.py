"""Native batches: a vector env that steps all its envs by itself, in one process or in several."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from native_envs import Arrayed, Counting, Lying, Maskless, SameStep, Stacked
from stuck import Stuck

import rookery
from rookery.testing.faulty import Fault

MODES = ["next_step", "same_step", "disabled"]
WORKERS = [None, 2]
NUM_ENVS = 5


class Telling(gym.Env[Any, Any]):
    """Random episodes; Dict observations, infos of every kind."""

    observation_space = gym.spaces.Dict(
        {"a": gym.spaces.Box(-1, 1, (3,), np.float32), "b": gym.spaces.Discrete(99)}
    )
    action_space = gym.spaces.MultiDiscrete([3, 4])
    gravity = 1.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._left = int(self.np_random.integers(1, 6))
        return self._obs(), {"left": self._left, "options": options}

    def step(self, action: Any) -> Any:
        self._left -= 1
        info = {"left": self._left, "mean": self.np_random.random(), "name": f"n{self._left}"}
        if self._left == 2:
            info["rare"] = np.float32(2)
        ended = self._left <= 0
        return self._obs(), float(action[0]), ended and action[1] > 1, ended, info

    def _obs(self) -> Any:
        a = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        return {"a": a, "b": self.np_random.integers(99)}


class Incurious(Telling):
    """Says nothing of its options: those of a reset by mask are an empty dict."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)


def sync(num_envs: int, env: Callable[[], Any], mode: str) -> SyncVectorEnv[Any, Any]:
    return SyncVectorEnv([env] * num_envs, autoreset_mode=AutoresetMode[mode.upper()])


def trajectory(venv: Any, steps: int) -> list[Any]:
    venv.action_space.seed(3)
    told = [copy.deepcopy(venv.reset(seed=5, options={"x": 1}))]
    for _ in range(steps):
        told.append(copy.deepcopy(venv.step(venv.action_space.sample())))
        ended = told[-1][2] | told[-1][3]
        if venv.metadata["autoreset_mode"] is AutoresetMode.DISABLED and ended.any():
            told.append(copy.deepcopy(venv.reset(options={"reset_mask": ended})))
    return told


def _holds_objects(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "O"


def assert_same(actual: Any, expected: Any) -> None:
    assert type(actual) is type(expected)
    if isinstance(expected, dict):
        assert list(actual) == list(expected)
        actual, expected = list(actual.values()), list(expected.values())
    if isinstance(expected, (list, tuple)) or _holds_objects(expected):
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected, strict=True):
            assert_same(a, e)
    elif isinstance(expected, np.ndarray):
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual, expected)
    else:
        assert actual == expected


# ---------------------------------------------------------------- equality


@pytest.mark.parametrize("copies", [True, False])
@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize("mode", MODES)
def test_a_native_env_returns_what_it_returns_alone(
    mode: str, num_workers: int | None, copies: bool
) -> None:
    batch_fn = partial(sync, env=Telling, mode=mode)
    with closing(sync(NUM_ENVS, Telling, mode)) as alone:
        expected = trajectory(alone, 60)
    with rookery.make_vec(
        batch_fn, NUM_ENVS, "native", num_workers, autoreset_mode=mode, copy=copies
    ) as venv:
        assert_same(trajectory(venv, 60), expected)
        assert venv.backend == "native" and venv.num_workers == (num_workers or 0)
        assert venv.metadata["autoreset_mode"] is AutoresetMode[mode.upper()]


@pytest.mark.parametrize("num_workers", WORKERS)
def test_who_resets_no_env_is_made_to_reset_within_the_step(num_workers: int | None) -> None:
    with closing(sync(NUM_ENVS, Incurious, "same_step")) as alone:
        expected = trajectory(alone, 60)
    batch_fn = partial(sync, env=Incurious, mode="disabled")
    with rookery.make_vec(
        batch_fn, NUM_ENVS, "native", num_workers, autoreset_mode="same_step"
    ) as venv:
        assert_same(trajectory(venv, 60), expected)


@pytest.mark.parametrize("num_workers", WORKERS)
def test_the_vector_entry_point_is_used(num_workers: int | None) -> None:
    with rookery.make_vec("CartPole-v1", 4, "native", num_workers) as venv:
        infos = [venv.reset(seed=3)]
        venv.action_space.seed(0)
        actions = [venv.action_space.sample() for _ in range(30)]
        results = [venv.step(action) for action in actions]
        assert venv.spec is not None and venv.spec.id == "CartPole-v1"
    size = 4 // (num_workers or 1)
    for first in range(0, 4, size):
        alone = CartPoleVectorEnv(size)
        np.testing.assert_array_equal(alone.reset(seed=3 + first)[0], infos[0][0][first:][:size])
        for action, result in zip(actions, results, strict=True):
            expected = alone.step(action[first : first + size])
            for part, own in zip(expected[:4], result[:4], strict=True):
                np.testing.assert_array_equal(own[first : first + size], part)


@pytest.fixture
def pong() -> str:
    ale_py = pytest.importorskip("ale_py", reason="ALE has a vector env of its own")
    gym.register_envs(ale_py)
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    return "ALE/Pong-v5"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_ale_is_the_same_in_one_process_and_in_two(pong: str, mode: str) -> None:
    options: dict[str, Any] = {
        "env_kwargs": {"max_num_frames_per_episode": 60, "num_threads": 1},
        "autoreset_mode": mode,
    }
    told = []
    for workers in WORKERS:
        with rookery.make_vec(pong, 4, "native", workers, **options) as venv:
            results = [venv.reset(seed=[7, 3, 9, 100])]
            venv.action_space.seed(1)
            results += [venv.step(venv.action_space.sample()) for _ in range(40)]
            mask = np.array([True, False, True, False])
            results += [venv.reset(seed=[1, None, 2, None], options={"reset_mask": mask})]
            told.append(results)
            assert venv.single_observation_space.shape == (4, 84, 84)
    for result in told[1]:
        result[-1].pop("env_id")  # of the batch
    for result in told[0]:
        result[-1].pop("env_id")
    assert_same(told[1], told[0])
    endings = [result for result in told[0][1:-1] if (result[2] | result[3]).any()]
    assert endings
    if mode == "same_step":
        info, ended = endings[0][-1], endings[0][2] | endings[0][3]
        np.testing.assert_array_equal(info["_final_obs"], ended)
        assert all(
            obs.shape == (4, 84, 84) if over else obs is None
            for obs, over in zip(info["final_obs"], ended, strict=True)
        )


# ---------------------------------------------------------------- batches


def test_each_worker_has_a_batch_and_the_last_may_be_smaller() -> None:
    with rookery.make_vec(Counting, 7, envs_per_batch=3, autoreset_mode="disabled") as venv:
        assert [backend.env_ids for backend in venv.statistics().workers] == [
            range(3), range(3, 6), range(6, 7)
        ]  # fmt: skip
        assert venv.backend == "native" and os.getpid() not in venv.pids
        assert venv.get_attr("num_envs") == (3, 3, 3, 3, 3, 3, 1)


def test_workers_and_envs_per_batch_must_agree() -> None:
    with pytest.raises(
        rookery.ConfigError, match=r"envs_per_batch=3 makes 3 batches.*num_workers=2"
    ):
        rookery.make_vec(Counting, 7, num_workers=2, envs_per_batch=3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"envs_per_batch": 0}, "envs_per_batch must be a whole number of at least 1"),
        ({"envs_per_batch": 2, "backend": "process"}, "envs_per_batch is for backend='native'"),
        ({"isolate": True}, "isolate needs envs that are stepped one by one"),
        ({"caller_steps": True}, "caller_steps needs envs"),
        ({"observation_mode": "different"}, "observation_mode needs envs"),
        ({"faults": rookery.FaultPolicy(step_timeout_s=9)}, "num_workers to 1 or more"),
        ({"env": [Counting]}, "takes one callable"),
        ({"env": "FrozenLake-v1"}, "FrozenLake-v1 has no vector_entry_point"),
        ({"env": lambda: Counting(4)}, "with the number of envs"),
        ({"env_kwargs": {"colour": 3}}, "but this call fails.*colour"),
    ],
)
def test_arguments_that_cannot_work_are_refused(arguments: dict[str, Any], words: str) -> None:
    usual = {"env": Counting, "num_envs": 4, "backend": "native", "autoreset_mode": "disabled"}
    with pytest.raises(rookery.ConfigError, match=words):
        rookery.make_vec(**{**usual, **arguments})


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda n: gym.make("CartPole-v1"), "must be a gymnasium.vector.VectorEnv, but .* single"),
        (lambda n: None, "but None came"),
        (lambda n: Counting, "the class Counting itself came"),
        (lambda n: 3, "a int came: 3"),
        (partial(Lying, lie="num_envs"), "was asked for [24] envs, but its num_envs is [35]"),
        (partial(Lying, lie="mode"), r"metadata\['autoreset_mode'\] of Lying must be"),
        (partial(Lying, lie="text"), "observation_space of Lying is a Text.*no fixed array form"),
        (partial(Lying, lie="batch"), "observation_space of Lying must be single_observation_sp"),
    ],
)
def test_what_is_no_native_batch_is_refused_by_name(
    make: Any, words: str, num_workers: int | None
) -> None:
    with pytest.raises(rookery.EnvFailed, match=words) as caught:
        rookery.make_vec(make, 4, "native", num_workers)
    assert isinstance(caught.value, TypeError) and caught.value.command == "make"


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize(
    ("lie", "words"),
    [
        ("rows", r"observation has shape \([13], 2\), expected \([24], 2\)"),
        ("dtype", "observation has dtype float64, but its space has dtype int64"),
        ("reward", "rewards must be an array with a number for each of [24] envs"),
        ("flags", "terminated must be an array with a bool.*dtype float64 came"),
        ("info", r"info\['steps'\] must have a value for each of [24] envs"),
        ("no dict", "info must be a dict, but is a NoneType"),
        ("four", "step must return .observations, rewards, .*but returned"),
    ],
)
def test_a_native_env_that_lies_is_told_of(lie: str, words: str, num_workers: int | None) -> None:
    options: dict[str, Any] = {"num_workers": num_workers, "autoreset_mode": "disabled"}
    with rookery.make_vec(partial(Lying, lie=lie), 4, "native", **options) as venv:
        venv.reset(seed=0)
        with pytest.raises(rookery.EnvFailed, match=words) as caught:
            venv.step(np.zeros(4, np.int64))
        assert caught.value.env_ids == tuple(range(4 // (num_workers or 1)))


# ---------------------------------------------------------------- autoreset modes


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize(
    ("own", "asked"),
    [
        ("next_step", "same_step"),
        ("next_step", "disabled"),
        ("same_step", "next_step"),
        ("same_step", "disabled"),
        ("disabled", "next_step"),
    ],
)
def test_a_mode_that_cannot_be_had_is_refused(
    own: str, asked: str, num_workers: int | None
) -> None:
    batch_fn = partial(sync, env=Telling, mode=own)
    with pytest.raises(rookery.ConfigError, match=f"'{asked}' is not supported.*mode='{own}'"):
        rookery.make_vec(batch_fn, 4, "native", num_workers, autoreset_mode=asked)


@pytest.mark.parametrize("mode", MODES)
def test_a_callable_is_given_the_mode_if_it_takes_one(mode: str) -> None:
    def batch_fn(num_envs: int, autoreset_mode: AutoresetMode) -> Any:
        return sync(num_envs, Telling, autoreset_mode.name)

    with rookery.make_vec(batch_fn, 2, "native", autoreset_mode=mode) as venv:
        assert venv.metadata["autoreset_mode"] is AutoresetMode[mode.upper()]


def test_a_mode_that_ale_does_not_know_is_refused_with_those_it_does(pong: str) -> None:
    with pytest.raises(rookery.ConfigError, match=r"'disabled' is not supported.*'next_step'"):
        rookery.make_vec(pong, 2, "native", autoreset_mode="disabled")


def test_same_step_without_final_observations_is_told_of() -> None:
    with rookery.make_vec(SameStep, 2, "native", autoreset_mode="same_step") as venv:
        venv.reset(seed=0)
        with pytest.raises(rookery.EnvFailed, match="no 'final_obs'"):
            for _ in range(3):
                venv.step(np.zeros(2, np.int64))


@pytest.mark.parametrize("num_workers", WORKERS)
def test_stacked_final_observations_become_one_for_each_ended_env(num_workers: int | None) -> None:
    with rookery.make_vec(Stacked, 4, "native", num_workers, autoreset_mode="same_step") as venv:
        venv.reset(seed=0)
        for _ in range(3):
            obs, *_, info = venv.step(np.zeros(4, np.int64))
        ended = [i for i in range(4) if i % (4 // (num_workers or 1)) == 0]
        assert np.flatnonzero(info["_final_obs"]).tolist() == ended
        assert [info["final_obs"][i].tolist() for i in ended] == [[i, 3] for i in ended]
        assert obs[:, 1].tolist() == [0 if i in ended else 3 for i in range(4)]


# ---------------------------------------------------------------- resets


@pytest.mark.parametrize("num_workers", WORKERS)
def test_infos_without_masks_come_in_vector_form(num_workers: int | None) -> None:
    with rookery.make_vec(Counting, 4, "native", num_workers, autoreset_mode="disabled") as venv:
        venv.reset(seed=0)
        info = venv.step(np.zeros(4, np.int64))[-1]
        assert list(info) == [
            name for key in ("steps", "even", "names", "nested", "version")
            for name in (key, f"_{key}")
        ]  # fmt: skip
        assert info["steps"].dtype == np.int32 and info["steps"].tolist() == [1] * 4
        assert info["even"].dtype == np.bool_ and not info["even"].any()
        assert info["nested"]["twice"].tolist() == [2] * 4
        assert info["version"].tolist() == ["1.0"] * 4
        size = 4 // (num_workers or 1)
        assert info["names"].tolist() == [f"env {i % size}" for i in range(4)]
        assert all(info[f"_{key}"].all() for key in ("steps", "even", "names", "nested"))


class Silent(Counting):
    """Gives infos only in steps in which all actions are 0; its episodes do not end."""

    def step(self, actions: Any) -> Any:
        obs, reward, ended, _, info = super().step(actions)
        never = np.zeros_like(ended)
        return obs, reward, never, never, {} if actions.any() else info


def test_infos_of_a_worker_that_stops_giving_them_are_not_repeated() -> None:
    with rookery.make_vec(Silent, 4, "native", 2, autoreset_mode="disabled") as venv:
        venv.reset(seed=0)
        for _ in range(2):  # results are written to two buffers in turn
            assert venv.step(np.zeros(4, np.int64))[-1]["_steps"].all()
        for count in (3, 4, 5):
            info = venv.step(np.array([0, 0, 1, 1]))[-1]
            assert info["_steps"].tolist() == [True, True, False, False]
            assert info["steps"].tolist() == [count, count, 0, 0]
            assert info["_names"].tolist() == [True, True, False, False]
        for _ in range(2):
            assert venv.step(np.ones(4, np.int64))[-1] == {}
        assert venv.step(np.zeros(4, np.int64))[-1]["steps"].tolist() == [8] * 4


@pytest.mark.parametrize("native", [Counting, Arrayed])
@pytest.mark.parametrize("num_workers", WORKERS)
def test_seeds_reach_a_native_env_in_the_form_that_it_takes(
    native: Any, num_workers: int | None
) -> None:
    with rookery.make_vec(native, 4, "native", num_workers, autoreset_mode="disabled") as venv:
        assert venv.reset(seed=30)[0][:, 0].tolist() == [30, 31, 32, 33]
        assert venv.reset(seed=[9, 4, 6, 2])[0][:, 0].tolist() == [9, 4, 6, 2]
        assert venv.reset()[0][:, 0].tolist() == [-1] * 4


def test_who_takes_one_seed_alone_is_given_one_that_depends_on_all() -> None:
    firsts = []
    with rookery.make_vec("CartPole-v1", 3, "native") as venv:
        for seeds in ([5, 1, 9], [5, 1, 9], [5, 1, 8]):
            firsts.append(venv.reset(seed=seeds)[0])
    np.testing.assert_array_equal(firsts[0], firsts[1])
    assert (firsts[0] != firsts[2]).any()


@pytest.mark.parametrize("num_workers", WORKERS)
def test_a_mask_resets_some_envs(num_workers: int | None) -> None:
    with rookery.make_vec(Counting, 4, "native", num_workers, autoreset_mode="disabled") as venv:
        venv.reset(seed=0)
        for _ in range(2):
            venv.step(np.zeros(4, np.int64))
        mask = np.array([False, True, True, False])
        obs, info = venv.reset(options={"reset_mask": mask})
        assert obs.tolist() == [[0, 2], [-1, 0], [-1, 0], [3, 2]]
        np.testing.assert_array_equal(info["_steps"], mask)


@pytest.mark.parametrize("num_workers", WORKERS)
def test_a_native_env_that_ignores_masks_raises(num_workers: int | None) -> None:
    with rookery.make_vec(Maskless, 4, "native", num_workers, autoreset_mode="disabled") as venv:
        venv.reset(seed=0)
        venv.step(np.zeros(4, np.int64))
        mask = np.array([False, True, True, True])
        with pytest.raises(rookery.EnvFailed, match=r"of envs \[0\] changed as well.*ignore masks"):
            venv.reset(options={"reset_mask": mask})
        with pytest.raises(rookery.EnvFailed, match="must be reset"):
            venv.step(np.zeros(4, np.int64))
        assert venv.reset(seed=1)[0][:, 0].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("num_workers", WORKERS)
def test_options_of_a_batch_are_one_dict(num_workers: int | None) -> None:
    with rookery.make_vec(Counting, 4, "native", num_workers, autoreset_mode="disabled") as venv:
        venv.reset(options=[{"x": np.arange(2)} for _ in range(4)])  # type: ignore[arg-type]
        with pytest.raises(rookery.UsageError, match="one dict of options"):
            venv.reset(options=[{"x": i} for i in range(4)])  # type: ignore[arg-type]
        assert venv.reset(seed=1)[0][:, 0].tolist() == [1, 2, 3, 4]


# ---------------------------------------------------------------- partial batches


def test_whole_batches_are_sent_and_received() -> None:
    with rookery.make_vec(Counting, 6, envs_per_batch=2, autoreset_mode="disabled") as venv:
        venv.send_reset(seed=0)
        seen: list[int] = []
        while len(seen) < 6:
            obs, *_, env_ids = venv.recv()
            assert sorted(env_ids.tolist()) in ([0, 1], [2, 3], [4, 5], [0, 1, 2, 3], [0, 1, 4, 5],
                                                [2, 3, 4, 5], [0, 1, 2, 3, 4, 5])  # fmt: skip
            assert obs[:, 0].tolist() == env_ids.tolist()
            seen += env_ids.tolist()
        venv.send(np.zeros(4, np.int64), [3, 0, 2, 1])
        obs, reward, *_, env_ids = venv.recv(min_envs=4)
        assert sorted(env_ids.tolist()) == [0, 1, 2, 3] and reward.tolist() == [1.0] * 4
        assert venv.step(np.zeros(6, np.int64))[1].tolist() == [2.0] * 4 + [1.0] * 2


@pytest.mark.parametrize("num_workers", WORKERS)
def test_part_of_a_batch_cannot_be_sent(num_workers: int | None) -> None:
    with rookery.make_vec(Counting, 4, "native", num_workers, autoreset_mode="disabled") as venv:
        venv.reset(seed=0)
        with pytest.raises(rookery.UsageError, match="send: native batches step all their envs"):
            venv.send(np.zeros(1, np.int64), [1])
        with pytest.raises(rookery.UsageError, match="send_reset: native batches step all"):
            venv.send_reset(env_ids=[0])
        assert venv.step(np.zeros(4, np.int64))[1].tolist() == [1.0] * 4


def test_a_failure_of_a_batch_is_received_once() -> None:
    with rookery.make_vec(Counting, 4, envs_per_batch=2, autoreset_mode="disabled") as venv:
        venv.reset(seed=0)
        venv.send(np.array([0, 0, 7, 0]))
        with pytest.raises(rookery.EnvFailed, match="Envs 2-3"):
            venv.recv(min_envs=4)
        assert venv.recv(min_envs=2)[-1].tolist() == [0, 1]
        with pytest.raises(rookery.UsageError):
            venv.recv()


# ---------------------------------------------------------------- faults


@pytest.mark.parametrize("num_workers", WORKERS)
def test_what_a_native_env_raises_names_all_its_envs(num_workers: int | None) -> None:
    with rookery.make_vec(Counting, 4, "native", num_workers, autoreset_mode="disabled") as venv:
        venv.reset(seed=3)
        venv.step(np.zeros(4, np.int64))
        with pytest.raises(rookery.EnvFailed, match="seven") as caught:
            venv.step(np.array([0, 0, 0, 7]))
        error = caught.value
        assert isinstance(error, ArithmeticError) and error.command == "step"
        assert error.env_ids == ((2, 3) if num_workers else (0, 1, 2, 3))
        assert error.seed == 3 + error.env_ids[0] and error.steps_since_reset == 2
        assert error.last_action.tolist() == ([0, 7] if num_workers else [0, 0, 0, 7])
        assert venv.reset(seed=0)[0][:, 1].tolist() == [0] * 4


def faulty(num_envs: int, mode: str) -> Any:
    return sync(num_envs, Stuck, mode)


@pytest.mark.parametrize("fault", [Fault.RAISE, Fault.EXIT])
@pytest.mark.parametrize("mode", MODES)
def test_a_batch_that_is_lost_is_closed_as_a_whole_and_replaced(mode: str, fault: Fault) -> None:
    with rookery.make_vec(
        partial(faulty, mode=mode), 4, "native", 2, autoreset_mode=mode,
        faults=rookery.FaultPolicy("restart"),
    ) as venv:  # fmt: skip
        venv.reset(seed=0)
        good = np.ones(4, np.int64)
        venv.step(good)
        bad = good.copy()
        bad[3] = fault
        _, reward, terminated, truncated, info = venv.step(bad)
        assert truncated.tolist() == [False, False, True, True] and not terminated.any()
        assert reward[2:].tolist() == [0.0, 0.0]
        assert info["_fault"].tolist() == [False, False, True, True]
        if mode == "same_step":
            assert info["_final_obs"].tolist() == [False, False, True, True]
        if mode == "disabled":
            venv.reset(options={"reset_mask": truncated})
        _, reward, terminated, truncated, info = venv.step(good)
        assert not truncated.any() and not terminated.any() and "fault" not in info
        for _ in range(3):
            assert not venv.step(good)[3].any()


@pytest.mark.slow
def test_a_native_env_that_hangs_is_given_up() -> None:
    with rookery.make_vec(
        partial(faulty, mode="next_step"), 4, "native", 2,
        faults=rookery.FaultPolicy(step_timeout_s=6),
    ) as venv:  # fmt: skip
        venv.reset(seed=0)
        with pytest.raises(rookery.WorkerTimeout, match=r"Envs 2-3.*within 6 s") as caught:
            venv.step(np.array([1, 1, 1, Fault.HANG]))
        assert caught.value.env_ids == (2, 3)


# ---------------------------------------------------------------- calls


@pytest.mark.parametrize("num_workers", WORKERS)
def test_calls_reach_the_envs_of_a_native_env_that_has_calls(num_workers: int | None) -> None:
    batch_fn = partial(sync, env=Telling, mode="next_step")
    with rookery.make_vec(batch_fn, 4, "native", num_workers) as venv:
        venv.set_attr("gravity", [1.0, 2.0, 3.0, 4.0])
        assert venv.get_attr("gravity") == (1.0, 2.0, 3.0, 4.0)
        venv.reset(seed=[4, 5, 7, 8])
        assert venv.np_random_seed == (4, 5, 7, 8)


@pytest.mark.parametrize("num_workers", WORKERS)
def test_calls_reach_a_native_env_without_calls_itself(num_workers: int | None) -> None:
    with rookery.make_vec(Counting, 4, "native", num_workers, autoreset_mode="disabled") as venv:
        venv.set_attr("speed", 2)
        assert venv.get_attr("speed") == (2, 2, 2, 2)
        venv.reset(seed=0)
        assert venv.step(np.zeros(4, np.int64))[1].tolist() == [2.0] * 4
        with pytest.raises(rookery.UsageError, match="one attribute for all"):
            venv.set_attr("speed", [1, 2, 3, 4])
        with pytest.raises(rookery.EnvFailed, match="'Counting' object has no attribute 'colour'"):
            venv.get_attr("colour")
        with pytest.raises(rookery.EnvFailed, match="colour"):
            venv.set_attr("colour", 3)
        with pytest.raises(rookery.UsageError, match="no single envs"):
            venv.apply(str)


def test_frames_of_a_native_env_come_one_for_each_env() -> None:
    with rookery.make_vec(
        "CartPole-v1", 3, "native", env_kwargs={"render_mode": "rgb_array"}
    ) as venv:
        venv.reset(seed=0)
        frames = venv.render()
        assert len(frames) == 3 and frames[0].ndim == 3
        assert venv.render_mode == "rgb_array"


def test_wrappers_are_of_vector_envs() -> None:
    wrapper = gym.wrappers.vector.RecordEpisodeStatistics
    with rookery.make_vec("CartPole-v1", 4, "native", 2, wrappers=[wrapper]) as venv:
        venv.reset(seed=0)
        while True:
            info = venv.step(np.ones(4, np.int64))[-1]
            if "episode" in info:
                break
        assert info["episode"]["l"][info["_episode"]].min() > 5


def test_threads_are_had_by_name() -> None:
    with rookery.make_vec("CartPole-v1", 4, "thread", num_workers=2) as venv:
        assert venv.backend == "thread" and venv.num_workers == 2 and venv.pids == ()
        obs = venv.reset(seed=0)[0]
    with rookery.make_vec("CartPole-v1", 4, "serial") as venv:
        np.testing.assert_array_equal(venv.reset(seed=0)[0], obs)
