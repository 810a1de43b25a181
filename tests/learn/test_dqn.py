"""The DQN learner: targets and losses against plain loops and torch's own functions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from off_policy import B, T, disturb, made_up_rollout, moved

from rookery import ConfigError, DQNConfig, SpaceError
from rookery.learn.off_policy.dqn import DQN, huber
from rookery.learn.off_policy.replay_learner import UpdateBudget

OBS, ACTIONS = spaces.Box(-1, 1, (3,)), spaces.Discrete(3, start=1)
MASKED = spaces.Dict(numbers=OBS, action_mask=spaces.MultiBinary(3))
SMALL = {"num_steps": T, "batch_size": 16, "warmup_steps": 0, "hidden_sizes": (8,)}


def _learner(observation_space=OBS, **settings):
    config = DQNConfig(**{**SMALL, **settings})
    policy = DQN.make_policy(config, observation_space, ACTIONS, seed=0)
    return policy, DQN(policy, config, B)


def _rollout(seed: int = 0, observation_space=OBS):
    return made_up_rollout(observation_space, ACTIONS, seed)


def _tensor(array):
    return torch.from_numpy(np.asarray(array))


def test_the_huber_loss_gives_the_numbers_worked_out_by_hand():
    losses = huber(torch.tensor([0.5, 3.0, -4.0, 1.0]))
    assert losses.tolist() == [0.125, 2.5, 3.5, 0.5]


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("dueling", [False, True])
def test_targets_are_those_of_a_plain_loop(double: bool, dueling: bool):
    policy, learner = _learner(double=double, dueling=dueling, gamma=0.5, n_step=1)
    learner.update(_rollout())
    disturb(learner._target.flat, seed=1)
    disturb(policy.model.flat, seed=2)
    found = learner._replay.sample(50, np.random.default_rng(0))
    targets = learner._targets(learner._on_device(found))
    for k, got in enumerate(targets.tolist()):
        with torch.no_grad():
            row = _tensor(found.next_obs[k : k + 1])
            mine = learner.actor(row).outputs[0]
            theirs = learner._target.module(row).outputs[0]
        best = theirs[mine.argmax()] if double else theirs.max()
        expected = found.reward[k] + found.discount[k] * float(best)
        assert got == pytest.approx(expected, abs=1e-5)
    assert set(found.discount.tolist()) == {0.0, 0.5}


def test_a_step_follows_the_gradient_of_the_weighted_huber_loss(monkeypatch):
    policy, learner = _learner(prioritized=True, updates_per_step=0.0)
    learner.update(_rollout())
    disturb(policy.model.flat)
    found = learner._replay.sample(16, np.random.default_rng(0), 0.5)
    monkeypatch.setattr(learner._replay, "sample", lambda *args: found)
    values = learner.actor(_tensor(found.obs)).outputs
    chosen = values[torch.arange(16), _tensor(found.action) - 1]
    target = learner._targets(learner._on_device(found))
    errors = torch.nn.functional.huber_loss(chosen, target, reduction="none")
    loss = (_tensor(found.weight) * errors).mean()
    expected = torch.autograd.grad(loss, list(learner.actor.parameters()))
    seen = moved(learner._optimizer)
    metrics = learner._step(0.0)
    torch.testing.assert_close(seen[0], torch.cat([g.reshape(-1) for g in expected]))
    assert metrics["value_loss"] == pytest.approx(float(loss.detach()), rel=1e-5)


def test_targets_leave_no_graph_behind():
    _, learner = _learner()
    learner.update(_rollout())
    targets = learner._targets(learner._sample())
    assert targets.grad_fn is None and not targets.requires_grad
    assert not any(p.requires_grad for p in learner._target.module.parameters())


def test_networks_that_are_not_dueling_have_no_second_tower():
    sizes = [_learner(dueling=dueling)[0].model.parameters.size for dueling in (False, True)]
    assert sizes == [3 * 8 + 8 + 8 * 3 + 3, 2 * (3 * 8 + 8) + 8 * 3 + 3 + 8 + 1]


@pytest.mark.parametrize(
    "settings",
    [{}, {"double": False, "dueling": False}, {"n_step": 4, "prioritized": True}],
    ids=str,
)
def test_the_best_action_is_found(settings):
    policy, learner = _learner(**settings, learning_rate=1e-2, updates_per_step=1.0, gamma=0.5)
    for seed in range(20):
        rollout = _rollout(seed)
        rollout.reward[:] = np.where(rollout.action == 2, 1.0, -1.0)
        learner.update(rollout)
    obs = np.random.default_rng(0).uniform(-1, 1, (100, 3)).astype(np.float32)
    assert (policy.act(obs, deterministic=True).action == 2).mean() > 0.95


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 255, (40, 40, 3), np.uint8),
        spaces.Dict(camera=spaces.Box(0, 255, (20, 20, 3), np.uint8), joints=OBS),
    ],
    ids=["image", "dict"],
)
def test_images_and_dicts_are_learned_from(space):
    policy, learner = _learner(space, updates_per_step=0.1)
    before = policy.model.parameters.copy()
    metrics = learner.update(_rollout(0, space))
    assert metrics["gradient_steps"] == 1.0
    assert (policy.model.parameters != before).any()
    assert np.isfinite(policy.model.parameters).all()


def test_encoders_and_networks_of_ones_own_are_learned():
    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 5)

        def forward(self, obs):
            return torch.relu(self.layer(obs))

    config = DQNConfig(**SMALL)
    for own in ({"encoder": lambda _: Encoder()},
                {"network": lambda _, a: torch.nn.Linear(3, int(a.n))}):  # fmt: skip
        policy = DQN.make_policy(config, OBS, ACTIONS, 0, **own)
        learner = DQN(policy, config, B)
        before = policy.model.parameters.copy()
        learner.update(_rollout())
        assert (policy.model.parameters != before).any()


def test_epsilon_falls_linearly_and_decides_how_often_actions_are_random():
    policy, learner = _learner(exploration_fraction=0.5, final_epsilon=0.2, updates_per_step=0.0)
    assert policy.epsilon == 1.0
    learner.update(_rollout(), progress=0.25)
    assert policy.epsilon == pytest.approx(0.6)
    learner.update(_rollout(), progress=0.9)
    assert policy.epsilon == pytest.approx(0.2)
    obs = np.zeros((9000, 3), np.float32)
    best = policy.act(obs[:1], deterministic=True).action
    other = (policy.act(obs).action != best).mean()
    assert other == pytest.approx(0.2 * 2 / 3, abs=0.02)


# -- action masks ---------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0])
def test_illegal_actions_are_never_taken(epsilon: float):
    policy, _ = _learner(MASKED)
    disturb(policy.model.flat)
    policy.epsilon = epsilon
    rng = np.random.default_rng(0)
    mask = rng.random((3000, 3)) < 0.5
    mask[np.arange(3000), rng.integers(3, size=3000)] = True
    numbers = rng.uniform(-1, 1, (3000, 3)).astype(np.float32)
    obs = {"numbers": numbers, "action_mask": mask.astype(np.int8)}
    for deterministic in (False, True):
        action = policy.act(obs, deterministic).action - 1
        assert mask[np.arange(3000), action].all()
    if epsilon:
        free = policy.act({**obs, "action_mask": np.ones_like(mask)}).action
        assert set(free.tolist()) == {1, 2, 3}


def test_masks_that_observations_show_are_kept_to():
    policy, learner = _learner(MASKED, double=False, n_step=1)
    rollout = _rollout(0, MASKED)
    rollout.obs["action_mask"][..., 0] = rollout.last_obs["action_mask"][..., 0] = 1
    obs = {"numbers": rollout.obs["numbers"][0], "action_mask": rollout.obs["action_mask"][0]}
    for _ in range(50):
        action = policy.act(obs).action - 1
        assert obs["action_mask"][np.arange(B), action].all()
    learner.update(rollout)
    disturb(learner._target.flat)
    found = learner._replay.sample(50, np.random.default_rng(0))
    batch = learner._on_device(found)
    with torch.no_grad():
        values = learner._target.module.run(batch.next_obs).outputs
    shown = _tensor(found.next_obs["action_mask"] != 0)
    best = torch.where(shown, values, -torch.inf).amax(1)
    expected = _tensor(found.reward) + _tensor(found.discount) * best
    torch.testing.assert_close(learner._targets(batch), expected)


def test_the_targets_look_at_legal_actions_only():
    _, learner = _learner(MASKED, double=False, n_step=2)
    for seed in range(3):
        rollout = _rollout(seed, MASKED)
        for obs in (rollout.obs, rollout.last_obs):
            obs["action_mask"][:] = [0, 1, 0]
        learner.update(rollout)
    disturb(learner._target.flat)
    batch = learner._sample()
    with torch.no_grad():
        only = learner._target.module.run(batch.next_obs).outputs[:, 1]
    torch.testing.assert_close(learner._targets(batch), batch.reward + batch.discount * only)


# -- when it learns -------------------------------------------------------------------------------


@pytest.mark.parametrize("num_envs", [1, 6, 64])
def test_the_ratio_of_gradient_steps_does_not_depend_on_the_number_of_envs(num_envs: int):
    budget = UpdateBudget(0.3, warmup_steps=100)
    spent = [budget.spend(num_envs) for _ in range(640 // num_envs)]
    seen = 640 // num_envs * num_envs
    assert sum(spent) == int((seen - 100) * 0.3)
    assert max(spent) <= int(num_envs * 0.3) + 1


@pytest.mark.parametrize(
    ("ratio", "warmup_steps", "expected"),
    [
        (0.3, 100, [3, 3, 3]),
        (2.0, 100, [20, 20, 20]),
        (0.1, 100, [1, 1, 1]),
        (0.3, 0, [3, 3, 3]),
        (0.3, 410, [0, 3, 3]),
    ],
)
@pytest.mark.parametrize("is_old", [False, True])
def test_settings_that_are_changed_amid_a_run_count_from_there_on(
    ratio: float, warmup_steps: int, expected: list[int], is_old: bool
):
    before = UpdateBudget(0.3, warmup_steps=100)
    before.spend(400)
    state = before.state_dict()
    if is_old:
        state = {name: state[name] for name in ("env_steps", "spent")}
    budget = UpdateBudget(ratio, warmup_steps)
    budget.load_state_dict(state)
    assert [budget.spend(10) for _ in range(3)] == expected
    again = UpdateBudget(ratio, warmup_steps)
    again.load_state_dict(budget.state_dict())
    assert [again.spend(7) for _ in range(9)] == [budget.spend(7) for _ in range(9)]


def test_a_shorter_warm_up_brings_no_steps_for_what_it_was_before():
    before = UpdateBudget(0.5, warmup_steps=1000)
    before.spend(900)
    budget = UpdateBudget(0.5, warmup_steps=100)
    budget.load_state_dict(before.state_dict())
    assert budget.spend(10) == 5


def test_the_target_network_follows_every_so_many_steps():
    policy, learner = _learner(target_interval=5, updates_per_step=0.25)
    before = learner._target.flat.tensor.clone()
    learner.update(_rollout(0))  # three gradient steps
    assert torch.equal(learner._target.flat.tensor, before)
    learner.update(_rollout(1))
    assert not torch.equal(learner._target.flat.tensor, before)
    assert not torch.equal(learner._target.flat.tensor, policy.model.flat.tensor)


def test_faulted_rows_alone_bring_no_gradient_step():
    _, learner = _learner(updates_per_step=1.0)
    rollout = _rollout()
    rollout.valid[:] = False
    assert learner.update(rollout)["gradient_steps"] == 0.0


def test_a_step_that_is_not_finite_is_left_out_and_counted():
    policy, learner = _learner(updates_per_step=0.25, prioritized=True)
    learner.update(_rollout())
    before, steps = policy.model.parameters.copy(), learner._gradient_steps
    learner._target.flat.tensor.fill_(torch.inf)
    learner._target.follow = lambda rate: None
    metrics = learner.update(_rollout(1))
    assert metrics["skipped_gradient_steps"] > 0
    assert metrics["gradient_steps"] == steps
    np.testing.assert_array_equal(policy.model.parameters, before)
    assert np.isfinite(learner._replay.state_dict()["priorities"]["weights"]).all()


def test_a_run_that_lost_its_replay_warms_up_again():
    settings = {"updates_per_step": 1.0, "warmup_steps": 2 * T * B}
    _, learner = _learner(**settings)
    for seed in range(3):
        learner.update(_rollout(seed))
    _, other = _learner(**settings)
    other.load_state_dict(learner.state_dict())
    done = [other.update(_rollout(seed))["gradient_steps"] for seed in range(3)]
    assert done == [T * B, T * B, 2 * T * B]  # as many as before, until it has warmed up


def test_a_learner_goes_on_from_its_state():
    settings = {"updates_per_step": 0.5, "prioritized": True}
    policy, learner = _learner(**settings)
    learner.update(_rollout(1))
    other_policy, other = _learner(**settings)
    other_policy.model.load_state_dict(policy.model.state_dict())
    other.load_state_dict(learner.state_dict())
    other.load_replay_state(learner.replay_state())
    rollout = _rollout(2)
    assert learner.update(rollout) == other.update(rollout)
    np.testing.assert_array_equal(policy.model.parameters, other_policy.model.parameters)


def test_weights_actions_and_batches_come_from_streams_apart():
    policy, learner = _learner()
    drawn = [policy.rng.random(4).tolist(), learner._rng.random(4).tolist()]
    assert drawn[0] != drawn[1]
    assert drawn[1] != np.random.default_rng(0).random(4).tolist()


def test_other_actions_than_discrete_ones_are_refused():
    with pytest.raises(SpaceError, match="Discrete"):
        DQN.make_policy(DQNConfig(), OBS, spaces.Box(-1, 1, (2,)), seed=0)


@pytest.mark.parametrize(
    "wrong", [{"n_step": 0}, {"final_epsilon": 2.0}, {"target_rate": -1.0}], ids=str
)
def test_settings_that_cannot_be_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        DQNConfig(**wrong)


def test_a_replay_too_small_for_one_call_is_refused():
    with pytest.raises(ConfigError, match="replay_size"):
        _learner(replay_size=5)
