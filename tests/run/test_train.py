"""Whole training runs."""

from __future__ import annotations

import json
import math
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pictures
import pytest
import torch
from gymnasium import spaces
from training_envs import Match, Recall, Uneven, Wide

import rookery
from rookery import A2CConfig, ConfigError, DQNConfig, PPOConfig, SACConfig
from rookery.policy import make_policy
from rookery.run import threads
from rookery.run.callbacks import record
from rookery.run.checkpoint.files import load_checkpoint
from rookery.run.env_source import EnvSource
from rookery.run.evaluation import evaluation_seed, run_episodes
from rookery.run.log.history import History
from rookery.run.log.jsonl import read_rows

QUICK = PPOConfig(num_steps=16, num_epochs=1, minibatch_size=32)
CARTPOLE = PPOConfig(
    num_steps=32,
    num_epochs=20,
    minibatch_size=256,
    gamma=0.98,
    gae_lambda=0.8,
    learning_rate=1e-3,
    final_learning_rate=0.0,
    final_clip_range=0.0,
)


def _quick(run_dir: Path, env="CartPole-v1", algo=QUICK, **options):
    options = {"total_steps": 128, "num_envs": 2, "backend": "serial", "eval_episodes": 2} | options
    return rookery.train(env, algo, run_dir=run_dir, **options)


@pytest.mark.slow
def test_ppo_solves_cartpole(tmp_path: Path):
    result = rookery.train(
        "CartPole-v1", CARTPOLE, total_steps=50_000, seed=0, run_dir=tmp_path, backend="serial"
    )
    assert result.eval_return_mean >= 475.0


@pytest.mark.slow
@pytest.mark.whole  # continuous actions and statistics are learned with below
def test_ppo_improves_on_pendulum(tmp_path: Path):
    config = PPOConfig(
        num_steps=256, minibatch_size=64, gamma=0.9, learning_rate=1e-3,
        normalize_obs=True, normalize_reward=True,
    )  # fmt: skip
    result = rookery.train(
        "Pendulum-v1", config, total_steps=60_000, num_envs=8, run_dir=tmp_path, backend="serial"
    )
    assert result.eval_return_mean > -700.0  # random actions get about -1200


# Random actions balance the pole for about 22 steps.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("algo", "total_steps", "least"),
    [
        (A2CConfig(gamma=0.98), 60_000, 100.0),
        pytest.param(A2CConfig(gamma=0.98), 150_000, 475.0, marks=pytest.mark.whole),
        (DQNConfig(), 5_000, 30.0),
        pytest.param(DQNConfig(), 15_000, 100.0, marks=pytest.mark.whole),
    ],
)
def test_a2c_and_dqn_balance_the_pole_for_long(tmp_path: Path, algo, total_steps: int, least):
    result = rookery.train(
        "CartPole-v1", algo, total_steps=total_steps, run_dir=tmp_path, backend="serial"
    )
    assert result.eval_return_mean >= least


@pytest.mark.slow
@pytest.mark.whole  # that it learns is shown below
def test_qrdqn_balances_the_pole_for_long(tmp_path: Path):
    result = rookery.train(
        "CartPole-v1", "qrdqn", total_steps=15_000, run_dir=tmp_path, backend="serial"
    )
    assert result.eval_return_mean >= 100.0


@pytest.mark.slow
@pytest.mark.whole  # that they learn is shown below
@pytest.mark.parametrize(("algo", "least"), [("sac", -300.0), ("td3", -700.0)])
def test_the_pendulum_is_swung_up(tmp_path: Path, algo: str, least: float):
    result = rookery.train(
        "Pendulum-v1", algo, total_steps=5_000, num_envs=4, run_dir=tmp_path, backend="serial"
    )
    assert result.eval_return_mean > least  # random actions get about -1200


def test_ppo_trains_in_worker_processes(tmp_path: Path):
    result = _quick(tmp_path, backend="process", num_workers=2, num_envs=3)
    assert result.steps == 144


@pytest.mark.slow
@pytest.mark.parametrize(
    "action_space",
    [spaces.Discrete(2), spaces.MultiDiscrete([2, 2]), spaces.MultiBinary(2)],
    ids=lambda space: type(space).__name__,
)
def test_ppo_learns_from_dict_observations_with_every_kind_of_choice(tmp_path, action_space):
    config = PPOConfig(
        num_steps=64, num_epochs=10, minibatch_size=64, learning_rate=3e-3, gamma=0.5
    )
    result = _quick(
        tmp_path,
        Match,
        config,
        total_steps=6_000,
        num_envs=4,
        env_kwargs={"action_space": action_space},
        eval_episodes=20,
    )
    assert result.eval_return_mean > 9.5


