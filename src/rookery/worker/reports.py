"""Reports: errors about a worker that has died, hangs or cannot build its envs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gymnasium.vector import AutoresetMode

from rookery.common.env_errors import describe, which_envs
from rookery.common.seeding import remember_seeds
from rookery.errors import RookeryError, WorkerDied, WorkerError, WorkerTimeout
from rookery.shared.arrays import BatchArrays
from rookery.shared.stopwatch import EPISODES, EXTRA, RESETS
from rookery.worker.channel import TornError
from rookery.worker.failures import Failure
from rookery.worker.orders import OrderPart
from rookery.worker.protocol import Worker

_OF_IMPORTS = ("ModuleNotFoundError", "ImportError", "AttributeError")


class Reports:
    """Creates the errors about the workers of some envs.

    Args:
        env_ids: the indices of the envs in the vector env.
        env_name: name of the envs in messages.

    Attributes:
        env_ids: the indices of the envs in the vector env.
        seeds: for each env, the seed of its last reset.
    """

    def __init__(self, env_ids: range, env_name: str) -> None:
        self.env_ids = env_ids
        self.seeds: list[int | None] = [None] * len(env_ids)
        self._steps_together = self._resets_at_ends = False
        self._last_action: Callable[[int], Any] | None = None
        self._name = env_name
        self._memory: tuple[OrderPart, BatchArrays] | None = None
        self._anew: tuple[Sequence[int | None], Any] | None = None

    def attach(
        self,
        part: OrderPart,
        arrays: BatchArrays,
        autoreset_mode: AutoresetMode,
        steps_together: bool,
    ) -> None:
        """Set where to look up what the envs were doing.

        Args:
            part: the orders of these envs.
            arrays: the arrays of all envs of the vector env.
            autoreset_mode: autoreset mode of the vector env.
            steps_together: whether one call steps all of these envs, so that all fail together.
        """
        self._memory = part, arrays
        self._resets_at_ends = autoreset_mode is AutoresetMode.SAME_STEP
        self._steps_together = steps_together

    def note_seeds(self, seeds: Sequence[int | None], mask: Sequence[bool] | None) -> None:
        """Remember the seeds of a reset."""
        remember_seeds(self.seeds, seeds, mask)

    def find_actions(self, last_action: Callable[[int], Any]) -> None:
        """Set how to find the actions of a policy that acts in the worker.

        Args:
            last_action: returns the action of the latest step of an env, by env id.
        """
        self._last_action = last_action

    def begin_anew(self, seeds: Sequence[int | None]) -> None:
        """Start counting for a worker that replaces a lost one.

        Args:
            seeds: for each env, the seed of the worker's first reset.
        """
        self._anew = seeds, self._carried_out()

    def since_restart(self, env_id: int) -> tuple[int | None, int] | None:
        """Return how an env began with the present worker, or None if it is the first worker.

        Returns:
            The seed of the env's first reset if that reset has no seed, and the number of the env's
            orders that the worker has carried out. A step that hangs, fails or crashes counts; such
            a reset does not.
        """
        if self._anew is None:
            return None
        seeds, before = self._anew
        i = env_id - self.env_ids.start
        return seeds[i], int(self._carried_out()[i] - before[i])

    def _carried_out(self) -> Any:
        """Return the orders that each env has carried out, int64 ``[k]``."""
        assert self._memory is not None
        part, arrays = self._memory
        envs = slice(self.env_ids.start, self.env_ids.stop)
        words, watched = arrays.counters.words[envs], arrays.counters
        orders = part.progress[1] + words[:, EXTRA] + words[:, RESETS]
        orders = orders + watched.resets[envs].sum(axis=1)
        return orders - words[:, EPISODES] if self._resets_at_ends else orders

    def died(self, worker: Worker, command: str, error: BaseException | None = None) -> WorkerDied:
        """Return the error of a worker that has exited. ``error``: a TornError if this ended it."""
        was_torn = isinstance(error, TornError)
        end = "was killed: an interruption cut a message short" if was_torn else ""
        ids = self.env_ids
        which = f"env {ids[0]}" if len(ids) == 1 else f"envs {ids[0]}-{ids[-1]}"
        busy = -1 if self._memory is None else abs(self._memory[0].progress[0]) - 1
        is_one = busy >= 0 and not self._steps_together
        doing = f"{command} of env {busy}" if is_one else command
        return WorkerDied(
            f"The worker {worker.kind} {worker.pid} of {which} ({self._name}) "
            f"{end or worker.end_in_words()} during {doing}. "
            "Its last output may show the cause.",
            env_ids=sorted(ids, key=lambda env_id: env_id != busy),
            command=command,
            **self._circumstances(busy),
        )

    def timed_out(self, worker: Worker, env_id: int, command: str, limit_s: float) -> WorkerTimeout:
        """Return the error of an env that is late. Kill the worker before raising it."""
        circumstances = self._circumstances(env_id)  # first: the signal may end the call
        stack = worker.python_stack()
        late = tuple(self.env_ids) if self._steps_together else (env_id,)
        return WorkerTimeout(
            f"{which_envs(late)} ({self._name}) did not finish its {command} within {limit_s} s; "
            f"its worker {worker.kind} {worker.pid} {worker.fate}. "
            f"Where it hung:\n{stack}",
            env_ids=late,
            command=command,
            **circumstances,
        )

    def not_built(self, failure: Failure) -> WorkerError:
        """Return the error of a worker that could not build its envs, if no env was the cause."""
        way_out = ""
        if failure.type_name in _OF_IMPORTS:
            way_out = (
                ". A worker imports the modules of its envs: add their folder to sys.path, use "
                "start_method='fork', or keep the envs in this process with backend='serial' or "
                "backend='thread'"
            )
        error = WorkerError(
            f"{which_envs(self.env_ids)} ({self._name}) could not be built in a worker: "
            f"{failure.type_name}: {failure.message}{way_out}",
            env_ids=self.env_ids,
            command="make",
        )
        error.__cause__ = failure.error().__cause__
        return error

    def gone(self, env_id: int, command: str, cause: Any) -> WorkerDied:
        """Return the error of an env without a worker. ``cause``: why, or None if unknown."""
        reason = str(cause).partition("\n")[0] if cause is not None else "its worker has exited"
        return WorkerDied(
            f"Env {env_id} ({self._name}) was lost with its worker; reset() starts a new one. "
            f"Cause: {reason}",
            env_ids=(env_id,),
            command=command,
        )

    def unreadable(self, command: str, error: Exception) -> WorkerError:
        """Return the error of a message that cannot be unpickled."""
        ids = self.env_ids
        return WorkerError(
            f"{which_envs(ids)} ({self._name}): what their {command} returned or raised in a "
            f"worker cannot be rebuilt in this process: {type(error).__name__}: "
            f"{describe(error, 500)}. It can be pickled but not unpickled; define "
            "__reduce__ for its type so that it can be rebuilt, or return plain data",
            env_ids=ids,
            command=command,
        )

    def _circumstances(self, env_id: int) -> dict[str, Any]:
        """Return seed, steps and last action of an env, for errors."""
        if self._memory is None or env_id < 0:
            return {}
        part, arrays = self._memory
        stepping, steps = part.progress[0] > 0, int(part.progress[1])
        return {
            "seed": self.seeds[env_id - self.env_ids.start],
            "steps_since_reset": int(steps - arrays.reset_at[env_id]),
            "last_action": self._action(arrays, env_id) if stepping else None,
        }

    def _action(self, arrays: BatchArrays, env_id: int) -> Any:
        if self._last_action is not None:
            return self._last_action(env_id)
        return next(arrays.read_actions(range(env_id, env_id + 1)))


def raise_failure(content: Any) -> None:
    """Raise the error that a worker reported, if any."""
    if isinstance(content, Failure):
        raise content.error()
    if isinstance(content, RookeryError):
        raise content
