"""The model of speed-ups, in cases with a known result; nothing is measured."""

from __future__ import annotations

import io
from typing import Any

import pytest

from benchmarks.speed_up_model import (
    CALLER,
    PROBE,
    PROCESSES,
    THREADS,
    Costs,
    Place,
    costs_of,
    in_seconds,
    model_over_cores,
    model_over_waits,
    model_speed_up,
    orders_for,
    places,
    points_of,
    table_of,
)
from benchmarks.speed_up_picture import draw_speed_up
from benchmarks.synthetic import COMPUTE, WAIT, synthetic
from rookery.bench.contenders import LOOP, SERIAL, Contender
from rookery.bench.sample import Measured, SampleRequest
from rookery.vector.auto.plans import Measurement


def _costs(step_s: float = 0.0, waiting_s: float = 0.0, **talking: float) -> Measurement:
    names = ("reading_s", "call_s", "worker_s", "round_trip_s")
    return Measurement(
        step_s, step_s, waiting_s, **{**dict.fromkeys(names, 0.0), **talking}
    )  # fmt: skip


# ---------------------------------------------------------------- the model


@pytest.mark.parametrize("cores", [1, 2, 4, 8])
def test_without_communication_the_speed_up_is_the_number_of_cores(cores: int) -> None:
    assert model_speed_up(_costs(1e-3), 8, Place(PROCESSES, cores), cores) == pytest.approx(cores)


def test_the_largest_share_of_envs_determines_the_speed() -> None:
    assert model_speed_up(_costs(1e-3), 8, Place(PROCESSES, 3), 3) == pytest.approx(8 / 3)
    assert model_speed_up(_costs(1e-3), 8, Place(PROCESSES, 5), 5) == pytest.approx(4)


def test_more_processes_than_cores_compute_no_faster() -> None:
    assert model_speed_up(_costs(1e-3), 8, Place(PROCESSES, 8), 2) == pytest.approx(2)


def test_communication_is_the_serial_part_of_amdahls_law() -> None:
    costs = _costs(1e-4, call_s=2e-5, worker_s=5e-6, round_trip_s=3e-5, reading_s=1e-6)
    alone = 2e-5 + 8 * 1e-4
    together = 2e-5 + 4 * 5e-6 + 8e-6 + 3e-5 + 2 * 1e-4
    assert model_speed_up(costs, 8, Place(PROCESSES, 4), 4) == pytest.approx(alone / together)


def test_a_caller_that_steps_a_share_counts_as_one_more() -> None:
    assert model_speed_up(_costs(1e-3), 8, Place(CALLER, 4), 4) == pytest.approx(4)
    talking = _costs(1e-4, round_trip_s=4e-5)
    assert model_speed_up(talking, 8, Place(CALLER, 2), 2) > model_speed_up(
        talking, 8, Place(PROCESSES, 2), 2
    )


@pytest.mark.parametrize("how", [PROCESSES, THREADS])
def test_eight_envs_that_wait_come_near_to_eight_whatever_the_cores(how: str) -> None:
    waiting = _costs(1e-6, waiting_s=1e-2, round_trip_s=1e-4)
    assert 7.8 < model_speed_up(waiting, 8, Place(how, 8), 2) < 8.0
    short = _costs(1e-6, waiting_s=1e-5, round_trip_s=1e-4)
    assert model_speed_up(short, 8, Place(how, 8), 2) < 1.0  # talking costs more than waiting


def test_the_curve_over_cores_begins_below_one_and_never_falls_by_much() -> None:
    costs = Costs(COMPUTE, 1e-3, 1e-3, _costs(1e-3, round_trip_s=5e-5))
    curve = dict(model_over_cores(costs, 8))
    assert list(curve) == list(range(1, 9)) and 0.9 < curve[1] < 1.0 and 7 < curve[8] < 8


def test_the_curve_over_waits_rises_with_the_time_of_a_step() -> None:
    costs = [Costs(WAIT, s, s, _costs(1e-6, s, round_trip_s=1e-4)) for s in (1e-4, 1e-2)]
    steps, speed_ups = zip(*model_over_waits(costs, 8, PROCESSES, 2, points=10), strict=True)
    assert steps[0] == pytest.approx(1e-4) and steps[-1] == pytest.approx(1e-2)
    assert list(speed_ups) == sorted(speed_ups) and speed_ups[-1] > 7.5


# ---------------------------------------------------------------- what is measured


