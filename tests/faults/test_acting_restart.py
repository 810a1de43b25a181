"""Workers in which the policy acts are replaced, too, and their losses are reported."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from patience import DEADLINE_S
from tallying import EXIT, HANG, KILL, RAISE, Tally

import rookery
from rookery import DQNConfig, FaultPolicy, PPOConfig, Rollout, WorkerCollector, seeding
from rookery.learn.off_policy.dqn import DQN
from rookery.learn.on_policy.batches import advantage_batch, evaluate
from rookery.learn.on_policy.ppo import PPO
from rookery.policy import make_policy
from rookery.rollout.replay import Replay
from rookery.rollout.rollout import side_by_side

T = 8
MODES = ["sync", "async"]
PATIENT = FaultPolicy("restart", max_restarts=50, step_timeout_s=60, reset_timeout_s=60)
pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals")


def _envs(folder: Path, faulty: dict[int, dict[str, Any]] | None = None, **options: Any) -> Any:
    """Four envs. Some of them fail."""
    return [partial(Tally, i, folder, **options, **(faulty or {}).get(i, {})) for i in range(4)]


def _collector(envs: Any, policy: Any = make_policy, **options: Any) -> WorkerCollector:
    options = {"num_workers": 2, "num_steps": T, "seed": 10, "faults": PATIENT, **options}
    return WorkerCollector(envs, policy, 4, **options)


class Follower:
    """Checks that rollouts of a `Tally` are consecutive, and counts what was lost."""

    def __init__(self) -> None:
        self.last: dict[int, Any] = {}
        self.lost = 0
        self.begun_anew: set[int] = set()  # with a rollout
        self.cut_short: set[int] = set()  # amid one

    def follow(self, rollout: Rollout) -> None:
        for b, env_id in enumerate(rollout.env_ids.tolist()):
            self._follow(rollout, b, env_id)
        self.lost += int((~rollout.valid).sum())

    def _follow(self, rollout: Rollout, b: int, env_id: int) -> None:
        shown = [*rollout.obs[:, b], rollout.last_obs[b]]
        assert all(obs[0] == env_id for obs in shown)
        if rollout.after_reset[b]:
            assert shown[0][1] == 0
            if env_id in self.last:
                self.begun_anew.add(env_id)
        elif env_id in self.last:
            np.testing.assert_array_equal(shown[0], self.last[env_id])
        ends = {int(t): obs for (t, k), obs in zip(
            rollout.final_index, rollout.final_obs, strict=True) if k == b}  # fmt: skip
        for t in range(rollout.num_steps):
            count, after = shown[t][1], shown[t + 1][1]
            done, valid = rollout.done[t, b], rollout.valid[t, b]
            assert after == (0 if done else count + 1)
            if valid:
                assert rollout.reward[t, b] == 1.0
            else:
                self.cut_short.add(env_id)
                assert rollout.truncated[t, b] and not rollout.terminated[t, b]
                np.testing.assert_array_equal(ends[t], shown[t])
            if valid and done and t in ends:
                np.testing.assert_array_equal(ends[t], [env_id, count + 1, shown[t][2]])
        self.last[env_id] = shown[-1].copy()


def _collect(
    collector: WorkerCollector, count: int, follower: Follower, learns: bool = False
) -> list[Rollout]:
    """Collect some rollouts, and wait for all workers now and then, like a learner."""
    rollouts = []
    for _ in range(count):
        rollout = side_by_side([collector.collect()])
        follower.follow(rollout)
        rollouts.append(rollout)
        collector.policy.version += learns
    return rollouts


def _end(pid: int) -> None:
    process = psutil.Process(pid)  # before it is gone
    process.kill()
    process.wait(60)


# ---------------------------------------------------------------- in step with the learner


@pytest.mark.slow
@pytest.mark.parametrize("fault", [KILL, EXIT, RAISE, HANG])
def test_the_row_of_a_fault_is_left_out_and_all_others_are_kept(tmp_path: Path, fault: str) -> None:
    faults = PATIENT if fault != HANG else FaultPolicy("restart", step_timeout_s=DEADLINE_S)
    faulty, follower = {2: {"steps": {T + 4: fault}}}, Follower()
    with _collector(_envs(tmp_path, faulty), faults=faults) as collector:
        pids = collector.pids
        rollouts = _collect(collector, 4, follower)
        assert collector.pids[0] == pids[0] and collector.pids[1] != pids[1]
        statistics = collector.statistics()
    assert (statistics.restarts, statistics.lost_rows) == (1, 2) == (1, follower.lost)
    assert np.argwhere(~rollouts[1].valid).tolist() == [[3, 2], [3, 3]]
    assert all(rollouts[k].valid.all() for k in (0, 2, 3))
    assert not follower.begun_anew
    # Seeds are derived as those of any env that takes the place of another.
    seeds = [seeding.derived_seed(12, 1), seeding.derived_seed(13, 1)]
    assert rollouts[1].obs[4, 2:, 2].tolist() == seeds
    # What the policy says was computed for all rows, by the weights that acted.
    obs, action = (x.reshape(-1, *x.shape[2:]) for x in (rollouts[1].obs, rollouts[1].action))
    log_prob, value = collector.policy.assess(obs, action)
    np.testing.assert_allclose(rollouts[1].log_prob.ravel(), log_prob, atol=1e-5)
    np.testing.assert_allclose(rollouts[1].value.ravel(), value, atol=1e-5)


def test_the_other_workers_go_on_untouched(tmp_path: Path) -> None:
    faulty = {3: {"steps": {3: KILL, 13: RAISE}}}
    (tmp_path / "none").mkdir()
    with _collector(_envs(tmp_path, faulty)) as one, _collector(_envs(tmp_path / "none")) as other:
        for _ in range(4):
            ours, theirs = one.collect(), other.collect()
            for name in ("obs", "action", "reward", "log_prob", "value", "valid"):
                pair = getattr(ours, name)[:, :2], getattr(theirs, name)[:, :2]
                np.testing.assert_array_equal(*pair, err_msg=name)
        assert one.statistics().restarts == 2


def test_several_faults_in_one_rollout_leave_out_a_row_each(tmp_path: Path) -> None:
    faulty = {0: {"steps": {2: KILL, 3: RAISE}}, 1: {"steps": {1: RAISE}}}
    follower = Follower()
    with _collector(_envs(tmp_path, faulty)) as collector:
        first, *_ = _collect(collector, 2, follower)
        assert collector.statistics().restarts == 3
        assert collector.statistics().lost_rows == follower.lost
    # Steps are counted by the envs: after each restart anew.
    assert sorted({t for t, b in np.argwhere(~first.valid).tolist() if b < 2}) == [0, 2, 5]
    assert first.valid[:, 2:].all()


@pytest.mark.parametrize("step", [1, T])
def test_a_fault_in_the_first_or_the_last_row_is_one_as_well(tmp_path: Path, step: int) -> None:
    follower = Follower()
    with _collector(_envs(tmp_path, {3: {"steps": {step: KILL}}})) as collector:
        rollouts = _collect(collector, 3, follower)
    assert np.argwhere(~rollouts[0].valid).tolist() == [[step - 1, 2], [step - 1, 3]]
    assert rollouts[1].valid.all() and rollouts[2].valid.all()


def test_episodes_whose_cut_off_ends_went_with_the_worker_are_left_out(tmp_path: Path) -> None:
    for cuts in (True, False):
        folder, follower = tmp_path / str(cuts), Follower()
        folder.mkdir()
        envs = _envs(folder, {2: {"steps": {7: KILL}}}, cuts=cuts)
        with _collector(envs, info_keys=("number",)) as collector:
            rollout = _collect(collector, 1, follower)[0]
            assert collector.statistics().lost_rows == follower.lost
        # Their episodes have ended in row 4; a termination needs no observation to learn from.
        lost = [[4, 2], [4, 3], [6, 2], [6, 3]] if cuts else [[6, 2], [6, 3]]
        assert np.argwhere(~rollout.valid).tolist() == lost
        known = [] if not cuts else [[4, 2], [4, 3]]
        assert rollout.final_index.tolist() == [[4, 0], [4, 1], *known, [6, 2], [6, 3]]
        told = rollout.final_info["number"]
        assert np.isnan(told[2:]).all() and (told[:2] == 7.0).all()


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", [RAISE, HANG, KILL])
def test_a_fault_in_a_reset_is_one_of_its_step(tmp_path: Path, fault: str, mode: str) -> None:
    faults = FaultPolicy("restart", step_timeout_s=DEADLINE_S, reset_timeout_s=DEADLINE_S)
    follower = Follower()
    envs = _envs(tmp_path, {1: {"resets": {2: fault}}})  # at the end of its first episode
    with _collector(envs, faults=faults, mode=mode) as collector:
        rollouts = _collect(collector, 8, follower, learns=True)
        assert collector.statistics().restarts == 1
    if mode == "sync":
        assert np.argwhere(~rollouts[0].valid).tolist() == [[4, 0], [4, 1]]


@pytest.mark.parametrize("fault", [RAISE, KILL])
def test_a_fault_in_the_first_reset_is_tried_again(tmp_path: Path, fault: str) -> None:
    follower = Follower()
    with _collector(_envs(tmp_path, {1: {"resets": {1: fault}}})) as collector:
        rollout = _collect(collector, 2, follower)[0]
        assert collector.statistics() == rookery.collect.CollectorStatistics(1, 0)
    assert rollout.obs[0, :, 2].tolist() == [10, 11, 12, 13]  # with the seeds that were given


@pytest.mark.parametrize("mode", MODES)
def test_a_worker_that_dies_between_rollouts_costs_its_episodes_alone(
    tmp_path: Path, mode: str
) -> None:
    follower = Follower()
    with _collector(_envs(tmp_path, length=1000), mode=mode, max_policy_lag=2) as collector:
        while len(follower.last) < 4:  # in async a worker may be first several times
            _collect(collector, 2, follower)
        for pid in collector.pids:
            _end(pid)
        while len(follower.begun_anew | follower.cut_short) < 4:
            _collect(collector, 1, follower)
        statistics = collector.statistics()
    assert statistics.restarts == 2
    if mode == "sync":  # in async a worker may be amid its next rollout
        assert (follower.lost, statistics.lost_rows) == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "mode"),
    [
        # Half a minute passes until a worker has started too late.
        pytest.param(fault, mode, marks=[pytest.mark.whole] * ((fault, mode) == (HANG, "async")))
        for fault in (HANG, RAISE, KILL)
        for mode in MODES
    ],
)
def test_a_new_worker_that_fails_while_its_envs_are_made_is_replaced_too(
    tmp_path: Path, fault: str, mode: str
) -> None:
    faults = FaultPolicy("restart", make_timeout_s=5 * DEADLINE_S if fault == HANG else None)
    follower = Follower()
    envs = _envs(tmp_path, {2: {"steps": {4: KILL}, "makes": {2: fault}}})
    with _collector(envs, faults=faults, mode=mode) as collector:
        _collect(collector, 8, follower, learns=True)
        assert collector.statistics().restarts == 2


def test_past_the_budget_the_fault_is_raised(tmp_path: Path) -> None:
    faulty = {0: {"steps": {3: RAISE, 4: RAISE, 5: RAISE}}}
    faults = FaultPolicy("restart", max_restarts=2, window_s=10_000)
    for mode in MODES:
        folder = tmp_path / mode
        folder.mkdir()
        with _collector(_envs(folder, faulty), faults=faults, mode=mode) as collector:
            with pytest.raises(rookery.EnvFailed, match="lost key") as caught:
                _collect(collector, 20, Follower(), learns=True)
            assert caught.value.env_ids == (0,)
            assert "replaced 2 times within 10000 s, which is all that max_restarts=2" in str(
                caught.value
            )
            with pytest.raises(rookery.ClosedError):
                collector.collect()


def test_messages_name_the_action_of_a_worker_that_was_replaced_before(tmp_path: Path) -> None:
    faults = FaultPolicy("restart", max_restarts=1, window_s=10_000)
    envs = _envs(tmp_path, {0: {"steps": {3: RAISE, 4: KILL}}}, actions=1, length=1000)
    with _collector(envs, faults=faults) as collector:
        board = collector._pool._buffers
        with pytest.raises(rookery.WorkerDied) as caught:
            collector.collect()
        action = board._views["action"][0, 6, 0]
    assert caught.value.steps_since_reset == 4 and caught.value.last_action == action
    assert caught.value.seed == 10


# ---------------------------------------------------------------- the policy


def test_no_two_copies_of_the_policy_draw_the_same_numbers(tmp_path: Path) -> None:
    faulty = {0: {"steps": {3: KILL, 4: RAISE}}, 2: {"steps": {6: RAISE}}}
    envs = _envs(tmp_path, faulty, actions=2, length=1000)
    with _collector(envs) as collector:
        rollouts = _collect(collector, 2, Follower())
        assert collector.statistics().restarts == 3
        mean = collector.policy.act(rollouts[0].obs[0], deterministic=True).action
        assert mean.shape == (4, 2)
        policy, noise = collector.policy, []
        for rollout in rollouts:
            for obs, action in zip(rollout.obs, rollout.action, strict=True):
                noise.append(action - policy.act(obs, deterministic=True).action)
    drawn = np.round(np.array(noise, np.float64).ravel(), 4)
    # 128 draws of a normal number: a repeated stream would repeat 16 at least.
    assert len(np.unique(drawn)) > len(drawn) - 8


@pytest.mark.parametrize("mode", MODES)
def test_a_new_worker_acts_with_the_newest_weights_and_way_to_explore(
    tmp_path: Path, mode: str
) -> None:
    policy = DQN.make_policy(
        DQNConfig(hidden_sizes=(8,)), Tally(0, tmp_path).observation_space,
        Tally(0, tmp_path).action_space, 0,
    )  # fmt: skip
    policy.epsilon = 1.0
    with _collector(_envs(tmp_path, {0: {"steps": {2 * T + 2: KILL}}}), policy, mode=mode) as c:
        c.collect()
        policy.epsilon = 0.0
        policy.model.parameters += (
            np.random.default_rng(1)
            .normal(0, 0.3, policy.model.parameters.shape)
            .astype(np.float32)
        )
        policy.version += 1
        seen = 0
        for _ in range(500):  # the worker that is to die may be the slower one
            rollout = c.collect()
            new = rollout.policy_version == policy.version
            obs = rollout.obs.reshape(-1, 3)
            greedy = policy.act(obs, deterministic=True).action.reshape(rollout.action.shape)
            np.testing.assert_array_equal(rollout.action[:, new], greedy[:, new])
            seen += int(new.sum())
            if c.statistics().restarts == 1 and seen > 8:
                break
        assert c.statistics().restarts == 1 and seen > 8


@pytest.mark.parametrize("mode", MODES)
def test_memories_begin_anew_with_the_episodes(tmp_path: Path, mode: str) -> None:
    space = Tally(0, tmp_path).observation_space, Tally(0, tmp_path).action_space
    config = PPOConfig(num_steps=T, recurrent="gru", memory_size=4, sequence_length=4)
    policy = PPO.make_policy(config, *space, 0)
    learner, follower = PPO(policy, config, 4), Follower()
    envs = _envs(tmp_path, {1: {"steps": {T + 3: KILL, T + 4: RAISE}}}, length=7)
    with _collector(envs, policy, mode=mode, max_policy_lag=2) as collector:
        for rollout in _collect(collector, 6, follower):
            batch = advantage_batch(rollout, rollout.reward, learner._place, 0.99, 0.95, 4)
            steps = batch.steps()
            now = evaluate(learner._place, steps)
            assert len(steps.log_prob) == rollout.valid.sum()
            np.testing.assert_allclose(now.log_prob.detach(), steps.log_prob, atol=1e-5)
            np.testing.assert_allclose(now.value.detach(), steps.value, atol=1e-5)
        assert collector.statistics().restarts == 2
    assert follower.lost > 0


def test_what_a_replay_draws_goes_over_no_fault(tmp_path: Path) -> None:
    faulty = {0: {"steps": {5: KILL, 6: RAISE}}, 3: {"steps": {T + 2: KILL}}}
    for n_step in (1, 3):
        folder = tmp_path / str(n_step)
        folder.mkdir()
        replay = Replay(64, 4, gamma=0.5, n_step=n_step)
        with _collector(_envs(folder, faulty, cuts=True, length=6)) as collector:
            for _ in range(3):
                replay.add(collector.collect())
        index = np.flatnonzero(replay._rows["valid"])
        found = replay.gather(index)
        assert (found.obs[:, 0] == found.next_obs[:, 0]).all()
        assert (found.obs[:, 2] == found.next_obs[:, 2]).all()  # of one life of the env
        steps = found.next_obs[:, 1] - found.obs[:, 1]
        assert ((steps >= 1) & (steps <= n_step)).all()
        np.testing.assert_array_equal(found.discount, np.float32(0.5) ** steps)


# ---------------------------------------------------------------- ahead of the learner


@pytest.mark.slow
@pytest.mark.parametrize("fault", [KILL, RAISE, HANG])
def test_workers_that_run_ahead_are_replaced_too(tmp_path: Path, fault: str) -> None:
    faults = PATIENT if fault != HANG else FaultPolicy("restart", step_timeout_s=DEADLINE_S)
    faulty, follower = {2: {"steps": {T + 4: fault}}}, Follower()
    lags = []
    with _collector(_envs(tmp_path, faulty), mode="async", faults=faults) as collector:
        while collector.statistics().restarts == 0 or len(follower.begun_anew) + follower.lost == 0:
            rollout = collector.collect()
            follower.follow(rollout)
            lags.append(int((collector.policy.version - rollout.policy_version).max()))
            collector.policy.version += 1
        for _ in range(6):
            follower.follow(collector.collect())
        assert collector.statistics().restarts == 1
        assert collector.statistics().lost_rows >= max(follower.lost, 2)
    assert max(lags) <= 4


def test_rows_of_older_weights_are_dropped_where_a_new_worker_has_newer_ones(
    tmp_path: Path,
) -> None:
    follower = Follower()
    with _collector(_envs(tmp_path, {1: {"steps": {T + 4: RAISE}}}), mode="async",
                    num_workers=1, max_policy_lag=8) as collector:  # fmt: skip
        first = collector.collect()  # the next one is being filled, and fails
        follower.follow(first)
        while not list(tmp_path.iterdir()):
            pass
        collector.policy.version += 1
        second = collector.collect()
        follower.follow(second)
        assert second.valid.all() and second.after_reset.all()
        assert (second.policy_version == collector.policy.version).all()
        assert collector.statistics().lost_rows == 4 * 4  # rows 0 to 3 of four envs


# ---------------------------------------------------------------- ends


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_workers_that_are_killed_again_and_again_leave_nothing(tmp_path: Path, mode: str) -> None:
    rng, follower = np.random.default_rng(0), Follower()
    faults = FaultPolicy("restart", max_restarts=1000)
    killed = 0

    def kill_one() -> None:
        nonlocal killed
        if killed < 6 and follower.last:
            pid = int(rng.choice(collector.pids))
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGKILL)
                killed += 1

    with _collector(
        _envs(tmp_path), mode=mode, num_steps=3000, faults=faults, between_waits=kill_one
    ) as collector:
        while killed < 6 or collector.statistics().restarts < 3:
            follower.follow(collector.collect())
            collector.policy.version += 1
        for _ in range(3):
            follower.follow(collector.collect())
    assert collector.statistics().restarts >= 3


class Enough(Exception):
    """Raised while a worker is replaced."""


@pytest.mark.parametrize("mode", MODES)
def test_closing_during_a_replacement_leaves_nothing(tmp_path: Path, mode: str) -> None:
    def leave() -> None:
        if list(tmp_path.iterdir()) and collector.statistics().restarts:
            raise Enough

    envs = _envs(tmp_path, {2: {"steps": {4: KILL}}})
    with _collector(envs, mode=mode, between_waits=leave) as collector:
        with pytest.raises(Enough):
            while True:  # in async the other worker may be first many times
                collector.collect()
        assert collector.closed and collector.statistics().restarts == 1


def test_a_worker_that_grows_is_replaced_once_an_episode_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rookery.worker.fault_policy._MEMORY_CHECK_S", 0.0)
    follower = Follower()
    faults = FaultPolicy("restart", max_worker_rss_mb=1)  # none is as small
    with _collector(_envs(tmp_path, length=T + 3), faults=faults) as collector:
        first = collector.pids
        _collect(collector, 1, follower)
        assert collector.pids == first  # no episode has ended
        _collect(collector, 1, follower)
        assert not set(first) & set(collector.pids)
        _collect(collector, 1, follower)
        assert collector.statistics() == rookery.collect.CollectorStatistics(2, 0)
    assert follower.begun_anew == {0, 1, 2, 3}
