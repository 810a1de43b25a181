"""The collector whose workers act by themselves."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from dataclasses import fields

import gymnasium as gym
import numpy as np
import psutil
import pytest
from gymnasium import spaces
from patience import DEADLINE_S

import rookery
from rookery.common.trees import tree_map
from rookery.policy import make_policy
from rookery.rollout.rollout import side_by_side
from rookery.testing.faulty import Fault, Faulty

T = 40


class Maze(gym.Env):
    """Nested observations of many dtypes; the same array is returned again and again."""

    observation_space = spaces.Dict(
        box=spaces.Box(-50, 50, (2,)), step=spaces.Discrete(9), bits=spaces.MultiBinary(3)
    )
    action_space = spaces.MultiDiscrete([3, 2])

    def __init__(self, length: int = 5):
        self._box, self._length = np.zeros(2, np.float32), length

    def _obs(self):
        return {"box": self._box, "step": np.int64(self._step), "bits": np.ones(3, np.int8)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._step = 0
        self._box = self.np_random.normal(size=2).astype(np.float32)
        return self._obs(), {}

    def step(self, action):
        self._step += 1
        self._box += action
        ended = self._step == self._length
        return self._obs(), float(self._box[0]), False, ended, {"note": "unread"}


def _policy(observation_space, action_space):
    return make_policy(observation_space, action_space, seed=3, normalize_obs=True)


def _assert_same(actual, expected):
    for field in fields(rookery.Rollout):
        pair = getattr(actual, field.name), getattr(expected, field.name)
        tree_map(lambda a, b, name=field.name: _assert_same_array(a, b, name), *pair)


def _assert_same_array(actual, expected, name):
    if expected is None:  # the memory of policies that have none
        assert actual is None, name
        return
    assert actual.dtype == expected.dtype, name
    np.testing.assert_array_equal(actual, expected, err_msg=name)


def _learn(policy):
    """Change the weights, as a learner does."""
    policy.model.parameters += np.float32(0.01)
    normalizer = policy.model.module.normalizer
    if normalizer is not None:
        normalizer.moments.update(np.full((3, len(normalizer.mean)), 0.5))
        normalizer.set_extra_state(normalizer.get_extra_state())
    policy.version += 1


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", Maze])
def test_one_worker_gives_what_the_sync_collector_gives(env):
    venv = rookery.make_vec(env, 3, backend="serial", autoreset_mode="same_step")
    spaces_ = venv.single_observation_space, venv.single_action_space
    reference = rookery.SyncCollector(venv, policy := _policy(*spaces_), T, seed=7)
    with rookery.WorkerCollector(env, _policy, 3, 1, T, seed=7) as collector:
        for _ in range(3):
            _assert_same(collector.collect(), reference.collect())
            _learn(policy)
            _learn(collector.policy)
    venv.close()


def test_several_workers_give_what_as_many_sync_collectors_give():
    shares = [range(1), range(1, 3), range(3, 5)]
    references = []
    for stream, ids in enumerate(shares):
        venv = rookery.make_vec(
            "CartPole-v1", len(ids), backend="serial", autoreset_mode="same_step"
        )
        policy = _policy(venv.single_observation_space, venv.single_action_space)
        policy.use_stream(stream)
        references.append(rookery.SyncCollector(venv, policy, T, seed=[11 + i for i in ids]))
    with rookery.WorkerCollector("CartPole-v1", _policy, 5, 3, T, seed=11) as collector:
        for _ in range(3):
            expected = side_by_side([reference.collect() for reference in references])
            expected.env_ids = np.arange(5)
            _assert_same(collector.collect(), expected)


def test_rollouts_are_views_of_shared_memory_valid_until_the_collect_after_the_next():
    with rookery.WorkerCollector("CartPole-v1", _policy, 4, 2, T, seed=0) as collector:
        first = collector.collect()
        kept = first.obs.copy(), first.value.copy()
        second = collector.collect()
        np.testing.assert_array_equal(first.obs, kept[0])
        np.testing.assert_array_equal(first.value, kept[1])
        np.testing.assert_array_equal(second.obs[0], first.last_obs)
        third = collector.collect()
        assert np.shares_memory(first.obs, third.obs)
        assert not first.obs.flags.owndata and first.obs.flags.c_contiguous
    assert first.obs.shape == (T, 4, 4)  # and close takes nothing away


def test_rollouts_carry_the_version_of_the_weights():
    with rookery.WorkerCollector("CartPole-v1", _policy, 2, 2, 3) as collector:
        collector.policy.version = 9
        assert collector.collect().policy_version.tolist() == [9, 9]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_times_of_policy_and_envs_are_separate(mode):
    with rookery.WorkerCollector("CartPole-v1", _policy, 4, 2, T, mode) as collector:
        collector.collect()
        first = collector.policy_s, collector.env_s
        collector.collect()
        assert 0 < first[0] <= collector.policy_s
        assert 0 < first[1] <= collector.env_s


class Busy(gym.Env):
    """Computes for some milliseconds in every step."""

    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        ends = time.perf_counter() + 0.01
        while time.perf_counter() < ends:
            pass
        return np.zeros(2, np.float32), 0.0, False, False, {}


def test_the_times_of_a_worker_are_no_longer_than_the_call():
    with rookery.WorkerCollector(Busy, _policy, 2, 1, T) as collector:
        collector.collect()
        before = collector.policy_s + collector.env_s, collector.env_s
        started = time.perf_counter()
        collector.collect()
        elapsed_s = time.perf_counter() - started
        assert collector.env_s - before[1] >= 0.01 * T * 2
        assert collector.policy_s + collector.env_s - before[0] <= elapsed_s


class Counting(rookery.Policy):
    """Knows no weights and no halves; its value is what it was shown."""

    def act(self, obs, deterministic=False):
        zeros = np.zeros(len(obs), np.int64)
        return rookery.PolicyStep(zeros, np.zeros(len(obs), np.float32), obs[:, 0].copy())


class Picture(gym.Env):
    observation_space = spaces.Box(0, 255, (36, 36), np.uint8)
    action_space = spaces.Discrete(3)

    def _obs(self):
        return self.np_random.integers(256, size=(36, 36), dtype=np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._obs(), {}

    def step(self, action):
        return self._obs(), 1.0, False, bool(self.np_random.random() < 0.3), {}


@pytest.mark.slow
def test_image_policies_act_in_the_workers_through_torch():
    venv = rookery.make_vec(Picture, 2, backend="serial", autoreset_mode="same_step")
    policies = [make_policy(Picture.observation_space, Picture.action_space) for _ in range(2)]
    reference = rookery.SyncCollector(venv, policies[0], 6, seed=1)
    with rookery.WorkerCollector(Picture, policies[1], 2, 1, 6, seed=1) as collector:
        for _ in range(2):
            actual, expected = collector.collect(), reference.collect()
            np.testing.assert_array_equal(actual.obs, expected.obs)
            np.testing.assert_array_equal(actual.final_obs, expected.final_obs)
            for name in ("log_prob", "value", "last_value", "final_value"):
                pair = getattr(actual, name), getattr(expected, name)
                np.testing.assert_allclose(*pair, atol=1e-4, err_msg=name)
            for policy in policies:
                policy.model.parameters[-3:] += 0.5
    venv.close()


class Slow(gym.Env):
    """Takes a while to step, and leaves notes of its first step and of its end."""

    observation_space = spaces.Box(0, 1, (1,))
    action_space = spaces.Discrete(2)

    def __init__(self, folder):
        self.folder = folder

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        (self.folder / f"{os.getpid()}.stepped").touch()
        time.sleep(0.02)
        return np.zeros(1, np.float32), 0.0, False, False, {}

    def close(self):
        (self.folder / f"{os.getpid()}.closed").touch()


def _noted(folder, what):
    return {int(file.stem) for file in folder.glob(f"*.{what}")}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_exception_between_waits_closes_the_envs(tmp_path, mode):
    asked = []
    is_collecting = False

    def ask():
        if not is_collecting:  # the constructor waits too
            return
        asked.append(True)
        if len(asked) == 2:
            raise KeyboardInterrupt

    collector = rookery.WorkerCollector(
        Slow, _policy, 2, 2, 10_000, mode, env_kwargs={"folder": tmp_path}, between_waits=ask
    )
    pids = collector.pids
    is_collecting = True
    with pytest.raises(KeyboardInterrupt):
        collector.collect()
    assert collector.closed and len(asked) == 2
    assert _noted(tmp_path, "closed") == set(pids)


@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_ctrl_c_during_a_rollout_closes_the_collector(tmp_path, mode):
    def interrupt():
        while len(_noted(tmp_path, "stepped")) < 2:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    with rookery.WorkerCollector(
        Slow, _policy, 2, 2, 10_000, mode, env_kwargs={"folder": tmp_path}
    ) as collector:
        pids = collector.pids
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            collector.collect()
        thread.join()
        assert collector.closed
        assert not any(psutil.pid_exists(pid) for pid in pids)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_any_policy_can_act_in_the_workers(mode):
    with rookery.WorkerCollector(Faulty, Counting(), 4, 2, 5, mode) as collector:
        values = [collector.collect().value.copy() for _ in range(3)]
    assert values[0][:, 0].tolist() == [0, 1, 2, 3, 4]
    assert all((np.diff(value, axis=0) == 1).all() for value in values)


class InPlace(gym.Env):
    """Changes the one array that it ever returns, by resets too."""

    observation_space = spaces.Box(0, 100, (1,))
    action_space = spaces.Discrete(2)

    def __init__(self):
        self.obs = np.zeros(1, np.float32)

    def reset(self, *, seed=None, options=None):
        self.obs[:] = 0
        return self.obs, {}

    def step(self, action):
        self.obs += 1
        return self.obs, 1.0, False, bool(self.obs[0] == 3), {}


def test_final_observations_outlive_a_reset_in_place():
    with rookery.WorkerCollector(InPlace, Counting(), 2, 1, 7) as collector:
        rollout = collector.collect()
        assert rollout.final_obs.ravel().tolist() == [3, 3, 3, 3]
        assert rollout.final_index.tolist() == [[2, 0], [2, 1], [5, 0], [5, 1]]
        assert rollout.final_value[2].tolist() == [3, 3]


# ---------------------------------------------------------------- async


def test_async_rollouts_of_each_env_follow_one_another():
    with rookery.WorkerCollector("CartPole-v1", _policy, 6, 3, 8, "async", seed=5) as collector:
        last = {}
        for _ in range(20):
            rollout = collector.collect()
            for b, env_id in enumerate(rollout.env_ids.tolist()):
                if env_id in last:
                    np.testing.assert_array_equal(rollout.obs[0, b], last[env_id])
                last[env_id] = rollout.last_obs[b]
            ended = [tuple(place) for place in np.argwhere(rollout.done)]
            assert [tuple(place) for place in rollout.final_index] == ended
            collector.policy.version += 1
        assert set(last) == set(range(6))


@pytest.mark.parametrize("max_policy_lag", [1, 4, 8])
def test_async_rollouts_are_never_older_than_allowed(max_policy_lag):
    with rookery.WorkerCollector(
        "CartPole-v1", _policy, 4, 4, 4, "async", max_policy_lag=max_policy_lag
    ) as collector:
        lags, num_envs = [], []
        for _ in range(40):
            rollout = collector.collect()
            lags.append(int((collector.policy.version - rollout.policy_version).max()))
            num_envs.append(rollout.num_envs)
            collector.policy.version += 1
    assert max(lags) <= max_policy_lag
    assert min(num_envs) == min(4, 8 // max_policy_lag)


def test_async_rollouts_are_the_callers_own():
    with rookery.WorkerCollector("CartPole-v1", _policy, 2, 1, 4, "async") as collector:
        first = collector.collect()
        kept = first.obs.copy()
        for _ in range(4):
            collector.collect()
        np.testing.assert_array_equal(first.obs, kept)


def test_one_async_worker_gives_what_a_sync_one_gives_under_constant_weights():
    rollouts = {}
    for mode in ("sync", "async"):
        with rookery.WorkerCollector("CartPole-v1", _policy, 3, 1, T, mode, seed=2) as collector:
            rollouts[mode] = [side_by_side([collector.collect()]) for _ in range(4)]
    for actual, expected in zip(rollouts["async"], rollouts["sync"], strict=True):
        _assert_same(actual, expected)


# ---------------------------------------------------------------- faults


class Asking(rookery.Policy):
    """Asks env 1 of each worker for a fault at the fourth step."""

    def __init__(self, fault):
        self.fault, self.count = fault, 0

    def act(self, obs, deterministic=False):
        self.count += 1
        action = np.zeros(len(obs), np.int64)
        if self.count == 4 and len(obs) > 1:
            action[1] = self.fault
        zeros = np.zeros(len(obs), np.float32)
        return rookery.PolicyStep(action, zeros, zeros)


def _collect_on(collector):
    """Collect until every worker's rollout had to be waited for."""
    for _ in range(5):
        collector.collect()
        collector.policy.version += 1


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_env_that_raises_is_named(mode):
    with rookery.WorkerCollector(Faulty, Asking(Fault.RAISE), 3, 2, 5, mode) as collector:
        with pytest.raises(rookery.EnvFailed, match="lost key") as caught:
            _collect_on(collector)
        assert isinstance(caught.value, KeyError)
        assert caught.value.env_ids == (2,)
        assert caught.value.command == "step"
        assert caught.value.last_action == Fault.RAISE
        with pytest.raises(rookery.ClosedError):
            collector.collect()


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_a_worker_that_dies_is_named(mode):
    with (
        rookery.WorkerCollector(Faulty, Asking(Fault.KILL), 3, 2, 5, mode) as collector,
        pytest.raises(rookery.WorkerDied, match=r"SIGKILL.*during collect of env 2") as caught,
    ):
        _collect_on(collector)
    assert caught.value.env_ids == (2, 1)
    assert (caught.value.last_action, caught.value.steps_since_reset) == (Fault.KILL, 4)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_env_that_hangs_is_named_and_ended(mode):
    faults = rookery.FaultPolicy(step_timeout_s=DEADLINE_S)
    with rookery.WorkerCollector(
        Faulty, Asking(Fault.HANG_NATIVE), 3, 2, 5, mode, faults=faults
    ) as collector:
        with pytest.raises(rookery.WorkerTimeout, match="_hang_in_native_code") as caught:
            _collect_on(collector)
        assert caught.value.env_ids == (2,)


