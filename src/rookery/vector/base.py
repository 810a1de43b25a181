"""VectorEnv: the public calls and the state machine behind them.

A vector env is a row of carriers. A carrier runs a batch of consecutive envs, in this thread or in
a worker; nothing here depends on where, and no carrier knows about another. A step is an order to
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

from rookery.env.arrays import BatchArrays
from rookery.env.description import Description
from rookery.env.seeding import consecutive_seeds
from rookery.env.slab import SlabFull, SlabShape
from rookery.errors import (
    ConfigError,
    NoPendingCallError,
    RookeryError,
    UsageError,
    WorkerError,
    WorkerTimeout,
)
from rookery.vector.agreement import ObservationMode, agree
from rookery.vector.carrier import Carrier
from rookery.vector.crash import CrashRecorder
from rookery.vector.options import Options, separated
from rookery.vector.pending import Ids, Pending
from rookery.vector.results import Results
from rookery.vector.shutdown import CLOSE_GRACE_S, end_at_once, shut_down
from rookery.vector.statistics import CarrierStatistics, Statistics
from rookery.worker.loop import Bell
from rookery.worker.orders import (
    IN_MESSAGE,
    NO_SEED,
    RESET,
    SEED_IN_MESSAGE,
    SINGLY,
    STEP,
    Order,
    Orders,
)
from rookery.worker.protocol import NotFinishedError

_OWN_CALLS = ("reset", "step", "close")
_LOOK_S = 0.1  # how often carriers are looked after while some of their envs answer
_MOST_SEED = 2**63  # that fits the word of an order


class VectorEnv(gym.vector.VectorEnv[Any, Any, Any]):
    """Many environments behind one ``gymnasium.vector.VectorEnv``; ``rookery.make_vec`` makes it.

    Attributes:
        num_envs: how many envs.
        single_observation_space: of one env; ``observation_space`` is of the batch.
        single_action_space: of one env; ``action_space`` is of the batch.
        metadata: of the first env, plus ``"autoreset_mode"``.
        autoreset_mode: what happens when an episode ends.
        observation_mode: how the envs' observation spaces were put together.
        backend: which carriers run the envs: ``"serial"``, ``"thread"``, ``"process"``, ...
        num_workers: how many workers there are.
        choice: what ``backend="auto"`` chose, and why; None if it was not asked.
        crash_recorder: keeps what the envs are told, for reports of failures; None keeps nothing.
    """

    backend: str
    choice: Any = None
    crash_recorder: CrashRecorder | None = None

    def _adopt(
        self,
        carriers: Sequence[Carrier],
        descriptions: Sequence[Description],
        autoreset_mode: AutoresetMode,
        observation_mode: ObservationMode,
    ) -> None:
        """Take over carriers whose envs are built: check their spaces."""
        self._carriers = tuple(carriers)
        self.num_envs = carriers[-1].env_ids.stop
        self.metadata = {**descriptions[0].metadata, "autoreset_mode": autoreset_mode}
        self.render_mode = descriptions[0].render_mode
        self.spec = descriptions[0].spec
        self._steps_together = any(description.steps_together for description in descriptions)
        spaces = agree([carrier.env_ids for carrier in carriers], descriptions, observation_mode)
        self.single_observation_space = spaces.single_observation_space
        self.single_action_space = spaces.single_action_space
        self.observation_space = spaces.observation_space
        self.action_space = spaces.action_space
        self.autoreset_mode = autoreset_mode
        self.observation_mode = observation_mode

    def _ready(
        self, arrays: BatchArrays, orders: Orders, copy: bool, arrivals: Bell | None = None
    ) -> None:
        """Take over the arrays that the carriers write to; from now on the env can be used.

        Args:
            arrays: of all envs.
            orders: to all envs.
            copy: whether results are copied out of the arrays.
            arrivals: the bell that workers ring when an env has answered that was asked singly.
        """
        self._arrays, self._orders, self._arrivals = arrays, orders, arrivals
        self._results = Results(arrays, copy)
        for carrier in self._carriers:
            carrier.hear = self._results.reader.hear
        # What the calling thread steps itself comes last to begin, and first to finish.
        self._finish_order = tuple(sorted(self._carriers, key=lambda c: not c.steps_in_caller))
        self._carrier_of = np.zeros(self.num_envs, np.int64)
        for i, carrier in enumerate(self._carriers):
            self._carrier_of[carrier.env_ids.start : carrier.env_ids.stop] = i
        self._pending = Pending(orders, self._carriers)
        self._refuses_ended = self.autoreset_mode is AutoresetMode.DISABLED
        self._ended = np.zeros(self.num_envs, np.bool_)  # in the disabled mode, and not yet reset
        self._vector_steps = self._single_steps = 0
        self._looked = 0.0
        self._final_statistics: Statistics | None = None
        self._owner_pid = os.getpid()
        self._finalizer = weakref.finalize(self, shut_down, self._owner_pid, self._carriers)
        self._pending.watch_forks()

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
        """Begin a reset; :meth:`reset_wait` returns its result."""
        with self._pending.beginning("reset"):
            if self._pending.was_cut_short or any(c.is_torn for c in self._carriers):
                self._settle()
            seeds = consecutive_seeds(seed, self.num_envs)
            options, mask = separated(options, self.num_envs)
            requests = self._prepared_resets(seeds, options, mask)
            if self.crash_recorder is not None:
                self.crash_recorder.note_reset(seeds, options, mask)
            self._enlarge_slab_if_wanted()
            for carrier in self._carriers:
                ids = carrier.env_ids
                own = None if mask is None else mask[ids.start : ids.stop]
                carrier.note_seeds(seeds[ids.start : ids.stop], own)
            for carrier, request in requests:
                carrier.tell_reset(request)
            self._ask_all("reset", RESET, mask, self._seed_words(seeds, options))

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, dict[str, Any]]:
        """Wait for the reset that :meth:`reset_async` began."""
        with self._pending.finishing("reset"):
            has_infos = self._wait_for_all("reset", timeout)
            if self._refuses_ended:
                self._note_ended(self._pending.env_ids)
            results = self._results.reset(has_infos)
            self._pending.is_over()
        return results

    def _prepared_resets(
        self, seeds: list[int | None], options: Options, mask: list[bool] | None
    ) -> list[tuple[Carrier, Any]]:
        """Requests that tell carriers what does not fit into words."""
        if options is None and not any(_is_large(seed) for seed in seeds):
            return []
        own = options if isinstance(options, list) else [options] * self.num_envs
        requests = []
        for carrier in self._carriers:
            told = {i: (seeds[i], own[i]) for i in carrier.env_ids if mask is None or mask[i]}
            if told:
                requests.append((carrier, carrier.prepare_reset(told)))
        return requests

    @staticmethod
    def _seed_words(seeds: list[int | None], options: Options) -> Ids:
        if options is not None or any(_is_large(seed) for seed in seeds):
            return np.full(len(seeds), SEED_IN_MESSAGE)
        return np.array([NO_SEED if seed is None else seed for seed in seeds], np.int64)

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
        """Begin a step; :meth:`step_wait` returns its result."""
        # This and step_wait call little: between two wake-ups every Python function called costs
        # about a microsecond, five times what it costs in a loop.
        pending = self._pending
        if not pending.is_clear:
            pending.require_idle("step")
        results, orders = self._results, self._orders  # which a closed vector env has no more
        try:
            if self._refuses_ended:
                self._require_episodes("step", ...)
            if results.reader.wanted is not None:
                self._enlarge_slab_if_wanted()
            try:
                self._arrays.write_actions(actions)
            except SlabFull as full:
                self._write_larger_actions(full, actions, ...)
            if self.crash_recorder is not None:
                self.crash_recorder.note_step(actions)
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
            results = self._results.step(self._wait_for_all("step", timeout))
            if self._refuses_ended:
                self._note_ended(...)
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
        """Begin an order to envs of several carriers; after an interruption, begin it again."""
        parts = [(carrier, self._part_of(order, carrier)) for carrier in self._carriers]
        begins = [(carrier, own) for carrier, own in parts if own is not None]
        self._pending.begin(name, order.env_ids, begins)

    @staticmethod
    def _part_of(order: Order, carrier: Carrier) -> Order | None:
        """An order's part for the envs of one carrier; None if there is none."""
        first, last = carrier.env_ids.start, carrier.env_ids.stop
        if order.env_ids is None:
            if type(order.seeds) is int:
                return order
            return order._replace(seeds=order.seeds[first:last])
        inside = (order.env_ids >= first) & (order.env_ids < last)
        if not inside.any():
            return None
        ids = order.env_ids[inside]
        seeds = order.seeds if type(order.seeds) is int else order.seeds[ids]
        numbers = order.numbers if type(order.numbers) is int else order.numbers[inside]
        return order._replace(env_ids=ids, seeds=seeds, numbers=numbers)

    def _wait_for_all(self, call: str, timeout: float | None) -> bool:
        """Wait until what was begun is done; raise the first failure, in the order of the envs.

        Returns:
            Whether an env has told anything beside its columns.
        """
        deadline = None if timeout is None else time.perf_counter() + timeout
        has_failed = has_told = False
        try:
            for carrier in self._finish_order:
                has_failed = carrier.finish(deadline) or has_failed
                has_told = has_told or carrier.has_told
        except NotFinishedError:
            raise self._late(call, timeout) from None
        if has_failed:
            raise self._first_failure()
        return has_told or bool(self._arrays.slab.added[self._results.buffer])

    def _first_failure(self) -> RookeryError:
        """The first failure, in the order of the envs; the call is over then."""
        failures: dict[int, RookeryError] = {}
        for carrier in self._carriers:
            failures.update(carrier.failures)
            carrier.forget()
        self._results.written(self._pending.env_ids)
        if self._refuses_ended:
            failed = list(failures)
            before = self._ended[failed]
            self._note_ended(self._pending.env_ids)
            self._ended[failed] = before  # their rows say nothing
        self._pending.is_over()
        error = failures[min(failures)]
        self._record(error)
        return error

    def _late(self, call: str, timeout: float | None) -> WorkerTimeout:
        late = np.flatnonzero(self._orders.asked != self._orders.answered).tolist()
        again = "recv()" if call == "recv" else f"{call}_wait()"
        return WorkerTimeout(
            f"{call}: not finished within {timeout} s by envs {late}; they go on, and {again} may "
            "be called again",
            env_ids=late,
            command=call,
        )

    def _note_ended(self, ids: Any) -> None:
        """Note whose episodes are over, of envs that have answered."""
        arrays, b = self._arrays, self._results.buffer
        self._ended[ids] = arrays.terminated[b][ids] | arrays.truncated[b][ids]

    def _require_episodes(self, call: str, ids: Any) -> None:
        """Refuse to step envs whose episodes are over, before any env is stepped."""
        over = self._ended[ids]
        if over.any():
            envs = (np.flatnonzero(over) if ids is ... else ids[over]).tolist()
            raise UsageError(
                f"{call}: the episodes of envs {envs} have ended. With autoreset_mode='disabled', "
                "reset them first: reset(options={'reset_mask': mask}). No env was stepped"
            )

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
            for carrier in self._finish_order:
                carrier.finish()
            self._grow_slab(shape)

    def _grow_slab(self, shape: SlabShape) -> None:
        """Make a larger slab and have every carrier go on with it."""
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
        self._require_whole_batches("async_reset", ids)
        seeds = consecutive_seeds(seed, self.num_envs)
        for value in (seeds[i] for i in ids.tolist()):
            if value is not None and not 0 <= value < _MOST_SEED:
                raise ConfigError(f"async_reset: a seed must lie in 0 to 2**63 - 1, got {value}")
        if self.crash_recorder is not None:
            self.crash_recorder.note_resets(ids, [seeds[i] for i in ids.tolist()])
        mask = np.isin(np.arange(self.num_envs), ids).tolist()
        for carrier in self._carriers:
            part = slice(carrier.env_ids.start, carrier.env_ids.stop)
            carrier.note_seeds(seeds[part], mask[part])
        self._ask_singly(ids, RESET, self._seed_words(seeds, None))

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
        self._require_whole_batches("send", ids)
        if self.autoreset_mode is AutoresetMode.DISABLED:
            self._require_episodes("send", ids)
        if self._results.reader.wanted is not None and not self._pending.num_busy():
            self._enlarge_slab_if_wanted()
        self._write_actions(actions, ids)
        if self.crash_recorder is not None:
            self.crash_recorder.note_step(actions, ids)
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
        batches, places = np.unique(self._carrier_of[ids], return_inverse=True)
        return self._orders.numbers(len(batches))[places]

    def _require_whole_batches(self, call: str, ids: Ids) -> None:
        """Refuse to ask some envs of a batch that steps all its envs at once.

        Raises:
            UsageError: naming the envs that belong together.
        """
        if not self._steps_together:
            return
        for carrier in self._carriers:
            own = [i for i in ids.tolist() if i in carrier.env_ids]
            if own and len(own) != len(carrier.env_ids):
                first, last = carrier.env_ids[0], carrier.env_ids[-1]
                raise UsageError(
                    f"{call}: native batches step all their envs at once, and envs {first}-{last} "
                    f"are one batch; of these, only {own} are named. Name all of them or none. No "
                    "env was asked anything"
                )

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
        if not 1 <= min_envs <= num_busy:
            raise ConfigError(
                f"recv: min_envs is {min_envs}, but {num_busy} envs have an answer under way"
            )
        orders = self._orders
        ids = self._wait_for_some(min_envs, timeout)
        self._raise_failures(ids)
        ids = ids[np.argsort(orders.answered_at[ids], kind="stable")]
        results = self._results.some(ids)
        if self._refuses_ended:
            self._note_ended(ids)
        self._single_steps += int(np.count_nonzero(self._pending.steps[ids]))
        orders.received[ids] = orders.asked[ids]
        return (*results, ids)

    def _wait_for_some(self, min_envs: int, timeout: float | None) -> Ids:
        """Wait until enough envs have answered; ids of all that have, int64 ``[k]``."""
        deadline = None if timeout is None else time.perf_counter() + timeout
        if self._arrivals is not None:
            self._arrivals.forget_rings()
        while True:
            self._poll()
            ready = self._ready_ids()
            if len(ready) >= min_envs or (len(ready) and self._has_failed(ready)):
                if self._orders.fence is not None:
                    self._orders.fence()
                return ready
            if deadline is not None and time.perf_counter() >= deadline:
                raise self._late("recv", timeout)
            if self._arrivals is not None and not self._caller_has_work():
                self._arrivals.wait(lambda: self._is_short(min_envs), deadline)

    def _poll(self) -> None:
        """Have carriers take in what has come, and step what is for this thread to step."""
        now = time.perf_counter()
        is_time = now - self._looked > _LOOK_S
        if is_time:
            self._looked = now
        has_messages = _IN_MESSAGE in self._orders.status.tobytes()
        for carrier in self._carriers:
            if has_messages or is_time or carrier.steps_in_caller or carrier.needs_poll:
                carrier.poll()

    def _is_short(self, min_envs: int) -> bool:
        """Whether to go on waiting; asked now and then."""
        self._pending.begin_again()
        for carrier in self._carriers:
            carrier.poll()
        ready = self._ready_ids()
        return len(ready) < min_envs and not self._has_failed(ready)

    def _ready_ids(self) -> Ids:
        """Ids of the envs whose answer has come whole and was not handed out.

        Of batches that step together, all envs or none.
        """
        orders = self._orders
        ready = orders.ready()
        is_partial = _IN_MESSAGE in orders.status[ready].tobytes()
        if is_partial or any(carrier.needs_poll for carrier in self._carriers):
            for carrier in self._carriers:  # what has come since they were asked last
                carrier.poll()
            ready = np.intersect1d(ready, orders.ready(), assume_unique=True)
        if not self._steps_together:
            return ready
        late = self._carrier_of[orders.asked != orders.answered]  # words are written one by one
        return ready[~np.isin(self._carrier_of[ready], late)]

    def _caller_has_work(self) -> bool:
        orders = self._orders
        return any(
            carrier.steps_in_caller
            and (orders.asked != orders.answered)[
                carrier.env_ids.start : carrier.env_ids.stop
            ].any()
            for carrier in self._carriers
        )

    def _has_failed(self, ready: Ids) -> bool:
        return any(
            env_id in carrier.failures
            for carrier in self._carriers
            if carrier.failures
            for env_id in ready.tolist()
        )

    def _raise_failures(self, ids: Ids) -> None:
        """Raise the first failure among envs that are ready; the other answers stay."""
        for carrier in self._carriers:
            if not carrier.failures:
                continue
            for env_id in ids.tolist():
                error = carrier.failures.get(env_id)
                if error is None:
                    continue
                same = [i for i, other in carrier.failures.items() if other is error]
                for i in same:
                    del carrier.failures[i]
                self._orders.received[same] = self._orders.asked[same]
                self._record(error)
                raise error

    # ---------------------------------------------------------------- calls

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Per env, what its method ``name`` returns, or its attribute ``name``."""
        with self._pending.guard:
            self.call_async(name, *args, **kwargs)
            return self.call_wait()

    def call_async(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        """Begin a call of every env's method; :meth:`call_wait` returns the results."""
        self._pending.require_idle("call")
        if name in _OWN_CALLS:
            raise ConfigError(
                f"call({name!r}) would pass by what this vector env knows of its envs; use its "
                f"own {name}()"
            )
        self._request("call", [(name, args, kwargs)] * len(self._carriers))

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Wait for the call that :meth:`call_async` began."""
        return tuple(value for values in self._answers("call", timeout) for value in values)

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
        ids = list(range(self.num_envs)) if env_ids is None else [int(i) for i in env_ids]
        for env_id in ids:
            if not 0 <= env_id < self.num_envs:
                raise ConfigError(f"apply: there is no env {env_id}, only 0 to {self.num_envs - 1}")
        with self._pending.guard:
            self._request("apply", [(function, ids)] * len(self._carriers))
            by_id = dict(pair for pairs in self._answers("apply", None) for pair in pairs)
        return [by_id[env_id] for env_id in ids]

    def set_attr(self, name: str, values: list[Any] | tuple[Any, ...] | Any) -> None:
        """Set an attribute of every env: one value for all, or a list or tuple of one for each."""
        self._pending.require_idle("set_attr")
        if not isinstance(values, (list, tuple)):
            values = [values] * self.num_envs
        if len(values) != self.num_envs:
            raise ConfigError(f"set_attr got {len(values)} values for {self.num_envs} envs")
        parts = [carrier.env_ids for carrier in self._carriers]
        with self._pending.guard:
            self._request("set_attr", [(name, values[ids.start : ids.stop]) for ids in parts])
            self._answers("set_attr", None)

    def render(self) -> tuple[Any, ...]:
        """The rendered frame of every env."""
        return self.call("render")

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seed of every env's generator."""
        return self.get_attr("np_random_seed")

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """A copy (in this process: the very one) of every env's generator."""
        return self.get_attr("np_random")

    def _request(self, method: str, args: Sequence[tuple[Any, ...]]) -> None:
        """Begin a call of a method of every batch, with arguments for each."""
        requests = [
            carrier.request(method, *own) for carrier, own in zip(self._carriers, args, strict=True)
        ]
        self._pending.begin_call(method, list(zip(self._carriers, requests, strict=True)))

    def _answers(self, method: str, timeout: float | None) -> list[Any]:
        """Wait for a call; its results in the order of the envs, or the first failure."""
        self._pending.require_call(method)
        deadline = None if timeout is None else time.perf_counter() + timeout
        try:
            answers = self._pending.finish_call(self._finish_order, deadline)
        except NotFinishedError:
            raise self._late(method, timeout) from None
        for carrier in self._carriers:
            answer = answers[carrier.env_ids.start]
            if isinstance(answer, RookeryError):
                self._record(answer)
                raise answer
        return [answers[carrier.env_ids.start] for carrier in self._carriers]

    # ---------------------------------------------------------------- watching

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the workers."""
        carriers = self.statistics().carriers
        return tuple(carrier.pid for carrier in carriers if carrier.pid != self._owner_pid)

    @property
    def num_workers(self) -> int:
        """How many workers there are: processes or threads, without the calling one."""
        return sum(not carrier.in_caller for carrier in self.statistics().carriers)

    def statistics(self) -> Statistics:
        """What was done so far, as a frozen snapshot; after ``close`` the last one."""
        if self._final_statistics is not None:
            return self._final_statistics
        return Statistics(
            vector_steps=self._vector_steps,
            env_steps=self._vector_steps * self.num_envs + self._single_steps,
            carriers=tuple(
                CarrierStatistics(
                    carrier.pid, carrier.env_ids, carrier.busy_s, carrier.steps_in_caller
                )
                for carrier in self._carriers
            ),
        )

    # ---------------------------------------------------------------- ends

    def _settle(self) -> None:
        """Wait for what an interruption has left under way, and drop it."""
        self._pending.begin_again()
        for carrier in self._finish_order:
            carrier.finish()
        dropped = self._pending.dropped()
        self._results.written(dropped)
        if self._refuses_ended:
            self._note_ended(dropped)
        self._pending.finish_call(self._finish_order, None)
        for carrier in self._carriers:
            carrier.forget()
        self._orders.received[:] = self._orders.asked
        self._pending.is_over()

    def _record(self, error: RookeryError) -> None:
        if self.crash_recorder is not None and isinstance(error, WorkerError) and error.env_ids:
            self.crash_recorder.write(error)

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
            self._final_statistics = self.statistics()
        if self.closed:
            self._pending.close()
            end_at_once(self._carriers)
            self._let_go()
            return
        self.closed = True
        left = self._pending.close()
        grace_s = 0.0 if terminate else CLOSE_GRACE_S if timeout is None else timeout
        try:
            shut_down(self._owner_pid, self._carriers, grace_s)
        except RookeryError:
            self._let_go()
            raise
        self._let_go()
        if left:
            gym.logger.warn(f"Calling `close` while waiting for `{left}`: its result is dropped.")

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


_IN_MESSAGE = bytes([IN_MESSAGE])
_HELD = ("_arrays", "_orders", "_results", "_carriers", "_finish_order", "_arrivals")


def _is_large(seed: int | None) -> bool:
    return seed is not None and not 0 <= seed < _MOST_SEED
