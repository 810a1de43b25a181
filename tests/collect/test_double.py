"""Two halves that step by turns."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from certain import Certain

import rookery
from rookery.rollout.rollout import side_by_side
from rookery.testing.faulty import Fault, Faulty

T = 30


def _make(num_envs: int, autoreset_mode: str, backend: str = "process"):
    return rookery.make_vec(
        "CartPole-v1", num_envs, backend=backend, num_workers=1, autoreset_mode=autoreset_mode
    )


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_two_halves_collect_what_two_collectors_do(mode):
    with _make(2, mode) as left, _make(3, mode) as right:
        double = rookery.DoubleBufferedCollector((left, right), Certain(left), T, seed=5)
        actual = [double.collect() for _ in range(3)]
    with _make(2, mode, "serial") as left, _make(3, mode, "serial") as right:
        singles = [
            rookery.SyncCollector(venv, Certain(venv), T, seed=seed)
            for venv, seed in ((left, 5), (right, [7, 8, 9]))
        ]
        expected = [side_by_side([single.collect() for single in singles]) for _ in range(3)]
    for a, e in zip(actual, expected, strict=True):
        e.env_ids = np.arange(5)
        for field in fields(rookery.Rollout):
            np.testing.assert_array_equal(
                getattr(a, field.name), getattr(e, field.name), err_msg=field.name
            )


def test_a_reset_starts_new_episodes_in_both_halves_with_their_own_seeds():
    with _make(2, "same_step") as left, _make(3, "same_step") as right:
        double = rookery.DoubleBufferedCollector((left, right), Certain(left), T, seed=5)
        first = double.collect()
        double.reset(range(5, 10))
        np.testing.assert_array_equal(double.collect().obs, first.obs)
        double.reset()
        assert (double.collect().obs[0] != first.obs[0]).any()


def test_telemetry_counts_both_halves_on():
    with _make(2, "same_step") as left, _make(3, "same_step") as right:
        double = rookery.DoubleBufferedCollector((left, right), Certain(left), T, seed=5)
        double.collect()
        found = double.telemetry()
        pids = (*left.pids, *right.pids)
    assert found.vector_steps == T and found.env_steps == 5 * T
    assert [env.env_id for env in found.envs] == [0, 1, 2, 3, 4]
    assert [env.worker for env in found.envs] == [0, 0, 1, 1, 1]
    assert {env.steps for env in found.envs} == {T}
    assert [(backend.pid, backend.env_ids) for backend in found.workers] == [
        (pids[0], range(2)),
        (pids[1], range(2, 5)),
    ]


class Noted(rookery.Policy):
    """Notes in which order halves act and envs are waited for."""

    def __init__(self, notes):
        self.notes = notes

    def act(self, obs, deterministic=False):
        self.notes.append(f"act {len(obs)}")
        zeros = np.zeros(len(obs), np.int64)
        return rookery.PolicyStep(zeros, zeros.astype(np.float32), zeros.astype(np.float32))


def test_the_policy_acts_on_one_half_while_the_other_steps(monkeypatch):
    notes: list[str] = []
    with _make(1, "same_step") as left, _make(2, "same_step") as right:
        for venv in (left, right):
            wait = venv.step_wait
            monkeypatch.setattr(
                venv,
                "step_wait",
                lambda wait=wait, n=venv.num_envs: notes.append(f"wait {n}") or wait(),
            )
        rookery.DoubleBufferedCollector((left, right), Noted(notes), 2).collect()
    assert notes[:8] == [
        *("act 1", "act 2", "wait 1", "act 1", "wait 2", "act 2", "wait 1", "wait 2")
    ]


class Failing(rookery.Policy):
    """Has the first env of the second half fail, once."""

    calls = 0

    def act(self, obs, deterministic=False):
        self.calls += 1
        action = np.zeros(len(obs), np.int64)
        if self.calls == 4:
            action[0] = Fault.RAISE
        zeros = np.zeros(len(obs), np.float32)
        return rookery.PolicyStep(action, zeros, zeros)


def test_after_an_error_no_half_has_a_pending_step():
    halves = [rookery.make_vec(Faulty, 2, backend="process", num_workers=1) for _ in range(2)]
    collector = rookery.DoubleBufferedCollector(tuple(halves), Failing(), 5)
    with pytest.raises(rookery.EnvFailed, match="lost key"):
        collector.collect()
    assert collector.collect().obs[:, :, 0].tolist() == [[t] * 4 for t in range(5)]
    for half in halves:
        half.close()
