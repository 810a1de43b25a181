"""Frozen snapshots of what a vector env did, and what its processes use."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from rookery.common.resources import ProcessFigures
from rookery.worker.fault_policy import RestartCause


@dataclass(frozen=True)
class EnvStatistics:
    """One env's part. Times are seconds; None is what is not known, or not yet.

    Attributes:
        env_id: which env.
        worker: the place of its backend among ``backends``.
        steps: calls of its ``step``.
        episodes: that have ended.
        resets: calls of its ``reset``.
        step_mean_s: of its steps that were timed: all of slow envs, some of fast ones.
        step_p50_s: their median, within 25 %.
        step_p99_s: what 99 of 100 did not exceed, within 25 %.
        reset_mean_s: of its resets; all are timed.
        reset_p99_s: likewise.
        wait_s: in which whoever steps it had nothing to do, because no action had come.
        straggler_share: of the steps of all envs, the share that it held up: it took longest of the
            envs of the worker that was last.
    """

    env_id: int
    worker: int
    steps: int = 0
    episodes: int = 0
    resets: int = 0
    step_mean_s: float | None = None
    step_p50_s: float | None = None
    step_p99_s: float | None = None
    reset_mean_s: float | None = None
    reset_p99_s: float | None = None
    wait_s: float | None = None
    straggler_share: float | None = None


@dataclass(frozen=True)
class WorkerStatistics(ProcessFigures):
    """One backend's part, and what its process uses, if it has one of its own.

    Attributes:
        pid: the process in which its envs are; the caller's own for threads and for what the
            caller steps itself.
        env_ids: its envs.
        node: the machine on which that is; None is this one.
        busy_s: seconds spent stepping them.
        in_caller: whether the calling thread steps them itself.
        restarts: how often the worker was replaced.
        restart_causes: why, the latest times.
        straggler_share: of the steps of all envs, the share in which it took longest; None where
            there is no other, or nobody waited for all.
        straggler_s: how much longer it took then than all backends in the mean, in seconds per
            step that it held up.

    The attributes of `ProcessFigures` are None for what has no process of its own; then those of
    `CallerStatistics` are what is known.
    """

    pid: int
    env_ids: range
    busy_s: float
    in_caller: bool
    node: str | None = None
    restarts: int = 0
    restart_causes: tuple[RestartCause, ...] = ()
    straggler_share: float | None = None
    straggler_s: float | None = None


@dataclass(frozen=True)
class CallerStatistics(ProcessFigures):
    """The calling process, and what it uses: see `ProcessFigures`.

    Attributes:
        waited_s: seconds that it waited for envs, without those in which it stepped some itself; of
            steps that take less than a millisecond an estimate from every 37th.
        look_s: seconds since the last look at the processes.
    """

    waited_s: float = 0.0
    look_s: float | None = None


@dataclass(frozen=True)
class Statistics:
    """What a vector env, or the workers of a collector, did so far; ``print`` shows a table.

    Attributes:
        vector_steps: calls of ``step``; steps of all envs together.
        env_steps: orders to step single envs, by ``step`` or by ``send``; in the next-step mode
            also those that reset an env instead.
        workers: per worker, and for the calling thread if it steps.
        envs: per env.
        caller: the calling process.
        seconds: since the vector env was made.
    """

    vector_steps: int
    env_steps: int
    workers: tuple[WorkerStatistics, ...]
    envs: tuple[EnvStatistics, ...] = ()
    caller: CallerStatistics = field(default_factory=CallerStatistics)
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data for JSON, per env as lists; None is what is not known."""
        own = ("cpu_percent", "threads", "runnable_threads", "descriptors")
        used = ("rss_bytes", "rss_bytes_per_hour", *own)
        workers = [
            {
                "pid": backend.pid,
                "node": backend.node,
                "env_ids": [backend.env_ids[0], backend.env_ids[-1]],
                "in_caller": backend.in_caller,
                "busy_s": backend.busy_s,
                **{name: getattr(backend, name) for name in used},
                "restarts": backend.restarts,
                "restart_causes": [str(cause) for cause in backend.restart_causes],
                "straggler_share": backend.straggler_share,
                "straggler_s": backend.straggler_s,
            }
            for backend in self.workers
        ]
        caller = {
            "vector_steps": self.vector_steps,
            "env_steps": self.env_steps,
            "waited_s": self.caller.waited_s,
            **{name: getattr(self.caller, name) for name in used},
        }
        envs = {name: [getattr(env, name) for env in self.envs] for name in _PER_ENV}
        return {"envs": envs, "workers": workers, "caller": caller}

    def beside(self, other: Statistics) -> Statistics:
        """One account of this and of other envs that the same caller steps in the same loop.

        The other's envs and workers are counted on from this one's. Who held the others up is known
        among each one's own.
        """
        num_envs, num_backends = len(self.envs), len(self.workers)
        envs = [
            replace(env, env_id=env.env_id + num_envs, worker=env.worker + num_backends)
            for env in other.envs
        ]
        backends = [
            replace(
                backend,
                env_ids=range(backend.env_ids.start + num_envs, backend.env_ids.stop + num_envs),
            )
            for backend in other.workers
        ]
        return Statistics(
            vector_steps=max(self.vector_steps, other.vector_steps),
            env_steps=self.env_steps + other.env_steps,
            workers=(*self.workers, *backends),
            envs=(*self.envs, *envs),
            caller=replace(self.caller, waited_s=self.caller.waited_s + other.caller.waited_s),
            seconds=max(self.seconds, other.seconds),
        )

    def __str__(self) -> str:
        from rookery.vector.statistics.table import table_of

        return table_of(self)


_PER_ENV = (
    "worker",
    "steps",
    "episodes",
    "resets",
    "step_mean_s",
    "step_p50_s",
    "step_p99_s",
    "reset_mean_s",
    "reset_p99_s",
    "wait_s",
    "straggler_share",
)
