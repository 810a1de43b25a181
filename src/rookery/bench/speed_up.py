"""How much faster several envs step than one after the other, measured, and by a model.

The model is that by which ``backend="auto"`` chooses (`rookery.vector.auto.plans`): a call costs so
much whatever it does, each worker and each env's results cost the caller so much, a round trip so
much, and what envs compute is shared by the cores. With n envs and W workers on as many cores,

    one after the other = call + n * step
    at the same time    = call + n * reading + W * worker + round trip + ceil(n / W) * step

whose ratio is Amdahl's law (1967) with the serial part measured. Its numbers are measured here, the
least of all rounds, so it is a model of this machine with nothing else to do; for more cores than
there are, nobody has measured what follows from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from rookery.bench.contenders import LOOP, SERIAL, Contender
from rookery.bench.rounds import Measured
from rookery.bench.sample import Order
from rookery.bench.synthetic import COMPUTE, WAIT, synthetic
from rookery.bench.throughput import ratio_of
from rookery.vector.auto.plans import Machine, Measurement, Wishes, make_plans, thread_plan

Asked: TypeAlias = "tuple[str, float]"  # kind of env, and the time that a step is to take

STEP_TIMES_S = (1e-5, 1e-4, 1e-3, 1e-2)
PROBE = "probe"
PROCESSES, CALLER, THREADS = "processes", "processes and caller", "threads"
_PLENTY = 2**50  # bytes: memory is not what is asked about


@dataclass(frozen=True)
class Place:
    """Where envs are stepped at the same time.

    Attributes:
        how: in processes, in processes and the caller, or in threads.
        at_once: how many of them, the caller included.
    """

    how: str
    at_once: int

    def contender(self) -> Contender:
        """Who measures it."""
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
    """A speed-up that was measured, beside what the model says of it.

    Attributes:
        kind: whether envs compute or wait.
        asked_s: what a step was to take.
        step_s: what it takes.
        place: where envs were stepped.
        num_envs: how many.
        measured: median over the rounds.
        low: the least.
        high: the largest.
        model: what the model says.
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
        """How much more the model says than was measured, as a share of that."""
        return self.model / self.measured - 1


@dataclass(frozen=True)
class Costs:
    """What the model needs to know of one kind of env, and of one time of a step.

    Attributes:
        kind: whether envs compute or wait.
        asked_s: what a step was to take.
        step_s: what it takes in a plain loop.
        measurement: of the env, and of what talking to it costs.
    """

    kind: str
    asked_s: float
    step_s: float
    measurement: Measurement


def places(kind: str, num_envs: int, cpus: int) -> list[Place]:
    """Where envs of a kind are stepped: those that compute on cores, those that wait at once."""
    if kind == WAIT:
        return [Place(PROCESSES, num_envs), Place(THREADS, num_envs)]
    counts = sorted({min(count, num_envs, cpus) for count in _doublings(cpus)} - {1})
    found = [Place(PROCESSES, count) for count in counts]
    return [*found, Place(CALLER, min(cpus, num_envs))] if cpus > 1 else [Place(PROCESSES, 1)]


def orders_for(
    num_envs: int, cpus: int, step_times_s: Sequence[float], warm_up_s: float, seconds: float
) -> dict[Asked, list[Order]]:
    """All that is measured, by env: kind, and the time that a step is to take.

    What talking costs is probed once for each kind: where envs compute, with the shortest step,
    which shows it best; where they wait, with a step for which whoever waits goes to sleep.
    """
    probed = {(COMPUTE, min(step_times_s)), (WAIT, sorted(step_times_s)[len(step_times_s) // 2])}
    found: dict[Asked, list[Order]] = {}
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
                Order(subject, contender, num_envs, warm_up_s, seconds) for contender in contenders
            ]
    return found


def costs_of(groups: Mapping[Asked, Sequence[Measured]]) -> list[Costs]:
    """What the model needs to know of each env, as far as it was measured."""
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
    """The least of each number that a contender's samples have; empty if there is no sample."""
    samples = [
        sample
        for each in group
        if each.order.contender.name == contender
        for sample in each.samples.values()
    ]
    return {name: min(sample[name] for sample in samples) for name in samples[0]} if samples else {}


def model_speed_up(measurement: Measurement, num_envs: int, place: Place, cpus: int) -> float:
    """What the model says of envs that are stepped in a place, against one after the other.

    Args:
        measurement: of one env, and of talking to it.
        num_envs: how many.
        place: where.
        cpus: cores that there are.
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
    """The model with as many processes as cores, from one to one for each env."""
    return [
        (cores, model_speed_up(costs.measurement, num_envs, Place(PROCESSES, cores), cores))
        for cores in range(1, num_envs + 1)
    ]


def model_over_waits(
    costs: Sequence[Costs], num_envs: int, how: str, cpus: int, points: int = 60
) -> list[tuple[float, float]]:
    """The model of envs that wait, one in each process or thread, by the time of a step.

    What they compute is that of the shortest step.
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
    """The speed-ups that were measured of one env, each beside what the model says."""
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
    """Cells: the env, its step, where, the speed-up, its spread, the model's, its deviation."""
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
    """A time in the unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def _waiting(measurement: Measurement, step_s: float) -> Measurement:
    """The same with a step that takes so long, nearly all of it waiting."""
    return replace(measurement, waiting_s=max(step_s - measurement.worker_env_s, 0.0))


def _doublings(last: int) -> list[int]:
    counts = [1]
    while 2 * counts[-1] < last:
        counts.append(2 * counts[-1])
    return [*counts, last]
