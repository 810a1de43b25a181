"""Presets are valid, name their source, and are overridden by given settings."""

from __future__ import annotations

import json
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import rookery
from rookery.cli import main
from rookery.run.algorithms import BUILT_IN
from rookery.run.checkpoint.run_dir import RunDirectory
from rookery.run.plan import RunPlan
from rookery.run.presets import Preset, find_preset, presets
from rookery.run.request import RunRequest
from rookery.run.settings import TrainSettings

ALL = [preset for algo in BUILT_IN for preset in presets(algo).values()]
QUICK = ["--total-steps", "64", "--num-envs", "2", "--backend", "serial", "--eval-episodes", "0"]


@pytest.mark.parametrize("preset", ALL, ids=lambda preset: preset.name)
def test_presets_fit_their_algorithm_and_name_their_source(preset: Preset) -> None:
    assert preset.source
    settings = TrainSettings(**preset.run)
    preset.config.check(settings.num_envs)
    assert {*preset.run} == {"total_steps", "num_envs"}
    own = {field.name for field in fields(preset.config)}  # type: ignore[arg-type]
    assert {*preset.settings} <= own
    if not preset.env.startswith("family: "):
        pytest.importorskip("Box2D") if "Lunar" in preset.env or "Biped" in preset.env else None
        assert preset.env in gym.registry


@pytest.mark.parametrize(
    ("env", "found"),
    [
        ("CartPole-v1", "CartPole-v1"),
        ("CartPole-v0", "CartPole-v1"),
        ("some.module:CartPole-v1", "CartPole-v1"),
        (gym.spec("CartPole-v1"), "CartPole-v1"),
        ("HalfCheetah-v4", "HalfCheetah-v5"),
        ("Humanoid-v5", "family: mujoco"),
        ("ALE/Nowhere-v5", "family: atari"),
        ("MiniGrid-Nowhere-v0", "family: minigrid"),
        ("CartPoleSwingUp-v1", None),
        ("Blackjack-v1", None),
        (lambda: gym.make("CartPole-v1"), None),
    ],
)
def test_the_preset_of_an_env_its_other_version_or_its_family_is_used(
    env: Any, found: str | None
) -> None:
    preset = find_preset("ppo", env)
    assert (preset and preset.env) == found


# target_update_interval, train_freq and gradient_steps in the Zoo's dqn.yml and qrdqn.yml, or
# Stable-Baselines3's defaults where these files have none.
ZOO_TARGETS = {
    "dqn/Acrobot-v1": (250, 4, -1),
    "dqn/MountainCar-v0": (600, 16, 8),
    "dqn/LunarLander-v3": (250, 4, -1),
    "dqn/family: atari": (1000, 4, 1),
    "qrdqn/CartPole-v1": (10, 256, 128),
    "qrdqn/Acrobot-v1": (250, 4, -1),
    "qrdqn/MountainCar-v0": (600, 16, 8),
    "qrdqn/family: atari": (10_000, 4, 1),
}


def _gradient_steps_between_targets(interval: int, train_freq: int, gradient_steps: int) -> float:
    """Replay the counters of Stable-Baselines3; return the mean over all effective updates."""
    trained, copied_at = 0, []
    for env_step in range(1, 200_001):
        if env_step % interval == 0 and copied_at[-1:] != [trained]:
            copied_at.append(trained)
        if env_step % train_freq == 0:
            trained += train_freq if gradient_steps == -1 else gradient_steps
    return (copied_at[-1] - copied_at[0]) / (len(copied_at) - 1)


