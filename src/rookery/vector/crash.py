"""Crash reports: what an env was told before it failed, so that it can be told again."""

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

_MOST_EVENTS = 100_000  # of a vector env that are kept; older ones are forgotten
_MOST_BYTES = 2**28  # of actions that are kept, likewise


def checked_folder(folder: Any) -> Path:
    """A folder for crash reports, made if need be.

    Raises:
        ConfigError: when nothing can be written there.
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
    """A reset: one seed for each env, options (a list has one for each), which envs (None: all)."""

    seeds: Sequence[int | None]
    options: Any
    mask: Sequence[bool] | None


@dataclass(frozen=True)
class Step:
    """A step: the leaves of a batch of actions, and of which envs (None means all)."""

    leaves: list[Any]
    env_ids: list[int] | None = None


@dataclass(frozen=True)
class Restart:
    """The env was built anew; a first reset without a seed is given this one."""

    seed: int | None


Event: TypeAlias = "Reset | Step | Restart"


@dataclass(frozen=True)
class CrashReport:
    """What one env was told, from its last seeded reset, or restart, to its failure.

    Attributes:
        recipe: how to build the env.
        env_id: its index in the vector env.
        autoreset_mode: of the vector env.
        events: resets and steps, each of this env alone; a restart can only be the first.
        is_whole: whether the events begin with the reset; long runs forget the oldest.
        error: the message of the failure.
    """

    recipe: EnvRecipe
    env_id: int
    autoreset_mode: AutoresetMode
    events: list[Event]
    is_whole: bool
    error: str

    @classmethod
    def load(cls, path: str | Path) -> CrashReport:
        """Read a report. It is a pickle: load only what your own runs wrote.

        Raises:
            UsageError: when the file is no crash report.
        """
        try:
            report = pickle.loads(Path(path).read_bytes())
        except (ImportError, AttributeError) as error:
            raise UsageError(
                f"{path} tells of an env that is not found here ({error}); replay it where its "
                "modules can be imported, as from the folder in which the run was made"
            ) from error
        except Exception as error:  # bytes that are no pickle raise anything
            raise UsageError(
                f"{path} is no crash report that can be read: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(report, cls):
            raise UsageError(f"{path} is no crash report, but a {type(report).__name__}")
        return report

    def replay(self) -> int:
        """Tell the env all of it again, in this process.

        Returns:
            How many events it survived; all of them, if it did not fail this time.

        Raises:
            EnvFailed: when it fails, as it did before.
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
                    batch.reset(0, [0], event.seeds, [_own_options(event.options)])
                else:
                    arrays.write_actions(batched(env.action_space, iter(event.leaves)))
                    batch.step(0)
        finally:
            batch.close()
        return len(self.events)


class CrashRecorder:
    """Keeps what the envs of a vector env are told, and writes a report when one fails.

    It lives in the calling process, so that nothing a worker does to itself can lose the record.

    Args:
        folder: where reports go, see :func:`checked_folder`.
        recipes: of all envs.
        action_space: of one env.
        autoreset_mode: of the vector env.
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
        self._size_bytes = 0  # of their actions
        self._forgotten = False

    def note_reset(
        self,
        seeds: Sequence[int | None],
        options: Any,
        mask: Sequence[bool] | None,
    ) -> None:
        """Keep a reset; one that seeds all envs makes all before it unimportant."""
        if mask is None and None not in seeds:
            self._events.clear()
            self._size_bytes = 0
            self._forgotten = False
        self._keep(Reset(seeds, options, mask))

    def note_resets(self, env_ids: Any, seeds: Sequence[int | None]) -> None:
        """Keep a reset of some envs, int64 ``[k]``, with a seed for each."""
        num_envs = len(self._recipes)
        mask, every = [False] * num_envs, list[int | None]([None]) * num_envs
        for env_id, seed in zip(env_ids.tolist(), seeds, strict=True):
            mask[env_id], every[env_id] = True, seed
        self.note_reset(every, None, None if all(mask) else mask)

    def note_step(self, actions: Any, env_ids: Any = None) -> None:
        """Keep a copy of a batch of actions, of all envs or of ``env_ids``, int64 ``[k]``."""
        parts = flattened(self._action_space, actions, "action")
        copies = [
            np.array(part) if isinstance(leaf, Leaf) else tuple(part)
            for part, leaf in zip(parts, leaves(self._action_space, "action"), strict=True)
        ]
        self._keep(Step(copies, None if env_ids is None else env_ids.tolist()))

    def write(
        self, error: WorkerError, since_restart: tuple[int | None, int] | None = None
    ) -> Path | None:
        """Write a report about the first env that the error names; the error says where it is.

        What the env did is more important than the report of it: if no report can be written, the
        error says that, and None is returned.

        Args:
            error: what happened.
            since_restart: of that env, see `Backend.since_restart`.
        """
        try:
            path = self._written(error, since_restart)
            note = f"rookery replay {path} runs it again."
        except Exception as problem:  # a full disk, a recipe that holds what cannot be pickled
            path = None
            note = (
                f"No crash report could be written to {self._folder}: "
                f"{type(problem).__name__}: {describe(problem)}"
            )
        error.args = (f"{error}\n{note}", *error.args[1:])
        return path

    def _written(self, error: WorkerError, since_restart: tuple[int | None, int] | None) -> Path:
        env_id = error.env_ids[0]
        events: list[Event] = [
            event for event in map(_only(env_id), self._events) if event is not None
        ]
        is_whole = not self._forgotten
        if since_restart is not None:
            seed, count = since_restart
            count += error.command == "reset"
            is_whole = is_whole or len(events) >= count
            events = [Restart(seed), *events[max(len(events) - count, 0) :]]
        summary = str(error).partition("\n")[0]
        recipe = self._recipes[env_id]
        report = CrashReport(recipe, env_id, self._mode, events, is_whole, summary)
        try:  # whoever runs it again has not registered what this process has
            data = by_value(replace(report, recipe=recipe.self_contained()))
        except Exception:  # a registered spec may hold what cannot be pickled; its id can
            data = by_value(report)
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"crash-env{env_id}-{time.time_ns()}.pkl"
        try:
            path.write_bytes(data)
        except OSError:
            path.unlink(missing_ok=True)  # the half of a report is none
            raise
        return path

    def _keep(self, event: Reset | Step) -> None:
        self._events.append(event)
        self._size_bytes += _size_bytes(event)
        while len(self._events) > _MOST_EVENTS or self._size_bytes > _MOST_BYTES:
            self._size_bytes -= _size_bytes(self._events.popleft())
            self._forgotten = True


def _size_bytes(event: Reset | Step) -> int:
    """Of the actions of an event; other values than arrays count as their references do."""
    if isinstance(event, Reset):
        return 0
    return sum(
        part.nbytes if isinstance(part, np.ndarray) else 8 * len(part) for part in event.leaves
    )


def _own_options(options: Any) -> Any:
    return options[0] if isinstance(options, list) else options


def _only(env_id: int) -> Any:
    """From an event of all envs to that of one."""

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
        own = [options[env_id]] if isinstance(options, list) else options
        return Reset([event.seeds[env_id]], own, None)

    return of_one
