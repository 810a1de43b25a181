"""A learner's loss is its only objective: overriding it takes effect in every algorithm."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from off_policy import B, T, made_up_rollout

import rookery
from rookery import (
    A2CConfig,
    DQNConfig,
    ImpalaConfig,
    PPOConfig,
    QRDQNConfig,
    Rollout,
    SACConfig,
    TD3Config,
)
from rookery.learn.fast.origin import DERIVED_FROM, fingerprint
from rookery.learn.off_policy.dqn import DQN
from rookery.learn.off_policy.qrdqn import QRDQN
from rookery.learn.off_policy.sac import SAC
from rookery.learn.off_policy.td3 import TD3
from rookery.learn.on_policy import a2c, ppo
from rookery.learn.on_policy.a2c import A2C
from rookery.learn.on_policy.actor_critic import standardized
from rookery.learn.on_policy.batches import evaluate
from rookery.learn.on_policy.impala import Impala
from rookery.learn.on_policy.ppo import PPO
from rookery.policy import make_policy
from rookery.policy.torch.networks import ActorCritic

VECTOR, DISCRETE, BOX = spaces.Box(-1, 1, (3,)), spaces.Discrete(3), spaces.Box(-1, 1, (2,))
REPLAY: dict[str, Any] = {"warmup_steps": 0, "batch_size": 6, "updates_per_step": 1.0}
CASES: dict[str, Any] = {
    "ppo": (PPO, PPOConfig(num_steps=T, minibatch_size=6), DISCRETE),
    "ppo on Box": (PPO, PPOConfig(num_steps=T, minibatch_size=6), BOX),
    "a2c": (A2C, A2CConfig(num_steps=T), DISCRETE),
    "a2c on Box": (A2C, A2CConfig(num_steps=T), BOX),
    "impala": (Impala, ImpalaConfig(num_steps=T), DISCRETE),
    "dqn": (DQN, DQNConfig(num_steps=T, **REPLAY), DISCRETE),
    "qrdqn": (QRDQN, QRDQNConfig(num_steps=T, **REPLAY), DISCRETE),
}
TWIN_CASES: dict[str, Any] = {
    "sac": (SAC, SACConfig(num_steps=T, **REPLAY), ("critic_loss", "actor_loss", "alpha_loss")),
    "td3": (TD3, TD3Config(num_steps=T, **REPLAY), ("critic_loss", "actor_loss")),
}


def _rollout(policy: Any, action_space: spaces.Space[Any]) -> Rollout:
    rollout = made_up_rollout(VECTOR, action_space)
    for t in range(T):
        step = policy.act(rollout.obs[t])
        rollout.action[t], rollout.log_prob[t], rollout.value[t] = step
    return rollout


def _without_loss(name: str) -> Any:
    """Return a method that overrides ``name`` and multiplies the loss by zero."""

    def method(self: Any, *arguments: Any) -> Any:
        found = getattr(super(type(self), self), name)(*arguments)
        if isinstance(found, dict):
            return {**found, "loss": 0.0 * found["loss"]}
        if hasattr(found, "_replace"):
            return found._replace(loss=0.0 * found.loss)
        return (0.0 * found[0], *found[1:]) if isinstance(found, tuple) else 0.0 * found

    return method


def _update(kind: Any, config: Any, action_space: spaces.Space[Any]) -> tuple[bool, Any, Any]:
    """Update once; return whether the policy's weights changed, the learner and the metrics."""
    policy = kind.make_policy(config, VECTOR, action_space, 0)
    learner = kind(policy, config, B)
    before = policy.model.parameters.copy()
    metrics = learner.update(_rollout(policy, action_space))
    return bool((policy.model.parameters != before).any()), learner, metrics


@pytest.mark.parametrize("case", CASES)
def test_a_subclass_whose_loss_is_zero_learns_nothing(case: str) -> None:
    kind, config, action_space = CASES[case]
    assert _update(kind, config, action_space)[0]
    own = type("Own", (kind,), {"loss": _without_loss("loss")})
    has_learned, _, metrics = _update(own, config, action_space)
    assert not has_learned
    assert metrics["gradient_norm"] == 0.0


@pytest.mark.parametrize("case", TWIN_CASES)
def test_each_loss_of_actor_and_critics_can_be_overridden(case: str) -> None:
    kind, config, names = TWIN_CASES[case]
    for name in (None, *names):
        own = type("Own", (kind,), {name: _without_loss(name)} if name else {})
        policy = own.make_policy(config, VECTOR, BOX, 0)
        learner = own(policy, config, B)
        before = {
            "critic_loss": learner._critic_flat.tensor.clone(),
            "actor_loss": learner.placement.flat.tensor.clone(),
        }
        if case == "sac":
            before["alpha_loss"] = learner._alpha_flat.tensor.clone()
        learner.update(_rollout(policy, BOX))
        after = {
            "critic_loss": learner._critic_flat.tensor,
            "actor_loss": learner.placement.flat.tensor,
        }
        if case == "sac":
            after["alpha_loss"] = learner._alpha_flat.tensor
        changed = {key for key in before if (before[key] != after[key]).any()}
        assert changed == set(names) - {name}


