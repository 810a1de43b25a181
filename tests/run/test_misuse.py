"""What users get wrong is refused in words before anything starts, and leaves nothing behind."""

from __future__ import annotations

import copy
import errno
import gc
import json
import os
import pickle
import shutil
import signal
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import psutil
import pytest
from run_files import assert_same_run
from training_envs import Match

import rookery
from rookery import ConfigError, PPOConfig
from rookery.callbacks import EvaluateEvery
from rookery.errors import ClosedError, PicklingError, StorageError, UsageError
from rookery.run.checkpoint.files import load_checkpoint
from rookery.run.checkpoint.run_dir import RunDirectory
from rookery.run.log.journal import sinks_of
from rookery.run.log.jsonl import read_rows
from rookery.run.plan import RunPlan
from rookery.run.request import RunRequest
from rookery.run.settings import TrainSettings

QUICK = PPOConfig(num_steps=16, num_epochs=1, minibatch_size=32)


def _trainer(run_dir: Any, algo: Any = QUICK, env: Any = "CartPole-v1", **options: Any) -> Any:
    options = {"total_steps": 128, "num_envs": 2, "backend": "serial", "eval_episodes": 2} | options
    return rookery.Trainer(env, algo, run_dir=run_dir, **options)


class Sink:
    """Keeps what it gets."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []
        self.is_closed = False

    def write(self, step: int, metrics: dict[str, float]) -> None:
        self.rows.append(dict(metrics))

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"callbacks": print}, "callbacks must be a sequence"),
        ({"callbacks": [3]}, r"callbacks\[0\] must be a callable"),
        ({"callbacks": [EvaluateEvery]}, r"EvaluateEvery\(\.\.\.\)"),
        ({"sinks": Sink()}, "sinks must be a sequence"),
        ({"sinks": [3]}, r"sinks\[0\] must be an object"),
        ({"sinks": [Sink]}, r"sinks\[0\] must be an object"),
        ({"initial": "runs/some"}, r"rookery\.load"),
        ({"wrappers": 3}, "wrappers must be a sequence"),
        ({"wrappers": gym.Wrapper}, "wrappers must be a sequence"),
        ({"stop_at": "100", "eval_every": 32}, "stop_at must be a number"),
        ({"stop_at": float("nan"), "eval_every": 32}, "stop_at must be a number"),
        ({"eval_every": 32, "eval_episodes": 0}, "eval_every is 32, but with eval_episodes=0"),
        ({"checkpoint_interval_s": -1.0}, "checkpoint_interval_s must be"),
        ({"overwrite": "yes"}, "overwrite must be True or False"),
        ({"save_env_states": 1}, "save_env_states must be True or False"),
        ({"run_dir": ""}, "run_dir must be the path"),
        ({"run_dir": 3}, "run_dir must be the path"),
        ({"run_dir": "a\0b"}, "run_dir .* cannot be used"),
        ({"run_dir": "x" * 300}, "run_dir .* cannot be used"),
    ],
    ids=lambda value: str(list(value)) if isinstance(value, dict) else "",
)
def test_arguments_that_cannot_be_are_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=message):
        rookery.Trainer("CartPole-v1", QUICK, **({"run_dir": "run", "num_envs": 2} | options))
    assert not list(tmp_path.iterdir())


def test_evaluations_of_no_episodes_are_refused_where_they_are_asked_for_anew(
    tmp_path: Path,
) -> None:
    with _trainer(tmp_path, eval_episodes=0) as trainer:
        next(trainer)
    with pytest.raises(ConfigError, match="no evaluation is made"):
        rookery.resume(tmp_path, eval_every=32)
    config = tmp_path / "config.json"
    before = config.read_text()  # of a version that took them
    config.write_text(before.replace('"eval_every": 0', '"eval_every": 32'))
    assert config.read_text() != before
    assert rookery.resume(tmp_path).steps == 128


@pytest.mark.parametrize("place", ["file", "file/below", "file/below/it"])
def test_a_run_directory_that_is_or_lies_in_a_file_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ConfigError, match="cannot create the run directory"):
        _trainer(tmp_path / place)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_in_the_place_of_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(StorageError, match=r"metrics\.jsonl"):
        _trainer(tmp_path)


def test_a_run_goes_on_in_a_path_of_spaces_and_other_alphabets(tmp_path: Path) -> None:
    folder = tmp_path / "two words" / "ünï 漢字"
    with _trainer(folder) as trainer:
        next(trainer)
    assert rookery.resume(folder).steps == 128
    assert rookery.load(folder).act(np.zeros(4)) in (0, 1)


class Denied(gym.Env[Any, Any]):
    """What is wrong is the env's, not the run's folder."""

    def __init__(self) -> None:
        raise PermissionError(13, "no access to the simulator")


def test_an_env_that_may_not_is_not_told_as_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(rookery.EnvFailed, match="no access to the simulator"):
        _trainer(tmp_path / "run", env=Denied)
    assert not (tmp_path / "run").exists()


def _delete(folder: Path) -> None:
    while folder.exists():  # TensorBoard's thread may be writing to it
        shutil.rmtree(folder, ignore_errors=True)


# TensorBoard's thread may find its folder gone, of which it tells in its own way.
_DELETED = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


@_DELETED
def test_a_folder_that_is_deleted_meanwhile_is_told_by_its_name(tmp_path: Path) -> None:
    trainer = _trainer(tmp_path / "run")
    next(trainer)
    _delete(tmp_path / "run")
    with pytest.raises(StorageError, match="was it moved or deleted"):
        trainer.save()
    trainer.close()


@_DELETED
def test_a_folder_that_is_deleted_before_the_first_update_stops_nothing(tmp_path: Path) -> None:
    trainer = _trainer(tmp_path / "run")
    _delete(tmp_path / "run")
    trainer.close()


# ---------------------------------------------------------------- the end of a trainer


@pytest.mark.parametrize("call", ["save", "evaluate", "final_evaluation", "__next__"])
def test_a_closed_trainer_refuses_by_name(tmp_path: Path, call: str) -> None:
    with _trainer(tmp_path) as trainer:
        next(trainer)
    before = (tmp_path / "checkpoint.pt").read_bytes()
    with pytest.raises(ClosedError, match="this trainer is closed"):
        getattr(trainer, call)()
    assert (tmp_path / "checkpoint.pt").read_bytes() == before


def test_a_trainer_that_nobody_closed_keeps_no_process_no_file_and_no_lock(tmp_path: Path) -> None:
    sink = Sink()
    trainer = _trainer(tmp_path, backend="process", num_workers=1, sinks=[sink])
    next(trainer)
    (pid,) = set(trainer.collection.venv.pids)
    gone = weakref.ref(trainer)
    del trainer
    gc.collect()
    assert gone() is None and sink.is_closed
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    _trainer(tmp_path, overwrite=True).close()


@pytest.mark.parametrize("num_envs", [2, 4], ids=["the envs of training", "envs of its own"])
def test_what_was_learned_is_saved_before_the_final_evaluation(
    tmp_path: Path, num_envs: int
) -> None:
    with _trainer(tmp_path / "one", num_envs=num_envs, total_steps=256) as trainer:
        for update in trainer:
            if update.steps >= 128:
                break
        assert trainer.final_evaluation().episodes == 2
        trainer.save()
    with _trainer(tmp_path / "other", num_envs=num_envs, total_steps=256) as trainer:
        for update in trainer:
            if update.steps >= 128:
                break
    rookery.resume(tmp_path / "one")
    rookery.resume(tmp_path / "other")
    weights = [
        load_checkpoint(tmp_path / name / "checkpoint.pt")["model"]["module"]
        for name in ("one", "other")
    ]
    for name in weights[0]:
        np.testing.assert_array_equal(weights[0][name], weights[1][name])


@pytest.mark.parametrize("way", [pickle.dumps, copy.deepcopy, copy.copy])
def test_a_trainer_says_what_can_be_pickled_in_its_place(
    tmp_path: Path, way: Callable[[Any], Any]
) -> None:
    with _trainer(tmp_path) as trainer, pytest.raises(PicklingError, match=r"trainer\.agent\(\)"):
        way(trainer)


def test_an_agent_can_be_pickled(tmp_path: Path) -> None:
    with _trainer(tmp_path) as trainer:
        agent = trainer.agent()
    batch = np.random.default_rng(0).normal(size=(8, 4))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(agent)).act(batch), agent.act(batch))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_copy_neither_writes_nor_closes(tmp_path: Path) -> None:
    with _trainer(tmp_path) as trainer:
        next(trainer)
        trainer.save()
        before = (tmp_path / "checkpoint.pt").read_bytes()
        pid = os.fork()
        if pid == 0:
            refused = 0
            try:
                for call in (trainer.save, trainer.evaluate, trainer.__next__):
                    try:
                        call()
                    except UsageError as error:
                        refused += "forked copy" in str(error)
                trainer.__exit__(None, None, None)
                del trainer
                gc.collect()
            finally:
                os._exit(refused)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 3
        assert (tmp_path / "checkpoint.pt").read_bytes() == before
        assert not (tmp_path / "curve.png").exists()
        with pytest.raises(ConfigError, match=f"in use by process {os.getpid()}"):
            rookery.resume(tmp_path)
        next(trainer)


# ---------------------------------------------------------------- metrics and evaluation


def test_numbers_of_every_kind_are_metrics(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    sink = Sink()
    given = {"a": np.float32(1.5), "b": np.int64(2), "c": torch.tensor(3.0), "d": True}

    def log(trainer: Any, update: Any) -> None:
        trainer.log(update, given)
        update.metrics["e"] = np.float32(0.5)

    with _trainer(tmp_path, callbacks=[log], sinks=[sink]) as trainer:
        next(trainer)
    expected = {"a": 1.5, "b": 2.0, "c": 3.0, "d": 1.0, "e": 0.5}
    (row,) = read_rows(tmp_path / "metrics.jsonl")
    assert {name: row[name] for name in expected} == expected
    assert {name: sink.rows[0][name] for name in expected} == expected


@pytest.mark.parametrize("value", ["high", None, [1, 2], np.zeros(2)], ids=repr)
def test_a_metric_that_is_no_number_is_named(tmp_path: Path, value: Any) -> None:
    def log(trainer: Any, update: Any) -> None:
        trainer.log(update, {"score": value})

    with (
        pytest.raises(ConfigError, match="metric 'score' must be a number"),
        _trainer(tmp_path, callbacks=[log]) as trainer,
    ):
        next(trainer)


def test_evaluation_envs_of_other_spaces_are_refused_every_time(tmp_path: Path) -> None:
    with _trainer(tmp_path, eval_env="Acrobot-v1") as trainer:
        for _ in range(2):
            with pytest.raises(ConfigError, match="eval_env"):
                trainer.evaluate(episodes=2)


@pytest.mark.parametrize("options", [{"seed": -1}, {"max_episode_steps": 0}, {"episodes": 0}])
def test_an_evaluation_that_cannot_be_is_refused(tmp_path: Path, options: dict[str, int]) -> None:
    with _trainer(tmp_path) as trainer:
        next(trainer)
        with pytest.raises(ConfigError, match=next(iter(options))):
            trainer.evaluate(**options)
    with pytest.raises(ConfigError, match=next(iter(options))):
        rookery.evaluate(tmp_path, **options)


class Unknown(gym.RewardWrapper[Any, Any]):
    """The reward is NaN in the first evaluation, and a number later."""

    evaluations = 0

    def reset(self, **kwargs: Any) -> Any:
        Unknown.evaluations += 1
        return super().reset(**kwargs)

    def reward(self, reward: Any) -> Any:
        return float("nan") if Unknown.evaluations <= 1 else reward


def test_an_evaluation_that_came_to_nan_is_not_the_best_for_ever(tmp_path: Path) -> None:
    Unknown.evaluations = 0
    callback = EvaluateEvery(32, episodes=1)
    with _trainer(tmp_path, eval_wrappers=[Unknown], callbacks=[callback]) as trainer:
        list(trainer)
    assert np.isfinite(trainer.best_return)
    assert load_checkpoint(tmp_path / "best.pt")["steps"] > 32


class Stops(gym.Wrapper[Any, Any, Any, Any]):
    """Fails at every fifth step."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.count = 0

    def step(self, action: Any) -> Any:
        self.count += 1
        if self.count % 5 == 0:
            raise ValueError("the simulator has stopped")
        return self.env.step(action)


