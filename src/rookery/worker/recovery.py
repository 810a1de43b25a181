"""Recovery: what becomes of envs whose worker was lost, step by step and mode by mode.

A fault closes the transition under way: reward 0, truncated, the last observation known, and
``info["fault"]``. Envs that were doing nothing when their worker went are told with their next
step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from rookery.env.arrays import BatchArrays
from rookery.env.seeding import derived_seed
from rookery.worker.orders import NOTHING, RESET, SINGLY, Order, OrderPart
from rookery.worker.protocol import Assignment

_NEVER = -1  # no observation yet
_ASIDE = -2  # the last observation was put aside, since its row is about to be overwritten


class Recovery:
    """Keeps in mind what is needed to close the transitions of envs that are lost.

    Args:
        arrays: of all envs of the vector env.
        part: the orders of the envs concerned.
        autoreset_mode: of the vector env.
        steps_together: whether no env can be stepped, or closed, without the others.

    Attributes:
        closing: by env, the last observation and the fault of steps that wait for an answer before
            they can be closed.
        lost: envs that were lost and have not been told, and why: a fault, or an error.
    """

    def __init__(
        self,
        arrays: BatchArrays,
        part: OrderPart,
        autoreset_mode: AutoresetMode,
        steps_together: bool = False,
    ) -> None:
        count = len(part.env_ids)
        self.lost: dict[int, Any] = {}
        self._arrays, self._part, self._mode = arrays, part, autoreset_mode
        self._steps_together = steps_together
        self._first_id = part.env_ids.start
        self._noted = [0] * count  # numbers of orders
        self._buffers = [_NEVER] * count  # into which each env was ordered to write
        self._last = [_NEVER] * count  # the buffer with its last observation before that
        self._aside: list[Any] = [None] * count
        self._had_ended = [False] * count  # before the order under way
        self.closing: dict[int, tuple[Any, dict[str, Any]]] = {}

    @property
    def needs_reset(self) -> bool:
        """Whether a transition that is closed shows the next episode already."""
        return self._mode is AutoresetMode.SAME_STEP

    @property
    def has_work(self) -> bool:
        """Whether transitions wait for a reset before they can be closed."""
        return bool(self.closing)

    def note(self, env_ids: Sequence[int], order: Order) -> None:
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

    def lose(self, env_ids: Sequence[int], why: Any) -> None:
        """Note that envs were lost while they were doing nothing."""
        self.lost.update((env_id, why) for env_id in env_ids)

    def take_lost(self, env_ids: Sequence[int], resets: bool) -> dict[int, Any]:
        """Those of some envs that are to be told now that they were lost, and why.

        Args:
            env_ids: which are about to be ordered something.
            resets: whether that is a reset; then nothing is left to be told.
        """
        told = {}
        for env_id in env_ids:
            why = self.lost.get(env_id)
            if why is None:
                continue
            is_fault = isinstance(why, dict)
            if resets or is_fault:
                del self.lost[env_id]
            if not resets and not (is_fault and self._is_reset_anyway(env_id)):
                told[env_id] = why
        if told and self._steps_together:
            told = {env_id: told.get(env_id, next(iter(told.values()))) for env_id in env_ids}
        return told

    def cut_short(self, env_ids: Sequence[int], number: int) -> list[int]:
        """Those of some envs, whose worker is gone, whose step was cut short.

        The others were being reset; they are asked again, under ``number``, for the next worker.
        """
        kinds = {i: int(self._part.kind[i - self._first_id]) for i in env_ids}
        resets = [i for i in env_ids if kinds[i] & RESET]
        steps = [i for i in env_ids if not kinds[i] & RESET]
        again = [*resets, *(i for i in steps if self._is_reset_anyway(i))]
        self._part.ask_again(again, number)
        return [i for i in steps if i not in again]

    def without(self, order: Order, env_ids: Sequence[int], left_out: Mapping[int, Any]) -> Order:
        """An order of all but some of its envs."""
        kept = [i for i, env_id in enumerate(env_ids) if env_id not in left_out]
        numbers = np.broadcast_to(order.numbers, len(env_ids))[kept]
        seeds = np.broadcast_to(order.seeds, len(env_ids))[kept]
        ids = np.array([env_ids[i] for i in kept], np.int64)
        return order._replace(env_ids=ids, numbers=numbers, seeds=seeds)

    def in_place_of_step(self, order: Order, env_ids: Sequence[int], number: int) -> Order:
        """What a worker is to do with envs that cannot be stepped, since they replace lost ones."""
        kind = (RESET if self.needs_reset else NOTHING) | (order.kind & SINGLY)
        return Order(kind, order.buffer, number, np.array(env_ids, np.int64))

    def close_once_answered(self, env_id: int, fault: dict[str, Any]) -> None:
        """Close an env's step with the last observation known, once it has answered.

        In the same-step mode its row then shows the next episode already.
        """
        if env_id not in self.closing:
            buffer = self._buffers[env_id - self._first_id]
            self._restore_last(env_id, buffer)
            obs = self._arrays.row(env_id, buffer) if self.needs_reset else None
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
            obs, fault = self.closing.pop(env_id)
            buffer = self._buffers[i]
            arrays.close_rows([env_id], buffer)
            told: list[dict[str, Any]] = [{"fault": fault}]
            if self.needs_reset:
                told.insert(0, {"final_obs": obs, "final_info": {"fault": fault}})
            else:
                arrays.slab.void_rows([env_id], buffer)
            arrays.slab.added[buffer][env_id] = told

    def any_ended(self) -> bool:
        """Whether the last step of an env ended its episode."""
        arrays, ids = self._arrays, self._part.env_ids
        return any(
            bool(arrays.terminated[buffer][env_id] or arrays.truncated[buffer][env_id])
            for env_id, buffer in zip(ids, self._buffers, strict=True)
            if buffer != _NEVER
        )

    def seeds_after(self, seeds: Sequence[int | None], attempt: int) -> tuple[int | None, ...]:
        """Seeds for the envs of a new worker: those of the lost one would repeat what lost it."""
        return tuple(derived_seed(seed, attempt) for seed in seeds)

    def replacing(
        self, assignment: Assignment, seeds: tuple[int | None, ...], first_requests: int
    ) -> Assignment:
        """What a worker is told that replaces one that was lost."""
        return replace(assignment, replaces=seeds, first_requests=first_requests)

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
