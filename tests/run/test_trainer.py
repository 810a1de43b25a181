"""A run in the hands of its user: updates, callbacks, sinks, evaluation, and how it ends."""

from __future__ import annotations

import inspect
import os
import signal
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from run_files import assert_same_run

import rookery
from rookery import DQNConfig, PPOConfig
from rookery.callbacks import CheckpointEvery, EvaluateEvery
from rookery.policy import make_policy
from rookery.run.checkpoint.files import load_checkpoint
from rookery.run.log.jsonl import read_rows
from rookery.run.plan import RunPlan
from rookery.run.request import ARGUMENTS, OF_EVALUATIONS

QUICK = PPOConfig(num_steps=16, num_epochs=1, minibatch_size=32)


def _trainer(run_dir: Path, algo: Any = QUICK, env: Any = "CartPole-v1", **options: Any) -> Any:
    options = {"total_steps": 128, "num_envs": 2, "backend": "serial", "eval_episodes": 2} | options
    return rookery.Trainer(env, algo, run_dir=run_dir, **options)


def test_updates_tell_where_the_run_stands(tmp_path: Path) -> None:
    with _trainer(tmp_path) as trainer:
        steps = [update.steps for update in trainer]
        assert steps == [32, 64, 96, 128] and trainer.steps == 128
        assert next(trainer, None) is None
        assert trainer.evaluate(episodes=3).episodes == 3
    assert [row["step"] for row in read_rows(tmp_path / "metrics.jsonl")] == steps
    assert load_checkpoint(tmp_path / "checkpoint.pt")["steps"] == 128


def test_a_loop_that_is_left_early_leaves_a_run_that_goes_on(tmp_path: Path) -> None:
    with _trainer(tmp_path / "parts") as trainer:
        for update in trainer:
            if update.steps == 64:
                break
    assert rookery.resume(tmp_path / "parts").steps == 128
    with _trainer(tmp_path / "whole") as trainer:
        list(trainer)
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def test_what_is_evaluated_on_the_way_changes_nothing(tmp_path: Path) -> None:
    config = PPOConfig(num_steps=16, num_epochs=1, recurrent="gru", memory_size=8)
    with _trainer(tmp_path / "plain", config) as trainer:
        list(trainer)
    with _trainer(tmp_path / "evaluated", config) as trainer:
        for _ in trainer:
            trainer.evaluate(episodes=2)
            trainer.evaluate(episodes=1, deterministic=False)
    assert_same_run(tmp_path / "plain", tmp_path / "evaluated")


def test_callbacks_come_after_each_update_and_may_end_the_run(tmp_path: Path) -> None:
    seen: list[int] = []

    def watch(trainer: Any, update: Any) -> None:
        seen.append(update.steps)
        if update.steps >= 64:
            raise rookery.StopTraining("enough")

    with _trainer(tmp_path, callbacks=[watch]) as trainer:
        assert [update.steps for update in trainer] == seen == [32, 64]
        assert trainer.stopped == "enough"
    assert load_checkpoint(tmp_path / "checkpoint.pt")["steps"] == 64


def test_a_callback_that_returns_false_is_warned_of_once(tmp_path: Path) -> None:
    def enough(trainer: Any, update: Any) -> bool:
        return False

    with (
        _trainer(tmp_path, callbacks=[enough]) as trainer,
        pytest.warns(UserWarning, match=r"enough returned False.*StopTraining") as found,
    ):
        assert len(list(trainer)) == 4
    assert len(found) == 1


def test_whole_numbers_may_be_written_as_floats(tmp_path: Path) -> None:
    config = PPOConfig(num_steps=16.0, num_epochs=np.float32(1))  # type: ignore[arg-type]
    assert type(config.num_steps) is int and type(config.num_epochs) is int
    with _trainer(
        tmp_path, config, total_steps=1e2, num_envs=2.0, callbacks=[CheckpointEvery(6.4e1)]
    ) as trainer:
        assert [update.steps for update in trainer] == [32, 64, 96, 128]
    assert rookery.resume(tmp_path, total_steps=1.6e2).steps == 160
    told = trainer.run_dir.read_config()["train"]
    assert told["total_steps"] == 160 and type(told["total_steps"]) is int
    preset = {"algo": "ppo", "preset": "CartPole-v1", "num_envs": 8.0}
    with _trainer(tmp_path / "preset", **preset) as trainer:
        assert trainer.plan.settings.num_envs == 8


