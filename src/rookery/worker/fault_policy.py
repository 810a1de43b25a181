"""FaultPolicy: what happens when an env raises, hangs, or takes its process with it."""

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
    """What to do about faults. The default raises an error and sets no deadline.

    Attributes:
        on_fault: ``"raise"`` ends the call with an error; ``"restart"`` replaces the worker, closes
            the running transitions of its envs as truncated, and goes on.
        max_restarts: of one worker within ``window_s``; one more fault raises.
        window_s: seconds over which restarts are counted.
        step_timeout_s: the longest that one env's step may take; None means for ever.
        reset_timeout_s: the longest that one env's reset may take; None means for ever.
        max_worker_rss_mb: a worker whose resident memory exceeds this is replaced when the next
            episode of one of its envs ends; None means never. Needs ``on_fault="restart"``.
        make_timeout_s: the longest that a worker may take to start and build its envs; None means
            for ever.
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
        """Whether faults are survived."""
        return self.on_fault == "restart"

    @property
    def has_deadline(self) -> bool:
        """Whether anything has a deadline."""
        limits = (self.step_timeout_s, self.reset_timeout_s, self.make_timeout_s)
        return any(limit is not None for limit in limits)


@dataclass(frozen=True)
class RestartCause:
    """Why a worker was replaced.

    Attributes:
        fault: the name of the error, ``"EnvFailed"`` for instance, or ``"max_worker_rss_mb"``.
        env_ids: envs that the error names; all of the worker's where it names none.
    """

    fault: str
    env_ids: tuple[int, ...]

    def __str__(self) -> str:
        word = "env" if len(self.env_ids) == 1 else "envs"
        return f"{self.fault} ({word} {', '.join(map(str, self.env_ids))})"


class Awaited(NamedTuple):
    """What a caller waits for while no env is busy.

    A worker can be stopped, or be kept, between its envs' steps too.

    Attributes:
        env_id: an env that waits for it.
        command: "step", "reset", or the method of a request, which has no deadline.
        number: number of the order or request.
    """

    env_id: int
    command: str
    number: int


Late = tuple[int, str, float]  # env, command and time-out in seconds


class Deadlines:
    """Notices an env that steps or resets for too long, and a worker that does neither.

    It watches the progress word of a worker while the caller waits for it. Time counts from when a
    word was first seen, which is later than when it was written: a slow caller, or a busy machine,
    makes no env late.

    Args:
        policy: says how long making, steps and resets may take.
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
        """From now on, a worker has the time that it may take until it serves."""
        self._began = time.perf_counter()

    def late_make(self, env_id: int) -> Late | None:
        """What is late if a worker, of which ``env_id`` is an env, should serve by now."""
        return self._late(env_id, "make", time.perf_counter() - self._began)

    def late(self, progress: Any, awaited: Awaited | None = None) -> Late | None:
        """What is late, if the env noted in ``progress`` is.

        One command may be many steps of the same env: the counts beside the word tell them apart.

        Args:
            progress: of the worker.
            awaited: what is late if no env is busy for so long; None if nothing is.
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
    """How many restarts are left to one worker.

    Args:
        policy: says how many are allowed, and within what time.
    """

    def __init__(self, policy: FaultPolicy) -> None:
        self._policy = policy
        self._times: deque[float] = deque()  # of the restarts within the window

    def spend(self, error: WorkerError) -> None:
        """Note a restart because of ``error``; where none is left, raise it instead.

        Its message says so then, if there were any, or that there could be some.
        """
        now = time.perf_counter()
        while self._times and now - self._times[0] > self._policy.window_s:
            self._times.popleft()
        if self._policy.restarts and len(self._times) < self._policy.max_restarts:
            self._times.append(now)
            return
        told = self._spent() if self._policy.restarts else _way_out(error)
        if not str(error).endswith(told):  # else an interruption has it dealt with once more
            error.args = (f"{error}{told}", *error.args[1:])
        raise error

    def _spent(self) -> str:
        count, window_s = len(self._times), self._policy.window_s
        if not count:
            return ""
        times = "once" if count == 1 else f"{count} times"
        return (
            f". Its worker had been replaced {times} within {window_s:g} s, which is all that "
            f"max_restarts={self._policy.max_restarts} allows"
        )


def _way_out(error: WorkerError) -> str:
    """What would go on although a worker was lost, to be added to what is said of it."""
    if not isinstance(error, WorkerDied | WorkerTimeout):
        return ""
    space = "\n" if "\n" in str(error) else " "  # a stack, or a sentence
    return f'{space}FaultPolicy("restart"), or --on-fault restart, goes on with a new worker.'


class MemoryWatch:
    """Notices a worker that has grown too large.

    Args:
        limit_mb: of resident memory; None means that nobody looks.

    Attributes:
        complaint: what is too large about the present worker; empty if nothing is.
    """

    def __init__(self, limit_mb: float | None) -> None:
        self.complaint = ""
        self._limit_mb = limit_mb
        self._looked = time.perf_counter()

    def forget(self) -> None:
        """Forget the complaint: the worker was replaced."""
        self.complaint = ""

    def look(self, worker: Worker) -> None:
        """Look at a worker's process, unless it is early to do so again."""
        now = time.perf_counter()
        if self._limit_mb is None or self.complaint or now - self._looked <= _MEMORY_CHECK_S:
            return
        self._looked = now
        rss_bytes = worker.use.rss_bytes()
        if rss_bytes is None:  # it has ended, which others notice
            return
        rss_mb = rss_bytes / 2**20
        if rss_mb > self._limit_mb:
            self.complaint = (
                f"Worker process {worker.pid} had {rss_mb:.0f} MiB of resident memory, above "
                f"max_worker_rss_mb={self._limit_mb:g}, and was replaced"
            )
