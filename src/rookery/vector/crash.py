"""Crash reports: the actions, seeds and options that led to a failure, for replaying it."""

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

_MOST_EVENTS = 100_000  # kept events of a vector env; older ones are dropped
_MOST_BYTES = 2**28  # kept bytes of actions; older ones are dropped


def checked_folder(folder: Any) -> Path:
    """Return the folder for crash reports, and create it if it is missing.

    Raises:
        ConfigError: the folder cannot be written.
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
    """A reset: a seed per env, options (a list has one entry per env), and a mask (None: all)."""

    seeds: Sequence[int | None]
    options: Any
    mask: Sequence[bool] | None


@dataclass(frozen=True)
class Step:
    """A step: the leaves of a batch of actions, and the envs that received them (None: all)."""

    leaves: list[Any]
    env_ids: list[int] | None = None


@dataclass(frozen=True)
class Restart:
    """A rebuild of the env; a first reset without a seed receives this one."""

    seed: int | None


Event: TypeAlias = "Reset | Step | Restart"


@dataclass(frozen=True)
class CrashReport:
    """The events of one env, from its last seeded reset or restart to its failure.

    Attributes:
        recipe: builds the env.
        env_id: index of the env in the vector env.
        autoreset_mode: autoreset mode of the vector env.
        events: resets and steps of this env; only the first event can be a restart.
        is_whole: the events begin with the reset; long runs drop the oldest.
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
        """Read a report. It is a pickle: load only what your own runs wrote.

        Raises:
            UsageError: the file is not a crash report.
        """
        try:
            report = pickle.loads(Path(path).read_bytes())
        except (ImportError, AttributeError) as error:
            raise UsageError(
                f"the env of {path} cannot be imported ({error}); replay it where its modules can "
                "be imported, for example in the folder of the run"
            ) from error
        except Exception as error:  # unpickling invalid bytes can raise anything
            raise UsageError(
                f"{path} is not a crash report that can be read: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(report, cls):
            raise UsageError(f"{path} is not a crash report, but a {type(report).__name__}")
        return report

    def replay(self) -> int:
        """Repeat all events with the env, in this process.

        Returns:
            The number of events, if the env does not fail this time.

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
                    batch.reset(0, [0], event.seeds, [_own_options(event.options)])
                else:
                    arrays.write_actions(batched(env.action_space, iter(event.leaves)))
                    batch.step(0)
        finally:
            batch.close()
        return len(self.events)


class CrashRecorder:
    """Records seeds, options and actions of a vector env, and writes a report when an env fails.

    The record is kept in the calling process, so that it survives the death of a worker.

    Args:
        folder: folder for reports; see :func:`checked_folder`.
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
        self._size_bytes = 0  # size of the recorded actions
        self._forgotten = False

    def note_reset(
        self,
        seeds: Sequence[int | None],
        options: Any,
        mask: Sequence[bool] | None,
    ) -> None:
        """Record a reset. If it seeds all envs, earlier events are dropped."""
        if mask is None and None not in seeds:
            self._events.clear()
            self._size_bytes = 0
            self._forgotten = False
        self._keep(Reset(seeds, options, mask))

    def note_resets(self, env_ids: Any, seeds: Sequence[int | None]) -> None:
        """Record a reset of some envs, int64 ``[k]``, with a seed for each."""
        num_envs = len(self._recipes)
        mask, every = [False] * num_envs, list[int | None]([None]) * num_envs
        for env_id, seed in zip(env_ids.tolist(), seeds, strict=True):
            mask[env_id], every[env_id] = True, seed
        self.note_reset(every, None, None if all(mask) else mask)

    def note_step(self, actions: Any, env_ids: Any = None) -> None:
        """Record a copy of a batch of actions, for all envs or for ``env_ids``, int64 ``[k]``."""
        parts = flattened(self._action_space, actions, "action")
        copies = [
            np.array(part) if isinstance(leaf, Leaf) else tuple(part)
            for part, leaf in zip(parts, leaves(self._action_space, "action"), strict=True)
        ]
        self._keep(Step(copies, None if env_ids is None else env_ids.tolist()))

    def write(
        self, error: WorkerError, since_restart: tuple[int | None, int] | None = None
    ) -> Path | None:
        """Write a report about the first env of an error, and add its path to the message.

        If no report can be written, the message gives the reason, and None is returned.

        Args:
            error: the failure.
            since_restart: see `Backend.since_restart`.
        """
        try:
            path = self._written(error, since_restart)
            note = f"rookery replay {path} runs it again."
        except Exception as problem:  # for example a full disk, or an unpicklable recipe
            path = None
            note = (
                f"no crash report could be written to {self._folder}: "
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
        try:  # the replaying process may lack registrations of this one
            data = by_value(replace(report, recipe=recipe.self_contained()))
        except Exception:  # a registered spec may be unpicklable; its id is not
            data = by_value(report)
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"crash-env{env_id}-{time.time_ns()}.pkl"
        try:
            path.write_bytes(data)
        except OSError:
            path.unlink(missing_ok=True)  # do not leave half a report
            raise
        return path

    def _keep(self, event: Reset | Step) -> None:
        self._events.append(event)
        self._size_bytes += _size_bytes(event)
        while len(self._events) > _MOST_EVENTS or self._size_bytes > _MOST_BYTES:
            self._size_bytes -= _size_bytes(self._events.popleft())
            self._forgotten = True


def _size_bytes(event: Reset | Step) -> int:
    """Return the size of the actions of an event; values other than arrays count 8 bytes."""
    if isinstance(event, Reset):
        return 0
    return sum(
        part.nbytes if isinstance(part, np.ndarray) else 8 * len(part) for part in event.leaves
    )


def _own_options(options: Any) -> Any:
    return options[0] if isinstance(options, list) else options


def _only(env_id: int) -> Any:
    """Return a function that reduces an event to one env."""

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