@pytest.mark.slow
def test_ppo_learns_continuous_answers(tmp_path: Path):
    config = PPOConfig(
        num_steps=64, num_epochs=10, minibatch_size=64, learning_rate=3e-3, gamma=0.5
    )
    kwargs = {"action_space": spaces.Box(0, 1, (1,), np.float64), "scale": 100.0}
    result = _quick(
        tmp_path,
        Match,
        PPOConfig(**{**config.to_dict(), "normalize_reward": True, "normalize_obs": True}),
        total_steps=12_000,
        num_envs=4,
        env_kwargs=kwargs,
        eval_episodes=20,
    )
    assert result.eval_return_mean > 900.0


@pytest.mark.slow
def test_sac_learns_continuous_answers(tmp_path: Path):
    result = _quick(
        tmp_path,
        Match,
        SACConfig(gamma=0.5, warmup_steps=100),
        total_steps=1_000,
        num_envs=4,
        env_kwargs={"action_space": spaces.Box(0, 1, (1,), np.float64)},
        eval_episodes=20,
    )
    assert result.eval_return_mean > 6.3  # random answers get 5


@pytest.mark.slow
@pytest.mark.parametrize(("recurrent", "least", "most"), [("gru", 0.95, 1.0), ("none", 0.0, 0.8)])
def test_only_a_policy_that_remembers_recalls_what_it_was_shown(tmp_path, recurrent, least, most):
    config = PPOConfig(
        num_steps=32, num_epochs=8, minibatch_size=128, learning_rate=5e-3, gamma=0.9,
        recurrent=recurrent, memory_size=16, entropy_coef=0.01,
    )  # fmt: skip
    result = _quick(tmp_path, Recall, config, total_steps=10_000, num_envs=8, eval_episodes=64)
    assert least <= result.eval_return_mean <= most
    again = rookery.evaluate(tmp_path, episodes=64)
    assert again.eval_return_mean == result.eval_return_mean