class Broken(rookery.Policy):
    def act(self, obs, deterministic=False):
        raise ZeroDivisionError("the policy is broken")


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_error_of_the_policy_includes_its_traceback(mode):
    with rookery.WorkerCollector(Faulty, Broken(), 2, 2, 5, mode) as collector:
        with pytest.raises(rookery.WorkerError, match="the policy is broken") as caught:
            collector.collect()
        assert "in act" in str(caught.value.__cause__.__cause__)


class CutOff(Counting):
    def __init__(self):
        self.model = make_policy(Faulty.observation_space, Faulty.action_space).model


def test_a_policy_that_new_weights_could_not_reach_is_refused():
    with pytest.raises(rookery.ConfigError, match="CutOff has a model"):
        rookery.WorkerCollector(Faulty, CutOff(), 2, 1, 5)


class Unpicklable(Counting):
    def __reduce__(self):
        raise TypeError("stays here")


def test_an_unpicklable_policy_is_refused_by_the_constructor():
    with pytest.raises(rookery.PicklingError, match="stays here"):
        rookery.WorkerCollector(Faulty, Unpicklable(), 2, 2, 5)


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "later"},
        {"num_steps": 0},
        {"max_policy_lag": 0},
    ],
)
def test_invalid_settings_are_refused(options):
    with pytest.raises(rookery.ConfigError):
        rookery.WorkerCollector(Faulty, Counting(), 2, 2, **{"num_steps": 5, **options})


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_collector_that_is_forgotten_leaves_nothing(mode):
    collector = rookery.WorkerCollector("CartPole-v1", _policy, 2, 2, 1000, mode)
    collector.collect()
    pids = collector.pids
    del collector
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, signal.SIG_DFL)


