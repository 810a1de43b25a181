"""Draw plots once before all tests, because matplotlib then keeps its font files open."""

from __future__ import annotations

import io

import pytest

from benchmarks.speed_up_model import PROCESSES, THREADS, Costs, Place, Point
from benchmarks.speed_up_picture import draw_speed_up
from benchmarks.synthetic import WAIT
from rookery.bench.picture import draw_throughput
from rookery.bench.throughput import Row
from rookery.vector.auto.plans import Measurement


@pytest.fixture(scope="session", autouse=True)
def fonts_are_open() -> None:
    cost = Measurement(1e-3, 1e-3, 1e-2, 0.0, 0.0, 0.0, 1e-4)
    costs = [Costs(WAIT, step_s, step_s, cost) for step_s in (1e-4, 1e-2)]
    place = Place(PROCESSES, 8), Place(THREADS, 8)
    points = [Point(WAIT, 1e-4, 1e-4, each, 8, 4.0, 3.0, 5.0, 4.0) for each in place]
    draw_speed_up(io.BytesIO(), points, costs, 8, 2)
    draw_throughput(io.BytesIO(), "env", [Row("rookery serial", 8, 1.0, 1.0, 1.0)], {})
