"""What keeps videos from being recorded is told before a run starts, or costs nothing learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("moviepy")

import rookery
from rookery import ConfigError, EnvFailed, PPOConfig, StorageError
from rookery.callbacks import RecordVideo
from rookery.run.checkpoint.files import load_checkpoint

QUICK = PPOConfig(num_steps=16, num_epochs=1, minibatch_size=32)


class Painter(gym.Env[Any, Any]):
    """Renders what its ``paint`` returns, in episodes of five steps."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.step_count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.step_count = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.step_count += 1
        return np.zeros(2, np.float32), 1.0, self.step_count >= 5, False, {}

    def render(self) -> Any:
        return self.paint()

    def paint(self) -> Any:
        return np.zeros((32, 48, 3), np.uint8)


class Raises(Painter):
    def paint(self) -> Any:
        raise RuntimeError("no display")


class Nothing(Painter):
    def paint(self) -> Any:
        return None


class Grey(Painter):
    def paint(self) -> Any:
        return np.zeros((32, 48), np.uint8)


class Floats(Painter):
    def paint(self) -> Any:
        return np.zeros((32, 48, 3))


class Humans(Painter):
    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__("human")


class Picky(Painter):
    """Takes no render mode, and has one."""

    def __init__(self) -> None:
        super().__init__("rgb_array")


class Blind(Painter):
    """Takes no render mode, and has none."""

    def __init__(self) -> None:
        super().__init__()


class Grows(Painter):
    def paint(self) -> Any:
        return np.zeros((32 + 2 * self.step_count, 48, 3), np.uint8)


class Tires(Painter):
    def paint(self) -> Any:
        if self.step_count > 2:
            raise RuntimeError("the window is gone")
        return super().paint()


def _train(folder: Path, env: Any, **options: Any) -> Any:
    options = {"video_every": 32, **options}
    return rookery.train(
        env, QUICK, run_dir=folder, total_steps=128, num_envs=2, backend="serial",
        eval_episodes=0, **options,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (Raises, "Raises, which raised RuntimeError when it was to render: no display"),
        (Nothing, "render gave None, not an array"),
        (Grey, r"render gave uint8 of shape \(32, 48\), not uint8 \[height, width, 3\]"),
        (Floats, r"render gave float64 of shape"),
        (Humans, "has no render_mode 'rgb_array'"),
        (Blind, "has no render_mode 'rgb_array'"),
    ],
)
@pytest.mark.parametrize("how", ["setting", "callback"])
def test_an_env_without_pictures_is_refused_before_anything_starts(
    tmp_path: Path, env: Any, message: str, how: str
) -> None:
    asked = {"callbacks": [RecordVideo(32)], "video_every": 0} if how == "callback" else {}
    with pytest.raises(ConfigError, match=message):
        _train(tmp_path / "run", env, **asked)
    assert not (tmp_path / "run").exists()


def test_an_env_that_takes_no_render_mode_may_have_its_own(tmp_path: Path) -> None:
    _train(tmp_path, Picky)
    assert len(list((tmp_path / "videos").glob("*.mp4"))) == 4


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (Grows, r"SpaceError while a video was recorded: render gave pictures of two shapes"),
        (Tires, r"RuntimeError while a video was recorded: the window is gone"),
    ],
)
def test_a_video_that_fails_costs_nothing_learned(tmp_path: Path, env: Any, message: str) -> None:
    with pytest.raises(EnvFailed, match=message) as caught:
        _train(tmp_path, env)
    assert "video_every=0" in str(caught.value) and caught.value.command == "render"
    assert load_checkpoint(tmp_path / "checkpoint.pt")["steps"] == 32
    assert rookery.resume(tmp_path, env=env, video_every=0).steps == 128


def test_a_video_for_which_there_is_no_room_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(gym.wrappers.RecordVideo, "stop_recording", full)
    with pytest.raises(StorageError, match=r"cannot write .*videos: No space left"):
        _train(tmp_path, Painter)