def test_an_evaluation_that_fails_changes_nothing_in_the_training(tmp_path: Path) -> None:
    config = PPOConfig(num_steps=16, num_epochs=1, recurrent="gru", memory_size=8)
    for name, wrappers in (("failing", [Stops]), ("plain", [])):
        with _trainer(tmp_path / name, config, eval_wrappers=wrappers) as trainer:
            for _ in trainer:
                if wrappers:
                    with pytest.raises(rookery.EnvFailed):
                        trainer.evaluate(episodes=2, deterministic=False)
    assert_same_run(tmp_path / "failing", tmp_path / "plain")


# ---------------------------------------------------------------- going on


def _lambda_env() -> Any:
    return lambda: gym.make("CartPole-v1")


def test_lambdas_for_evaluation_are_asked_for_and_never_mixed_up(tmp_path: Path) -> None:
    def short() -> Any:
        return gym.make("CartPole-v1", max_episode_steps=3)

    env = _lambda_env()
    with _trainer(tmp_path, env=env, eval_env=lambda: short()) as trainer:
        next(trainer)
        assert trainer.evaluate(episodes=2).eval_return_mean == 3.0
    with pytest.raises(ConfigError, match="eval_env"):
        rookery.resume(tmp_path, env=env)
    result = rookery.resume(tmp_path, env=env, eval_env=short)
    assert (result.steps, result.eval_return_mean) == (128, 3.0)
    assert rookery.evaluate(tmp_path, 2, env=short).eval_return_mean == 3.0