def test_evaluations_keep_the_best_policy_and_stop_at_a_return(tmp_path: Path) -> None:
    callback = EvaluateEvery(64, episodes=2, stop_at=1.0)
    with _trainer(tmp_path, callbacks=[callback], total_steps=1024) as trainer:
        updates = list(trainer)
    assert [update.steps for update in updates] == [32, 64]  # any episode gives more than 1
    assert "reached 1" in trainer.stopped
    told = updates[-1].metrics["eval_return_mean"]
    assert trainer.best_return == told
    assert rookery.evaluate(tmp_path / "best.pt", episodes=2).eval_return_mean == told
    assert read_rows(tmp_path / "metrics.jsonl")[-1]["eval_return_mean"] == told


def test_only_a_better_policy_replaces_the_best_one_also_after_a_resume(tmp_path: Path) -> None:
    scores = iter([3.0, 5.0, 4.0, 4.5, 6.0])

    class Scripted(rookery.Trainer):
        def evaluate(self, episodes: int = 20, **options: Any) -> Any:
            class Score:
                eval_return_mean, eval_return_std = next(scores), 0.0

            Score.episodes = episodes
            return Score

    kept: list[int] = []

    def note(trainer: Any, update: Any) -> None:
        kept.append(load_checkpoint(trainer.run_dir.best)["steps"])

    callbacks = [EvaluateEvery(32, episodes=1), note]
    options = {"total_steps": 96, "num_envs": 2, "backend": "serial"}
    with Scripted("CartPole-v1", QUICK, run_dir=tmp_path, callbacks=callbacks, **options) as one:
        list(one)
    with Scripted.resume(tmp_path, total_steps=160, callbacks=callbacks) as other:
        list(other)
    assert kept == [32, 64, 64, 64, 160]


def test_the_last_checkpoints_are_kept(tmp_path: Path) -> None:
    with _trainer(tmp_path, callbacks=[CheckpointEvery(32, keep=2)]) as trainer:
        list(trainer)
    names = [path.name for path in sorted((tmp_path / "checkpoints").iterdir())]
    assert names == ["step-0000000096.pt", "step-0000000128.pt"]
    agent = rookery.load(tmp_path / "checkpoints" / names[0])
    assert agent.steps == 96


def test_settings_make_the_same_callbacks(tmp_path: Path) -> None:
    result = rookery.train(
        "CartPole-v1", QUICK, run_dir=tmp_path, total_steps=1024, num_envs=2, backend="serial",
        eval_every=64, eval_episodes=2, stop_at=1.0, checkpoint_every=32, keep_checkpoints=1,
    )  # fmt: skip
    assert result.steps == 64
    assert (tmp_path / "best.pt").exists()
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step-0000000064.pt"]


def test_sinks_of_ones_own_get_every_line(tmp_path: Path) -> None:
    class Lines:
        def __init__(self) -> None:
            self.lines: list[tuple[int, float]] = []
            self.is_closed = False

        def write(self, step: int, metrics: Any) -> None:
            self.lines.append((step, metrics["policy_loss"]))

        def close(self) -> None:
            self.is_closed = True

    sink = Lines()
    with _trainer(tmp_path, sinks=[sink]) as trainer:
        list(trainer)
    rows = read_rows(tmp_path / "metrics.jsonl")
    assert sink.lines == [(row["step"], row["policy_loss"]) for row in rows]
    assert sink.is_closed


class Goal(gym.Wrapper[Any, Any, Any, Any]):
    """Tells at an episode's end whether it was long, and now and then something else."""

    def reset(self, **options: Any) -> Any:
        self.length = 0
        return self.env.reset(**options)

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.length += 1
        if terminated or truncated:
            info = {**info, "is_success": self.length > 20, "length": np.int64(self.length)}
        return obs, reward, terminated, truncated, info


