"""What is known of a run at one moment, as plain data that views are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from rookery.run.log.curve import EvaluationPoint

Floats = npt.NDArray[np.float64]


class Series(NamedTuple):
    """One quantity over another, float64 ``[N]`` each, ``x`` increasing, both finite."""

    x: Floats
    y: Floats


NO_SERIES = Series(np.zeros(0), np.zeros(0))


@dataclass(frozen=True)
class RunState:
    """How a run stands.

    Attributes:
        kind: ``"starting"``: nothing was written yet; ``"running"``; ``"finished"``: it has made
            all its steps; ``"stopped"``: it ended in good order before; ``"lost"``: its process is
            gone and has not closed it.
        text: the same in a few words, with the reason where files tell it.
    """

    kind: Literal["starting", "running", "finished", "stopped", "lost"]
    text: str

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to come, unless the run is resumed."""
        return self.kind in ("finished", "stopped", "lost")


@dataclass(frozen=True)
class TimeSplit:
    """Where the time of training went.

    Attributes:
        seconds: that are split.
        parts: seconds by name, in the order in which they are shown; together ``seconds``.
        beside: seconds by name that workers spent at the same time, in the mean.
    """

    seconds: float
    parts: Mapping[str, float]
    beside: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class EnvFigures:
    """What each env has cost so far, float64 ``[N]`` each; NaN where it is not known.

    Attributes:
        worker: place of its worker among the workers.
        steps: env steps.
        episodes: that ended.
        step_mean_s: mean time of a step; likewise median, 99th percentile and resets.
        wait_s: time in which its worker had no action for it.
        straggler_share: share of the vector steps that it held up, as the last to end.
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
        """Places of the envs with the longest mean steps, the longest first."""
        order = np.argsort(-np.nan_to_num(self.step_mean_s, nan=-1.0), kind="stable")
        return [int(place) for place in order[:most]]


@dataclass(frozen=True)
class ProcessFigures:
    """A process of a run; NaN stands for what is not known.

    Attributes:
        name: what it is, such as ``worker 2``.
        envs: which envs it steps, in words.
        busy_share: share of the time in which it stepped envs.
        cpu_percent: of one core.
        rss_bytes: memory that it holds.
        rss_bytes_per_hour: by how much that grows.
        threads: of the process.
        descriptors: open ones.
        restarts: how often the worker was replaced.
        restart_causes: why, in words.
        in_caller: whether it is the caller's own share of the envs, and no process of its own.
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
    """What telemetry.jsonl tells.

    Attributes:
        envs: as of its last line; None where there are none in it.
        processes: workers, then the caller.
        memory: bytes of all processes together, over seconds of training.
        memory_per_hour: by how much that grows; NaN where it is not known.
        balance: busiest worker over the mean of all workers; 1 is even, NaN not known.
    """

    envs: EnvFigures | None
    processes: Sequence[ProcessFigures]
    memory: Series
    memory_per_hour: float
    balance: float


@dataclass(frozen=True)
class RunFigures:
    """A run at one moment.

    Attributes:
        path: its folder.
        title: env, algorithm and seed.
        state: how it stands.
        step: env steps so far.
        total_steps: to be made; None where it is not known.
        seconds: of training so far.
        left_s: how long it will probably take yet; None where nobody can tell.
        age_s: seconds since the last line of metrics; None before the first.
        speed: recent env steps per second; NaN before two lines.
        speed_mean: since training began.
        speeds: env steps per second between lines, over env steps.
        returns: mean return of recent episodes, over env steps.
        episodes: that ended.
        evaluations: env step, mean and standard deviation of each.
        time_split: of the recent past; None before the first line.
        faults: counts by name, of those that there were.
        lag: mean and largest policy lag; None where the policy does not lag.
        telemetry: None where there is none.
        notes: what else is to be told, a sentence each.
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
