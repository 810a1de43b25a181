"""EnvBatch steps envs into given arrays. No other code steps envs or resets them automatically."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gymnasium.vector import AutoresetMode

from rookery.common.env_errors import is_from_outside
from rookery.env.group import EnvGroup
from rookery.env.guard import reset_problem, reward_as_float, step_problem
from rookery.env.recipe import EnvRecipe
from rookery.env.seam import CheckedEnv
from rookery.errors import EnvFailed
from rookery.shared.arrays import BatchArrays
from rookery.shared.row_buffer import RowExtras
from rookery.shared.row_writer import RowSink, RowWriter
from rookery.shared.spaces import writer
from rookery.shared.stopwatch import Stopwatch

IDLE = 0  # progress words; env i is i + 1 while it steps and -(i + 1) while it is reset


class EnvBatch(EnvGroup):
    """A `Batch`: envs ``first_id``, ``first_id + 1``, ..., stepped into rows of arrays.

    Attributes:
        busy_s: seconds spent stepping so far.
    """

    def __init__(
        self, recipes: Sequence[EnvRecipe], first_id: int, envs_in_process: range | None = None
    ) -> None:
        self.busy_s = 0.0
        self._ended = [False] * len(recipes)  # the episode is over and the env is not yet reset
        self._steps = 0  # of the whole batch; an episode's steps are a difference of these
        self._reset_at: Any = [0] * len(recipes)
        self._has_begun = [False] * len(recipes)
        self._next_seeds: dict[int, int | None] = {}  # for the next reset of env i, if unseeded
        self._pid = os.getpid()  # a child that an env forks must not answer orders
        super().__init__(recipes, first_id, envs_in_process)

    def attach(
        self,
        arrays: BatchArrays,
        autoreset_mode: AutoresetMode,
        progress: Any = None,
        *,
        pickles: bool = False,
        sink: RowSink | None = None,
    ) -> None:
        """Set where results are written and the autoreset mode; see `Batch`."""
        self._arrays = arrays
        self._reset_at = arrays.reset_at[self.ids.start : self.ids.stop].data
        self._progress = [IDLE, 0, 0] if progress is None else progress
        self._steps = self._progress[1]  # continues the count of a lost batch
        self._mode = autoreset_mode
        self._stepped: list[Any] = list(self.envs)
        self._watch = Stopwatch(arrays.counters, self.ids)
        self._watch.time_steps(self._stepped)
        space = arrays.spaces.observation_space
        free = self._free = list[bytes]()  # encoded free values of the current observation
        self._write_obs = [
            [
                writer(space, iter(columns), arrays.free_writers(b, i, free), i, "observation")
                for i in self.ids
            ]
            for b, columns in enumerate(arrays.obs)
        ]
        self._sinks: list[RowSink] = [
            sink or RowWriter(arrays.row_buffer, b, self._free, pickles, self.ids)
            for b in range(len(arrays.obs))
        ]
        # Writing a scalar through a memoryview takes 28 ns, through numpy indexing 65 ns.
        self._outcomes: list[list[Any]] = [
            [column.data for column in columns]
            for columns in zip(arrays.reward, arrays.terminated, arrays.truncated, strict=True)
        ]
        # One tuple per buffer, since each name lookup is slow right after a wake-up.
        self._targets = [
            (*outcomes, obs, sink)
            for outcomes, obs, sink in zip(
                self._outcomes, self._write_obs, self._sinks, strict=True
            )
        ]

    def step(  # noqa: C901 - a function call would take as long as ten of these lines
        self, buffer: int, env_ids: Sequence[int] | None = None
    ) -> RowExtras | None:
        """Step envs with the actions in the action columns; see `Batch`.

        In the next-step mode, an env with a finished episode is reset and its action is ignored.

        Raises:
            EnvFailed: the first failure. All other envs were stepped.
        """
        started = time.perf_counter()
        progress, ended, free, watch = self._progress, self._ended, self._free, self._watch
        stepped = watch.stepped
        ids: Sequence[int] = self.ids if env_ids is None else self._counted(env_ids)
        self._steps = progress[1] = self._steps + (env_ids is None)
        first_id = self.ids.start
        rewards, terminateds, truncateds, writers, sink = self._targets[buffer]
        used = sink.used
        failure: EnvFailed | None = None
        for env_id, action in zip(ids, self._arrays.read_actions(ids), strict=True):
            i = env_id - first_id
            progress[0] = env_id + 1
            result = None
            try:
                if ended[i]:
                    watch.extra[i] -= 1
                    self._start_episode(i, buffer)
                    rewards[env_id], terminateds[env_id], truncateds[env_id] = 0.0, False, False
                    continue
                # Looked up in every step, since an env may replace its own method. This takes no
                # longer than calling a method that was looked up once.
                result = stepped[i].step(action)
                obs, reward, terminated, truncated, info = result
                try:
                    rewards[env_id] = reward
                except TypeError:
                    rewards[env_id] = reward_as_float(reward)
                terminateds[env_id] = terminated
                truncateds[env_id] = truncated
                if (terminated or truncated) and self._end_episode(i, buffer, obs, info):
                    continue
                writers[i](obs)
                if info or free:
                    sink.post(env_id, info)
                elif type(info) is not dict and not isinstance(info, Mapping):
                    raise TypeError("info is not a dict")
                elif used and env_id in used:
                    sink.clear(env_id)
            except BaseException as error:
                free.clear()
                raised = self._step_failure(error, i, action, result)
                failure = failure or raised
                terminateds[env_id] = truncateds[env_id] = False  # maybe still set
        progress[0] = IDLE
        took_s = time.perf_counter() - started
        self.busy_s += took_s
        watch.until_timed -= 1
        if watch.until_timed <= 0:
            watch.end(took_s, len(ids), self.busy_s)
        if failure is not None:
            raise failure
        return sink.extras() if sink.has_extras else None

    def reset(
        self,
        buffer: int,
        env_ids: Iterable[int],
        seeds: Iterable[int | None],
        options: Iterable[dict[str, Any] | None],
    ) -> RowExtras | None:
        """Reset envs; see `Batch`.

        Raises:
            EnvFailed: the first failure. All other envs were reset.
        """
        started = time.perf_counter()
        self._watch.begin(started, self.busy_s)
        sink, outcomes = self._sinks[buffer], self._outcomes[buffer]
        failure: EnvFailed | None = None
        for env_id, seed, own in zip(env_ids, seeds, options, strict=False):
            self._progress[2] += 1
            for column in outcomes:
                column[env_id] = 0
            try:
                self._start_episode(env_id - self.ids.start, buffer, None, seed, own)
            except EnvFailed as error:
                failure = failure or error
        self._progress[0] = IDLE
        self.busy_s += time.perf_counter() - started
        if failure is not None:
            raise failure
        return sink.extras() if sink.has_extras else None

    def replace(self, seeds: Sequence[int | None]) -> None:
        """Continue in place of a batch that was lost; see `Batch`."""
        self._ended = [self._mode is not AutoresetMode.DISABLED] * len(self.envs)
        self._next_seeds = dict(enumerate(seeds))

    def check_after_env(self, check: Callable[[], None]) -> None:
        """Call ``check`` whenever an env returns, before its result is written."""
        self._stepped = [CheckedEnv(env, check) for env in self._stepped]
        self._watch.time_steps(self._stepped)

    def _counted(self, env_ids: Sequence[int]) -> Sequence[int]:
        """Count a step of each of ``env_ids`` and return them."""
        self._progress[2] += 1
        for env_id in env_ids:
            self._reset_at[env_id - self.ids.start] -= 1  # the counts of other envs stay unchanged
            self._watch.extra[env_id - self.ids.start] += 1
        return env_ids

    def _end_episode(self, i: int, buffer: int, obs: Any, info: Any) -> bool:
        """Record the end of env i's episode. Return True if its row shows the next one."""
        self._ended[i] = self._mode is not AutoresetMode.DISABLED
        self._watch.episodes[i] += 1
        if self._mode is not AutoresetMode.SAME_STEP:
            return False
        self._start_episode(i, buffer, self._sinks[buffer].final(self.ids[i], obs, info))
        return True

    def _start_episode(
        self,
        i: int,
        buffer: int,
        final: Any = None,
        seed: int | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        """Reset an env and write its observation and info into its row.

        Args:
            i: position of the env in this batch.
            buffer: the buffer to write into.
            final: the last observation and info of the previous episode, as the sink returned
                them, if it ended in this step.
            seed: the env's seed, or None.
            options: the env's reset options, or None.
        """
        if self._next_seeds:
            planned = self._next_seeds.pop(i, None)
            seed = planned if seed is None else seed
        if seed is not None:
            self.seeds[i] = seed
        env_id = self.ids[i]
        self._progress[0] = -(env_id + 1)
        self._ended[i] = False
        self._reset_at[i] = self._steps
        self._has_begun[i] = True
        result, watch = None, self._watch
        try:
            watch.until_reset_timed[i] -= 1
            if watch.until_reset_timed[i] > 0:
                result = self._stepped[i].reset(seed=seed, options=options)
                watch.resets[i] += 1
            else:
                started = time.perf_counter_ns()
                result = self._stepped[i].reset(seed=seed, options=options)
                watch.note_reset(i, time.perf_counter_ns() - started)
            obs, info = result
            self._write_obs[buffer][i](obs)
            sink = self._sinks[buffer]
            if info or self._free or final is not None:
                sink.post(env_id, info, final)
            elif not isinstance(info, Mapping):
                raise TypeError("info is not a dict")
            elif sink.used and env_id in sink.used:
                sink.clear(env_id)
        except BaseException as error:
            self._free.clear()
            # The cause is the problem with the result, which may differ from the caught error.
            raise self._explained(error, i, "reset", result, reset_problem)  # noqa: B904

    def _step_failure(self, error: BaseException, i: int, action: Any, result: Any) -> EnvFailed:
        if isinstance(error, EnvFailed) and error.command == "reset":
            return error
        return self._explained(error, i, "step", result, step_problem, action)

    def _explained(
        self,
        error: BaseException,
        i: int,
        command: str,
        result: Any,
        find_problem: Callable[[Any], str | None],
        action: Any = None,
    ) -> EnvFailed:
        """Return the error to raise. A problem in the env's result explains more than ``error``."""
        if is_from_outside(error, self.passes_on) or os.getpid() != self._pid:
            raise error
        problem = None if result is None else find_problem(result)
        if problem is not None:
            error = TypeError(problem)
        steps = self._steps - self._reset_at[i] if self._has_begun[i] else None
        return self.failure(error, i, command, steps=steps, action=action)
