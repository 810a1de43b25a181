"""NativeBatch: a `Batch` around one ``gymnasium.vector.VectorEnv`` that steps all its envs at once.

The results of ALE, EnvPool or an array program are copied into rows of arrays with one copy per
leaf of the spaces. A native env can only be stepped as a whole. It has one autoreset mode. Only the
mode ``DISABLED`` can be changed: if the native env supports ``options["reset_mask"]``, the batch
resets finished envs within the step, which is the mode ``SAME_STEP``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from rookery.common.env_errors import env_failed, is_from_outside
from rookery.env.batch import IDLE
from rookery.env.deferred import Workshop
from rookery.env.group import raise_first
from rookery.env.native_recipe import (
    NativeEnv,
    NativeRecipe,
    NativeSeeds,
    autoreset_mode_of,
    call_native,
    set_native_attr,
)
from rookery.env.native_results import (
    NativeInfos,
    NativeResults,
    NativeWatch,
    check_spared,
    common_options,
    require_final,
)
from rookery.env.seam import CheckedEnv, Description
from rookery.errors import EnvFailed, UsageError
from rookery.shared.arrays import BatchArrays
from rookery.shared.infos import Info
from rookery.shared.row_buffer import RowExtras
from rookery.shared.row_writer import RowSink, RowWriter

Array = npt.NDArray[Any]


class NativeBatch:
    """Envs ``first_id``, ``first_id + 1``, ... of a vector env, which one native env steps.

    Args:
        recipes: a list with the recipe of the native env, which is built in the constructor.
        first_id: the index of its first env in the vector env.

    Attributes:
        ids: indices of its envs in the vector env.
        envs: the native env, in a list.
        busy_s: seconds spent stepping and resetting so far.
        passes_on: exceptions that interrupt the process while the env is busy, and end the call.

    Raises:
        EnvFailed: the native env cannot be built, or is not a usable vector env.
    """

    passes_on: tuple[type[BaseException], ...] = (KeyboardInterrupt,)

    def __init__(self, recipes: Sequence[NativeRecipe], first_id: int) -> None:
        (self._recipe,) = recipes
        count = self._recipe.num_envs
        self.ids = range(first_id, first_id + count)
        self.busy_s = 0.0
        self.envs: list[NativeEnv] = []
        self._seeds: list[int | None] = [None] * count
        self._planned: Sequence[int | None] = [None] * count  # for the next reset, if unseeded
        self._has_begun = self._starts_anew = False
        self._ended = np.zeros(count, np.bool_)  # by the step before
        self._steps, self._reset_at = 0, np.zeros(count, np.int64)
        self._actions: Any = None
        self._reset_form = NativeSeeds()
        self._workshop = Workshop()
        try:
            self.envs.append(self._recipe.build(self._workshop))
        except BaseException as error:
            self._workshop.close()
            raise self._failure(error, "make") from error
        self._mode = autoreset_mode_of(self.envs[0])

    def describe(self) -> Description:
        """Return the spaces and metadata of the native env."""
        env, mode = self.envs[0], self._mode
        assert mode is not None
        modes = (mode, AutoresetMode.SAME_STEP) if mode is AutoresetMode.DISABLED else (mode,)
        return Description(
            [(env.single_observation_space, env.single_action_space)],
            dict(env.metadata),
            env.render_mode,
            self._recipe.spec,
            modes,
            steps_together=True,
        )

    def attach(
        self,
        arrays: BatchArrays,
        autoreset_mode: AutoresetMode,
        progress: Any = None,
        *,
        pickles: bool = False,
        sink: RowSink | None = None,
    ) -> None:
        """Set where results are written and the autoreset mode; see :class:`Batch`."""
        env, space = self.envs[0], arrays.spaces.observation_space
        self._arrays = arrays
        self._progress = [IDLE, 0, 0] if progress is None else progress
        self._steps = self._progress[1]  # continues the count of a lost batch
        self._rows = slice(self.ids.start, self.ids.stop)
        self._reset_at = arrays.reset_at[self._rows]
        self._asked_mode = autoreset_mode
        self._resets_ended = autoreset_mode is not self._mode  # by this batch
        self._stepped: Any = env
        self._results = NativeResults(space, len(self.ids))
        self._infos = NativeInfos(space, len(self.ids))
        self._watch = NativeWatch(arrays.counters, self.ids)
        self._sinks: list[RowSink] = [
            sink or RowWriter(arrays.row_buffer, b, [], pickles, self.ids)
            for b in range(len(arrays.obs))
        ]

    def replace(self, seeds: Sequence[int | None]) -> None:
        """Continue in place of a lost batch: all episodes are over and no env is reset yet."""
        self._planned = seeds
        self._starts_anew = self._asked_mode is not AutoresetMode.DISABLED

    def check_after_env(self, check: Callable[[], None]) -> None:
        """Call ``check`` whenever the native env returns."""
        self._stepped = CheckedEnv(self._stepped, check)

    # ---------------------------------------------------------------- steps and resets

    def step(self, buffer: int, env_ids: Sequence[int] | None = None) -> RowExtras | None:
        """Step all envs with the actions in the action columns; see :class:`Batch`.

        Raises:
            EnvFailed: the native env raised; the error names all its envs.
            UsageError: ``env_ids`` names only some of its envs.
        """
        if env_ids is not None and len(env_ids) != len(self.ids):
            raise UsageError(
                f"step of envs {list(env_ids)}: native batches step all their envs at once"
            )
        self._steps = self._progress[1] = self._steps + 1
        if self._starts_anew:  # a lost batch was replaced; reset instead of stepping
            everyone = range(len(self.ids))
            self._watch.note_reset_in_place_of_step()
            return self._timed(
                "reset", lambda: self._reset(buffer, everyone, self._planned, None), everyone
            )
        self._actions = self._arrays.read_action_batch(self.ids)
        return self._timed("step", lambda: self._step(buffer))

    def reset(
        self,
        buffer: int,
        env_ids: Iterable[int],
        seeds: Iterable[int | None],
        options: Iterable[dict[str, Any] | None],
    ) -> RowExtras | None:
        """Reset envs, single ones by ``options["reset_mask"]``; see :class:`Batch`.

        Raises:
            EnvFailed: the native env raised, or reset more envs than the mask names.
            UsageError: the options differ between envs.
        """
        places = [env_id - self.ids.start for env_id in env_ids]
        one = common_options(list(options), self.ids)
        every: list[int | None] = [None] * len(self.ids)
        for place, seed in zip(places, seeds, strict=True):
            every[place] = self._planned[place] if seed is None else seed
        self._progress[2] += 1
        return self._timed("reset", lambda: self._reset(buffer, places, every, one), places)

    def _step(self, buffer: int) -> RowExtras | None:
        if not self._has_begun:
            raise gym.error.ResetNeeded("all envs of a native env must be reset before a step")
        result = self._stepped.step(self._actions)
        results, arrays, rows = self._results, self._arrays, self._rows
        obs, reward, terminated, truncated, info = results.of_step(result)
        self._write_obs(buffer, obs)
        terminated = results.flags(terminated, "terminated")
        truncated = results.flags(truncated, "truncated")
        arrays.reward[buffer][rows] = results.rewards(reward)
        arrays.terminated[buffer][rows], arrays.truncated[buffer][rows] = terminated, truncated
        ended = terminated | truncated
        self._note_ends(ended)
        self._watch.note_ends(ended, self._asked_mode is AutoresetMode.SAME_STEP)
        if self._resets_ended and ended.any():
            return self._reset_ended(buffer, obs, info, ended)
        return self._post(buffer, info, range(len(self.ids)), ended)

    def _reset(
        self,
        buffer: int,
        places: Sequence[int],
        seeds: Sequence[int | None],
        options: dict[str, Any] | None,
    ) -> RowExtras | None:
        mask = np.zeros(len(self.ids), np.bool_)
        mask[list(places)] = True
        if not self._has_begun:  # no env has a state yet that a mask could preserve
            mask[:] = True
            seeds = [p if s is None else s for s, p in zip(seeds, self._planned, strict=True)]
        self._planned = [None] * len(self.ids)
        self._seeds = [old if s is None else s for old, s in zip(self._seeds, seeds, strict=True)]
        info = self._native_reset(buffer, mask, seeds, options, places)
        if len(places) == len(self.ids):
            self._starts_anew = False
        self._has_begun = True
        for columns in (self._arrays.reward, self._arrays.terminated, self._arrays.truncated):
            columns[buffer][self._rows][list(places)] = 0
        self._ended[mask], self._reset_at[mask] = False, self._steps
        return self._post(buffer, info, places, np.zeros(len(self.ids), np.bool_))

    def _native_reset(
        self,
        buffer: int,
        mask: Array,
        seeds: Sequence[int | None],
        options: dict[str, Any] | None,
        places: Sequence[int],
    ) -> Any:
        """Reset the envs of ``mask``, write the observations of ``places`` and return the infos."""
        if not mask.all():
            options = {**(options or {}), "reset_mask": mask.copy()}
        self._has_begun = False  # until the reset has succeeded
        result = self._reset_form.reset(self._stepped.reset, seeds, mask, options)
        obs, info = self._results.of_reset(result)
        self._write_obs(buffer, obs, list(places), None if mask.all() else mask)
        self._has_begun = True
        return info

    def _reset_ended(self, buffer: int, obs: Any, info: Any, ended: Array) -> RowExtras | None:
        """Reset the envs with finished episodes, since the native env does not."""
        sink, infos = self._sinks[buffer], self._infos
        places = np.flatnonzero(ended).tolist()
        own = [self._row(info, place, ended) for place in range(len(self.ids))]
        finals = {
            place: sink.final(self.ids[place], infos.observation(obs, place), own[place])
            for place in places
        }
        nobody: list[int | None] = [None] * len(self.ids)
        fresh = self._native_reset(buffer, ended, nobody, None, places)
        for place, env_id in enumerate(self.ids):
            new = self._row(fresh, place, ended) if ended[place] else own[place]
            if new or place in finals:
                sink.post(env_id, new, finals.get(place))
            elif env_id in sink.used:
                sink.clear(env_id)
        return sink.extras() if sink.has_extras else None

    def _note_ends(self, ended: Array) -> None:
        """Update the number of steps since each env's reset."""
        began = self._ended if self._asked_mode is AutoresetMode.NEXT_STEP else ended
        if self._asked_mode is not AutoresetMode.DISABLED and began.any():
            self._reset_at[began] = self._steps
            if began is self._ended:
                self._watch.note_resets_instead(began)
        self._ended = ended

    # ---------------------------------------------------------------- what the native env returned

    def _write_obs(
        self, buffer: int, obs: Any, places: Any = ..., spared: Array | None = None
    ) -> None:
        """Copy observations into the rows of a buffer.

        Args:
            buffer: index of the buffer.
            obs: observations of all envs.
            places: positions of the envs to write.
            spared: the mask of a partial reset. Observations of envs outside the mask must equal
                the rows in the buffer.
        """
        columns = self._arrays.obs[buffer]
        parts = self._results.observation_leaves(obs, columns)
        for column, part in zip(columns, parts, strict=True):
            own = column[self._rows]
            if spared is not None:
                check_spared(spared, own, part, self.ids)
            own[places] = part[places]

    def _post(
        self, buffer: int, info: Any, places: Sequence[int], ended: Array
    ) -> RowExtras | None:
        """Write the infos of some envs into their rows."""
        sink, first_id = self._sinks[buffer], self.ids.start
        columns, left = self._infos.columns(info)
        if self._asked_mode is AutoresetMode.SAME_STEP and ended.any():
            require_final(left)
        rest: dict[int, Info] = {}
        if left:
            rows = {first_id + place: self._infos.row(left, place, ended) for place in places}
            rest = {env_id: own for env_id, own in rows.items() if own}
        order = self._infos.keys(info)
        if len(places) == len(self.ids):
            sink.post_all(self.ids, columns, rest, order)
        else:
            chosen = list(places)
            columns = {key: column[chosen] for key, column in columns.items()}
            sink.post_all([first_id + place for place in chosen], columns, rest, order)
        return sink.extras() if sink.has_extras else None

    def _row(self, info: Any, place: int, ended: Array) -> Info:
        if not isinstance(info, dict):
            raise TypeError(f"info must be a dict, but is a {type(info).__name__}")
        return self._infos.row(info, place, ended)

    # ---------------------------------------------------------------- calls

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        """Call the method ``name``, or read the attribute ``name``, for each env.

        The native env's ``call`` is used if it has one. Otherwise its own method or attribute is
        used: a list or tuple with one entry per env is split, and any other value is repeated for
        each env.
        """
        values: Sequence[Any] = self._tried(
            f"call of {name!r}",
            lambda: call_native(self.envs[0], len(self.ids), name, args, kwargs),
        )
        return values

    def apply(
        self, function: Callable[[Any], Any], env_ids: Sequence[int]
    ) -> list[tuple[int, Any]]:
        """Raise UsageError, since a native env has no single envs.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            "apply: a native env has no single envs to pass to a function; call() and "
            "get_attr() use the native env itself"
        )

    def set_attr(self, name: str, values: Sequence[Any]) -> None:
        """Set an attribute with the native env's ``set_attr``, if any, else on the native env."""
        self._tried(
            f"setting of {name!r}", lambda: set_native_attr(self.envs[0], name, list(values))
        )

    def close(self) -> None:
        """Close the native env, then the deferred arguments. Raise the first error at the end."""
        envs, self.envs = self.envs, []
        errors = [self._closed(env.close, "close") for env in envs]
        errors.append(self._closed(self._workshop.close, "close of a deferred argument"))
        raise_first(errors)

    def _closed(self, close: Callable[[], object], command: str) -> BaseException | None:
        """Call ``close`` and return the error to raise after everything else is closed, or None."""
        try:
            close()
        except BaseException as error:
            is_ours = not is_from_outside(error, self.passes_on)
            return self._failure(error, command) if is_ours else error
        return None

    # ---------------------------------------------------------------- failures

    def _timed(
        self, command: str, function: Callable[[], RowExtras | None], places: Sequence[int] = ()
    ) -> RowExtras | None:
        """Run a step or reset of the native env, measure its time and convert its errors."""
        started = time.perf_counter()
        self._watch.begin(started, self.busy_s)
        word = self.ids.start + 1
        self._progress[0] = word if command == "step" else -word
        try:
            return function()
        except BaseException as error:
            raise self._failure(error, command) from error
        finally:
            self._progress[0] = IDLE
            took_s = time.perf_counter() - started
            self.busy_s += took_s
            if command == "step":
                self._watch.note_step(took_s)
            else:
                self._watch.note_reset(places, took_s)

    def _tried(self, command: str, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except UsageError:
            raise
        except BaseException as error:
            raise self._failure(error, command) from error

    def _failure(self, error: BaseException, command: str) -> EnvFailed:
        """Return the error to raise for all envs after the native env raised ``error``.

        Exceptions that interrupt the process are raised unchanged.
        """
        if is_from_outside(error, self.passes_on):
            raise error
        is_stepping = command in ("step", "reset")
        return env_failed(
            error,
            env_name=self._recipe.name,
            env_id=self.ids[0],
            env_ids=tuple(self.ids),
            command=command,
            seed=self._seeds[0],
            steps_since_reset=int(self._steps - self._reset_at[0]) if is_stepping else None,
            last_action=self._actions if command == "step" else None,
        )