def test_closing_twice_is_fine_and_collecting_afterwards_is_not():
    collector = rookery.WorkerCollector("CartPole-v1", _policy, 2, 2, 5)
    collector.close()
    collector.close()
    with pytest.raises(rookery.ClosedError):
        collector.collect()
    with pytest.raises(rookery.ClosedError):
        collector.publish()


def test_other_seeds_can_be_chosen_until_collecting_has_begun():
    first = []
    for seed, chosen in [(5, None), (0, [5, 6])]:
        with rookery.WorkerCollector("CartPole-v1", _policy, 2, 1, 4, seed=seed) as collector:
            if chosen:
                collector.reset(chosen)
            first.append(collector.collect().obs[0].copy())
            with pytest.raises(rookery.UsageError, match="after the first collect"):
                collector.reset([1, 2])
    np.testing.assert_array_equal(*first)


class Dicing(gym.Env):
    """Observes what the global streams of its process draw."""

    observation_space = spaces.Box(0, 1, (2,), np.float64)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._obs(), {}

    def step(self, action):
        return self._obs(), 0.0, False, False, {}

    def _obs(self):
        return np.array([np.random.random(), random.random()])  # noqa: NPY002


def test_global_streams_follow_the_seed_and_differ_between_workers():
    drawn = []
    for seed in (5, 5, 6, None, None):
        with rookery.WorkerCollector(Dicing, Counting(), 2, 2, 3, seed=seed) as collector:
            drawn.append(collector.collect().obs.ravel().tolist())
    assert drawn[0] == drawn[1]
    assert len({number for numbers in drawn[1:] for number in numbers}) == 4 * 2 * 3 * 2