@pytest.mark.parametrize("collector", ["caller", "workers"])
def test_numbers_of_infos_are_averaged_over_the_episodes(tmp_path: Path, collector: str) -> None:
    keys = ("is_success", "length", "no_such_thing")
    options: dict[str, Any] = {"backend": "process"} if collector == "workers" else {}
    with _trainer(
        tmp_path, wrappers=[Goal], info_keys=keys, collector=collector, total_steps=512, **options
    ) as trainer:
        metrics = list(trainer)[-1].metrics
    assert metrics["episode_length_mean"] == pytest.approx(metrics["episode_return_mean"])
    assert metrics["episode_length_mean"] > 0
    assert 0.0 < metrics["episode_is_success_mean"] < 1.0
    assert "episode_no_such_thing_mean" not in metrics


@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled"])
def test_every_autoreset_mode_tells_with_which_infos_episodes_ended(mode: str) -> None:
    with rookery.make_vec(
        "CartPole-v1", 3, wrappers=[Goal], autoreset_mode=mode, backend="serial"
    ) as venv:
        spaces = venv.single_observation_space, venv.single_action_space
        policy = make_policy(*spaces, seed=1)
        collector = rookery.SyncCollector(venv, policy, 200, seed=3, info_keys=("length",))
        rollout = collector.collect()
    t, b = rollout.final_index.T
    lengths = rollout.final_info["length"]
    assert len(lengths) == len(t) > 5 and np.isfinite(lengths).all()
    ended = np.zeros_like(rollout.done)
    ended[t, b] = True
    np.testing.assert_array_equal(ended, rollout.done)
    for env in range(3):
        ends = t[b == env]
        between = np.diff([-1, *ends])
        resets = (~rollout.valid[: ends[-1], env]).cumsum()[np.maximum(ends - 1, 0)]
        between = between - np.diff([0, *resets])
        np.testing.assert_array_equal(lengths[b == env], between)


def test_evaluations_can_have_envs_of_their_own(tmp_path: Path) -> None:
    def shorter(env: Any) -> Any:
        return gym.wrappers.TimeLimit(env, 5)

    with _trainer(tmp_path, eval_wrappers=[shorter]) as trainer:
        assert trainer.evaluate(4).eval_return_mean == 5.0
        assert next(trainer).steps == 32
    with (
        _trainer(tmp_path / "other", eval_env="Acrobot-v1") as trainer,
        pytest.raises(rookery.ConfigError, match=r"evaluation .* observation space .*\(6,\)"),
    ):
        trainer.evaluate(1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_users_own_loop_leaves_a_checkpoint(tmp_path: Path, number: int) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises((KeyboardInterrupt, SystemExit)), _trainer(tmp_path) as trainer:
        for update in trainer:
            if update.steps == 64:
                os.kill(os.getpid(), number)
    assert load_checkpoint(tmp_path / "checkpoint.pt")["steps"] == 64
    assert signal.getsignal(signal.SIGINT) is before


def test_an_error_of_the_users_replaces_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), _trainer(tmp_path) as trainer:
        for update in trainer:
            if update.steps == 32:
                trainer.save()
            if update.steps == 96:
                raise ZeroDivisionError
    assert load_checkpoint(tmp_path / "checkpoint.pt")["steps"] == 32
    assert rookery.resume(tmp_path).steps == 128


