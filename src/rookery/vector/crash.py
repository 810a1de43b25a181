"""Crash reports: the seeds, options and actions of an env before a failure, and their replay."""

from __future__ import annotations

import os
import pickle
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from gymnasium import Space
from gymnasium.vector import AutoresetMode

from rookery.common.arguments import unfit
from rookery.common.env_errors import describe, in_words
from rookery.common.pickling import by_value
from rookery.env.batch import EnvBatch
from rookery.env.recipe import EnvRecipe
from rookery.errors import ConfigError, UsageError, WorkerError
from rookery.shared.arrays import BatchArrays, BatchSpaces
from rookery.shared.spaces import Leaf, batched, flattened, leaves

_MOST_EVENTS = 100_000  # recorded events of a vector env; older ones are dropped
_MOST_BYTES = 2**28  # recorded actions of a vector env; older ones are dropped


def checked_folder(folder: Any) -> Path:
    """Return a writable folder for crash reports, created if missing.

    Raises:
        ConfigError: the folder cannot be created, or is not writable.
    """
    if not isinstance(folder, (str, os.PathLike)):
        raise unfit("crash_dir", "a path", folder)
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"crash_dir must be a folder that can be written to, got {in_words(folder)}: {error}"
        ) from error


@dataclass(frozen=True)
class Reset:
    """A reset.

    Attributes:
        seeds: one seed or None per env.
        options: options for all envs, or a list with one entry per env.
        mask: True for the envs that are reset; None means all.
    """

    seeds: Sequence[int | None]
    options: Any
    mask: Sequence[bool] | None


@dataclass(frozen=True)
class Step:
    """A step.

    Attributes:
        leaves: batch of actions, flattened into the leaves of the action space.
        env_ids: indices of the envs; None means all.
    """

    leaves: list[Any]
    env_ids: list[int] | None = None


@dataclass(frozen=True)
class Restart:
    """A replacement of the worker, which rebuilt the env; ``seed`` is for a reset without one."""

    seed: int | None


Event: TypeAlias = "Reset | Step | Restart"


