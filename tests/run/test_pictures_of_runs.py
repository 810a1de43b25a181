"""Episodes and evaluations that a run stores for its learning curve."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import rookery
from rookery import ConfigError, DQNConfig, PPOConfig
from rookery.callbacks import EvaluateEvery
from rookery.run import trainer
from rookery.run.log.jsonl import read_rows

QUICK = PPOConfig(num_steps=16, num_epochs=1, minibatch_size=32)


class Steady(gym.Env[Any, Any]):
    """Episodes of five steps, which give as much."""

    observation_space = gym.spaces.Box(-1, 1000, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return np.full(1, self.t, np.float32), 1.0, self.t == 5, False, {}


def _options(**options: Any) -> dict[str, Any]:
    return {"total_steps": 64, "num_envs": 2, "backend": "serial", "eval_episodes": 0} | options


def _evaluations(run_dir: Path) -> list[int]:
    return [int(row["step"]) for row in read_rows(run_dir / "evaluations.jsonl")]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What curves were drawn of, instead of their pictures."""
    curves: list[dict[str, Any]] = []

    def note(file: Any, steps: Any, returns: Any, title: str, **options: Any) -> None:
        curves.append({"steps": list(steps), "returns": list(returns), **options})

    monkeypatch.setattr(trainer, "draw_curve", note)
    return curves


def test_episodes_keep_their_steps_after_a_resume(
    tmp_path: Path, drawn: list[dict[str, Any]]
) -> None:
    rookery.train(Steady, QUICK, run_dir=tmp_path, **_options(save_env_states=False))
    rookery.resume(tmp_path, total_steps=96)
    # Two envs; each has ended its sixth episode at 60 and begins anew at 64, amid the seventh.
    assert drawn[1]["steps"] == [s for s in [*range(10, 61, 10), 74, 84, 94] for _ in range(2)]
    assert set(drawn[1]["returns"]) == {5.0}


def test_evaluations_during_and_after_training_are_stored_and_drawn(
    tmp_path: Path, drawn: list[dict[str, Any]]
) -> None:
    rookery.train(Steady, QUICK, run_dir=tmp_path, **_options(eval_every=32, eval_episodes=2))
    assert _evaluations(tmp_path) == [32, 64]
    assert drawn[0]["evaluations"] == [(32, 5.0, 0.0), (64, 5.0, 0.0)]
    rookery.train(Steady, QUICK, run_dir=tmp_path / "end", **_options(eval_episodes=2))
    assert _evaluations(tmp_path / "end") == [64]
    assert drawn[1]["evaluations"] == [(64, 5.0, 0.0)]


def test_evaluations_are_stored_at_their_own_step(
    tmp_path: Path,
) -> None:
    config = DQNConfig(warmup_steps=16, batch_size=8, num_steps=8)
    options = _options(total_steps=1024, eval_every=200, eval_episodes=2)
    rookery.train(Steady, config, run_dir=tmp_path, **options)
    assert len(read_rows(tmp_path / "metrics.jsonl")) == 2
    assert _evaluations(tmp_path) == [208, 400, 608, 800, 1008, 1024]


def test_an_extended_run_keeps_its_former_last_evaluation(
    tmp_path: Path, drawn: list[dict[str, Any]]
) -> None:
    rookery.train(Steady, QUICK, run_dir=tmp_path, **_options(eval_episodes=2))
    rookery.resume(tmp_path, total_steps=128)
    assert [step for step, *_ in drawn[1]["evaluations"]] == _evaluations(tmp_path) == [64, 128]
    rookery.resume(tmp_path)
    assert _evaluations(tmp_path) == [64, 128]


def test_evaluations_after_the_checkpoint_are_deleted_on_resume(tmp_path: Path) -> None:
    options = _options(total_steps=128)
    with rookery.Trainer(Steady, QUICK, run_dir=tmp_path, **options) as trainer:
        next(trainer)
        trainer.save()
        with pytest.raises(ZeroDivisionError), trainer:
            trainer.callbacks.append(EvaluateEvery(32, episodes=2))
            next(trainer)
            raise ZeroDivisionError  # no error of an env: the checkpoint before stays
    with (tmp_path / "evaluations.jsonl").open("a") as file:
        file.write('{"step": 96, "eval_re')  # as a machine leaves it that went out
    with rookery.Trainer.resume(tmp_path) as trainer:
        assert trainer.steps == 32 and trainer.evaluations.points() == []
        assert _evaluations(tmp_path) == []


def test_a_damaged_file_of_evaluations_is_named(tmp_path: Path) -> None:
    rookery.train(Steady, QUICK, run_dir=tmp_path, **_options(eval_episodes=2))
    path = tmp_path / "evaluations.jsonl"
    path.write_text("nonsense\n" + path.read_text())
    with pytest.raises(ConfigError, match=r"evaluations\.jsonl, line 1, is not a JSON object"):
        rookery.resume(tmp_path, total_steps=128)


def test_a_new_run_deletes_the_evaluations_of_the_old_one(tmp_path: Path) -> None:
    rookery.train(Steady, QUICK, run_dir=tmp_path, **_options(eval_episodes=2))
    rookery.train(Steady, QUICK, run_dir=tmp_path, overwrite=True, **_options())
    assert not (tmp_path / "evaluations.jsonl").exists()


def test_lines_of_evaluations_are_plain_json(tmp_path: Path) -> None:
    rookery.train(Steady, QUICK, run_dir=tmp_path, **_options(eval_episodes=2))
    (line,) = (tmp_path / "evaluations.jsonl").read_text().splitlines()
    assert json.loads(line) == {"step": 64, "eval_return_mean": 5.0, "eval_return_std": 0.0}
