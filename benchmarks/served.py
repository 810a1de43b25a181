"""Compare ``served`` with the other collectors, for networks of several sizes.

    python -m benchmarks.served [--env HalfCheetah-v5] [--num-envs 16]

The collectors take turns; the result is in env steps per second of collecting. It is written to
results/served.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.tuning import rates_of
from rookery.bench.conditions import conditions
from rookery.common.cpus import usable_cpus
from rookery.learn.config import PPOConfig
from rookery.tuning.candidates import Candidate, Mode

RESULT = Path(__file__).parent / "results" / "served.json"
_WIDTHS = (64, 256, 512, 1024)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.served")
    parser.add_argument("--env", default="HalfCheetah-v5")
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="duration of each turn (2)")
    arguments = parser.parse_args()
    cpus = usable_cpus()
    modes = [
        Mode("caller", "serial"),
        Mode("caller", "process", cpus),
        Mode("double", "process", 2 * cpus),
        Mode("served", "process", cpus),
        Mode("workers", "process", cpus),
    ]
    rows: dict[str, dict[str, Any]] = {}
    for width in _WIDTHS:
        config = PPOConfig(hidden_sizes=(width, width))
        tried = {Candidate(arguments.num_envs, mode): 0.0 for mode in modes}
        rates = rates_of(arguments.env, config, {}, tried, arguments.turns, arguments.seconds)
        rows[f"2 x {width}"] = {
            str(candidate.mode): [round(rate) for rate in own] for candidate, own in rates.items()
        }
        print(f"2 x {width}: " + ", ".join(
            f"{candidate.mode} {median(own):,.0f}" for candidate, own in rates.items()
        ), flush=True)  # fmt: skip
    written = {
        "conditions": conditions(), "env": arguments.env, "num_envs": arguments.num_envs,
        "steps_per_second": rows,
    }  # fmt: skip
    RESULT.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
