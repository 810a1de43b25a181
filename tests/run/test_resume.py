"""Going on with a run as if it had never stopped."""

from __future__ import annotations

import io
import json
import os
import pickle
import signal
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from run_files import assert_equal, assert_same_run
from training_envs import Corridor, Match, SignalAt, Unpicklable

import rookery
from rookery import A2CConfig, ConfigError, DQNConfig, PPOConfig, QRDQNConfig, SACConfig, TD3Config
from rookery.learn.config import ReplayConfig
from rookery.run.checkpoint.env_states import Restore, capture
from rookery.run.checkpoint.files import load_checkpoint, save_checkpoint
from rookery.run.interrupt import Interrupts, Terminated
from rookery.run.log.jsonl import read_rows

TIMES = {"seconds", "steps_per_second", "collect_s", "policy_s", "env_s", "wait_s", "learn_s"}
RUNS = {
    "recurrent": (
        "CartPole-v1",
        PPOConfig(num_steps=32, num_epochs=2, recurrent="gru", memory_size=8),
    ),
    "ppo": ("CartPole-v1", PPOConfig(num_steps=32, num_epochs=2, normalize_reward=True)),
    "a2c": ("CartPole-v1", A2CConfig(normalize_obs=True)),
    "dqn": (
        "CartPole-v1",
        DQNConfig(warmup_steps=100, batch_size=16, prioritized=True, updates_per_step=0.3),
    ),
    "sac": (
        "Pendulum-v1",
        SACConfig(warmup_steps=100, batch_size=16, num_steps=3, updates_per_step=0.5),
    ),
    "td3": (
        "Pendulum-v1",
        TD3Config(warmup_steps=100, batch_size=16, num_steps=3, updates_per_step=0.3),
    ),
    "ppo held noise": (
        "Pendulum-v1",
        PPOConfig(num_steps=32, num_epochs=2, state_dependent_noise=True, noise_interval=20),
    ),
    "sac held noise": (
        "Pendulum-v1",
        SACConfig(warmup_steps=100, batch_size=16, num_steps=3, state_dependent_noise=True),
    ),
    "td3 wandering noise": (
        "Pendulum-v1",
        TD3Config(
            warmup_steps=100,
            batch_size=16,
            num_steps=3,
            exploration_noise_kind="ornstein-uhlenbeck",
        ),
    ),
    "qrdqn": (
        "CartPole-v1",
        QRDQNConfig(warmup_steps=100, batch_size=16, num_quantiles=5, updates_per_step=0.3),
    ),
}


def _train(run_dir: Path, env: Any, config: Any, **options) -> Any:
    options = {"total_steps": 960, "num_envs": 3, "backend": "serial", "eval_episodes": 0} | options
    return rookery.train(env, config, run_dir=run_dir, **options)


def _interrupted(run_dir: Path, env: Any, config: Any, step: int = 150, **options) -> None:
    """Train until Ctrl-C comes, in the midst of a rollout."""
    SignalAt.signals[step] = signal.SIGINT
    wrappers = [*options.pop("wrappers", []), SignalAt]
    with pytest.raises(KeyboardInterrupt, match=r"--resume .* goes on from .*checkpoint"):
        _train(run_dir, env, config, wrappers=wrappers, **options)


@pytest.mark.parametrize("algo", RUNS)
def test_a_run_of_two_halves_equals_the_whole_bit_for_bit(tmp_path: Path, algo: str):
    env, config = RUNS[algo]
    _train(tmp_path / "whole", env, config, wrappers=[SignalAt])
    _interrupted(tmp_path / "halves", env, config)
    halfway = load_checkpoint(tmp_path / "halves" / "checkpoint.pt")
    assert 0 < halfway["steps"] < 960
    result = rookery.resume(tmp_path / "halves")
    assert result.steps == load_checkpoint(tmp_path / "whole" / "checkpoint.pt")["steps"]
    assert_same_run(tmp_path / "whole", tmp_path / "halves")
    replays = [sorted((tmp_path / n / "resume").glob("replay-*")) for n in ("whole", "halves")]
    assert [len(files) for files in replays] == [int(isinstance(config, ReplayConfig))] * 2
    for files in zip(*replays, strict=True):
        assert_equal(*(load_checkpoint(file) for file in files))


