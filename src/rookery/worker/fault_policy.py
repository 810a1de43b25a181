"""FaultPolicy: deadlines, restarts and memory limits of workers, and how they are watched."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from rookery.common.arguments import check_choice, check_positive, whole_number
from rookery.env.batch import IDLE
from rookery.errors import ConfigError, WorkerDied, WorkerError, WorkerTimeout
from rookery.worker.protocol import Worker

_MEMORY_CHECK_S = 1.0


@dataclass(frozen=True)
class FaultPolicy:
    """Behaviour when an env raises, hangs or kills its process.

    By default an error is raised, and envs may take any time.

    Attributes:
        on_fault: ``"raise"`` raises an error. ``"restart"`` replaces the worker, closes the pending
            steps of its envs as truncated, and continues.
        max_restarts: maximum number of restarts of one worker within ``window_s``. The next fault
            raises an error.
        window_s: seconds over which restarts are counted.
        step_timeout_s: maximum seconds for one step of one env; None means no limit.
        reset_timeout_s: maximum seconds for one reset of one env; None means no limit.
        max_worker_rss_mb: maximum resident memory of a worker in MiB; None means no limit. A larger
            worker is replaced when the next episode of one of its envs ends. Needs
            ``on_fault="restart"``.
        make_timeout_s: maximum seconds for starting a worker and building its envs; None means no
            limit.
    """

    on_fault: Literal["raise", "restart"] = "raise"
    max_restarts: int = 3
    window_s: float = 60.0
    step_timeout_s: float | None = None
    reset_timeout_s: float | None = None
    max_worker_rss_mb: float | None = None
    make_timeout_s: float | None = None

    def __post_init__(self) -> None:
        check_choice("on_fault", self.on_fault, ("raise", "restart"))
        whole_number("max_restarts", self.max_restarts, 0)
        check_positive("window_s", self.window_s)
        for name in ("step_timeout_s", "reset_timeout_s", "make_timeout_s", "max_worker_rss_mb"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))
        if self.max_worker_rss_mb is not None and self.on_fault != "restart":
            raise ConfigError("max_worker_rss_mb replaces workers, which needs on_fault='restart'")

    @property
    def restarts(self) -> bool:
        """True if workers are replaced after faults."""
        return self.on_fault == "restart"

    @property
    def has_deadline(self) -> bool:
        """True if steps, resets or starts have a deadline."""
        limits = (self.step_timeout_s, self.reset_timeout_s, self.make_timeout_s)
        return any(limit is not None for limit in limits)


@dataclass(frozen=True)
class RestartCause:
    """The cause of a worker's replacement.

    Attributes:
        fault: name of the error, for example ``"EnvFailed"``, or ``"max_worker_rss_mb"``.
        env_ids: envs that the error names; all envs of the worker if it names none.
    """

    fault: str
    env_ids: tuple[int, ...]

    def __str__(self) -> str:
        word = "env" if len(self.env_ids) == 1 else "envs"
        return f"{self.fault} ({word} {', '.join(map(str, self.env_ids))})"


class Awaited(NamedTuple):
    """An order or request that the caller waits for.

    It may be late although no env is busy: a worker can be stopped between the steps of its envs.

    Attributes:
        env_id: an env that it concerns.
        command: "step", "reset", or the method of a request, which has no deadline.
        number: number of the order or request.
    """

    env_id: int
    command: str
    number: int


Late = tuple[int, str, float]  # env, command and time-out in seconds


class Deadlines:
    """Detects a step or reset that takes too long, and a worker that does not continue.

    The caller reads the progress words of the worker while it waits. Time counts from the moment
    when the caller first reads a word, which is later than when the worker wrote it. So a slow
    caller or a busy machine does not make an env late.

    Args:
        policy: the time limits.
    """

    def __init__(self, policy: FaultPolicy) -> None:
        self._limits = {
            "make": policy.make_timeout_s,
            "step": policy.step_timeout_s,
            "reset": policy.reset_timeout_s,
        }
        self._seen: Any = None
        self._since = 0.0
        self._began = 0.0

    def begin_make(self) -> None:
        """Start the time limit of a worker that is starting."""
        self._began = time.perf_counter()

    def late_make(self, env_id: int) -> Late | None:
        """Return the deadline that a starting worker, with env ``env_id``, has missed, or None."""
        return self._late(env_id, "make", time.perf_counter() - self._began)

    def late(self, progress: Any, awaited: Awaited | None = None) -> Late | None:
        """Return the deadline that a worker has missed, or None.

        One request may consist of many steps of the same env. The counts beside the progress word
        distinguish these steps.

        Args:
            progress: progress words of the worker.
            awaited: the order or request that is late if no env is busy; None if there is none.
        """
        now = time.perf_counter()
        word, steps, orders = progress
        if (word, steps, orders, awaited) != self._seen:
            self._seen, self._since = (word, steps, orders, awaited), now
        if word != IDLE:
            return self._late(abs(word) - 1, "step" if word > 0 else "reset", now - self._since)
        if awaited is not None:
            return self._late(awaited.env_id, awaited.command, now - self._since)
        return None

    def _late(self, env_id: int, command: str, took_s: float) -> Late | None:
        limit_s = self._limits.get(command)
        if limit_s is None or took_s <= limit_s:
            return None
        return env_id, command, limit_s


class RestartBudget:
    """The restarts of one worker within the time window of its policy.

    Args:
        policy: the limits.
    """

    def __init__(self, policy: FaultPolicy) -> None:
        self._policy = policy
        self._times: deque[float] = deque()  # times of the restarts within the window

    def spend(self, error: WorkerError) -> None:
        """Spend a restart that ``error`` caused, or raise the error if no restart is left.

        The message of the error then says how many restarts there were, or how to allow some.
        """
        now = time.perf_counter()
        while self._times and now - self._times[0] > self._policy.window_s:
            self._times.popleft()
        if self._policy.restarts and len(self._times) < self._policy.max_restarts:
            self._times.append(now)
            return
        hint = self._spent() if self._policy.restarts else _way_out(error)
        if not str(error).endswith(hint):  # after an interruption, the same error comes again
            error.args = (f"{error}{hint}", *error.args[1:])
        raise error

    def _spent(self) -> str:
        count, window_s = len(self._times), self._policy.window_s
        if not count:
            return ""
        times = "once" if count == 1 else f"{count} times"
        return (
            f". Its worker was replaced {times} within {window_s:g} s, which is all that "
            f"max_restarts={self._policy.max_restarts} allows"
        )


def _way_out(error: WorkerError) -> str:
    """Return the sentence that an error about a lost worker ends with."""
    if not isinstance(error, WorkerDied | WorkerTimeout):
        return ""
    space = "\n" if "\n" in str(error) else " "  # a stack, or a sentence
    return f'{space}FaultPolicy("restart"), or --on-fault restart, continues with a new worker.'


class MemoryWatch:
    """Detects a worker that uses too much memory.

    Args:
        limit_mb: maximum resident memory in MiB; None means no limit.

    Attributes:
        complaint: message about the present worker if it is too large, else empty.
    """

    def __init__(self, limit_mb: float | None) -> None:
        self.complaint = ""
        self._limit_mb = limit_mb
        self._looked = time.perf_counter()

    def forget(self) -> None:
        """Forget the complaint: the worker was replaced."""
        self.complaint = ""

    def look(self, worker: Worker) -> None:
        """Measure the memory of a worker, at most once per second."""
        now = time.perf_counter()
        if self._limit_mb is None or self.complaint or now - self._looked <= _MEMORY_CHECK_S:
            return
        self._looked = now
        rss_bytes = worker.use.rss_bytes()
        if rss_bytes is None:  # it has exited, which is detected elsewhere
            return
        rss_mb = rss_bytes / 2**20
        if rss_mb > self._limit_mb:
            self.complaint = (
                f"Worker process {worker.pid} had {rss_mb:.0f} MiB of resident memory, above "
                f"max_worker_rss_mb={self._limit_mb:g}, and was replaced"
            )