def test_a_learner_that_fails_amid_an_update_replaces_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rookery.learn.on_policy.ppo import PPO

    step, calls = PPO._step, []

    def fail(self: Any, *args: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            self.model.parameters[:] = np.nan
            raise KeyboardInterrupt  # as a second Ctrl-C at the worst moment
        return step(self, *args)

    monkeypatch.setattr(PPO, "_step", fail)
    with pytest.raises(KeyboardInterrupt), _trainer(tmp_path) as trainer:
        for update in trainer:
            if update.steps == 64:
                trainer.save()
    state = load_checkpoint(tmp_path / "checkpoint.pt")
    assert state["steps"] == 64
    assert all(np.isfinite(array).all() for array in state["model"]["module"].values())


class Odd(gym.Wrapper[Any, Any, Any, Any]):
    """Gives a reward, or an observation, that is no number in some steps."""

    what, every = "reward", 3

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.count = getattr(self, "count", 0) + 1
        if self.count % self.every == 0:
            if self.what == "reward":
                reward = float("nan")
            else:
                obs = np.full_like(obs, np.inf)
        return obs, reward, terminated, truncated, info


class OddObs(Odd):
    what = "obs"


@pytest.mark.parametrize("wrapper", [Odd, OddObs])
@pytest.mark.parametrize(
    "algo", [QUICK, DQNConfig(warmup_steps=32, batch_size=16)], ids=["ppo", "dqn"]
)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
def test_numbers_that_are_not_finite_are_left_out_and_counted(
    tmp_path: Path, wrapper: Any, algo: Any
) -> None:
    with (
        pytest.raises(
            rookery.TrainingDiverged, match=r"Env 0, 1 gave an? .* not finite .* 10 roll"
        ),
        _trainer(tmp_path, algo, wrappers=[wrapper], total_steps=10_000) as trainer,
    ):
        for update in trainer:
            if "nonfinite_transitions" in update.metrics:
                trainer.save()
    assert update.metrics["nonfinite_transitions"] > 0
    state = load_checkpoint(tmp_path / "checkpoint.pt")
    assert all(np.isfinite(array).all() for array in state["model"]["module"].values())


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_few_such_numbers_do_not_end_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Odd, "every", 150)
    with _trainer(tmp_path, wrappers=[Odd], total_steps=2048) as trainer:
        metrics = list(trainer)[-1].metrics
    assert metrics["nonfinite_transitions"] == 2 * (1024 // 150)
    assert np.isfinite(list(metrics.values())).all()


def test_a_run_begins_with_the_weights_of_another(tmp_path: Path) -> None:
    with _trainer(tmp_path / "first") as trainer:
        list(trainer)
        agent = trainer.agent()
        kept = agent.policy.model.parameters.copy()
    with _trainer(tmp_path / "second", initial=agent, seed=5) as trainer:
        np.testing.assert_array_equal(trainer.policy.model.parameters, kept)
        list(trainer)
        assert (trainer.policy.model.parameters != kept).any()
    np.testing.assert_array_equal(agent.policy.model.parameters, kept)
    other = PPOConfig(hidden_sizes=(8,))
    with pytest.raises(rookery.ConfigError, match="initial agent's weights do not fit") as raised:
        _trainer(tmp_path / "third", other, initial=agent)
    said = str(raised.value)
    assert "towers.0.weight has shape (2, 4, 64) in the loaded state and (2, 4, 8) here" in said
    assert "\n" not in said
    assert not (tmp_path / "third").exists()
    kept_under_bounds = [Rescaled]  # bounds may be others
    _trainer(tmp_path / "fourth", initial=agent, wrappers=kept_under_bounds).close()


class Rescaled(gym.wrappers.TransformObservation[Any, Any, Any]):
    """Shows the same within other bounds."""

    def __init__(self, env: Any) -> None:
        space = gym.spaces.Box(-100, 100, (4,), np.float32)
        super().__init__(env, lambda obs: 10 * obs, space)


class InWholeNumbers(gym.wrappers.TransformObservation[Any, Any, Any]):
    """Shows arrays of the same shape that are read otherwise."""

    def __init__(self, env: Any) -> None:
        space = gym.spaces.Box(0, 255, (4,), np.uint8)
        super().__init__(env, lambda obs: np.zeros(4, np.uint8), space)


class Relu(torch.nn.Sequential):
    """Takes the weights of `Tanh`, and makes something else of them."""

    def __init__(self, space: Any) -> None:
        super().__init__(torch.nn.Linear(4, 8), torch.nn.ReLU())


class Tanh(torch.nn.Sequential):
    """Takes the weights of `Relu`."""

    def __init__(self, space: Any) -> None:
        super().__init__(torch.nn.Linear(4, 8), torch.nn.Tanh())


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({}, {"algo": PPOConfig(activation="relu")}, "activation tanh, but .* activation relu"),
        ({}, {"wrappers": [InWholeNumbers]}, "observation space is Box.*, but this run's is Box"),
        ({"encoder": Tanh}, {"encoder": Relu}, "has a Tanh, but this run's has a Relu"),
    ],
    ids=["activation", "space", "encoder"],
)
def test_weights_that_fit_by_chance_are_refused(
    tmp_path: Path, first: Any, second: Any, message: str
) -> None:
    with _trainer(tmp_path / "first", **first) as trainer:
        agent = trainer.agent()
    with pytest.raises(rookery.ConfigError, match=message):
        _trainer(tmp_path / "second", initial=agent, **second)
    assert not (tmp_path / "second").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"leaning_rate": 1e-3}, "'leaning_rate' is not among"),
        ({"num_env": 3}, "did you mean num_envs"),
        ({"learning_rate": 1e-3}, r"algo=rookery\.PPOConfig\(learning_rate="),
        ({"algo": "pppo"}, "did you mean 'ppo'"),
        ({"algo": "PPO"}, "did you mean 'ppo'"),
        ({"algo": PPOConfig}, r"is a class; pass an object of it, PPOConfig\(...\)"),
        ({"totl_steps": 3}, r"did you mean total_steps\?$"),
        (
            {"learning_rte": 1e-3},
            r"did you mean learning_rate\? That is a setting of the algorithm: ",
        ),
        ({"total_timesteps": 5}, r"did you mean total_steps\?$"),
        ({"ent_coef": 0.1}, r"did you mean entropy_coef\? That is a setting of the algorithm"),
        ({"wraper": ()}, r"did you mean wrappers\?"),
        ({"callback": ()}, r"did you mean callbacks\?"),
        ({"collector": "worker"}, r"did you mean 'workers'\?"),
        ({"backend": "proces"}, r"did you mean 'process'\?"),
        ({"start_method": "forksever"}, r"did you mean 'forkserver'\?"),
        ({"on_fault": "restrt"}, r"did you mean 'restart'\?"),
        ({"stop_at": 3.0}, "set eval_every"),
        ({"info_keys": "is_success"}, "must be a tuple"),
        ({"keep_checkpoints": 0}, "keep_checkpoints must be"),
        ({"total_steps": 1.5}, "total_steps must be a whole number"),
    ],
)
def test_what_cannot_be_is_told_with_the_way_out(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(rookery.ConfigError, match=message):
        _trainer(tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_a_run_whose_learning_rate_has_come_to_nothing_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with _trainer(tmp_path, replace(QUICK, final_learning_rate=0.0)) as trainer:
        list(trainer)
    rookery.resume(tmp_path, total_steps=160)
    assert "learning-rate schedule has reached 0" in capsys.readouterr().err
    rookery.resume(tmp_path, total_steps=192, learning_rate=1e-3, final_learning_rate=None)
    assert "learning rate" not in capsys.readouterr().err
    assert read_rows(tmp_path / "metrics.jsonl")[-1]["learning_rate"] == 1e-3


def _to_nothing(progress: float) -> float:
    return 1e-3 * (1.0 - progress)


def test_a_function_that_has_come_to_nothing_is_told_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with _trainer(tmp_path, PPOConfig(num_steps=16, learning_rate=_to_nothing)) as trainer:
        list(trainer)
    rookery.resume(tmp_path, total_steps=160)
    assert "learning-rate schedule has reached 0" in capsys.readouterr().err
    rookery.resume(tmp_path, total_steps=192, learning_rate=1e-3, final_learning_rate=None)
    assert "learning rate" not in capsys.readouterr().err


def test_settings_can_be_changed_when_a_run_goes_on(tmp_path: Path) -> None:
    with _trainer(tmp_path) as trainer:
        list(trainer)
    with rookery.Trainer.resume(
        tmp_path, total_steps=256, learning_rate=0.5, final_learning_rate=0.25
    ) as trainer:
        rates = [update.metrics["learning_rate"] for update in trainer]
    assert rates == [0.25] * 4  # the run had come to its end, and goes on from there
    assert trainer.plan.algorithm.config.learning_rate == 0.5
    assert RunPlan.of_run(trainer.run_dir).settings.total_steps == 256


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_envs": 3}, "num_envs cannot be changed"),
        ({"hidden_sizes": (8,)}, "hidden_sizes cannot be changed"),
        ({"leaning_rate": 1.0}, "did you mean learning_rate"),
        ({"total_steps": 100}, "has made 128 steps already"),
    ],
)
def test_a_change_that_cannot_be_made_leaves_the_run_as_it_was(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with _trainer(tmp_path) as trainer:
        list(trainer)
    files = ("config.json", "checkpoint.pt", "metrics.jsonl")
    before = [(tmp_path / name).read_bytes() for name in files]
    with pytest.raises(rookery.ConfigError, match=message):
        rookery.resume(tmp_path, **changes)
    assert [(tmp_path / name).read_bytes() for name in files] == before


def test_schedules_of_a_run_that_is_extended_go_on_from_where_they_were(tmp_path: Path) -> None:
    config = PPOConfig(num_steps=16, num_epochs=1, learning_rate=1.0, final_learning_rate=0.0)
    with _trainer(tmp_path, config) as trainer:
        for update in trainer:
            first = update.metrics["learning_rate"]
            if update.steps == 64:
                break
    with rookery.Trainer.resume(tmp_path, total_steps=320) as trainer:
        rates = [update.metrics["learning_rate"] for update in trainer]
    assert first == 0.75
    np.testing.assert_allclose(rates, np.linspace(0.5, 0.0, 8, endpoint=False))


def test_a_trainer_that_is_closed_says_so(tmp_path: Path) -> None:
    trainer = _trainer(tmp_path)
    next(trainer)
    trainer.close()
    trainer.close()
    for call in (lambda: next(trainer), lambda: trainer.evaluate(1)):
        with pytest.raises(rookery.ClosedError, match="closed"):
            call()


def _half(progress: float) -> float:
    return 0.5 * (1.0 - progress)


@pytest.mark.parametrize("kind", [float, np.float32, np.float64, torch.tensor])
def test_a_schedule_may_give_any_kind_of_number(tmp_path: Path, kind: Any) -> None:
    config = PPOConfig(num_steps=16, num_epochs=1, learning_rate=lambda _: kind(0.25))
    with _trainer(tmp_path, config) as trainer:
        assert next(trainer).metrics["learning_rate"] == 0.25


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (lambda progress: -1e-3 if progress else 1e-3, "returned -0.001 at 0.5; it must"),
        (lambda progress: None, "returned None at 0"),
        (lambda progress: "1e-3", "returned '1e-3' at 0"),
        (lambda progress: float("nan"), "returned nan at 0"),
        (lambda progress: 1 / (1.0 - progress), "raised ZeroDivisionError at 1"),
        (lambda progress, other: 1.0, "raised TypeError at 0"),
    ],
)
@pytest.mark.parametrize("name", ["learning_rate", "clip_range", "entropy_coef"])
def test_a_schedule_that_gives_no_number_is_refused_before_anything_starts(
    tmp_path: Path, name: str, schedule: Any, message: str
) -> None:
    config = PPOConfig(num_steps=16, **{name: schedule})
    with pytest.raises(rookery.ConfigError, match=f"{name}: the schedule .* {message}"):
        _trainer(tmp_path / "run", config)
    assert not (tmp_path / "run").exists()