@pytest.mark.parametrize("module", [ppo, a2c])
def test_an_edited_copy_of_the_file_learns_by_its_own_loss(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Path(module.__file__).read_text(encoding="utf-8")
    expression = "policy + config.value_coef * value - self.entropy_coef * entropy"
    assert source.count(expression) == 1
    file = tmp_path / "edited.py"
    file.write_text(source.replace(expression, f"0.0 * ({expression})"), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("edited", file)
    assert spec is not None and spec.loader is not None
    edited = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "edited", edited)
    spec.loader.exec_module(edited)
    kind, config, action_space = CASES[module.__name__.rpartition(".")[2]]
    has_learned, _, metrics = _update(getattr(edited, kind.__name__), config, action_space)
    assert not has_learned
    assert metrics["gradient_norm"] == 0.0


@pytest.mark.parametrize("case", ["ppo", "a2c"])
def test_a_loss_that_is_assigned_to_the_class_or_to_a_learner_is_used(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, config, action_space = CASES[case]
    library_loss = kind.loss

    def loss(self: Any, batch: Any) -> Any:
        found = library_loss(self, batch)
        return {**found, "loss": 0.0 * found["loss"]}

    policy = kind.make_policy(config, VECTOR, action_space, 0)
    learner = kind(policy, config, B)
    before = policy.model.parameters.copy()
    learner.loss = loss.__get__(learner)
    learner.update(_rollout(policy, action_space))
    np.testing.assert_array_equal(policy.model.parameters, before)
    monkeypatch.setattr(kind, "loss", loss)
    assert not _update(kind, config, action_space)[0]


def test_the_loss_of_another_learner_is_differentiated_as_that_loss() -> None:
    config = CASES["ppo"][1]
    own = type("Own", (PPO,), {"loss": A2C.loss})
    outcomes = []
    for fused in (True, False):
        policy = own.make_policy(config, VECTOR, DISCRETE, 0)
        own(policy, config, B, fused=fused).update(_rollout(policy, DISCRETE))
        outcomes.append(policy.model.parameters)
    np.testing.assert_allclose(*outcomes, atol=1e-5)


@pytest.mark.parametrize("case", ["ppo", "a2c", "impala"])
def test_a_loss_need_not_return_the_librarys_other_numbers(case: str) -> None:
    kind, config, action_space = CASES[case]

    def loss(self: Any, batch: Any) -> Any:
        return {"loss": kind.loss(self, batch)["loss"], "mine": 3.0}

    has_learned, _, metrics = _update(type("Own", (kind,), {"loss": loss}), config, action_space)
    assert has_learned
    assert metrics["mine"] == 3.0


class Constant(ActorCritic):
    """Outputs do not depend on observations."""

    def forward(self, features: Any, memory: Any = None) -> Any:
        found = super().forward(0.0 * features, memory)
        return found._replace(value=found.value + 100.0)


@pytest.mark.parametrize("kind", [PPO, A2C])
def test_a_subclass_of_the_built_in_network_acts_and_learns_with_its_own_forward(kind: Any) -> None:
    def build(num_features: int, hidden_sizes: Any, layout: Any, generator: Any) -> Constant:
        return Constant(num_features, layout.num_outputs, generator=generator)

    config = CASES["ppo" if kind is PPO else "a2c"][1]
    outcomes = []
    for fused in (True, False):
        policy = make_policy(VECTOR, DISCRETE, build=build)
        rollout = _rollout(policy, DISCRETE)
        assert (rollout.value > 90.0).all()
        metrics = kind(policy, config, B, fused=fused).update(rollout)
        outcomes.append((policy.model.parameters.copy(), metrics["value_loss"]))
    np.testing.assert_allclose(outcomes[0][0], outcomes[1][0], atol=1e-5)
    assert outcomes[0][1] == pytest.approx(outcomes[1][1], rel=1e-3)


@pytest.mark.parametrize("module", [ppo, a2c])
def test_an_edit_of_the_library_changes_what_is_learned(module: Any, tmp_path: Path) -> None:
    """Edit ``ppo.py`` in a copy of the library: training uses the new loss, with a warning."""
    library = tmp_path / "rookery"
    shutil.copytree(Path(rookery.__file__).parent, library)
    file = library / "learn" / "on_policy" / Path(module.__file__).name
    expression = '"policy_loss": policy,'
    source = file.read_text(encoding="utf-8")
    assert source.count(expression) == 1
    file.write_text(source.replace(expression, f'"edited": 7.0, {expression}'), encoding="utf-8")
    name = module.__name__.rpartition(".")[2]
    program = (
        "import json, rookery\n"
        f"t = rookery.Trainer('CartPole-v1', {name!r}, total_steps=64, num_envs=2, "
        "backend='serial', eval_episodes=0, run_dir='run')\n"
        "with t: print('edited' in next(t).metrics, rookery.__file__)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True,
        text=True, timeout=300, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["True", str(library / "__init__.py")]
    assert "loss was edited, so torch differentiates it" in done.stderr


@pytest.mark.parametrize("module", [ppo, a2c])
def test_the_derived_gradient_belongs_to_the_present_code_of_the_loss(module: Any) -> None:
    name = module.__name__.rpartition(".")[2]
    found = fingerprint(module.LIBRARY_LOSS, evaluate, standardized)
    assert found == DERIVED_FROM[name], "derive the gradient of learn/fast anew, then set this hash"
