"""Runs of several learners: what they learn, how they fail, and that nothing of them stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
import pytest

import rookery
from rookery import errors
from rookery.run.learners.share import Share

pytest.importorskip("torch.distributed")

PPO = rookery.PPOConfig(num_steps=16, num_epochs=2, minibatch_size=32)
RUN: dict[str, Any] = {
    "algo": PPO, "num_envs": 4, "num_learners": 2, "total_steps": 256, "eval_episodes": 2,
    "backend": "serial",
}  # fmt: skip


class Counting(gym.Env[Any, Any]):
    """Fails when it is told to: at its first reset, or at some step, of a process or of all."""

    observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, home: int = 0, fails_at: int = 0, how: str = "raise") -> None:
        if fails_at < 0 and os.getpid() != home:
            raise ValueError("no licence here")
        self._is_away = os.getpid() != home
        self._fails_at, self._how, self._steps = fails_at, how, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        self._steps += 1
        if self._is_away and self._steps == self._fails_at:
            if self._how == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("the arm is stuck")
        return np.full(3, self._steps % 7 / 7, np.float32), 1.0, self._steps % 10 == 0, False, {}


def _children() -> list[psutil.Process]:
    found = psutil.Process().children(recursive=True)
    return [child for child in found if "resource_tracker" not in " ".join(child.cmdline())]


def _fails(tmp_path: Path, fails_at: int, how: str = "raise") -> dict[str, Any]:
    given = {"home": os.getpid(), "fails_at": fails_at, "how": how}
    return {**RUN, "env_kwargs": given, "run_dir": tmp_path / "run"}


def test_a_share_is_a_part_of_the_envs():
    shares = [Share(rank, 3, 8) for rank in range(3)]
    assert [share.of(range(8)) for share in shares] == [[0, 1], [2, 3, 4], [5, 6, 7]]
    assert [(share.first, share.count) for share in shares] == [(0, 2), (2, 3), (5, 3)]


@pytest.mark.slow
def test_two_learners_make_one_run_that_any_number_goes_on_with(tmp_path):
    before = len(_children())
    with rookery.Trainer("CartPole-v1", run_dir=tmp_path / "run", **RUN) as trainer:
        updates = list(trainer)
    assert [update.new_steps for update in updates] == [64] * 4  # 16 steps of all four envs
    assert updates[-1].metrics["episodes"] > 4
    assert updates[-1].metrics["loss"] == updates[-1].metrics["loss"]
    assert len(_children()) == before
    for num_learners, total_steps in ((1, 320), (3, 448)):
        result = rookery.resume(
            tmp_path / "run", num_learners=num_learners, total_steps=total_steps
        )
        assert result.steps == total_steps and result.eval_return_mean > 0
    text = (tmp_path / "run" / "metrics.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["step"] for line in lines] == [64, 128, 192, 256, 320, 384, 448]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algo", "env"),
    [
        (rookery.SACConfig(num_steps=4, warmup_steps=40, batch_size=8), "Pendulum-v1"),
        (rookery.DQNConfig(num_steps=4, warmup_steps=40, batch_size=8), "CartPole-v1"),
    ],
)
def test_learners_from_replay_learn_together(algo, env, tmp_path):
    settings = {**RUN, "algo": algo, "total_steps": 160, "eval_episodes": 0}
    with rookery.Trainer(env, run_dir=tmp_path / "run", **settings) as trainer:
        *_, last = trainer
    # 160 env steps of both learners, of which 40 bring no gradient step.
    assert last.metrics["gradient_steps"] == 120 * algo.updates_per_step
    result = rookery.resume(tmp_path / "run", num_learners=1, total_steps=240)
    assert result.steps == 240


@pytest.mark.slow
def test_policies_in_workers_learn_together(tmp_path):
    settings = {**RUN, "backend": "auto", "collector": "workers", "num_workers": 1}
    result = rookery.train("CartPole-v1", run_dir=tmp_path / "run", **settings)
    assert result.steps == 256


@pytest.mark.slow
def test_an_env_that_fails_in_another_learner_is_named_and_the_run_can_be_resumed(tmp_path):
    before = len(_children())
    with pytest.raises(errors.LearnerDied, match=r"Learner 1 of 2 .*the arm is stuck") as caught:
        rookery.train(Counting, **_fails(tmp_path, 40))
    assert isinstance(caught.value.__cause__, errors.EnvFailed)
    assert len(_children()) == before
    result = rookery.resume(tmp_path / "run", num_learners=1, env_kwargs={})
    assert result.steps == 256


@pytest.mark.slow
def test_a_learner_that_is_killed_is_named_and_the_run_can_be_resumed(tmp_path):
    before = len(_children())
    with pytest.raises(errors.LearnerDied, match=r"Learner 1 of 2 .* killed by signal 9"):
        rookery.train(Counting, **_fails(tmp_path, 40, "die"))
    assert len(_children()) == before
    steps = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])["step"]
    assert steps == 128  # two whole updates
    assert rookery.resume(tmp_path / "run", env_kwargs={}).steps == 256


@pytest.mark.slow
def test_a_learner_that_is_killed_between_updates_is_named(tmp_path):
    before = set(_children())
    with (
        pytest.raises(errors.LearnerDied, match=r"Learner 1 of 2 .* killed by signal 9"),
        rookery.Trainer("CartPole-v1", run_dir=tmp_path / "run", **RUN) as trainer,
    ):
        next(trainer)
        (other,) = set(_children()) - before
        other.kill()
        while other.status() != psutil.STATUS_ZOMBIE:  # whoever has started it waits for it
            time.sleep(0.01)
        next(trainer)
    assert rookery.resume(tmp_path / "run", num_learners=1).steps == 256


@pytest.mark.slow
def test_an_env_that_cannot_be_made_in_another_learner_is_named_at_once(tmp_path):
    before = len(_children())
    with pytest.raises(errors.LearnerDied, match=r"Learner 1 of 2 .*no licence here"):
        rookery.train(Counting, **_fails(tmp_path, -1))
    assert len(_children()) == before


@pytest.mark.slow
def test_an_env_that_fails_here_ends_the_others(tmp_path):
    before = len(_children())
    settings = _fails(tmp_path, 40)
    settings["env_kwargs"]["home"] = 0
    with pytest.raises(errors.RookeryError, match="the arm is stuck"):
        rookery.train(Counting, **settings)
    assert len(_children()) == before


@pytest.mark.slow
def test_an_update_that_was_interrupted_goes_on_with_all(tmp_path):
    settings = {**RUN, "eval_episodes": 0}
    with rookery.Trainer("CartPole-v1", run_dir=tmp_path / "run", **settings) as trainer:
        next(trainer)
        collect, left = trainer.collector.collect, [KeyboardInterrupt]

        def interrupted() -> Any:
            if left:
                raise left.pop()
            return collect()

        trainer.collector.collect = interrupted
        with pytest.raises(KeyboardInterrupt):
            next(trainer)
        assert [update.steps for update in trainer] == [128, 192, 256]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_learners": 0}, "num_learners must be a whole number of at least 1"),
        ({"num_learners": 5}, "num_envs is 4, but each of 5 learners needs at least one"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(settings, message, tmp_path):
    with pytest.raises(errors.ConfigError, match=message):
        rookery.train("CartPole-v1", run_dir=tmp_path / "run", **{**RUN, **settings})


def test_an_algorithm_of_ones_own_learns_alone(tmp_path):
    class Mine:
        num_steps, collectors = 4, ("caller",)
        make_policy = start = update = state_dict = load_state_dict = None

    with pytest.raises(errors.ConfigError, match="a custom algorithm needs num_learners=1"):
        rookery.train("CartPole-v1", run_dir=tmp_path / "run", **{**RUN, "algo": Mine()})


def _torchrun(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    return subprocess.run(
        [*command, "-m", "rookery", *arguments], capture_output=True, text=True, timeout=800
    )


@pytest.mark.slow
def test_no_learner_survives_the_first_one(tmp_path):
    command = [sys.executable, "-m", "rookery", "train", "ppo", "CartPole-v1"]
    command += ["--num-learners", "2", "--num-envs", "4", "--total-steps", "100000000"]
    with subprocess.Popen([*command, "--run-dir", str(tmp_path / "run")]) as process:
        metrics = tmp_path / "run" / "metrics.jsonl"
        while not (metrics.exists() and metrics.read_text()):
            assert process.poll() is None
            time.sleep(0.05)
        family = psutil.Process(process.pid).children(recursive=True)
        assert family
        process.kill()
    _, left = psutil.wait_procs(family, timeout=60)
    assert not left


@pytest.mark.slow
def test_a_signal_ends_all_learners_and_leaves_a_checkpoint(tmp_path):
    command = [sys.executable, "-m", "rookery", "train", "ppo", "CartPole-v1"]
    command += ["--num-learners", "2", "--num-envs", "4", "--total-steps", "100000000"]
    with subprocess.Popen(
        [*command, "--run-dir", str(tmp_path / "run")], stderr=subprocess.PIPE, text=True
    ) as process:
        metrics = tmp_path / "run" / "metrics.jsonl"
        while not (metrics.exists() and metrics.read_text()):
            assert process.poll() is None
            time.sleep(0.05)
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        told = process.communicate(timeout=600)[1]
    assert process.returncode == 143 and "Traceback" not in told
    _, left = psutil.wait_procs(family, timeout=60)
    assert not left
    assert (tmp_path / "run" / "checkpoint.pt").exists()


@pytest.mark.slow
def test_torchrun_starts_learners(tmp_path):
    arguments = [
        "train",
        "ppo",
        "CartPole-v1",
        "--num-envs",
        "4",
        "--total-steps",
        "512",
        "--num-steps",
        "16",
    ]
    done = _torchrun([*arguments, "--run-dir", str(tmp_path / "run")])
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()  # the first one alone tells
    assert json.loads(line)["steps"] == 512
    assert (tmp_path / "run" / "checkpoint.pt").exists()
