"""Files of a run that were cut off, overwritten or are another run's are refused by their name."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import rookery
from rookery import A2CConfig, DQNConfig, PPOConfig
from rookery.run.checkpoint.files import load_checkpoint, save_checkpoint

PPO = PPOConfig(num_steps=16, num_epochs=1)
DQN = DQNConfig(warmup_steps=32, batch_size=16)
READERS: dict[str, Callable[[Path], object]] = {
    "resume": lambda path: rookery.resume(path, total_steps=256),
    "evaluate": lambda path: rookery.evaluate(path, episodes=2),
}


class Masked(gym.Env[Any, Any]):
    """Shows which of three actions are legal: one of them, and a number."""

    observation_space = spaces.Dict(action_mask=spaces.MultiBinary(3), x=spaces.Box(-1, 1, (1,)))
    action_space = spaces.Discrete(3)

    def _show(self) -> Any:
        legal = np.eye(3, dtype=np.int8)[self.np_random.integers(3)]
        return {"action_mask": legal, "x": np.zeros(1, np.float32)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._count = 0
        return self._show(), {}

    def step(self, action: Any) -> Any:
        self._count += 1
        return self._show(), 1.0, self._count == 5, False, {}


def _train(folder: Path, algo: object = PPO, env: str = "CartPole-v1") -> Path:
    options = {"total_steps": 128, "num_envs": 2, "backend": "serial", "eval_episodes": 0}
    rookery.train(env, algo, run_dir=folder, **options)
    return folder


def _assert_refused(
    read: Callable[[Path], object], folder: Path, damaged: Path, why: str = ""
) -> None:
    """Check that the error names the file, and that nothing was changed."""
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(rookery.ConfigError, match=damaged.name.replace(".", r"\.") + f".*{why}"):
        read(folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("kept", [0.0, 0.02, 0.5, 0.95, 0.999])
@pytest.mark.parametrize("reader", list(READERS))
def test_a_checkpoint_that_was_cut_off_is_refused(tmp_path: Path, reader: str, kept: float) -> None:
    checkpoint = _train(tmp_path) / "checkpoint.pt"
    content = checkpoint.read_bytes()
    checkpoint.write_bytes(content[: int(kept * len(content))])
    _assert_refused(READERS[reader], tmp_path, checkpoint)


@pytest.mark.parametrize(
    ("content", "reader"),
    [
        (content, reader)
        for content in ({"weights": [1, 2]}, [1, 2, 3], torch.zeros(3))
        for reader in READERS
    ],
    ids=str,
)
def test_a_file_of_torchs_that_is_no_checkpoint_is_refused(
    tmp_path: Path, content: object, reader: str
) -> None:
    checkpoint = _train(tmp_path) / "checkpoint.pt"
    torch.save(content, checkpoint)
    _assert_refused(READERS[reader], tmp_path, checkpoint)


@pytest.mark.parametrize(
    ("algo", "env", "reader"),
    [
        (algo, env, reader)
        for algo, env in (
            (PPO, "Acrobot-v1"),
            (PPOConfig(num_steps=16, num_epochs=1, hidden_sizes=(8,)), "CartPole-v1"),
            (DQN, "CartPole-v1"),
        )
        for reader in READERS
    ],
)
def test_the_checkpoint_of_another_run_is_refused(
    tmp_path: Path, algo: object, env: str, reader: str
) -> None:
    checkpoint = _train(tmp_path / "run") / "checkpoint.pt"
    checkpoint.write_bytes((_train(tmp_path / "other", algo, env) / "checkpoint.pt").read_bytes())
    _assert_refused(READERS[reader], tmp_path / "run", checkpoint)


@pytest.mark.parametrize("reader", ["resume", "evaluate"])
def test_the_checkpoint_of_another_algorithm_is_refused_though_its_network_would_fit(
    tmp_path: Path, reader: str
) -> None:
    checkpoint = _train(tmp_path / "run") / "checkpoint.pt"
    other = _train(tmp_path / "other", A2CConfig(num_steps=16)) / "checkpoint.pt"
    checkpoint.write_bytes(other.read_bytes())
    _assert_refused(READERS[reader], tmp_path / "run", checkpoint)


@pytest.mark.parametrize("reader", list(READERS))
def test_a_checkpoint_of_a_network_that_read_the_action_mask_is_refused(
    tmp_path: Path, reader: str
) -> None:
    rookery.train(
        Masked, PPO, run_dir=tmp_path, total_steps=32, num_envs=2, backend="serial", eval_episodes=1
    )
    checkpoint = tmp_path / "checkpoint.pt"
    saved = load_checkpoint(checkpoint)
    del saved["leaves_mask_out"]  # as it was before networks left the mask out
    save_checkpoint(checkpoint, saved)
    _assert_refused(READERS[reader], tmp_path, checkpoint, "read the part 'action_mask'")


def test_a_checkpoint_of_before_whose_observations_show_no_mask_is_read(tmp_path: Path) -> None:
    checkpoint = _train(tmp_path) / "checkpoint.pt"
    saved = load_checkpoint(checkpoint)
    del saved["leaves_mask_out"]
    save_checkpoint(checkpoint, saved)
    assert rookery.load(tmp_path).steps == saved["steps"]


@pytest.mark.parametrize("reader", list(READERS))
@pytest.mark.parametrize(
    "text",
    [
        '{"algo": "ppo"',
        "",
        "[]",
        "{}",
        '{"algo": "sarsa"}',
    ],
)
def test_a_config_that_is_none_is_refused(tmp_path: Path, text: str, reader: str) -> None:
    config = _train(tmp_path) / "config.json"
    config.write_text(text)
    _assert_refused(READERS[reader], tmp_path, config)


@pytest.mark.parametrize("reader", list(READERS))
def test_a_config_with_a_setting_of_another_version_is_refused_by_its_name(
    tmp_path: Path, reader: str
) -> None:
    path = _train(tmp_path) / "config.json"
    config = json.loads(path.read_text())
    config["train"]["setting_of_tomorrow"] = 1
    path.write_text(json.dumps(config))
    _assert_refused(READERS[reader], tmp_path, path)


@pytest.mark.parametrize(
    "content",
    [b"", b"garbage", pickle.dumps([b"garbage"] * 2)],
    ids=["empty", "no pickle", "no states"],
)
def test_envs_whose_states_are_damaged_start_new_episodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    """Nothing that was learned lies in them."""
    (states,) = (_train(tmp_path) / "resume").glob("env_states*")
    states.write_bytes(content)
    assert rookery.resume(tmp_path, total_steps=256).steps == 256
    said = capsys.readouterr().err
    assert states.name in said and "new episodes" in said


def test_a_replay_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    (replay,) = (_train(tmp_path, DQN) / "resume").glob("replay*")
    replay.write_bytes(replay.read_bytes()[:1000])
    _assert_refused(READERS["resume"], tmp_path, replay)


def test_metrics_with_a_damaged_line_are_refused_and_kept(tmp_path: Path) -> None:
    metrics = _train(tmp_path) / "metrics.jsonl"
    damaged = '{"step": 1\n' + metrics.read_text()
    metrics.write_text(damaged)
    with pytest.raises(rookery.ConfigError, match=r"metrics.jsonl, line 1, is not a JSON object"):
        rookery.resume(tmp_path, total_steps=256)
    assert metrics.read_text() == damaged


def test_metrics_that_were_cut_off_go_on(tmp_path: Path) -> None:
    metrics = _train(tmp_path) / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes()[:-20])
    assert rookery.resume(tmp_path, total_steps=256).steps == 256
    assert json.loads(metrics.read_text().splitlines()[-1])["step"] == 256
