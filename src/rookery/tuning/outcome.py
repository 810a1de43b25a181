"""The outcome of a search, as an object, a picture and JSON data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rookery.run.checkpoint.run_dir import whole_file
from rookery.run.presets.tuned import Tuned
from rookery.tuning.candidates import Candidate
from rookery.tuning.knee import Limits, best_of_each
from rookery.tuning.throughput_plot import ThroughputPoint, draw_throughput
from rookery.tuning.trials import Trial


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


def draw(outcome: Outcome, path: Path, whole_loop: bool = False) -> None:
    """Plot throughput against the number of envs, and mark the knee.

    Raises:
        StorageError: the picture cannot be written.
        MissingExtra: matplotlib is not installed.
    """
    best = {id(trial) for trial in best_of_each(outcome.trials, whole_loop)}
    points = [
        ThroughputPoint(
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
        draw_throughput(file, points, title, outcome.chosen.num_envs, kind)


def trial_to_dict(trial: Trial) -> dict[str, Any]:
    """Return a trial as JSON data."""
    told: dict[str, Any] = dict(trial.candidate.settings())
    if trial.slices:
        low, high = trial.spread
        told |= {"steps_per_second": trial.rate, "spread": [low, high]}
        told |= {"slices": len(trial.slices), "memory_bytes": trial.memory_bytes}
        told |= {"loop_steps_per_second": trial.loop_rate} if trial.learns else {}
    return told | ({"failure": trial.failure} if trial.failure else {})