# ---------------------------------------------------------------- telemetry


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_workers_that_act_count_what_they_did_as_a_vector_env_does(mode: str) -> None:
    with rookery.WorkerCollector(Maze, _policy, 4, 2, 10, mode, seed=0) as collector:
        assert {env.steps for env in collector.telemetry().envs} == {0}
        rollouts = [collector.collect() for _ in range(4)]
        live = collector.telemetry()
    last = collector.telemetry()
    assert last is collector.telemetry()
    made = sum(rollout.num_transitions for rollout in rollouts)
    for statistics in (live, last):
        assert statistics.env_steps == sum(env.steps for env in statistics.envs) >= made
        assert all(env.step_mean_s > 0 and env.wait_s > 0 for env in statistics.envs)
        assert all(backend.busy_s > 0 for backend in statistics.workers)
        assert statistics.caller.waited_s > 0
    if mode == "sync":
        assert live.env_steps == made == 160 and live.vector_steps == 40
        assert all(env.steps == 40 and env.episodes == 8 for env in live.envs)
        assert sum(env.straggler_share or 0.0 for env in last.envs) == pytest.approx(1.0)
    else:
        assert {env.straggler_share for env in last.envs} == {None}  # nobody waits for all
    assert [backend.rss_bytes is None for backend in live.workers] == [False, False]


def test_a_replaced_worker_that_acts_says_why() -> None:
    class Killed(rookery.Policy):
        count = 0

        def act(self, obs, deterministic=False):
            self.count += 1
            zeros = np.zeros(len(obs), np.float32)
            fault = Fault.KILL if self.count == 3 else 0
            return rookery.PolicyStep(np.full(len(obs), fault), zeros, zeros)

    faults = rookery.FaultPolicy("restart", max_restarts=50)
    with rookery.WorkerCollector(Faulty, Killed(), 2, 1, 4, seed=0, faults=faults) as collector:
        collector.collect()
        (backend,) = collector.telemetry().workers
    assert backend.restarts >= 1
    assert {cause.fault for cause in backend.restart_causes} == {"WorkerDied"}
    assert len(backend.restart_causes) == backend.restarts
