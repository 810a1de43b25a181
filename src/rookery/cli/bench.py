"""``rookery bench ENV``: measure the throughput of an env in several vector envs."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from rookery.bench.conditions import conditions, load
from rookery.bench.contenders import LOOP, SERIAL, BenchSubject, Contender, contenders_for
from rookery.bench.picture import draw_throughput
from rookery.bench.sample import Measured, SampleRequest, measure_in_rounds
from rookery.bench.throughput import limits_of, rows_of, table_of, to_dict
from rookery.cli.arguments import (
    OUTPUT_WAY_OUT,
    CommandParser,
    checked_output,
    count,
    parse_json,
    print_result,
)
from rookery.common.arguments import check_positive, did_you_mean
from rookery.errors import ConfigError
from rookery.run.checkpoint.run_dir import as_file_name, whole_file
from rookery.run.env_source import EnvSource
from rookery.run.families import wrapper_at
from rookery.run.log.terminal import Counter, print_table, require_tables
from rookery.worker.start.launch import START_METHODS

_COLUMNS = ("contender", "steps/s", "least – most", "speed-up", "of limit", "remarks")
_DISTURBED = 0.3  # share of the cores that other programs use


def run(arguments: list[str]) -> int:
    """Measure, print a table, and write results and plot."""
    command = _parser().parse_args(arguments)
    require_tables()
    check_positive("--seconds", command.seconds)
    check_positive("--timeout", command.timeout)
    source = EnvSource(
        command.env,
        parse_json(command.env_kwargs, "--env-kwargs"),
        [wrapper_at(address) for address in command.wrapper or ()],
        command.env_module,
        preprocess=not command.no_preprocess,
    )
    subject = BenchSubject.of(source)
    output = checked_output(command.output or f"bench-{as_file_name(source.name)}.json", (".json",))
    contenders = _chosen(command, subject)
    note = source.note()
    if note:
        print(f"rookery: {note}", file=sys.stderr)
    numbers = command.num_envs or [8, 64]
    orders = [
        SampleRequest(subject, contender, num_envs, command.warm_up, command.seconds)
        for num_envs in numbers
        for contender in contenders
    ]
    where = conditions()
    measured: list[Measured] = []
    try:
        measure_with_progress(orders, command, measured)
    except KeyboardInterrupt:
        if any(each.samples for each in measured):
            _report(command, source.name, where, measured, output)
        raise KeyboardInterrupt(progress_of(measured, command)) from None
    print_result(_report(command, source.name, where, measured, output))
    return 0


def measure_with_progress(
    orders: Sequence[SampleRequest], command: Namespace, measured: list[Measured]
) -> None:
    """Measure in rounds and show progress; after Ctrl-C ``measured`` has the samples so far."""
    with Counter(len(orders) * command.rounds, "samples") as counter:

        def show(each: Measured, sample: dict[str, Any] | None) -> None:
            what = f"{each.order.contender.name}, {each.order.num_envs} envs"
            number = (sample or {}).get("steps_per_second")
            counter.doing(what if number is None else f"{what}: {number:,.0f} steps/s")
            counter.done(f"{what} failed: {each.failure}" if each.failure else "")

        measure_in_rounds(
            orders, command.rounds, command.timeout, command.seed, report=show, into=measured
        )


def progress_of(measured: Sequence[Measured], command: Namespace) -> str:
    """Describe how many samples were taken before Ctrl-C."""
    taken = sum(len(each.samples) for each in measured)
    where = "; the tables above show these" if taken else ""
    return f"after {taken} of {len(measured) * command.rounds} samples{where}"


def _report(
    command: Namespace, env: str, where: dict[str, Any], measured: list[Measured], output: Path
) -> dict[str, Any]:
    """Print tables and write files; return the result of the command."""
    limits = limits_of(measured, where["cores"])
    rows = rows_of(measured, limits)
    for num_envs in dict.fromkeys(row.num_envs for row in rows):
        limit = limits.get(num_envs)
        best = "" if limit is None else f"; limit {limit.steps_per_second:,.0f} steps/s"
        chosen = [row for row in rows if row.num_envs == num_envs]
        print_table(_COLUMNS, table_of(chosen), f"{env}, {num_envs} envs{best}")
    print_conditions(where)
    content = {
        "env": env,
        "conditions": {**where, "load_average_after": load()},
        "settings": _settings(command),
        "results": to_dict(rows, limits),
    }
    picture = output.with_suffix(".png")
    write_files(output, content, picture, lambda file: draw_throughput(file, env, rows, limits))
    medians = {
        str(n): {row.contender: row.median for row in rows if row.num_envs == n}
        for n in dict.fromkeys(row.num_envs for row in rows)
    }
    return {"output": str(output), "picture": str(picture), "steps_per_second": medians}


def print_conditions(where: dict[str, Any]) -> None:
    """Print the conditions of the measurement."""
    versions = ", ".join(f"{k} {v}" for k, v in where["versions"].items() if v is not None)
    print(
        f"{where['cores']:g} cores ({where['processor']}), other programs used "
        f"{where['cores_in_use']:g} at the start, Python {where['python']}, {versions}, "
        f"{where['date']}"
    )
    if is_disturbed(where):
        print(
            "other programs also used the cores: these figures are lower and vary more than on an "
            "idle machine"
        )


def is_disturbed(where: dict[str, Any]) -> bool:
    """Return whether other programs used many of the cores at the start."""
    return bool(where["cores_in_use"] > _DISTURBED * where["cores"])


def _settings(command: Namespace) -> dict[str, Any]:
    """Return the settings of the measurement as JSON data."""
    names = ("rounds", "seconds", "warm_up", "num_workers", "start_method", "seed")
    return {name: getattr(command, name) for name in names}


def write_files(
    output: Path, content: dict[str, Any], picture: Path, draw: Callable[[BinaryIO], None]
) -> None:
    """Write results and plot.

    Raises:
        StorageError: a file cannot be written.
    """
    with whole_file(output, has_one_writer=False, way_out=OUTPUT_WAY_OUT) as file:
        file.write((json.dumps(content, indent=2) + "\n").encode())
    with whole_file(picture, has_one_writer=False, way_out=OUTPUT_WAY_OUT) as file:
        draw(file)


def _chosen(command: Namespace, subject: BenchSubject) -> list[Contender]:
    """Return the requested contenders, and always the plain loop and serial as baselines.

    Raises:
        ConfigError: a requested contender is unknown or not installed.
    """
    known = contenders_for(subject, command.num_workers, command.start_method)
    if not command.contenders:
        return known
    names = [contender.name for contender in known]
    for name in command.contenders:
        if name not in names:
            hint = did_you_mean(name, names)
            raise ConfigError(
                f"--contenders {name!r} is unknown or not installed; {hint and hint + ' '}"
                f"available: {', '.join(map(repr, names))}"
            )
    return [c for c in known if c.name in {LOOP, SERIAL, *command.contenders}]


def _parser() -> CommandParser:
    parser = CommandParser(
        "rookery bench",
        description="Measure how many env steps per second each library reaches here: rookery's "
        "backends, Gymnasium's vector envs, and those of Stable-Baselines3 if it is installed.",
        epilog="The last line printed is one JSON object.",
    )
    parser.add_argument("env", help="gym id, 'package:Id' or 'package.module:function'")
    parser.add_argument(
        "--num-envs",
        type=count,
        nargs="+",
        help="numbers of envs to measure (8 64)",
    )
    parser.add_argument("--rounds", type=count, default=5, help="samples of each contender (5)")
    parser.add_argument("--seconds", type=float, default=0.5, help="duration of each sample (0.5)")
    parser.add_argument(
        "--warm-up", type=float, default=0.2, help="seconds of warm-up before each sample (0.2)"
    )
    parser.add_argument(
        "--timeout", type=float, default=120.0, help="longest time of a sample in seconds (120)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the order of contenders in each round (0)"
    )
    parser.add_argument(
        "--contenders",
        nargs="+",
        metavar="NAME",
        help="measure only these contenders and the baselines",
    )
    parser.add_argument(
        "--num-workers", type=count, help="number of rookery's worker processes (all cores)"
    )
    parser.add_argument(
        "--start-method", choices=START_METHODS, help="start method of rookery's worker processes"
    )
    parser.add_argument(
        "--output",
        help="JSON file for the results (bench-ENV.json); the plot is written beside it",
    )
    parser.add_argument("--env-kwargs", default="{}", help="arguments of the env, as JSON")
    parser.add_argument("--wrapper", action="append", help="wrapper of every env, as module:Class")
    parser.add_argument("--env-module", help="module to import first; it registers the env")
    parser.add_argument(
        "--no-preprocess", action="store_true", help="do not preprocess Atari games and MiniGrid"
    )
    return parser
