"""VectorEnv: the public calls and the state machine behind them.

A vector env is a row of backends. A backend runs a batch of consecutive envs, in this thread or in
a worker; nothing here depends on where, and no backend knows about another. A step is an order to
all envs and a wait for all; ``send`` and ``recv`` are orders to some and a wait for a few.
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
from rookery.env.description import Description
from rookery.errors import (
    ConfigError,
    NoPendingCallError,
    RookeryError,
    UsageError,
    WorkerError,
)
from rookery.shared.arrays import BatchArrays, BatchSpaces
from rookery.shared.slab import SlabFull, SlabShape
from rookery.vector.agreement import ObservationMode, agree
from rookery.vector.answers import Answers
from rookery.vector.backend import Backend
from rookery.vector.crash import CrashRecorder
from rookery.vector.episodes import Episodes
from rookery.vector.modes import check_mode
from rookery.vector.options import Options, separated
from rookery.vector.order_parts import (
    MOST_SEED,
    parts_of,
    prepared_resets,
    require_whole_batches,
    seed_words,
)
from rookery.vector.pending import Ids, Pending, indices
from rookery.vector.results import Results
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
    """Many environments behind one ``gymnasium.vector.VectorEnv``; ``rookery.make_vec`` makes it.

    Attributes:
        num_envs: how many envs.
        single_observation_space: of one env; ``observation_space`` is of the batch.
        single_action_space: of one env; ``action_space`` is of the batch.
        metadata: of the first env, plus ``"autoreset_mode"``.
        autoreset_mode: what happens when an episode ends.
        observation_mode: how the envs' observation spaces were put together.
        backend: which backends run the envs: ``"serial"``, ``"thread"``, ``"process"``, ...
        num_workers: how many workers there are.
        choice: what ``backend="auto"`` chose, and why; None if it was not asked.
    """

    backend: str
    choice: Any = None

    def _agree(
        self,
        parts: Sequence[range],
        descriptions: Sequence[Description],
        autoreset_mode: AutoresetMode,
        observation_mode: ObservationMode,
        num_buffers: int,
    ) -> BatchSpaces:
        """Take in what the envs of each backend are, and say what their arrays have to hold."""
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
        """Take over backends and the arrays they write to; from now on the env can be used.

        Args:
            backends: of all envs.
            arrays: of all envs.
            orders: to all envs.
            copy: whether results are copied out of the arrays.
            arrivals: the event that workers set when an env that was asked singly has answered.
        """
        self._backends, self._arrays, self._orders = tuple(backends), arrays, orders
        self._results = Results(arrays, copy)
        for backend in self._backends:
            backend.reader = self._results.reader
        self._pending = Pending(orders, self._backends)
        is_disabled = self.autoreset_mode is AutoresetMode.DISABLED
        self._episodes = Episodes(arrays) if is_disabled else None
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
        self._pending.watch_forks()

    @property
    def crash_recorder(self) -> CrashRecorder | None:
        """Keeps what the envs are told, for reports of failures; None keeps nothing."""
        return self._recorder

    @crash_recorder.setter
    def crash_recorder(self, recorder: CrashRecorder | None) -> None:
        self._recorder = self._answers.recorder = recorder

    @property
    def infos_per_env(self) -> bool:
        """Whether infos are a list with one dict for each env, not Gymnasium's vector form."""
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

        After an error, or after an exception has interrupted another call, what that call left
        under way is waited for and dropped.

        Args:
            seed: an int means ``seed + i`` for env ``i``; a sequence holds one, or None, for each.
            options: given to every env, without ``"reset_mask"`` (bool ``[num_envs]``); or a list
                with one dict, or None, for each env.

        Returns:
            Observations, batched, and infos in Gymnasium's vector form.

        Raises:
            EnvFailed: when an env raises; all others were reset.
            WorkerDied: when a worker ends.
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
            seed: as for :meth:`reset`.
            options: as for :meth:`reset`.
        """
        with self._pending.beginning("reset"):
            if self._pending.was_cut_short or any(c.is_torn for c in self._backends):
                self._settle()
            seeds = consecutive_seeds(seed, self.num_envs)
            options, mask = separated(options, self.num_envs)
            requests = prepared_resets(self._backends, seeds, options, mask)
            if self._recorder is not None:
                self._recorder.note_reset(seeds, options, mask)
            self._enlarge_slab_if_wanted()
            for backend in self._backends:
                ids = backend.env_ids
                own = None if mask is None else mask[ids.start : ids.stop]
                backend.note_seeds(seeds[ids.start : ids.stop], own)
            for backend, request in requests:
                backend.tell_reset(request)
            self._ask_all("reset", RESET, mask, seed_words(seeds, options))

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, dict[str, Any]]:
        """Wait for the reset that :meth:`reset_async` began, and return what :meth:`reset` does.

        Args:
            timeout: seconds to wait at most; None waits for ever.

        Raises:
            NoPendingCallError: no reset was begun.
            WorkerTimeout: the time has passed; the reset goes on.
        """
        with self._pending.finishing("reset"):
            has_told = self._waits.timed(lambda: self._answers.wait_for_all("reset", timeout))
            if self._episodes is not None:
                self._episodes.note(self._pending.env_ids, self._results.buffer)
            try:
                results = self._results.reset(has_told)
            except WorkerError as error:
                raise self._answers.unread("reset", error) from error.__cause__
            self._pending.is_over()
        return results

    # ---------------------------------------------------------------- step

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all envs.

        Args:
            actions: one for each env, batched as ``action_space`` is.

        Returns:
            Observations (batched), rewards float64 ``[num_envs]``, terminated bool ``[num_envs]``,
            truncated bool ``[num_envs]``, infos in Gymnasium's vector form. With ``copy=False`` the
            arrays are views, valid until the step after the next.

        Raises:
            EnvFailed: when an env raises; all others were stepped.
            WorkerDied: when a worker ends.
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
            actions: as for :meth:`step`.

        Raises:
            PendingCallError: another call is under way.
            SpaceError: the actions do not fit the action space; no env is stepped.
        """
        # This and step_wait call little: between two wake-ups every Python function called costs
        # about a microsecond, five times what it costs in a loop.
        pending = self._pending
        if not pending.is_clear:
            pending.require_idle("step")
        results, orders = self._results, self._orders  # which a closed vector env has no more
        try:
            if self._episodes is not None:
                self._episodes.require("step", ...)
            if results.reader.wanted is not None:
                self._enlarge_slab_if_wanted()
            try:
                self._arrays.write_actions(actions)
            except SlabFull as full:
                self._write_larger_actions(full, actions, ...)
            if self._recorder is not None:
                self._recorder.note_step(actions)
            orders.number += 1
            pending.begin_step(results.begin_step(), orders.number)
        except BaseException as error:
            pending.note(error)
            raise

    def step_wait(self, timeout: float | None = None) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Wait for the step that :meth:`step_async` began.

        Args:
            timeout: seconds; when they pass, a :class:`WorkerTimeout` is raised and the step goes
                on: this method may be called again.
        """
        pending = self._pending
        if pending.name != "step" or not pending.is_begun:
            pending.finishing("step")
        try:
            self._waits.until_timed -= 1
            if self._waits.until_timed:
                has_told = self._answers.wait_for_all("step", timeout)
            else:
                has_told = self._waits.timed_step(
                    lambda: self._answers.wait_for_all("step", timeout)
                )
            try:
                results = self._results.step(has_told)
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
        """Give all envs, or those of a mask, one order."""
        results, buffer = self._results, self._results.next_buffer()
        ids = None if mask is None else np.flatnonzero(mask)
        if ids is not None:
            results.carry_over(np.flatnonzero(~np.array(mask)), buffer)
        results.begin(buffer, ids)
        self._begin(name, Order(kind, buffer, self._orders.next_number(), ids, seeds))

    def _begin(self, name: str, order: Order) -> None:
        """Begin an order to envs of several backends; after an interruption, begin it again."""
        begins = parts_of(order, self._backends, self._answers.backend_of)
        self._pending.begin(name, order.env_ids, begins)

    def _write_actions(self, actions: Any, env_ids: Any) -> None:
        try:
            self._arrays.write_actions(actions, env_ids)
        except SlabFull as full:
            self._write_larger_actions(full, actions, env_ids)

    def _write_larger_actions(self, full: SlabFull, actions: Any, env_ids: Any) -> None:
        self._results.reader.want_actions(full.need_bytes)
        self._enlarge_slab_if_wanted()
        self._arrays.write_actions(actions, env_ids)

    def _enlarge_slab_if_wanted(self) -> None:
        """Put a larger slab in the place of the present one; nothing in it is unread."""
        shape, self._results.reader.wanted = self._results.reader.wanted, None
        if shape is not None:
            for backend in self._answers.finish_order:
                backend.finish()
            self._grow_slab(shape)

    def _grow_slab(self, shape: SlabShape) -> None:
        """Make a larger slab and have every backend go on with it."""
        raise NotImplementedError

    # ---------------------------------------------------------------- partial batches

    def async_reset(
        self,
        seed: int | Sequence[int | None] | None = None,
        env_ids: Sequence[int] | npt.NDArray[np.integer] | None = None,
    ) -> None:
        """Begin to reset envs one by one; :meth:`recv` returns whoever is ready.

        Args:
            seed: as for :meth:`reset`; a sequence has one for each env of the vector env.
            env_ids: which envs; None means all.

        Raises:
            PendingCallError: when an answer of one of them is still under way.
        """
        ids = self._pending.choose(env_ids, "async_reset")
        if self._steps_together:
            require_whole_batches("async_reset", ids, self._backends)
        seeds = consecutive_seeds(seed, self.num_envs)
        for value in (seeds[i] for i in ids.tolist()):
            if value is not None and not 0 <= value < MOST_SEED:
                raise ConfigError(f"async_reset: a seed must lie in 0 to 2**63 - 1, got {value}")
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
        """Begin to step some envs; :meth:`recv` returns whoever is ready.

        Args:
            actions: one for each of ``env_ids``, batched as ``action_space`` is.
            env_ids: whose, in the order of ``actions``; None means all, in order.

        Raises:
            PendingCallError: when an answer of one of them is still under way.
        """
        ids = self._pending.choose(env_ids, "send")
        if self._steps_together:
            require_whole_batches("send", ids, self._backends)
        if self._episodes is not None:
            self._episodes.require("send", ids)
        if self._results.reader.wanted is not None and not self._pending.num_busy():
            self._enlarge_slab_if_wanted()
        self._write_actions(actions, ids)
        if self._recorder is not None:
            self._recorder.note_step(actions, ids)
        self._ask_singly(ids, STEP)

    def _ask_singly(self, ids: Ids, kind: int, seeds: Any = NO_SEED) -> None:
        """Give some envs an order each."""
        with self._pending.guard:
            buffer = self._results.begin_singly(ids)
            order = Order(kind | SINGLY, buffer, self._numbers_for(ids), ids, seeds)
            self._begin("recv", order)

    def _numbers_for(self, ids: Ids) -> Ids:
        """Numbers for orders to single envs: those that step together share one."""
        if not self._steps_together:
            return self._orders.numbers(len(ids))
        batches, places = np.unique(self._answers.backend_of[ids], return_inverse=True)
        return self._orders.numbers(len(batches))[places]

    def recv(
        self, min_envs: int = 1, timeout: float | None = None
    ) -> tuple[Any, Any, Any, Any, Any, npt.NDArray[np.int64]]:
        """Wait for envs that were sent something, and take all that are ready.

        Args:
            min_envs: how many to wait for.
            timeout: seconds; when they pass, a :class:`WorkerTimeout` is raised, the envs go on,
                and this method may be called again.

        Returns:
            Observations, rewards, terminated, truncated and infos as from :meth:`step`, but of the
            k envs in ``env_ids``, int64 ``[k]``, whoever was ready first coming first; always
            copies. An env that was reset has reward 0 and no flag.

        Raises:
            NoPendingCallError: when no env was sent anything.
            ConfigError: when fewer than ``min_envs`` were.
            WorkerError: when an env or a worker fails; other envs can still be received.
        """
        self._pending.require_no_call("recv")
        with self._pending.guard:
            return self._receive(min_envs, timeout)

    def _receive(
        self, min_envs: int, timeout: float | None
    ) -> tuple[Any, Any, Any, Any, Any, npt.NDArray[np.int64]]:
        """What ``recv`` returns."""
        self._pending.begin_again()
        num_busy = self._pending.num_busy()
        if not num_busy:
            raise NoPendingCallError("recv: no env was sent anything", "recv")
        min_envs = whole_number("recv: min_envs", min_envs, 1)
        if min_envs > num_busy:
            raise ConfigError(
                f"recv: min_envs is {min_envs}, but {num_busy} envs have an answer under way"
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
        """Per env, what its method ``name`` returns, or its attribute ``name``.

        Args:
            name: of a method or attribute; the outermost wrapper that has it answers.
            *args: given to the method of every env.
            **kwargs: likewise.
        """
        with self._pending.guard:
            self.call_async(name, *args, **kwargs)
            return self.call_wait()

    def call_async(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        """Begin a call of every env's method; :meth:`call_wait` returns the results.

        Args:
            name: as for :meth:`call`.
            *args: given to the method of every env.
            **kwargs: likewise.
        """
        self._pending.require_idle("call")
        _require_name("call", name)
        if name in _OWN_CALLS:
            raise ConfigError(
                f"call({name!r}) would pass by what this vector env knows of its envs; use its "
                f"own {name}()"
            )
        self._request("call", [(name, args, kwargs)] * len(self._backends))

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Wait for the call that :meth:`call_async` began, and return a result for each env.

        Args:
            timeout: seconds to wait at most; None waits for ever.
        """
        return tuple(value for values in self._outcomes("call", timeout) for value in values)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """The attribute ``name`` of every env."""
        return self.call(name)

    def apply(
        self, function: Callable[[Any], Any], env_ids: Sequence[int] | None = None
    ) -> list[Any]:
        """``function(env)`` of some envs, called where each env lives.

        Args:
            function: gets an env, wrappers and all. It travels by value, as its result does.
            env_ids: which envs; None means all.

        Returns:
            A result for each of ``env_ids``, in their order.
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
            name: of the attribute.
            values: one value for all, or a list or tuple of one for each env.
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
        """The rendered frame of every env."""
        return self.call("render")

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seed of every env's generator."""
        return self.get_attr("np_random_seed")

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """A copy of every env's generator, or the very one where the env is in this process."""
        return self.get_attr("np_random")

    def _request(self, method: str, args: Sequence[tuple[Any, ...]]) -> None:
        """Begin a call of a method of every batch, with arguments for each."""
        requests = [
            backend.request(method, *own) for backend, own in zip(self._backends, args, strict=True)
        ]
        self._pending.begin_call(method, list(zip(self._backends, requests, strict=True)))

    def _outcomes(self, method: str, timeout: float | None) -> list[Any]:
        """Wait for a call; its results in the order of the envs, or the first failure."""
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
        """How many workers there are, processes or threads, without the calling one."""
        if self._final_statistics is not None:
            return sum(not backend.in_caller for backend in self._final_statistics.workers)
        return sum(not backend.steps_in_caller for backend in self._backends)

    @property
    def busy_s(self) -> tuple[float, ...]:
        """Per backend, the seconds spent stepping; costs little, unlike :meth:`statistics`."""
        return tuple(backend.busy_s for backend in self._backends_or_last)

    @property
    def restarts(self) -> int:
        """How often workers were replaced; costs little, unlike :meth:`statistics`."""
        return sum(backend.restarts for backend in self._backends_or_last)

    @property
    def waits(self) -> Waits:
        """Where a collector that has the workers act by themselves notes how long it waits."""
        return self._waits

    @property
    def _backends_or_last(self) -> Sequence[Backend | WorkerStatistics]:
        """The backends; after ``close``, what they were at last."""
        last = self._final_statistics
        return self._backends if last is None else last.workers

    def statistics(self, looks: bool = True) -> Statistics:
        """What was done so far, as a frozen snapshot; after ``close`` the last one.

        Args:
            looks: whether to look at the processes of workers and caller, which takes about 0.3 ms
                for each; else they are as the last look has seen them, as after ``close``.
        """
        if self._final_statistics is not None:
            return self._final_statistics
        use = self._process_watch.look() if looks else self._process_watch.last()
        return Statistics(
            vector_steps=self._vector_steps,
            env_steps=self._vector_steps * self.num_envs + self._single_steps,
            workers=backends_observed(self._backends, self._waits, looks),
            envs=envs_observed(self._arrays.watched, self._backends, self._waits),
            caller=caller_observed(use, self._waits),
            seconds=time.perf_counter() - self._made_at,
        )

    # ---------------------------------------------------------------- ends

    def _settle(self) -> None:
        """Wait for what an interruption has left under way, and drop it."""
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
        """Close the envs and end the workers; closing twice is fine.

        Where an exception has interrupted the closing (a Ctrl-C), closing again ends at once what
        is left.

        Args:
            **kwargs: ``timeout``, seconds to wait for a pending call and for the envs' own closing,
                5 by default, after which they are ended; ``terminate=True`` does not wait at all.
        """
        if hasattr(self, "_finalizer") and os.getpid() == self._owner_pid:
            self.close_extras(**kwargs)
        self.closed = True

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Do what ``close`` does, unless it is done."""
        if not self._finalizer.alive:
            return
        if self._final_statistics is None:
            self._final_statistics = self.statistics(looks=False)  # nobody waits for /proc now
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
        """Give back memory, which goes with the last reference to it."""
        self._finalizer.detach()
        self._pending.let_go()
        for name in _HELD:
            self.__dict__.pop(name, None)

    def __del__(self) -> None:
        """The finalizer does what is to be done, once nobody has the vector env any more."""

    def __enter__(self) -> VectorEnv:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if exc_info[0] is not None:  # whoever leaves so asks for no result
            self._pending.was_cut_short = True
        self.close()

    def __reduce__(self) -> Any:
        raise UsageError(
            "A vector env cannot be pickled or copied: its envs live in this process or in workers "
            "of its own. Pass the function that makes it, and call that where it is needed"
        )


def _require_name(call: str, name: Any) -> None:
    if not isinstance(name, str):
        raise unfit(f"{call}: name", "a str", name)


_HELD = ("_arrays", "_orders", "_results", "_backends", "_answers", "_episodes", "_waits")
