"""Frozen snapshots of the counters and times of a vector env, and of its processes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from rookery.common.resources import ProcessFigures
from rookery.worker.fault_policy import RestartCause


@dataclass(frozen=True)
class EnvStatistics:
    """Counters and times of one env. Times are seconds; None means not known yet.

    Attributes:
        env_id: index of the env.
        worker: index of its backend in ``Statistics.workers``.
        steps: number of calls of ``step``.
        episodes: number of ended episodes.
        resets: number of calls of ``reset``.
        step_mean_s: mean duration of timed steps: all steps of slow envs, some of fast envs.
        step_p50_s: median duration of timed steps, accurate to 25 %.
        step_p99_s: 99th percentile of the duration of timed steps, accurate to 25 %.
        reset_mean_s: mean duration of a reset.
        reset_p99_s: 99th percentile of the duration of a reset, accurate to 25 %.
        wait_s: time in which its worker had no order from the caller.
        straggler_share: share of vector steps, in 0 to 1, that waited for this env: its worker
            answered last, and the env took longest in that worker.
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
    """Counters and times of one backend, and the resources of its process.

    The attributes of `ProcessFigures` are None for threads and for envs in the calling process; see
    `CallerStatistics` for that process.

    Attributes:
        pid: id of the process that runs the envs; the calling process for threads and for envs
            that the caller steps.
        env_ids: indices of the envs.
        node: machine that runs the envs; None is this one.
        busy_s: seconds spent stepping the envs.
        in_caller: the calling thread steps the envs.
        restarts: number of times the worker was replaced.
        restart_causes: reasons of the latest replacements.
        straggler_share: share of vector steps, in 0 to 1, in which this backend took longest; None
            with a single backend, or if no step of all envs was made.
        straggler_s: its mean excess over the mean duration of all backends, in seconds, over the
            steps in which it took longest.
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
    """Waiting time of the calling process, and its resources; see `ProcessFigures`.

    Attributes:
        waited_s: seconds of waiting for envs, without the time in which the caller stepped envs. If
            steps take less than 1 ms, every 37th is measured and the others are estimated.
        look_s: seconds since the processes were last measured.
    """

    waited_s: float = 0.0
    look_s: float | None = None


@dataclass(frozen=True)
class Statistics:
    """Statistics of a vector env, or of the workers of a collector; ``print`` shows a table.

    Attributes:
        vector_steps: number of calls of ``step``; each steps all envs.
        env_steps: number of steps of single envs, by ``step`` or ``send``. In the next-step mode it
            includes steps that reset an env.
        workers: one entry per worker, and one for the calling thread if it steps envs.
        envs: one entry per env.
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
        """Return plain data for JSON, with one list per statistic of envs; None means not known."""
        others = ("cpu_percent", "threads", "runnable_threads", "descriptors")
        used = ("rss_bytes", "rss_bytes_per_hour", *others)
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
        """Return the statistics of two vector envs that one caller steps in the same loop.

        Envs and workers of ``other`` are numbered after those of this one. Straggler statistics
        remain those within each vector env.
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
