"""A hung env is named, shown and ended; nobody else is."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import psutil
import pytest

import rookery
from rookery import FaultPolicy
from rookery.testing import Fault, Faulty


def _make(faults: FaultPolicy, **options: Any) -> rookery.VectorEnv:
    options = {"num_workers": 2, **options}
    return rookery.make_vec(Faulty, 4, backend="process", faults=faults, **options)


@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
@pytest.mark.parametrize(
    ("fault", "place"), [(Fault.HANG, "_loop_for_ever"), (Fault.HANG_NATIVE, "_commit")]
)
def test_a_hung_step_is_named_with_the_stack_of_its_process(
    method: str, fault: Fault, place: str
) -> None:
    with _make(FaultPolicy(step_timeout_s=0.3), start_method=method) as venv:
        venv.reset()
        process = psutil.Process(venv.pids[1])
        with pytest.raises(rookery.WorkerTimeout, match=r"Env 3 .*step within 0.3 s") as caught:
            venv.step(np.array([0, 0, 0, fault]))
        assert caught.value.env_ids == (3,) and caught.value.command == "step"
        assert caught.value.steps_since_reset == 1 and caught.value.last_action == fault
        assert f"in {place}" in str(caught.value) and "faulty.py" in str(caught.value)
        assert not psutil.wait_procs([process], timeout=10)[1]


def test_a_hung_reset_has_a_deadline_of_its_own() -> None:
    with (
        _make(FaultPolicy(reset_timeout_s=0.2)) as venv,
        pytest.raises(rookery.WorkerTimeout, match=r"Env 0 .*reset within 0.2 s"),
    ):
        venv.reset(options={"fault": Fault.HANG})


def test_a_time_out_is_caught_as_any_time_out() -> None:
    with _make(FaultPolicy(step_timeout_s=0.2)) as venv:
        venv.reset()
        with pytest.raises(TimeoutError):
            venv.step(np.array([Fault.HANG, 0, 0, 0]))


def test_steps_that_are_slow_together_but_not_alone_are_no_fault() -> None:
    with _make(FaultPolicy(step_timeout_s=0.6), num_workers=1) as venv:
        venv.reset()
        obs = venv.step(np.full(4, Fault.PAUSE))[0]
        assert obs[:, 0].tolist() == [1, 1, 1, 1]


def test_an_idle_worker_is_never_late() -> None:
    with _make(FaultPolicy(step_timeout_s=0.05, reset_timeout_s=0.05)) as venv:
        venv.reset()
        venv.step_async(np.zeros(4, int))
        worker = psutil.Process(venv.pids[0])
        while worker.status() == psutil.STATUS_RUNNING:
            pass
        assert venv.step_wait()[0][:, 0].tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("options", [{"backend": "serial"}, {"caller_steps": True}])
@pytest.mark.parametrize("faults", [FaultPolicy(step_timeout_s=1), FaultPolicy("restart")])
def test_envs_of_the_calling_process_cannot_be_supervised(
    options: dict[str, Any], faults: FaultPolicy
) -> None:
    with pytest.raises(rookery.ConfigError, match="this process"):
        rookery.make_vec(Faulty, 2, **{"backend": "process", **options}, faults=faults)


@pytest.mark.parametrize(
    "settings",
    [
        {"on_fault": "ignore"},
        {"max_restarts": -1},
        {"step_timeout_s": 0},
        {"max_worker_rss_mb": 100},
    ],
)
def test_a_policy_that_cannot_be_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(rookery.ConfigError):
        FaultPolicy(**settings)


def test_gymnasiums_own_env_under_deadlines_is_as_without() -> None:
    reference = gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 3)
    expected, _ = reference.reset(seed=3)
    faults = FaultPolicy("restart", step_timeout_s=5, reset_timeout_s=5)
    with rookery.make_vec("CartPole-v1", 3, faults=faults) as venv:
        actual, _ = venv.reset(seed=3)
        for _ in range(100):
            np.testing.assert_array_equal(actual, expected)
            actions = np.array([0, 1, 1])
            actual, expected = venv.step(actions)[0], reference.step(actions)[0]
    reference.close()
