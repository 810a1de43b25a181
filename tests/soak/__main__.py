"""Plays against every backend with fresh seeds for some minutes; see scripts/soak.

Each round runs the state machine of tests/model on one backend with a seed of its own, which is
printed when something was wrong: ``scripts/soak --seed N`` begins with that round. Between them run
the tests of tests/kill, which end workers and callers at every step of what they do.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parent.parent.parent
RESULT = ROOT / "benchmarks" / "results" / "soak.json"
sys.path[:0] = [str(ROOT / "tests" / "model"), str(ROOT / "tests")]

from machine import machine_on, run_machine  # noqa: E402
from model_backends import BACKENDS  # noqa: E402 (found through the path above)

EXAMPLES, STEPS = 20, 40  # of a round


@dataclass
class Sample:
    """What this process held at one moment, after garbage collection."""

    seconds: float
    rss_mb: float
    descriptors: int
    processes: int


@dataclass
class Soak:
    """What was done, and what was wrong.

    Attributes:
        counts: operations, faults, restarts, interruptions.
        wrong: rounds that failed, as ``backend, seed``.
    """

    seconds: float = 0.0
    rounds: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    kill_point_runs: int = 0
    wrong: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    def play(self, name: str, seed: int) -> None:
        """One round of the machine on a backend."""
        machine = machine_on(name)
        machine.totals = self.counts
        self.rounds += 1
        try:
            run_machine(machine, max_examples=EXAMPLES, steps=STEPS, seed=seed)
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            self._fail(f"{name}, seed {seed}", "".join(traceback.format_exception(error)))

    def kill_points(self) -> None:
        """The tests that end processes at every step."""
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "tests/kill", "-p", "no:cacheprovider"],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        self.kill_point_runs += 1
        if done.returncode:
            self._fail(f"kill points, run {self.kill_point_runs}", done.stdout[-4000:])

    def look(self, started: float) -> None:
        """Note what this process holds."""
        gc.collect()
        process = psutil.Process()
        self.seconds = round(time.monotonic() - started, 1)
        rss_mb = round(process.memory_info().rss / 2**20, 1)
        children = len(process.children(recursive=True))
        self.samples.append(Sample(self.seconds, rss_mb, process.num_fds(), children))

    def _fail(self, what: str, text: str) -> None:
        self.wrong.append(what)
        print(f"WRONG: {what}\n{text}", flush=True)


def soak(minutes: float, seed: int, names: list[str]) -> Soak:
    """Play until the time is over."""
    done, started = Soak(), time.monotonic()
    until = started + 60 * minutes
    while True:
        for name in names:
            done.play(name, seed)
            if time.monotonic() > until:
                break
        done.look(started)
        if time.monotonic() > until:
            return done
        done.kill_points()
        seed += 1


def _print(done: Soak, first_seed: int) -> None:
    first, last = done.samples[0], done.samples[-1]
    counted = ", ".join(f"{count} {what}" for what, count in sorted(done.counts.items()))
    print(f"{done.rounds} rounds in {done.seconds:.0f} s, from seed {first_seed}: {counted}")
    print(f"kill points: {done.kill_point_runs} runs")
    print(f"resident memory: {first.rss_mb} MiB after the first rounds, {last.rss_mb} at the end")
    print(f"descriptors: {first.descriptors} and {last.descriptors}")
    print(f"processes: {first.processes} and {last.processes}")
    print(f"wrong answers: {len(done.wrong)}{''.join(chr(10) + '  ' + w for w in done.wrong)}")


def main() -> int:
    """Run from the command line; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, help="of the first round; drawn by default")
    parser.add_argument("--backend", choices=list(BACKENDS), help="only this one")
    parser.add_argument("--record", action="store_true", help=f"write {RESULT.relative_to(ROOT)}")
    arguments = parser.parse_args()
    seed = int.from_bytes(os.urandom(3), "big") if arguments.seed is None else arguments.seed
    names = [arguments.backend] if arguments.backend else list(BACKENDS)
    done = soak(arguments.minutes, seed, names)
    _print(done, seed)
    if arguments.record:
        report: dict[str, Any] = {"first_seed": seed, **asdict(done)}
        RESULT.write_text(json.dumps(report, indent=1) + "\n")
    return int(bool(done.wrong))


if __name__ == "__main__":
    sys.exit(main())