def test_a_schedule_may_be_a_function_of_what_is_done(tmp_path: Path) -> None:
    config = PPOConfig(
        num_steps=16, num_epochs=1, learning_rate=_half, clip_range=lambda progress: 0.3
    )
    with _trainer(tmp_path, config) as trainer:
        metrics = [update.metrics for update in trainer]
    assert [m["learning_rate"] for m in metrics] == [0.5, 0.375, 0.25, 0.125]
    assert {m["clip_range"] for m in metrics} == {0.3}
    assert rookery.load(tmp_path).steps == 128  # which needs no schedule
    with pytest.raises(rookery.ConfigError, match=r"clip_range was a lambda .* clip_range="):
        rookery.resume(tmp_path, total_steps=256)
    assert rookery.resume(tmp_path, total_steps=256, clip_range=0.2).steps == 256


def _constant(progress: float) -> float:
    return 1e-3


def test_a_learning_rate_that_is_a_function_is_not_said_to_have_come_to_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = PPOConfig(num_steps=16, num_epochs=1, learning_rate=_constant, final_learning_rate=0.0)
    with _trainer(tmp_path, config) as trainer:
        list(trainer)
    rookery.resume(tmp_path, total_steps=160)
    assert "learning rate" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PPOConfig(hidden_sizes=64), r"hidden_sizes must be a tuple of widths.*got 64"),
        (lambda: PPOConfig(hidden_sizes=(64, 0)), "hidden_sizes must be a tuple"),
        (lambda: PPOConfig(num_steps=1.5), "num_steps must be a whole number"),
        (lambda: PPOConfig(num_steps=float("inf")), "num_steps must be a whole number"),
        (lambda: PPOConfig(ent_coef=0.1), r"of PPOConfig; did you mean entropy_coef\?$"),  # type: ignore[call-arg]
        (lambda: PPOConfig(n_steps=5), r"did you mean num_steps\?$"),  # type: ignore[call-arg]
        (lambda: PPOConfig(batch_size=5), r"did you mean minibatch_size\?$"),  # type: ignore[call-arg]
        (lambda: PPOConfig(gama=0.9), r"did you mean gamma\?$"),  # type: ignore[call-arg]
        (lambda: DQNConfig(n_steps=5), r"did you mean num_steps or n_step\?$"),  # type: ignore[call-arg]
        (lambda: DQNConfig(buffer_size=5), r"did you mean replay_size\?$"),  # type: ignore[call-arg]
        (lambda: DQNConfig(tau=0.1), r"of DQNConfig; did you mean target_rate\?$"),  # type: ignore[call-arg]
        (lambda: PPOConfig(learning_rate="fast"), "learning_rate must be a number"),
        (lambda: PPOConfig(learning_rate=float("nan")), "learning_rate is nan"),
        (lambda: PPOConfig(learning_rate=_half, final_learning_rate=0.1), "must not be set"),
        (lambda: DQNConfig(batch_size=True), "batch_size must be a whole number"),
        (lambda: PPOConfig(gamma="0.9"), r"gamma must be a number in \[0, 1\], got '0.9'"),
        (lambda: PPOConfig(gae_lambda=_half), r"gae_lambda must be a number in"),
        (lambda: PPOConfig(normalize_obs="no"), "normalize_obs must be True or False, got 'no'"),
        (lambda: DQNConfig(double=1), "double must be True or False"),
        (lambda: PPOConfig(device=None), "device is None; it must be 'cpu'"),
        (lambda: PPOConfig(device="gpu"), r"did you mean cuda\?"),
        (lambda: PPOConfig(activation="tahn"), r"did you mean 'tanh'\?"),
        (lambda: PPOConfig(recurrent=True), "recurrent must be one of 'none', 'gru', 'lstm', got"),
    ],
)
def test_settings_of_an_algorithm_are_checked_when_they_are_made(make: Any, message: str) -> None:
    with pytest.raises(rookery.ConfigError, match=message):
        make()


