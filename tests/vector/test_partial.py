"""Partial batches: envs are received in the order in which they become ready."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
import pytest
from backends import BACKENDS, VARIANTS
from gymnasium.vector import AutoresetMode
from patience import DEADLINE_S, PATIENCE_S
from stuck import Stuck

import rookery
from rookery import FaultPolicy
from rookery.testing import Fault, Faulty

NUM_ENVS = 4
PAUSE_S = 0.4  # of Fault.PAUSE

Make = Callable[..., rookery.VectorEnv]


class Gate(gym.Env[Any, Any]):
    """A step with action 1, and a reset of env 0, wait until a file exists."""

    observation_space = gym.spaces.Dict(
        {"count": gym.spaces.Box(0, 999, (), np.int64), "name": gym.spaces.Text(2000)}
    )
    action_space = gym.spaces.Discrete(2)

    def __init__(self, gate: str) -> None:
        self._gate = Path(gate)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed == 0:
            self._wait()
        self._count = 0
        return self._obs(), {"seed": -1 if seed is None else seed}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        if action == 1:
            self._wait()
        self._count += 1
        return self._obs(), float(self._count), False, self._count == 5, {"count": self._count}

    def _obs(self) -> Any:
        return {"count": np.int64(self._count), "name": "x" * 50 * self._count**2}

    def _wait(self) -> None:
        while not self._gate.exists():
            os.sched_yield()


@pytest.fixture(params=[*BACKENDS, "isolated", "spawn-2"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    made: list[rookery.VectorEnv] = []

    def make_one(env: Any = Faulty, **options: Any) -> Any:
        made.append(
            rookery.make_vec(env, NUM_ENVS, **{**VARIANTS[request.param].options, **options})
        )
        return made[-1]

    yield make_one
    for venv in made:
        venv.close()


def _gated(tmp_path: Path, **options: Any) -> tuple[rookery.VectorEnv, Path]:
    gate = tmp_path / "open"
    venv = rookery.make_vec(Gate, NUM_ENVS, env_kwargs={"gate": str(gate)}, isolate=True, **options)
    return venv, gate


def _receive_all(venv: rookery.VectorEnv, count: int) -> set[int]:
    ids: set[int] = set()
    while len(ids) < count:
        ids |= set(venv.recv(timeout=PATIENCE_S)[5].tolist())
    return ids


def _seen(results: Any, row: int) -> list[Any]:
    """The results of one env: observation, reward, flags and its part of the infos."""
    obs, reward, terminated, truncated, info = results
    keys = [key for key in info if key[0] != "_" and key != "final_info"]
    told = {key: info[key][row] for key in keys if info[f"_{key}"][row]}
    return [obs[row], reward[row], terminated[row], truncated[row], told]


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Taxi-v4"])
def test_each_env_goes_the_way_it_goes_in_lock_step(
    make: Make, env_id: str, mode: AutoresetMode
) -> None:
    steps = 60
    actions = np.random.default_rng(3).integers(0, 2, (steps, NUM_ENVS))
    expected: list[list[Any]] = [[] for _ in range(NUM_ENVS)]
    with rookery.make_vec(env_id, NUM_ENVS, backend="serial", autoreset_mode=mode) as plain:
        plain.reset(seed=5)
        for row in actions:
            results = plain.step(row)
            for i in range(NUM_ENVS):
                expected[i].append(_seen(results, i))
    venv = make(env_id, autoreset_mode=mode)
    venv.send_reset(seed=5)
    got: list[list[Any]] = [[] for _ in range(NUM_ENVS)]
    done = np.full(NUM_ENVS, -1)
    while (done < steps).any():
        *results, ids = venv.recv(timeout=PATIENCE_S)
        for row, i in enumerate(ids.tolist()):
            if done[i] >= 0:
                got[i].append(_seen(results, row))
        done[ids] += 1
        again = ids[done[ids] < steps]
        if len(again):
            venv.send(actions[done[again], again], again)
    np.testing.assert_equal(got, expected)


@pytest.mark.parametrize("copy", [True, False])
def test_a_straggler_holds_nobody_up(tmp_path: Path, copy: bool) -> None:
    venv, gate = _gated(tmp_path, copy=copy)
    with venv:
        venv.send_reset(seed=0)  # the reset of env 0 waits
        assert _receive_all(venv, 3) == {1, 2, 3}
        for count in (1, 2, 3):
            venv.send(np.zeros(3, int), [3, 1, 2])
            obs, reward, _, _, info, ids = venv.recv(min_envs=3, timeout=PATIENCE_S)
            assert sorted(ids.tolist()) == [1, 2, 3]
            assert obs["count"].tolist() == [count] * 3
            assert obs["name"] == ("x" * 50 * count**2,) * 3
            assert reward.tolist() == [count] * 3
            assert info["count"].tolist() == [count] * 3
        gate.touch()
        obs, reward, _, _, info, ids = venv.recv(timeout=PATIENCE_S)
        assert ids.tolist() == [0] and ids.dtype == np.int64
        assert info["seed"].tolist() == [0]
        assert reward.tolist() == [0.0] and obs["name"] == ("",)


def test_who_is_ready_first_comes_first(tmp_path: Path) -> None:
    venv, gate = _gated(tmp_path)
    with venv:
        gate.touch()
        venv.reset(seed=1)
        gate.unlink()
        venv.send(np.array([1, 0, 0]), [0, 1, 3])  # env 0 waits
        first = venv.recv(min_envs=2, timeout=PATIENCE_S)[5].tolist()
        assert sorted(first) == [1, 3]
        venv.send(np.array([1, 0]), [1, 3])  # env 1 waits too
        assert venv.recv(timeout=PATIENCE_S)[5].tolist() == [3]
        gate.touch()
        assert sorted(venv.recv(min_envs=2, timeout=PATIENCE_S)[5].tolist()) == [0, 1]


def test_a_time_out_leaves_all_under_way(tmp_path: Path) -> None:
    venv, gate = _gated(tmp_path)
    with venv:
        venv.send_reset(seed=0)
        assert _receive_all(venv, 3) == {1, 2, 3}
        with pytest.raises(rookery.WorkerTimeout, match=r"envs \[0\] have not finished") as error:
            venv.recv(timeout=0.5)
        assert error.value.env_ids == (0,)
        assert isinstance(error.value, multiprocessing.TimeoutError)
        gate.touch()
        assert venv.recv(timeout=PATIENCE_S)[5].tolist() == [0]


def test_what_cannot_be_meant_is_refused(make: Make) -> None:
    venv = make()
    with pytest.raises(rookery.UsageError, match="no env has a pending answer"):
        venv.recv()
    venv.send_reset(seed=1)
    with pytest.raises(rookery.PendingCallError, match=r"answers of envs \[2\] are pending"):
        venv.send(np.zeros(1, int), [2])
    with pytest.raises(rookery.PendingCallError, match="answers of 4 envs are pending"):
        venv.step(np.zeros(4, int))
    with pytest.raises(rookery.PendingCallError):
        venv.get_attr("label")
    with pytest.raises(rookery.UsageError, match="min_envs is 5, but only 4 envs"):
        venv.recv(min_envs=5)
    venv.recv(min_envs=4)
    for env_ids, complaint in [
        ([0, 0], "twice"),
        ([4], "0 to 3"),
        ([-1], "0 to 3"),
        ([0.5], "env indices"),
        ([], "env indices"),
    ]:
        with pytest.raises(rookery.UsageError, match=complaint):
            venv.send(np.zeros(len(env_ids), int), env_ids)
    with pytest.raises(rookery.SpaceError, match=r"shape \(3,\), expected \(2,\)"):
        venv.send(np.zeros(3, int), [0, 1])
    with pytest.raises(rookery.UsageError, match="seed"):
        venv.send_reset(seed=2**63)
    venv.close()
    for call in (venv.recv, venv.send_reset, lambda: venv.send(np.zeros(4, int))):
        with pytest.raises(rookery.ClosedError):
            call()


def test_lock_step_and_partial_batches_take_turns(make: Make) -> None:
    venv = make()
    for seed in (10, 20, 30):
        venv.send_reset(seed=seed)
        venv.recv(min_envs=4)
        obs = venv.step(np.zeros(4, int))[0]
        assert obs[:, 0].tolist() == [1] * 4
        assert obs[:, 1].tolist() == [seed, seed + 1, seed + 2, seed + 3]
        venv.send(np.zeros(2, int), [3, 1])
        assert _receive_all(venv, 2) == {1, 3}
        assert venv.get_attr("count") == (1, 2, 1, 2)
        obs = venv.step(np.zeros(4, int))[0]
        assert obs[:, 0].tolist() == [2, 3, 2, 3]


def test_actions_of_differing_types_do_not_disturb_each_other(make: Make) -> None:
    venv = make("Pendulum-v1")
    venv.send_reset(seed=1)
    venv.recv(min_envs=4)
    venv.send(np.array([[0.5], [0.25]], np.float32), [0, 2])
    venv.send(np.array([[0.75], [1.0]], np.float64), [1, 3])
    _receive_all(venv, 4)
    assert [float(u) for u in venv.apply(lambda env: env.unwrapped.last_u)] == [0.5, 0.75, 0.25, 1]


def test_a_failing_env_is_named_and_the_others_are_still_received(make: Make) -> None:
    venv = make()
    venv.send_reset(seed=7)
    venv.recv(min_envs=4)
    venv.send(np.array([0, Fault.RAISE, 0]), [3, 1, 0])
    received: set[int] = set()
    with pytest.raises(KeyError) as error:
        while True:
            received |= set(venv.recv(timeout=PATIENCE_S)[5].tolist())
    assert isinstance(error.value, rookery.EnvFailed)
    assert error.value.env_ids == (1,) and error.value.seed == 8
    assert error.value.steps_since_reset == 1
    while len(received) < 2:
        received |= set(venv.recv(timeout=PATIENCE_S)[5].tolist())
    assert received == {0, 3}
    venv.send_reset(seed=50, env_ids=[1])
    obs, *_, ids = venv.recv()
    assert ids.tolist() == [1] and obs[0].tolist() == [0, 51]


def test_steps_are_counted_for_each_env_by_itself(make: Make) -> None:
    venv = make()
    venv.send_reset(seed=7)
    venv.recv(min_envs=4)
    for _ in range(3):
        venv.send(np.zeros(1, int), [2])
        venv.recv()
    with pytest.raises(rookery.EnvFailed) as error:
        venv.step(np.array([0, 0, Fault.RAISE, 0]))
    assert error.value.steps_since_reset == 4


def test_a_worker_that_is_killed_is_named_even_while_others_answer() -> None:
    with rookery.make_vec(Faulty, NUM_ENVS, isolate=True) as venv:
        venv.reset(seed=0)
        worker = psutil.Process(venv.pids[2])
        worker.kill()
        psutil.wait_procs([worker], timeout=PATIENCE_S)
        venv.send(np.zeros(4, int))
        with pytest.raises(rookery.WorkerDied, match="SIGKILL") as error:
            while True:
                ids = venv.recv(timeout=PATIENCE_S)[5]
                venv.send(np.zeros(len(ids), int), ids)
        assert error.value.env_ids == (2,)


@pytest.mark.slow
def test_a_hung_env_is_killed_at_its_deadline() -> None:
    policy = FaultPolicy(step_timeout_s=DEADLINE_S)
    with rookery.make_vec(Faulty, NUM_ENVS, isolate=True, faults=policy) as venv:
        venv.reset(seed=0)
        venv.send(np.array([0, Fault.HANG_NATIVE, 0, 0]))
        assert _receive_all(venv, 3) == {0, 2, 3}
        with pytest.raises(rookery.WorkerTimeout, match="_hang_in_native_code") as error:
            venv.recv(timeout=PATIENCE_S)
        assert error.value.env_ids == (1,)


@pytest.mark.slow
def test_an_env_that_steps_again_and_again_is_not_taken_for_hung() -> None:
    policy = FaultPolicy(step_timeout_s=DEADLINE_S)
    with rookery.make_vec(Faulty, 1, isolate=True, faults=policy) as venv:
        venv.reset(seed=0)
        for count in range(1 + int(DEADLINE_S / PAUSE_S)):
            venv.send(np.array([Fault.PAUSE]))
            assert venv.recv(timeout=PATIENCE_S)[0][0, 0] == count + 1


def test_closing_while_envs_are_busy_leaves_nothing(tmp_path: Path) -> None:
    venv, _ = _gated(tmp_path)
    pids = venv.pids
    venv.send_reset(seed=0)
    venv.close(timeout=0.2)
    assert not any(psutil.pid_exists(pid) for pid in pids)


RESTART = FaultPolicy("restart", step_timeout_s=DEADLINE_S)


@pytest.mark.parametrize(
    ("fault", "mode"),
    [
        *((fault, mode) for fault in (Fault.KILL, Fault.RAISE) for mode in AutoresetMode),
        (Fault.HANG, AutoresetMode.NEXT_STEP),
    ],
)
def test_a_fault_closes_the_transitions_of_its_worker(fault: Fault, mode: AutoresetMode) -> None:
    with rookery.make_vec(
        Stuck, NUM_ENVS, num_workers=2, backend="process", faults=RESTART, autoreset_mode=mode
    ) as venv:
        venv.send_reset(seed=10)
        venv.recv(min_envs=4)
        venv.send(np.zeros(4, int))
        venv.recv(min_envs=4)
        venv.send(np.array([0, fault]), [0, 2])  # env 3 is idle when its worker is lost
        obs, reward, terminated, truncated, info, ids = venv.recv(min_envs=2, timeout=PATIENCE_S)
        row, other = ids.tolist().index(2), ids.tolist().index(0)
        assert (reward[row], terminated[row], truncated[row]) == (0.0, False, True)
        assert (reward[other], truncated[other]) == (1.0, False)
        assert info["_fault"].tolist() == [i == 2 for i in ids]
        same_step = mode is AutoresetMode.SAME_STEP
        assert obs[row, 0] == (0 if same_step else 1)
        if same_step:
            assert info["final_obs"][row][0] == 1
        venv.send(np.zeros(1, int), [3])
        obs, reward, _, truncated, info, ids = venv.recv(timeout=PATIENCE_S)
        assert ids.tolist() == [3] and truncated.tolist() == [True] and reward.tolist() == [0.0]
        assert info["fault"]["attempt"].tolist() == [1]
        assert obs[0, 0] == (0 if same_step else 1)
        if same_step:
            assert info["final_obs"][0][0] == 1
        if mode is AutoresetMode.DISABLED:
            venv.send_reset(env_ids=[2, 3])
            venv.recv(min_envs=2, timeout=PATIENCE_S)
        venv.send(np.zeros(2, int), [2, 3])
        obs, reward, _, truncated, info, ids = venv.recv(min_envs=2, timeout=PATIENCE_S)
        assert not truncated.any() and not info
        assert obs[:, 0].tolist() == ([0, 0] if mode is AutoresetMode.NEXT_STEP else [1, 1])


def test_a_reset_that_was_lost_is_done_again() -> None:
    with rookery.make_vec(Faulty, 2, num_workers=1, backend="process", faults=RESTART) as venv:
        venv.reset(seed=3)
        os.kill(venv.pids[0], signal.SIGKILL)
        venv.send_reset(seed=8)
        obs, *_, ids = venv.recv(min_envs=2, timeout=PATIENCE_S)
        assert sorted(zip(ids.tolist(), obs[:, 1].tolist(), strict=True)) == [(0, 8), (1, 9)]
        assert venv.step(np.zeros(2, int))[0][:, 0].tolist() == [1, 1]


def test_a_loss_that_nobody_was_told_of_is_told_in_lock_step() -> None:
    with rookery.make_vec(Faulty, 2, num_workers=1, backend="process", faults=RESTART) as venv:
        venv.reset(seed=3)
        venv.send(np.array([Fault.KILL]), [0])
        venv.recv(timeout=PATIENCE_S)
        _, _, _, truncated, info = venv.step(np.zeros(2, int))
        assert truncated.tolist() == info["_fault"].tolist() == [False, True]  # env 0 was told
        assert not venv.step(np.zeros(2, int))[3].any()
