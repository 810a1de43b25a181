"""Compare the choices of ``backend="auto"`` with all other backends, over a grid of envs.

The grid was fixed before the model of ``rookery.vector.auto.plans`` was fitted. It varies the step
time, the size of observations, the number of envs, and whether other programs use all cores. Each
cell has one process, in which all contenders are open and take turns in random order.

Threads are listed for waiting envs. ``auto`` never chooses them, so it is not compared with them.
"""

from __future__ import annotations

import argparse
import copy
import functools
import itertools
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from benchmarks.cases import CORES
from benchmarks.clocks import busy_processes
from benchmarks.environments import Maker
from rookery.bench.conditions import conditions

RESULT = Path(__file__).parent / "results" / "auto.json"

_COMPUTING_S = {"3 us": 3e-6, "30 us": 3e-5, "300 us": 3e-4, "3 ms": 3e-3}
_SLEEPING_S = {"1 ms asleep": 1e-3}
_OBSERVATIONS: dict[str, Callable[[], gymnasium.Space[Any]]] = {
    "16 B": lambda: gymnasium.spaces.Box(-1, 1, (4,), np.float32),
    "30 kB": lambda: gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8),
    "1 MB": lambda: gymnasium.spaces.Box(0, 255, (512, 512, 4), np.uint8),
    "Sequence": lambda: gymnasium.spaces.Sequence(gymnasium.spaces.Box(-1, 1, (8,), np.float32)),
}
_MOST_STORED = {"1 MB": 1}
_NUM_ENVS = (1, 8, 64)
_LOADS = {"idle": 0, "busy": CORES}

_COMPARED = ("serial", "caller_steps", "processes")
_OPTIONS: dict[str, dict[str, Any]] = {
    "serial": {"backend": "serial"},
    "caller_steps": {"backend": "process", "caller_steps": True},
    "processes": {"backend": "process"},
    "auto": {"backend": "auto"},
    "threads": {"backend": "thread"},
}
_ROUNDS = 7
_SLICE_S = {0: 0.06, CORES: 0.15}  # of one contender in one round; scheduling takes longer beside
TARGET = 0.95


@dataclass(frozen=True)
class Cell:
    """A cell of the grid.

    Attributes:
        step: what a step costs.
        observation: how large one is.
        num_envs: environments.
        load: whether every core is busy with something else.
    """

    step: str
    observation: str
    num_envs: int
    load: str

    def __str__(self) -> str:
        return f"{self.step} / {self.observation} / {self.num_envs} / {self.load}"


CELLS = {
    str(cell): cell
    for load in _LOADS
    for step in (*_COMPUTING_S, *_SLEEPING_S)
    for observation in _OBSERVATIONS
    for num_envs in _NUM_ENVS
    for cell in [Cell(step, observation, num_envs, load)]
}