@pytest.mark.parametrize("reference", ["__main__:make_env", "no_such_module:make_env"])
def test_an_env_of_another_script_is_asked_for(tmp_path: Path, reference: str) -> None:
    with _trainer(tmp_path, env=_lambda_env()) as trainer:
        next(trainer)
    config = json.loads((tmp_path / "config.json").read_text())
    config["source"]["env"] = {"callable": reference}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for call in (rookery.resume, rookery.evaluate):
        with pytest.raises(ConfigError, match=rf"{reference}.* pass it again"):
            call(tmp_path)
    assert rookery.evaluate(tmp_path, 1, env="CartPole-v1").episodes == 1


def test_a_fixed_setting_may_be_given_again_as_it_is(tmp_path: Path) -> None:
    with _trainer(tmp_path) as trainer:
        next(trainer)
    assert rookery.resume(tmp_path, seed=0, num_envs=2, num_steps=16).steps == 128
    with pytest.raises(ConfigError, match="num_envs cannot be changed"):
        rookery.resume(tmp_path, num_envs=3)


def test_a_checkpoint_of_other_sizes_is_named(tmp_path: Path) -> None:
    with _trainer(tmp_path, PPOConfig(num_steps=16, hidden_sizes=(64, 64))) as trainer:
        next(trainer)
    other = PPOConfig(num_steps=16, hidden_sizes=(8,))
    with pytest.raises(ConfigError, match=r"hidden_sizes.*64, 64.*8"):
        rookery.resume(tmp_path, algo=other)
    with pytest.raises(ConfigError, match=r"hidden_sizes.*64, 64.*8"):
        rookery.load(tmp_path, algo=other)


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "curve.png", "text", "empty"])
def test_a_file_that_is_no_checkpoint_is_told_without_bad_advice(tmp_path: Path, name: str) -> None:
    with _trainer(tmp_path) as trainer:
        next(trainer)
    (tmp_path / "text").write_text("hello")
    (tmp_path / "empty").touch()
    with pytest.raises(ConfigError, match="is not a checkpoint of plain data") as caught:
        rookery.load(tmp_path / name)
    assert "weights_only" not in str(caught.value)