@pytest.mark.parametrize("step", [1, 32, 33, 64])
def test_the_moment_of_the_interruption_changes_nothing(tmp_path: Path, step: int):
    env, config = RUNS["ppo"]
    _train(tmp_path / "whole", env, config, wrappers=[SignalAt], total_steps=288)
    _interrupted(tmp_path / "parts", env, config, step, total_steps=288)
    rookery.resume(tmp_path / "parts")
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def test_envs_in_worker_processes_go_on_too(tmp_path: Path, monkeypatch):
    env, config = RUNS["ppo"]
    options = {"backend": "process", "num_workers": 2}
    _train(tmp_path / "whole", env, config, **options)
    calls = []

    def check(interrupts: Interrupts) -> None:
        calls.append(interrupts)
        if len(calls) == 150:
            raise KeyboardInterrupt

    monkeypatch.setattr(Interrupts, "check", check)
    with pytest.raises(KeyboardInterrupt):
        _train(tmp_path / "halves", env, config, **options)
    assert load_checkpoint(tmp_path / "halves" / "checkpoint.pt")["steps"] == 384
    rookery.resume(tmp_path / "halves")
    assert_same_run(tmp_path / "whole", tmp_path / "halves")


def test_an_env_that_offers_its_state_is_asked_for_it(tmp_path: Path):
    config = PPOConfig(num_steps=16, num_epochs=1)
    _train(tmp_path / "whole", Corridor, config, wrappers=[SignalAt])
    _interrupted(tmp_path / "halves", Corridor, config)
    rookery.resume(tmp_path / "halves")
    assert_same_run(tmp_path / "whole", tmp_path / "halves")


def test_dict_observations_go_on_amid_a_rollout(tmp_path: Path):
    config = PPOConfig(num_steps=16, num_epochs=1)
    _train(tmp_path / "whole", Match, config, wrappers=[SignalAt])
    _interrupted(tmp_path / "halves", Match, config)
    rookery.resume(tmp_path / "halves")
    assert_same_run(tmp_path / "whole", tmp_path / "halves")


@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_envs_that_cannot_be_saved_start_new_episodes_and_the_run_says_so(
    tmp_path: Path, capsys, algo: str
):
    env, config = RUNS[algo]
    _interrupted(tmp_path, env, config, wrappers=[Unpicklable])
    assert not list((tmp_path / "resume").glob("env_states*"))
    assert rookery.resume(tmp_path).steps >= 960
    said = capsys.readouterr().err
    assert "cannot be saved (env 0: TypeError: cannot pickle" in said
    assert "they start new episodes" in said


def test_states_of_envs_can_be_left_out(tmp_path: Path, capsys):
    env, _ = RUNS["dqn"]
    _interrupted(tmp_path, env, DQNConfig(save_replay=False), save_env_states=False)
    assert not (tmp_path / "resume").exists()
    rookery.resume(tmp_path)
    said = capsys.readouterr().err
    assert "replay was not saved" in said
    assert "saving the envs' states was disabled (save_env_states); they start new episodes" in said


def test_a_deleted_companion_is_one_that_was_not_saved(tmp_path: Path, capsys):
    env, config = RUNS["dqn"]
    _interrupted(tmp_path, env, config)
    for file in (tmp_path / "resume").iterdir():
        file.unlink()
    assert rookery.resume(tmp_path).steps == 960
    said = capsys.readouterr().err
    assert "replay was not saved" in said and "states is gone; they start new episodes" in said


def test_envs_that_do_not_take_their_state_back_start_new_episodes(tmp_path: Path, capsys):
    class Forgetful(Corridor):
        def set_state(self, state):
            raise ValueError("what state?")

    config = PPOConfig(num_steps=16, num_epochs=1)
    _interrupted(tmp_path, Forgetful, config)
    assert rookery.resume(tmp_path, env=Forgetful).steps == 960
    said = capsys.readouterr().err
    assert "what state?" in said and "new episodes" in said


class Scaled(gym.RewardWrapper[Any, Any]):
    """Multiplies rewards."""

    def __init__(self, env: Any, factor: float = 0.1) -> None:
        super().__init__(env)
        self.factor = factor

    def reward(self, reward: Any) -> Any:
        return self.factor * float(reward)


class ScaledMore(Scaled):
    """Multiplies rewards by less."""

    def __init__(self, env: Any) -> None:
        super().__init__(env, 0.01)


