"""The outcome of a search: an object, its table, its plot and its JSON data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from rookery.run.checkpoint.run_dir import whole_file
from rookery.run.log.curve import new_figure, plain
from rookery.run.log.terminal import print_table
from rookery.run.presets.tuned import Tuned
from rookery.tuning.candidates import Candidate
from rookery.tuning.memory import in_units
from rookery.tuning.trials import Limits, Trial, best_of_each

COLUMNS = ("policy acts, envs run in", "envs", "steps/s", "10-90 %", "loop steps/s", "memory", "")
TAKEN = "<- taken"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a search.

    Attributes:
        tuned: content of the file that ``rookery train --tuned`` reads.
        trials: all trials.
        chosen: the best candidate.
        limits: limits on the number of envs on this machine.
        reasons: lines about scaled hyperparameters; empty unless scaling was requested.
    """

    tuned: Tuned
    trials: list[Trial]
    chosen: Candidate
    limits: Limits
    reasons: list[str]


def rows_of(trials: Sequence[Trial], chosen: Candidate | None) -> list[tuple[str, ...]]:
    """Return one row of texts per trial, in order of increasing envs, for `COLUMNS`."""
    ordered = sorted(trials, key=lambda trial: trial.candidate.num_envs)
    return [_row(trial, trial.candidate == chosen) for trial in ordered]


def _row(trial: Trial, is_chosen: bool) -> tuple[str, ...]:
    candidate = trial.candidate
    figures = ("", "", "", "")
    if trial.slices:
        low, high = trial.spread
        loop = f"{trial.loop_rate:,.0f}" if trial.learns else ""
        memory = in_units(trial.memory_bytes)
        figures = (f"{trial.rate:,.0f}", f"{low:,.0f} - {high:,.0f}", loop, memory)
    note = trial.growth
    if trial.failure:
        note = trial.failure if trial.is_skipped else f"failed: {trial.failure}"
    if is_chosen:
        note = f"{TAKEN}; {note}" if note else TAKEN
    return (str(candidate.mode), str(candidate.num_envs), *figures, note)


def print_trials(trials: Sequence[Trial], chosen: Candidate | None) -> None:
    """Print the trials as a table, without empty columns.

    Raises:
        MissingExtra: rich is not installed.
    """
    rows = rows_of(trials, chosen)
    used = [i for i in range(len(COLUMNS)) if any(row[i] for row in rows)]
    print_table([COLUMNS[i] for i in used], [[row[i] for i in used] for row in rows])


@dataclass(frozen=True)
class _Point:
    """The measured throughput of a candidate.

    Attributes:
        num_envs: number of envs.
        rate: env steps per second.
        low: 10th percentile of the rate.
        high: 90th percentile of the rate.
        label: description of the mode.
        is_best: True for the fastest mode with this number of envs.
    """

    num_envs: int
    rate: float
    low: float
    high: float
    label: str
    is_best: bool = False


def draw(outcome: Outcome, path: Path, whole_loop: bool = False) -> None:
    """Plot throughput against the number of envs, and mark the knee.

    Raises:
        StorageError: the picture cannot be written.
        MissingExtra: matplotlib is not installed.
    """
    best = {id(trial) for trial in best_of_each(outcome.trials, whole_loop)}
    points = [
        _Point(
            trial.candidate.num_envs,
            trial.score(whole_loop),
            *(trial.spread if not whole_loop else (trial.loop_rate, trial.loop_rate)),
            str(trial.candidate.mode),
            id(trial) in best,
        )
        for trial in outcome.trials
        if trial.is_measured
    ]
    env = outcome.tuned.env.get("env")
    what = "whole loop" if whole_loop else "collecting"
    title = f"{outcome.tuned.algo} on {env if isinstance(env, str) else 'the env'}, {what}"
    way_out = "make the folder writable, or choose another --picture"
    with whole_file(path, has_one_writer=False, way_out=way_out) as file:
        kind = path.suffix[1:].lower()
        _draw_points(file, points, title, outcome.chosen.num_envs, kind)


def _draw_points(
    file: BinaryIO, points: Sequence[_Point], title: str, knee: int, format: str
) -> None:
    """Plot throughput against the number of envs: each mode as points, the best as a line.

    Args:
        file: file that receives the picture.
        points: points to draw; at least one.
        title: text above the axes.
        knee: number of envs to mark.
        format: image format, ``"png"``, ``"pdf"`` or ``"svg"``.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    figure = new_figure((8, 4.5))
    axes = figure.add_subplot()
    for number, label in enumerate(dict.fromkeys(point.label for point in points)):
        own = sorted((p for p in points if p.label == label), key=lambda p: p.num_envs)
        axes.plot(
            [p.num_envs for p in own], [p.rate for p in own], marker="o", markersize=4,
            linestyle=":", linewidth=1, color=f"C{number % 10}", label=plain(label),
        )  # fmt: skip
    best = sorted((p for p in points if p.is_best), key=lambda p: p.num_envs)
    counts = [p.num_envs for p in best]
    axes.plot(counts, [p.rate for p in best], color="black", linewidth=1.8, label="best, 10-90 %")
    axes.fill_between(
        counts, [p.low for p in best], [p.high for p in best], color="black", alpha=0.12,
        linewidth=0,
    )  # fmt: skip
    (rate,) = (p.rate for p in best if p.num_envs == knee)
    label = f"knee: {knee} envs, {rate:,.0f} steps/s"
    axes.axvline(knee, color="gray", linestyle="--", linewidth=1, label=label)
    axes.plot(knee, rate, "s", color="black", markersize=7, zorder=4)
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.set_ylim(bottom=0)
    axes.set(title=plain(title), xlabel="envs", ylabel="env steps per second")
    axes.grid(alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="small")
    figure.savefig(file, format=format)


def trial_to_dict(trial: Trial) -> dict[str, Any]:
    """Return a trial as JSON data."""
    content: dict[str, Any] = dict(trial.candidate.settings())
    if trial.slices:
        low, high = trial.spread
        content |= {"steps_per_second": trial.rate, "spread": [low, high]}
        content |= {"slices": len(trial.slices), "memory_bytes": trial.memory_bytes}
        content |= {"loop_steps_per_second": trial.loop_rate} if trial.learns else {}
    return content | ({"failure": trial.failure} if trial.failure else {})
