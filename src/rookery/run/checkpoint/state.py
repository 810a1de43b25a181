"""State of a run on the disk: checkpoint.pt, and companion files that only resuming reads.

checkpoint.pt names its companions, so it alone decides which state is valid. Companions are
written before it under new names, and the old ones are deleted after it.
"""

from __future__ import annotations

import json
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rookery.common.seeding import env_seeds
from rookery.errors import ConfigError, EnvFailed, StorageError
from rookery.learn.schedule import scheduled
from rookery.run.checkpoint.agents import described, differences, fits
from rookery.run.checkpoint.files import load_checkpoint, save_checkpoint
from rookery.run.checkpoint.run_dir import RunDirectory, whole_file
from rookery.run.log.curve import draw_curve
from rookery.run.update import DueCallbacks

if TYPE_CHECKING:
    from rookery.run.trainer import Trainer


_OF_SEVERAL = "the envs of several learners are not saved"


@dataclass
class Schedule:
    """Progress of a run, from 0 at its start to 1 at its end.

    If ``total_steps`` of a resumed run changes, progress continues from its current value.

    Attributes:
        total_steps: env steps at which the run ends.
        since: env steps at which ``total_steps`` was last changed.
        done: progress at that time.
    """

    total_steps: int
    since: int = 0
    done: float = 0.0

    def progress(self, steps: int) -> float:
        """Return the progress after ``steps`` env steps."""
        left = max(self.total_steps - self.since, 1)
        return min(self.done + (1.0 - self.done) * (steps - self.since) / left, 1.0)

    def moved(self, total_steps: int, steps: int) -> Schedule:
        """Return the schedule with a new ``total_steps`` from ``steps`` on."""
        if total_steps == self.total_steps:
            return self
        return Schedule(total_steps, steps, self.progress(steps))


def save(trainer: Trainer) -> None:
    """Write the state of a run.

    Raises:
        StorageError: a file cannot be written; the previous checkpoint is kept.
    """
    trainer.saves += 1
    # Of several learners only the first writes, and it has only its own envs.
    is_alone = not trainer.learners.are_several
    collector = trainer.collector.state_dict() if is_alone else None
    try:
        env_states, unsaved = _save_env_states(trainer, collector is not None)
        companions = {"replay": _save_replay(trainer), "env_states": env_states}
        save_checkpoint(
            trainer.run_dir.checkpoint,
            {
                **_of_trainer(trainer),
                "collector": collector,
                "companions": companions,
                "unsaved": unsaved,
                "source": trainer.plan.source.to_dict(),
                "due": _due_state(trainer),
            },
        )
    except StorageError:
        _delete_companions(trainer.run_dir, _named_companions(trainer.run_dir))
        raise
    _delete_companions(trainer.run_dir, set(companions.values()))


def _due_state(trainer: Trainer) -> dict[str, Any] | None:
    """Return the state of the due callbacks of the last update; None without any."""
    if trainer.due is None:
        return None
    return {**trainer.due.state_dict(), "stopped": trainer.stopped}


def save_alone(trainer: Trainer, path: Path) -> None:
    """Write a checkpoint without companions, for agents and for the weights of other runs."""
    none = {"collector": None, "companions": {"replay": None, "env_states": None}}
    save_checkpoint(path, {**_of_trainer(trainer), **none, "unsaved": "this file holds no envs"})


def _of_trainer(trainer: Trainer) -> dict[str, Any]:
    schedule = trainer.schedule
    return {
        **described(trainer.plan.algorithm, trainer.spaces),
        "steps": trainer.steps,
        "seconds": trainer.seconds,
        "best_return": trainer.best_return,
        "schedule": [schedule.total_steps, schedule.since, schedule.done],
        "policy_version": trainer.policy.version,
        "model": trainer.policy.model.state_dict(),
        "learner": trainer.plan.algorithm.state_dict(),
        "rng": _generator(trainer).bit_generator.state,
        "history": trainer.history.state_dict(),
        "saves": trainer.saves,
    }


def shared(trainer: Trainer) -> dict[str, Any]:
    """Return the state with which the other learners start."""
    return {
        "model": trainer.policy.model.state_dict(),
        "learner": trainer.plan.algorithm.state_dict(),
        "policy_version": trainer.policy.version,
        "env_seeds": trainer.fresh_seeds,
    }


