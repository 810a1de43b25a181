"""Snapshots of the counters of a vector env, and of the resources of its processes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from rookery.common.resources import ProcessFigures
from rookery.worker.fault_policy import RestartCause


@dataclass(frozen=True)
class EnvStatistics:
    """Statistics of one env. Times are in seconds; None means unknown, or unknown so far.

    Attributes:
        env_id: index of the env.
        worker: index of its worker in ``workers``.
        steps: number of steps.
        episodes: number of ended episodes.
        resets: number of resets.
        step_mean_s: mean time of the measured steps: all steps of slow envs, some of fast ones.
        step_p50_s: median time of a step, within 25 %.
        step_p99_s: 99th percentile of the time of a step, within 25 %.
        reset_mean_s: mean time of a reset.
        reset_p99_s: 99th percentile of the time of a reset, within 25 %.
        wait_s: time in which its worker waited for an action.
        straggler_share: share of the steps of all envs that it delayed: its worker was last, and it
            was the slowest env of that worker.
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
    """Statistics of one worker, or of the calling thread if it steps envs.

    The attributes of `ProcessFigures` are None for threads; those of `CallerStatistics` then cover
    their process.

    Attributes:
        pid: process id; for threads and the calling thread the id of this process.
        env_ids: indices of its envs.
        node: machine of the worker; None is this one.
        busy_s: seconds spent stepping.
        in_caller: the calling thread steps the envs.
        restarts: number of times the worker was replaced.
        restart_causes: reasons of the latest replacements.
        straggler_share: share of the steps of all envs in which it was the slowest worker; None
            with a single worker, or before a step of all envs.
        straggler_s: seconds by which it exceeded the mean of all workers in those steps, per step.
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
    """Statistics of the calling process; see `ProcessFigures` for the inherited ones.

    Attributes:
        waited_s: seconds in which it waited for envs without stepping any. For steps that take less
            than a millisecond an estimate from every 37th step.
        look_s: seconds since the processes were measured.
    """

    waited_s: float = 0.0
    look_s: float | None = None


@dataclass(frozen=True)
class Statistics:
    """Statistics of a vector env, or of the workers of a collector; ``print`` shows a table.

    Attributes:
        vector_steps: number of calls of ``step``.
        env_steps: number of steps of single envs by ``step`` and ``send``; in the next-step mode
            including those that reset an env.
        workers: statistics of each worker, and of the calling thread if it steps envs.
        envs: statistics of each env.
        caller: statistics of the calling process.
        seconds: seconds since the vector env was created.
    """

    vector_steps: int
    env_steps: int
    workers: tuple[WorkerStatistics, ...]
    envs: tuple[EnvStatistics, ...] = ()
    caller: CallerStatistics = field(default_factory=CallerStatistics)
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the statistics as JSON data; env attributes are lists, and None is unknown."""
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
        """Return joint statistics with another vector env that the caller steps in the same loop.

        Envs and workers of the other get the following indices. Straggler shares stay relative to
        each vector env.
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
