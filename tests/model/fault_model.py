"""The model of a vector env whose envs fail: who was stepped, who is lost, who begins anew."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any

from gymnasium.vector import AutoresetMode

from rookery import seeding
from rookery.testing import Fault
from rookery.testing.model import Row, VectorModel

# What fails in the env and leaves its process alive, and what takes the process with it.
SOFT = (
    Fault.RAISE,
    Fault.RAISE_ODD,
    Fault.SYSTEM_EXIT,
    Fault.WRONG_SHAPE,
    Fault.WRONG_DTYPE,
    Fault.NO_TUPLE,
    Fault.NO_REWARD,
)
DEADLY = (Fault.KILL, Fault.EXIT, Fault.SEGFAULT)
HANGS = (Fault.HANG,)  # deadly only where a deadline is set

CAUSE = "<the cause>"  # a sentence, whose words are free


class FaultModel(VectorModel):
    """Steps plain envs, and knows what becomes of those that fail.

    Args:
        env_fns: one callable per env.
        autoreset_mode: what happens when an episode ends.
        workers: the envs of each worker process.
        restarts: whether failed workers are replaced.

    Attributes:
        failed: envs that failed and were not reset since.
        attempts: restarts so far, for each worker.
    """

    def __init__(
        self,
        env_fns: Sequence[Any],
        autoreset_mode: AutoresetMode,
        workers: Sequence[range],
        restarts: bool,
    ) -> None:
        super().__init__(env_fns, autoreset_mode)
        self.workers = tuple(workers)
        self.restarts = restarts
        self.failed: set[int] = set()
        self.attempts = [0] * len(workers)
        self.seeds: list[int | None] = [None] * self.num_envs  # that were given last
        self.attributes: dict[str, list[Any]] = {}
        self._planned: dict[int, int | None] = {}  # seeds of envs that begin anew

    def copy(self) -> FaultModel:
        """A model in the same state, which goes its own way from now on."""
        return deepcopy(self)

    def worker_of(self, i: int) -> int | None:
        """The index of the worker that steps env ``i``; None if the calling process does."""
        return next((w for w, ids in enumerate(self.workers) if i in ids), None)

    def is_autoreset(self, i: int) -> bool:
        """Whether the next step only resets env ``i``."""
        return self.ended[i] and self.autoreset_mode is AutoresetMode.NEXT_STEP

    def begins_anew(self, i: int) -> bool:
        """Whether env ``i`` has replaced one that was lost, and was not reset yet."""
        return i in self._planned

    def asks(self, i: int, action: int, faults: Sequence[int]) -> bool:
        """Whether the action makes env ``i`` commit one of some faults."""
        return action in faults and not self.is_autoreset(i)

    def reset_env(self, i: int, seed: int | None = None, options: Any = None) -> Row:
        planned = self._planned.pop(i, None)
        self.failed.discard(i)
        if seed is not None:
            self.seeds[i] = seed
        return super().reset_env(i, planned if seed is None else seed, options)

    def set_attr(self, name: str, values: Sequence[Any]) -> None:
        self.attributes[name] = list(values)
        super().set_attr(name, values)

    def step_one(self, i: int, action: int) -> Row | None:
        """Step env ``i``; None if it fails."""
        if not self.asks(i, action, SOFT):
            return self.step_env(i, action)
        with suppress(Exception, SystemExit):  # as asked for; the env has counted the step
            self.envs[i].step(action)
        self.failed.add(i)
        return None

    def half_stepped(self, actions: Sequence[int]) -> FaultModel:
        """A copy whose envs were stepped, but not yet reset where that belongs to the step."""
        model = self.copy()
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            model.autoreset_mode = AutoresetMode.DISABLED
        for i, action in enumerate(actions):
            model.step_env(i, action)
        return model

    def step_all(self, actions: Sequence[int], down: set[int]) -> list[Row | None]:
        """Step all envs; None for those that fail, or whose worker does, where nobody restarts it.

        Args:
            actions: one for each env.
            down: workers that are dead already.
        """
        for i, action in enumerate(actions):
            worker = self.worker_of(i)
            fatal = (*DEADLY, *HANGS, *(SOFT if self.restarts else ()))
            if worker is not None and self.asks(i, action, fatal):
                down = down | {worker}
        rows: list[Row | None] = []
        for i, action in enumerate(actions):
            rows.append(None if self.worker_of(i) in down else self.step_one(i, action))
        for worker in down:
            if self.restarts:
                self.attempts[worker] += 1
            for i in self.workers[worker]:
                if self.restarts:
                    rows[i] = self._closed_row(i, worker)
                else:
                    self.failed.add(i)
        return rows

    def begin_anew(self, i: int) -> None:
        """Put a new env in the place of one whose process is gone; attributes are set again."""
        self.envs[i] = self.env_fns[i]()
        for name, values in self.attributes.items():
            self.envs[i].set_wrapper_attr(name, values[i])

    def _closed_row(self, i: int, worker: int) -> Row:
        """What env ``i`` shows after a step in which its worker was lost."""
        attempt, only_reset = self.attempts[worker], self.is_autoreset(i)
        self.begin_anew(i)
        seed = self.seeds[i]
        self._planned[i] = seeding.derived_seed(seed, attempt)
        if only_reset:
            return self.reset_env(i)
        fault = {"cause": CAUSE, "env_ids": tuple(self.workers[worker]), "attempt": attempt}
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            last = self.obs[i]
            row = self.reset_env(i)
            told = [{"final_obs": last, "final_info": {"fault": fault}}, {"fault": fault}]
            return Row(row.obs, truncated=True, infos=[*told, *row.infos])
        self.ended[i] = True
        return Row(self.obs[i], truncated=True, infos=[{"fault": fault}])


def without_causes(info: dict[str, Any]) -> dict[str, Any]:
    """A copy of a batch's info in which every fault's cause is :data:`CAUSE`, if it is a text."""
    info = deepcopy(info)
    for holder in (info, info.get("final_info", {})):
        fault = holder.get("fault") if isinstance(holder, dict) else None
        if fault is None:
            continue
        for k, cause in enumerate(fault["cause"]):
            if isinstance(cause, str) and cause:
                fault["cause"][k] = CAUSE
    return info
