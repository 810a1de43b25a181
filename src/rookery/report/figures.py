"""The state of a run at one moment, as plain data for all views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from rookery.run.log.curve import EvaluationPoint

Floats = npt.NDArray[np.float64]


class Series(NamedTuple):
    """One quantity over another: finite float64 arrays ``[N]``, with increasing ``x``."""

    x: Floats
    y: Floats


NO_SERIES = Series(np.zeros(0), np.zeros(0))


@dataclass(frozen=True)
class RunState:
    """The state of a run: starting, running, or over.

    Attributes:
        kind: ``"starting"``: no metrics yet; ``"running"``; ``"finished"``: all steps were made;
            ``"stopped"``: the run ended normally before its last step; ``"lost"``: its process
            died without closing the run.
        text: description of the state in a few words, with the reason if known.
    """

    kind: Literal["starting", "running", "finished", "stopped", "lost"]
    text: str

    @property
    def is_over(self) -> bool:
        """True if the run writes nothing more unless it is resumed."""
        return self.kind in ("finished", "stopped", "lost")


@dataclass(frozen=True)
class TimeSplit:
    """Training time by activity.

    Attributes:
        seconds: total time.
        parts: seconds of each activity, in display order. Their sum is ``seconds``.
        beside: mean seconds that workers spent on each activity during the same time.
    """

    seconds: float
    parts: Mapping[str, float]
    beside: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class EnvFigures:
    """Statistics of each env, as float64 arrays ``[N]``; NaN for unknown values.

    Attributes:
        worker: index of the worker that runs the env.
        steps: number of env steps.
        episodes: number of ended episodes.
        step_mean_s: mean time of a step, in seconds.
        step_p50_s: median time of a step, in seconds.
        step_p99_s: 99th percentile of the time of a step, in seconds.
        reset_mean_s: mean time of a reset, in seconds.
        reset_p99_s: 99th percentile of the time of a reset, in seconds.
        wait_s: seconds during which the worker waited for an action of the env.
        straggler_share: share of the vector steps in which this env was the last to finish.
    """

    worker: Floats
    steps: Floats
    episodes: Floats
    step_mean_s: Floats
    step_p50_s: Floats
    step_p99_s: Floats
    reset_mean_s: Floats
    reset_p99_s: Floats
    wait_s: Floats
    straggler_share: Floats

    def slowest(self, most: int) -> list[int]:
        """Return the indices of the envs with the longest mean step times, longest first."""
        order = np.argsort(-np.nan_to_num(self.step_mean_s, nan=-1.0), kind="stable")
        return [int(place) for place in order[:most]]


@dataclass(frozen=True)
class ProcessFigures:
    """Statistics of a process of a run; NaN for unknown values.

    Attributes:
        name: name of the process, such as ``worker 2``.
        envs: indices of its envs, as text.
        busy_share: share of the time during which the process stepped envs.
        cpu_percent: CPU load, in percent of one core.
        rss_bytes: resident memory.
        rss_bytes_per_hour: growth of the resident memory.
        threads: number of threads.
        descriptors: number of open file descriptors.
        restarts: number of times that the worker was replaced.
        restart_causes: reason of each replacement, as text.
        in_caller: True if the envs run in the caller's process instead of a worker process.
    """

    name: str
    envs: str
    busy_share: float
    cpu_percent: float
    rss_bytes: float
    rss_bytes_per_hour: float
    threads: float
    descriptors: float
    restarts: int
    restart_causes: Sequence[str]
    in_caller: bool = False


@dataclass(frozen=True)
class TelemetryFigures:
    """Statistics from telemetry.jsonl.

    Attributes:
        envs: statistics of the envs in the last line; None if the line has none.
        processes: the workers, then the caller.
        memory: total bytes of all processes, over seconds of training.
        memory_per_hour: growth of the total memory, in bytes; NaN if unknown.
        balance: busy time of the busiest worker, divided by the mean of all workers. 1 is even;
            NaN if unknown.
    """

    envs: EnvFigures | None
    processes: Sequence[ProcessFigures]
    memory: Series
    memory_per_hour: float
    balance: float


@dataclass(frozen=True)
class RunFigures:
    """All figures of a run at one moment.

    Attributes:
        path: folder of the run.
        title: env, algorithm and seed.
        state: state of the run.
        step: number of env steps so far.
        total_steps: number of env steps of the whole run; None if unknown.
        seconds: training time so far.
        left_s: estimated remaining seconds; None if unknown.
        age_s: seconds since the last line of metrics; None before the first line.
        speed: recent env steps per second; NaN before the second line.
        speed_mean: mean env steps per second since training began.
        speeds: env steps per second between lines, over env steps.
        returns: mean return of recent episodes, over env steps.
        episodes: number of ended episodes.
        evaluations: env step, mean and standard deviation of each evaluation.
        time_split: recent training time by activity; None before the first line.
        faults: count of each kind of fault that occurred.
        lag: mean and largest policy lag; None if the collector has no policy lag.
        telemetry: statistics from telemetry.jsonl; None if the file has no line.
        notes: further warnings, one sentence each.
    """

    path: str
    title: str
    state: RunState
    step: int = 0
    total_steps: int | None = None
    seconds: float = 0.0
    left_s: float | None = None
    age_s: float | None = None
    speed: float = float("nan")
    speed_mean: float = float("nan")
    speeds: Series = NO_SERIES
    returns: Series = NO_SERIES
    episodes: int = 0
    evaluations: Sequence[EvaluationPoint] = ()
    time_split: TimeSplit | None = None
    faults: Mapping[str, int] = field(default_factory=dict)
    lag: tuple[float, float] | None = None
    telemetry: TelemetryFigures | None = None
    notes: Sequence[str] = ()
