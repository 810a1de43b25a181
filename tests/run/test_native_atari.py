"""Atari games in ALE's own batches mean what the wrappers of single games mean."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import fake_game
import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import AtariPreprocessing
from run_files import assert_same_run

import rookery
from rookery.cli import main
from rookery.env.wrappers import atari
from rookery.env.wrappers.atari_native import AtariGames
from rookery.env.wrappers.frame_stack import FrameStack
from rookery.errors import ConfigError
from rookery.run import TrainSettings, collection
from rookery.run.algorithms import algorithm_of
from rookery.run.collection import collector_for, stepped
from rookery.run.env_source import EnvSource

pytest.importorskip("ale_py", reason="plays games of ALE")

PONG, BREAKOUT = "ALE/Pong-v5", "ALE/Breakout-v5"
FAKE = "ALE/Fake-v5"
# A game is cut after 50 steps; in Breakout with random actions a life is lost in about 30.
SHORT_GAMES = {"max_num_frames_per_episode": 200}
PPO = rookery.PPOConfig(num_steps=30, num_epochs=1, minibatch_size=60)
DQN = rookery.DQNConfig(warmup_steps=40, batch_size=4, replay_size=200)
TOLD: dict[str, Any] = {
    "backend": "native", "num_envs": 2, "total_steps": 120, "eval_episodes": 0,
    "env_kwargs": SHORT_GAMES,
}  # fmt: skip
ON_ITS_NOTE = "by ALE's own batches (backend native)"


@pytest.fixture(autouse=True)
def _a_game_of_nobodys_is_registered():
    gym.register(FAKE, "fake_game:FakeGame")
    yield
    del gym.registry[FAKE]


def _config(run_dir: Path) -> dict:
    return json.loads((run_dir / "config.json").read_text())


# ---------------------------------------------------------------- what is played


@pytest.mark.parametrize(
    ("env", "name", "num_steps", "most_frames", "num_threads"),
    [
        (PONG, "pong", 150, 400, None),
        (BREAKOUT, "breakout", 400, 10_000, 1),
        (BREAKOUT, "breakout", 100, 208, 1),  # games end while the third life is begun
        ("ALE/SpaceInvaders-v5", "space_invaders", 520, 10_000, None),
    ],
)
def test_games_are_those_of_single_envs_bit_for_bit(
    env, name, num_steps, most_frames, num_threads, monkeypatch
):
    """Without random numbers: observations, rewards, ends of lives and games, true returns."""
    monkeypatch.setattr(atari, "_seen", lambda game: AtariPreprocessing(game, noop_max=0))
    same = {"repeat_action_probability": 0.0, "max_num_frames_per_episode": most_frames}
    single = FrameStack(4)(
        atari.for_training(gym.make(env, frameskip=1, obs_type="grayscale", **same))
    )
    games = AtariGames(2, name, 4, num_threads, noop_max=0, **same)
    assert games.single_observation_space == single.observation_space
    assert games.single_action_space == single.action_space
    obs, _ = games.reset(seed=3)
    expected, _ = single.reset(seed=3)
    lost, returns, clipped = 0, [], 0.0
    rng = np.random.default_rng(0)
    for _ in range(num_steps):
        assert obs[0].tobytes() == obs[1].tobytes() == expected.tobytes()
        action = int(rng.integers(games.single_action_space.n))
        obs, rewards, terminated, truncated, infos = games.step(np.full(2, action))
        expected, reward, is_lost, is_cut, info = single.step(action)
        assert rewards.tolist() == [reward, reward]
        assert (terminated.tolist(), truncated.tolist()) == ([is_lost] * 2, [is_cut] * 2)
        clipped += reward
        if not (is_lost or is_cut):
            assert infos == {}
            continue
        assert infos["_final_obs"].all() and infos["_final_info"].all()
        assert infos["final_obs"][0].tobytes() == expected.tobytes()
        told = infos["final_info"]
        lost += is_lost
        for key in (atari.GAME_RETURN, atari.GAME_LENGTH):
            assert told[f"_{key}"].tolist() == [key in info] * 2
            assert key not in info or told[key].tolist() == [info[key]] * 2
        returns += [info[atari.GAME_RETURN]] if atari.GAME_RETURN in info else []
        expected, _ = single.reset()
    assert returns
    assert lost == 0 if env == PONG else lost >= len(returns)  # lives, and not only games
    if name == "space_invaders":
        assert sum(returns) > clipped > 0
    games.close()
    single.close()


def test_what_is_random_follows_from_the_seeds_and_not_from_the_threads():
    shown = []
    for num_threads in (None, 1):
        games = AtariGames(2, "breakout", num_threads=num_threads, repeat_action_probability=0.25)
        starts, played = [], []
        for seed in (5, [5, 6], [6, 5]):
            obs, _ = games.reset(seed=seed)
            starts.append(obs.copy())
            played.append([games.step(np.array([2, 2]))[0].copy() for _ in range(40)])
        shown.append(np.array(played))
        assert (starts[0] == starts[1]).all() and (starts[1] == starts[2][::-1]).all()
        assert (shown[-1][0] == shown[-1][1]).all()
        assert (shown[-1][1] == shown[-1][2][:, ::-1]).all()
        assert (shown[-1][0][:, 0] != shown[-1][0][:, 1]).any()
        games.close()
    assert (shown[0] == shown[1]).all()


def test_some_games_can_be_begun_anew():
    venv = rookery.make_vec(
        AtariGames, 3, backend="native", autoreset_mode="same_step", env_kwargs={"game": "pong"}
    )
    with venv:
        first, _ = venv.reset(seed=[1, 2, 3])
        for _ in range(20):
            obs, *_ = venv.step(np.array([2, 3, 2]))
        again, _ = venv.reset(
            seed=[1, None, None], options={"reset_mask": np.array([True, False, False])}
        )
        assert (again[0] == first[0]).all() and (again[1:] == obs[1:]).all()


def test_a_step_that_was_cut_short_needs_a_reset(monkeypatch):
    games = AtariGames(2, "pong", noop_max=0, repeat_action_probability=0.0)
    first = games.reset(seed=1)[0].copy()
    with pytest.raises(ValueError, match=r"actions must be in .* but are \[0, 6\]"):
        games.step(np.array([0, 6]))
    games.step(np.array([0, 5]))

    def interrupted(action):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(games._games[1], "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        games.step(np.array([0, 0]))
    with pytest.raises(gym.error.ResetNeeded):
        games.step(np.array([0, 0]))
    assert (games.reset(seed=1)[0] == first).all()
    games.step(np.array([0, 0]))
    games.close()


# ---------------------------------------------------------------- runs


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "env"), [(PPO, BREAKOUT), (DQN, PONG)], ids=["ppo", "dqn"])
def test_a_run_counts_whole_games_and_is_evaluated_in_single_envs(algo, env, tmp_path, capsys):
    rollouts = []
    with rookery.Trainer(env, algo, run_dir=tmp_path / "run", progress=True, **TOLD) as trainer:
        assert trainer.collection.venv.backend == "native"
        collect = trainer.collector.collect

        def watched():
            rollout = collect()
            rollouts.append((rollout.terminated.copy(), np.abs(rollout.reward).max()))
            return rollout

        trainer.collector.collect = watched
        *_, last = trainer
        assert trainer._evaluation.of(2).backend != "native"
    told = capsys.readouterr().err
    assert "Atari preprocessing (84x84 grey, 4 frames, skip 4; rewards clipped" in told
    assert told.count(ON_ITS_NOTE) == 1
    # The presses of FIRE and of the action after it are among a game's steps.
    assert last.metrics["episode_length_mean"] == 50 and last.metrics["episodes"] == 2
    assert any(ended.any() for ended, _ in rollouts) == (env == BREAKOUT)
    assert max(largest for _, largest in rollouts) <= 1
    assert _config(tmp_path / "run")["train"]["backend"] == "native"
    score = rookery.evaluate(tmp_path / "run", episodes=2)
    assert score.episodes == 2 and np.isfinite(score.eval_return_mean)
    assert rookery.load(tmp_path / "run").observation_space.shape == (4, 84, 84)


def test_a_run_that_is_resumed_begins_new_games(tmp_path, capsys):
    run_dir = tmp_path / "run"
    rookery.train(PONG, PPO, run_dir=run_dir, **{**TOLD, "total_steps": 60})
    capsys.readouterr()
    assert main(["train", "--resume", str(run_dir), "--total-steps", "120"]) == 0
    told = capsys.readouterr().err
    assert "resuming at 60 steps: ALE's vectorized env cannot save" in told and ON_ITS_NOTE in told
    assert "they start new episodes" in told


@pytest.mark.slow
def test_runs_of_one_seed_are_the_same_run(tmp_path):
    for name in ("one", "other"):
        rookery.train(BREAKOUT, PPO, run_dir=tmp_path / name, **TOLD)
    assert_same_run(tmp_path / "one", tmp_path / "other")


@pytest.mark.slow
def test_a_run_amid_games_of_single_envs_goes_on_in_them_unless_told(tmp_path, capsys):
    run_dir, told = tmp_path / "run", {**TOLD, "backend": "serial"}
    rookery.train(PONG, PPO, run_dir=run_dir, **{**told, "total_steps": 60})
    rookery.resume(run_dir, backend="auto", total_steps=120, progress=True)
    told = capsys.readouterr().err
    assert ON_ITS_NOTE not in told and "new episodes" not in told
    rookery.resume(run_dir, backend="native", total_steps=180, progress=True)
    told = capsys.readouterr().err
    assert ON_ITS_NOTE in told and "the states of its games; they start new episodes" in told


def test_batches_can_live_in_worker_processes(tmp_path):
    told = {**TOLD, "num_workers": 2, "on_fault": "restart", "step_timeout_s": 60.0}
    with rookery.Trainer(PONG, PPO, run_dir=tmp_path / "run", **told) as trainer:
        assert trainer.collection.venv.backend == "native"
        assert len(trainer.collection.venv.statistics().workers) == 2
        *_, last = trainer
    assert last.metrics["episodes"] == 2


# ---------------------------------------------------------------- who has them


class Kept(gym.Wrapper[Any, Any, Any, Any]):
    """Changes nothing."""


def _in_batch(env: Any = PONG, collector: Any = "caller", saved: Any = None, **given: Any) -> bool:
    ours = ("env_kwargs", "wrappers", "preprocess", "frame_stack")
    source = EnvSource(env, **{"preprocess": True, **{k: given.pop(k) for k in ours if k in given}})
    return stepped(source, TrainSettings(**given), collector, saved).in_batch


def test_auto_takes_a_batch_where_it_is_the_same_and_faster(monkeypatch):
    monkeypatch.setattr(collection, "usable_cpus", lambda: 2)
    for env in (PONG, "PongNoFrameskip-v4", gym.spec(PONG), f"ale_py:{PONG}"):
        assert _in_batch(env)
    kwargs = {"full_action_space": True, "repeat_action_probability": 0.0, "frameskip": 1}
    assert _in_batch(env_kwargs=kwargs, frame_stack=2)
    assert _in_batch(saved={"companions": {"env_states": None}})
    assert _in_batch(num_envs=1)


@pytest.mark.parametrize(
    "given",
    [
        {"backend": "process"},
        {"backend": "serial"},
        {"collector": "workers"},
        {"num_workers": 2},
        {"start_method": "spawn"},
        {"isolate": True},
        {"caller_steps": False},
        {"on_fault": "restart"},
        {"step_timeout_s": 9.0},
        {"info_keys": ("lives",)},
        {"preprocess": False},
        {"wrappers": (Kept,)},
        {"env_kwargs": {"mode": 1}},
        {"env_kwargs": {"frameskip": 4}},
        {"saved": {"companions": {"env_states": "env_states-1.pkl"}}},
        {"env": FAKE},
        {"env": "CartPole-v1"},
        {"env": "ALE/Nothing-v5"},
        {"env": fake_game.FakeGame},
        {"env": lambda: gym.make(PONG)},
        {"env": gym.wrappers.ClipReward(gym.make("CartPole-v1"), 0.0, 1.0).spec},
    ],
    ids=lambda given: "-".join(given),
)
def test_auto_leaves_all_else_to_single_envs(given, monkeypatch):
    monkeypatch.setattr(collection, "usable_cpus", lambda: 2)
    assert not _in_batch(**given)


def test_auto_leaves_machines_of_many_cpus_to_worker_processes(monkeypatch):
    monkeypatch.setattr(collection, "usable_cpus", lambda: collection.MOST_CPUS + 1)
    assert not _in_batch() and _in_batch(backend="native")


def test_what_trains_in_a_batch_can_travel():
    made = EnvSource(PONG, preprocess=True, frame_stack=3).batch_arguments(2)
    assert pickle.loads(pickle.dumps(made)) == made
    assert made["env_kwargs"] == {
        "game": "pong", "repeat_action_probability": 0.25, "full_action_space": False,
        "max_num_frames_per_episode": 108_000, "frame_stack": 3, "num_threads": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("env", "options", "message"),
    [
        (PONG, ["--wrapper", "test_native_atari:Kept"], "wrappers of single envs do not fit"),
        (PONG, ["--no-preprocess"], "only Atari games that a run preprocesses"),
        (PONG, ["--env-kwargs", '{"mode": 1}'], "do not take mode of its env_kwargs"),
        (PONG, ["--env-kwargs", '{"frameskip": 4}'], "env_kwargs has frameskip=4"),
        (
            PONG,
            ["--env-kwargs", '{"max_num_frames_per_episode": null}'],
            "take no max_num_frames_per_episode=None",
        ),
        (PONG, ["--env-kwargs", '{"full_action_space": 1}'], "take no full_action_space=1"),
        (
            PONG,
            ["--env-kwargs", '{"repeat_action_probability": "x"}'],
            "take no repeat_action_probability='x'",
        ),
        (PONG, ["--collector", "workers"], "choose collector 'caller'"),
        (PONG, ["--isolate"], "isolate needs envs that are stepped one by one"),
        (PONG, ["--info-keys", "lives"], "info_keys needs envs"),
        (PONG, ["--on-fault", "restart"], r"a batch in a worker process (num_workers=1 or more)"),
        (FAKE, [], "another env than ALE's batches have; backend 'auto' can"),
        ("CartPole-v1", [], "only Atari games that a run preprocesses"),
        ("ALE/Nothing-v5", [], "ALE/Nothing-v5"),
    ],
)
def test_what_does_not_go_with_a_batch_is_refused_before_anything_starts(
    env, options, message, tmp_path, capsys
):
    run_dir = tmp_path / "run"
    told = ["--backend", "native", "--total-steps", "64", "--run-dir", str(run_dir)]
    assert main(["train", "ppo", env, *told, *options]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line
    assert not run_dir.exists()


def test_games_without_a_limit_of_frames_have_no_batch():
    rookery.common.importing.register(PONG)
    spec = replace(gym.spec(PONG), kwargs={"game": "pong"})
    with pytest.raises(ConfigError, match="take no max_num_frames_per_episode=None"):
        AtariGames.options(spec, {})
    options = AtariGames.options(spec, {"max_num_frames_per_episode": 400})
    assert options["max_num_frames_per_episode"] == 400


def test_a_version_of_ale_without_batches_is_named(monkeypatch):
    monkeypatch.setattr(collection, "usable_cpus", lambda: 2)

    class Older:
        def __init__(self, game, num_envs):
            pass

    for its_own in (Older, None):  # None: there is no such name to import
        monkeypatch.setattr("ale_py.vector_env.AtariVectorEnv", its_own)
        if its_own is None:
            monkeypatch.delattr("ale_py.vector_env.AtariVectorEnv")
        with pytest.raises(ConfigError, match=r"0\.11\.1 is the first .*pip install -U ale-py"):
            _in_batch(backend="native")
        assert not _in_batch()


def test_impala_acts_here_if_its_envs_are_a_batch():
    impala, native = algorithm_of("impala"), TrainSettings(backend="native")
    assert collector_for(impala, native) == "caller"
    assert collector_for(impala, TrainSettings()) == "async"
    with pytest.raises(ConfigError, match="backend='native'"):
        collector_for(impala, TrainSettings(backend="native", collector="async"))