def test_a_run_directory_is_complete(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(pictures.DRAWS, pictures.draw_curve)
    run_dir = tmp_path / "deep" / "run"
    result = _quick(run_dir)
    hidden = {path.name for path in run_dir.glob(".*")}
    names = {path.name for path in run_dir.iterdir() if "tfevents" not in path.name} - hidden
    assert hidden == {".lock"}
    files = {"config.json", "metrics.jsonl", "telemetry.jsonl", "evaluations.jsonl"}
    assert names == files | {"checkpoint.pt", "curve.png", "resume"}
    assert len(list(run_dir.glob("events.out.tfevents.*"))) == 1
    assert result.run_dir == str(run_dir)
    assert result.steps == 128
    assert result.steps_per_second == pytest.approx(result.steps / result.seconds)
    rows = read_rows(run_dir / "metrics.jsonl")
    assert [row["step"] for row in rows] == [32, 64, 96, 128]
    assert {"episodes", "policy_loss", "approximate_kl", "explained_variance"} <= set(rows[-1])


def test_the_same_seed_gives_the_same_run(tmp_path: Path):
    runs = [_quick(tmp_path / name, seed=3, total_steps=512) for name in "ab"]
    weights = [load_checkpoint(tmp_path / name / "checkpoint.pt")["model"] for name in "ab"]
    for name, array in weights[0]["module"].items():
        np.testing.assert_array_equal(array, weights[1]["module"][name])
    assert runs[0].eval_return_mean == runs[1].eval_return_mean


def test_where_the_envs_run_changes_nothing(tmp_path: Path):
    _quick(tmp_path / "serial", total_steps=512)
    _quick(tmp_path / "process", total_steps=512, backend="process", num_workers=2)
    states = [load_checkpoint(tmp_path / n / "checkpoint.pt") for n in ("serial", "process")]
    for name, array in states[0]["model"]["module"].items():
        np.testing.assert_array_equal(array, states[1]["model"]["module"][name])


def test_a_checkpoint_is_plain_data_and_holds_the_statistics(tmp_path: Path):
    config = PPOConfig(num_steps=16, num_epochs=1, normalize_obs=True, normalize_reward=True)
    _quick(tmp_path, algo=config)
    state = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert state["steps"] == 128
    assert state["model"]["module"]["normalizer._extra_state"]["count"] == 128
    assert state["learner"]["rewards"]["moments"]["count"] == 128
    assert state["learner"]["optimizer"]["steps"] == 4
    assert state["model"]["module"]["network.towers.0.weight"].shape == (2, 4, 64)


def test_evaluating_again_gives_the_final_evaluation_again(tmp_path: Path):
    config = PPOConfig(num_steps=16, num_epochs=1, normalize_obs=True)
    trained = _quick(tmp_path, algo=config, eval_episodes=6)
    result = rookery.evaluate(tmp_path, episodes=6)
    assert result.eval_return_mean == trained.eval_return_mean
    assert result.eval_return_std == trained.eval_return_std
    assert result.episodes == 6
    assert rookery.evaluate(tmp_path, episodes=6, seed=5).run_dir == str(tmp_path)


def test_an_env_class_and_wrappers_are_found_again(tmp_path: Path):
    _quick(tmp_path, Match, wrappers=[Wide], env_kwargs={"scale": 2.0})
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["source"]["env"] == {"callable": "training_envs:Match"}
    assert config["source"]["wrappers"] == ["training_envs:Wide"]
    assert rookery.evaluate(tmp_path, episodes=2).episodes == 2


def test_a_lambda_must_be_given_again(tmp_path: Path):
    def make():
        return gym.make("CartPole-v1")

    _quick(tmp_path, lambda: make())
    with pytest.raises(ConfigError, match="env=\\.\\.\\."):
        rookery.evaluate(tmp_path, episodes=2)
    assert rookery.evaluate(tmp_path, episodes=2, env=make).episodes == 2


def test_env_kwargs_that_are_no_json_must_be_given_again(tmp_path: Path):
    kwargs = {"action_space": spaces.MultiBinary(2)}
    _quick(tmp_path, Match, env_kwargs=kwargs)
    with pytest.raises(ConfigError, match="env_kwargs=\\.\\.\\."):
        rookery.evaluate(tmp_path, episodes=2)
    assert rookery.evaluate(tmp_path, episodes=2, env_kwargs=kwargs).episodes == 2


def test_a_spec_can_be_trained_on(tmp_path: Path):
    _quick(tmp_path, gym.spec("CartPole-v1"))
    assert rookery.evaluate(tmp_path, episodes=2).episodes == 2


def test_a_folder_that_holds_a_run_is_left_alone(tmp_path: Path):
    _quick(tmp_path)
    before = (tmp_path / "checkpoint.pt").read_bytes()
    with pytest.raises(ConfigError, match="already holds a run"):
        _quick(tmp_path)
    assert (tmp_path / "checkpoint.pt").read_bytes() == before
    _quick(tmp_path, overwrite=True, seed=9)
    assert (tmp_path / "checkpoint.pt").read_bytes() != before
    assert len(read_rows(tmp_path / "metrics.jsonl")) == 4


def test_without_a_folder_a_fresh_one_is_taken(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folders = [_quick(None).run_dir for _ in range(2)]
    assert folders == ["runs/CartPole-v1-ppo-0", "runs/CartPole-v1-ppo-0-2"]


class Wanderer(Uneven):
    """Takes the process to another folder, when it is made or amid its steps.

    Args:
        folder: where to.
        at_step: when; 0 is when it is made.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, folder: str, at_step: int, render_mode: str | None = None) -> None:
        super().__init__()
        self.render_mode, self._folder, self._at_step, self._made = render_mode, folder, at_step, 0
        if not at_step:
            os.chdir(folder)

    def step(self, action):
        self._made += 1
        if self._made == self._at_step:
            os.chdir(self._folder)
        return super().step(action)

    def render(self):
        return np.zeros((16, 16, 3), np.uint8)


@pytest.mark.parametrize("run_dir", ["own", None])
@pytest.mark.parametrize("at_step", [0, 20])
def test_a_run_stays_in_its_folder_when_an_env_takes_the_process_to_another(
    tmp_path: Path, monkeypatch, run_dir: Any, at_step: int
):
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(here)
    kwargs = {"folder": str(elsewhere), "at_step": at_step}
    result = _quick(
        run_dir, Wanderer, env_kwargs=kwargs, eval_every=16, checkpoint_every=16, eval_episodes=2,
        telemetry_interval_s=1e-6, backend="serial",
    )  # fmt: skip
    assert not list(elsewhere.iterdir())
    folder = here / "own" if run_dir else here / "runs" / "Wanderer-ppo-0"
    names = {path.name for path in folder.iterdir() if "tfevents" not in path.name} - {".lock"}
    assert names == {
        "config.json", "metrics.jsonl", "telemetry.jsonl", "evaluations.jsonl", "checkpoint.pt",
        "best.pt", "curve.png", "checkpoints", "resume",
    }  # fmt: skip
    assert all(path.stat().st_size for path in folder.glob("events.out.tfevents.*"))
    assert result.run_dir == str(folder)  # from where the process is now
    monkeypatch.chdir(here)
    shown = str(folder.relative_to(here))
    assert json.loads((folder / "config.json").read_text())["train"]["run_dir"] == run_dir
    assert rookery.evaluate(shown, episodes=2).episodes == 2


def test_a_folder_that_is_given_by_a_relative_path_is_told_so(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert _quick("own").run_dir == "own"
    assert rookery.evaluate("own", episodes=1).run_dir == "own"
    assert rookery.resume("own").run_dir == "own"


def test_videos_are_kept_beside_a_run_whose_env_goes_to_another_folder(tmp_path: Path, monkeypatch):
    pytest.importorskip("moviepy")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    kwargs = {"folder": str(tmp_path / "elsewhere"), "at_step": 0}
    source = EnvSource(Wanderer, kwargs)
    venv = source.make(1, backend="serial")
    monkeypatch.chdir(tmp_path)
    policy = make_policy(venv.single_observation_space, venv.single_action_space)
    record(source, policy, Path("videos"), "some", 0)
    venv.close()
    assert [path.suffix for path in (tmp_path / "videos").iterdir()] == [".mp4"]
    assert not list((tmp_path / "elsewhere").iterdir())


def test_an_unsupported_space_leaves_no_folder(tmp_path: Path):
    with pytest.raises(rookery.SpaceError):
        _quick(tmp_path / "run", Match, env_kwargs={"action_space": spaces.Text(3)})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algo": "sarsa"}, "sarsa"),
        (
            {"algo": rookery.learn.Config()},
            "choose from 'ppo', 'a2c', 'impala', 'dqn', 'qrdqn', 'sac', 'td3'",
        ),
        ({"algo": DQNConfig(replay_size=5)}, "replay_size"),
        ({"video_every": -1}, "video_every"),
        ({"num_envs": 0}, "num_envs"),
        ({"total_steps": 0}, "total_steps"),
        ({"env_module": "no_such_module"}, "no_such_module"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path: Path, options, message):
    with pytest.raises(ConfigError, match=message):
        _quick(tmp_path / "run", **options)


def test_ctrl_c_leaves_a_checkpoint(tmp_path: Path):
    metrics = tmp_path / "metrics.jsonl"

    def interrupt() -> None:
        while not (metrics.exists() and metrics.stat().st_size):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        _quick(tmp_path, total_steps=10**9)
    thread.join()
    state = load_checkpoint(tmp_path / "checkpoint.pt")
    assert state["steps"] == read_rows(tmp_path / "metrics.jsonl")[-1]["step"] > 0
    assert (tmp_path / "curve.png").exists()
    assert rookery.evaluate(tmp_path, episodes=2).episodes == 2


@pytest.mark.parametrize("place", ["warn_of_missing", "check"])
def test_a_signal_right_after_an_update_loses_no_line_of_the_journal(tmp_path: Path, place: str):
    with (
        pytest.raises(KeyboardInterrupt),
        rookery.Trainer(
            "CartPole-v1", PPOConfig(num_steps=8, num_epochs=1), num_envs=4, run_dir=tmp_path,
            total_steps=10**6, backend="serial", preset="none",
        ) as trainer,
    ):  # fmt: skip
        next(trainer)

        def signalled(*_: object) -> None:
            vars(owner).pop(place)
            raise KeyboardInterrupt

        owner = trainer.history if place == "warn_of_missing" else trainer._interrupts
        setattr(owner, place, signalled)
        next(trainer)
    rows = read_rows(tmp_path / "metrics.jsonl")
    assert load_checkpoint(tmp_path / "checkpoint.pt")["steps"] == rows[-1]["step"] == 64


def test_arrays_of_strings_come_back_from_a_checkpoint(tmp_path: Path):
    from rookery.run.checkpoint.files import save_checkpoint

    words = np.array([["ab", ""], ["\u00e9\U0001f40d", "abcde"]])
    state = {"words": words, "column": words[:, 1], "none": words[:0]}
    save_checkpoint(tmp_path / "checkpoint.pt", state)
    found = load_checkpoint(tmp_path / "checkpoint.pt")
    for name, array in state.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_a_torn_write_leaves_the_checkpoint_before_it(tmp_path: Path, monkeypatch):
    from rookery.run.checkpoint import files as checkpoint

    path = tmp_path / "checkpoint.pt"
    checkpoint.save_checkpoint(path, {"steps": 1})

    def tear(state, file):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", tear)
    with pytest.raises(OSError, match="disk full"):
        checkpoint.save_checkpoint(path, {"steps": 2})
    assert checkpoint.load_checkpoint(path) == {"steps": 1}


@pytest.mark.parametrize("content", [b"", b"garbage"])
def test_a_file_that_is_no_checkpoint_is_named(tmp_path: Path, content: bytes):
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"checkpoint\.pt is not a checkpoint"):
        load_checkpoint(path)


def test_loading_a_checkpoint_executes_no_code(tmp_path: Path):
    class Trap:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "sprung"),))

    path = tmp_path / "checkpoint.pt"
    torch.save({"steps": Trap()}, path)
    with pytest.raises(ConfigError, match="is not a checkpoint"):
        load_checkpoint(path)
    assert not (tmp_path / "sprung").exists()


def test_evaluation_does_not_favour_short_episodes():
    venv = rookery.make_vec(Uneven, 10, backend="serial", autoreset_mode="same_step")
    policy = make_policy(venv.single_observation_space, venv.single_action_space)
    score = run_episodes(venv, policy, 400, seed=0)
    venv.close()
    # The mean of 1 and 40. Taking the first 400 episodes to end gives a third of that.
    assert score.returns.mean() == pytest.approx(20.5, abs=3.0)
    assert len(score.returns) == 400


@pytest.mark.parametrize("episodes", [1, 3, 7])
def test_evaluation_counts_exactly_as_many_episodes_as_asked(episodes: int):
    venv = rookery.make_vec("CartPole-v1", 3, backend="serial", autoreset_mode="same_step")
    policy = make_policy(venv.single_observation_space, venv.single_action_space)
    score = run_episodes(venv, policy, episodes, seed=0)
    venv.close()
    assert len(score.returns) == episodes
    np.testing.assert_array_equal(score.returns, score.lengths)


def test_evaluation_seeds_meet_none_of_training():
    seeds = rookery.seeding.env_seeds
    training = {seed for root in range(20) for seed in seeds(root, 16)}
    assert not training & {s for root in range(20) for s in seeds(evaluation_seed(root), 16)}


def _history_of(episodes: int, num_envs: int = 1, num_steps: int = 1, **options) -> History:
    """Of episodes of one step each, whose returns are their numbers, which are their steps too."""
    history = History(num_envs, **options)
    per_rollout = num_envs * num_steps
    for first in range(1, episodes + 1, per_rollout):
        obs, action = np.zeros((num_envs, 1)), np.zeros(num_envs, np.int64)
        rollout = rookery.Rollout.allocate(num_steps, obs, action)
        rollout.reward[:] = np.arange(first, first + per_rollout).reshape(num_steps, num_envs)
        rollout.terminated[:] = True
        history.add(first + per_rollout - 1, rollout)
    return history


def test_the_history_of_a_long_run_is_bounded_and_even():
    history = _history_of(25, max_points=10)
    assert history.episodes == 25
    assert history.returns == history.steps == [4, 8, 12, 16, 20, 24]
    assert history.metrics()["episode_return_mean"] == 13.0


def test_episodes_that_end_amid_a_rollout_are_thinned_evenly_at_their_true_steps():
    history = _history_of(96, num_steps=12, max_points=10)
    assert history.returns == history.steps == list(range(16, 97, 16))


def test_a_history_that_was_saved_goes_on_as_evenly():
    whole, half = _history_of(30, max_points=10), _history_of(15, max_points=10)
    again = History(1, max_points=10)
    again.load_state_dict(half.state_dict())
    for number in range(16, 31):
        rollout = rookery.Rollout.allocate(1, np.zeros((1, 1)), np.zeros(1, np.int64))
        rollout.reward[:], rollout.terminated[:] = number, True
        again.add(number, rollout)
    assert again.state_dict()["steps"] == whole.steps == again.returns
    assert again.state_dict()["stride"] == whole.state_dict()["stride"] == 4


def test_metrics_are_finite(tmp_path: Path):
    _quick(tmp_path, total_steps=1024)
    for row in read_rows(tmp_path / "metrics.jsonl"):
        assert all(value is not None and math.isfinite(value) for value in row.values())


def test_a_device_that_is_not_there_is_refused_before_anything_starts(tmp_path):
    built = []
    config = PPOConfig(device="cuda:99")
    with pytest.raises(ConfigError, match="device is 'cuda:99'"):
        rookery.train(lambda: built.append(1), config, run_dir=tmp_path / "run", backend="serial")
    assert not built
    assert not (tmp_path / "run").exists()


def test_torch_is_kept_to_the_cpus_that_may_be_used(monkeypatch):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setattr(threads, "usable_cpus", lambda: 1)
    try:
        with threads.torch_threads_for(is_small=False):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
