"""Scaling of settings to another number of envs."""

import json
import math

import pytest

import rookery
from rookery.errors import ConfigError
from rookery.learn.config import A2CConfig, DQNConfig, ImpalaConfig, PPOConfig, SACConfig
from rookery.run.algorithms import Given
from rookery.run.plan import RunPlan
from rookery.run.presets import find_preset
from rookery.run.presets.scaling import MOST_RATE_GROWTH, gae_horizon, scaled
from rookery.run.request import RunRequest


def test_the_same_number_of_envs_changes_nothing():
    config = PPOConfig()
    assert scaled(config, "ppo", 8, 8) == (config, [])


@pytest.mark.parametrize(("num_envs", "num_steps"), [(4, 256), (16, 64), (32, 32), (1, 1024)])
def test_ppo_keeps_the_rollout_by_shortening_or_lengthening_it(num_envs, num_steps):
    config, reasons = scaled(PPOConfig(num_steps=128), "ppo", 8, num_envs)
    assert config.num_steps == num_steps
    assert config.minibatch_size == 256 and config.learning_rate == 3e-4
    assert len(reasons) == 1 and reasons[0].startswith("ppo: num_steps 128 ->")


def test_below_the_horizon_minibatches_grow_and_the_learning_rate_with_their_root():
    before = PPOConfig(num_steps=128, gamma=0.99, gae_lambda=0.95, final_learning_rate=1e-4)
    config, reasons = scaled(before, "ppo", 8, 256)
    assert config.num_steps == math.ceil(gae_horizon(0.99, 0.95)) == 17
    growth = 256 * 17 / (8 * 128)
    assert config.minibatch_size == 256 * 17 // 4  # four minibatches, as before
    assert config.learning_rate == pytest.approx(3e-4 * math.sqrt(growth), rel=1e-3)
    assert config.final_learning_rate == pytest.approx(1e-4 * math.sqrt(growth), rel=1e-3)
    named = [reason.split()[1] for reason in reasons]
    assert named == ["num_steps", "minibatch_size", "learning_rate", "final_learning_rate"]


def test_the_learning_rate_grows_to_four_times_at_most():
    config, _ = scaled(PPOConfig(), "ppo", 8, 8192)
    assert config.learning_rate == pytest.approx(3e-4 * MOST_RATE_GROWTH)


def test_rollouts_that_are_shorter_than_the_horizon_are_not_shortened_further():
    config, _ = scaled(A2CConfig(num_steps=5), "a2c", 8, 32)
    assert config.num_steps == 5
    assert config.learning_rate == pytest.approx(3e-3 * 2, rel=1e-3)  # four times the rollout
    assert scaled(A2CConfig(num_steps=5), "a2c", 8, 2)[0].num_steps == 20


def test_impala_uses_the_lambda_of_its_traces():
    assert scaled(ImpalaConfig(num_steps=20), "impala", 8, 64)[0].num_steps == 20


def test_recurrent_rollouts_are_whole_sequences():
    before = PPOConfig(num_steps=128, recurrent="gru", sequence_length=16)
    assert scaled(before, "ppo", 8, 24)[0].num_steps == 48


@pytest.mark.parametrize("kind", [DQNConfig, SACConfig])
def test_learners_from_replay_keep_gradient_steps_per_env_step(kind):
    before = kind(num_steps=4)
    config, reasons = scaled(before, "dqn", 8, 64)
    assert config.num_steps == 1
    same = ("updates_per_step", "batch_size", "learning_rate", "warmup_steps", "replay_size")
    assert all(getattr(config, name) == getattr(before, name) for name in same)
    assert len(reasons) == 1 and "64 env steps; with 8 envs after 32" in reasons[0]


def test_a_replay_holds_some_rows_of_every_env():
    config, _ = scaled(DQNConfig(replay_size=1_000, n_step=3), "dqn", 8, 512)
    assert config.replay_size == 4 * 512
    config.check(512)


def test_given_settings_stay_and_the_others_follow():
    config, reasons = scaled(PPOConfig(num_steps=128), "ppo", 8, 32, frozenset({"num_steps"}))
    assert config.num_steps == 128
    assert config.minibatch_size == 1024 and config.learning_rate == pytest.approx(6e-4)
    config, reasons = scaled(PPOConfig(), "ppo", 8, 256, frozenset({"learning_rate"}))
    assert config.learning_rate == 3e-4
    assert any("learning_rate stays 0.0003, because it was given" in each for each in reasons)


def test_a_learning_rate_function_stays_with_a_reason():
    rate = lambda done: 1e-3 * (1 - done)  # noqa: E731
    before = PPOConfig(learning_rate=rate)
    config, reasons = scaled(before, "ppo", 8, 256)
    assert config.learning_rate is rate
    assert any("envs would need it times 2.062" in reason for reason in reasons)


def test_scaled_settings_are_valid_and_survive_json():
    for num_envs in (1, 3, 7, 100, 1000):
        config, _ = scaled(PPOConfig(), "ppo", 8, num_envs)
        config.check(num_envs)
        assert PPOConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def plan_of(algo, **settings):
    return RunPlan.new(RunRequest("CartPole-v1", algo, settings=settings))


def test_a_run_scales_from_the_envs_of_its_preset():
    preset = find_preset("ppo", "Acrobot-v1")  # 16 envs
    plan = RunPlan.new(
        RunRequest("Acrobot-v1", preset, settings={"num_envs": 32, "scale_hyperparameters": True})
    )
    assert plan.algorithm.config.num_steps == 128
    assert plan.notes and "num_steps 256 -> 128" in plan.notes[0]
    as_it_is = RunPlan.new(RunRequest("Acrobot-v1", preset, settings={"num_envs": 32}))
    assert as_it_is.algorithm.config.num_steps == 256 and not as_it_is.notes


def test_a_run_without_a_preset_scales_from_the_default():
    plan = plan_of("ppo", num_envs=32, scale_hyperparameters=True)
    assert plan.algorithm.config.num_steps == 32
    assert plan_of("ppo", scale_hyperparameters=True).notes[0].startswith("ppo: nothing to scale")


def test_flags_of_the_learner_win_over_scaling():
    given = Given("ppo", {"num_steps": 64})
    assert plan_of(given, num_envs=64, scale_hyperparameters=True).algorithm.config.num_steps == 64


def test_custom_algorithms_are_not_scaled():
    class Own:
        num_steps = 4

        def make_policy(self, observation_space, action_space, seed):
            raise NotImplementedError

        start = update = state_dict = load_state_dict = make_policy

    with pytest.raises(ConfigError, match="only the algorithms of this library"):
        plan_of(Own(), scale_hyperparameters=True)


def test_scaled_settings_are_in_the_config_and_stay_on_resume(tmp_path):
    folder = tmp_path / "run"
    rookery.train(
        "CartPole-v1", "ppo", num_envs=16, total_steps=256, scale_hyperparameters=True,
        run_dir=folder, eval_episodes=0, backend="serial",
    )  # fmt: skip
    written = json.loads((folder / "config.json").read_text())
    assert written["ppo"]["num_steps"] == 64 and written["train"]["scale_hyperparameters"] is True
    from rookery.run.checkpoint.run_dir import RunDirectory

    assert RunPlan.of_run(RunDirectory.existing(folder)).algorithm.config.num_steps == 64
