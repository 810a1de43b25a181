"""Collectors with workers on a cluster."""

from __future__ import annotations

import ast
import os
import signal
import threading
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from programs import output_of

import rookery
from rookery import WorkerCollector
from rookery.errors import ConfigError, EnvFailed
from rookery.policy import make_policy

_RAY: Any = {"backend": "ray", "ray_options": {"num_cpus": 0.5}}


def _policy(observation_space: Any, action_space: Any) -> Any:
    return make_policy(observation_space, action_space, seed=3)


def _assert_same(actual: Any, expected: Any) -> None:
    for field in fields(expected):
        ours, theirs = getattr(actual, field.name), getattr(expected, field.name)
        if isinstance(theirs, np.ndarray):
            np.testing.assert_array_equal(ours, theirs, err_msg=field.name)
        else:
            assert ours == theirs


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_a_rollout_is_what_workers_of_one_machine_would_collect(env_id: str) -> None:
    options: Any = {"num_envs": 8, "num_workers": 4, "num_steps": 32, "seed": 5}
    with (
        WorkerCollector(env_id, _policy, **options) as here,
        WorkerCollector(env_id, _policy, **_RAY, **options) as there,
    ):
        for _ in range(3):
            _assert_same(there.collect(), here.collect())
            for collector in (here, there):
                collector.policy.model.parameters[...] *= 1.01
                collector.policy.version += 1
        assert len(there.pids) == there.num_workers == 4
        statistics = there.telemetry()
        # Reported with the first rollout, and once a second.
        assert {env.steps for env in statistics.envs} <= {32, 64, 96}
        assert all(backend.node for backend in statistics.workers)


def _shares(collector: WorkerCollector) -> list[range]:
    return [share.env_ids for share in collector._pool.workers]


def test_a_node_share_is_as_large_as_a_node_has_room() -> None:
    # The node has 16 CPUs.
    with WorkerCollector(
        "CartPole-v1", _policy, 7, 4, 8, backend="ray", ray_options={"num_cpus": 4}
    ) as collector:
        assert _shares(collector) == [range(7)]
        assert collector.num_workers == 4


def test_shares_without_free_cpus_share_cpus_and_warn() -> None:
    with pytest.warns(RuntimeWarning, match="needs 12 CPUs, and no node has so many free"):
        collector = WorkerCollector(
            "CartPole-v1", _policy, 8, 4, 8, backend="ray", ray_options={"num_cpus": 6}
        )
    with collector:
        assert _shares(collector) == [range(4), range(4, 8)]
        assert collector.collect().valid.all()


