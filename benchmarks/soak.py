"""An hour's run in small: a million steps while envs crash, hang and dawdle.

    python -m benchmarks.soak [--steps 1000000] [--minutes 20]

Every env counts its own steps, so every transition can be checked: none is lost, none is told
twice, and each one that a fault cut short is marked. The report holds resident memory, descriptors
and processes over time, and goes to benchmarks/results/soak.json.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import rookery
from rookery.testing import Fault, Faulty

NUM_ENVS, NUM_WORKERS = 16, 4
FAULTS = (Fault.KILL, Fault.RAISE, Fault.SEGFAULT, Fault.EXIT, Fault.WRONG_SHAPE, Fault.HANG)
FAULT_RATE = 2e-4  # per env step
HANG_TIMEOUT_S = 0.25
SLOW_RESET_RATE, SLOW_RESET_S = 0.002, 0.05
END_RATE = 0.01
NUM_SAMPLES = 40
RESULT = Path(__file__).parent / "results" / "soak.json"


class Soaked(Faulty):
    """A Faulty env whose resets are slow now and then."""

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        result = super().reset(**kwargs)
        if self.np_random.random() < SLOW_RESET_RATE:
            time.sleep(SLOW_RESET_S)
        return result


@dataclass(frozen=True)
class Sample:
    """What the run held at one moment."""

    seconds: float
    env_steps: int
    caller_rss_mb: float
    workers_rss_mb: float
    descriptors: int
    processes: int


class Ledger:
    """Knows for every env which count must come next, and counts what does not."""

    def __init__(self, counts: np.ndarray[Any, Any]) -> None:
        self._counts = counts
        self._awaits_reset = np.zeros(len(counts), bool)
        self.wrong = self.faults = self.episodes = 0

    def enter(self, obs: Any, reward: Any, ended: Any, faulted: Any) -> None:
        expected = np.where(self._awaits_reset, 0.0, self._counts + 1)
        expected = np.where(faulted, self._counts, expected)
        paid = np.where(self._awaits_reset | faulted, 0.0, 1.0)
        self.wrong += int((obs[:, 0] != expected).sum() + (reward != paid).sum())
        self.faults += int(faulted.sum())
        self.episodes += int(ended.sum())
        self._counts, self._awaits_reset = obs[:, 0], ended


def soak(num_steps: int, limit_s: float) -> dict[str, Any]:
    """Run, and report."""
    policy = rookery.FaultPolicy(
        "restart", max_restarts=10**6, step_timeout_s=HANG_TIMEOUT_S, reset_timeout_s=5.0
    )
    rng = np.random.default_rng(0)
    samples: list[Sample] = []
    started = time.perf_counter()
    with rookery.make_vec(
        Soaked, NUM_ENVS, backend="process", num_workers=NUM_WORKERS, faults=policy
    ) as venv:
        obs, _ = venv.reset(seed=0)
        ledger = Ledger(obs[:, 0])
        done, next_sample = 0, 0
        while done < num_steps and time.perf_counter() - started < limit_s:
            obs, reward, terminated, truncated, info = venv.step(_actions(rng))
            faulted = info.get("_fault", np.zeros(NUM_ENVS, bool))
            ledger.enter(obs, reward, terminated | truncated, faulted)
            done += NUM_ENVS
            if done >= next_sample:
                samples.append(_sample(time.perf_counter() - started, done))
                next_sample += num_steps // NUM_SAMPLES
        restarts = ledger.faults // (NUM_ENVS // NUM_WORKERS)
    after = _sample(time.perf_counter() - started, done)
    return {
        "env_steps": done,
        "seconds": round(time.perf_counter() - started, 1),
        "episodes": ledger.episodes,
        "worker_restarts": restarts,
        "transitions_closed_by_faults": ledger.faults,
        "transitions_wrong": ledger.wrong,
        "samples": [asdict(sample) for sample in samples],
        "after_close": asdict(after),
    }


def _actions(rng: np.random.Generator) -> Any:
    draw = rng.random(NUM_ENVS)
    actions = np.where(draw < END_RATE, Fault.END, 0)
    for i in np.flatnonzero(draw > 1 - FAULT_RATE):
        actions[i] = rng.choice(FAULTS)
    return actions


def _sample(seconds: float, env_steps: int) -> Sample:
    caller = psutil.Process()
    children = caller.children(recursive=True)
    return Sample(
        seconds=round(seconds, 1),
        env_steps=env_steps,
        caller_rss_mb=round(caller.memory_info().rss / 2**20, 1),
        workers_rss_mb=round(sum(_rss(child) for child in children) / 2**20, 1),
        descriptors=caller.num_fds(),
        processes=len(children),
    )


def _rss(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--minutes", type=float, default=20.0)
    arguments = parser.parse_args()
    report = soak(arguments.steps, 60 * arguments.minutes)
    RESULT.write_text(json.dumps(report, indent=1) + "\n")
    print(
        json.dumps({name: value for name, value in report.items() if name != "samples"}, indent=1)
    )
    for sample in report["samples"]:
        print(sample)


if __name__ == "__main__":
    main()
