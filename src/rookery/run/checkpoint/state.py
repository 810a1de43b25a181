"""State of a run on the disk: checkpoint.pt, and companion files that only resuming reads.

checkpoint.pt names its companions, so it alone decides which state is valid. Companions are
written before it under new names, and the old ones are deleted after it.
"""

from __future__ import annotations

import json
import pickle
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rookery.common.seeding import env_seeds
from rookery.errors import ConfigError, EnvFailed, StorageError
from rookery.learn.schedule import scheduled
from rookery.run.algorithms import config_of
from rookery.run.checkpoint.agents import described, differences, fits, with_saved_layers
from rookery.run.checkpoint.files import load_checkpoint, save_checkpoint
from rookery.run.checkpoint.run_dir import RunDirectory, whole_file
from rookery.run.collection import Collection
from rookery.run.learners.learners import Learners
from rookery.run.log.clock import as_if_done
from rookery.run.plan import RunPlan
from rookery.run.progress import Progress, Schedule
from rookery.run.request import RunRequest

_OF_SEVERAL = "the envs of several learners are not saved"
_CHECKPOINT_SHARE = 20  # checkpoints are at least this many times their writing time apart


class RunState:
    """The state of a running run, and its checkpoint.

    Args:
        run_dir: folder of the run.
        plan: envs, algorithm and settings of the run.
        collection: the envs, and the policy in them.
        learners: all learner processes.
        progress: counters and results of the run.
        is_saved: a checkpoint already contains the state.

    Attributes:
        is_saved: True if the checkpoint contains the latest update.
    """

    def __init__(
        self,
        run_dir: RunDirectory,
        plan: RunPlan,
        collection: Collection,
        learners: Learners,
        progress: Progress,
        is_saved: bool,
    ) -> None:
        self._run_dir, self._plan, self._collection = run_dir, plan, collection
        self._learners, self._progress = learners, progress
        self._policy = collection.policy
        self._fresh_seeds: list[int] | None = None  # of envs that a resumed run restarts
        self.is_saved = is_saved
        self._saved_at, self._save_s = as_if_done(plan.settings.checkpoint_interval_s), 0.0

    # ---------------------------------------------------------------- saving

    def changed(self) -> None:
        """Mark the checkpoint as older than the state."""
        self.is_saved = False

    def is_time_to_save(self) -> bool:
        """Return True if the interval between checkpoints has passed."""
        interval_s = self._plan.settings.checkpoint_interval_s
        interval_s = max(interval_s, _CHECKPOINT_SHARE * self._save_s)
        return time.perf_counter() - self._saved_at > interval_s

    def save(self) -> None:
        """Write the state of the run.

        Raises:
            StorageError: a file cannot be written; the previous checkpoint is kept.
        """
        began = time.perf_counter()
        self._progress.saves += 1
        # Of several learners only the first writes, and it has only its own envs.
        is_alone = not self._learners.are_several
        collector = self._collection.collector.state_dict() if is_alone else None
        try:
            env_states, unsaved = self._save_env_states(collector is not None)
            companions = {"replay": self._save_replay(), "env_states": env_states}
            save_checkpoint(
                self._run_dir.checkpoint,
                {
                    **self._weights_and_progress(),
                    "collector": collector,
                    "companions": companions,
                    "unsaved": unsaved,
                    "source": self._plan.source.to_dict(),
                    "due": self._progress.due_state(),
                },
            )
        except StorageError:
            _delete_companions(self._run_dir, _named_companions(self._run_dir))
            raise
        _delete_companions(self._run_dir, set(companions.values()))
        self.is_saved, self._saved_at = True, time.perf_counter()
        self._save_s = self._saved_at - began

    def save_alone(self, path: Path) -> None:
        """Write a checkpoint without companions, for agents and for the weights of other runs."""
        none = {"collector": None, "companions": {"replay": None, "env_states": None}}
        unsaved = "this file holds no envs"
        save_checkpoint(path, {**self._weights_and_progress(), **none, "unsaved": unsaved})

    def _weights_and_progress(self) -> dict[str, Any]:
        return {
            **described(self._plan.algorithm, self._collection.spaces),
            **self._progress.state_dict(),
            "policy_version": self._policy.version,
            "model": self._policy.model.state_dict(),
            "learner": self._plan.algorithm.state_dict(),
            "rng": self._generator().bit_generator.state,
        }

    def shared(self) -> dict[str, Any]:
        """Return the state with which the other learners start."""
        return {
            "model": self._policy.model.state_dict(),
            "learner": self._plan.algorithm.state_dict(),
            "policy_version": self._policy.version,
            "env_seeds": self._fresh_seeds,
        }

    def _generator(self) -> np.random.Generator:
        """Return the policy's random generator; a custom policy may have none in this process."""
        return getattr(self._policy, "rng", None) or np.random.default_rng(0)

    def _save_replay(self) -> str | None:
        if self._learners.are_several:
            return None
        replay = getattr(self._plan.algorithm, "replay_state", lambda: None)()
        if replay is None:
            return None
        path = self._run_dir.companions / f"replay-{self._progress.saves}.pt"
        save_checkpoint(path, replay)
        return path.name

    def _save_env_states(self, between_steps: bool) -> tuple[str | None, str]:
        """Write the envs' states; return the file's name, or None and why there is none."""
        if self._learners.are_several:
            return None, _OF_SEVERAL
        if not self._plan.settings.save_env_states:
            return None, "saving the envs' states was disabled (save_env_states)"
        states, reason = self._collection.capture_envs(between_steps)
        if states is None:
            return None, reason
        path = self._run_dir.companions / f"env_states-{self._progress.saves}.pkl"
        with whole_file(path) as file:
            pickle.dump(states, file)
        return path.name, ""

    # ---------------------------------------------------------------- resuming

    def restore(self, saved: dict[str, Any], callbacks: Sequence[Callable[..., Any]]) -> None:
        """Restore a saved state; print to standard error what could not be restored.

        Args:
            saved: content of the checkpoint.
            callbacks: all callbacks of the run.

        Raises:
            ConfigError: the checkpoint belongs to another run.
        """
        path, algorithm, progress = self._run_dir.checkpoint, self._plan.algorithm, self._progress
        fits(saved, algorithm, self._collection.spaces, path)
        try:
            self._policy.version = saved["policy_version"]
            self._policy.model.load_state_dict(saved["model"])
            self._generator().bit_generator.state = saved["rng"]
            algorithm.load_state_dict(saved["learner"])
            progress.load(saved, callbacks)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(
                f"{path} does not fit this run: {differences(saved, algorithm)}"
                f"{type(error).__name__}: {error}"
            ) from error
        notes = self._move_schedule()
        notes += self._restore_replay(saved["companions"]["replay"])
        for note in notes + self._restore_envs(saved):
            print(f"rookery: resuming at {progress.steps} steps: {note}", file=sys.stderr)

    def _move_schedule(self) -> list[str]:
        """Apply a changed ``total_steps``; return a warning if the learning rate stays at 0.

        Raises:
            ConfigError: the run has already made more steps.
        """
        total, progress, before = (
            self._plan.settings.total_steps, self._progress, self._progress.schedule,
        )  # fmt: skip
        if total < progress.steps and total != before.total_steps:
            raise ConfigError(
                f"total_steps is {total}, but the run has made {progress.steps} steps already; "
                "pass at least as many, or leave it out"
            )
        progress.schedule = before.moved(total, progress.steps)
        return self._notes_on_schedules(before)

    def _notes_on_schedules(self, before: Schedule) -> list[str]:
        """Return a warning if a run is extended after its learning rate has reached 0."""
        config = config_of(self._plan.algorithm)
        is_complete = before.progress(self._progress.steps) >= 1.0
        is_extended = before.total_steps < self._progress.schedule.total_steps
        rate = getattr(config, "learning_rate", None)
        if not (is_complete and is_extended) or rate is None:
            return []
        if scheduled(rate, getattr(config, "final_learning_rate", None), 1.0) != 0.0:
            return []
        return [
            "the learning-rate schedule has reached 0 and stays there; to continue learning, set "
            "learning_rate and final_learning_rate, for example to 3e-4 and None"
        ]

    def _restore_replay(self, name: str | None) -> list[str]:
        path, algorithm = self._companion(name), self._plan.algorithm
        if path is not None and not self._learners.are_several:
            algorithm.load_replay_state(load_checkpoint(path))
            return []
        keeps_replay = getattr(algorithm, "keeps_replay", False)
        return ["the replay was not saved and starts empty"] if keeps_replay else []

    def _restore_envs(self, saved: dict[str, Any]) -> list[str]:
        """Continue the episodes, or start new ones; return lines about the reason."""
        settings, collector = self._plan.settings, self._collection.collector
        # A seed that the run has not used yet.
        words = np.random.SeedSequence([settings.seed, 2, self._progress.saves])
        self._fresh_seeds = env_seeds(int(words.generate_state(1)[0]), settings.num_envs)
        seeds = self._learners.share.of(self._fresh_seeds)
        collector.reset(seeds)
        if self._learners.are_several:
            return [f"{_OF_SEVERAL}; they start new episodes"]
        path = self._companion(saved["companions"]["env_states"])
        reason = saved["unsaved"] or "the file of the envs' states is gone"
        changed = self._changed_parts(saved)
        if path is not None and changed:
            reason = f"the envs were saved with other {' and '.join(changed)}"
        elif path is not None:
            try:
                self._collection.restore_envs(_read_env_states(path))
                collector.load_state_dict(saved["collector"])
                return []
            except ConfigError as error:
                reason = str(error)
            except EnvFailed as error:
                reason = f"the envs could not load their states from {path.name} ({error})"
                collector.reset(seeds)
        return [f"{reason}; they start new episodes"]

    def _changed_parts(self, saved: dict[str, Any]) -> list[str]:
        """Return the names of env arguments that differ from those of the checkpoint."""
        # Checkpoints of earlier versions hold no source; config.json is then still the old one.
        before = saved.get("source") or self._run_dir.read_config()["source"]
        now = self._plan.source.to_dict()
        names = "env", "env_kwargs", "wrappers"
        return [name for name in names if json.dumps(before[name]) != json.dumps(now[name])]

    def _companion(self, name: str | None) -> Path | None:
        """Return the path of a companion; None if there was none or it was deleted."""
        path = self._run_dir.companions / name if name is not None else None
        return path if path is not None and path.is_file() else None


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


