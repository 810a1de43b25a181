"""Where the policy of a run acts: in the caller, in the workers, or ahead of the learner."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from run_files import assert_equal

import rookery
from rookery import A2CConfig, ConfigError, DQNConfig, ImpalaConfig, PPOConfig
from rookery.run.checkpoint.files import load_checkpoint
from rookery.run.interrupt import Terminated
from rookery.run.log.jsonl import read_rows
from rookery.vector.process import ProcessVectorEnv

QUICK = PPOConfig(num_steps=16, num_epochs=2, minibatch_size=48, normalize_obs=True)
IMPALA = ImpalaConfig(num_steps=16)


def _train(run_dir: Path, algo: Any = QUICK, **options) -> Any:
    options = {"total_steps": 480, "num_envs": 3, "num_workers": 2, "eval_episodes": 2} | options
    return rookery.train("CartPole-v1", algo, run_dir=run_dir, **options)


def _parameters(run_dir: Path) -> dict[str, Any]:
    return load_checkpoint(run_dir / "checkpoint.pt")["model"]["module"]


@pytest.mark.parametrize(
    "algo",
    [QUICK, A2CConfig(), DQNConfig(warmup_steps=60, batch_size=8, prioritized=True)],
    ids=["ppo", "a2c", "dqn"],
)
def test_one_worker_that_collects_learns_what_the_caller_does(tmp_path: Path, algo):
    results = [
        _train(tmp_path / "caller", algo, backend="serial"),
        _train(tmp_path / "workers", algo, collector="workers", num_workers=1),
    ]
    assert_equal(*(_parameters(tmp_path / name) for name in ("caller", "workers")))
    assert results[0].eval_return_mean == results[1].eval_return_mean


@pytest.mark.slow
def test_ppo_learns_from_workers_that_collect(tmp_path: Path):
    config = PPOConfig(num_steps=32, num_epochs=20, gamma=0.98, gae_lambda=0.8)
    result = _train(
        tmp_path, config, collector="workers", num_envs=8, total_steps=20_000, eval_episodes=10
    )
    assert result.eval_return_mean > 100.0  # random actions get about 22
    again = rookery.evaluate(tmp_path, episodes=10)
    assert again.eval_return_mean == result.eval_return_mean


@pytest.mark.slow
@pytest.mark.whole  # that it learns is shown below
def test_impala_learns_to_balance_the_pole(tmp_path: Path):
    config = ImpalaConfig(num_steps=10, gamma=0.98)
    _train(tmp_path, config, num_envs=32, total_steps=400_000, eval_episodes=0)
    # At its best, not at its end: which weights act is a matter of time, and no seed repeats a run.
    rows = read_rows(tmp_path / "metrics.jsonl")
    assert max(row["episode_return_mean"] for row in rows if "episode_return_mean" in row) > 300.0


@pytest.mark.slow
def test_impala_learns_from_actors_ahead_of_it(tmp_path: Path):
    result = _train(tmp_path, ImpalaConfig(), num_envs=8, total_steps=30_000, eval_episodes=10)
    assert result.eval_return_mean > 60.0  # random actions get about 22
    rows = read_rows(tmp_path / "metrics.jsonl")
    assert all(0 <= row["policy_lag_mean"] <= row["policy_lag_max"] <= 4 for row in rows)
    assert max(row["policy_lag_max"] for row in rows) > 0
    assert all(row["wait_s"] == row["collect_s"] > 0 for row in rows)
    assert all(row["env_s"] > 0 and row["learn_s"] > 0 for row in rows)
    again = rookery.evaluate(tmp_path, episodes=10)
    assert again.eval_return_mean == result.eval_return_mean


@pytest.mark.parametrize("collector", ["caller", "workers"])
def test_impala_also_learns_in_step_with_its_actors(tmp_path: Path, collector):
    assert _train(tmp_path, IMPALA, collector=collector).steps == 480
    assert load_checkpoint(tmp_path / "checkpoint.pt")["policy_version"] == 10
    assert "policy_lag_mean" not in read_rows(tmp_path / "metrics.jsonl")[-1]


def test_the_lag_keeps_the_bound_that_was_set(tmp_path: Path):
    _train(tmp_path, IMPALA, max_policy_lag=1, total_steps=5_000, num_envs=4)
    assert max(row["policy_lag_max"] for row in read_rows(tmp_path / "metrics.jsonl")) <= 1


@pytest.mark.parametrize("algo", [IMPALA, QUICK], ids=["impala", "ppo"])
def test_a_resumed_run_starts_new_episodes_and_says_so(tmp_path: Path, capsys, algo):
    options = {} if algo is IMPALA else {"collector": "workers"}
    _train(tmp_path, algo, **options)
    before = load_checkpoint(tmp_path / "checkpoint.pt")
    result = rookery.resume(tmp_path, total_steps=960)
    after = load_checkpoint(tmp_path / "checkpoint.pt")
    assert "they start new episodes" in capsys.readouterr().err
    assert 960 <= result.steps == after["steps"] < 1010
    updates = after["policy_version"] - before["policy_version"]
    assert updates > 0
    assert after["learner"]["optimizer"]["steps"] > before["learner"]["optimizer"]["steps"]


def test_a_resumed_run_repeats_neither_episodes_nor_draws(tmp_path: Path):
    config = ImpalaConfig(num_steps=16, learning_rate=0.0)  # what is met is all that differs
    options = {"collector": "workers", "num_workers": 1, "total_steps": 1_440}
    _train(tmp_path / "whole", config, **options)
    rookery.resume(tmp_path / "whole", total_steps=2_880)
    history = load_checkpoint(tmp_path / "whole" / "checkpoint.pt")["history"]
    halves = [[r for s, r in zip(history["steps"], history["returns"], strict=True) if part(s)]
              for part in (lambda s: s <= 1_440, lambda s: s > 1_440)]  # fmt: skip
    assert len(halves[0]) > 10 and len(halves[1]) > 10
    assert halves[0][:10] != halves[1][:10]


def test_only_as_many_envs_are_built_as_are_needed(tmp_path: Path, monkeypatch):
    built = []
    start = ProcessVectorEnv.__init__

    def note(self, recipes, *args, **kwargs):
        built.append(len(recipes))
        start(self, recipes, *args, **kwargs)

    monkeypatch.setattr(ProcessVectorEnv, "__init__", note)
    _train(tmp_path, collector="workers", num_envs=6, backend="process", eval_episodes=2)
    assert built == [6, 2]


@pytest.mark.parametrize(
    ("algo", "options", "message"),
    [
        ("ppo", {"collector": "async"}, "older weights; choose from 'caller', 'workers'"),
        (A2CConfig(), {"collector": "async"}, "choose from 'caller'"),
        ("dqn", {"collector": "async", "backend": "serial"}, "backend='serial'"),
        ("impala", {"backend": "serial"}, "backend='serial'.* choose collector 'caller'"),
        ("impala", {"caller_steps": True}, "caller_steps.* choose collector 'caller'"),
        ("impala", {"max_policy_lag": 0}, "max_policy_lag must be .* at least 1"),
        ("ppo", {"collector": "sideways"}, "sideways"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch, algo, options, message
):
    def start(*args, **kwargs):
        raise AssertionError("a vector env was started")

    monkeypatch.setattr(ProcessVectorEnv, "__init__", start)
    with pytest.raises(ConfigError, match=message):
        _train(tmp_path / "run", algo, **options)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)]
)
def test_a_signal_leaves_a_checkpoint_and_no_worker(tmp_path: Path, number, error):
    metrics = tmp_path / "metrics.jsonl"
    pause = threading.Event()

    def interrupt() -> None:
        while not (metrics.exists() and metrics.stat().st_size):
            pause.wait(0.02)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    with pytest.raises(error) as caught:
        _train(tmp_path, IMPALA, total_steps=10**9)
    thread.join()
    assert "checkpoint.pt" in str(caught.value)
    assert load_checkpoint(tmp_path / "checkpoint.pt")["steps"] > 0
    assert rookery.evaluate(tmp_path, episodes=2).episodes == 2