@pytest.mark.parametrize(
    "preset",
    [each for each in ALL if "target_interval" in each.settings],
    ids=lambda preset: preset.name,
)
def test_the_target_is_copied_as_often_as_with_the_zoos_settings(preset: Preset) -> None:
    assert preset.source.startswith("RL Baselines3 Zoo") and preset.run["num_envs"] == 1
    interval, train_freq, gradient_steps = ZOO_TARGETS[preset.name]
    between = _gradient_steps_between_targets(interval, train_freq, gradient_steps)
    assert preset.settings["target_interval"] == pytest.approx(between, rel=0.01)
    per_training = train_freq if gradient_steps == -1 else gradient_steps
    by_rule = max(interval, train_freq) * per_training / train_freq  # see rookery.run.presets
    assert preset.settings["target_interval"] == by_rule
    assert preset.settings["num_steps"] == train_freq
    assert preset.settings["updates_per_step"] == per_training / train_freq


def test_a_preset_is_chosen_by_its_name() -> None:
    wanted = presets("ppo")["Acrobot-v1"]
    assert find_preset("ppo", "Mine-v0", "Acrobot-v1") is wanted
    assert find_preset("ppo", "Mine-v0", "ppo/Acrobot-v1") is wanted
    assert find_preset("ppo", "Mine-v0", "mujoco") is presets("ppo")["family: mujoco"]
    assert find_preset("ppo", "CartPole-v1", "none") is None
    assert find_preset("impala", "CartPole-v1") is None
    with pytest.raises(rookery.ConfigError, match=r"'auto'.*; did you mean 'Acrobot-v1'\?"):
        find_preset("ppo", "CartPole-v1", "Acrobat-v1")
    with pytest.raises(rookery.ConfigError, match="preset must be one of 'auto', 'none', 'family"):
        find_preset("impala", "CartPole-v1", "CartPole-v1")
    with pytest.raises(rookery.ConfigError, match="did you mean 'ppo'"):
        presets("pqo")


def _config(run_dir: Path) -> dict:
    return json.loads((run_dir / "config.json").read_text())


def _train(run_dir: Path, *options: str) -> dict:
    assert main(["train", "ppo", "CartPole-v1", *QUICK, "--run-dir", str(run_dir), *options]) == 0
    return _config(run_dir)


def test_the_command_line_prints_the_preset_and_flags_win(tmp_path: Path, capsys) -> None:
    config = _train(tmp_path / "run", "--gae-lambda", "0.5", "--no-normalize-advantage")
    told = capsys.readouterr().err
    assert "CartPole-v1: preset ppo/CartPole-v1 (RL Baselines3 Zoo, ppo.yml)\n" in told
    assert config["train"]["preset"] == "ppo/CartPole-v1"
    assert config["train"]["num_envs"] == 2 and config["train"]["total_steps"] == 64
    wanted = {**presets("ppo")["CartPole-v1"].settings, "gae_lambda": 0.5}
    wanted["normalize_advantage"] = False
    wanted["minibatch_size"] = 64  # two envs' 32 steps, of which the preset has eight
    defaults = rookery.PPOConfig()
    for name, value in config["ppo"].items():
        assert value == wanted.get(name, getattr(defaults, name)), name


def test_a_minibatch_of_the_presets_is_cut_and_one_that_is_given_is_not(tmp_path, capsys) -> None:
    cut = "ppo/CartPole-v1: minibatch_size is cut from 256 to 64, the transitions of a rollout"
    _train(tmp_path / "run")
    assert cut in capsys.readouterr().err
    config = _train(tmp_path / "other", "--minibatch-size", "256")
    assert config["ppo"]["minibatch_size"] == 256
    told = capsys.readouterr().err
    assert "minibatch_size is 256, but a rollout has 64 transitions" in told and cut not in told


def test_an_env_of_the_same_name_has_no_published_return(monkeypatch) -> None:
    other = gym.envs.registration.EnvSpec("CartPole-v1", entry_point="some.module:Game")
    monkeypatch.setitem(gym.registry, "CartPole-v1", other)
    plan = RunPlan.new(RunRequest("CartPole-v1", "ppo", settings={"preset": "auto"}))
    assert plan.preset is presets("ppo")["CartPole-v1"] and plan.expected_return is None