def test_a_file_in_the_place_of_a_run_is_told(tmp_path: Path) -> None:
    with _trainer(tmp_path) as trainer:
        next(trainer)
    with pytest.raises(ConfigError, match="pass the folder of the run"):
        rookery.resume(tmp_path / "checkpoint.pt")


@pytest.mark.parametrize(
    "obs",
    [
        [[1.0, 2.0], [3.0]], "abcd", None, 5.0, np.zeros(3), ["1", "2", "3", "4"], [None] * 4,
        [1j] * 4, [1.0, 2.0, np.nan, 3.0], [np.inf, 0, 0, 0], [1e300, 0, 0, 0], np.zeros((0, 4)),
    ],
    ids=repr,
)  # fmt: skip
def test_an_observation_that_does_not_fit_is_a_space_error(tmp_path: Path, obs: Any) -> None:
    with _trainer(tmp_path) as trainer, pytest.raises(rookery.SpaceError, match="observation"):
        trainer.agent().act(obs)


def test_the_run_that_was_first_in_a_folder_stays(tmp_path: Path) -> None:
    settings = {"run_dir": tmp_path, "num_envs": 2}
    plan = RunPlan.new(RunRequest("CartPole-v1", QUICK, settings=settings))
    folder = plan.folder()
    with _trainer(tmp_path) as trainer:  # begun, and ended, after the other one looked
        next(trainer)
    late = rookery.Trainer.__new__(rookery.Trainer)
    with pytest.raises(ConfigError, match="already holds a run"):
        late._open(plan, folder, RunRequest())
    assert load_checkpoint(tmp_path / "checkpoint.pt")["steps"] == 32


