"""Subclasses of the library's learners are trained with by ``learner=``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from own_learners import Net, NoDQNLoss, NoLoss, OwnPolicy, Scaled
from run_files import assert_same_run

import rookery
from rookery import ConfigError, DQNConfig, PPOConfig
from rookery.learn.on_policy.ppo import PPO

QUICK = PPOConfig(num_steps=16, num_epochs=1, minibatch_size=32)


def _trainer(run_dir: Path, algo: Any = QUICK, **options: Any) -> Any:
    options = {"total_steps": 128, "num_envs": 2, "backend": "serial", "eval_episodes": 2} | options
    return rookery.Trainer("CartPole-v1", algo, run_dir=run_dir, **options)


def _weights(run_dir: Path, algo: Any = QUICK, **options: Any) -> tuple[Any, Any]:
    """Train, and return the weights before and after."""
    with _trainer(run_dir, algo, **options) as trainer:
        before = trainer.policy.model.parameters.copy()
        list(trainer)
        return before, trainer.policy.model.parameters.copy()


def _last_metrics(run_dir: Path) -> Any:
    return json.loads((run_dir / "metrics.jsonl").read_text().splitlines()[-1])


@pytest.mark.parametrize(
    "options",
    [
        {"collector": "caller"},
        {"collector": "workers", "backend": "auto"},
        {"collector": "caller", "num_learners": 2, "backend": "auto"},
    ],
    ids=["caller", "workers", "two learners"],
)
def test_the_loss_of_a_learner_that_is_given_takes_effect(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    before, after = _weights(tmp_path / "plain", **options)
    assert (before != after).any()
    before, after = _weights(tmp_path / "mine", learner=NoLoss, **options)
    np.testing.assert_array_equal(before, after)
    assert _last_metrics(tmp_path / "mine")["mine"] == 3.0


def test_a_learner_from_replay_can_be_given(tmp_path: Path) -> None:
    config = DQNConfig(num_steps=16, warmup_steps=32, batch_size=8)
    before, after = _weights(tmp_path, config, learner=NoDQNLoss)
    np.testing.assert_array_equal(before, after)
    assert _last_metrics(tmp_path)["gradient_steps"] > 0


def test_presets_and_names_of_algorithms_go_with_a_learner(tmp_path: Path) -> None:
    with _trainer(tmp_path, "ppo", preset="auto", num_envs=8, learner=Scaled) as trainer:
        assert trainer.plan.preset is not None
        assert trainer.plan.algorithm.config == trainer.plan.preset.config
        next(trainer)


@pytest.mark.parametrize("is_given", [True, False])
def test_a_run_is_resumed_with_its_learner(tmp_path: Path, is_given: bool) -> None:
    with _trainer(tmp_path / "parts", learner=Scaled) as trainer:
        next(trainer)
    rookery.resume(tmp_path / "parts", **({"learner": Scaled} if is_given else {}))
    with _trainer(tmp_path / "whole", learner=Scaled) as trainer:
        list(trainer)
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    assert _last_metrics(tmp_path / "parts")["mine"] == 3.0


def test_a_local_learner_is_asked_for_where_it_is_needed(tmp_path: Path) -> None:
    class Local(Scaled):
        """Cannot be imported."""

    rookery.train(
        "CartPole-v1", QUICK, learner=Local, run_dir=tmp_path, total_steps=64, num_envs=2,
        backend="serial", eval_episodes=2,
    )  # fmt: skip
    with pytest.raises(ConfigError, match=r"learner is custom .*learner="):
        rookery.resume(tmp_path, total_steps=128)
    assert rookery.resume(tmp_path, learner=Local, total_steps=128).steps == 128
    # Its policy is the library's, so that no one needs the learner to act.
    assert rookery.load(tmp_path).steps == 128
    assert rookery.evaluate(tmp_path, 2).episodes == 2


def test_a_policy_that_a_learner_makes_needs_the_learner(tmp_path: Path) -> None:
    with _trainer(tmp_path, learner=OwnPolicy) as trainer:
        list(trainer)
        assert isinstance(trainer.policy.model.module.network, Net)
    with pytest.raises(ConfigError, match=r"pass it again: learner="):
        rookery.load(tmp_path)
    assert rookery.load(tmp_path, learner=OwnPolicy).steps == 128
    assert rookery.evaluate(tmp_path, 2).episodes == 2


def test_a_setting_that_is_changed_on_resuming_leaves_learner_and_network(tmp_path: Path) -> None:
    with _trainer(tmp_path, learner=NoLoss, network=Net) as trainer:
        next(trainer)
    with rookery.Trainer.resume(tmp_path, learning_rate=1e-2) as trainer:
        before = trainer.policy.model.parameters.copy()
        list(trainer)
        np.testing.assert_array_equal(before, trainer.policy.model.parameters)


@pytest.mark.parametrize(
    ("algo", "learner", "message"),
    [
        ("ppo", "MyPPO", "learner must be a subclass of a learner"),
        ("ppo", Net, "learner must be a subclass of a learner"),
        ("dqn", Scaled, r"Scaled is a learner of 'ppo', but algo is 'dqn'; pass algo='ppo'"),
        (Scaled, None, r"pass algo='ppo' \(or a PPOConfig\) and learner=Scaled"),
        (NoDQNLoss, None, "algo='dqn'"),
    ],
)
def test_learners_that_cannot_be_are_refused_by_name(
    tmp_path: Path, algo: Any, learner: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        _trainer(tmp_path / "run", algo, learner=learner)
    assert not (tmp_path / "run").exists()


class WrongMetrics(PPO):
    """Returns a metric that is no number."""

    def update(self, *arguments: Any) -> Any:
        return {**super().update(*arguments), "loss": "low"}


def test_metrics_of_a_learner_are_checked(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match="metric 'loss' must be a number"),
        _trainer(tmp_path, learner=WrongMetrics) as trainer,
    ):
        list(trainer)


PAGE = Path(__file__).resolve().parents[2] / "docs" / "algorithms.md"


def test_the_auxiliary_loss_of_the_page_trains_its_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    page: dict[str, Any] = {"__name__": "page"}
    exec(compile(code, str(PAGE), "exec"), page)
    errors = [
        json.loads(line)["reconstruction_loss"]
        for line in (tmp_path / "runs" / "auxiliary" / "metrics.jsonl").read_text().splitlines()
    ]
    assert errors[-1] < 0.5 * errors[0]
    changed = {}
    for name, learner in {"library": None, "page": page["AuxiliaryPPO"]}.items():
        options = {"network": page["Network"], "learner": learner}
        with _trainer(tmp_path / name, **options) as trainer:
            decoder = trainer.policy.model.module.network.decoder
            before = decoder.weight.detach().clone()
            next(trainer)
            changed[name] = bool((decoder.weight != before).any())
    assert changed == {"library": False, "page": True}