def test_signatures_show_the_arguments_of_a_run() -> None:
    settings = {field.name for field in fields(rookery.TrainSettings)}
    for function in (rookery.Trainer, rookery.train):
        assert set(inspect.signature(function).parameters) == ARGUMENTS | settings
    shown = set(inspect.signature(rookery.resume).parameters)
    assert shown == {"run_dir"} | ARGUMENTS - {"initial"}
    assert set(inspect.signature(rookery.evaluate).parameters) > OF_EVALUATIONS


def test_a_request_holds_what_train_and_resume_receive() -> None:
    request = rookery.RunRequest.of(env="CartPole-v1", wrappers=[], num_envs=2, gamma=0.9)
    assert request.env == "CartPole-v1" and request.wrappers == [] and request.algo is None
    assert request.settings == {"num_envs": 2, "gamma": 0.9}


def test_a_resumed_run_refuses_initial_weights(tmp_path: Path) -> None:
    with _trainer(tmp_path) as trainer:
        next(trainer)
        agent = trainer.agent()
    with pytest.raises(rookery.ConfigError, match="initial is for new runs"):
        rookery.resume(tmp_path, initial=agent)


def test_an_evaluation_refuses_arguments_of_training(tmp_path: Path) -> None:
    with _trainer(tmp_path) as trainer:
        next(trainer)
    with pytest.raises(rookery.ConfigError, match="did you mean wrappers"):
        rookery.evaluate(tmp_path, 1, wrapers=[])
    with pytest.raises(rookery.ConfigError, match="did you mean episodes"):
        rookery.evaluate(tmp_path, episode=1)
    with pytest.raises(rookery.ConfigError, match="callbacks"):
        rookery.evaluate(tmp_path, 1, callbacks=[])