def read(folder: RunDirectory) -> dict[str, Any]:
    """Read the state of a run.

    Raises:
        ConfigError: there is no checkpoint, or it is invalid.
    """
    if not folder.checkpoint.is_file():
        raise ConfigError(
            f"{folder.path} holds no checkpoint to resume from: the run ended before it wrote its "
            "first one (checkpoint_interval_s); restart it with rookery train --overwrite"
        )
    return load_checkpoint(folder.checkpoint)


def restore(trainer: Trainer, saved: dict[str, Any]) -> None:
    """Restore a trainer from a saved state; print to standard error what could not be restored.

    Raises:
        ConfigError: the checkpoint belongs to another run.
    """
    path = trainer.run_dir.checkpoint
    fits(saved, trainer.plan.algorithm, trainer.spaces, path)
    try:
        trainer.steps, trainer.seconds = saved["steps"], saved["seconds"]
        trainer.saves, trainer.best_return = saved["saves"], saved["best_return"]
        trainer.policy.version = saved["policy_version"]
        trainer.policy.model.load_state_dict(saved["model"])
        _generator(trainer).bit_generator.state = saved["rng"]
        trainer.plan.algorithm.load_state_dict(saved["learner"])
        trainer.history.load_state_dict(saved["history"])
        before = Schedule(*saved["schedule"])
        due = saved.get("due")  # missing in checkpoints of earlier versions
        if due is not None:
            trainer.due = DueCallbacks.of_state(due, trainer.steps, trainer.callbacks)
            trainer.stopped = due["stopped"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"{path} does not fit this run: {differences(saved, trainer.plan.algorithm)}"
            f"{type(error).__name__}: {error}"
        ) from error
    total = trainer.plan.settings.total_steps
    if total < trainer.steps and total != before.total_steps:
        raise ConfigError(
            f"total_steps is {total}, but the run has made {trainer.steps} steps already; pass at "
            "least as many, or leave it out"
        )
    trainer.schedule = before.moved(total, trainer.steps)
    notes = _notes_on_schedules(trainer, before)
    notes += _restore_replay(trainer, saved["companions"]["replay"])
    for note in notes + _restore_envs(trainer, saved):
        print(f"rookery: resuming at {trainer.steps} steps: {note}", file=sys.stderr)


def _notes_on_schedules(trainer: Trainer, before: Schedule) -> list[str]:
    """Return a warning if a run is extended after its learning rate has reached 0."""
    config = getattr(trainer.plan.algorithm, "config", None)
    is_over = (
        before.progress(trainer.steps) >= 1.0 and before.total_steps < trainer.schedule.total_steps
    )
    rate = getattr(config, "learning_rate", None)
    if not is_over or rate is None:
        return []
    if scheduled(rate, getattr(config, "final_learning_rate", None), 1.0) != 0.0:
        return []
    return [
        "the learning-rate schedule has reached 0 and stays there; to continue learning, set "
        "learning_rate and final_learning_rate, for example to 3e-4 and None"
    ]


def policy_seed(saved: dict[str, Any], seed: int) -> int:
    """Derive the policy seed of a resumed run, so that policies in workers draw new actions.

    The initial weights and the generator in this process are then replaced by the saved ones.
    """
    return int(np.random.SeedSequence([seed, 3, saved["saves"]]).generate_state(1)[0])


def draw(trainer: Trainer) -> None:
    """Draw the learning curve: returns of episodes and of evaluations."""
    history, evaluations = trainer.history, trainer.evaluations.points()
    with whole_file(trainer.run_dir.curve) as file:
        draw_curve(
            file,
            history.steps,
            history.returns,
            trainer.plan.title,
            evaluations=evaluations,
            expected=trainer.plan.expected_return,
            expected_label="published for this preset",
        )


def _generator(trainer: Trainer) -> np.random.Generator:
    """Return the policy's random generator; a custom policy may have none in this process."""
    return getattr(trainer.policy, "rng", None) or np.random.default_rng(0)


def _save_replay(trainer: Trainer) -> str | None:
    if trainer.learners.are_several:
        return None
    replay = getattr(trainer.plan.algorithm, "replay_state", lambda: None)()
    if replay is None:
        return None
    path = trainer.run_dir.companions / f"replay-{trainer.saves}.pt"
    save_checkpoint(path, replay)
    return path.name


