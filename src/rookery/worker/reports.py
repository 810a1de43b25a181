"""Reports: errors about a worker that can no longer speak for itself, in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rookery.common.env_errors import describe, which_envs
from rookery.errors import RookeryError, WorkerDied, WorkerError, WorkerTimeout
from rookery.shared.arrays import BatchArrays
from rookery.shared.stopwatch import EPISODES, EXTRA, RESETS
from rookery.worker.channel import TornError
from rookery.worker.failures import Failure
from rookery.worker.orders import OrderPart
from rookery.worker.protocol import Worker

_OF_IMPORTS = ("ModuleNotFoundError", "ImportError", "AttributeError")


class Reports:
    """Composes the errors about the workers of some envs, with what is known about the envs.

    Args:
        env_ids: the indices of the envs in the vector env.
        env_name: what to call them.

    Attributes:
        env_ids: as given.
        seeds: that the envs were reset with last.
        steps_together: whether a fault of one env is a fault of all.
        resets_at_ends: whether the step that ends an episode resets the env, too.
        last_action: ``env id -> action`` of its latest step, where somebody in the worker decides
            on actions.
    """

    def __init__(self, env_ids: range, env_name: str) -> None:
        self.env_ids = env_ids
        self.seeds: list[int | None] = [None] * len(env_ids)
        self.steps_together = self.resets_at_ends = False
        self.last_action: Callable[[int], Any] | None = None
        self._name = env_name
        self._memory: tuple[OrderPart, BatchArrays] | None = None
        self._anew: tuple[Sequence[int | None], Any] | None = None

    def attach(self, part: OrderPart, arrays: BatchArrays) -> None:
        """Say where to look up what the envs were doing."""
        self._memory = part, arrays

    def begin_anew(self, seeds: Sequence[int | None]) -> None:
        """A worker takes the place of a lost one; ``seeds`` are those of its first resets."""
        self._anew = seeds, self._carried_out()

    def since_restart(self, env_id: int) -> tuple[int | None, int] | None:
        """What the present worker began an env with, if it was not the first one.

        Returns:
            The seed of the env's first reset, should it be given none, and how many of its orders
            the worker has carried out; of one that hangs, fails or crashes, a step counts already,
            a reset does not.
        """
        if self._anew is None:
            return None
        seeds, before = self._anew
        i = env_id - self.env_ids.start
        return seeds[i], int(self._carried_out()[i] - before[i])

    def _carried_out(self) -> Any:
        """Steps and resets of each env, int64 ``[k]``; what one order did counts once."""
        assert self._memory is not None
        part, arrays = self._memory
        own = slice(self.env_ids.start, self.env_ids.stop)
        words, watched = arrays.counters.words[own], arrays.counters
        orders = part.progress[1] + words[:, EXTRA] + words[:, RESETS]
        orders = orders + watched.resets[own].sum(axis=1)
        return orders - words[:, EPISODES] if self.resets_at_ends else orders

    def died(self, worker: Worker, command: str, error: BaseException | None = None) -> WorkerDied:
        """A worker has ended during a command; ``error`` tells whether an interruption ended it."""
        was_torn = isinstance(error, TornError)
        end = "was ended: a message was cut short by an interruption" if was_torn else ""
        ids = self.env_ids
        which = f"env {ids[0]}" if len(ids) == 1 else f"envs {ids[0]}-{ids[-1]}"
        busy = -1 if self._memory is None else abs(self._memory[0].progress[0]) - 1
        is_one = busy >= 0 and not self.steps_together
        doing = f"{command} of env {busy}" if is_one else command
        return WorkerDied(
            f"The worker {worker.kind} {worker.pid} of {which} ({self._name}) "
            f"{end or worker.end_in_words()} during {doing}. "
            "What it printed last may say more.",
            env_ids=sorted(ids, key=lambda env_id: env_id != busy),
            command=command,
            **self._circumstances(busy),
        )

    def timed_out(self, worker: Worker, env_id: int, command: str, limit_s: float) -> WorkerTimeout:
        """An env is late; whoever raises this kills the worker first, as it says."""
        circumstances = self._circumstances(env_id)  # the signal may end what it hangs in
        stack = worker.python_stack()
        late = tuple(self.env_ids) if self.steps_together else (env_id,)
        return WorkerTimeout(
            f"{which_envs(late)} ({self._name}) did not finish its {command} within {limit_s} s; "
            f"its worker {worker.kind} {worker.pid} {worker.fate}. "
            f"Where it hung:\n{stack}",
            env_ids=late,
            command=command,
            **circumstances,
        )

    def not_built(self, failure: Failure) -> WorkerError:
        """A worker could not make its envs, and none of them was the one that failed."""
        way_out = ""
        if failure.type_name in _OF_IMPORTS:
            way_out = (
                ". A worker imports the modules that its envs come from: have them found on "
                "sys.path, or inherited with start_method='fork', or keep the envs in this "
                "process with backend='serial' or backend='thread'"
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
        """An env has no worker any more; ``cause`` is why, None if that is not known."""
        reason = str(cause).partition("\n")[0] if cause is not None else "its worker has ended"
        return WorkerDied(
            f"Env {env_id} ({self._name}) was lost with its worker; reset() starts a new one. "
            f"What had happened: {reason}",
            env_ids=(env_id,),
            command=command,
        )

    def unreadable(self, command: str, error: Exception) -> WorkerError:
        """What has come cannot be unpickled."""
        ids = self.env_ids
        return WorkerError(
            f"{which_envs(ids)} ({self._name}): what their {command} returned or raised in a "
            f"worker cannot be rebuilt in this process: {type(error).__name__}: "
            f"{describe(error, 500)}. It can be pickled but not unpickled; give its type a "
            "__reduce__ that makes it again, or return something plainer",
            env_ids=ids,
            command=command,
        )

    def _circumstances(self, env_id: int) -> dict[str, Any]:
        """What an env was doing when its worker could no longer say so itself."""
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
        if self.last_action is not None:
            return self.last_action(env_id)
        return next(arrays.read_actions(range(env_id, env_id + 1)))


def raise_failure(content: Any) -> None:
    """Raise what a worker has said went wrong, if that is what it has said."""
    if isinstance(content, Failure):
        raise content.error()
    if isinstance(content, RookeryError):
        raise content
