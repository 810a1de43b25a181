"""``rookery plot RUN_DIR [RUN_DIR ...]``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rookery.cli.arguments import OUTPUT_WAY_OUT, CommandParser, checked_output, print_result
from rookery.cli.runs import add_runs, names_in, read_runs
from rookery.common.arguments import did_you_mean
from rookery.errors import ConfigError
from rookery.report.comparison import Curve, Panel, draw_comparison
from rookery.report.read import RecordedRun, RunGroup, groups_of
from rookery.run.checkpoint.run_dir import whole_file

_FORMATS = (".png", ".pdf", ".svg")
_AXES = {"steps": ("step", "environment steps"), "time": ("seconds", "seconds of training")}
# Metrics that are drawn together with the evaluations.
_RETURNS = ("episode_return_mean", "eval_return_mean")


def run(arguments: list[str]) -> int:
    """Draw the runs and print the path of the picture."""
    command = _parser().parse_args(arguments)
    output = checked_output(command.output, _FORMATS)
    over, xlabel = _AXES[command.x]
    runs = _with_metric(read_runs(command.runs), command.metric, over)
    groups = groups_of(runs, names_in(command.group_by))
    panels = _panels(groups, command.metric, over)
    with whole_file(output, has_one_writer=False, way_out=OUTPUT_WAY_OUT) as picture:
        draw_comparison(picture, panels, xlabel, command.metric, output.suffix[1:].lower())
    paths: dict[str, list[str]] = {}
    for group in groups:
        name = f"{group.env}: {group.label}" if len(panels) > 1 else group.label
        paths.setdefault(name, []).extend(str(run.path) for run in group.runs)
    count = sum(map(len, paths.values()))
    print_result({"output": str(output), "runs": count, "groups": paths})
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        "rookery plot",
        description="Draw the curves of several runs in one picture. Runs that differ only in the "
        "seed become one line, their mean, with their standard deviation as a band.",
        epilog="The last line printed is one JSON object.",
    )
    add_runs(parser)
    parser.add_argument(
        "--output",
        default="curves.png",
        help="file of the picture: .png, .pdf or .svg (%(default)s)",
    )
    parser.add_argument(
        "--x", choices=list(_AXES), default="steps", help="quantity on the x axis (%(default)s)"
    )
    parser.add_argument(
        "--metric", default="episode_return_mean", help="a metric in metrics.jsonl (%(default)s)"
    )
    return parser


def _with_metric(runs: Sequence[RecordedRun], metric: str, over: str) -> list[RecordedRun]:
    """Return the runs that have the metric, and print a warning for each other run.

    Raises:
        ConfigError: no run has the metric.
    """
    having = [run for run in runs if len(run.series(metric, over)[0])]
    if not having:
        raise ConfigError(_missing(runs, metric))
    kept = {run.path for run in having}
    for path in (run.path for run in runs if run.path not in kept):
        print(f"rookery: {path} has no {metric} to draw and is left out", file=sys.stderr)
    return having


def _missing(runs: Sequence[RecordedRun], metric: str) -> str:
    """Return an error message for a missing metric, with the available metrics."""
    where = ", ".join(str(run.path / "metrics.jsonl") for run in runs[:3])
    where += f" and {len(runs) - 3} more" if len(runs) > 3 else ""
    known = sorted(set().union(*(run.metrics for run in runs)))
    if metric in known:
        return f"{metric} holds no finite number in {where}; choose another --metric"
    hint = f"{did_you_mean(metric, known)} ".lstrip()
    if metric.startswith("episode_") and not any(name.startswith("episode_") for name in known):
        hint += "Episode metrics are logged after the first episode has ended. "
    return (
        f"there is no metric {metric!r} in {where}; {hint}Available: {', '.join(known) or 'none'}"
    )


def _panels(groups: Sequence[RunGroup], metric: str, over: str) -> list[Panel]:
    envs = dict.fromkeys(group.env for group in groups)
    return [
        Panel(env, [_curve(group, metric, over) for group in groups if group.env == env])
        for env in envs
    ]


def _curve(group: RunGroup, metric: str, over: str) -> Curve:
    evaluations = group.evaluations(over) if metric in _RETURNS else []
    return Curve(group.label, [run.series(metric, over) for run in group.runs], evaluations)
