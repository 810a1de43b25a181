"""Measure one contender once, in this fresh process, and print one line of JSON.

python -m benchmarks.one stepping cartpole-8 "rookery workers" [--quick] [--repetition N]
"""

from __future__ import annotations

import argparse
import json

from benchmarks.cases import FULL, QUICK
from benchmarks.subjects import SUBJECTS, cases_of, load_subject


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.one")
    parser.add_argument("subject", choices=SUBJECTS)
    parser.add_argument("case")
    parser.add_argument("contender")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--repetition", type=int, default=0)
    arguments = parser.parse_args()

    (case,) = [c for c in cases_of(arguments.subject, arguments.quick) if c.name == arguments.case]
    effort = QUICK if arguments.quick else FULL
    measure = load_subject(arguments.subject).measure
    print(json.dumps(measure(case, arguments.contender, effort, arguments.repetition)))


if __name__ == "__main__":
    main()
