"""Stable-Baselines3's wrappers, callbacks and algorithms run on RookeryVecEnv."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sb3_envs import ImageWalk, Walk
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    VecEnv,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
    VecVideoRecorder,
)

from rookery.integrations.sb3 import RookeryVecEnv

BACKENDS: dict[str, dict[str, Any]] = {
    "serial": {"backend": "serial"},
    "process": {"backend": "process", "num_workers": 2},
}
NUM_ENVS = 2
ACTIONS = np.ones(NUM_ENVS, np.int64)

Make = Callable[..., VecEnv]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Two threads of torch may add in another order, and fight over a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=list(BACKENDS))
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    made: list[VecEnv] = []

    def make_one(env: Any = "CartPole-v1", n_envs: int = NUM_ENVS, **kwargs: Any) -> VecEnv:
        made.append(
            make_vec_env(
                env,
                n_envs,
                seed=0,
                vec_env_cls=RookeryVecEnv,  # type: ignore[arg-type]
                vec_env_kwargs=BACKENDS[request.param],
                **kwargs,
            )
        )
        return made[-1]

    yield make_one
    for vec_env in made:
        vec_env.close()


@pytest.mark.parametrize("backend", list(BACKENDS))
@pytest.mark.parametrize(
    ("wrap", "env"),
    [
        (VecNormalize, Walk),
        (VecMonitor, Walk),
        (lambda vec_env: VecFrameStack(vec_env, n_stack=3), Walk),
        (VecTransposeImage, ImageWalk),
        (lambda vec_env: VecFrameStack(VecTransposeImage(vec_env), n_stack=2), ImageWalk),
    ],
    ids=["normalize", "monitor", "stack", "transpose", "transpose-and-stack"],
)
def test_vec_wrappers_give_what_they_give_on_dummy_vec_env(
    backend: str, wrap: Callable[[VecEnv], VecEnv], env: Any
) -> None:
    ours = wrap(RookeryVecEnv([env] * NUM_ENVS, **BACKENDS[backend]))
    theirs = wrap(DummyVecEnv([env] * NUM_ENVS))
    ours.seed(0)
    theirs.seed(0)
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    for _ in range(7):
        mine, other = ours.step(ACTIONS), theirs.step(ACTIONS)
        np.testing.assert_allclose(mine[0], other[0], rtol=1e-6)
        np.testing.assert_allclose(mine[1], other[1], rtol=1e-6)
        np.testing.assert_array_equal(mine[2], other[2])
        for info, expected in zip(mine[3], other[3], strict=True):
            assert info.keys() == expected.keys()
            if "episode" in info:
                assert info["episode"]["r"] == pytest.approx(expected["episode"]["r"], rel=1e-5)
            np.testing.assert_allclose(
                info.get("terminal_observation", 0), expected.get("terminal_observation", 0), 1e-6
            )
    ours.close()


@pytest.fixture
def tame_progress_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have tqdm start no thread; it would go on for ever, and forking beside it is warned of."""
    tqdm = pytest.importorskip("tqdm").tqdm
    monkeypatch.setattr(tqdm, "monitor_interval", 0)


@pytest.fixture(scope="session", autouse=True)
def lock_of_progress_bars() -> None:
    """Have tqdm make the lock that it keeps, before a test counts mappings."""
    pytest.importorskip("tqdm").tqdm.get_lock()


@pytest.mark.skipif(not importlib.util.find_spec("moviepy"), reason="needs moviepy")
def test_videos_are_recorded(make: Make, tmp_path: Path, tame_progress_bars: None) -> None:
    vec_env = VecVideoRecorder(make(), str(tmp_path), lambda step: step == 0, video_length=3)
    vec_env.reset()
    for _ in range(4):
        vec_env.step(ACTIONS)
    vec_env.close()
    assert list(tmp_path.glob("*.mp4"))


def test_ppo_learns_what_it_learns_on_dummy_vec_env(make: Make) -> None:
    def learned(vec_env: VecEnv) -> Any:
        model = PPO("MlpPolicy", vec_env, n_steps=32, batch_size=32, n_epochs=2, seed=1)
        return model.learn(128).policy.parameters_to_vector()

    theirs = learned(make_vec_env("CartPole-v1", NUM_ENVS, seed=0, vec_env_cls=DummyVecEnv))
    np.testing.assert_array_equal(learned(make()), theirs)


def test_dqn_learns_what_it_learns_on_dummy_vec_env(make: Make) -> None:
    def learned(vec_env: VecEnv) -> Any:
        model = DQN("MlpPolicy", vec_env, learning_starts=20, train_freq=4, seed=1)
        return model.learn(100).policy.parameters_to_vector()

    theirs = learned(make_vec_env("CartPole-v1", NUM_ENVS, seed=0, vec_env_cls=DummyVecEnv))
    np.testing.assert_array_equal(learned(make()), theirs)


def test_models_are_saved_loaded_and_trained_on(make: Make, tmp_path: Path) -> None:
    vec_env = VecNormalize(make())
    model = PPO("MlpPolicy", vec_env, n_steps=16, batch_size=16, n_epochs=1).learn(32)
    model.save(tmp_path / "model")
    vec_env.save(str(tmp_path / "normalize.pkl"))
    again = VecNormalize.load(str(tmp_path / "normalize.pkl"), make())
    np.testing.assert_array_equal(again.obs_rms.mean, vec_env.obs_rms.mean)  # type: ignore[union-attr]
    loaded = PPO.load(tmp_path / "model", env=again)
    obs = np.zeros((NUM_ENVS, 4), np.float32)
    assert (
        loaded.predict(obs, deterministic=True)[0] == model.predict(obs, deterministic=True)[0]
    ).all()
    assert loaded.learn(32, reset_num_timesteps=False).num_timesteps == 64


def test_policies_are_evaluated_on_all_envs(make: Make) -> None:
    model = PPO("MlpPolicy", "CartPole-v1", device="cpu", seed=0)
    returns, lengths = evaluate_policy(
        model, make(), n_eval_episodes=3, return_episode_rewards=True
    )
    theirs = evaluate_policy(
        model,
        make_vec_env("CartPole-v1", 2, seed=0),
        n_eval_episodes=3,
        return_episode_rewards=True,
    )
    assert (returns, lengths) == theirs


def test_callbacks_evaluate_while_it_learns(make: Make, tmp_path: Path) -> None:
    callback = EvalCallback(
        make(), n_eval_episodes=2, eval_freq=16, log_path=str(tmp_path), verbose=0
    )
    PPO("MlpPolicy", make(), n_steps=16, batch_size=16, n_epochs=1).learn(64, callback)
    evaluations = np.load(tmp_path / "evaluations.npz")
    assert evaluations["timesteps"].tolist() == [32, 64]
    assert evaluations["results"].shape == (2, 2)


def test_monitor_files_are_written_for_every_env(make: Make, tmp_path: Path) -> None:
    vec_env = make(Walk, monitor_dir=str(tmp_path))
    vec_env.reset()
    for _ in range(3):
        vec_env.step(ACTIONS)
    vec_env.close()
    for rank in range(NUM_ENVS):
        assert len((tmp_path / f"{rank}.monitor.csv").read_text().splitlines()) == 3
