"""``rookery bench --speed-up``."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from rookery.bench.conditions import conditions, load
from rookery.bench.picture import draw_speed_up
from rookery.bench.rounds import Measured
from rookery.bench.sample import Order
from rookery.bench.speed_up import (
    STEP_TIMES_S,
    Asked,
    Costs,
    Point,
    costs_of,
    model_over_cores,
    orders_for,
    places,
    points_of,
    table_of,
)
from rookery.bench.synthetic import COMPUTE
from rookery.cli.arguments import print_result
from rookery.cli.bench import (
    how_far,
    measure_with_progress,
    results_file,
    tell_conditions,
    told_settings,
    write_files,
)
from rookery.common.cpus import usable_cpus
from rookery.errors import ConfigError, RookeryError
from rookery.run.log.terminal import print_table

_COLUMNS = ("envs", "step", "speed-up", "least – most", "model", "model's error", "where")
_NOT_HERE = ("contenders", "num_workers", "start_method", "wrapper", "env_module")


def run(command: Namespace) -> int:
    """Measure speed-ups, compare them with the model, and draw both.

    Raises:
        ConfigError: a flag cannot be combined with ``--speed-up``.
        RookeryError: every measurement failed.
    """
    for name in _NOT_HERE:
        if getattr(command, name):
            flag = name.replace("_", "-")
            raise ConfigError(f"--{flag} cannot be combined with --speed-up; leave it out")
    if len(command.num_envs or [8]) != 1:
        raise ConfigError("--speed-up takes one number of envs, such as --num-envs 8")
    (num_envs,), cpus = command.num_envs or [8], usable_cpus()
    output = results_file(command.output or "bench-speed-up.json")
    asked = orders_for(num_envs, cpus, STEP_TIMES_S, command.warm_up, command.seconds)
    orders = [order for group in asked.values() for order in group]
    where = conditions()
    measured: list[Measured] = []
    try:
        measure_with_progress(orders, command, measured)
    except KeyboardInterrupt:
        points, costs = _report(asked, measured, num_envs, cpus, where)
        if points:
            _write(command, output, where, points, costs)
        raise KeyboardInterrupt(how_far(measured, command)) from None
    points, costs = _report(asked, measured, num_envs, cpus, where)
    if not points:
        failures = {each.failure for each in measured if each.failure}
        raise RookeryError(f"every measurement failed: {'; '.join(sorted(failures))}")
    picture = _write(command, output, where, points, costs)
    worst = max(points, key=lambda point: abs(point.deviation))
    print_result(
        {
            "output": str(output),
            "picture": str(picture),
            "points": len(points),
            "largest_deviation_of_model": worst.deviation,
        }
    )
    return 0


def _write(
    command: Namespace,
    output: Path,
    where: dict[str, Any],
    points: Sequence[Point],
    costs: Sequence[Costs],
) -> Path:
    """Write results and picture; return the path of the picture."""
    num_envs, picture = points[0].num_envs, output.with_suffix(".png")
    content = {
        "num_envs": num_envs,
        "conditions": {**where, "load_average_after": load()},
        "settings": told_settings(command),
        "points": [_told(point) for point in points],
        "model": [_model(each, num_envs) for each in costs],
    }
    cpus = usable_cpus()
    write_files(
        output, content, picture, lambda file: draw_speed_up(file, points, costs, num_envs, cpus)
    )
    return picture


def _report(
    asked: Mapping[Asked, Sequence[Order]],
    measured: Sequence[Measured],
    num_envs: int,
    cpus: int,
    where: dict[str, Any],
) -> tuple[list[Point], list[Costs]]:
    """Print measurements and predictions; return the points and the model's costs."""
    each_in_turn = iter(measured)
    groups = {key: list(islice(each_in_turn, len(orders))) for key, orders in asked.items()}
    costs = costs_of(groups) if measured else []
    points = [
        point
        for each in costs
        for point in points_of(
            each, groups[each.kind, each.asked_s], places(each.kind, num_envs, cpus), num_envs, cpus
        )
    ]
    print_table(_COLUMNS, table_of(points), f"speed-up of {num_envs} envs on {cpus} cores")
    tell_conditions(where)
    for each in measured:
        if each.failure:
            print(f"{each.order.contender.name}, {each.order.subject.name}: failed: {each.failure}")
    return points, costs


def _told(point: Point) -> dict[str, Any]:
    return {**asdict(point), "place": str(point.place), "deviation": point.deviation}


def _model(costs: Costs, num_envs: int) -> dict[str, Any]:
    told = asdict(costs)
    if costs.kind == COMPUTE:
        told["speed_up_by_cores"] = dict(model_over_cores(costs, num_envs))
    return told
