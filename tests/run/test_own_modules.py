"""Networks of the user's own in runs: trained, saved, gone on with, loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from own_modules import Whole, features
from torch import nn

import rookery
from rookery import PPOConfig
from rookery.run.checkpoint.files import load_checkpoint

QUICK = PPOConfig(num_steps=16, num_epochs=2, minibatch_size=32, final_learning_rate=None)


def _train(folder: Path, **options: Any) -> Any:
    options = {"total_steps": 256, "num_envs": 2, "backend": "serial", "eval_episodes": 2} | options
    return rookery.train("CartPole-v1", options.pop("algo", QUICK), run_dir=folder, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    "modules", [{"encoder": features}, {"network": Whole}], ids=["encoder", "network"]
)
@pytest.mark.parametrize("collector", ["caller", "workers"])
def test_a_module_of_ones_own_is_trained_and_found_again(
    tmp_path: Path, modules: dict[str, Any], collector: str
) -> None:
    options: dict[str, Any] = {"collector": collector}
    if collector == "workers":  # one, for each imports torch
        options |= {"backend": "auto", "num_workers": 1}
    told = _train(tmp_path, **modules, **options)
    before = load_checkpoint(tmp_path / "checkpoint.pt")["model"]
    assert rookery.evaluate(tmp_path, episodes=2).eval_return_mean == told.eval_return_mean
    assert rookery.resume(tmp_path, total_steps=512).steps == 512
    after = load_checkpoint(tmp_path / "checkpoint.pt")["model"]
    changed = [k for k in before["module"] if (before["module"][k] != after["module"][k]).any()]
    assert any("linear" in name or "shared" in name for name in changed)
    agent = rookery.load(tmp_path, **modules)
    assert agent.act(np.zeros(4, np.float32)) in (0, 1)
    with pytest.raises(rookery.ConfigError, match=f"{next(iter(modules))} is custom"):
        rookery.load(tmp_path)


@pytest.mark.parametrize("has_critic", [False, True])
def test_an_actor_without_critic_is_warned_of(tmp_path: Path, has_critic: bool) -> None:
    class Both(nn.Linear):
        def forward(self, obs: torch.Tensor) -> Any:
            outputs = super().forward(obs)
            return (outputs, outputs[:, 0]) if has_critic else outputs

    def train() -> None:
        _train(tmp_path, network=lambda *_: Both(4, 2))

    if has_critic:
        train()
    else:
        with pytest.warns(UserWarning, match="network Both returns no values, so ppo learns"):
            train()


def test_what_cannot_be_imported_must_be_given_again(tmp_path: Path) -> None:
    encoder = lambda space: features(space)  # noqa: E731
    _train(tmp_path, encoder=encoder)
    with pytest.raises(rookery.ConfigError, match=r"local function\); pass it again: encoder="):
        rookery.resume(tmp_path, total_steps=512)
    assert rookery.resume(tmp_path, total_steps=512, encoder=encoder).steps == 512


def test_one_observation_of_a_dict_can_have_its_own_encoder(tmp_path: Path) -> None:
    class Places(gym.ObservationWrapper[Any, Any, Any]):
        def __init__(self, env: Any) -> None:
            super().__init__(env)
            self.observation_space = gym.spaces.Dict(
                cart=env.observation_space, side=gym.spaces.Discrete(2)
            )

        def observation(self, obs: Any) -> Any:
            return {"cart": obs, "side": int(obs[0] > 0)}

    class Sides(nn.Module):
        def __init__(self, space: Any) -> None:
            super().__init__()
            self.embedding = nn.Embedding(space.n, 3)

        def forward(self, side: torch.Tensor) -> torch.Tensor:
            return self.embedding(side)

    result = _train(tmp_path, wrappers=[Places], encoder={"side": Sides})
    assert result.steps == 256


class Words(gym.Env[Any, Any]):
    """Shows one of two words, and rewards the action that it calls for."""

    observation_space = gym.spaces.Dict(word=gym.spaces.Text(5), x=gym.spaces.Box(-1, 1, (1,)))
    action_space = gym.spaces.Discrete(2)

    def _show(self) -> Any:
        self._called = int(self.np_random.integers(2))
        return {"word": ["left", "right"][self._called], "x": np.zeros(1, np.float32)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._show(), {}

    def step(self, action: Any) -> Any:
        reward = float(action == self._called)
        return self._show(), reward, True, False, {}


class FirstLetter(nn.Module):
    """An encoder of words."""

    def __init__(self, space: Any) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, 3)

    def forward(self, words: Any) -> torch.Tensor:
        return self.embedding(torch.tensor([ord(str(word)[0]) % 256 for word in words]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "algo",
    [
        QUICK,
        rookery.ImpalaConfig(num_steps=8),
        pytest.param(rookery.DQNConfig(warmup_steps=16, batch_size=8), marks=pytest.mark.whole),
    ],
    ids=["ppo", "impala", "dqn"],
)
def test_words_are_learned_from_in_workers(tmp_path: Path, algo: Any) -> None:
    collector = "workers" if isinstance(algo, PPOConfig) else "async"
    rookery.train(
        Words, algo, encoder={"word": FirstLetter}, total_steps=128, num_envs=2, num_workers=2,
        collector=collector, run_dir=tmp_path, eval_episodes=2,
    )  # fmt: skip
    again = rookery.resume(tmp_path, encoder={"word": FirstLetter}, total_steps=256)
    assert again.steps == 256
    agent = rookery.load(tmp_path, encoder={"word": FirstLetter})
    assert agent.act({"word": "left", "x": [0.0]}) in (0, 1)
    batch = {"word": ["left", "right"], "x": [[0.0], [0.0]]}
    assert agent.act(batch).tolist() == [agent.act({"word": w, "x": [0.0]}) for w in batch["word"]]
    with pytest.raises(rookery.SpaceError, match="neither one of"):
        agent.act({"word": 3, "x": [0.0]})


class Cast(nn.Module):
    """Gives outputs of another dtype, or, with None, without gradients."""

    def __init__(self, dtype: torch.dtype | None) -> None:
        super().__init__()
        self.linear, self.dtype = nn.Linear(4, 2), dtype

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.linear(obs)
        return outputs.detach() if self.dtype is None else outputs.to(self.dtype)


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ({"encoder": lambda space: 3}, "encoder"),
        ({"encoder": features, "network": Whole}, "network"),
        ({"network": lambda o, a: nn.Linear(4, 5)}, "outputs"),
        ({"encoder": nn.Linear(4, 8)}, r"encoder is a module, a Linear; pass a callable"),
        ({"encoder": {"x": nn.Linear(4, 8)}}, r"encoder\['x'\] is a module, a Linear"),
        ({"network": nn.Linear(4, 3)}, r"network is a module.*\(observation_space, action_space\)"),
        ({"encoder": 3}, "encoder must be a callable"),
        ({"encoder": {"x": features}}, "observation_space Box.* has no parts"),
        (
            {"network": lambda o, a: Cast(torch.float16)},
            "must return outputs in float32",
        ),
        ({"network": lambda o, a: Cast(None)}, "outputs without gradients"),
    ],
    ids=[
        "no module",
        "both",
        "wrong shape",
        "module",
        "module of a part",
        "whole module",
        "number",
        "no parts",
        "half",
        "detached",
    ],
)
def test_a_module_that_does_not_fit_is_refused_and_leaves_nothing(
    tmp_path: Path, modules: dict[str, Any], message: str
) -> None:
    with pytest.raises(rookery.ConfigError, match=message):
        _train(tmp_path / "run", **modules)
    assert not (tmp_path / "run").exists()


def test_a_module_that_cannot_read_the_observations_is_named(tmp_path: Path) -> None:
    with pytest.raises(rookery.ConfigError, match=r"network Wide failed for a batch of two obs"):
        _train(tmp_path / "run", network=Wide)


class Wide(Whole):
    """Reads twice as many numbers as there are."""

    def forward(self, obs: torch.Tensor) -> Any:
        return super().forward(torch.cat([obs, obs], dim=1))


def test_modules_of_ones_own_get_float32_whatever_the_env_shows(tmp_path: Path) -> None:
    class Doubles(gym.ObservationWrapper[Any, Any, Any]):
        def __init__(self, env: Any) -> None:
            super().__init__(env)
            self.observation_space = gym.spaces.Box(-100, 100, (4,), np.float64)

        def observation(self, obs: Any) -> Any:
            return obs.astype(np.float64)

    assert _train(tmp_path, wrappers=[Doubles], network=Whole).steps == 256