def _restore_replay(trainer: Trainer, name: str | None) -> list[str]:
    path, algorithm = _companion(trainer, name), trainer.plan.algorithm
    if path is not None and not trainer.learners.are_several:
        algorithm.load_replay_state(load_checkpoint(path))
        return []
    keeps_replay = getattr(algorithm, "keeps_replay", False)
    return ["the replay was not saved and starts empty"] if keeps_replay else []


def _save_env_states(trainer: Trainer, between_steps: bool) -> tuple[str | None, str]:
    """Write the envs' states; return the file's name, or None and why there is none."""
    if trainer.learners.are_several:
        return None, _OF_SEVERAL
    if not trainer.plan.settings.save_env_states:
        return None, "saving the envs' states was disabled (save_env_states)"
    states, reason = trainer.collection.capture_envs(between_steps)
    if states is None:
        return None, reason
    path = trainer.run_dir.companions / f"env_states-{trainer.saves}.pkl"
    with whole_file(path) as file:
        pickle.dump(states, file)
    return path.name, ""


def _restore_envs(trainer: Trainer, saved: dict[str, Any]) -> list[str]:
    """Continue the episodes, or start new ones with unused seeds; return lines about the reason."""
    settings, share = trainer.plan.settings, trainer.learners.share
    trainer.fresh_seeds = env_seeds(_fresh_word(trainer), settings.num_envs)
    seeds = share.of(trainer.fresh_seeds)
    trainer.collector.reset(seeds)
    if trainer.learners.are_several:
        return [f"{_OF_SEVERAL}; they start new episodes"]
    path = _companion(trainer, saved["companions"]["env_states"])
    reason = saved["unsaved"] or "the file of the envs' states is gone"
    changed = _changed_parts(trainer, saved)
    if path is not None and changed:
        reason = f"the envs were saved with other {' and '.join(changed)}"
    elif path is not None:
        try:
            states = _read_env_states(path, settings.num_envs)
            trainer.collection.restore_envs(states)
            trainer.collector.load_state_dict(saved["collector"])
            return []
        except ConfigError as error:
            reason = str(error)
        except EnvFailed as error:
            reason = f"the envs could not load their states from {path.name} ({error})"
            trainer.collector.reset(seeds)
    return [f"{reason}; they start new episodes"]


def _changed_parts(trainer: Trainer, saved: dict[str, Any]) -> list[str]:
    """Return the names of env arguments that differ from those of the checkpoint."""
    # Checkpoints of earlier versions hold no source; config.json is then still the old one.
    before = saved.get("source") or trainer.run_dir.read_config()["source"]
    now = trainer.plan.source.to_dict()
    names = "env", "env_kwargs", "wrappers"
    return [name for name in names if json.dumps(before[name]) != json.dumps(now[name])]


def _fresh_word(trainer: Trainer) -> int:
    """Derive a seed that the run has not used yet."""
    words = [trainer.plan.settings.seed, 2, trainer.saves]
    return int(np.random.SeedSequence(words).generate_state(1)[0])


def _read_env_states(path: Path, num_envs: int) -> list[bytes]:
    try:
        states = pickle.loads(path.read_bytes())
    except Exception as error:  # a damaged pickle can raise anything
        raise ConfigError(f"{path} cannot be read ({type(error).__name__}: {error})") from error
    if not (
        isinstance(states, list)
        and len(states) == num_envs
        and all(isinstance(state, bytes) for state in states)
    ):
        raise ConfigError(f"{path} does not hold the states of {num_envs} envs")
    return states


def _companion(trainer: Trainer, name: str | None) -> Path | None:
    """Return the path of a companion; None if there was none or it was deleted."""
    path = trainer.run_dir.companions / name if name is not None else None
    return path if path is not None and path.is_file() else None


def _named_companions(folder: RunDirectory) -> set[Any]:
    """Return the names of the companions of the checkpoint on the disk."""
    if not folder.checkpoint.is_file():
        return set()
    return set(load_checkpoint(folder.checkpoint)["companions"].values())


def _delete_companions(folder: RunDirectory, kept: set[Any]) -> None:
    for file in folder.companions.glob("*"):
        if file.name not in kept:
            file.unlink()
