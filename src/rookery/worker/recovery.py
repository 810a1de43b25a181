"""Recovery: what becomes of envs whose worker was lost, step by step and mode by mode.

Where the worker is replaced, a fault closes the transition under way: reward 0, truncated, the last
observation known, and ``info["fault"]``. Where it is not, whoever waits for the env gets an error,
and only a reset brings it back. Envs that were doing nothing when their worker went are told with
their next step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from rookery.errors import RookeryError, WorkerDied, WorkerError
from rookery.shared.arrays import BatchArrays
from rookery.worker.fault_policy import RestartCause
from rookery.worker.orders import NOTHING, RESET, SINGLY, Order, OrderPart, Orders
from rookery.worker.reports import Reports
from rookery.worker.supervisor import Supervisor

_NEVER = -1  # no observation yet
_ASIDE = -2  # the last observation was put aside, since its row is about to be overwritten


class Recovery:
    """Has workers replaced, and keeps in mind what is needed to close the steps of lost envs.

    Args:
        supervisor: of the workers of the envs concerned.
        reports: composes errors about them.
        failures: where errors go, by env.
        part: the orders of these envs.
        orders: to all envs of the vector env.
        arrays: of all envs of the vector env.
        autoreset_mode: of the vector env.

    Attributes:
        closing: by env, the last observation and the fault of steps that wait for an answer before
            they can be closed.
        lost: envs that were lost, and why: a fault, which the next order tells, or an error.
        unraised: what ended the worker before a step, for that step.
        is_unfinished: whether an interruption, or a deadline, has left a failure half dealt with.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        reports: Reports,
        failures: dict[int, RookeryError],
        part: OrderPart,
        orders: Orders,
        arrays: BatchArrays,
        autoreset_mode: AutoresetMode,
    ) -> None:
        count = len(part.env_ids)
        self.lost: dict[int, Any] = {}
        self.closing: dict[int, tuple[Any, dict[str, Any]]] = {}
        self.unraised: WorkerError | None = None
        self.is_unfinished = False
        self._failure: WorkerError | None = None  # that is being dealt with
        self._concerned: Sequence[int] = ()  # by the last one
        self._ended_by: RestartCause | None = None  # what left the envs without a worker
        self._supervisor, self._reports, self._failures = supervisor, reports, failures
        self._arrays, self._part, self._orders = arrays, part, orders
        self._mode, self._steps_together = autoreset_mode, reports.steps_together
        self._first_id = part.env_ids.start
        self._told: tuple[int, dict[int, Any]] = 0, {}  # number of an order; faults it has told of
        self._noted = [0] * count  # numbers of orders
        self._buffers = [_NEVER] * count  # into which each env was ordered to write
        self._last = [_NEVER] * count  # the buffer with its last observation before that
        self._aside: list[Any] = [None] * count
        self._had_ended = [False] * count  # before the order under way

    # ---------------------------------------------------------------- when a worker fails

    def fail(self, error: WorkerError, concerned: Sequence[int]) -> None:
        """Replace a worker that has failed if that is allowed, or go on without it.

        Args:
            error: what happened.
            concerned: envs whose order it has ended, beside those that have not answered; the
                others are told with their next step.
        """
        self._concerned = sorted({*self._part.busy_ids(), *concerned})
        self._failure, self.is_unfinished = error, True
        try:
            self._supervisor.budget.spend(error)
            self._replace(str(error), self._concerned, self._cause(error))
        except WorkerError as final:
            self.shut_out(final, self._concerned)
        self._failure = None
        self.go_on()

    def go_on(self) -> None:
        """Deal with the rest of a failure; where an interruption cut it short, with all of it."""
        if self._failure is not None:
            self.fail(self._failure, self._concerned)  # it costs one more restart
            return
        if self._supervisor.is_starting and self._part.is_busy():  # with resets, for the new worker
            try:
                self._supervisor.renew()
            except WorkerError as final:
                self.shut_out(final, self._concerned)
        self.is_unfinished = False

    def shut_out(self, error: WorkerError, concerned: Sequence[int]) -> None:
        """Go on without a worker: its envs are lost until they are reset."""
        self._failure, self._concerned, self.is_unfinished = error, concerned, True
        self._supervisor.end()
        self._ended_by = self._cause(error)
        self._lose(self._part.env_ids, error)
        self._failures.update(dict.fromkeys(concerned, error))
        self._part.answer_for_lost(concerned)
        self._failure, self.is_unfinished = None, False

    def _cause(self, error: WorkerError) -> RestartCause:
        env_ids = getattr(error, "env_ids", ()) or self._part.env_ids
        return RestartCause(type(error).__name__, tuple(env_ids))

    def _replace(self, cause: str, concerned: Sequence[int], noted: RestartCause) -> None:
        """Replace the worker and close what its envs were doing; the others are told later."""
        own, attempt = self._part.env_ids, self._supervisor.attempt + 1
        fault = {"cause": cause, "env_ids": tuple(own), "attempt": attempt}
        self._lose([i for i in own if i not in concerned], fault)
        self._supervisor.restart(noted)
        env_ids = self._cut_short(concerned, self._orders.next_number())
        for env_id in env_ids:
            self._close_once_answered(env_id, fault)
        if self._needs_reset:
            self._part.turn_into_resets(env_ids, self._orders.next_number())
        else:
            self._part.answer_for_lost(env_ids)

    def recycle_if_large(self, has_ended: bool | None = None) -> bool:
        """Replace a worker that is too large, once an episode of its envs has ended.

        Args:
            has_ended: whether one has; None looks at the last step of each env.

        Returns:
            Whether it was replaced.
        """
        memory = self._supervisor.memory
        memory.look(self._supervisor.worker)
        if not memory.complaint or not (self._any_ended() if has_ended is None else has_ended):
            return False
        too_large = RestartCause("max_worker_rss_mb", tuple(self._part.env_ids))
        self._replace(memory.complaint, (), too_large)
        return True

    def gone(self, env_id: int) -> WorkerDied:
        """The error of an env that has no worker."""
        return self._reports.gone(env_id, self._supervisor.command, self.lost.get(env_id))

    # ---------------------------------------------------------------- orders to envs that are lost

    def begin(self, order: Order) -> None:
        """Begin an order where envs may be lost, or will have to be; raises nothing."""
        self.go_on()
        supervisor = self._supervisor
        env_ids = self._part.env_ids if order.env_ids is None else order.env_ids
        chosen = [int(i) for i in env_ids]
        self._forget_told(int(np.min(order.numbers)))
        self._note(chosen, order)
        resets = bool(order.kind & RESET)
        closed = self._lost_among(chosen, resets)
        try:
            if supervisor.is_ended and resets:
                self.unraised = None
                supervisor.restart(self._ended_by)
            if supervisor.is_starting:
                supervisor.renew()
        except WorkerError as error:
            self._part.ask(order)
            self.shut_out(error, chosen)
            return
        if closed:
            self._begin_closing(order, chosen, closed)
        else:
            self._part.ask(order)
        self.unraised = None
        if resets:
            for env_id in chosen:
                self.lost.pop(env_id, None)
        else:  # they stay, so that this order, should it be begun once more, is begun like this
            faults = {i: self.lost[i] for i in chosen if isinstance(self.lost.get(i), dict)}
            self._told = int(np.min(order.numbers)), faults
        supervisor.worker.bells.go.ring_again()

    def _forget_told(self, number: int) -> None:
        """Forget the faults that an order has told; ``number`` is of the one that is begun now."""
        told_by, faults = self._told
        if told_by != number:
            for env_id, fault in faults.items():
                if self.lost.get(env_id) is fault:  # else the env was lost again since
                    del self.lost[env_id]

    def _begin_closing(self, order: Order, chosen: list[int], closed: dict[int, Any]) -> None:
        """Begin a step of which some envs must be told that they were lost."""
        for env_id, why in closed.items():  # first, while their rows are the caller's
            if isinstance(why, dict):
                self._close_once_answered(env_id, why)
            else:
                self._failures[env_id] = self.unraised or self.gone(env_id)
        if not self._supervisor.is_up:
            self._part.ask(order)
            self._part.answer_for_lost(list(closed))
        else:
            number = self._orders.next_number()
            self._part.ask(_without(order, chosen, closed))
            self._part.ask(self._in_place_of_step(order, list(closed), number))

    @property
    def _needs_reset(self) -> bool:
        """Whether a transition that is closed shows the next episode already."""
        return self._mode is AutoresetMode.SAME_STEP

    def _note(self, env_ids: Sequence[int], order: Order) -> None:
        """Keep what an order is about to overwrite; called before it is given."""
        arrays, buffer = self._arrays, order.buffer
        numbers = np.broadcast_to(order.numbers, len(env_ids)).tolist()
        for env_id, number in zip(env_ids, numbers, strict=True):
            i = env_id - self._first_id
            if self._noted[i] == number:  # it is begun once more
                continue
            before = self._buffers[i]
            if before != _NEVER:
                flags = arrays.terminated[before][env_id] or arrays.truncated[before][env_id]
                self._had_ended[i] = bool(flags)
            if before == buffer:
                self._aside[i] = [column[env_id].copy() for column in arrays.obs[before]]
            last = _ASIDE if before == buffer else before
            self._last[i], self._buffers[i], self._noted[i] = last, buffer, number

    def _lose(self, env_ids: Sequence[int], why: Any) -> None:
        """Note that envs were lost while they were doing nothing."""
        self.lost.update((env_id, why) for env_id in env_ids)

    def _lost_among(self, env_ids: Sequence[int], resets: bool) -> dict[int, Any]:
        """Those of some envs that are to be told now that they were lost, and why.

        Args:
            env_ids: which are about to be ordered something.
            resets: whether that is a reset; then nothing is left to be told.
        """
        told = {}
        for env_id in env_ids if not resets else ():
            why = self.lost.get(env_id)
            is_fault = isinstance(why, dict)
            if why is not None and not (is_fault and self._is_reset_anyway(env_id)):
                told[env_id] = why
        if told and self._steps_together:
            told = {env_id: told.get(env_id, next(iter(told.values()))) for env_id in env_ids}
        return told

    def _cut_short(self, env_ids: Sequence[int], number: int) -> list[int]:
        """Those of some envs, whose worker is gone, whose step was cut short.

        The others were being reset; they are asked again, under ``number``, for the next worker.
        """
        kinds = {i: int(self._part.kind[i - self._first_id]) for i in env_ids}
        resets = [i for i in env_ids if kinds[i] & RESET]
        steps = [i for i in env_ids if not kinds[i] & RESET]
        again = [*resets, *(i for i in steps if self._is_reset_anyway(i))]
        self._part.ask_again(again, number)
        return [i for i in steps if i not in again]

    def _in_place_of_step(self, order: Order, env_ids: Sequence[int], number: int) -> Order:
        """What a worker is to do with envs that cannot be stepped, since they replace lost ones."""
        kind = (RESET if self._needs_reset else NOTHING) | (order.kind & SINGLY)
        return Order(kind, order.buffer, number, np.array(env_ids, np.int64))

    def _close_once_answered(self, env_id: int, fault: dict[str, Any]) -> None:
        """Close an env's step with the last observation known, once it has answered.

        In the same-step mode its row then shows the next episode already.
        """
        if env_id not in self.closing:
            buffer = self._buffers[env_id - self._first_id]
            self._restore_last(env_id, buffer)
            obs = self._arrays.row(env_id, buffer) if self._needs_reset else None
            self.closing[env_id] = obs, fault

    def finish_closing(self) -> None:
        """Close the transitions of envs that have been reset meanwhile."""
        if not self.closing:
            return
        part, arrays = self._part, self._arrays
        for env_id in list(self.closing):
            i = env_id - self._first_id
            if part.asked[i] != part.answered[i]:
                continue
            if part.fence is not None:
                part.fence()
            obs, fault = self.closing[env_id]
            buffer = self._buffers[i]
            arrays.close_rows([env_id], buffer)
            told: list[dict[str, Any]] = [{"fault": fault}]
            if self._needs_reset:
                told.insert(0, {"final_obs": obs, "final_info": {"fault": fault}})
            else:
                arrays.row_buffer.void_rows([env_id], buffer)
            arrays.row_buffer.added[buffer][env_id] = told
            del self.closing[env_id]

    def _any_ended(self) -> bool:
        """Whether the last step of an env ended its episode."""
        arrays, ids = self._arrays, self._part.env_ids
        return any(
            bool(arrays.terminated[buffer][env_id] or arrays.truncated[buffer][env_id])
            for env_id, buffer in zip(ids, self._buffers, strict=True)
            if buffer != _NEVER
        )

    def _is_reset_anyway(self, env_id: int) -> bool:
        """Whether the env's step is but the reset after an episode; then nothing is cut short."""
        is_next_step = self._mode is AutoresetMode.NEXT_STEP and not self._steps_together
        return is_next_step and self._had_ended[env_id - self._first_id]

    def _restore_last(self, env_id: int, buffer: int) -> None:
        """Put the last observation known back into a row that may be half written."""
        i = env_id - self._first_id
        if self._last[i] == _ASIDE:
            for column, row in zip(self._arrays.obs[buffer], self._aside[i], strict=True):
                column[env_id] = row
        elif self._last[i] != _NEVER:
            self._arrays.copy_rows([env_id], self._last[i], buffer)


def _without(order: Order, env_ids: Sequence[int], left_out: Mapping[int, Any]) -> Order:
    """An order of all but some of its envs."""
    kept = [i for i, env_id in enumerate(env_ids) if env_id not in left_out]
    numbers = np.broadcast_to(order.numbers, len(env_ids))[kept]
    seeds = np.broadcast_to(order.seeds, len(env_ids))[kept]
    ids = np.array([env_ids[i] for i in kept], np.int64)
    return order._replace(env_ids=ids, numbers=numbers, seeds=seeds)
