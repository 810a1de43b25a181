"""LostEnvs: envs that have lost their worker, and how their steps are closed.

If the worker is replaced, a fault closes the step that an env was carrying out: reward 0,
truncated, the last known observation, and ``info["fault"]``. If it is not replaced, the caller gets
an error, and only a reset makes the env usable again. Envs that were idle when their worker was
lost report the fault with their next step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from rookery.shared.arrays import BatchArrays
from rookery.worker.orders import NOTHING, RESET, SINGLY, Order, OrderPart, Orders

_NEVER = -1  # no observation yet
_COPIED = -2  # the last observation was copied, because its row is about to be overwritten


class LostEnvs:
    """The envs of one backend, with what is needed to close their steps if their worker is lost.

    Args:
        part: the orders of these envs.
        orders: the orders of all envs of the vector env.
        arrays: the arrays of all envs of the vector env.
        autoreset_mode: autoreset mode of the vector env.
        steps_together: whether one call steps all of these envs.

    Attributes:
        lost: env id -> why the env was lost: a fault (a dict), which its next step reports, or the
            error that left it without a worker.
        closing: env id -> last observation and fault of a step that is closed as soon as the env
            has answered.
    """

    def __init__(
        self,
        part: OrderPart,
        orders: Orders,
        arrays: BatchArrays,
        autoreset_mode: AutoresetMode,
        steps_together: bool,
    ) -> None:
        count = len(part.env_ids)
        self.lost: dict[int, Any] = {}
        self.closing: dict[int, tuple[Any, dict[str, Any]]] = {}
        self._arrays, self._part, self._orders = arrays, part, orders
        self._mode, self._steps_together = autoreset_mode, steps_together
        self._first_id = part.env_ids.start
        self._reported: tuple[int, dict[int, Any]] = 0, {}  # number of an order, and its faults
        self._noted = [0] * count  # number of the last order that was noted
        self._buffers = [_NEVER] * count  # buffer that the last order writes to
        self._last = [_NEVER] * count  # buffer with the observation before that order
        self._copies: list[Any] = [None] * count
        self._had_ended = [False] * count  # whether the episode had ended before that order

    # ---------------------------------------------------------------- before and after an order

    def note(self, env_ids: Sequence[int], order: Order) -> None:
        """Keep what an order is about to overwrite. Must be called before the order is given.

        Repeating an order (after an interruption) has no further effect.
        """
        self._forget_reported(int(np.min(order.numbers)))
        arrays, buffer = self._arrays, order.buffer
        numbers = np.broadcast_to(order.numbers, len(env_ids)).tolist()
        for env_id, number in zip(env_ids, numbers, strict=True):
            i = env_id - self._first_id
            if self._noted[i] == number:
                continue
            before = self._buffers[i]
            if before != _NEVER:
                flags = arrays.terminated[before][env_id] or arrays.truncated[before][env_id]
                self._had_ended[i] = bool(flags)
            if before == buffer:
                self._copies[i] = [column[env_id].copy() for column in arrays.obs[before]]
            last = _COPIED if before == buffer else before
            self._last[i], self._buffers[i], self._noted[i] = last, buffer, number

    def not_stepped_by(self, order: Order, env_ids: Sequence[int]) -> dict[int, Any]:
        """Return the lost envs that an order must not step, and why they were lost.

        Such a step is closed, or fails. A reset is carried out by all envs.
        """
        reported = {}
        for env_id in env_ids if not order.kind & RESET else ():
            why = self.lost.get(env_id)
            is_fault = isinstance(why, dict)
            if why is not None and not (is_fault and self._is_reset_anyway(env_id)):
                reported[env_id] = why
        if reported and self._steps_together:
            first = next(iter(reported.values()))
            reported = {env_id: reported.get(env_id, first) for env_id in env_ids}
        return reported

    def give(
        self,
        order: Order,
        env_ids: Sequence[int],
        not_stepped: Mapping[int, Any],
        has_worker: bool,
    ) -> None:
        """Give an order to envs. Some of them are closed or fail instead of being stepped."""
        for env_id, why in not_stepped.items():  # first, while their rows are the caller's
            if isinstance(why, dict):
                self._close_once_answered(env_id, why)
        if not has_worker:
            self._part.ask(order)
            self._part.answer_for_lost(list(not_stepped))
            return
        number = self._orders.next_number()
        self._part.ask(_without(order, env_ids, not_stepped))
        kind = (RESET if self._needs_reset else NOTHING) | (order.kind & SINGLY)
        ids = np.array(list(not_stepped), np.int64)
        self._part.ask(Order(kind, order.buffer, number, ids))

    def note_given(self, env_ids: Sequence[int], order: Order) -> None:
        """Update the envs after an order: a reset makes them usable, a step reports their faults.

        A reported fault is forgotten with the next order, so that a repeated order reports it, too.
        """
        if order.kind & RESET:
            for env_id in env_ids:
                self.lost.pop(env_id, None)
        else:
            faults = {i: self.lost[i] for i in env_ids if isinstance(self.lost.get(i), dict)}
            self._reported = int(np.min(order.numbers)), faults

    def _forget_reported(self, number: int) -> None:
        """Forget the faults that an order with another number has reported."""
        reported_by, faults = self._reported
        if reported_by != number:
            for env_id, fault in faults.items():
                if self.lost.get(env_id) is fault:  # otherwise the env was lost again since
                    del self.lost[env_id]

    # ---------------------------------------------------------------- when a worker is lost

    def lose(self, env_ids: Sequence[int], why: Any) -> None:
        """Mark envs as lost, and remember why."""
        self.lost.update((env_id, why) for env_id in env_ids)

    def cut_short(self, env_ids: Sequence[int], fault: dict[str, Any]) -> None:
        """Close the steps that a lost worker was carrying out; repeat its resets.

        The next worker carries out the resets, and in same-step mode it resets the other envs too.
        """
        kinds = {i: int(self._part.kind[i - self._first_id]) for i in env_ids}
        resets = [i for i in env_ids if kinds[i] & RESET]
        steps = [i for i in env_ids if not kinds[i] & RESET]
        again = [*resets, *(i for i in steps if self._is_reset_anyway(i))]
        self._part.ask_again(again, self._orders.next_number())
        closed = [i for i in steps if i not in again]
        for env_id in closed:
            self._close_once_answered(env_id, fault)
        if self._needs_reset:
            self._part.turn_into_resets(closed, self._orders.next_number())
        else:
            self._part.answer_for_lost(closed)

    def _close_once_answered(self, env_id: int, fault: dict[str, Any]) -> None:
        """Close an env's step with the last known observation, once the env has answered.

        In same-step mode its row then contains the next episode already.
        """
        if env_id not in self.closing:
            buffer = self._buffers[env_id - self._first_id]
            self._restore_last(env_id, buffer)
            obs = self._arrays.row(env_id, buffer) if self._needs_reset else None
            self.closing[env_id] = obs, fault

    def finish_closing(self) -> None:
        """Close the steps of envs that have answered meanwhile."""
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
            infos: list[dict[str, Any]] = [{"fault": fault}]
            if self._needs_reset:
                infos.insert(0, {"final_obs": obs, "final_info": {"fault": fault}})
            else:
                arrays.row_buffer.void_rows([env_id], buffer)
            arrays.row_buffer.added[buffer][env_id] = infos
            del self.closing[env_id]

    def any_ended(self) -> bool:
        """Return whether the last step of an env ended its episode."""
        arrays, ids = self._arrays, self._part.env_ids
        return any(
            bool(arrays.terminated[buffer][env_id] or arrays.truncated[buffer][env_id])
            for env_id, buffer in zip(ids, self._buffers, strict=True)
            if buffer != _NEVER
        )

    @property
    def _needs_reset(self) -> bool:
        """True if a closed step contains the first observation of the next episode."""
        return self._mode is AutoresetMode.SAME_STEP

    def _is_reset_anyway(self, env_id: int) -> bool:
        """Return whether the env's step only resets it, after an episode in next-step mode."""
        is_next_step = self._mode is AutoresetMode.NEXT_STEP and not self._steps_together
        return is_next_step and self._had_ended[env_id - self._first_id]

    def _restore_last(self, env_id: int, buffer: int) -> None:
        """Put the last known observation back into a row that may be half written."""
        i = env_id - self._first_id
        if self._last[i] == _COPIED:
            for column, row in zip(self._arrays.obs[buffer], self._copies[i], strict=True):
                column[env_id] = row
        elif self._last[i] != _NEVER:
            self._arrays.copy_rows([env_id], self._last[i], buffer)


def _without(order: Order, env_ids: Sequence[int], left_out: Mapping[int, Any]) -> Order:
    """Return an order to all but some of its envs."""
    kept = [i for i, env_id in enumerate(env_ids) if env_id not in left_out]
    numbers = np.broadcast_to(order.numbers, len(env_ids))[kept]
    seeds = np.broadcast_to(order.seeds, len(env_ids))[kept]
    ids = np.array([env_ids[i] for i in kept], np.int64)
    return order._replace(env_ids=ids, numbers=numbers, seeds=seeds)
