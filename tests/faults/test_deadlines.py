"""Only an env that hangs is named, shown with its stack and killed."""

from __future__ import annotations

import time
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
import pytest
from patience import DEADLINE_S, PATIENCE_S

import rookery
from rookery import FaultPolicy
from rookery.testing import Fault, Faulty


def _make(faults: FaultPolicy, **options: Any) -> rookery.VectorEnv:
    options = {"env": Faulty, "num_envs": 4, "num_workers": 2, **options}
    return rookery.make_vec(backend="process", faults=faults, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "fault", "place"),
    [
        ("forkserver", Fault.HANG_NATIVE, "_hang_in_native_code"),
        # Computes until its deadline, and is less hard to ask and to end than the others.
        pytest.param("forkserver", Fault.HANG, "_loop_forever", marks=pytest.mark.whole),
        ("spawn", Fault.HANG_NATIVE, "_hang_in_native_code"),
        ("fork", Fault.HANG_NATIVE, "_hang_in_native_code"),
    ],
)
def test_a_hung_step_is_named_with_the_stack_of_its_process(
    method: str, fault: Fault, place: str
) -> None:
    with _make(FaultPolicy(step_timeout_s=DEADLINE_S), start_method=method) as venv:
        venv.reset()
        process = psutil.Process(venv.pids[1])
        late = rf"Env 3 .*step within {DEADLINE_S} s"
        with pytest.raises(rookery.WorkerTimeout, match=late) as caught:
            venv.step(np.array([0, 0, 0, fault]))
        assert caught.value.env_ids == (3,) and caught.value.command == "step"
        assert caught.value.steps_since_reset == 1 and caught.value.last_action == fault
        assert f"in {place}" in str(caught.value) and "faulty.py" in str(caught.value)
        assert not psutil.wait_procs([process], timeout=PATIENCE_S)[1]


# A single env that hangs misses any deadline, and no other can be late in its place: these may be
# short.


def test_a_hung_reset_has_a_separate_deadline() -> None:
    with (
        _make(FaultPolicy(reset_timeout_s=0.2), num_envs=1, num_workers=1) as venv,
        pytest.raises(rookery.WorkerTimeout, match=r"Env 0 .*reset within 0.2 s"),
    ):
        venv.reset(options={"fault": Fault.HANG_NATIVE})


def test_a_time_out_is_caught_as_any_time_out() -> None:
    with _make(FaultPolicy(step_timeout_s=0.2), num_envs=1, num_workers=1) as venv:
        venv.reset()
        with pytest.raises(TimeoutError):
            venv.step(np.array([Fault.HANG_NATIVE]))


class Sleepy(Faulty):
    """Takes as many seconds for a step as its action says."""

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        time.sleep(float(action))
        return super().step(0)


@pytest.mark.slow
def test_the_deadline_is_for_each_env_not_for_the_batch() -> None:
    faults = FaultPolicy(step_timeout_s=DEADLINE_S)
    with _make(faults, env=Sleepy, num_envs=8, num_workers=1) as venv:
        venv.reset()
        obs = venv.step(np.full(8, 1))[0]
        assert obs[:, 0].tolist() == [1] * 8


class _LaterClock:
    """The module ``time``, one hour later for the code that checks deadlines."""

    def perf_counter(self) -> float:
        return time.perf_counter() + 3600


@pytest.mark.parametrize("is_asked", [True, False], ids=["answered", "not asked"])
def test_an_idle_worker_is_never_late(is_asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller's time before a step, and before waiting for it, does not count."""
    faults = FaultPolicy(step_timeout_s=DEADLINE_S, reset_timeout_s=DEADLINE_S)
    with _make(faults) as venv:
        venv.reset()
        if is_asked:
            venv.step_async(np.zeros(4, int))
        monkeypatch.setattr("rookery.worker.fault_policy.time", _LaterClock())
        if not is_asked:
            venv.step_async(np.zeros(4, int))
        assert venv.step_wait()[0][:, 0].tolist() == [1, 1, 1, 1]
        assert venv.step(np.zeros(4, int))[0][:, 0].tolist() == [2, 2, 2, 2]


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
def test_an_invalid_fault_policy_raises(settings: dict[str, Any]) -> None:
    with pytest.raises(rookery.ConfigError):
        FaultPolicy(**settings)


def test_deadlines_do_not_change_results() -> None:
    reference = gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 3)
    expected, _ = reference.reset(seed=3)
    faults = FaultPolicy("restart", step_timeout_s=PATIENCE_S, reset_timeout_s=PATIENCE_S)
    with rookery.make_vec("CartPole-v1", 3, faults=faults) as venv:
        actual, _ = venv.reset(seed=3)
        for _ in range(100):
            np.testing.assert_array_equal(actual, expected)
            actions = np.array([0, 1, 1])
            actual, expected = venv.step(actions)[0], reference.step(actions)[0]
    reference.close()
