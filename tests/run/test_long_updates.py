"""Signals amid an update that takes long: answered at once, and what is saved is whole."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from run_files import assert_equal, assert_same_run

import rookery
from rookery import DQNConfig, PPOConfig, UsageError
from rookery.learn.off_policy.dqn import DQN
from rookery.learn.on_policy.ppo import PPO
from rookery.run.checkpoint import files as checkpoints
from rookery.run.checkpoint.files import load_checkpoint

CONFIGS: dict[str, tuple[Any, Any]] = {
    "ppo": (PPO, PPOConfig(num_steps=16, num_epochs=2, minibatch_size=16)),
    "dqn": (DQN, DQNConfig(num_steps=16, warmup_steps=8, batch_size=8)),
}
LATE = 11  # a gradient step amid a later update


def _trainer(folder: Path, algo: str) -> rookery.Trainer:
    options: Any = {"total_steps": 256, "num_envs": 2, "backend": "serial", "eval_episodes": 0}
    return rookery.Trainer("CartPole-v1", CONFIGS[algo][1], run_dir=folder, **options)


def _signals_at(monkeypatch: pytest.MonkeyPatch, learner: Any, step: int, count: int) -> list[int]:
    """Send so many signals before a gradient step; count the steps that are begun."""
    steps: list[int] = []
    take = learner._step

    def counted(self: Any, *args: Any) -> Any:
        steps.append(len(steps))
        if len(steps) == step:
            for _ in range(count):
                os.kill(os.getpid(), signal.SIGINT)
        return take(self, *args)

    monkeypatch.setattr(learner, "_step", counted)
    return steps


@pytest.mark.parametrize("algo", CONFIGS)
def test_the_first_signal_is_answered_in_words_and_the_update_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], algo: str
) -> None:
    with _trainer(tmp_path / "whole", algo) as whole:
        list(whole)
    steps = _signals_at(monkeypatch, CONFIGS[algo][0], LATE, 1)
    trainer = _trainer(tmp_path / "halves", algo)
    with pytest.raises(KeyboardInterrupt), trainer:
        list(trainer)
    told = "rookery: Ctrl-C: ending after the current update is saved; a second signal ends at"
    assert capsys.readouterr().err.count(told) == 1
    assert len(steps) > LATE
    assert load_checkpoint(tmp_path / "halves" / "checkpoint.pt")["steps"] == trainer.steps
    rookery.resume(tmp_path / "halves")
    assert_same_run(tmp_path / "whole", tmp_path / "halves")


@pytest.mark.parametrize("algo", CONFIGS)
def test_the_second_signal_ends_the_update_at_once_and_leaves_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algo: str
) -> None:
    with _trainer(tmp_path / "whole", algo) as whole:
        list(whole)
    trainer = _trainer(tmp_path / "halves", algo)
    with pytest.raises(KeyboardInterrupt), trainer:
        next(trainer)
        trainer.save()
        before = load_checkpoint(tmp_path / "halves" / "checkpoint.pt")
        steps = _signals_at(monkeypatch, CONFIGS[algo][0], LATE, 2)
        try:
            list(trainer)
        finally:
            for call in (lambda: next(trainer), trainer.save):
                with pytest.raises(UsageError, match=r"was interrupted.*rookery\.resume"):
                    call()
    assert len(steps) == LATE
    assert_equal(before, load_checkpoint(tmp_path / "halves" / "checkpoint.pt"))
    monkeypatch.undo()
    rookery.resume(tmp_path / "halves")
    assert_same_run(tmp_path / "whole", tmp_path / "halves")


@pytest.mark.parametrize("algo", CONFIGS)
def test_a_second_signal_while_the_last_checkpoint_is_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algo: str
) -> None:
    import torch

    with _trainer(tmp_path / "whole", algo) as whole:
        list(whole)
    trainer, write = _trainer(tmp_path / "halves", algo), torch.save

    def interrupted(state: Any, file: Any) -> None:
        file.write(b"half")
        os.kill(os.getpid(), signal.SIGINT)
        write(state, file)

    with pytest.raises(KeyboardInterrupt), trainer:
        next(trainer)
        trainer.save()
        before = load_checkpoint(tmp_path / "halves" / "checkpoint.pt")
        monkeypatch.setattr(checkpoints._torch(), "save", interrupted)
        _signals_at(monkeypatch, CONFIGS[algo][0], LATE, 1)
        list(trainer)
    assert_equal(before, load_checkpoint(tmp_path / "halves" / "checkpoint.pt"))
    assert not list((tmp_path / "halves").rglob("*.tmp"))
    monkeypatch.undo()
    rookery.resume(tmp_path / "halves")
    assert_same_run(tmp_path / "whole", tmp_path / "halves")
