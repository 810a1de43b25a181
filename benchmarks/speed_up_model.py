"""The speed-up of parallel over serial stepping, measured and predicted by a model.

The model is that of ``backend="auto"`` (`rookery.vector.auto.plans`). It has a fixed cost per call,
costs of the caller per worker and per env, the cost of a round trip, and the step time of envs,
which is divided among the cores. With n envs and W workers on W cores,

    serial   = call + n * step
    parallel = call + n * reading + W * worker + round trip + ceil(n / W) * step

The ratio is Amdahl's law (1967) with a measured serial part. Each cost is the minimum over all
rounds, so that the model describes an otherwise idle machine. Predictions for more cores than the
machine has are not verified.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from benchmarks.synthetic import COMPUTE, WAIT, synthetic
from rookery.bench.contenders import LOOP, SERIAL, Contender
from rookery.bench.sample import Measured, SampleRequest
from rookery.bench.throughput import ratio_of
from rookery.vector.auto.plans import Machine, Measurement, Wishes, make_plans, thread_plan

Asked: TypeAlias = "tuple[str, float]"  # kind of env, and requested step time in seconds

STEP_TIMES_S = (1e-5, 1e-4, 1e-3, 1e-2)
PROBE = "probe"
PROCESSES, CALLER, THREADS = "processes", "processes and caller", "threads"
_PLENTY = 2**50  # bytes: the model ignores memory limits


@dataclass(frozen=True)
class Place:
    """A set of processes or threads that step envs in parallel.

    Attributes:
        how: processes, processes and the caller, or threads.
        at_once: number of processes or threads, including the caller.
    """

    how: str
    at_once: int

    def contender(self) -> Contender:
        """Return the contender that measures this place."""
        if self.how == THREADS:
            options: dict[str, Any] = {"backend": "thread", "num_workers": self.at_once}
        else:
            has_caller = self.how == CALLER
            workers = self.at_once - has_caller
            options = {"backend": "process", "num_workers": workers, "caller_steps": has_caller}
        return Contender(str(self), "rookery", options)

    def __str__(self) -> str:
        if self.how == CALLER:
            workers = self.at_once - 1
            return f"{workers} process{'es' if workers > 1 else ''} and the caller"
        return f"{self.at_once} {self.how}"


@dataclass(frozen=True)
class Point:
    """A measured speed-up and its prediction.

    Attributes:
        kind: kind of envs, ``"compute"`` or ``"wait"``.
        asked_s: requested step time in seconds.
        step_s: measured step time in seconds.
        place: place where envs were stepped.
        num_envs: number of envs.
        measured: median speed-up over the rounds.
        low: smallest speed-up.
        high: largest speed-up.
        model: predicted speed-up.
    """

    kind: str
    asked_s: float
    step_s: float
    place: Place
    num_envs: int
    measured: float
    low: float
    high: float
    model: float

    @property
    def deviation(self) -> float:
        """Relative error of the prediction."""
        return self.model / self.measured - 1


@dataclass(frozen=True)
class Costs:
    """The costs in the model for one kind of env and one step time.

    Attributes:
        kind: kind of envs, ``"compute"`` or ``"wait"``.
        asked_s: requested step time in seconds.
        step_s: step time in a plain loop, in seconds.
        measurement: measured costs of the env and of communication.
    """

    kind: str
    asked_s: float
    step_s: float
    measurement: Measurement


def places(kind: str, num_envs: int, cpus: int) -> list[Place]:
    """Return the places to measure: up to one process per core, or one per waiting env."""
    if kind == WAIT:
        return [Place(PROCESSES, num_envs), Place(THREADS, num_envs)]
    counts = sorted({min(count, num_envs, cpus) for count in _doublings(cpus)} - {1})
    found = [Place(PROCESSES, count) for count in counts]
    return [*found, Place(CALLER, min(cpus, num_envs))] if cpus > 1 else [Place(PROCESSES, 1)]


def orders_for(
    num_envs: int, cpus: int, step_times_s: Sequence[float], warm_up_s: float, seconds: float
) -> dict[Asked, list[SampleRequest]]:
    """Return all orders, by kind of env and requested step time.

    Communication is probed once per kind: for envs that compute, with the shortest step, where its
    share is largest; for envs that wait, with a step long enough that the caller goes to sleep.
    """
    probed = {(COMPUTE, min(step_times_s)), (WAIT, sorted(step_times_s)[len(step_times_s) // 2])}
    found: dict[Asked, list[SampleRequest]] = {}
    for kind in (COMPUTE, WAIT):
        for step_s in step_times_s:
            contenders = [
                Contender(LOOP, "loop"),
                Contender(SERIAL, "rookery", {"backend": "serial"}),
                *(place.contender() for place in places(kind, num_envs, cpus)),
            ]
            if (kind, step_s) in probed:
                contenders.append(Contender(PROBE, "probe"))
            subject = synthetic(kind, step_s)
            found[kind, step_s] = [
                SampleRequest(subject, contender, num_envs, warm_up_s, seconds)
                for contender in contenders
            ]
    return found


def costs_of(groups: Mapping[Asked, Sequence[Measured]]) -> list[Costs]:
    """Return the costs of each env that was measured."""
    loops = {asked: least(group, LOOP) for asked, group in groups.items()}
    probes = {asked: least(group, PROBE) for asked, group in groups.items()}
    base = next((a for a in groups if a[0] == COMPUTE and probes[a] and loops[a]), None)
    if base is None:
        return []
    beside = {
        name: max(probes[base][name] - loops[base]["cpu_s"], 0.0)
        for name in ("env_s", "worker_env_s")
    }
    found = []
    for (kind, asked_s), loop in loops.items():
        talks = (probes[asked] for asked in groups if asked[0] == kind and probes[asked])
        talk = next(talks, probes[base])
        if loop:
            waiting_s = max(loop["wall_s"] - loop["cpu_s"], 0.0) if kind == WAIT else 0.0
            measurement = Measurement(
                env_s=loop["cpu_s"] + beside["env_s"],
                worker_env_s=loop["cpu_s"] + beside["worker_env_s"],
                waiting_s=waiting_s,
                reading_s=probes[base]["reading_s"],
                call_s=probes[base]["call_s"],
                worker_s=talk["worker_s"],
                round_trip_s=talk["round_trip_s"],
            )
            step_s = loop["cpu_s"] + waiting_s
            found.append(Costs(kind, asked_s, step_s, measurement))
    return found


def least(group: Sequence[Measured], contender: str) -> dict[str, float]:
    """Return the minimum of each number over the samples of a contender; empty without samples."""
    samples = [
        sample
        for each in group
        if each.order.contender.name == contender
        for sample in each.samples.values()
    ]
    return {name: min(sample[name] for sample in samples) for name in samples[0]} if samples else {}


def model_speed_up(measurement: Measurement, num_envs: int, place: Place, cpus: int) -> float:
    """Return the predicted speed-up of a place over serial stepping.

    Args:
        measurement: measured costs of an env and of communication.
        num_envs: number of envs.
        place: place where envs are stepped.
        cpus: number of cores.
    """
    machine = Machine(cpus, float(cpus), _PLENTY)
    has_caller = place.how == CALLER
    wishes = Wishes(place.at_once - has_caller, has_caller)
    plans = {plan.backend: plan for plan in make_plans(num_envs, measurement, machine, wishes)}
    if place.how == THREADS:
        together = thread_plan(num_envs, measurement, machine)
    else:
        together = plans["process"]
    return plans["serial"].predicted_s / together.predicted_s


def model_over_cores(costs: Costs, num_envs: int) -> list[tuple[int, float]]:
    """Return the predicted speed-up for each number of cores up to one per env."""
    return [
        (cores, model_speed_up(costs.measurement, num_envs, Place(PROCESSES, cores), cores))
        for cores in range(1, num_envs + 1)
    ]


def model_over_waits(
    costs: Sequence[Costs], num_envs: int, how: str, cpus: int, points: int = 60
) -> list[tuple[float, float]]:
    """Return the predicted speed-up of waiting envs, one per process or thread, by step time.

    Their CPU time is that of the shortest step.
    """
    typical = min(costs, key=lambda each: each.step_s).measurement
    first, last = (math.log10(end(each.step_s for each in costs)) for end in (min, max))
    steps = [10 ** (first + (last - first) * i / (points - 1)) for i in range(points)]
    place = Place(how, num_envs)
    return [
        (step_s, model_speed_up(_waiting(typical, step_s), num_envs, place, cpus))
        for step_s in steps
    ]


def points_of(
    costs: Costs, measured: Sequence[Measured], found: Sequence[Place], num_envs: int, cpus: int
) -> list[Point]:
    """Return the measured speed-ups of one env with their predictions."""
    by_name = {each.order.contender.name: each for each in measured}
    serial = by_name[SERIAL].values()
    points = []
    for place in found:
        values = by_name[str(place)].values()
        ratio = ratio_of(values, serial)
        if ratio is None:
            continue
        ratios = [values[turn] / serial[turn] for turn in values if turn in serial]
        model = model_speed_up(costs.measurement, num_envs, place, cpus)
        points.append(
            Point(
                costs.kind, costs.asked_s, costs.step_s, place, num_envs, ratio, min(ratios),
                max(ratios), model,
            )
        )  # fmt: skip
    return points


def table_of(points: Sequence[Point]) -> list[tuple[str, ...]]:
    """Return rows of cells: env, step time, speed-up, spread, model, error, place."""
    return [
        (
            f"{point.num_envs} that {point.kind}",
            in_seconds(point.step_s),
            f"{point.measured:.2f}x",
            f"{point.low:.2f} – {point.high:.2f}",
            f"{point.model:.2f}x",
            f"{point.deviation:+.0%}",
            str(point.place),
        )
        for point in points
    ]


def in_seconds(seconds: float) -> str:
    """Return a time as text with a suitable unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def _waiting(measurement: Measurement, step_s: float) -> Measurement:
    """Return a copy of a measurement whose step waits for most of ``step_s``."""
    return replace(measurement, waiting_s=max(step_s - measurement.worker_env_s, 0.0))


def _doublings(last: int) -> list[int]:
    counts = [1]
    while 2 * counts[-1] < last:
        counts.append(2 * counts[-1])
    return [*counts, last]
