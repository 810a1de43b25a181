"""Whether `rookery tune` finds what a full search finds.

    python -m benchmarks.tuning Acrobot-v1 MiniGrid-Empty-5x5-v0 HalfCheetah-v5 --minutes 1.5

First the search as users make it; then every candidate that it had, in turns, for as long as each
other. Where other work runs on the machine, the figures are a hint only.
"""

from __future__ import annotations

import argparse
import json
import sys
from statistics import median

from rookery.training.plan import RunPlan
from rookery.tuning.candidates import Candidate
from rookery.tuning.halving import CandidateFailed
from rookery.tuning.measurer import Subject
from rookery.tuning.measuring import Measurer
from rookery.tuning.memory import ceiling_here
from rookery.tuning.search import Outcome, tune


def main() -> None:
    """Compare for each env, a line of JSON each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("envs", nargs="+")
    parser.add_argument("--algo", default="ppo")
    parser.add_argument("--minutes", type=float, default=1.5, help="of each search")
    parser.add_argument("--turns", type=int, default=2, help="of the full search")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each turn")
    told = parser.parse_args()
    for env in told.envs:
        settings = {"preset": "auto"}
        found = tune(env, told.algo, minutes=told.minutes, say=_say, **settings)
        plan = RunPlan.new(env, told.algo, settings)
        rates = _full(plan, found, told.turns, told.seconds)
        print(json.dumps({"env": env, **_compared(found, rates)}), flush=True)


def _full(
    plan: RunPlan, found: Outcome, turns: int, seconds: float
) -> dict[Candidate, list[float]]:
    """Steps per second of every candidate, in turns."""
    algorithm = plan.algorithm
    subject = Subject(plan.source, None, algorithm.name, algorithm.modules, plan.settings)
    tried = [trial.candidate for trial in found.trials]
    rates: dict[Candidate, list[float]] = {candidate: [] for candidate in tried}
    with Measurer(subject, ceiling_here(), deadline_s=60.0) as measurer:
        for turn in range(turns):
            for candidate in tried if turn % 2 == 0 else reversed(tried):
                told = {"preset": "auto", "num_envs": candidate.num_envs}
                config = RunPlan.new(plan.source.env, algorithm.name, told).algorithm.config
                order = {
                    "do": "measure",
                    "settings": candidate.settings(),
                    "config": config.to_dict(),
                    "seconds": seconds,
                    "learns": False,
                    "step_s": 0.0005 * candidate.num_envs,
                }
                try:
                    answer = measurer.ask(order, seconds)
                except CandidateFailed as failure:
                    _say(f"{candidate}: {failure}")
                    continue
                rates[candidate].append(answer["steps"] / answer["collect_s"])
    return {candidate: own for candidate, own in rates.items() if own}


def _compared(found: Outcome, rates: dict[Candidate, list[float]]) -> dict[str, object]:
    """The choice beside the best of the full search."""
    scores = {candidate: median(own) for candidate, own in rates.items()}
    chosen = found.chosen
    alike = {c: score for c, score in scores.items() if c.num_envs == chosen.num_envs}
    best, best_alike = max(scores, key=scores.__getitem__), max(alike, key=alike.__getitem__)
    return {
        "chosen": str(chosen),
        "chosen_steps_per_second": round(scores[chosen]),
        "best_of_as_many_envs": str(best_alike),
        "of_it": round(scores[chosen] / alike[best_alike], 3),
        "best": str(best),
        "of_the_best": round(scores[chosen] / scores[best], 3),
        "median_candidate": round(median(scores.values())),
        "candidates": len(scores),
    }


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
