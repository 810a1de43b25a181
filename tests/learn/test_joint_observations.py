"""Networks for observations with several parts can represent functions of all parts together."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import rookery
from rookery.common.trees import tree_map
from rookery.policy.torch.encoders import to_tensors
from rookery.run.algorithms import BUILT_IN, BuiltIn, OwnModules
from rookery.run.checkpoint.files import load_checkpoint, save_checkpoint

IMAGE = spaces.Box(0, 255, (8, 8, 3), np.uint8)
VECTOR = spaces.Box(-1, 1, (2,))
WORD = spaces.Text(4, charset="abcdefgh")
CONTINUOUS = ("sac", "td3")


class Letters(nn.Module):
    """Reads text by a linear layer over the counts of its letters."""

    def __init__(self, _: spaces.Space[Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 16)

    def forward(self, words: Any) -> torch.Tensor:
        counts = [[str(word).count(letter) for letter in "abcdefgh"] for word in words]
        return torch.relu(self.layer(torch.tensor(counts, dtype=torch.float32)))


# Two parts that must be read together, with and without custom encoders.
PAIRS: dict[str, tuple[spaces.Dict, tuple[str, str], Any]] = {
    "image and numbers": (spaces.Dict(a=IMAGE, b=VECTOR), ("a", "b"), None),
    "image and choice": (spaces.Dict(a=IMAGE, b=spaces.Discrete(3)), ("a", "b"), None),
    "image and bits": (spaces.Dict(a=IMAGE, b=spaces.MultiBinary(3)), ("a", "b"), None),
    "image and image": (spaces.Dict(a=IMAGE, b=IMAGE), ("a", "b"), None),
    "text and numbers": (spaces.Dict(a=WORD, b=VECTOR), ("a", "b"), {"a": Letters}),
    "numbers and choice": (spaces.Dict(a=VECTOR, b=spaces.Discrete(3)), ("a", "b"), None),
    "image, numbers and mask": (
        spaces.Dict(a=IMAGE, b=VECTOR, action_mask=spaces.MultiBinary(2)),
        ("a", "b"),
        None,
    ),
}
ALGORITHMS = [
    *((name, "none") for name in BUILT_IN),
    *((name, core) for name in ("ppo", "a2c", "impala") for core in ("gru", "lstm")),
]


def _policy(name: str, space: Any, encoder: Any = None, **settings: Any) -> tuple[Any, Any]:
    actions = spaces.Box(-1, 1, (2,)) if name in CONTINUOUS else spaces.Discrete(2)
    algorithm = BuiltIn(name, BUILT_IN[name][0](**settings), OwnModules(encoder))
    policy: Any = algorithm.make_policy(space, actions, 0)
    return algorithm, policy


def _four(space: spaces.Dict, names: tuple[str, str]) -> Any:
    """Return observations (a1, b1), (a1, b2), (a2, b1), (a2, b2), equal in all other parts."""
    space.seed(3)
    first, second = space.sample(), space.sample()
    while any(np.array_equal(first[name], second[name]) for name in names):
        second = space.sample()
    rows = []
    for a, b in itertools.product((first, second), repeat=2):
        rows.append({**first, names[0]: a[names[0]], names[1]: b[names[1]]})
    return to_tensors({key: np.array([row[key] for row in rows]) for key in space.spaces})


def _mixed_difference(values: torch.Tensor) -> float:
    """Return the largest |f(a1, b1) - f(a1, b2) - f(a2, b1) + f(a2, b2)|; 0 for any f(a) + g(b)."""
    values = values.double()
    return float((values[0] - values[1] - values[2] + values[3]).abs().max() / values.std(0).max())


@pytest.mark.parametrize(("name", "core"), ALGORITHMS)
@pytest.mark.parametrize("pair", PAIRS)
def test_outputs_can_depend_on_two_parts_together(pair: str, name: str, core: str) -> None:
    space, names, encoder = PAIRS[pair]
    settings = {} if core == "none" else {"recurrent": core}
    algorithm, policy = _policy(name, space, encoder, **settings)
    module, obs = policy.model.module, _four(space, names)
    memory = module.initial_memory(4) if module.memory_width else None
    with torch.no_grad():
        found = module(obs, memory)
    assert _mixed_difference(found.outputs) > 1e-4
    if name in ("ppo", "a2c", "impala"):
        assert _mixed_difference(found.value[:, None]) > 1e-4
    if name in CONTINUOUS:
        algorithm.start(policy, 2, 0)
        action = torch.zeros(4, 2)
        with torch.no_grad():
            values = algorithm._learner._critics(obs, action)
        assert _mixed_difference(values.T) > 1e-4


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("space", [IMAGE, spaces.Dict(a=IMAGE, b=VECTOR)], ids=["image", "both"])
def test_critics_can_depend_on_image_and_action_together(name: str, space: Any) -> None:
    algorithm, policy = _policy(name, space)
    algorithm.start(policy, 2, 0)
    space.seed(0)
    first, second = space.sample(), space.sample()
    rows = [first, first, second, second]
    if isinstance(space, spaces.Dict):
        rows = [{**first, "a": row["a"]} for row in rows]
        obs = to_tensors({key: np.array([row[key] for row in rows]) for key in space.spaces})
    else:
        obs = to_tensors(np.array(rows))
    action = torch.tensor([[-1.0, 0.5], [1.0, -0.5]]).repeat(2, 1)
    with torch.no_grad():
        values = algorithm._learner._critics(obs, action)
    assert _mixed_difference(values.T) > 1e-4


@pytest.mark.parametrize("name", ["ppo", "a2c", "impala", "dqn", "qrdqn"])
@pytest.mark.parametrize("has_action_mask", [False, True])
def test_an_image_alone_keeps_heads_right_behind_its_encoder(
    name: str, has_action_mask: bool
) -> None:
    space: Any = IMAGE
    if has_action_mask:  # no network reads the mask
        space = spaces.Dict(a=IMAGE, action_mask=spaces.MultiBinary(2))
    _, policy = _policy(name, space)
    assert not len(policy.model.module.network.towers)


def test_what_the_user_sets_wins() -> None:
    space = PAIRS["image and numbers"][0]
    for name in ("ppo", "dqn"):
        for sizes in ((), (7,)):
            _, policy = _policy(name, space, hidden_sizes=sizes)
            assert len(policy.model.module.network.towers) == len(sizes)


def test_an_encoder_without_layers_does_not_make_action_values_linear() -> None:
    _, policy = _policy("dqn", VECTOR, lambda _: nn.Flatten())
    assert len(policy.model.module.network.towers) == 2


class Xor(gym.Env[Any, Any]):
    """One step: rewards the action that is the exclusive or of a bright image and a sign."""

    observation_space = spaces.Dict(image=IMAGE, sign=spaces.Box(-1, 1, (1,)))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        bright, up = self.np_random.integers(0, 2, 2)
        self._wanted = bright ^ up
        image = np.full(IMAGE.shape, 255 * bright, np.uint8)
        return {"image": image, "sign": np.array([2.0 * up - 1], np.float32)}, {}

    def step(self, action):
        return self.observation_space.sample(), float(action == self._wanted), True, False, {}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_it_learns_an_exclusive_or_of_image_and_number(tmp_path: Path, name: str) -> None:
    config: Any = {
        "ppo": rookery.PPOConfig(num_steps=64, num_epochs=8, minibatch_size=128),
        "dqn": rookery.DQNConfig(updates_per_step=0.1, warmup_steps=200, n_step=1),
    }[name]
    result = rookery.train(
        Xor, config, num_envs=8, total_steps=6_000, backend="serial", eval_episodes=50,
        eval_every=1_000, stop_at=0.97, run_dir=tmp_path / "run",
    )  # fmt: skip
    assert result.eval_return_mean is not None and result.eval_return_mean > 0.95


def _rate(progress: float) -> float:
    return 1e-3


def _as_of_version_0_9(folder: Path) -> None:
    """Make a run without hidden layers look as version 0.9 wrote it: with hidden_sizes None."""
    config = json.loads((folder / "config.json").read_text())
    algo = config["algo"]
    assert config[algo]["hidden_sizes"] == []
    config[algo]["hidden_sizes"] = None
    (folder / "config.json").write_text(json.dumps(config))
    saved = load_checkpoint(folder / "checkpoint.pt")
    saved["algorithm"][algo]["hidden_sizes"] = None
    save_checkpoint(folder / "checkpoint.pt", saved)


@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_runs_of_networks_without_hidden_layers_still_load(tmp_path: Path, name: str) -> None:
    config: Any = BUILT_IN[name][0](
        num_steps=8, hidden_sizes=(), learning_rate=_rate, final_learning_rate=None
    )
    rookery.train(
        Xor, config, num_envs=2, total_steps=64, backend="serial", eval_episodes=0, run_dir=tmp_path
    )
    obs = Xor().reset(seed=0)[0]
    rows = tree_map(lambda part: np.array([part]), obs)
    before = rookery.load(tmp_path).policy.model.module(to_tensors(rows)).outputs
    _as_of_version_0_9(tmp_path)
    after = rookery.load(tmp_path).policy.model.module(to_tensors(rows)).outputs
    assert torch.equal(before, after)
    rookery.evaluate(tmp_path, episodes=2)
    result = rookery.resume(tmp_path, total_steps=128)
    assert result.steps == 128
    assert not len(rookery.load(tmp_path).policy.model.module.network.towers)