@pytest.mark.parametrize("num_shares", [1, 2])
def test_asynchronous_rollouts_are_no_older_than_allowed(num_shares: int) -> None:
    options = {"num_cpus": 8 // num_shares + 4 * (num_shares == 1)}
    with WorkerCollector(
        "CartPole-v1", _policy, 4, num_shares, 16, "async", backend="ray", ray_options=options,
        max_policy_lag=2,
    ) as collector:  # fmt: skip
        seen = set()
        for version in range(12):
            collector.policy.version = version
            rollout = collector.collect()
            assert (version - rollout.policy_version <= 2).all()
            seen |= set(rollout.env_ids.tolist())
        assert seen == {0, 1, 2, 3}


class Unruly(gym.Env[Any, Any]):
    """Raises or kills its process in its 20th step."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, what: str) -> None:
        self._what, self._steps = what, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self._steps += 1
        if self._steps == 20:
            if self._what == "raise":
                raise ValueError("boom")
            os.kill(os.getpid(), signal.SIGKILL)
        return np.ones(2, np.float32), 1.0, False, False, {}


class Harmless(Unruly):
    """Never raises."""

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        return np.ones(2, np.float32), 1.0, False, False, {}


class Hanging(Unruly):
    """Is never built; creates a file when its building has begun."""

    def __init__(self, folder: Path) -> None:
        (folder / "begun").touch()
        time.sleep(3600)


class Failing(Unruly):
    """Fails while being built, after the building of a `Hanging` has begun."""

    def __init__(self, folder: Path) -> None:
        while not (folder / "begun").exists():
            time.sleep(0.05)
        raise ValueError("no licence")


def test_a_share_that_is_ended_while_it_starts_leaves_no_name(tmp_path: Path) -> None:
    envs = [lambda: Failing(tmp_path)] * 2 + [lambda: Hanging(tmp_path)] * 2
    options: Any = {"backend": "ray", "ray_options": {"num_cpus": 7}}
    with pytest.raises(EnvFailed, match="no licence"):
        WorkerCollector(envs, _policy, 4, 2, 32, **options)
    # The fixture `nothing_is_left` checks the rest.


class Slow(Harmless):
    """Takes longer to be built than a share waits for free CPUs."""

    def __init__(self, seconds: float) -> None:
        super().__init__("")
        time.sleep(seconds)


def test_a_share_whose_envs_take_long_to_build_keeps_its_cpus() -> None:
    options: Any = {"backend": "ray", "ray_options": {"num_cpus": 16}}  # all CPUs of the node
    with WorkerCollector(lambda: Slow(14.0), _policy, 1, 1, 8, **options) as collector:
        assert collector.collect().valid.all()  # a warning would be an error


def test_an_env_that_raises_has_its_number_in_the_whole_collector() -> None:
    # Two shares of two envs; the fourth env raises.
    envs = [lambda: Harmless("")] * 3 + [lambda: Unruly("raise")]
    options: Any = {"backend": "ray", "ray_options": {"num_cpus": 9}}
    with pytest.warns(RuntimeWarning, match="no node has so many free"):
        collector = WorkerCollector(envs, _policy, 4, 2, 32, **options)
    with collector:
        with pytest.raises(EnvFailed, match=r"Env 3 .*boom") as caught:
            collector.collect()
        assert caught.value.env_ids == (3,)
        assert collector.closed


def test_a_worker_that_dies_is_replaced_on_its_node() -> None:
    envs = [lambda: Unruly("die"), lambda: Harmless("")]
    faults = rookery.FaultPolicy("restart", max_restarts=5)
    with WorkerCollector(envs, _policy, 2, 2, 32, faults=faults, **_RAY) as collector:
        rollout = collector.collect()
        assert (~rollout.valid).sum(axis=0).tolist() == [1, 0]
        statistics = collector.statistics()
        assert (statistics.restarts, statistics.lost_rows) == (1, 1)


class Dying(Harmless):
    """Exits its process in its 20th step, in every process."""

    def __init__(self) -> None:
        super().__init__("")

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self._steps += 1
        if self._steps == 20:
            os._exit(3)
        return super().step(action)


@pytest.mark.parametrize("backend", ["process", "ray"])
def test_a_worker_is_replaced_as_often_as_allowed_and_no_more(backend: str) -> None:
    faults = rookery.FaultPolicy("restart", max_restarts=2)
    where: Any = _RAY if backend == "ray" else {}
    with WorkerCollector(Dying, _policy, 1, 1, 64, faults=faults, **where) as collector:
        with pytest.raises(rookery.WorkerDied, match="exit code 3"):
            collector.collect()
        assert collector.statistics().restarts == 2


def test_an_exception_of_a_signal_handler_leaves_collect_unchanged() -> None:
    class Waiting(Harmless):
        def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
            time.sleep(1000)
            return super().step(action)

    class Alarm(Exception):
        pass

    def strike(signum: int, frame: Any) -> None:
        raise Alarm

    before = signal.signal(signal.SIGALRM, strike)
    try:
        with WorkerCollector(lambda: Waiting(""), _policy, 1, 1, 4, **_RAY) as collector:
            signal.setitimer(signal.ITIMER_REAL, 1.0)
            with pytest.raises(Alarm):
                collector.collect()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def test_numbers_of_infos_and_the_ends_of_episodes_are_in_the_rollout() -> None:
    options: Any = {"num_envs": 4, "num_workers": 2, "num_steps": 64, "seed": 1}
    keys = ("episode_length",)

    def make() -> Any:
        class Counting(gym.Wrapper[Any, Any, Any, Any]):
            def reset(self, **kwargs: Any) -> Any:
                self.length = 0
                return super().reset(**kwargs)

            def step(self, action: Any) -> Any:
                self.length += 1
                *result, info = super().step(action)
                return *result, {**info, "episode_length": self.length}

        return Counting(gym.make("CartPole-v1"))

    with WorkerCollector(make, _policy, info_keys=keys, **_RAY, **options) as collector:
        rollout = collector.collect()
    assert len(rollout.final_index) == rollout.done.sum() > 0
    first = rollout.final_index[:, 0] + 1
    lengths = rollout.final_info["episode_length"]
    assert (lengths <= first).all()
    assert lengths.min() > 0


class Registered(Harmless):
    """Has an id that this process has registered."""


@pytest.fixture
def registered() -> Any:
    gym.register("RookeryRegistered-v0", entry_point=lambda: Registered(""))
    yield "RookeryRegistered-v0"
    del gym.registry["RookeryRegistered-v0"]


def test_an_env_that_is_registered_here_is_built_on_the_cluster(registered: str) -> None:
    with WorkerCollector(registered, _policy, 2, 2, 8, **_RAY) as collector:
        assert collector.collect().reward.sum() == 16


def test_an_argument_that_cannot_be_pickled_is_named() -> None:
    with pytest.raises(rookery.PicklingError, match=r"env_kwargs\['lock'\]"):
        WorkerCollector(Harmless, _policy, 2, 2, 8, env_kwargs={"lock": threading.Lock()}, **_RAY)


def test_options_for_a_cluster_need_one() -> None:
    with pytest.raises(ConfigError, match="ray_options are for backend='ray', not for 'process'"):
        WorkerCollector("CartPole-v1", _policy, 2, ray_options={"num_cpus": 1})
    with pytest.raises(ConfigError, match="backend must be one of 'process', 'ray'"):
        WorkerCollector("CartPole-v1", _policy, 2, backend="rya")


_SMALL_STORE = """
import gymnasium as gym
import numpy as np
import ray
import rookery


class Large(gym.Env):
    observation_space = gym.spaces.Box(0, 255, (256, 256, 3), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observe(), {}

    def step(self, action):
        return self.observe(), 0.0, False, False, {}

    def observe(self):
        return self.np_random.integers(0, 255, (256, 256, 3), dtype=np.uint8)


class First(rookery.Policy):
    def act(self, obs, deterministic=False):
        zeros = np.zeros(len(obs), np.float32)
        return rookery.policy.PolicyStep(np.zeros(len(obs), np.int64), zeros, zeros)


small = dict(object_store_memory=80 * 2**20, include_dashboard=False, log_to_driver=False)
ray.init("local", num_cpus=2, **small)
options = dict(num_envs=4, num_workers=2, num_steps=64, backend="ray", seed=0)
rollouts = []
with rookery.WorkerCollector(Large, First(), **options) as collector:
    for _ in range(4):  # of 50 MB each
        rollouts.append(collector.collect())
options["backend"] = "process"
with rookery.WorkerCollector(Large, First(), **options) as here:
    for rollout in rollouts:
        np.testing.assert_array_equal(rollout.obs, here.collect().obs)
print("the same")
ray.shutdown()
"""


def test_rollouts_that_are_larger_than_the_object_store_arrive_all_the_same() -> None:
    assert "the same" in output_of(_SMALL_STORE)


_A_NODE_JOINS = """
import ray
from ray.cluster_utils import Cluster
from rookery import WorkerCollector
from rookery.policy import make_policy

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
with WorkerCollector("CartPole-v1", make_policy, 4, 2, 16, backend="ray", seed=0) as collector:
    collector.collect()
    statistics = collector.statistics()
    shares = collector._pool.workers
    print(len({share.node for share in shares}), [share.is_sharing_cpus for share in shares])
    cluster.add_node(num_cpus=1)
    rollout = collector.collect()
    while not rollout.after_reset.any():
        rollout = collector.collect()
    print(len({share.node for share in shares}), [share.is_sharing_cpus for share in shares])
    print(rollout.after_reset.tolist(), rollout.valid.all(), collector.statistics() == statistics)
ray.shutdown()
cluster.shutdown()
"""


def test_a_share_that_shares_cpus_moves_to_a_node_that_joins() -> None:
    first, second, resets = output_of(_A_NODE_JOINS).splitlines()[-3:]
    assert (first[0], second[0]) == ("1", "2")
    # On a slow machine the other share may share CPUs too.
    before, after = ast.literal_eval(first[2:]), ast.literal_eval(second[2:])
    moved = [was and not now for was, now in zip(before, after, strict=True)]
    assert moved.count(True) == 1
    assert moved == [was != now for was, now in zip(before, after, strict=True)]
    assert resets == f"{[each for each in moved for _ in range(2)]} True True"