def main() -> None:
    """Measure all cells, each in a separate process, and write results and table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.auto_grid")
    parser.add_argument("--cell", nargs="+", choices=CELLS, default=list(CELLS), metavar="CELL")
    parser.add_argument("--one", choices=CELLS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(CELLS[arguments.one])))
        return
    found = json.loads(RESULT.read_text())["cells"] if RESULT.exists() else {}
    for name in arguments.cell:
        command = [sys.executable, "-m", "benchmarks.auto_grid", "--one", name]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found[name] = json.loads(done.stdout.splitlines()[-1])
        print(f"{name}: {found[name]['ratio']:.2f}", flush=True)
        written = {"conditions": conditions(), "cells": found}
        RESULT.write_text(json.dumps(written, indent=1) + "\n")
    RESULT.with_suffix(".md").write_text("\n".join(_report(found)) + "\n")


@functools.cache
def _stored(space: str) -> list[Any]:
    """Observations that all envs of a process return in turn; large ones take long to draw."""
    drawn_from = _OBSERVATIONS[space]()
    drawn_from.seed(0)
    return [drawn_from.sample() for _ in range(4)]


class WorkingEnv(gymnasium.Env[Any, np.int64]):
    """Computes or sleeps for a while and returns an observation that was drawn beforehand.

    Args:
        space: key of the observation spaces.
        rounds: of an empty loop in every step: work, and not time, is what a step costs.
        sleep_s: seconds asleep in every step.
    """

    action_space = gymnasium.spaces.Discrete(4)
    episode_steps = 200

    def __init__(self, space: str, rounds: int, sleep_s: float) -> None:
        self.observation_space = _OBSERVATIONS[space]()
        # Separate objects: copying one object that many envs return is cheaper.
        self._stored = itertools.cycle(copy.deepcopy(_stored(space)[: _MOST_STORED.get(space, 4)]))
        self._rounds, self._sleep_s = rounds, sleep_s
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return next(self._stored), {}

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        if self._sleep_s:
            time.sleep(self._sleep_s)
        for _ in range(self._rounds):
            pass
        return next(self._stored), 0.0, False, self._steps >= self.episode_steps, {}


def measure(cell: Cell) -> dict[str, Any]:
    """Measure a cell: every contender's rate, what ``auto`` chose, and how good that was.

    ``ratio`` is the rate of ``auto`` by that of the best contender; ``ratio_of_choice`` is that of
    the contender that does what ``auto`` chose, if there is one: two ways to run the same envs in
    the same way, which differ by no more than chance.
    """
    import rookery

    make = _maker(cell)
    with ExitStack() as stack:
        stack.enter_context(busy_processes(_LOADS[cell.load]))
        venvs = {
            name: stack.enter_context(
                rookery.make_vec(make, num_envs=cell.num_envs, **_OPTIONS[name])
            )
            for name in _names(cell)
        }
        for venv in venvs.values():
            venv.reset(seed=0)
        rates = _rates(venvs, cell)
        auto = venvs["auto"]
        same = _same_as(auto)
        choice = str(auto.choice)
    medians = {name: statistics.median(own) for name, own in rates.items()}
    best = max(medians[name] for name in _COMPARED if name in medians)
    return {
        "ratio": medians["auto"] / best,
        "ratio_of_choice": medians[same] / best if same in medians else None,
        "best": max((name for name in _COMPARED if name in medians), key=medians.__getitem__),
        "chosen": same or f"{auto.choice.num_workers} workers",
        "steps_per_second": medians,
        "spread": {name: [min(own), max(own)] for name, own in rates.items()},
        "choice": choice,
    }


def _names(cell: Cell) -> list[str]:
    names = [name for name in _COMPARED if cell.num_envs > 1 or name != "caller_steps"]
    return [*names, "auto", *(["threads"] if cell.step in _SLEEPING_S else [])]


def _maker(cell: Cell) -> Maker:
    rounds = int(_COMPUTING_S.get(cell.step, 0.0) * _rounds_per_second())
    return functools.partial(WorkingEnv, cell.observation, rounds, _SLEEPING_S.get(cell.step, 0.0))


def _rounds_per_second() -> float:
    """Return the rounds per second of an empty loop on an idle core."""
    rounds, fastest = 20_000, float("inf")
    for _ in range(20):
        started = time.perf_counter()
        for _ in range(rounds):
            pass
        fastest = min(fastest, time.perf_counter() - started)
    return rounds / fastest


def _same_as(auto: Any) -> str | None:
    """The contender that runs the envs as ``auto`` does; None if there is none."""
    choice = auto.choice
    if choice.backend == "serial":
        return "serial"
    usual = CORES - choice.caller_steps
    if choice.num_workers != max(min(usual, auto.num_envs - choice.caller_steps), 1):
        return None
    return "caller_steps" if choice.caller_steps else "processes"


def _rates(venvs: dict[str, Any], cell: Cell) -> dict[str, list[float]]:
    """Env steps per second of every contender in every round."""
    actions = np.zeros(cell.num_envs, np.int64)
    names, order = list(venvs), random.Random(0)
    rates: dict[str, list[float]] = {name: [] for name in names}
    slice_s = _SLICE_S[_LOADS[cell.load]]
    for round_ in range(1 + _ROUNDS):
        order.shuffle(names)
        for name in names:
            rate = _rate(venvs[name], actions, slice_s)
            if round_ > 0:  # the first one warms up
                rates[name].append(rate * cell.num_envs)
    return rates


def _rate(venv: Any, actions: Any, slice_s: float) -> float:
    """Calls of ``step`` per second, over a slice of time that begins with one more."""
    venv.step(actions)
    calls, started = 0, time.perf_counter()
    while True:
        venv.step(actions)
        calls += 1
        now = time.perf_counter()
        if now - started >= slice_s:
            return calls / (now - started)


def _report(found: dict[str, Any]) -> Iterator[str]:
    ratios = [sample["ratio"] for sample in found.values()]
    yield '# `backend="auto"` over a grid'
    yield ""
    yield (
        "Env steps per second, medians of rounds in which all contenders step by turns. *auto / "
        "best* compares `auto` with the best of `serial`, `caller_steps` and `processes`; *choice "
        "/ best* compares the contender that runs the envs as `auto` chose to. Threads are shown "
        "where envs wait, and not compared."
    )
    yield ""
    if ratios:
        reached = sum(ratio >= TARGET for ratio in ratios)
        yield (
            f"{reached} of {len(ratios)} cells reach {TARGET}; the median is "
            f"{statistics.median(ratios):.2f}, the least {min(ratios):.2f}."
        )
    yield ""
    heads = [
        "step", "observation", "envs", "machine", *_COMPARED, "threads", "auto", "chosen",
        "auto / best", "choice / best",
    ]  # fmt: skip
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * 2}{'---:|' * (len(heads) - 2)}"
    for name, sample in found.items():
        yield f"| {' | '.join(_row(name, sample))} |"


def _row(name: str, sample: dict[str, Any]) -> list[str]:
    rates = sample["steps_per_second"]
    names = (*_COMPARED, "threads", "auto")
    figures = [f"{rates[name]:,.0f}" if name in rates else "" for name in names]
    of_choice = sample["ratio_of_choice"]
    below = sample["ratio"] < TARGET
    return [
        *name.split(" / "),
        *figures,
        sample["chosen"],
        f"**{sample['ratio']:.2f}**" if below else f"{sample['ratio']:.2f}",
        "" if of_choice is None else f"{of_choice:.2f}",
    ]


if __name__ == "__main__":
    main()
