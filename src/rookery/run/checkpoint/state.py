"""Where a run stands, on the disk: checkpoint.pt, and its companions that only resuming reads.

checkpoint.pt names its companions, so it decides alone which state is valid: they are written
before it, under fresh names, and the old ones are deleted after it.
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
from rookery.run.agent import described, differences, fits
from rookery.run.checkpoint.files import load_checkpoint, save_checkpoint
from rookery.run.checkpoint.run_dir import RunDirectory, whole_file
from rookery.run.log.curve import draw_curve
from rookery.run.update import DueCallbacks

if TYPE_CHECKING:
    from rookery.run.trainer import Trainer


_OF_SEVERAL = "the envs of several learners are not saved"


@dataclass
class Schedule:
    """How far a run is: 0 at its beginning, 1 at its end.

    A run whose end was moved goes on from where its schedules were.

    Attributes:
        total_steps: its end.
        since: env steps at which the end was moved last.
        done: how far it was then.
    """

    total_steps: int
    since: int = 0
    done: float = 0.0

    def progress(self, steps: int) -> float:
        """How far the run is after so many env steps."""
        left = max(self.total_steps - self.since, 1)
        return min(self.done + (1.0 - self.done) * (steps - self.since) / left, 1.0)

    def moved(self, total_steps: int, steps: int) -> Schedule:
        """The schedule of a run that is to end elsewhere, from ``steps`` on."""
        if total_steps == self.total_steps:
            return self
        return Schedule(total_steps, steps, self.progress(steps))


def save(trainer: Trainer) -> None:
    """Write where a run stands.

    Raises:
        StorageError: it cannot be written; what was written before stays.
    """
    trainer.saves += 1
    # Of several learners only the first writes, and knows of its own envs alone.
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
    """What is left to do of the last update, and whether it is the last; None if nothing is."""
    if trainer.due is None:
        return None
    return {**trainer.due.state_dict(), "stopped": trainer.stopped}


def save_alone(trainer: Trainer, path: Path) -> None:
    """Write the same without companions: to act with, and to begin other runs with."""
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
    """What other learners begin with, so that all are equal."""
    return {
        "model": trainer.policy.model.state_dict(),
        "learner": trainer.plan.algorithm.state_dict(),
        "policy_version": trainer.policy.version,
        "env_seeds": trainer.fresh_seeds,
    }


def read(folder: RunDirectory) -> dict[str, Any]:
    """Read where a run stood.

    Raises:
        ConfigError: there is no checkpoint, or none that can be understood.
    """
    if not folder.checkpoint.is_file():
        raise ConfigError(
            f"{folder.path} holds no checkpoint to resume from: the run was ended before it wrote "
            "its first one (checkpoint_interval_s); rookery train --overwrite begins anew"
        )
    return load_checkpoint(folder.checkpoint)


def restore(trainer: Trainer, saved: dict[str, Any]) -> None:
    """Put a trainer where its run stood; what could not be taken over is said on standard error.

    Raises:
        ConfigError: it is the checkpoint of another run.
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
        due = saved.get("due")  # checkpoints of earlier versions tell of none
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
            f"total_steps is {total}, but the run has made {trainer.steps} steps already; give at "
            "least as many, or leave it out"
        )
    trainer.schedule = before.moved(total, trainer.steps)
    notes = _notes_on_schedules(trainer, before)
    notes += _restore_replay(trainer, saved["companions"]["replay"])
    for note in notes + _restore_envs(trainer, saved):
        print(f"rookery: resuming at {trainer.steps} steps: {note}", file=sys.stderr)


def _notes_on_schedules(trainer: Trainer, before: Schedule) -> list[str]:
    """Warn of a run that is extended after its learning rate has come to nothing."""
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
        "the learning rate has come to its end, 0, and stays there; to go on learning, give "
        "learning_rate and final_learning_rate, for instance 3e-4 and None"
    ]


def policy_seed(saved: dict[str, Any], seed: int) -> int:
    """Derive the seed of a resumed run's policy, whose copies in workers begin new streams.

    The weights that it leads to, and the generator in this process, are replaced by the saved ones.
    """
    return int(np.random.SeedSequence([seed, 3, saved["saves"]]).generate_state(1)[0])


def draw(trainer: Trainer) -> None:
    """Draw the curve of the episodes' returns and of the evaluations."""
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
    """What draws the policy's actions; a policy of the user's own may have none here."""
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
        return None, "the envs' states were not to be saved"
    states, reason = trainer.collection.capture_envs(between_steps)
    if states is None:
        return None, reason
    path = trainer.run_dir.companions / f"env_states-{trainer.saves}.pkl"
    with whole_file(path) as file:
        pickle.dump(states, file)
    return path.name, ""


def _restore_envs(trainer: Trainer, saved: dict[str, Any]) -> list[str]:
    """Go on amid the episodes, or begin new ones with seeds that the run has not used."""
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
            reason = f"the envs do not take their states of {path.name} back ({error})"
            trainer.collector.reset(seeds)
    return [f"{reason}; they start new episodes"]


def _changed_parts(trainer: Trainer, saved: dict[str, Any]) -> list[str]:
    """What of the envs is not as it was when the run was saved, as far as config.json can tell."""
    # Checkpoints of earlier versions do not tell; config.json is then that of the run before.
    before = saved.get("source") or trainer.run_dir.read_config()["source"]
    now = trainer.plan.source.to_dict()
    names = "env", "env_kwargs", "wrappers"
    return [name for name in names if json.dumps(before[name]) != json.dumps(now[name])]


def _fresh_word(trainer: Trainer) -> int:
    """A seed that the run has not used."""
    words = [trainer.plan.settings.seed, 2, trainer.saves]
    return int(np.random.SeedSequence(words).generate_state(1)[0])


def _read_env_states(path: Path, num_envs: int) -> list[bytes]:
    try:
        states = pickle.loads(path.read_bytes())
    except Exception as error:  # whatever a damaged pickle leads to
        raise ConfigError(f"{path} cannot be read ({type(error).__name__}: {error})") from error
    if not (
        isinstance(states, list)
        and len(states) == num_envs
        and all(isinstance(state, bytes) for state in states)
    ):
        raise ConfigError(f"{path} does not hold the states of {num_envs} envs")
    return states


def _companion(trainer: Trainer, name: str | None) -> Path | None:
    """Find a companion; None where there was none, or where somebody deleted it."""
    path = trainer.run_dir.companions / name if name is not None else None
    return path if path is not None and path.is_file() else None


def _named_companions(folder: RunDirectory) -> set[Any]:
    """The companions that the checkpoint on the disk names."""
    if not folder.checkpoint.is_file():
        return set()
    return set(load_checkpoint(folder.checkpoint)["companions"].values())


def _delete_companions(folder: RunDirectory, kept: set[Any]) -> None:
    for file in folder.companions.glob("*"):
        if file.name not in kept:
            file.unlink()
