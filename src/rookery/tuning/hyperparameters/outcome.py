"""The outcome of a search: a table of the best trials, and a preset file."""

from __future__ import annotations

import datetime
import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rookery.errors import ConfigError
from rookery.run.checkpoint.run_dir import whole_file
from rookery.tuning.hyperparameters.search import fitted
from rookery.tuning.hyperparameters.study import Study

_MADE_BY = "rookery tune"
_MOST = 10


def best_rows(study: Study) -> list[tuple[str, ...]]:
    """Return rows of the best trials: number, return, deviation, seconds, settings."""
    rows: list[tuple[str, ...]] = []
    for trial in study.completed()[:_MOST]:
        figures = trial.user_attrs
        run, own = fitted(study.question, study.settings(trial))
        searched = {d.name: {**run, **own}[d.name] for d in study.space.dimensions}
        rows.append(
            (
                str(trial.number),
                f"{trial.value:.1f}",
                f"{figures.get('std') or 0.0:.1f}",
                f"{figures.get('seconds') or 0.0:.0f}",
                in_a_line(searched),
            )
        )
    return rows


def in_a_line(settings: Mapping[str, Any]) -> str:
    """Return settings as short text."""
    return ", ".join(f"{name} {_short(value)}" for name, value in settings.items())


def preset_of(study: Study, sampler: str, pruner: str) -> dict[str, Any]:
    """Return the best settings as the content of a file for ``rookery train --preset``."""
    question, best = study.question, study.completed()[0]
    run, own = fitted(question, study.settings(best))
    reached = [mean for _, mean in study.confirmed(best.number) if mean is not None]
    failed = len(study.confirmed(best.number)) - len(reached)
    counts = f"{len(study.made())} trials, {len(study.pruned())} pruned"
    counts += f", {len(study.failed())} failed" if study.failed() else ""
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    source = (
        f"{_MADE_BY} --hyperparameters {question.algo} {question.env} ({counts}, of "
        f"{question.total_steps} steps each; sampler {sampler}, pruner {pruner}; {today}; the best "
        f"trial reached {best.value:.1f} in its last evaluation)"
    )
    note = f"reached: mean over {len(reached)} more seeds"
    note = note if reached else "no further run with another seed was made"
    note += f"; {failed} more failed" if failed else ""
    env = question.env.rpartition(":")[2]
    entry = {
        "source": source,
        "expected": None,
        "reached": round(statistics.fmean(reached), 2) if reached else None,
        "note": note,
        "run": {"total_steps": question.total_steps, **run},
        "settings": own,
    }
    return {env: entry}


def write_preset(file: Path, preset: Mapping[str, Any]) -> None:
    """Write a file of presets.

    Raises:
        StorageError: the file cannot be written.
    """
    way_out = "choose another --output; the same command writes it, without further trials"
    with whole_file(file, has_one_writer=False, way_out=way_out) as out:
        out.write((json.dumps(preset, indent=2) + "\n").encode())


def require_own(file: Path) -> None:
    """Check that the output file does not replace a file of another origin.

    Raises:
        ConfigError: the file exists and was not written by a search.
    """
    if not file.exists():
        return
    try:
        (entry,) = json.loads(file.read_text(encoding="utf-8")).values()
        is_own = str(entry["source"]).startswith(_MADE_BY)
    except (OSError, ValueError, AttributeError, TypeError, KeyError):
        is_own = False
    if not is_own:
        raise ConfigError(
            f"--output {file} exists and was not written by a search; choose another file"
        )


def _short(value: Any) -> str:
    if value is None:
        return "unset"
    if isinstance(value, float):
        return f"{value:.3g}"
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