def read_run(folder: RunDirectory, request: RunRequest) -> tuple[RunPlan, dict[str, Any]]:
    """Read the plan and the state of a run to resume; see `RunPlan.of_run` for ``request``."""
    plan = RunPlan.of_run(folder, request)
    saved = read(folder)
    return replace(plan, algorithm=with_saved_layers(plan.algorithm, saved)), saved


def policy_seed(saved: dict[str, Any], seed: int) -> int:
    """Derive the policy seed of a resumed run, so that policies in workers draw new actions.

    The initial weights and the generator in this process are then replaced by the saved ones.
    """
    return int(np.random.SeedSequence([seed, 3, saved["saves"]]).generate_state(1)[0])


def _read_env_states(path: Path) -> list[bytes]:
    try:
        states: list[bytes] = pickle.loads(path.read_bytes())
    except Exception as error:  # a damaged pickle can raise anything
        raise ConfigError(f"{path} cannot be read ({type(error).__name__}: {error})") from error
    return states


def _named_companions(folder: RunDirectory) -> set[Any]:
    """Return the names of the companions of the checkpoint on the disk."""
    if not folder.checkpoint.is_file():
        return set()
    return set(load_checkpoint(folder.checkpoint)["companions"].values())


def _delete_companions(folder: RunDirectory, kept: set[Any]) -> None:
    for file in folder.companions.glob("*"):
        if file.name not in kept:
            file.unlink()
