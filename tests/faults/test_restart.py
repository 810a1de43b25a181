"""With on_fault="restart" a fault truncates the pending steps of one worker and is reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from patience import DEADLINE_S
from stuck import Stuck

import rookery
from rookery import FaultPolicy, seeding
from rookery.testing import Fault

FAULTS = [Fault.RAISE, Fault.KILL, Fault.EXIT, Fault.SEGFAULT, Fault.HANG, Fault.WRONG_SHAPE]
POLICY = FaultPolicy("restart", step_timeout_s=DEADLINE_S)


def _make(policy: FaultPolicy = POLICY, **options: Any) -> rookery.VectorEnv:
    options = {"num_workers": 2, **options}
    return rookery.make_vec(Stuck, 4, backend="process", faults=policy, **options)


def _counts(obs: Any) -> list[float]:
    return [float(count) for count in obs[:, 0]]


@pytest.mark.parametrize(
    ("fault", "copy"),
    [*((fault, True) for fault in FAULTS), (Fault.RAISE, False), (Fault.KILL, False)],
)
def test_next_step_returns_the_last_observation_now_and_the_reset_next(
    fault: Fault, copy: bool
) -> None:
    with _make(copy=copy) as venv:
        venv.reset(seed=10)
        venv.step(np.zeros(4, int))
        obs, reward, terminated, truncated, info = venv.step(np.array([0, 0, fault, 0]))
        assert _counts(obs) == [2, 2, 1, 1]
        assert reward.tolist() == [1, 1, 0, 0]
        assert terminated.tolist() == [False] * 4
        assert truncated.tolist() == [False, False, True, True]
        assert info["_fault"].tolist() == [False, False, True, True]
        assert info["fault"]["env_ids"][2] == (2, 3)
        assert info["fault"]["attempt"].tolist() == [0, 0, 1, 1]
        assert "Stuck" in info["fault"]["cause"][3]
        obs, reward, terminated, truncated, info = venv.step(np.zeros(4, int))
        assert _counts(obs) == [3, 3, 0, 0]
        assert reward.tolist() == [1, 1, 0, 0]
        assert not truncated.any() and not info
        expected = [seeding.derived_seed(12, 1), seeding.derived_seed(13, 1)]
        assert obs[2:, 1].tolist() == np.array(expected, np.float32).tolist()
        assert _counts(venv.step(np.zeros(4, int))[0]) == [4, 4, 1, 1]


def test_same_step_returns_the_reset_now_and_the_last_observation_as_final() -> None:
    with _make(autoreset_mode="same_step") as venv:
        venv.reset(seed=10)
        venv.step(np.zeros(4, int))
        obs, reward, _, truncated, info = venv.step(np.array([0, Fault.KILL, 0, 0]))
        assert _counts(obs) == [0, 0, 2, 2]
        assert reward.tolist() == [0, 0, 1, 1]
        assert truncated.tolist() == [True, True, False, False]
        assert info["_final_obs"].tolist() == [True, True, False, False]
        assert [list(final) for final in info["final_obs"][:2]] == [[1, 10], [1, 11]]
        assert info["_fault"].tolist() == [True, True, False, False]
        assert _counts(venv.step(np.zeros(4, int))[0]) == [1, 1, 3, 3]


def test_disabled_waits_for_the_callers_reset() -> None:
    with _make(autoreset_mode="disabled", num_workers=4) as venv:
        venv.reset(seed=10)
        obs, _, _, truncated, _info = venv.step(np.array([0, 0, 0, Fault.EXIT]))
        assert truncated.tolist() == [False, False, False, True] and _counts(obs) == [1, 1, 1, 0]
        with pytest.raises(rookery.UsageError, match="reset_mask"):
            venv.step(np.zeros(4, int))
        obs, _ = venv.reset(options={"reset_mask": truncated})
        assert _counts(venv.step(np.zeros(4, int))[0])[3] == 1


def test_a_fault_in_reset_is_tried_again_until_the_budget_is_spent() -> None:
    for fault, error in ((Fault.KILL, rookery.WorkerDied), (Fault.RAISE, KeyError)):
        with _make(FaultPolicy("restart", max_restarts=2)) as venv:
            before = set(venv.pids)
            with pytest.raises(error):
                venv.reset(options={"fault": fault})
            assert not before & set(venv.pids)


def test_past_the_budget_a_fault_raises() -> None:
    with _make(FaultPolicy("restart", max_restarts=2, window_s=1000)) as venv:
        venv.reset()
        bad = np.array([Fault.RAISE, 0, 0, 0])
        for _ in range(2):
            assert venv.step(bad)[3].tolist() == [True, True, False, False]
            venv.step(np.zeros(4, int))
        with pytest.raises(KeyError):
            venv.step(bad)


def test_attributes_that_were_set_are_set_again() -> None:
    with _make() as venv:
        venv.reset()
        venv.set_attr("label", ["a", "b", "c", "d"])
        venv.step(np.array([0, 0, 0, Fault.KILL]))
        assert venv.get_attr("label") == ("a", "b", "c", "d")


def test_closing_while_a_worker_restarts_leaves_nothing() -> None:
    venv = _make()
    venv.reset()
    venv.step(np.array([0, 0, 0, Fault.KILL]))
    venv.close()


def test_a_worker_that_grows_is_replaced_when_an_episode_ends(monkeypatch: Any) -> None:
    monkeypatch.setattr("rookery.worker.fault_policy._MEMORY_CHECK_S", 0.0)
    with _make(FaultPolicy("restart", max_worker_rss_mb=250)) as venv:
        venv.reset()
        before = venv.pids
        for _ in range(4):
            venv.step(np.array([Fault.GROW, 0, 0, 0]))
        _, _, terminated, truncated, info = venv.step(np.array([0, Fault.END, 0, Fault.END]))
        assert venv.pids[0] != before[0] and venv.pids[1] == before[1]
        assert terminated.tolist() == [False, True, False, True]
        assert not truncated.any() and "fault" not in info
        obs, _, _, truncated, info = venv.step(np.zeros(4, int))
        assert truncated.tolist() == info["_fault"].tolist() == [True, False, False, False]
        assert "max_worker_rss_mb" in info["fault"]["cause"][0]
        assert _counts(obs) == [5, 0, 6, 0]
        assert _counts(venv.step(np.zeros(4, int))[0]) == [0, 1, 7, 1]


def test_a_worker_is_not_replaced_for_the_size_of_its_predecessor(monkeypatch: Any) -> None:
    complaints = iter(["too large"])  # the first worker's, after the first step

    def look(watch: Any, pid: int) -> None:
        watch.complaint = watch.complaint or next(complaints, "")

    monkeypatch.setattr("rookery.worker.fault_policy.MemoryWatch.look", look)
    with _make(FaultPolicy("restart", max_worker_rss_mb=250)) as venv:
        venv.reset()
        venv.step(np.zeros(4, int))
        _, _, _, _, info = venv.step(np.array([Fault.RAISE, 0, 0, 0]))
        assert info["fault"]["attempt"].tolist() == [1, 1, 0, 0]
        venv.step(np.zeros(4, int))
        replaced = venv.pids
        _, _, terminated, _, info = venv.step(np.array([Fault.END, 0, 0, 0]))
        assert terminated.tolist() == [True, False, False, False]
        assert venv.pids == replaced and "fault" not in info


def test_no_transition_is_lost_or_returned_twice_while_workers_die() -> None:
    rng = np.random.default_rng(0)
    with _make(FaultPolicy("restart", max_restarts=1000)) as venv:
        obs, _ = venv.reset(seed=0)
        counts = obs[:, 0]
        for _ in range(300):
            actions = np.where(rng.random(4) < 0.01, Fault.KILL, 0)
            obs, reward, _, truncated, info = venv.step(actions)
            faulted = info.get("_fault", np.zeros(4, bool))
            was_reset = (reward == 0) & ~faulted
            np.testing.assert_array_equal(
                obs[:, 0], np.where(was_reset, 0, np.where(faulted, counts, counts + 1))
            )
            np.testing.assert_array_equal(truncated, faulted)
            counts = obs[:, 0]
