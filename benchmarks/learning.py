"""Returns that presets reach with `rookery train`, and with Stable-Baselines3 in the same settings.

    python -m benchmarks.learning [--algo NAME ...] [--env ID ...] [--seeds N] [--minutes M]
                                  [--jobs N] [--sb3]

A cell is a preset; its runs have seeds that nothing was tuned with. Runs that are recorded are not
made again unless their settings have changed, and runs that were broken off are resumed. The score
is the mean return of 50 episodes with the most probable actions after the last step. Written to
results/learning.json, as a table to docs/results.md, and as curves to docs/pictures.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import re
import shutil
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

from benchmarks.learning_picture import Panel, draw
from benchmarks.learning_runs import EPISODES, train_by_command, train_sb3, train_sb3_in_a_process
from rookery.bench.conditions import conditions
from rookery.run.algorithms import BUILT_IN
from rookery.run.presets import Preset, presets

RESULT = Path(__file__).parent / "results" / "learning.json"
UNFINISHED = Path(__file__).parent.parent / ".benchmarks" / "learning"
TABLE = Path(__file__).parent.parent / "docs" / "results.md"
_LIBRARIES = ("rookery", "gymnasium", "numpy", "torch", "mujoco", "stable-baselines3")
FIRST_SEED = 101
# Known reasons why a result is below the published one.
_REASONS = {
    "sac/HalfCheetah-v5": "the recorded run made half of the preset's gradient steps "
    "(`--num-steps 8 --updates-per-step 0.5`), to finish within two hours. A run with all of them "
    "was stopped after 452,000 steps, with a return of 8278 in training",
    "sac/MountainCarContinuous-v0": "in training, where actions are drawn, all three seeds end at "
    "83 to 94; with the most probable actions, seed 102 misses the goal",
    "dqn/CartPole-v1": "one of three seeds ends at 470; seeds 201 and 202 reach 500 too",
    "qrdqn/CartPole-v1": "one of three seeds ends at 112, although its returns in training rose "
    "like those of the other two",
    "a2c/Swimmer-v5": "with the same settings SB3 reaches 226 here with seed 101; with seed 102 "
    "it was stopped after 680,000 steps, with a return of 31 in training",
    "ppo/Ant-v5": "version 5 of the env adds contact forces to observations and rewards, unlike "
    "earlier versions; `rookery train ppo Ant-v4 --preset Ant-v5 --seed 101` reaches 2659",
}

Found = dict[str, Any]  # what became of a run
Cell = tuple[Preset, int]  # what to train, and the seed


def main() -> None:
    """Make the runs that are missing, and write the table."""
    parser = argparse.ArgumentParser(prog="scripts/bench learning")
    parser.add_argument("--algo", nargs="+", choices=list(BUILT_IN), default=list(BUILT_IN))
    parser.add_argument("--env", nargs="+", default=[], help="only these envs")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="start no run after this time"
    )
    parser.add_argument(
        "--jobs", type=int, default=1, help="runs at the same time, which makes each take longer"
    )
    parser.add_argument("--sb3", action="store_true", help="make runs of SB3 instead")
    parser.add_argument("--one", nargs=2, metavar=("PRESET", "SEED"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, seed = options.one
        algo, _, env = name.partition("/")
        print(json.dumps(train_sb3(presets(algo)[env], int(seed))))
        return
    if options.jobs < 1:
        parser.error(f"--jobs must be at least 1, got {options.jobs}")
    library, make = ("SB3", train_sb3_in_a_process) if options.sb3 else ("rookery", _rookery)
    runs = json.loads(RESULT.read_text())["runs"] if RESULT.exists() else []
    known = [run["key"] for run in runs]
    missing = [
        (preset, seed)
        for preset, seed in _wanted(options)
        if not any(is_same(key, key_of(preset, seed, library)) for key in known)
    ]
    failed = 0
    for (preset, seed), found in _made(make, missing, options.jobs, options.minutes):
        key = key_of(preset, seed, library)
        if isinstance(found, BaseException):
            failed += 1
            print(*key[:3], "failed:", found, file=sys.stderr, flush=True)
            continue
        runs = [run for run in runs if run["key"][:3] != key[:3]]  # with other settings
        runs.append({"key": key, **found})
        numbers = {name: round(each, 1) for name, each in found.items() if type(each) is not dict}
        print(*key[:3], numbers, flush=True)
        RESULT.write_text(as_text(runs))
    TABLE.write_text(_table(runs, _draw_curves(runs, TABLE.parent / "pictures")))
    if failed:
        sys.exit(f"{failed} runs have failed")


def _made(
    make: Callable[[Preset, int], Found], cells: Sequence[Cell], jobs: int, minutes: float
) -> Iterator[tuple[Cell, Found | BaseException]]:
    """Make runs, several at the same time, each in a separate process.

    Yields:
        What was to be run and what came of it, or why it failed, as soon as it is there.
    """
    until = time.monotonic() + 60 * minutes
    left = iter(cells)
    running: dict[Future[Found], tuple[Cell, Found]] = {}
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        while True:
            while len(running) < jobs and time.monotonic() <= until and (cell := next(left, None)):
                where = {**conditions(_LIBRARIES), "runs_at_once": jobs}
                running[pool.submit(make, *cell)] = cell, where
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                cell, where = running.pop(future)
                error = future.exception()
                yield cell, error or {**future.result(), "conditions": where}


def _wanted(options: argparse.Namespace) -> Iterator[Cell]:
    cells = [
        preset
        for algo in options.algo
        for preset in presets(algo).values()
        if preset.expected is not None and (not options.env or preset.env in options.env)
    ]
    for seed in range(FIRST_SEED, FIRST_SEED + options.seeds):
        for preset in cells:
            yield preset, seed


def key_of(preset: Preset, seed: int, library: str) -> list[Any]:
    """Return the key of a run: preset, library, seed, and all settings."""
    settings = {**preset.run, **preset.config.to_dict()}
    return [preset.name, library, seed, json.loads(json.dumps(settings))]


def is_same(key: list[Any], other: list[Any]) -> bool:
    """Return whether two keys mean the same run.

    Settings that are as today's defaults count as absent, so that a setting that is new invalidates
    no run that was recorded before there was such a thing.
    """
    return key[:3] == other[:3] and _not_default(key) == _not_default(other)


def _not_default(key: list[Any]) -> dict[str, Any]:
    name, *_, settings = key
    config = BUILT_IN[name.partition("/")[0]][0]()
    defaults = json.loads(json.dumps(config.to_dict()))
    return {k: v for k, v in settings.items() if k not in defaults or v != defaults[k]}


def as_text(runs: list[dict[str, Any]]) -> str:
    """Runs as they are recorded: as JSON, each list of numbers on one line."""
    text = json.dumps({"runs": runs}, indent=1)
    return re.sub(r"\[\s+[-+.\de]+(,\s+[-+.\de]+)*\s+\]", _on_one_line, text) + "\n"


def _on_one_line(found: re.Match[str]) -> str:
    return "[" + ", ".join(found[0].strip("[]").replace(",", " ").split()) + "]"


def _rookery(preset: Preset, seed: int) -> Found:
    """Run the command that the documentation shows, or go on with a run of the same settings."""
    settings = json.dumps(_not_default(key_of(preset, seed, "rookery")), sort_keys=True)
    name = f"{preset.algo}-{preset.env}-{seed}-{hashlib.sha256(settings.encode()).hexdigest()[:8]}"
    run_dir = UNFINISHED / name.replace("/", "-")
    command = [preset.algo, preset.env, "--eval-episodes", str(EPISODES)]
    told = train_by_command(command, seed, run_dir)
    shutil.rmtree(run_dir)
    names = {
        "steps": "steps", "seconds": "seconds", "cpu_seconds": "cpu_seconds",
        "eval_return_mean": "return", "curve": "curve",
    }  # fmt: skip
    return {name: told[key] for key, name in names.items() if key in told}


# ---------------------------------------------------------------- table and pictures

_COLUMNS = (
    "preset", "env steps", "seeds", "return: mean (each)", "published", "seconds",
    "SB3: mean (each)", "SB3: seconds",
)  # fmt: skip


def _draw_curves(runs: list[dict[str, Any]], folder: Path) -> list[Path]:
    """Plot the recorded curves of each algorithm; return the paths of the plots."""
    pictures = []
    for algo in BUILT_IN:
        panels = []
        for preset in presets(algo).values():
            curves = [
                (curve["steps"], curve["returns"])
                for run in runs
                if run["key"][:2] == [preset.name, "rookery"]
                and (curve := run.get("curve"))
                and curve["steps"]
            ]
            if curves:
                panels.append(Panel(preset.env, curves, preset.expected))
        if panels:
            pictures.append(folder / f"learning-{algo}.png")
            draw(panels, pictures[-1])
    return pictures


def _table(runs: list[dict[str, Any]], pictures: Sequence[Path] = ()) -> str:
    """All cells that have runs, in Markdown, and pictures that lie beneath the page."""
    by_cell: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        name, library, *_ = run["key"]
        by_cell[name][library].append(run)
    lines = [
        "# Results",
        "",
        "The mean returns that `rookery train ALGORITHM ENV --seed SEED` reaches with the preset",
        "of the env and no other flag, in 50 episodes with the most probable actions after the",
        "last step. Nothing was tuned on these seeds. *Published* is the RL Zoo's result for its",
        "agents: one run each, on versions 2 and 3 of these envs, with mean and standard",
        "deviation over episodes. SB3 was run here with the same settings; *other settings* are",
        "those of the RL Zoo, which the preset had before. With these, rookery's PPO reached 770,",
        "822 and 1005 on Hopper. Seconds are the median of runs that had the machine to",
        "themselves; *of CPU* marks the median of processor times, if there are no such runs.",
        "`scripts/bench learning` made these measurements. If it is interrupted, it continues",
        "from there.",
        "",
        f"| {' | '.join(_COLUMNS)} |",
        "|---|---:|---:|---|---:|---:|---|---:|",
    ]
    for algo in BUILT_IN:
        for preset in presets(algo).values():
            cell = by_cell.get(preset.name)
            if cell:
                lines.append(_row(preset, cell["rookery"], cell["SB3"]))
    where = sorted({_machine(run["conditions"]) for run in runs})
    lines += ["", *_below(by_cell), "", f"Measured on: {'; '.join(where)}.", ""]
    lines += _not_run(by_cell)
    if pictures:
        lines += [
            "## Learning curves",
            "",
            "A line is a run: the mean return of its last 100 episodes of training, in which",
            "actions are drawn. Dashed is what was published for evaluations.",
            "",
        ]
    for picture in pictures:
        algo = picture.stem.removeprefix("learning-")
        lines += [f"### {algo}", "", f"![Learning curves of {algo}](pictures/{picture.name})", ""]
    return "\n".join(lines)


def _below(by_cell: Mapping[str, Mapping[str, list[Found]]]) -> Iterator[str]:
    """Lines about the cells that stay below what was published by more than its deviation."""
    yield "More than one deviation below the published result, with the known reasons:"
    yield ""
    for algo in BUILT_IN:
        for preset in presets(algo).values():
            cell = by_cell.get(preset.name, {})
            if not cell.get("rookery") or preset.expected is None or preset.expected_std is None:
                continue
            reached = statistics.mean(run["return"] for run in cell["rookery"])
            if reached < preset.expected - preset.expected_std:
                yield f"- {preset.name}: {_reason(preset, cell.get('SB3', []))}."


def _not_run(by_cell: Mapping[str, Mapping[str, list[Found]]]) -> Iterator[str]:
    """Yield a section that lists the presets without a run that had their settings."""
    missing = [
        preset
        for algo in BUILT_IN
        for preset in presets(algo).values()
        if not _runs_with_settings_of(preset, by_cell.get(preset.name, {}).get("rookery", []))
    ]
    if missing:
        yield "## Not run here"
        yield ""
        yield "No run with exactly the settings of these presets is recorded here. Most need more"
        yield "than an hour for one run. A preset of a family is for the envs that have no preset"
        yield "of their own."
        yield ""
        yield from (f"- {preset.name}" for preset in missing)
        yield ""


def _runs_with_settings_of(preset: Preset, runs: list[Found]) -> list[Found]:
    return [run for run in runs if _have_settings_of(preset, [run])]


def _reason(preset: Preset, theirs: list[Found]) -> str:
    known = _REASONS.get(preset.name)
    if known is not None:
        return known
    if not theirs:
        return "not looked for"
    reached = statistics.mean(run["return"] for run in theirs)
    which = "the same" if _have_settings_of(preset, theirs) else "the RL Zoo's"
    return f"with {which} settings SB3 reaches {reached:.0f} here, on {len(theirs)} seed(s)"


def _machine(conditions: dict[str, Any]) -> str:
    cores = conditions["cores"]
    return f"{conditions['processor']}, {cores:g} core{'s' * (cores != 1)}"


def _seconds(runs: list[dict[str, Any]]) -> str:
    """Return the duration of runs: wall time of runs without others, else known CPU time."""
    alone = [run["seconds"] for run in runs if run["conditions"].get("runs_at_once", 1) == 1]
    if alone:
        return f"{statistics.median(alone):.0f}"
    of_cpu = [run["cpu_seconds"] for run in runs if "cpu_seconds" in run]
    return f"{statistics.median(of_cpu):.0f} of CPU" if of_cpu else ""


def _have_settings_of(preset: Preset, runs: list[Found]) -> bool:
    return all(is_same(run["key"], key_of(preset, *run["key"][2:0:-1])) for run in runs)


def _row(preset: Preset, ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> str:
    def told(runs: list[dict[str, Any]]) -> tuple[str, str]:
        if not runs:
            return "", ""
        returns = [run["return"] for run in sorted(runs, key=lambda run: run["key"][2])]
        each = ", ".join(f"{value:.0f}" for value in returns)
        note = "" if _have_settings_of(preset, runs) else ", other settings"
        return f"{statistics.mean(returns):.0f} ({each}){note}", _seconds(runs)

    score, seconds = told(ours)
    expected = f"{preset.expected:.0f} ± {preset.expected_std:.0f}"
    cells = [
        preset.name, f"{preset.run['total_steps']:,}", str(len(ours)), score, expected, seconds,
        *told(theirs),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