@pytest.mark.parametrize(
    ("change", "said", "gravity", "factor"),
    [
        ({"env_kwargs": {"g": 1.0}}, "env_kwargs", 1.0, 0.1),
        ({"wrappers": [ScaledMore]}, "wrappers", 10.0, 0.01),
        ({"wrappers": []}, "wrappers", 10.0, 1.0),
        ({"wrappers": [Scaled, ScaledMore]}, "wrappers", 10.0, 0.01),
        ({"wrappers": [lambda env: ScaledMore(env)]}, "wrappers", 10.0, 0.01),
        ({"env": lambda g: gym.make("Pendulum-v1", g=g / 10)}, "env", 1.0, 0.1),
    ],
)
def test_envs_that_are_others_than_before_are_what_the_run_goes_on_with(
    tmp_path: Path, capsys, change: Any, said: str, gravity: float, factor: float
):
    config = PPOConfig(num_steps=32, num_epochs=1)
    _train(
        tmp_path, "Pendulum-v1", config, env_kwargs={"g": 10.0}, wrappers=[Scaled], total_steps=96,
    )  # fmt: skip
    told = []
    for total in (192, 288):  # once more, from a checkpoint of the changed envs
        with rookery.Trainer.resume(tmp_path, **change, total_steps=total) as trainer:
            next(trainer)
            venv = trainer.collection.venv
            assert venv.get_attr("g") == (gravity,) * 3
            assert list(venv.apply(_factor)) == [factor] * 3
        told.append(capsys.readouterr().err)
    assert f"the envs were saved with other {said}; they start new episodes" in told[0]
    assert "new episodes" not in told[1]


def _factor(env: Any) -> float:
    return env.factor if isinstance(env, Scaled) else 1.0


def test_a_state_of_other_wrappers_leaves_the_env_as_it_was():
    state = capture(Scaled(gym.make("Pendulum-v1")))
    for other in (ScaledMore(gym.make("Pendulum-v1")), gym.make("Pendulum-v1")):
        before = [vars(link).copy() for link in (other, other.unwrapped)]
        with pytest.raises(ValueError, match="the state belongs to Scaled of "):
            Restore(state)(other)
        assert [vars(link) for link in (other, other.unwrapped)] == before


def test_a_state_that_an_earlier_version_wrote_is_taken():
    env, other = Corridor(), Corridor()
    env.place = 0.5
    old = pickle.dumps([env.get_state()])
    Restore(old)(other)
    assert other.place == 0.5
    with pytest.raises(ValueError, match="the state belongs to Scaled, but the env is"):
        Restore(old)(Scaled(other))  # type: ignore[arg-type]


def test_sigterm_writes_a_checkpoint_and_means_exit_code_143(tmp_path: Path):
    env, config = RUNS["ppo"]
    SignalAt.signals[150] = signal.SIGTERM
    with pytest.raises(Terminated) as caught:
        _train(tmp_path, env, config, wrappers=[SignalAt])
    assert caught.value.code == 143
    assert load_checkpoint(tmp_path / "checkpoint.pt")["steps"] == 384


def test_a_crash_keeps_what_was_learned_and_starts_new_episodes(tmp_path: Path, capsys):
    class Crash(gym.Wrapper):
        crashes = True

        def step(self, action):
            self.count = getattr(self, "count", 0) + 1
            if self.count == 150 and Crash.crashes:
                raise ValueError("broken")
            return self.env.step(action)

    env, config = RUNS["ppo"]
    with pytest.raises(rookery.EnvFailed, match="broken"):
        _train(tmp_path, env, config, wrappers=[Crash])
    assert load_checkpoint(tmp_path / "checkpoint.pt")["steps"] == 384
    Crash.crashes = False
    assert rookery.resume(tmp_path, wrappers=[Crash]).steps == 960
    assert "new episodes" in capsys.readouterr().err


def test_metrics_go_on_where_the_checkpoint_stands(tmp_path: Path):
    env, config = RUNS["ppo"]
    _train(tmp_path / "whole", env, config, wrappers=[SignalAt])
    _interrupted(tmp_path / "halves", env, config)
    metrics = tmp_path / "halves" / "metrics.jsonl"
    with metrics.open("a") as file:  # written after the checkpoint, by a run that crashed then
        file.write(json.dumps({"step": 10**6, "policy_loss": 0.0}) + "\n" + '{"step": 1')
    rookery.resume(tmp_path / "halves")
    rows = [read_rows(tmp_path / name / "metrics.jsonl") for name in ("whole", "halves")]
    kept = [[{k: v for k, v in row.items() if k not in TIMES} for row in part] for part in rows]
    assert kept[0] == kept[1]
    assert len(list((tmp_path / "halves").glob("events.out.tfevents.*"))) == 2


def test_a_finished_run_can_be_extended(tmp_path: Path):
    env, config = RUNS["dqn"]
    _train(tmp_path, env, config, total_steps=240)
    result = rookery.resume(tmp_path, total_steps=480)
    assert result.steps == 480
    assert json.loads((tmp_path / "config.json").read_text())["train"]["total_steps"] == 480
    assert rookery.resume(tmp_path).steps == 480


