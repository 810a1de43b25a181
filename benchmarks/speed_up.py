"""Measure the speed-up of parallel over serial stepping for synthetic envs.

    python -m benchmarks.speed_up [--num-envs 8] [--rounds 5]

The envs compute or wait, for 10 us to 10 ms per step. A model of the costs predicts each point.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.speed_up_model import (
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
from benchmarks.speed_up_picture import draw_speed_up
from benchmarks.synthetic import COMPUTE
from rookery.bench.conditions import conditions, load
from rookery.bench.sample import Measured, SampleRequest
from rookery.cli.arguments import checked_output
from rookery.cli.bench import (
    measure_with_progress,
    print_conditions,
    progress_of,
    write_files,
)
from rookery.common.cpus import usable_cpus
from rookery.errors import RookeryError
from rookery.run.log.terminal import print_table

_COLUMNS = ("envs", "step", "speed-up", "least – most", "model", "model's error", "where")
_SETTINGS = ("rounds", "seconds", "warm_up", "seed")
_DESCRIPTION = "Measure the speed-up of parallel over serial stepping for synthetic envs."


def main() -> None:
    """Measure speed-ups, compare them with the model, and plot both.

    Raises:
        RookeryError: every measurement failed.
    """
    command, cpus = _parser().parse_args(), usable_cpus()
    num_envs: int = command.num_envs
    output = checked_output(command.output, (".json",))
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
        raise KeyboardInterrupt(progress_of(measured, command)) from None
    points, costs = _report(asked, measured, num_envs, cpus, where)
    if not points:
        failures = {each.failure for each in measured if each.failure}
        raise RookeryError(f"every measurement failed: {'; '.join(sorted(failures))}")
    picture = _write(command, output, where, points, costs)
    worst = max(points, key=lambda point: abs(point.deviation))
    print(
        json.dumps(
            {
                "output": str(output),
                "picture": str(picture),
                "points": len(points),
                "largest_deviation_of_model": worst.deviation,
            }
        )
    )


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m benchmarks.speed_up", description=_DESCRIPTION)
    parser.add_argument("--num-envs", type=int, default=8, help="number of envs (8)")
    parser.add_argument("--rounds", type=int, default=5, help="samples of each point (5)")
    parser.add_argument("--seconds", type=float, default=0.5, help="seconds of each sample (0.5)")
    parser.add_argument("--warm-up", type=float, default=0.2, help="seconds before a sample (0.2)")
    parser.add_argument("--timeout", type=float, default=120.0, help="limit of a sample, s (120)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the order in a round (0)")
    parser.add_argument(
        "--output", default="bench-speed-up.json", help="file for the results; the plot is a .png"
    )
    return parser


def _write(
    command: Namespace,
    output: Path,
    where: dict[str, Any],
    points: Sequence[Point],
    costs: Sequence[Costs],
) -> Path:
    """Write results and plot; return the path of the plot."""
    num_envs, picture = points[0].num_envs, output.with_suffix(".png")
    content = {
        "num_envs": num_envs,
        "conditions": {**where, "load_average_after": load()},
        "settings": {name: getattr(command, name) for name in _SETTINGS},
        "points": [_point_to_dict(point) for point in points],
        "model": [_model_to_dict(each, num_envs) for each in costs],
    }
    cpus = usable_cpus()
    write_files(
        output, content, picture, lambda file: draw_speed_up(file, points, costs, num_envs, cpus)
    )
    return picture


def _report(
    asked: Mapping[Asked, Sequence[SampleRequest]],
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
    print_conditions(where)
    for each in measured:
        if each.failure:
            print(f"{each.order.contender.name}, {each.order.subject.name}: failed: {each.failure}")
    return points, costs


def _point_to_dict(point: Point) -> dict[str, Any]:
    return {**asdict(point), "place": str(point.place), "deviation": point.deviation}


def _model_to_dict(costs: Costs, num_envs: int) -> dict[str, Any]:
    content = asdict(costs)
    if costs.kind == COMPUTE:
        content["speed_up_by_cores"] = dict(model_over_cores(costs, num_envs))
    return content


if __name__ == "__main__":
    main()
