"""The trials of a search as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rookery.errors import MissingExtra
from rookery.tuning.candidates import Candidate
from rookery.tuning.memory import in_units
from rookery.tuning.trials import Trial

COLUMNS = ("envs", "policy acts", "envs run in", "steps/s", "10-90 %", "loop steps/s", "memory", "")
TAKEN = "<- taken"
_WIDTH = 130  # if standard output is not a terminal


def rows_of(trials: Sequence[Trial], chosen: Candidate | None) -> list[tuple[str, ...]]:
    """Return one row of texts per trial, in order of increasing envs, for `COLUMNS`."""
    ordered = sorted(trials, key=lambda trial: trial.candidate.num_envs)
    return [_row(trial, trial.candidate == chosen) for trial in ordered]


def _row(trial: Trial, is_chosen: bool) -> tuple[str, ...]:
    candidate = trial.candidate
    acts, _, where = str(candidate.mode).partition(", ")
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
    return (str(candidate.num_envs), acts, where, *figures, note)


def print_table(trials: Sequence[Trial], chosen: Candidate | None, file: TextIO) -> None:
    """Print the trials as a table, without empty columns.

    Raises:
        MissingExtra: rich is not installed.
    """
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError as error:
        raise MissingExtra("the table needs: pip install 'rookery[train]'") from error
    rows = rows_of(trials, chosen)
    used = [i for i in range(len(COLUMNS)) if any(row[i] for row in rows)]
    table = Table()
    for i in used:
        is_number = COLUMNS[i] not in ("policy acts", "envs run in", "")
        table.add_column(COLUMNS[i], justify="right" if is_number else "left", overflow="fold")
    for before, row in zip([None, *rows], rows, strict=False):
        if before is not None and before[0] != row[0]:
            table.add_section()
        style = "bold" if row[-1].startswith(TAKEN) else "dim" if not row[3] else None
        table.add_row(*(row[i] for i in used), style=style)
    Console(file=file, width=None if file.isatty() else _WIDTH, markup=False).print(table)