def test_a_finished_run_that_made_more_steps_than_were_asked_for_can_be_resumed(tmp_path: Path):
    env, config = RUNS["ppo"]
    _train(tmp_path, env, config, total_steps=97)
    made = load_checkpoint(tmp_path / "checkpoint.pt")["steps"]
    assert made > 97  # rollouts are whole
    result = rookery.resume(tmp_path, eval_episodes=2)
    assert result.steps == made and result.eval_return_mean is not None
    with pytest.raises(ConfigError, match=f"total_steps is 98, but the run has made {made} steps"):
        rookery.resume(tmp_path, total_steps=98)


def test_a_torn_save_leaves_the_one_before_it_whole(tmp_path: Path, monkeypatch):
    env, config = RUNS["dqn"]
    _interrupted(tmp_path, env, config)
    before = load_checkpoint(tmp_path / "checkpoint.pt")
    from rookery.run.checkpoint import state

    def tear(path, saved):
        if path.name == "checkpoint.pt":
            raise OSError("disk full")
        save(path, saved)

    save = state.save_checkpoint
    monkeypatch.setattr(state, "save_checkpoint", tear)
    with pytest.raises(OSError, match="disk full"):
        rookery.resume(tmp_path)
    monkeypatch.undo()
    assert_equal(load_checkpoint(tmp_path / "checkpoint.pt"), before)
    assert rookery.resume(tmp_path).steps == 960


def test_a_folder_without_a_checkpoint_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="holds no run"):
        rookery.resume(tmp_path)
    _train(tmp_path, *RUNS["ppo"], total_steps=96)
    (tmp_path / "checkpoint.pt").unlink()
    with pytest.raises(ConfigError, match="no checkpoint to resume from"):
        rookery.resume(tmp_path)


def test_the_state_of_an_env_is_that_of_its_whole_chain():
    env = gym.make("CartPole-v1", max_episode_steps=9)
    env.reset(seed=1)
    for _ in range(4):
        env.step(0)
    state = capture(env)
    twin = gym.make("CartPole-v1", max_episode_steps=9)
    twin.reset(seed=2)
    inner = twin.unwrapped
    Restore(state)(twin)
    assert twin.unwrapped is inner
    for _ in range(5):
        for a, b in zip(env.step(1), twin.step(1), strict=True):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(env.reset()[0], twin.reset()[0])
    env.close()
    twin.close()


def test_the_second_signal_is_not_waited_for():
    interrupts = Interrupts()
    with interrupts.deferred():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        interrupts.check()  # nothing is left of it


def test_a_signal_that_is_waited_with_is_answered_in_words(capsys):
    interrupts = Interrupts()
    with interrupts, interrupts.deferred():
        os.kill(os.getpid(), signal.SIGTERM)
        assert "rookery: SIGTERM: ending after the" in capsys.readouterr().err
        with pytest.raises(Terminated):
            interrupts.check()


def test_after_the_first_signal_was_raised_the_next_is_not_waited_for_at_the_end():
    interrupts = Interrupts()
    with interrupts:
        for _ in range(2):
            interrupts.begin()  # the second time around, the first signal waits again
            with interrupts.deferred():
                os.kill(os.getpid(), signal.SIGINT)
                with pytest.raises(KeyboardInterrupt):
                    interrupts.check()
        assert not interrupts.cut_short
        with interrupts.deferred(), pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.cut_short


def test_words_about_a_signal_that_came_amid_other_words_are_said_all_the_same(capfd, monkeypatch):
    class Busy(io.TextIOBase):
        def write(self, text):
            raise RuntimeError("reentrant call inside")

    monkeypatch.setattr(sys, "stderr", Busy())
    interrupts = Interrupts()
    with interrupts, interrupts.deferred():
        os.kill(os.getpid(), signal.SIGINT)
        assert "rookery: Ctrl-C: ending" in capfd.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()


def test_a_signal_between_updates_is_raised_at_once():
    with Interrupts() as interrupts:
        with interrupts.deferred():
            pass
        with pytest.raises(Terminated):
            os.kill(os.getpid(), signal.SIGTERM)


class Notes:
    """A callback that notes at which steps it was called, and is interrupted at some of them."""

    def __init__(self, *interrupted_at: int) -> None:
        self.steps: list[int] = []
        self.interrupted_at = list(interrupted_at)

    def __call__(self, trainer: Any, update: Any) -> None:
        if update.steps in self.interrupted_at:
            self.interrupted_at.remove(update.steps)
            raise KeyboardInterrupt
        self.steps.append(update.steps)


