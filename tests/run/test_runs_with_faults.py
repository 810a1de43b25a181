"""Runs whose envs fail now and then: workers are replaced, and the run goes on."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import rookery
from rookery import A2CConfig, ConfigError, DQNConfig, ImpalaConfig, PPOConfig, SACConfig
from rookery.run.log.jsonl import read_rows
from rookery.testing import Fault, Faulty

SMALL: Any = {"num_steps": 16, "hidden_sizes": (8,)}
REPLAY: Any = {**SMALL, "warmup_steps": 64, "batch_size": 8}
RUNS = {
    "ppo": (PPOConfig(**SMALL, num_epochs=2), "CartPole-v1"),
    "recurrent ppo": (
        PPOConfig(**SMALL, num_epochs=2, recurrent="gru", memory_size=4, sequence_length=8),
        "CartPole-v1",
    ),
    "a2c": (A2CConfig(**SMALL, normalize_reward=True), "CartPole-v1"),
    "impala": (ImpalaConfig(**SMALL), "CartPole-v1"),
    "dqn": (DQNConfig(**REPLAY, n_step=3, prioritized=True), "CartPole-v1"),
    "sac": (SACConfig(**REPLAY, updates_per_step=0.25), "Pendulum-v1"),
}
CASES = [
    *((name, "workers") for name in RUNS),
    *((name, "async") for name in ("impala", "dqn", "sac")),
    ("ppo", "caller"),
    ("dqn", "caller"),
]


class FailsOnce(gym.Wrapper[Any, Any, Any, Any]):
    """Fails at some of its steps, each of which comes once, whoever repeats it.

    Args:
        env: that is wrapped.
        folder: where it is noted which have come.
        faults: by number of a step.
    """

    def __init__(self, env: Any, folder: str, faults: dict[int, int]) -> None:
        super().__init__(env)
        self._folder, self._faults, self._count = Path(folder), faults, 0

    def step(self, action: Any) -> Any:
        self._count += 1
        fault = self._faults.get(self._count)
        if fault is not None and self._is_first():
            Faulty()._fail(fault)
        return self.env.step(action)

    def _is_first(self) -> bool:
        """Whether no env, in whatever process, has been here."""
        try:
            (self._folder / f"failed-{self._count}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def _options(folder: Path, env: str, **options: Any) -> dict[str, Any]:
    faults = {40: int(Fault.KILL), 41: int(Fault.RAISE)}

    def make() -> Any:
        return FailsOnce(gym.make(env), str(folder), faults)

    settings: dict[str, Any] = {
        "total_steps": 480, "num_envs": 4, "num_workers": 2, "on_fault": "restart",
        "max_restarts": 9, "eval_episodes": 0, "backend": "process",
    }  # fmt: skip
    return {"env": make, **settings, **options}


@pytest.mark.parametrize(("name", "collector"), CASES)
def test_a_run_goes_on_when_workers_fail(tmp_path: Path, name: str, collector: str) -> None:
    config, env = RUNS[name]
    with rookery.Trainer(
        algo=config, collector=collector, run_dir=tmp_path / "run", **_options(tmp_path, env)
    ) as trainer:
        updates = list(trainer)
        assert len(list(tmp_path.glob("failed-*"))) == 2
        metrics = updates[-1].metrics
        assert metrics["worker_restarts"] == trainer.collector.statistics().restarts == 2
        assert metrics["lost_transitions"] == trainer.collector.statistics().lost_rows > 0
        assert np.isfinite(trainer.policy.model.parameters).all()
        trainer.save()
    assert updates[-1].steps >= 480
    assert "worker_restarts" in read_rows(tmp_path / "run" / "metrics.jsonl")[-1]
    env_again = _options(tmp_path, env)["env"]
    assert rookery.resume(tmp_path / "run", env=env_again, total_steps=640).steps >= 640


def test_a_run_in_which_nothing_failed_says_nothing_of_it(tmp_path: Path) -> None:
    with rookery.Trainer(
        "CartPole-v1", RUNS["ppo"][0], total_steps=64, num_envs=2, num_workers=1, eval_episodes=0,
        collector="workers", on_fault="restart", run_dir=tmp_path,
    ) as trainer:  # fmt: skip
        assert not {"worker_restarts", "lost_transitions"} & set(next(trainer).metrics)


class TellsFaults(gym.Wrapper[Any, Any, Any, Any]):
    """Has infos with a key that the library uses for faults of workers.

    Args:
        env: that is wrapped.
        info: what it tells with every step.
    """

    def __init__(self, env: Any, info: dict[str, Any]) -> None:
        super().__init__(env)
        self._info = info

    def step(self, action: Any) -> Any:
        *result, info = self.env.step(action)
        return (*result, {**info, **self._info})


@pytest.mark.parametrize(
    "info", [{"fault": 0}, {"fault": {"cause": 0, "attempt": 1}}, {"_fault": 1}], ids=str
)
@pytest.mark.parametrize("collector", ["caller", "workers", "async", "double", "served"])
def test_faults_that_an_env_tells_of_itself_are_no_faults_of_workers(
    tmp_path: Path, info: dict[str, Any], collector: str
) -> None:
    config = ImpalaConfig(**SMALL) if collector == "async" else PPOConfig(**SMALL, num_epochs=1)
    with rookery.Trainer(
        "CartPole-v1", config, wrappers=[partial(TellsFaults, info=info)], collector=collector,
        backend="process", num_envs=4, num_workers=2, total_steps=128, run_dir=tmp_path,
    ) as trainer:  # fmt: skip
        (*_, last) = trainer
        assert last.metrics["episodes"] > 0 and "lost_transitions" not in last.metrics
        assert trainer.collector.statistics().lost_rows == 0
        assert trainer.evaluate(episodes=5).episodes == 5


def test_a_fault_is_found_beside_what_an_env_tells_of_itself(tmp_path: Path) -> None:
    own = partial(TellsFaults, info={"fault": {"code": 0}, "_fault": 1})
    with rookery.Trainer(
        algo=RUNS["ppo"][0], wrappers=[own], run_dir=tmp_path / "run",
        **_options(tmp_path, "CartPole-v1"),
    ) as trainer:  # fmt: skip
        (*_, last) = trainer
        assert 0 < last.metrics["lost_transitions"] <= 4


@pytest.mark.parametrize("collector", ["workers", "async"])
def test_past_the_restarts_that_are_allowed_the_fault_ends_the_run(
    tmp_path: Path, collector: str
) -> None:
    with rookery.Trainer(
        algo=RUNS["impala"][0], collector=collector, run_dir=tmp_path / "run",
        **_options(tmp_path, "CartPole-v1", max_restarts=0),
    ) as trainer, pytest.raises(rookery.WorkerError):  # fmt: skip
        list(trainer)


def test_a_failure_of_the_last_evaluation_is_told_as_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = rookery.PPOConfig(num_steps=32, num_epochs=1)
    options: dict[str, Any] = {"total_steps": 64, "num_envs": 2, "backend": "serial"}

    def make() -> Any:  # a run of 32 steps of each env is over before its 40th
        return FailsOnce(gym.make("CartPole-v1"), str(tmp_path), {40: int(Fault.RAISE)})

    with pytest.raises(rookery.EnvFailed, match="lost key"):
        rookery.train(make, config, run_dir=tmp_path / "run", **options)
    told = capsys.readouterr().err
    assert "training finished after 64 steps" in told and "the final evaluation failed" in told
    assert f"rookery eval {tmp_path / 'run'}" in told


def test_envs_in_this_process_are_still_refused(tmp_path: Path) -> None:
    options = _options(tmp_path, "CartPole-v1", backend="serial")
    with pytest.raises(ConfigError, match="backend='serial'"):
        rookery.Trainer(
            algo=RUNS["ppo"][0], collector="workers", run_dir=tmp_path / "run", **options
        )