def test_a_full_disk_leaves_the_metrics_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _trainer(tmp_path) as trainer:
        next(trainer)
    before = (tmp_path / "metrics.jsonl").read_bytes()

    def full(descriptor: int) -> None:
        os.truncate(descriptor, len(before) // 2)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=r"metrics\.jsonl.*No space left.*free disk space"):
        sinks_of(RunDirectory(tmp_path), TrainSettings(), False, 32)
    monkeypatch.undo()
    assert not list(tmp_path.rglob("*.tmp"))
    assert (tmp_path / "metrics.jsonl").read_bytes() == before
    assert rookery.resume(tmp_path).steps == 128


def test_an_interrupted_best_checkpoint_is_not_believed_to_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rookery.run.checkpoint.state import RunState

    def interrupted(state: Any, path: Path) -> None:
        raise KeyboardInterrupt

    with _trainer(tmp_path, callbacks=[EvaluateEvery(32, episodes=1)]) as trainer:
        monkeypatch.setattr(RunState, "save_alone", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(trainer)
        monkeypatch.undo()
    assert load_checkpoint(tmp_path / "checkpoint.pt")["best_return"] is None


@pytest.mark.parametrize(
    "obs", [{"shown": 2}, {"shown": -1}, {"shown": 0.5}, {"shown": np.array([0, 2])}], ids=repr
)
def test_a_number_that_is_not_in_its_space_is_refused(tmp_path: Path, obs: Any) -> None:
    with _trainer(tmp_path, env=Match) as trainer:
        agent = trainer.agent()
    noise = np.zeros((*np.shape(obs["shown"]), 2))
    with pytest.raises(rookery.SpaceError, match=r"not in Discrete\(2\)"):
        agent.act({**obs, "noise": noise})


class Shown(gym.Env[Any, Any]):
    """Shows numbers of all kinds."""

    observation_space = gym.spaces.Dict(
        {
            "image": gym.spaces.Box(0, 255, (2,), np.uint8),
            "flags": gym.spaces.MultiBinary(2),
            "action_mask": gym.spaces.Box(0, 1, (3,), np.int8),
            "choices": gym.spaces.MultiDiscrete([2, 3]),
        }
    )
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return _shown(), {}

    def step(self, action: Any) -> Any:
        return _shown(), 1.0, True, False, {}


def _shown(**parts: Any) -> dict[str, Any]:
    shown = {"image": [0, 255], "flags": [0, 1], "action_mask": [1, 0, 1], "choices": [1, 2]}
    dtypes = {"image": np.uint8, "flags": np.int8, "action_mask": np.int8, "choices": np.int64}
    return {k: parts.get(k, np.array(v, dtypes[k])) for k, v in shown.items()}


@pytest.mark.parametrize(
    "part",
    [
        {"image": [0.2, 0.7]}, {"image": [-1, 3]}, {"image": [256, 0]}, {"image": ["1", "2"]},
        {"image": [np.nan, 1]}, {"flags": [2, 0]}, {"flags": [0.5, 0]}, {"flags": [None, 1]},
        {"action_mask": [0.5, 1, 1]}, {"action_mask": [300, 1, 1]}, {"choices": [1, 3]},
        {"choices": [0.5, 1]},
    ],
    ids=repr,
)  # fmt: skip
def test_nothing_is_bent_to_fit_an_observation(tmp_path: Path, part: Any) -> None:
    with _trainer(tmp_path, env=Shown) as trainer:
        agent = trainer.agent()
    assert agent.act(_shown()) in (0, 2)
    whole = {"image": [0.0, 255.0], "choices": [1.0, 2.0], "flags": [True, False]}
    assert agent.act(_shown(**whole)) in (0, 2)
    with pytest.raises(rookery.SpaceError, match=r"not in|not of numbers"):
        agent.act(_shown(**part))
    batch = {k: [_shown(**part)[k], v] for k, v in _shown().items()}
    with pytest.raises(rookery.SpaceError, match=r"not in|not of numbers"):
        agent.act(batch)


def test_the_parts_of_a_batch_have_as_many_rows(tmp_path: Path) -> None:
    with _trainer(tmp_path, env=Shown) as trainer:
        agent = trainer.agent()
    batch = {k: np.array([v, v]) for k, v in _shown().items()}
    assert agent.act(batch).shape == (2,)
    with pytest.raises(rookery.SpaceError, match="the same number of rows"):
        agent.act({**batch, "flags": batch["flags"][:1]})


@pytest.mark.parametrize("begins", [[2], [0, 1], "all", True, [True], [[True, True]], 1.5])
def test_episodes_begin_in_envs_of_the_batch(tmp_path: Path, begins: Any) -> None:
    config = PPOConfig(num_steps=16, num_epochs=1, recurrent="gru", memory_size=8)
    with _trainer(tmp_path, config) as trainer:
        agent = trainer.agent()
    agent.act(np.ones((2, 4)))
    kept = agent.policy.memory.copy()
    with pytest.raises(rookery.ConfigError, match=r"begins must be bool \[2\]"):
        agent.reset(begins)
    np.testing.assert_array_equal(agent.policy.memory, kept)
    agent.reset([True, False])
    assert not agent.policy.memory[0].any() and agent.policy.memory[1].any()


@pytest.mark.parametrize("key", ["is_succes", "success_%", "%s_of_%d"])
def test_a_key_that_no_info_has_is_told_once(tmp_path: Path, key: str) -> None:
    with (
        pytest.warns(UserWarning, match=f"under {key!r}") as told,
        _trainer(tmp_path, env=Match, info_keys=(key,), total_steps=2048) as trainer,
    ):
        list(trainer)
    assert sum("info_keys" in str(warning.message) for warning in told) == 1


# ---------------------------------------------------------------- signals


def test_ctrl_c_while_a_checkpoint_is_written_is_raised_when_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rookery.run.checkpoint.state import RunState

    save = RunState.save

    def interrupted(state: RunState) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        save(state)

    with _trainer(tmp_path) as trainer:
        next(trainer)
        monkeypatch.setattr(RunState, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            trainer.save()
        monkeypatch.undo()
    assert load_checkpoint(tmp_path / "checkpoint.pt")["steps"] == 32


def test_a_trainer_that_is_interrupted_while_it_closes_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupts(Sink):
        def close(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            super().close()

    sink = Interrupts()
    trainer = _trainer(tmp_path, backend="process", num_workers=1, sinks=[sink])
    next(trainer)
    with pytest.raises(KeyboardInterrupt):
        trainer.close()
    assert sink.is_closed
    with pytest.raises(ClosedError):
        trainer.collection.venv.reset()
    _trainer(tmp_path, overwrite=True).close()


def test_a_second_signal_breaks_closing_off_and_another_call_completes_it(tmp_path: Path) -> None:
    class Hangs(Sink):
        def close(self) -> None:
            if not self.is_closed:
                self.is_closed = True
                os.kill(os.getpid(), signal.SIGINT)
                os.kill(os.getpid(), signal.SIGINT)

    trainer = _trainer(tmp_path, backend="process", num_workers=1, sinks=[Hangs()])
    next(trainer)
    with pytest.raises(KeyboardInterrupt):
        trainer.close()
    trainer.close()
    with pytest.raises(ClosedError):
        trainer.collection.venv.reset()


def test_a_job_in_the_background_goes_on_ignoring_ctrl_c(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with _trainer(tmp_path) as trainer:
            for _ in trainer:
                os.kill(os.getpid(), signal.SIGINT)
        assert trainer.steps == 128
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_trainers_that_are_left_in_any_order_give_the_signals_back(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    trainers = [_trainer(tmp_path / str(i)) for i in range(3)]
    for i in (0, 1, 2):
        trainers[i].__enter__()
    for i in (1, 0, 2):
        trainers[i].__exit__(None, None, None)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_trainer_within_the_loop_of_another_is_its_own(tmp_path: Path) -> None:
    with _trainer(tmp_path / "outer") as outer:
        for update in outer:
            with _trainer(tmp_path / "inner" / str(update.steps)) as inner:
                list(inner)
                inner.evaluate(episodes=1)
    with _trainer(tmp_path / "alone") as alone:
        list(alone)
    assert_same_run(tmp_path / "outer", tmp_path / "alone")
