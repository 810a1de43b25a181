"""Atari games and MiniGrid: what is done to them, where nobody says anything."""

from __future__ import annotations

import functools
import json
import pickle
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import fake_game
import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from run_files import assert_same_run

import rookery
from rookery.cli import main
from rookery.common import importing
from rookery.env.wrappers import atari
from rookery.env.wrappers.frame_stack import FrameStack
from rookery.errors import ConfigError, UnknownEnvError
from rookery.run import TrainSettings
from rookery.run.checkpoint.env_states import Restore, capture
from rookery.run.env_source import EnvSource
from rookery.run.families import FAMILIES, family_of, wrapper_at

GAME = "ALE/Fake-v5"
FEW = ["--num-envs", "2", "--backend", "serial"]
SHORT_PPO = [*FEW, "--num-steps", "16", "--num-epochs", "1", "--total-steps", "96"]
SHORT_DQN = [*FEW, "--warmup-steps", "16", "--batch-size", "4", "--replay-size", "64",
             "--total-steps", "96"]  # fmt: skip
SHORT = {"ppo": SHORT_PPO, "dqn": SHORT_DQN}


@pytest.fixture(autouse=True)
def _the_game_is_registered():
    gym.register(GAME, "fake_game:FakeGame")
    yield
    del gym.registry[GAME]


def _result(capsys) -> dict:
    return json.loads(capsys.readouterr().out.strip().splitlines()[-1])


def _config(run_dir: Path) -> dict:
    return json.loads((run_dir / "config.json").read_text())


def _made(source: EnvSource) -> gym.Env:
    (recipe,) = rookery.env.recipe.make_recipes(num_envs=1, **source.arguments())
    return recipe.build(rookery.env.deferred.Workshop())


# ---------------------------------------------------------------- families


@pytest.mark.parametrize(
    ("env", "name"),
    [
        (GAME, "atari"),
        ("CartPole-v1", "classic_control"),
        ("HalfCheetah-v5", "mujoco"),
        ("LunarLander-v3", "box2d"),
        ("FrozenLake-v1", None),
        ("ALE/Nothing-v5", "atari"),
        ("NoSuch-v0", None),
        ("no.module:Id", None),
        (fake_game.FakeGame, None),
        (lambda: gym.make("CartPole-v1"), None),
    ],
)
def test_an_env_has_the_family_of_its_module_or_id(env, name):
    family = family_of(env)
    assert (family and family.name) == name
    if isinstance(env, str) and env in gym.registry:
        assert family_of(gym.spec(env)) is family