def test_a_minibatch_that_no_rollout_fills_is_refused(tmp_path: Path) -> None:
    config = PPOConfig(num_steps=16, minibatch_size=64)
    with pytest.raises(rookery.ConfigError, match="has only 32 transitions"):
        _trainer(tmp_path / "run", config)
    assert not (tmp_path / "run").exists()


class Steady(gym.Env[Any, Any]):
    """Episodes of so many steps, which give as much; raises once if it is told to."""

    observation_space = gym.spaces.Box(-1, 1000, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, length: int = 5, raises_at: int = 0) -> None:
        self.length, self.raises_at, self.made = length, raises_at, 0

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.made += 1
        if self.made == self.raises_at:
            raise ValueError("once")
        self.t += 1
        return np.full(1, self.t, np.float32), 1.0, self.t == self.length, False, {}


def test_episodes_stand_in_the_curve_where_they_ended(tmp_path: Path) -> None:
    with _trainer(tmp_path, env=Steady, total_steps=64) as trainer:
        list(trainer)
    # Two envs whose episodes end together, every fifth step of each.
    assert trainer.history.steps == [s for s in range(10, 65, 10) for _ in range(2)]
    assert set(trainer.history.returns) == {5.0}


def test_a_reset_after_an_error_joins_no_episodes() -> None:
    from rookery.rollout import EpisodeTracker
    from rookery.rollout.normalize import RewardScaler
    from rookery.rollout.replay import Replay

    with rookery.make_vec(
        Steady, 2, env_kwargs={"length": 7, "raises_at": 15}, backend="serial",
        autoreset_mode="same_step",
    ) as venv:  # fmt: skip
        policy = make_policy(venv.single_observation_space, venv.single_action_space)
        collector = rookery.SyncCollector(venv, policy, 4, seed=0)
        replay, tracker = Replay(100, 2, gamma=1.0, n_step=50), EpisodeTracker(2)
        scaler, whole = RewardScaler(2, gamma=1.0), []
        for _ in range(6):
            try:
                rollout = collector.collect()
            except rookery.EnvFailed:
                continue
            replay.add(rollout)
            scaler.scale(rollout)
            whole += tracker.update(rollout).returns.tolist()
    assert set(whole) == {7.0}
    drawn = replay.sample(500, np.random.default_rng(0))
    assert drawn.reward.max() <= 7.0
    # What follows an observation is the sum of so many rewards later, in the same episode.
    last = np.where(drawn.discount > 0, drawn.next_obs[:, 0], 7.0)
    np.testing.assert_array_equal(last, drawn.obs[:, 0] + drawn.reward)