def _lines(run_dir: Path) -> list[dict[str, Any]]:
    rows = read_rows(run_dir / "metrics.jsonl")
    return [{name: row[name] for name in row if name not in TIMES} for row in rows]


@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_an_evaluation_that_was_interrupted_is_made_when_the_run_goes_on(tmp_path: Path, algo: str):
    env, config = RUNS[algo]
    options: dict[str, Any] = {
        "eval_every": 96, "checkpoint_every": 96, "eval_episodes": 2, "total_steps": 288,
        "eval_wrappers": [SignalAt],
    }  # fmt: skip
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    _train(whole, env, config, **options)
    SignalAt.signals[3] = signal.SIGINT  # of an evaluation, as only these envs are wrapped
    with pytest.raises(KeyboardInterrupt):
        _train(parts, env, config, **options)
    assert not (parts / "evaluations.jsonl").exists()
    assert [line["step"] for line in _lines(parts)][-1] == 96
    rookery.resume(parts)
    assert_same_run(whole, parts)
    evaluations = [read_rows(path / "evaluations.jsonl") for path in (whole, parts)]
    assert evaluations[0] == evaluations[1]
    names = [sorted(p.name for p in (path / "checkpoints").iterdir()) for path in (whole, parts)]
    assert names[0] == names[1] and len(names[0]) == 3
    if algo == "ppo":  # of others a line is of several updates, and an interruption ends it
        assert _lines(whole) == _lines(parts)
    assert next(line["step"] for line in _lines(parts) if "eval_return_mean" in line) == 96


def test_a_run_that_an_evaluation_ends_ends_there_after_an_interruption_too(tmp_path: Path):
    env, config = RUNS["ppo"]
    options: dict[str, Any] = {"eval_every": 96, "stop_at": 1.0, "eval_episodes": 2}
    callbacks = [Notes(96)]
    with pytest.raises(KeyboardInterrupt):
        _train(tmp_path, env, config, callbacks=callbacks, **options)
    assert load_checkpoint(tmp_path / "checkpoint.pt")["due"]["stopped"]
    assert rookery.resume(tmp_path, callbacks=callbacks).steps == 96
    assert callbacks[0].steps == [96]
    assert load_checkpoint(tmp_path / "checkpoint.pt")["due"] is None


def test_every_callback_has_every_update_once_however_often_a_run_is_interrupted(tmp_path: Path):
    env, config = RUNS["ppo"]
    notes = [Notes(96), Notes(96, 192), Notes()]
    options: dict[str, Any] = {"total_steps": 288, "eval_episodes": 0}
    with pytest.raises(KeyboardInterrupt):
        _train(tmp_path, env, config, callbacks=notes, **options)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            rookery.resume(tmp_path, callbacks=notes)
    seen = []
    with rookery.Trainer.resume(tmp_path, callbacks=[*notes, lambda *_: seen.append(0)]) as trainer:
        updates = [update.steps for update in trainer]
    assert updates == [192, 288] and len(seen) == 1  # the last is no callback of the update at 192
    assert [each.steps for each in notes] == [[96, 192, 288]] * 3


def test_a_callback_that_saves_the_run_in_its_turn_has_had_it(tmp_path: Path):
    env, config = RUNS["ppo"]
    others = Notes()

    def save(trainer: Any, update: Any) -> None:
        trainer.save()
        raise ZeroDivisionError  # which writes no checkpoint

    with pytest.raises(ZeroDivisionError):
        _train(tmp_path, env, config, callbacks=[save, others])
    with rookery.Trainer.resume(tmp_path, callbacks=[save, others]) as trainer:
        assert next(trainer).steps == 96
    assert others.steps == [96]


def test_a_checkpoint_of_a_version_that_noted_no_callbacks_is_taken(tmp_path: Path):
    env, config = RUNS["ppo"]
    _interrupted(tmp_path, env, config)
    saved = load_checkpoint(tmp_path / "checkpoint.pt")
    assert saved.pop("due") is None
    save_checkpoint(tmp_path / "checkpoint.pt", saved)
    assert rookery.resume(tmp_path).steps == 960


def test_an_update_that_was_interrupted_comes_again_in_the_same_process(tmp_path: Path):
    env, config = RUNS["ppo"]
    notes = Notes(96)
    options: dict[str, Any] = {"total_steps": 192, "num_envs": 3, "backend": "serial"}
    with rookery.Trainer(env, config, run_dir=tmp_path, callbacks=[notes], **options) as trainer:
        with pytest.raises(KeyboardInterrupt):
            next(trainer)
        assert [update.steps for update in trainer] == notes.steps == [96, 192]
