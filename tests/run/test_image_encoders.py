"""Which of the built-in networks reads images is a setting, of every algorithm that takes them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from torch import nn

import rookery
from rookery import ConfigError
from rookery.cli import main
from rookery.policy.torch.images import ImpalaCNN, NatureCNN
from rookery.run.algorithms import BUILT_IN, BuiltIn, OwnModules

IMAGE = spaces.Box(0, 255, (8, 8, 3), np.uint8)
BOTH = spaces.Dict(eye=IMAGE, ear=spaces.Box(-1, 1, (3,)))


class Picture(gym.Env[Any, Any]):
    """Shows noise, and rewards the second action, in episodes of five steps."""

    observation_space = IMAGE
    action_space = spaces.Discrete(2)

    def _show(self) -> Any:
        return self.np_random.integers(0, 256, IMAGE.shape, np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._count = 0
        return self._show(), {}

    def step(self, action):
        self._count += 1
        return self._show(), float(action), self._count == 5, False, {}


def _encoders(module: Any) -> list[type[Any]]:
    return [type(part) for part in module.modules() if isinstance(part, NatureCNN | ImpalaCNN)]


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("space", [IMAGE, BOTH], ids=["alone", "beside numbers"])
def test_every_algorithm_reads_images_by_the_network_that_is_set(name: str, space: Any) -> None:
    actions = spaces.Box(-1, 1, (2,)) if name in ("sac", "td3") else spaces.Discrete(2)
    config: Any = BUILT_IN[name][0]()
    for chosen, kind in (("nature", NatureCNN), ("impala", ImpalaCNN)):
        algorithm = BuiltIn(name, replace(config, image_encoder=chosen))
        policy: Any = algorithm.make_policy(space, actions, 0)
        assert _encoders(policy.model.module) == [kind]
        algorithm.start(policy, 2, 0)
        critics = getattr(algorithm._learner, "_critics", None)
        assert critics is None or _encoders(critics) == [kind]
    assert config.image_encoder == "nature"


def test_critics_beside_an_actor_of_ones_own_read_images_by_the_network_that_is_set() -> None:
    config = replace(rookery.SACConfig(), image_encoder="impala")
    own = OwnModules(network=lambda *_: nn.Sequential(nn.Flatten(), nn.LazyLinear(4)))
    algorithm = BuiltIn("sac", config, own)
    floats = spaces.Box(0, 1, (8, 8, 3))
    policy: Any = algorithm.make_policy(floats, spaces.Box(-1, 1, (2,)), 0)
    algorithm.start(policy, 2, 0)
    assert _encoders(algorithm._learner._critics) == [ImpalaCNN]


def test_a_run_remembers_which_network_reads_its_images(tmp_path: Path) -> None:
    config = rookery.PPOConfig(num_steps=8, num_epochs=1, image_encoder="impala")
    rookery.train(
        Picture, config, total_steps=16, num_envs=2, backend="serial", eval_episodes=1,
        run_dir=tmp_path,
    )  # fmt: skip
    told = json.loads((tmp_path / "config.json").read_text())
    assert told["ppo"]["image_encoder"] == "impala"
    agent = rookery.load(tmp_path)
    assert _encoders(agent.policy.model.module) == [ImpalaCNN]  # type: ignore[attr-defined]
    assert agent.act(np.zeros(IMAGE.shape, np.uint8)) in (0, 1)
    assert rookery.resume(tmp_path, total_steps=32).steps == 32
    with pytest.raises(ConfigError, match="image_encoder cannot be changed when a run is resumed"):
        rookery.resume(tmp_path, total_steps=48, image_encoder="nature")


def test_the_command_line_sets_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--total-steps", "8", "--num-envs", "2", "--num-steps", "4", "--eval-episodes", "0"]
    env = f"{Picture.__module__}:ShownPicture-v0"
    gym.register("ShownPicture-v0", Picture)
    try:
        options = [*few, "--backend", "serial", "--run-dir", str(tmp_path)]
        assert main(["train", "ppo", env, *options, "--image-encoder", "impala"]) == 0
    finally:
        del gym.registry["ShownPicture-v0"]
    assert json.loads((tmp_path / "config.json").read_text())["ppo"]["image_encoder"] == "impala"
    assert main(["train", "ppo", "CartPole-v1", "--image-encoder", "resnet"]) == 2
    assert "--image-encoder" in capsys.readouterr().err


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_network_that_there_is_not_is_refused(name: str) -> None:
    with pytest.raises(
        ConfigError, match=r"image_encoder must be one of 'nature', 'impala', got 'resnet'"
    ):
        BUILT_IN[name][0](image_encoder="resnet")  # type: ignore[call-arg]