def test_a_module_that_registers_the_env_is_imported_before_its_family_is_asked_for(
    tmp_path: Path, monkeypatch, capsys
) -> None:
    pytest.importorskip("mujoco")
    (tmp_path / "late_games.py").write_text(
        "import gymnasium\n"
        "entry = 'gymnasium.envs.mujoco.half_cheetah_v5:HalfCheetahEnv'\n"
        "gymnasium.register('LateCheetah-v0', entry)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "late_games", raising=False)
    try:
        plan = RunPlan.new(
            RunRequest(
                "LateCheetah-v0", "ppo", settings={"preset": "auto", "env_module": "late_games"}
            )
        )
        assert plan.settings.preset == "ppo/family: mujoco"
        monkeypatch.delitem(sys.modules, "late_games")
        gym.registry.pop("LateCheetah-v0")
        # The command line looks for the preset by itself, as flags win over it.
        told = ["--env-module", "late_games", "--run-dir", str(tmp_path / "run")]
        assert main(["train", "ppo", "LateCheetah-v0", *QUICK, *told]) == 0
        assert "LateCheetah-v0: preset ppo/family: mujoco" in capsys.readouterr().err
    finally:
        gym.registry.pop("LateCheetah-v0", None)


def test_none_uses_the_defaults_and_prints_no_preset(tmp_path: Path, capsys) -> None:
    config = _train(tmp_path / "run", "--preset", "none", "--minibatch-size", "32")
    expected = "CartPole-v1: ppo without a preset: plain defaults, plus the settings you set\n"
    assert expected in capsys.readouterr().err
    assert config["train"]["preset"] == "none"
    assert config["ppo"] == {**rookery.PPOConfig().to_dict(), "minibatch_size": 32}


def test_a_missing_preset_is_mentioned(tmp_path: Path, capsys) -> None:
    arguments = ["train", "a2c", "FrozenLake-v1", *QUICK, "--run-dir", str(tmp_path / "run")]
    assert main(arguments) == 0
    expected = "FrozenLake-v1: a2c without a preset: plain defaults"
    assert expected in capsys.readouterr().err


def test_a_resumed_run_keeps_its_preset(tmp_path: Path, capsys) -> None:
    before = _train(tmp_path / "run")
    assert main(["train", "--resume", str(tmp_path / "run"), "--total-steps", "128"]) == 0
    after = _config(tmp_path / "run")
    assert after["ppo"] == before["ppo"]
    assert after["train"] == {**before["train"], "total_steps": 128}
    capsys.readouterr()
    assert main(["train", "--resume", str(tmp_path / "run"), "--preset", "none"]) == 2
    assert "preset cannot be changed when a run is resumed" in capsys.readouterr().err


def test_python_uses_a_preset_on_request(tmp_path: Path) -> None:
    few = {"total_steps": 64, "backend": "serial", "eval_episodes": 0}
    rookery.train("CartPole-v1", "ppo", preset="auto", run_dir=tmp_path / "preset", **few)
    config = _config(tmp_path / "preset")
    assert config["train"]["preset"] == "ppo/CartPole-v1"
    plan = RunPlan.of_run(RunDirectory.existing(tmp_path / "preset"))
    assert plan.expected_return == 500
    others = [
        RunPlan.new(RunRequest("CartPole-v0", "ppo", settings={"preset": "auto"})),
        RunPlan.new(
            RunRequest(
                "CartPole-v1",
                "ppo",
                settings={"preset": "auto"},
                wrappers=[gym.wrappers.ClipReward],
            )
        ),
        RunPlan.new(
            RunRequest(
                "CartPole-v1", "ppo", settings={"preset": "auto"}, env_kwargs={"x_threshold": 1.0}
            )
        ),
    ]
    for plan in others:
        assert plan.preset is presets("ppo")["CartPole-v1"] and plan.expected_return is None
    plan = RunPlan.new(RunRequest("CartPole-v1", "ppo", settings={"preset": "Acrobot-v1"}))
    assert plan.preset is presets("ppo")["Acrobot-v1"] and plan.expected_return is None
    assert (config["ppo"]["num_steps"], config["train"]["num_envs"]) == (32, 8)
    rookery.train("CartPole-v1", "ppo", run_dir=tmp_path / "plain", **few)
    assert _config(tmp_path / "plain")["ppo"] == rookery.PPOConfig().to_dict()


@pytest.mark.parametrize("choice", ["auto", "Acrobot-v1", "ppo/CartPole-v1", "Nowhere-v0"])
@pytest.mark.parametrize(
    ("algo", "named"), [(rookery.PPOConfig(), "ppo"), (rookery.DQNConfig(), "dqn")]
)
def test_a_preset_with_complete_settings_is_refused(
    algo: Any, named: str, choice: str, tmp_path: Path
) -> None:
    with pytest.raises(rookery.ConfigError) as refused:
        rookery.train("CartPole-v1", algo, preset=choice, run_dir=tmp_path / "run")
    message = str(refused.value)
    assert f"preset {choice!r}" in message and f"algo={named!r}" in message
    assert "Leave out preset" in message and type(algo).__name__ in message
    assert not (tmp_path / "run").exists()
    assert (
        RunPlan.new(RunRequest("CartPole-v1", algo, settings={"preset": "none"})).settings.preset
        == "none"
    )


def test_an_unknown_algorithm_is_reported_with_a_preset() -> None:
    with pytest.raises(rookery.ConfigError, match="algo 'pqo' is not known; did you mean 'ppo'"):
        RunPlan.new(RunRequest("CartPole-v1", "pqo", settings={"preset": "auto"}))


def test_an_invalid_number_of_envs_is_reported_with_a_preset() -> None:
    with pytest.raises(rookery.ConfigError, match="num_envs must be a whole number"):
        RunPlan.new(RunRequest("CartPole-v1", "ppo", settings={"preset": "auto", "num_envs": "8"}))


def test_flags_that_fit_only_beside_the_presets_settings_are_taken(tmp_path: Path) -> None:
    options = ["--recurrent", "gru", "--sequence-length=4", "--memory_size=8"]
    config = _train(tmp_path / "run", *options)
    assert config["train"]["preset"] == "ppo/CartPole-v1"
    learner = config["ppo"]
    assert (learner["num_steps"], learner["sequence_length"], learner["memory_size"]) == (32, 4, 8)
    assert learner["gae_lambda"] == presets("ppo")["CartPole-v1"].settings["gae_lambda"]


@pytest.mark.parametrize("kind", [rookery.PPOConfig, rookery.A2CConfig])
def test_actions_begin_with_the_deviation_that_is_asked_for(kind: type) -> None:
    algorithm = {rookery.PPOConfig: "ppo", rookery.A2CConfig: "a2c"}[kind]
    from rookery.run.algorithms import BuiltIn

    box = gym.spaces.Box(-1, 1, (3,))
    policy = BuiltIn(algorithm, kind(initial_log_std=-2.0)).make_policy(box, box, 0)
    assert policy.model.module.head.log_std.tolist() == [-2.0] * 3
    with pytest.raises(rookery.ConfigError, match="initial_log_std must be a finite number"):
        kind(initial_log_std=float("nan"))


def test_a_run_can_be_resumed_without_its_former_preset() -> None:
    plan = RunPlan.new(RunRequest("CartPole-v1", "ppo", settings={"preset": "auto"}))
    gone = replace(plan, settings=replace(plan.settings, preset="ppo/Gone-v1"))
    assert gone.preset is None and gone.expected_return is None
    assert "without a preset" in gone.describe_settings()
    assert (
        RunPlan.new(RunRequest("Blackjack-v1", "ppo", settings={"preset": "auto"})).settings.preset
        == "none"
    )


# ---------------------------------------------------------------- files of one's own

OWN = {"run": {"total_steps": 64, "num_envs": 2}, "settings": {"num_steps": 16, "gamma": 0.9}}


def _file(path: Path, content: Any) -> str:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def test_a_file_of_presets_is_read_like_builtin_presets(tmp_path: Path) -> None:
    own = {**OWN, "expected": 123}
    file = _file(tmp_path / "mine.json", {"CartPole-v1": own, "Acrobot-v1": {"settings": {}}})
    found = find_preset("ppo", "some.module:CartPole-v0", file)
    assert found is not None and found.name == file
    assert found.config == rookery.PPOConfig(num_steps=16, gamma=0.9)
    plan = RunPlan.new(RunRequest("CartPole-v1", "ppo", settings={"preset": file}))
    assert plan.settings.total_steps == 64 and plan.settings.preset == file
    assert plan.describe_settings().startswith(f"CartPole-v1: preset {file} (a file;")
    assert plan.expected_return == 123
    (tmp_path / "mine.json").unlink()
    assert plan.preset is None  # the run goes on without it


def test_a_preset_need_not_set_the_number_of_envs(tmp_path: Path) -> None:
    file = _file(tmp_path / "mine.json", {"CartPole-v1": {"run": {"total_steps": 64}}})
    plan = RunPlan.new(RunRequest("CartPole-v1", "ppo", settings={"preset": file}))
    assert plan.settings.num_envs == TrainSettings().num_envs


def test_the_only_preset_of_a_file_is_used_for_every_env(tmp_path: Path) -> None:
    file = _file(tmp_path / "mine.json", {"CartPole-v1": OWN})
    found = find_preset("ppo", "Mine-v0", file)
    assert found is not None and found.env == "CartPole-v1"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "mine.json is not JSON"),
        ([], r"must contain an object that maps env ids to presets.*not \[\]"),
        ({}, r"must contain an object that maps env ids to presets.*not \{\}"),
        ({"CartPole-v1": 3}, "preset 'CartPole-v1' in .* must be an object, not 3"),
        ({"CartPole-v1": {"setings": {}}}, "'setings' is not among the parts of a preset; did you"),
        ({"CartPole-v1": {"settings": []}}, "settings must be an object of settings, not"),
        ({"CartPole-v1": {"reached": "500"}}, "reached must be a number or null"),
        ({"CartPole-v1": {"settings": {"gama": 0.9}}}, "did you mean gamma"),
        ({"CartPole-v1": {"settings": {"gamma": 9}}}, r"gamma is 9; it must lie in \[0, 1\]"),
        ({"CartPole-v1": {"run": {"num_env": 9}}}, "'num_env' is not among the settings of a run"),
        ({"CartPole-v1": {"run": {"run_dir": "x"}}}, "run_dir cannot be part of a preset"),
        (
            {"Acrobot-v1": OWN, "Pendulum-v1": OWN},
            "has no preset for CartPole-v1; .*it has Acrobot-v1",
        ),
    ],
)
def test_an_invalid_file_of_presets_is_refused(
    content: Any, complaint: str, tmp_path: Path
) -> None:
    file = _file(tmp_path / "mine.json", content)
    with pytest.raises(rookery.ConfigError, match=complaint):
        find_preset("ppo", "CartPole-v1", file)


def test_a_missing_file_of_presets_is_named(tmp_path: Path, capsys) -> None:
    file = str(tmp_path / "none.json")
    assert main(["train", "ppo", "CartPole-v1", "--preset", file]) == 2
    assert f"cannot read the preset file {file}: No such file" in capsys.readouterr().err


def test_the_command_line_trains_with_a_file(tmp_path: Path, capsys) -> None:
    file = _file(tmp_path / "mine.json", {"CartPole-v1": OWN})
    config = _train(tmp_path / "run", "--preset", file)
    assert f"preset {file}" in capsys.readouterr().err
    assert config["train"]["preset"] == file and config["ppo"]["gamma"] == 0.9