@pytest.mark.parametrize(
    ("package", "env", "name"),
    [
        ("ale_py", "ALE/Pong-v5", "atari"),
        ("ale_py", "PongNoFrameskip-v4", "atari"),
        ("minigrid", "MiniGrid-Empty-5x5-v0", "minigrid"),
        ("minigrid", "BabyAI-GoToRedBall-v0", "minigrid"),
    ],
)
def test_the_package_that_an_id_names_is_imported(package, env, name):
    pytest.importorskip(package)
    code = (
        "import gymnasium; from rookery.run.families import family_of; "
        f"assert {env!r} not in gymnasium.registry; print(family_of({env!r}).name); "
        f"assert {env!r} in gymnasium.registry"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split()[-1:] == [name], done.stderr


@pytest.mark.parametrize("env", ["ALE/Nowhere-v5", "NowhereNoFrameskip-v4", "BabyAI-Nowhere-v0"])
def test_a_package_that_is_not_there_is_named(env, monkeypatch):
    monkeypatch.setattr("rookery.common.importing.is_installed", lambda module: False)
    monkeypatch.setattr("rookery.run.env_source.is_installed", lambda module: False)
    monkeypatch.setattr("rookery.env.recipe.is_installed", lambda module: False)
    package = importing.package_of(env)
    told = f"pip install {package.pip}.*After the installation, training imports it automatically"
    with pytest.raises(UnknownEnvError, match=told):
        EnvSource(env, preprocess=True).arguments()


@pytest.mark.parametrize(
    ("env", "hint"),
    [
        ("ALE/Pog-v5", "ALE/Pong-v5"),
        ("ALE/Pong", "ALE/Pong-v5"),
        ("Pong-v5", r"Did you mean ALE/Pong-v5\?"),
        ("Pong-v4", "ale_py:Pong-v4|Pong-v4"),
    ],
)
def test_an_id_that_is_nearly_that_of_a_game_is_told(env, hint):
    code = (
        "import sys; from rookery.run.env_source import EnvSource\n"
        "try: EnvSource(sys.argv[1], preprocess=True).arguments()\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    pytest.importorskip("ale_py", reason="registers games of ALE")
    done = subprocess.run([sys.executable, "-c", code, env], capture_output=True, text=True)
    assert re.match(f"UnknownEnvError .*({hint})", done.stdout), done.stdout + done.stderr
    assert "pip install" not in done.stdout  # it is installed


def test_a_package_that_cannot_be_imported_says_why(tmp_path, monkeypatch):
    (tmp_path / "broken_games.py").write_text("import no_such_emulator")
    monkeypatch.syspath_prepend(str(tmp_path))
    broken = importing.Package("Broken-", "", "broken_games", "broken-games")
    monkeypatch.setattr(importing, "PACKAGES", (broken,))
    with pytest.raises(ConfigError, match=r"Broken-v0.*broken_games.*no_such_emulator"):
        family_of("Broken-v0")


def test_what_families_do_can_travel():
    for family in FAMILIES:
        assert pickle.loads(pickle.dumps(family)) == family


def test_workers_preprocess_without_torch():
    code = (
        "import sys, rookery.env.wrappers.atari, rookery.env.wrappers.minigrid;"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["False"], done.stderr


def test_what_is_wrapped_already_is_left_alone():
    spec = gym.make(GAME, frameskip=1).spec
    wrapped = gym.wrappers.ClipReward(gym.make(GAME), 0.0, 1.0).spec
    assert EnvSource(spec, preprocess=True).family().name == "atari"
    assert wrapped.additional_wrappers
    for env in (wrapped, fake_game.FakeGame, functools.partial(gym.make, GAME)):
        source = EnvSource(env, preprocess=True)
        assert source.family() is None and source.note() == ""
        assert source.arguments()["wrappers"] == ()
        assert source.for_evaluation() is source


def test_a_user_who_preprocesses_games_does_it_alone(tmp_path, monkeypatch):
    (tmp_path / "usual.py").write_text(
        "import functools, gymnasium\n"
        "seen = functools.partial(gymnasium.wrappers.AtariPreprocessing, frame_skip=2)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "usual", raising=False)
    stack = functools.partial(gym.wrappers.FrameStackObservation, stack_size=3)
    for seen in (
        gym.wrappers.AtariPreprocessing,
        functools.partial(gym.wrappers.AtariPreprocessing, frame_skip=2),
        wrapper_at("usual:seen"),
    ):
        source = EnvSource(GAME, {"frameskip": 1}, (seen, stack), preprocess=True)
        assert source.family() is None
        assert _made(source).observation_space.shape == (3, 84, 84)
    assert EnvSource(GAME, {}, (stack,), preprocess=True).family().name == "atari"


class OwnPreprocessing(gym.wrappers.AtariPreprocessing):
    pass


def _within(kind):
    return lambda env: gym.wrappers.ClipReward(kind(env), -1.0, 1.0)


@pytest.mark.parametrize("kind", [gym.wrappers.AtariPreprocessing, OwnPreprocessing])
@pytest.mark.parametrize("backend", ["serial", "process"])
def test_preprocessing_within_a_function_is_no_second_one(kind, backend, tmp_path, capsys):
    told = {"num_envs": 2, "backend": backend, "run_dir": tmp_path / "run", "eval_episodes": 0}
    with pytest.raises(ConfigError, match=f"{GAME} is preprocessed twice: .*{kind.__name__}.*"
                       r"preprocess=False \(--no-preprocess\)"):  # fmt: skip
        rookery.Trainer(GAME, "ppo", wrappers=[_within(kind)], **told)
    assert not (tmp_path / "run").exists()
    made = _made(EnvSource(GAME, {"frameskip": 1}, (_within(kind),)))
    assert made.observation_space.shape == (84, 84)


def test_preprocessing_twice_is_one_line_on_the_command_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "hidden.py").write_text(
        "import gymnasium\nseen = lambda env: gymnasium.wrappers.AtariPreprocessing(env)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "hidden", raising=False)
    told = [*SHORT_PPO, "--wrapper", "hidden:seen", "--run-dir", str(tmp_path / "run")]
    assert main(["train", "ppo", GAME, *told]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "preprocessed twice" in line and "--no-preprocess" in line


def test_a_user_who_wraps_a_grid_does_it_alone():
    wrappers = pytest.importorskip("minigrid.wrappers")
    env = "MiniGrid-Empty-5x5-v0"
    for wrapper in (wrappers.ImgObsWrapper, wrappers.FlatObsWrapper):
        assert EnvSource(env, {}, (wrapper,), preprocess=True).family() is None
    with pytest.raises(ConfigError, match=r"preprocessed twice: .*ImgObsWrapper"):
        _made(EnvSource(env, {}, (_within(wrappers.ImgObsWrapper),), preprocess=True))


@pytest.mark.parametrize(
    ("kwargs", "word"),
    [
        ({"frameskip": 4}, "frameskip=4"),
        ({"obs_type": "ram"}, "obs_type='ram'"),
        ({"continuous": True}, "continuous=True"),
    ],
)
def test_arguments_that_do_not_go_with_the_preprocessing_are_refused(kwargs, word):
    with pytest.raises(ConfigError, match=rf"{GAME}.*{word}.*--no-preprocess"):
        EnvSource(GAME, kwargs, preprocess=True).arguments()
    assert EnvSource(GAME, kwargs).arguments()["env_kwargs"] == kwargs


def test_the_arguments_of_a_user_come_first():
    arguments = EnvSource(GAME, {"obs_type": "rgb"}, preprocess=True).arguments()
    assert arguments["env_kwargs"] == {"obs_type": "rgb", "frameskip": 1}


# ---------------------------------------------------------------- games


def _play(env: gym.Env, action: int = 0) -> tuple[list[float], dict]:
    rewards, over = [], False
    while not over:
        _, reward, terminated, truncated, info = env.step(action)
        rewards.append(reward)
        over = terminated or truncated
    return rewards, info


def test_in_training_lives_end_episodes_and_rewards_are_clipped():
    env = _made(EnvSource(GAME, preprocess=True))
    assert env.observation_space == spaces.Box(0, 255, (4, 84, 84), np.uint8)
    obs, _ = env.reset(seed=0)
    assert obs in env.observation_space and obs.dtype == np.uint8
    game = env.unwrapped
    for _ in range(2):  # games
        for life in range(fake_game.LIVES):
            games = game.games
            rewards, info = _play(env)
            assert rewards == [1.0] * fake_game.STEPS_PER_LIFE
            assert (atari.GAME_RETURN in info) == (life == fake_game.LIVES - 1)
            env.reset()
            assert game.games == games + (life == fake_game.LIVES - 1)
        assert info[atari.GAME_RETURN] == fake_game.GAME_RETURN
        assert info[atari.GAME_LENGTH] == fake_game.GAME_LENGTH


@pytest.mark.parametrize(
    ("most_frames", "paid", "presses"), [(22, 20, 1), (26, 22, 2), (30, 26, 3)]
)
def test_a_game_that_ends_between_two_lives_is_told_with_the_next_episode(
    most_frames, paid, presses
):
    env = _made(EnvSource(GAME, {"most_frames": most_frames}, preprocess=True))
    env.reset(seed=0)
    told = []
    for _ in range(3):
        games = env.unwrapped.games
        _, info = _play(env)
        told.append((info.get(atari.GAME_RETURN), info.get(atari.GAME_LENGTH)))
        env.reset()
        assert env.unwrapped.games == games + 1
    # The four frames of the no-op give no reward.
    whole = (paid * fake_game.REWARD, 2 + fake_game.STEPS_PER_LIFE + presses)
    assert told == [(None, None), whole, whole]
    _play(env)
    env.reset(seed=0)  # from here on all is as it was at the beginning
    assert atari.GAME_RETURN not in _play(env)[1]


def test_a_run_counts_games_that_end_between_two_lives(tmp_path):
    config = rookery.PPOConfig(num_steps=16, num_epochs=1)
    told = {"total_steps": 96, "num_envs": 2, "backend": "serial", "eval_episodes": 2}
    kwargs = {"most_frames": 26}
    with rookery.Trainer(
        GAME, config, env_kwargs=kwargs, run_dir=tmp_path / "run", **told
    ) as trainer:
        *_, last = trainer
        score = trainer.final_evaluation()
    # Each game has one episode of three steps; the first of each env is told with the second.
    assert last.metrics["episodes"] == 2 * (96 // 2 // fake_game.STEPS_PER_LIFE - 1)
    assert last.metrics["episode_return_mean"] == 22 * fake_game.REWARD
    # Evaluations press no no-op between lives, so that FIRE comes four frames earlier.
    assert score.eval_return_mean == 26 * fake_game.REWARD


def test_a_seed_begins_a_new_game_also_after_a_lost_life():
    env = _made(EnvSource(GAME, preprocess=True))
    env.reset(seed=0)
    _play(env)
    games = env.unwrapped.games
    env.reset(seed=1)
    assert env.unwrapped.games == games + 1
    env.step(0)
    env.reset()  # amid an episode
    assert env.unwrapped.games == games + 2


def test_evaluation_plays_whole_games_for_true_rewards():
    source = EnvSource(GAME, preprocess=True).for_evaluation()
    env = _made(source)
    for seed in (0, None, None):
        env.reset(seed=seed)
        rewards, info = _play(env)  # nobody but the wrapper presses FIRE
        assert sum(rewards) == fake_game.GAME_RETURN == info[atari.GAME_RETURN]
        assert len(rewards) == fake_game.LIVES * fake_game.STEPS_PER_LIFE


class Doubled(gym.RewardWrapper):
    def reward(self, reward):
        return 2.0 * reward


def test_returns_are_the_games_whatever_wrappers_make_of_rewards(tmp_path):
    told = {"num_envs": 2, "backend": "serial", "total_steps": 96, "progress": False}
    config = rookery.PPOConfig(num_steps=16, num_epochs=1)
    result = rookery.train(
        GAME, config, wrappers=[Doubled], eval_episodes=2, run_dir=tmp_path / "run", **told
    )
    assert result.eval_return_mean == fake_game.GAME_RETURN
    again = rookery.evaluate(tmp_path / "run", 2)
    assert again.eval_return_mean == fake_game.GAME_RETURN
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["episode_return_mean"] == fake_game.GAME_RETURN


def test_a_game_that_a_wrapper_cuts_off_counts_in_evaluations_as_far_as_it_came(tmp_path):
    def short(env):
        return gym.wrappers.TimeLimit(Doubled(env), 2)

    result = rookery.train(
        GAME, rookery.PPOConfig(num_steps=16, num_epochs=1), wrappers=[short], eval_episodes=2,
        run_dir=tmp_path / "run", num_envs=2, backend="serial", total_steps=96,
    )  # fmt: skip
    assert 0 < result.eval_return_mean < fake_game.GAME_RETURN


@pytest.mark.parametrize("game", ["Breakout", "Pong", "Freeway"])
@pytest.mark.parametrize("evaluates", [False, True])
def test_the_state_of_a_game_goes_over_to_another_one(game, evaluates):
    pytest.importorskip("ale_py", reason="plays games of ALE")
    source = EnvSource(f"ALE/{game}-v5", preprocess=True, evaluates=evaluates)
    first, other = _made(source), _made(source)
    rng = np.random.default_rng(0)
    first.reset(seed=0)
    other.reset(seed=9)

    def follow(env, actions):
        seen = []
        for action in actions:
            obs, reward, terminated, truncated, info = env.step(action)
            seen.append((obs.tobytes(), reward, terminated, truncated, info))
            if terminated or truncated:
                seen.append((env.reset()[0].tobytes(),))
        return seen

    for _ in range(12):
        follow(first, rng.integers(first.action_space.n, size=5))
        Restore(capture(first))(other)
        actions = rng.integers(first.action_space.n, size=10)
        assert follow(first, actions) == follow(other, actions)


@pytest.mark.parametrize("game", ["Breakout", "SpaceInvaders", "Freeway"])
def test_games_are_those_of_stable_baselines(game):
    pytest.importorskip("ale_py", reason="plays games of ALE")
    theirs = pytest.importorskip("stable_baselines3.common.atari_wrappers")
    env_id = f"{game}NoFrameskip-v4"
    ours = _made(EnvSource(env_id, preprocess=True, frame_stack=1))
    other = theirs.AtariWrapper(gym.make(env_id))
    rng = np.random.default_rng(0)
    ours.reset(seed=3)
    other.reset(seed=3)
    ends = 0
    for _ in range(600):
        action = int(rng.integers(ours.action_space.n))
        (mine, *at_ours), (their, *at_theirs) = ours.step(action), other.step(action)
        assert at_ours[:3] == at_theirs[:3]
        if any(at_ours[1:3]):
            ends += 1
            ours.reset()
            other.reset()
        else:  # the last picture of a game is no one's
            assert np.abs(mine[0].astype(float) - their[..., 0]).mean() < 3
    assert (ends > 0) == (game != "Freeway")


@pytest.mark.parametrize(("kwargs", "share"), [({}, 0.25), ({"repeat_action_probability": 0}, 0)])
def test_actions_are_as_sticky_as_those_of_the_env(kwargs, share):
    pytest.importorskip("ale_py", reason="plays a game of ALE")
    env = _made(EnvSource("ALE/Pong-v5", kwargs, preprocess=True))
    while not isinstance(env, atari.SavedGame):
        env = env.env
    env.reset(seed=0)
    assert env.unwrapped.ale.getFloat("repeat_action_probability") == 0.0
    repeated, before, count = 0, 0, 2000
    played = env.env.step
    taken: list[int] = []
    env.env.step = lambda action: taken.append(action) or played(action)
    for i in range(count):
        action = i % 2 + 2 * (i % 3 == 0)  # never the one before
        env.step(action)
        repeated += taken[-1] == before != action
        before = taken[-1]
    assert abs(repeated / count - share) < 0.05


# ---------------------------------------------------------------- runs


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_a_game_is_trained_resumed_and_evaluated(algorithm, tmp_path, capsys):
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    options = [*SHORT[algorithm], "--eval-episodes", "3"]
    assert main(["train", algorithm, GAME, *options, "--run-dir", str(whole)]) == 0
    captured = capsys.readouterr()
    trained = json.loads(captured.out.strip().splitlines()[-1])
    assert trained["eval_return_mean"] == fake_game.GAME_RETURN
    assert trained["eval_return_std"] == 0
    told = f"rookery: {GAME}: Atari preprocessing (84x84 grey, 4 frames, skip 4; rewards clipped"
    assert captured.err.count(told) == 1
    last = json.loads((whole / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["episode_return_mean"] == fake_game.GAME_RETURN
    assert last["episode_length_mean"] == fake_game.GAME_LENGTH
    steps_per_game = fake_game.LIVES * fake_game.STEPS_PER_LIFE
    assert last["episodes"] == last["step"] // (2 * steps_per_game) * 2
    config = _config(whole)
    assert config["source"]["wrappers"] == [] and config["eval_source"] is None

    half = [*options, "--total-steps", "48", "--run-dir", str(halves)]
    assert main(["train", algorithm, GAME, *half]) == 0
    assert main(["train", "--resume", str(halves), "--total-steps", "96"]) == 0
    assert "start new episodes" not in capsys.readouterr().err
    assert _config(halves)["source"] == config["source"]

    assert main(["eval", str(whole), "--episodes", "3"]) == 0
    assert _result(capsys)["eval_return_mean"] == fake_game.GAME_RETURN
    agent = rookery.load(whole)
    assert agent.observation_space.shape == (4, 84, 84)
    assert agent.act(np.zeros((4, 84, 84), np.uint8)) in agent.action_space


def test_how_games_are_preprocessed_is_told_where_progress_is_asked_for(tmp_path, capsys):
    told = {"total_steps": 32, "num_envs": 2, "backend": "serial", "eval_episodes": 0}
    config = rookery.PPOConfig(num_steps=16, num_epochs=1, minibatch_size=32)
    rookery.train(GAME, config, run_dir=tmp_path / "run", **told)
    rookery.resume(tmp_path / "run", total_steps=64)
    captured = capsys.readouterr()
    assert captured.out == "" and "preprocessing" not in captured.err
    rookery.resume(tmp_path / "run", total_steps=96, progress=True)
    assert capsys.readouterr().err.count(f"rookery: {GAME}: Atari preprocessing") == 1


_PPO = rookery.PPOConfig(num_steps=8, num_epochs=1)
_DQN = rookery.DQNConfig(warmup_steps=16, batch_size=4, replay_size=64)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "config"),
    [(GAME, _PPO), (GAME, _DQN), ("ALE/Pong-v5", _PPO), ("ALE/Pong-v5", _DQN)],
    ids=["a game-ppo", "a game-dqn", "pong-ppo", "pong-dqn"],
)
def test_a_run_of_two_halves_is_the_whole_run(env, config, tmp_path):
    if env != GAME:
        pytest.importorskip("ale_py", reason="plays a game of ALE")
    told = {"total_steps": 64, "num_envs": 2, "backend": "serial", "eval_episodes": 0}
    rookery.train(env, config, run_dir=tmp_path / "whole", **told)
    with rookery.Trainer(env, config, run_dir=tmp_path / "halves", **told) as trainer:
        for update in trainer:
            if update.steps == 32:
                break
    rookery.resume(tmp_path / "halves")
    assert_same_run(tmp_path / "whole", tmp_path / "halves")


_PLAYS_PONG = """
import sys
import rookery

config = rookery.PPOConfig(num_steps=8, num_epochs=1, minibatch_size=16)
rookery.train(
    "ALE/Pong-v5", config, total_steps=16, num_envs=2, num_workers=1, eval_episodes=2,
    env_kwargs={"max_num_frames_per_episode": 100}, run_dir=sys.argv[1],
    backend=sys.argv[2], collector=sys.argv[3], preprocess=sys.argv[4] == "True",
)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "collector", "preprocess"),
    [
        ("serial", "caller", True),
        ("process", "caller", True),
        ("auto", "caller", True),
        ("process", "workers", True),
        ("process", "caller", False),
    ],
)
def test_games_are_played_without_a_word_of_the_emulator(backend, collector, preprocess, tmp_path):
    pytest.importorskip("ale_py", reason="plays a game of ALE")
    options = [str(tmp_path / "run"), backend, collector, str(preprocess)]
    done = subprocess.run(
        [sys.executable, "-c", _PLAYS_PONG, *options], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = (done.stdout + done.stderr).splitlines()
    assert all(line.startswith("rookery: advice") for line in lines), lines


def test_a_game_of_ones_own_is_made_as_it_is_registered():
    for env in (GAME, gym.spec(GAME), fake_game.FakeGame):
        assert EnvSource(env, preprocess=True).arguments()["env"] is env
    code = (
        "import sys, rookery.run.families, rookery.env.wrappers.repeated;"
        "print('ale_py' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["False"], done.stderr


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_pong_is_trained_by_one_command(algorithm, tmp_path, capsys):
    pytest.importorskip("ale_py", reason="plays a game of ALE")
    kwargs = ["--env-kwargs", '{"max_num_frames_per_episode": 400}']
    told = [*SHORT[algorithm], *kwargs, "--eval-episodes", "2", "--run-dir", str(tmp_path / "run")]
    assert main(["train", algorithm, "ALE/Pong-v5", *told]) == 0
    trained = _result(capsys)
    assert np.isfinite(trained["eval_return_mean"])
    assert _config(tmp_path / "run")["source"]["env_kwargs"] == {"max_num_frames_per_episode": 400}


@pytest.mark.slow
def test_games_are_preprocessed_in_workers_that_collect_by_themselves(tmp_path):
    config = rookery.PPOConfig(num_steps=16, num_epochs=1)
    told = {"total_steps": 64, "num_envs": 2, "num_workers": 1, "collector": "workers"}
    with rookery.Trainer(GAME, config, run_dir=tmp_path / "run", **told) as trainer:
        *_, last = trainer
        score = trainer.final_evaluation()
    assert last.metrics["episode_return_mean"] == fake_game.GAME_RETURN
    assert score.eval_return_mean == fake_game.GAME_RETURN


def test_a_video_shows_a_game_as_evaluations_play_it(tmp_path, monkeypatch):
    pytest.importorskip("moviepy")
    config = rookery.PPOConfig(num_steps=16, num_epochs=1)
    told = {"total_steps": 32, "num_envs": 2, "backend": "serial", "eval_episodes": 0}
    rewards: list[float] = []
    step = atari.Lives.step

    def noted(self, action):
        result = step(self, action)
        if self.render_mode is not None:
            rewards.append(result[1])
        return result

    monkeypatch.setattr(atari.Lives, "step", noted)
    rookery.train(GAME, config, run_dir=tmp_path / "run", video_every=32, **told)
    assert len(list((tmp_path / "run" / "videos").glob("*.mp4"))) == 1
    assert sum(rewards) == fake_game.GAME_RETURN


def test_a_run_that_was_written_without_preprocessing_stays_without(tmp_path, capsys):
    run_dir = tmp_path / "run"
    told = [*SHORT_PPO, "--no-preprocess", "--eval-episodes", "0", "--run-dir", str(run_dir)]
    assert main(["train", "ppo", GAME, *told]) == 0
    config = _config(run_dir)
    for part in ("source", "train"):
        for name in ("preprocess", "frame_stack"):
            del config[part][name]
    (run_dir / "config.json").write_text(json.dumps(config))
    assert main(["train", "--resume", str(run_dir), "--total-steps", "128"]) == 0
    assert "preprocessing" not in capsys.readouterr().err
    assert _config(run_dir)["train"]["preprocess"] is False


# ---------------------------------------------------------------- flags


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ([GAME, "--frame-stack", "2"], (2, 84, 84)),
        ([GAME, "--no-preprocess"], (42, 32)),
        ([GAME, "--no-preprocess", "--frame-stack", "3"], (3, 42, 32)),
        (["CartPole-v1", "--frame-stack", "3"], (12,)),
        (["CartPole-v1"], (4,)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_frames_are_stacked_as_told(options, shape, tmp_path, capsys):
    run_dir = str(tmp_path / "run")
    env, *rest = options
    told = [*SHORT_PPO, *rest, "--total-steps", "32", "--eval-episodes", "0", "--run-dir", run_dir]
    assert main(["train", "ppo", env, *told]) == 0
    assert rookery.load(run_dir).observation_space.shape == shape
    assert main(["train", "--resume", run_dir, "--total-steps", "64"]) == 0
    assert main(["train", "--resume", run_dir, "--frame-stack", "7"]) == 2
    assert "frame_stack cannot be changed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("first", "second", "per_step"), [("Plus", "Times", 20.0), ("Times", "Plus", 11.0)]
)
def test_wrappers_are_named_one_by_one_the_innermost_first(
    first, second, per_step, tmp_path, capsys
):
    run_dir = tmp_path / "run"
    wrappers = ["--wrapper", f"fake_game:{first}", f"--wrapper=fake_game:{second}"]
    told = [*SHORT_PPO, *wrappers, "--eval-episodes", "1", "--run-dir", str(run_dir)]
    kwargs = ["--env-kwargs", '{"max_episode_steps": 5}']
    assert main(["train", "ppo", "CartPole-v1", *told, *kwargs]) == 0
    assert _result(capsys)["eval_return_mean"] == 5 * per_step
    assert _config(run_dir)["source"]["wrappers"] == [f"fake_game:{first}", f"fake_game:{second}"]
    assert main(["eval", str(run_dir), "--episodes", "1"]) == 0
    assert _result(capsys)["eval_return_mean"] == 5 * per_step
    assert main(["train", "--resume", str(run_dir), "--total-steps", "128"]) == 0
    assert _result(capsys)["eval_return_mean"] == 5 * per_step
    assert main(["train", "--resume", str(run_dir), "--wrapper", "fake_game:Plus"]) == 0
    assert _result(capsys)["eval_return_mean"] == 5 * 2.0
    assert _config(run_dir)["source"]["wrappers"] == ["fake_game:Plus"]


def test_a_users_wrappers_are_outside_of_the_familys(tmp_path):
    source = EnvSource(GAME, {}, (fake_game.Plus,), preprocess=True)
    env = _made(source)
    env.reset(seed=0)
    assert _play(env)[0] == [2.0] * fake_game.STEPS_PER_LIFE


def test_a_wrapper_that_has_a_name_only_in_its_module_keeps_it(tmp_path, monkeypatch, capsys):
    (tmp_path / "my_wrappers.py").write_text(
        "import functools, gymnasium\n"
        "short = functools.partial(gymnasium.wrappers.TimeLimit, max_episode_steps=3)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_wrappers", raising=False)
    run_dir = tmp_path / "run"
    told = [*SHORT_PPO, "--wrapper", "my_wrappers:short", "--run-dir", str(run_dir)]
    assert main(["train", "ppo", "CartPole-v1", *told, "--eval-episodes", "1"]) == 0
    for command in (["train", "--resume", str(run_dir)], ["eval", str(run_dir), "--episodes", "1"]):
        assert _config(run_dir)["source"]["wrappers"] == ["my_wrappers:short"]
        assert main(command) == 0
        assert _result(capsys)["eval_return_mean"] == 3.0


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        ("fake_game", "write module:Class"),
        (":Plus", "write module:Class"),
        ("no_such_module:Plus", "cannot import 'no_such_module'"),
        ("fake_game:Pluss", "fake_game has no 'Pluss'; did you mean Plus?"),
        ("fake_game:NOT_CALLABLE", "it is a int, not a callable Env -> Env"),
        ("fake_game:NoWrapper", "the class NoWrapper is not a gymnasium.Wrapper"),
        ("fake_game:needs_more", "name a function that passes the other arguments"),
        ("gymnasium.wrappers.vector:RecordEpisodeStatistics", "is not a gymnasium.Wrapper"),
    ],
)
def test_a_wrong_wrapper_is_one_line_before_anything_starts(
    wrapper, message, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rookery.run.loop.train", lambda *_, **__: pytest.fail("it started"))
    assert main(["train", "ppo", "CartPole-v1", "--wrapper", wrapper]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert f"--wrapper {wrapper}: " in line and message in line
    assert not (tmp_path / "runs").exists()


def test_a_misspelt_flag_is_told(capsys):
    assert main(["train", "ppo", "CartPole-v1", "--wraper", "a:B"]) == 2
    assert "did you mean --wrapper?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value"), [("frame_stack", 0), ("frame_stack", "4"), ("preprocess", "no")]
)
def test_invalid_settings_are_refused(name, value):
    with pytest.raises(ConfigError, match=name):
        TrainSettings(**{name: value})


# ---------------------------------------------------------------- MiniGrid


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_a_stack_of_grids_is_choices_too(algorithm, tmp_path, capsys):
    pytest.importorskip("minigrid")
    told = [*SHORT[algorithm], "--eval-episodes", "1", "--run-dir", str(tmp_path / "run")]
    kwargs = ["--env-kwargs", '{"max_steps": 9}', "--frame-stack", "2"]
    assert main(["train", algorithm, "MiniGrid-Empty-5x5-v0", *told, *kwargs]) == 0
    image = rookery.load(tmp_path / "run").observation_space["image"]
    assert isinstance(image, spaces.MultiDiscrete) and image.shape == (2, 7, 7, 3)


class _Parts(gym.Env):
    observation_space = spaces.Dict(
        a=spaces.MultiDiscrete([3, 4], dtype=np.uint8, start=[1, 0]),
        b=spaces.Tuple([spaces.MultiBinary((2, 2)), spaces.Discrete(3)]),
        c=spaces.Box(0, 255, (4, 4, 3), np.uint8),
    )
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


def test_stacks_of_choices_are_choices():
    env = FrameStack(3)(_Parts())
    space = env.observation_space
    assert space["a"] == spaces.MultiDiscrete([[3, 4]] * 3, dtype=np.uint8, start=[[1, 0]] * 3)
    assert space["b"][0] == spaces.MultiBinary((3, 2, 2))
    assert isinstance(space["b"][1], spaces.MultiDiscrete)
    assert space["c"].shape == (3, 4, 4, 3)
    seen = [env.reset(seed=0)[0], *(env.step(0)[0] for _ in range(4))]
    for before, obs in pairwise(seen):
        assert obs in space
        assert (obs["a"][:2] == before["a"][1:]).all()


class NoGrid(gym.Env):
    observation_space = spaces.Box(0, 1, (3,))
    action_space = spaces.Discrete(2)


def test_an_env_that_only_has_the_name_of_a_grid_is_told_of():
    pytest.importorskip("minigrid")
    gym.register("MiniGrid-Mine-v0", NoGrid)
    try:
        with pytest.raises(ConfigError, match=r"MiniGrid-Mine-v0 shows Box.*--no-preprocess"):
            rookery.Trainer("MiniGrid-Mine-v0", "ppo", num_envs=2, backend="serial")
    finally:
        del gym.registry["MiniGrid-Mine-v0"]


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_minigrid_is_trained_by_one_command(algorithm, tmp_path, capsys):
    pytest.importorskip("minigrid")
    run_dir = str(tmp_path / "run")
    told = [*SHORT[algorithm], "--eval-episodes", "2", "--run-dir", run_dir]
    kwargs = ["--env-kwargs", '{"max_steps": 9}']
    assert main(["train", algorithm, "MiniGrid-Empty-5x5-v0", *told, *kwargs]) == 0
    assert "MiniGrid preprocessing" in capsys.readouterr().err
    agent = rookery.load(run_dir)
    assert set(agent.observation_space.spaces) == {"direction", "image"}
    assert main(["train", "--resume", run_dir, "--total-steps", "128"]) == 0


@pytest.mark.parametrize("env", ["MiniGrid-DoorKey-5x5-v0", "BabyAI-GoToObjMaze-v0"])
def test_a_grid_is_shown_as_choices(env):
    pytest.importorskip("minigrid")
    made = _made(EnvSource(env, preprocess=True))
    plain = _made(EnvSource(env))
    for seed in range(3):
        obs, seen = made.reset(seed=seed)[0], plain.reset(seed=seed)[0]
        for action in [2, 1, 2, 5, 0, 2, 3, 2, 4] * 3:
            assert obs in made.observation_space
            assert (obs["image"] == seen["image"]).all()
            assert obs["direction"] == seen["direction"] and "mission" not in obs
            obs, seen = made.step(action)[0], plain.step(action)[0]


@pytest.mark.parametrize(
    ("address", "shape"), [("FullyObsWrapper", (5, 5, 3)), ("ViewSizeWrapper", (7, 7, 3))]
)
def test_a_grid_that_is_seen_otherwise_is_shown_as_choices_too(address, shape):
    pytest.importorskip("minigrid")
    wrapper = wrapper_at(f"minigrid.wrappers:{address}")
    source = EnvSource("MiniGrid-Empty-5x5-v0", {}, (wrapper, fake_game.Plus), preprocess=True)
    env = _made(source)
    assert isinstance(env, fake_game.Plus)
    image = env.observation_space["image"]
    assert isinstance(image, spaces.MultiDiscrete) and image.shape == shape
    obs, _ = env.reset(seed=0)
    for action in [0, 0, 0, 0, 2, 1, 2]:  # looks into all directions
        assert obs in env.observation_space
        obs, *_ = env.step(action)
    turned = EnvSource("MiniGrid-Empty-5x5-v0", {}, (fake_game.Plus, wrapper), preprocess=True)
    assert isinstance(_made(turned), type(wrapper(env)))  # only the first lie inside


@pytest.mark.parametrize("env", ["MiniGrid-GoToDoor-5x5-v0", "BabyAI-GoToRedBall-v0"])
def test_a_mission_is_read_by_an_encoder_of_ones_own(env, tmp_path):
    pytest.importorskip("minigrid")
    import torch
    from torch import nn

    from rookery.env.wrappers.minigrid import GridWithMission

    class Letters(nn.Module):
        def __init__(self, space: spaces.Space) -> None:
            super().__init__()
            self.letters = nn.EmbeddingBag(128, 8)

        def forward(self, texts):
            starts = np.cumsum([0, *map(len, texts)])[:-1]
            letters = [ord(letter) for text in texts for letter in text]
            return self.letters(torch.tensor(letters), torch.from_numpy(starts))

    result = rookery.train(
        env, rookery.PPOConfig(num_steps=8, num_epochs=1),
        encoder={"mission": Letters}, preprocess=False, wrappers=[GridWithMission],
        env_kwargs={"max_steps": 9}, total_steps=32, num_envs=2, backend="serial",
        eval_episodes=2, run_dir=tmp_path / "run",
    )  # fmt: skip
    assert result.eval_return_mean is not None