@dataclass(frozen=True)
class CrashReport:
    """The inputs of one env, from its last seeded reset or its last restart to its failure.

    Attributes:
        recipe: recipe that builds the env.
        env_id: index of the env in the vector env.
        autoreset_mode: autoreset mode of the vector env.
        events: resets and steps of this env. A restart can only be the first event.
        is_whole: the events begin with the reset or restart. Long runs drop the oldest events.
        error: message of the failure.
    """

    recipe: EnvRecipe
    env_id: int
    autoreset_mode: AutoresetMode
    events: list[Event]
    is_whole: bool
    error: str

    @classmethod
    def load(cls, path: str | Path) -> CrashReport:
        """Read a report. It is a pickle, which can run any code: load only files that you trust.

        Raises:
            UsageError: the file is not a crash report, or its env cannot be imported.
        """
        try:
            report = pickle.loads(Path(path).read_bytes())
        except (ImportError, AttributeError) as error:
            raise UsageError(
                f"{path}: the env of this crash report cannot be imported ({error}). Replay it "
                "where its modules can be imported, for example from the folder of the run"
            ) from error
        except Exception as error:  # an invalid pickle can raise any exception
            raise UsageError(
                f"{path} is not a readable crash report: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(report, cls):
            raise UsageError(f"{path} is not a crash report, but a {type(report).__name__}")
        return report

    def replay(self) -> int:
        """Build the env in this process, and repeat all events.

        Returns:
            The number of events, if the env did not fail this time.

        Raises:
            EnvFailed: the env failed again.
        """
        batch = EnvBatch([self.recipe], first_id=0)
        try:
            env = batch.envs[0]
            spaces = BatchSpaces(env.observation_space, env.action_space, 1, num_buffers=1)
            arrays = BatchArrays.in_memory(spaces)
            batch.attach(arrays, self.autoreset_mode)
            for event in self.events:
                if isinstance(event, Restart):
                    batch.replace([event.seed])
                elif isinstance(event, Reset):
                    is_list = isinstance(event.options, list)
                    options = event.options if is_list else [event.options]
                    batch.reset(0, [0], event.seeds, options)
                else:
                    arrays.write_actions(batched(env.action_space, iter(event.leaves)))
                    batch.step(0)
        finally:
            batch.close()
        return len(self.events)


class CrashRecorder:
    """A recorder of the inputs of all envs, which writes a report if one fails.

    It runs in the calling process, so that the record survives crashes of workers.

    Args:
        folder: folder for reports, see :func:`checked_folder`.
        recipes: recipes of all envs.
        action_space: action space of one env.
        autoreset_mode: autoreset mode of the vector env.
    """

    def __init__(
        self,
        folder: str | Path,
        recipes: Sequence[EnvRecipe],
        action_space: Space[Any],
        autoreset_mode: AutoresetMode,
    ) -> None:
        self._folder = Path(folder)
        self._recipes = recipes
        self._action_space = action_space
        self._mode = autoreset_mode
        self._events: deque[Reset | Step] = deque()
        self._size_bytes = 0  # of the recorded actions
        self._has_dropped = False

    def note_reset(
        self,
        seeds: Sequence[int | None],
        options: Any,
        mask: Sequence[bool] | None,
    ) -> None:
        """Record a reset. A reset that seeds all envs replaces all earlier events."""
        if mask is None and None not in seeds:
            self._events.clear()
            self._size_bytes = 0
            self._has_dropped = False
        self._record(Reset(seeds, options, mask))

    def note_resets(self, env_ids: Any, seeds: Sequence[int | None]) -> None:
        """Record a reset of some envs, int64 ``[k]``, with one seed or None per env."""
        num_envs = len(self._recipes)
        mask, every = [False] * num_envs, list[int | None]([None]) * num_envs
        for env_id, seed in zip(env_ids.tolist(), seeds, strict=True):
            mask[env_id], every[env_id] = True, seed
        self.note_reset(every, None, None if all(mask) else mask)

    def note_step(self, actions: Any, env_ids: Any = None) -> None:
        """Record a copy of the actions of all envs, or of ``env_ids``, int64 ``[k]``."""
        parts = flattened(self._action_space, actions, "action")
        copies = [
            np.array(part) if isinstance(leaf, Leaf) else tuple(part)
            for part, leaf in zip(parts, leaves(self._action_space, "action"), strict=True)
        ]
        self._record(Step(copies, None if env_ids is None else env_ids.tolist()))

    def write(
        self, error: WorkerError, since_restart: tuple[int | None, int] | None = None
    ) -> None:
        """Write a report about the first env of an error, and add its path to the error.

        If the report cannot be written, the reason is added to the error instead, so that the
        original error is still raised.

        Args:
            error: failure of the env.
            since_restart: result of `Backend.since_restart` for the env.
        """
        try:
            path = self._written(error, since_restart)
            note = f"rookery replay {path} runs it again."
        except Exception as problem:  # such as a full disk, or an unpicklable recipe
            note = (
                f"No crash report could be written to {self._folder}: "
                f"{type(problem).__name__}: {describe(problem)}"
            )
        error.args = (f"{error}\n{note}", *error.args[1:])

    def _written(self, error: WorkerError, since_restart: tuple[int | None, int] | None) -> Path:
        env_id = error.env_ids[0]
        events: list[Event] = [
            event for event in map(_only(env_id), self._events) if event is not None
        ]
        is_whole = not self._has_dropped
        if since_restart is not None:
            seed, count = since_restart
            count += error.command == "reset"
            is_whole = is_whole or len(events) >= count
            events = [Restart(seed), *events[max(len(events) - count, 0) :]]
        summary = str(error).partition("\n")[0]
        recipe = self._recipes[env_id]
        report = CrashReport(recipe, env_id, self._mode, events, is_whole, summary)
        try:  # the process that replays it may lack the env registrations of this process
            data = by_value(replace(report, recipe=recipe.self_contained()))
        except Exception:  # a registered spec may be unpicklable; its id is not
            data = by_value(report)
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"crash-env{env_id}-{time.time_ns()}.pkl"
        try:
            path.write_bytes(data)
        except OSError:
            path.unlink(missing_ok=True)  # a partial report is useless
            raise
        return path

    def _record(self, event: Reset | Step) -> None:
        self._events.append(event)
        self._size_bytes += _size_bytes(event)
        while len(self._events) > _MOST_EVENTS or self._size_bytes > _MOST_BYTES:
            self._size_bytes -= _size_bytes(self._events.popleft())
            self._has_dropped = True


def _size_bytes(event: Reset | Step) -> int:
    """Return the size of the actions of an event; objects count as 8 bytes each."""
    if isinstance(event, Reset):
        return 0
    return sum(
        part.nbytes if isinstance(part, np.ndarray) else 8 * len(part) for part in event.leaves
    )


def _only(env_id: int) -> Any:
    """Return a function that reduces an event to one env; its result is None for other envs."""

    def of_one(event: Reset | Step) -> Reset | Step | None:
        if isinstance(event, Step):
            if event.env_ids is None:
                return Step([leaf[env_id : env_id + 1] for leaf in event.leaves])
            if env_id not in event.env_ids:
                return None
            row = event.env_ids.index(env_id)
            return Step([leaf[row : row + 1] for leaf in event.leaves])
        if event.mask is not None and not event.mask[env_id]:
            return None
        options = event.options
        options = [options[env_id]] if isinstance(options, list) else options
        return Reset([event.seeds[env_id]], options, None)

    return of_one
