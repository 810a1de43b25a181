"""Measure one contender of a case once, in this fresh process, and print one line of JSON.

python -m benchmarks.one cartpole-8 "rookery: workers" [--quick] [--seed N]
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json

from benchmarks.cases import CASES
from benchmarks.clocks import FULL, QUICK
from benchmarks.peers import DISTRIBUTIONS, library_of


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.one")
    parser.add_argument("case", choices=CASES)
    parser.add_argument("contender")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    case = CASES[arguments.case]
    measure = importlib.import_module(f"benchmarks.{case.kind}").measure
    sample = measure(case, arguments.contender, QUICK if arguments.quick else FULL, arguments.seed)
    distribution = DISTRIBUTIONS.get(library_of(arguments.contender))
    if distribution is not None:
        sample["version"] = importlib.metadata.version(distribution)
    print(json.dumps(sample))


if __name__ == "__main__":
    main()
