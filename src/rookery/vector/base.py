"""VectorEnv: the public calls of all vector envs.

A vector env has several backends. Each runs a batch of consecutive envs, in this thread or in a
worker, and knows nothing about the others. ``step`` sends an order to all envs and waits for all;
``send`` and ``recv`` send orders to some envs and wait for the first answers.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from rookery.common.arguments import unfit, whole_number
from rookery.common.resources import ProcessWatch
from rookery.common.seeding import consecutive_seeds
from rookery.env.seam import Description
from rookery.errors import (
    ConfigError,
    NoPendingCallError,
    RookeryError,
    UsageError,
    WorkerError,
)
from rookery.shared.arrays import BatchArrays, BatchSpaces
from rookery.shared.row_buffer import RowShape, RowTooSmall
from rookery.vector.agreement import ObservationMode, agree, check_mode
from rookery.vector.backend import Backend
from rookery.vector.calls import Answers, Ids, Pending, indices
from rookery.vector.crash import CrashRecorder
from rookery.vector.reset import (
    MOST_SEED,
    Options,
    parts_of,
    prepared_resets,
    require_whole_batches,
    seed_words,
    separated,
)
from rookery.vector.results import EndedEpisodes, Results
from rookery.vector.shutdown import CLOSE_GRACE_S, end_at_once, shut_down
from rookery.vector.statistics.observed import backends_observed, caller_observed, envs_observed
from rookery.vector.statistics.snapshot import Statistics, WorkerStatistics
from rookery.vector.statistics.waits import Waits
from rookery.worker.orders import (
    NO_SEED,
    RESET,
    SINGLY,
    STEP,
    Order,
    Orders,
)
from rookery.worker.protocol import NotFinishedError, Waitable

_OWN_CALLS = ("reset", "step", "close")


class VectorEnv(gym.vector.VectorEnv[Any, Any, Any]):
    """Many environments behind one ``gymnasium.vector.VectorEnv``, made by ``rookery.make_vec``.

    Attributes:
        num_envs: number of envs.
        single_observation_space: observation space of one env; ``observation_space`` is batched.
        single_action_space: action space of one env; ``action_space`` is batched.
        metadata: metadata of the first env, plus ``"autoreset_mode"``.
        autoreset_mode: when an env is reset after the end of an episode.
        observation_mode: how the observation spaces of the envs are combined.
        backend: ``"serial"``, ``"thread"``, ``"process"``, ``"native"`` or ``"ray"``.
        num_workers: number of workers.
        choice: the choice of ``backend="auto"`` with its reason; None for other backends.
    """

    backend: str
    choice: Any = None

    def _agree(
        self,
        parts: Sequence[range],
        descriptions: Sequence[Description],
        autoreset_mode: AutoresetMode,
        observation_mode: ObservationMode,
        copy: bool,
        restarts: bool = False,
    ) -> BatchSpaces:
        """Set the spaces from the descriptions of the envs; return the spaces of the arrays."""
        check_mode(autoreset_mode, descriptions)
        spaces = agree(parts, descriptions, observation_mode)
        self.num_envs = parts[-1].stop
        self.metadata = {**descriptions[0].metadata, "autoreset_mode": autoreset_mode}
        self.render_mode = descriptions[0].render_mode
        self.spec = descriptions[0].spec
        self._steps_together = any(description.steps_together for description in descriptions)
        self.single_observation_space = spaces.single_observation_space
        self.single_action_space = spaces.single_action_space
        self.observation_space = spaces.observation_space
        self.action_space = spaces.action_space
        self.autoreset_mode = autoreset_mode
        self.observation_mode = observation_mode
        # Without copies, the caller reads one buffer while the envs write the other. If workers
        # restart, the second buffer keeps the last intact row of each env.
        num_buffers = 1 if copy and not restarts else 2
        return BatchSpaces(
            self.single_observation_space, self.single_action_space, self.num_envs, num_buffers
        )

    def _ready(
        self,
        backends: Sequence[Backend],
        arrays: BatchArrays,
        orders: Orders,
        copy: bool,
        arrivals: Waitable | None = None,
    ) -> None:
        """Set backends and arrays; from now on the vector env can be used.

        Args:
            backends: the backends of all envs.
            arrays: the arrays that the envs write.
            orders: shared rows with the orders to all envs.
            copy: copy results out of the arrays.
            arrivals: event that workers set when an env has answered a single order.
        """
        self._backends, self._arrays, self._orders = tuple(backends), arrays, orders
        self._results = Results(arrays, copy)
        for backend in self._backends:
            backend.reader = self._results.reader
        self._pending = Pending(orders, self._backends)
        is_disabled = self.autoreset_mode is AutoresetMode.DISABLED
        self._episodes = EndedEpisodes(arrays) if is_disabled else None
        self._answers = Answers(
            self._backends,
            orders,
            self._pending,
            self._results,
            self._episodes,
            self._steps_together,
            arrivals,
        )
        self._recorder: CrashRecorder | None = None
        self._vector_steps = self._single_steps = 0
        self._waits, self._process_watch = Waits(self._backends), ProcessWatch(os.getpid())
        self._made_at = time.perf_counter()
        self._final_statistics: Statistics | None = None
        self._owner_pid = os.getpid()
        self._finalizer = weakref.finalize(self, shut_down, self._owner_pid, self._backends)

    @property
    def crash_recorder(self) -> CrashRecorder | None:
        """Recorder of actions and seeds for crash reports; None records nothing."""
        return self._recorder

    @crash_recorder.setter
    def crash_recorder(self, recorder: CrashRecorder | None) -> None:
        self._recorder = self._answers.recorder = recorder

    @property
    def infos_per_env(self) -> bool:
        """True if infos are a list with one dict per env, instead of Gymnasium's vector form."""
        return self._results.infos_per_env

    @infos_per_env.setter
    def infos_per_env(self, value: bool) -> None:
        self._results.infos_per_env = value

    # ---------------------------------------------------------------- reset

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: Options = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all envs, or those that ``options["reset_mask"]`` selects.

        If an exception interrupted an earlier call, its results are waited for and dropped first.

        Args:
            seed: an int means ``seed + i`` for env ``i``; a sequence has a seed or None per env.
            options: passed to every env, without ``"reset_mask"`` (bool ``[num_envs]``); or a list
                with a dict or None per env.

        Returns:
            Batched observations, and infos in Gymnasium's vector form.

        Raises:
            EnvFailed: an env raised an exception; all others were reset.
            WorkerDied: a worker exited.
        """
        try:
            self.reset_async(seed=seed, options=options)
            return self.reset_wait()
        except BaseException as error:
            self._pending.note(error)
            raise

    def reset_async(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: Options = None,
    ) -> None:
        """Begin a reset; :meth:`reset_wait` returns its result.

        Args:
            seed: see :meth:`reset`.
            options: see :meth:`reset`.
        """
        with self._pending.beginning("reset"):
            if self._pending.was_cut_short or any(c.is_torn for c in self._backends):
                self._settle()
            seeds = consecutive_seeds(seed, self.num_envs)
            options, mask = separated(options, self.num_envs)
            requests = prepared_resets(self._backends, seeds, options, mask)
            if self._recorder is not None:
                self._recorder.note_reset(seeds, options, mask)
            self._enlarge_rows_if_wanted()
            for backend in self._backends:
                ids = backend.env_ids
                own = None if mask is None else mask[ids.start : ids.stop]
                backend.note_seeds(seeds[ids.start : ids.stop], own)
            for backend, request in requests:
                backend.tell_reset(request)
            self._ask_all("reset", RESET, mask, seed_words(seeds, options))

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, dict[str, Any]]:
        """Wait for the reset that :meth:`reset_async` began, and return its result.

        Args:
            timeout: maximum wait in seconds; None waits without limit.

        Raises:
            NoPendingCallError: no reset was begun.
            WorkerTimeout: the timeout passed; the reset continues.
        """
        with self._pending.finishing("reset"):
            has_extras = self._waits.timed(lambda: self._answers.wait_for_all("reset", timeout))
            if self._episodes is not None:
                self._episodes.note(self._pending.env_ids, self._results.buffer)
            try:
                results = self._results.obs_and_infos(has_extras)
            except WorkerError as error:
                raise self._answers.unread("reset", error) from error.__cause__
            self._pending.is_over()
        return results

    # ---------------------------------------------------------------- step

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all envs.

        Args:
            actions: one action per env, batched like ``action_space``.

        Returns:
            Observations (batched), rewards float64 ``[num_envs]``, terminated bool ``[num_envs]``,
            truncated bool ``[num_envs]``, infos in Gymnasium's vector form. With ``copy=False`` the
            arrays are views, valid until the step after the next.

        Raises:
            EnvFailed: an env raised an exception; all others were stepped.
            WorkerDied: a worker exited.
        """
        try:
            self.step_async(actions)
            return self.step_wait()
        except BaseException as error:
            self._pending.note(error)
            raise

    def step_async(self, actions: Any) -> None:
        """Begin a step; :meth:`step_wait` returns its result.

        Args:
            actions: see :meth:`step`.

        Raises:
            PendingCallError: another call is pending.
            SpaceError: the actions do not fit the action space; no env is stepped.
        """
        # This method and step_wait make few calls: between two wake-ups, a call of a Python
        # function takes about a microsecond, five times as long as in a loop.
        pending = self._pending
        if not pending.is_clear:
            pending.require_idle("step")
        results, orders = self._results, self._orders  # missing in a closed vector env
        try:
            if self._episodes is not None:
                self._episodes.require("step", ...)
            if results.reader.wanted is not None:
                self._enlarge_rows_if_wanted()
            try:
                self._arrays.write_actions(actions)
            except RowTooSmall as full:
                self._write_larger_actions(full, actions, ...)
            if self._recorder is not None:
                self._recorder.note_step(actions)
            orders.number += 1
            pending.begin_step(results.prepare_step(), orders.number)
        except BaseException as error:
            pending.note(error)
            raise

    def step_wait(self, timeout: float | None = None) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Wait for the step that :meth:`step_async` began.

        Args:
            timeout: maximum wait in seconds. After it, :class:`WorkerTimeout` is raised, the step
                continues, and this method may be called again.
        """
        pending = self._pending
        if pending.name != "step" or not pending.is_begun:
            pending.finishing("step")
        try:
            self._waits.until_timed -= 1
            if self._waits.until_timed:
                has_extras = self._answers.wait_for_all("step", timeout)
            else:
                has_extras = self._waits.timed_step(
                    lambda: self._answers.wait_for_all("step", timeout)
                )
            try:
                results = self._results.step(has_extras)
            except WorkerError as error:
                raise self._answers.unread("step", error) from error.__cause__
            if self._episodes is not None:
                self._episodes.note(..., self._results.buffer)
            self._vector_steps += 1
            pending.is_over()
        except BaseException as error:
            pending.note(error)
            raise
        return results

    def _ask_all(
        self,
        name: str,
        kind: int,
        mask: list[bool] | None = None,
        seeds: Any = NO_SEED,
    ) -> None:
        """Send one order to all envs, or to those of a mask."""
        results, buffer = self._results, self._results.next_buffer()
        ids = None if mask is None else np.flatnonzero(mask)
        if ids is not None:
            results.carry_over(np.flatnonzero(~np.array(mask)), buffer)
        results.prepare(buffer, ids)
        self._begin(name, Order(kind, buffer, self._orders.next_number(), ids, seeds))

    def _begin(self, name: str, order: Order) -> None:
        """Split an order among the backends and send it."""
        begins = parts_of(order, self._backends, self._answers.backend_of)
        self._pending.begin(name, order.env_ids, begins)

    def _write_actions(self, actions: Any, env_ids: Any) -> None:
        try:
            self._arrays.write_actions(actions, env_ids)
        except RowTooSmall as full:
            self._write_larger_actions(full, actions, env_ids)

    def _write_larger_actions(self, full: RowTooSmall, actions: Any, env_ids: Any) -> None:
        self._results.reader.want_actions(full.need_bytes)
        self._enlarge_rows_if_wanted()
        self._arrays.write_actions(actions, env_ids)

    def _enlarge_rows_if_wanted(self) -> None:
        """Replace the block of rows by a larger one; it contains no unread results."""
        shape, self._results.reader.wanted = self._results.reader.wanted, None
        if shape is not None:
            for backend in self._answers.finish_order:
                backend.finish()
            self._enlarge_rows(shape)

    def _enlarge_rows(self, shape: RowShape) -> None:
        """Create a larger block of rows, and switch all backends to it."""
        raise NotImplementedError

    # ---------------------------------------------------------------- partial batches

    def send_reset(
        self,
        seed: int | Sequence[int | None] | None = None,
        env_ids: Sequence[int] | npt.NDArray[np.integer] | None = None,
    ) -> None:
        """Begin to reset some envs; :meth:`recv` returns those that are ready first.

        Args:
            seed: see :meth:`reset`; a sequence has one entry per env of the vector env.
            env_ids: indices of the envs; None means all.

        Raises:
            PendingCallError: the answer of one of these envs is pending.
        """
        ids = self._pending.choose(env_ids, "send_reset")
        if self._steps_together:
            require_whole_batches("send_reset", ids, self._backends)
        seeds = consecutive_seeds(seed, self.num_envs)
        for value in (seeds[i] for i in ids.tolist()):
            if value is not None and not 0 <= value < MOST_SEED:
                raise ConfigError(f"send_reset: a seed must lie in 0 to 2**63 - 1, got {value}")
        if self._recorder is not None:
            self._recorder.note_resets(ids, [seeds[i] for i in ids.tolist()])
        mask = np.isin(np.arange(self.num_envs), ids).tolist()
        for backend in self._backends:
            part = slice(backend.env_ids.start, backend.env_ids.stop)
            backend.note_seeds(seeds[part], mask[part])
        self._ask_singly(ids, RESET, seed_words(seeds, None))

    def send(
        self, actions: Any, env_ids: Sequence[int] | npt.NDArray[np.integer] | None = None
    ) -> None:
        """Begin to step some envs; :meth:`recv` returns those that are ready first.

        Args:
            actions: one action for each of ``env_ids``, batched like ``action_space``.
            env_ids: indices of the envs, in the order of ``actions``; None means all, in order.

        Raises:
            PendingCallError: the answer of one of these envs is pending.
        """
        ids = self._pending.choose(env_ids, "send")
        if self._steps_together:
            require_whole_batches("send", ids, self._backends)
        if self._episodes is not None:
            self._episodes.require("send", ids)
        if self._results.reader.wanted is not None and not self._pending.num_busy():
            self._enlarge_rows_if_wanted()
        self._write_actions(actions, ids)
        if self._recorder is not None:
            self._recorder.note_step(actions, ids)
        self._ask_singly(ids, STEP)

    def _ask_singly(self, ids: Ids, kind: int, seeds: Any = NO_SEED) -> None:
        """Send a single order to each of some envs."""
        with self._pending.guard:
            buffer = self._results.prepare_singly(ids)
            order = Order(kind | SINGLY, buffer, self._numbers_for(ids), ids, seeds)
            self._begin("recv", order)

    def _numbers_for(self, ids: Ids) -> Ids:
        """Return order numbers; the envs of a native batch share one."""
        if not self._steps_together:
            return self._orders.numbers(len(ids))
        batches, places = np.unique(self._answers.backend_of[ids], return_inverse=True)
        return self._orders.numbers(len(batches))[places]

    def recv(
        self, min_envs: int = 1, timeout: float | None = None
    ) -> tuple[Any, Any, Any, Any, Any, npt.NDArray[np.int64]]:
        """Wait for envs after :meth:`send` or :meth:`send_reset`, and return all that are ready.

        Args:
            min_envs: number of envs to wait for.
            timeout: maximum wait in seconds. After it, :class:`WorkerTimeout` is raised, the envs
                continue, and this method may be called again.

        Returns:
            Copies of observations, rewards, terminated, truncated and infos, as from :meth:`step`,
            of k envs; and their indices, int64 ``[k]``, in the order in which they became ready. An
            env that was reset has reward 0 and no flags.

        Raises:
            NoPendingCallError: no env has a pending answer.
            ConfigError: fewer than ``min_envs`` envs have a pending answer.
            WorkerError: an env or a worker failed; other envs can still be received.
        """
        self._pending.require_no_call("recv")
        with self._pending.guard:
            return self._receive(min_envs, timeout)

    def _receive(
        self, min_envs: int, timeout: float | None
    ) -> tuple[Any, Any, Any, Any, Any, npt.NDArray[np.int64]]:
        """Return the results of ``recv``."""
        self._pending.begin_again()
        num_busy = self._pending.num_busy()
        if not num_busy:
            raise NoPendingCallError("recv: no env has a pending answer; call send() first", "recv")
        min_envs = whole_number("recv: min_envs", min_envs, 1)
        if min_envs > num_busy:
            raise ConfigError(
                f"recv: min_envs is {min_envs}, but only {num_busy} envs have a pending answer"
            )
        orders = self._orders
        ids = self._waits.timed(lambda: self._answers.wait_for_some(min_envs, timeout))
        ids = ids[np.argsort(orders.answered_at[ids], kind="stable")]
        try:
            results = self._results.some(ids)
        except WorkerError as error:
            raise self._answers.unread_of_some(error) from error.__cause__
        if self._episodes is not None:
            self._episodes.note(ids, self._results.buffer)
        self._single_steps += int(np.count_nonzero(self._pending.steps[ids]))
        orders.received[ids] = orders.asked[ids]
        return (*results, ids)

    # ---------------------------------------------------------------- calls

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call the method ``name`` of every env, or read the attribute ``name``.

        Args:
            name: name of a method or attribute, looked up from the outermost wrapper inwards.
            *args: positional arguments of the method.
            **kwargs: keyword arguments of the method.

        Returns:
            One result per env.
        """
        with self._pending.guard:
            self.call_async(name, *args, **kwargs)
            return self.call_wait()

    def call_async(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        """Begin a call of every env's method; :meth:`call_wait` returns the results.

        Args:
            name: see :meth:`call`.
            *args: positional arguments of the method.
            **kwargs: keyword arguments of the method.
        """
        self._pending.require_idle("call")
        _require_name("call", name)
        if name in _OWN_CALLS:
            raise ConfigError(
                f"call({name!r}) would bypass the bookkeeping of this vector env; call {name}() of "
                "the vector env instead"
            )
        self._request("call", [(name, args, kwargs)] * len(self._backends))

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Wait for the call that :meth:`call_async` began, and return one result per env.

        Args:
            timeout: maximum wait in seconds; None waits without limit.
        """
        return tuple(value for values in self._outcomes("call", timeout) for value in values)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Return the attribute ``name`` of every env."""
        return self.call(name)

    def apply(
        self, function: Callable[[Any], Any], env_ids: Sequence[int] | None = None
    ) -> list[Any]:
        """Call ``function(env)`` for some envs, in the processes that run them.

        Args:
            function: receives the wrapped env. The function and its result are pickled by value.
            env_ids: indices of the envs; None means all.

        Returns:
            One result for each of ``env_ids``, in their order.
        """
        self._pending.require_idle("apply")
        if not callable(function):
            raise unfit("apply: function", "a function of an env", function)
        if env_ids is not None and not np.asarray(env_ids).size:
            return []
        ids = indices(env_ids, self.num_envs, "apply").tolist()
        with self._pending.guard:
            self._request("apply", [(function, ids)] * len(self._backends))
            by_id = dict(pair for pairs in self._outcomes("apply", None) for pair in pairs)
        return [by_id[env_id] for env_id in ids]

    def set_attr(self, name: str, values: list[Any] | tuple[Any, ...] | Any) -> None:
        """Set an attribute of every env.

        Args:
            name: name of the attribute.
            values: one value for all envs, or a list or tuple with one value per env.
        """
        self._pending.require_idle("set_attr")
        _require_name("set_attr", name)
        if not isinstance(values, (list, tuple)):
            values = [values] * self.num_envs
        if len(values) != self.num_envs:
            raise ConfigError(f"set_attr got {len(values)} values for {self.num_envs} envs")
        parts = [backend.env_ids for backend in self._backends]
        with self._pending.guard:
            self._request("set_attr", [(name, values[ids.start : ids.stop]) for ids in parts])
            self._outcomes("set_attr", None)

    def render(self) -> tuple[Any, ...]:
        """Return the rendered frame of every env."""
        return self.call("render")

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seed of every env's generator."""
        return self.get_attr("np_random_seed")

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """The generators of all envs; copies, except those of envs in this process."""
        return self.get_attr("np_random")

    def _request(self, method: str, args: Sequence[tuple[Any, ...]]) -> None:
        """Begin to call a method of every backend's batch; ``args`` has one entry per backend."""
        requests = [
            backend.request(method, *own) for backend, own in zip(self._backends, args, strict=True)
        ]
        self._pending.begin_call(method, list(zip(self._backends, requests, strict=True)))

    def _outcomes(self, method: str, timeout: float | None) -> list[Any]:
        """Wait for a call; return the results of all backends, or raise the first failure."""
        self._pending.require_call(method)
        deadline = None if timeout is None else time.perf_counter() + timeout
        try:
            answers = self._pending.finish_call(self._answers.finish_order, deadline)
        except NotFinishedError:
            raise self._answers.late(method, timeout) from None
        for backend in self._backends:
            answer = answers[backend.env_ids.start]
            if isinstance(answer, RookeryError):
                self._answers.record(answer)
                raise answer
        return [answers[backend.env_ids.start] for backend in self._backends]

    # ---------------------------------------------------------------- watching

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the workers."""
        return tuple(c.pid for c in self._backends_or_last if c.pid != self._owner_pid)

    @property
    def num_workers(self) -> int:
        """Number of worker processes or threads, without the calling one."""
        if self._final_statistics is not None:
            return sum(not backend.in_caller for backend in self._final_statistics.workers)
        return sum(not backend.steps_in_caller for backend in self._backends)

    @property
    def busy_s(self) -> tuple[float, ...]:
        """Seconds that each backend spent stepping; cheaper than :meth:`statistics`."""
        return tuple(backend.busy_s for backend in self._backends_or_last)

    @property
    def restarts(self) -> int:
        """Number of worker restarts so far; cheaper to read than :meth:`statistics`."""
        return sum(backend.restarts for backend in self._backends_or_last)

    @property
    def waits(self) -> Waits:
        """Waiting times. Collectors in which workers choose actions add their waits."""
        return self._waits

    @property
    def _backends_or_last(self) -> Sequence[Backend | WorkerStatistics]:
        """The backends; after ``close``, their last statistics."""
        last = self._final_statistics
        return self._backends if last is None else last.workers

    def statistics(self, looks: bool = True) -> Statistics:
        """Return a snapshot of counters and times; after ``close`` the last one.

        Args:
            looks: measure the processes of workers and caller now, which takes about 0.3 ms per
                process. Otherwise the last measurement is returned.
        """
        if self._final_statistics is not None:
            return self._final_statistics
        use = self._process_watch.look() if looks else self._process_watch.last()
        return Statistics(
            vector_steps=self._vector_steps,
            env_steps=self._vector_steps * self.num_envs + self._single_steps,
            workers=backends_observed(self._backends, self._waits, looks),
            envs=envs_observed(self._arrays.counters, self._backends, self._waits),
            caller=caller_observed(use, self._waits),
            seconds=time.perf_counter() - self._made_at,
        )

    # ---------------------------------------------------------------- ends

    def _settle(self) -> None:
        """Wait for the answers that an interrupted call left pending, and drop them."""
        self._pending.begin_again()
        for backend in self._answers.finish_order:
            backend.finish()
        dropped = self._pending.dropped()
        self._results.written(dropped)
        if self._episodes is not None:
            self._episodes.note(dropped, self._results.buffer)
        self._pending.finish_call(self._answers.finish_order, None)
        for backend in self._backends:
            backend.forget()
        self._orders.received[:] = self._orders.asked
        self._pending.is_over()

    def close(self, **kwargs: Any) -> None:
        """Close the envs and stop the workers; may be called twice.

        If Ctrl-C interrupts this, a second call stops the remaining workers at once.

        Args:
            **kwargs: ``timeout``, the seconds to wait for pending calls and for ``close`` of the
                envs before the workers are killed, 5 by default; ``terminate=True`` does not wait.
        """
        if os.getpid() == self._owner_pid:
            self.close_extras(**kwargs)
        self.closed = True

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Close the vector env, unless it is closed already."""
        if not self._finalizer.alive:
            return
        if self._final_statistics is None:
            self._final_statistics = self.statistics(looks=False)  # without reading /proc
        if self.closed:
            self._pending.close()
            end_at_once(self._backends)
            self._let_go()
            return
        self.closed = True
        left = self._pending.close()
        grace_s = 0.0 if terminate else CLOSE_GRACE_S if timeout is None else timeout
        try:
            shut_down(self._owner_pid, self._backends, grace_s)
        except RookeryError:
            self._let_go()
            raise
        self._let_go()
        if left:
            gym.logger.warn(
                "%s", f"Calling `close` while waiting for `{left}`: its result is dropped."
            )

    def _let_go(self) -> None:
        """Drop references to shared memory, so that it is released."""
        self._finalizer.detach()
        self._pending.let_go()
        for name in _HELD:
            self.__dict__.pop(name, None)

    def __del__(self) -> None:
        """Do nothing; the finalizer closes a vector env without references."""

    def __enter__(self) -> VectorEnv:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if exc_info[0] is not None:  # after an exception, no result will be read
            self._pending.was_cut_short = True
        self.close()

    def __reduce__(self) -> Any:
        raise UsageError(
            "a vector env cannot be pickled or copied, because it has processes and shared memory. "
            "Pass a function that creates it instead"
        )


def _require_name(call: str, name: Any) -> None:
    if not isinstance(name, str):
        raise unfit(f"{call}: name", "a str", name)


_HELD = ("_arrays", "_orders", "_results", "_backends", "_answers", "_episodes", "_waits")