def test_envs_that_compute_are_tried_on_cores_and_those_that_wait_all_at_once() -> None:
    assert [str(place) for place in places(COMPUTE, 8, 6)] == [
        "2 processes", "4 processes", "6 processes", "5 processes and the caller",
    ]  # fmt: skip
    assert [str(place) for place in places(COMPUTE, 8, 2)] == [
        "2 processes", "1 process and the caller",
    ]  # fmt: skip
    assert places(COMPUTE, 8, 1) == [Place(PROCESSES, 1)]
    assert [str(place) for place in places(WAIT, 8, 2)] == ["8 processes", "8 threads"]


def test_communication_is_probed_once_for_each_kind() -> None:
    orders = orders_for(8, 2, (1e-5, 1e-3, 1e-2), 0.1, 0.1)
    probed = [asked for asked, group in orders.items() if group[-1].contender.name == PROBE]
    assert probed == [(COMPUTE, 1e-5), (WAIT, 1e-3)] and len(orders) == 6


def _group(kind: str, step_s: float, **samples: Any) -> list[Measured]:
    def measured(name: str, values: list[dict[str, float]]) -> Measured:
        order = SampleRequest(synthetic(kind, step_s), Contender(name, ""), 8, 0.1, 0.1)
        return Measured(order, dict(enumerate(values)))

    names = {"loop": LOOP, "serial": SERIAL, "probe": PROBE, "two": str(Place(PROCESSES, 2))}
    return [measured(names[key], values) for key, values in samples.items()]


PROBED = {
    "env_s": 1.2e-5, "worker_env_s": 1.1e-5, "waiting_s": 0.0, "reading_s": 1e-7, "call_s": 3e-6,
    "worker_s": 2e-6, "round_trip_s": 5e-5, "core_share": 0.4, "core_back_s": 1e-3,
}  # fmt: skip


def test_costs_are_the_least_of_all_rounds_with_the_step_of_the_plain_loop() -> None:
    busy = {name: 3 * value for name, value in PROBED.items()}
    groups = {
        (COMPUTE, 1e-5): _group(
            COMPUTE, 1e-5, loop=[{"wall_s": 3e-5, "cpu_s": 1e-5}], probe=[busy, PROBED]
        ),
        (COMPUTE, 1e-3): _group(COMPUTE, 1e-3, loop=[{"wall_s": 2e-3, "cpu_s": 1e-3}]),
        (WAIT, 1e-3): _group(WAIT, 1e-3, loop=[{"wall_s": 1e-3, "cpu_s": 1e-5}]),
    }
    short, long, waiting = costs_of(groups)
    assert short.measurement.env_s == pytest.approx(1.2e-5) and short.step_s == 1e-5
    assert long.measurement.env_s == pytest.approx(1e-3 + 2e-6)
    assert long.measurement.worker_env_s == pytest.approx(1e-3 + 1e-6)
    assert long.measurement.round_trip_s == 5e-5 and long.measurement.core_share == 1.0
    assert waiting.measurement.waiting_s == pytest.approx(9.9e-4) and waiting.step_s == 1e-3
    assert long.measurement.waiting_s == 0.0  # what a busy machine takes away is no waiting
    assert costs_of({(COMPUTE, 1e-3): _group(COMPUTE, 1e-3, loop=[], probe=[])}) == []


def test_points_have_the_error_of_the_model() -> None:
    rates = [{"steps_per_second": rate} for rate in (10.0, 20.0, 30.0)]
    twice = [{"steps_per_second": rate} for rate in (15.0, 32.0, 48.0)]
    group = _group(COMPUTE, 1e-3, serial=rates, two=twice)
    costs = Costs(COMPUTE, 1e-3, 1e-3, _costs(1e-3))
    (point,) = points_of(costs, group, [Place(PROCESSES, 2)], 8, 2)
    assert (point.measured, point.low, point.high) == (1.6, 1.5, 1.6)
    assert point.model == pytest.approx(2.0) and point.deviation == pytest.approx(0.25)
    assert table_of([point]) == [
        ("8 that compute", "1 ms", "1.60x", "1.50 – 1.60", "2.00x", "+25%", "2 processes")
    ]
    picture = io.BytesIO()
    draw_speed_up(picture, [point], [costs], 8, 2)
    assert picture.getvalue().startswith(b"\x89PNG")


def test_times_have_a_suitable_unit() -> None:
    assert [in_seconds(s) for s in (1.5, 0.0123, 9.7e-6)] == ["1.5 s", "12.3 ms", "9.7 us"]
