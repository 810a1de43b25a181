"""Compare the result of `rookery tune` with a full search.

    python -m benchmarks.tuning Acrobot-v1 MiniGrid-Empty-5x5-v0 HalfCheetah-v5 --minutes 1.5

First the search as users make it; then every candidate that it had, for as long as each other; then
the fastest of these and the choice once more, by turns. What they make there is compared: of forty
figures the highest is the luckiest. Where other work runs on the machine, it is a hint only.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from statistics import median
from typing import Any

from rookery.common.resources import memory_room
from rookery.learn.config_base import Config
from rookery.run.plan import RunPlan
from rookery.run.request import RunRequest
from rookery.tuning.candidates import Candidate
from rookery.tuning.halving import CandidateFailed
from rookery.tuning.measurer import Measurer
from rookery.tuning.measuring_process import Subject
from rookery.tuning.memory import ceiling_of
from rookery.tuning.search import tune


def main() -> None:
    """Compare for each env, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("envs", nargs="+")
    parser.add_argument("--algo", default="ppo")
    parser.add_argument("--minutes", type=float, default=1.5, help="minutes of each search (1.5)")
    parser.add_argument("--turns", type=int, default=5, help="turns of the fastest candidates (5)")
    parser.add_argument("--fastest", type=int, default=5, help="number of fastest candidates (5)")
    parser.add_argument(
        "--seconds",
        type=float,
        default=1.5,
        help="seconds of each turn; twice that for the fastest (1.5)",
    )
    arguments = parser.parse_args()
    for env in arguments.envs:
        settings: dict[str, Any] = {"preset": "auto"}
        found = tune(env, arguments.algo, minutes=arguments.minutes, say=_say, **settings)
        known = {t.candidate: t.rate if t.is_measured else 0.0 for t in found.trials}
        once = rates_of(env, arguments.algo, settings, known, 1, arguments.seconds)
        fastest = sorted(once, key=lambda candidate: -once[candidate][0])[: arguments.fastest]
        compared = {each: once[each][0] for each in (found.chosen, *fastest)}
        rates = rates_of(
            env, arguments.algo, settings, compared, arguments.turns, 2 * arguments.seconds
        )
        print(json.dumps({"env": env, **_compared(found.chosen, once, rates)}), flush=True)


def rates_of(
    env: str,
    algo: str | Config,
    settings: dict[str, Any],
    known: Mapping[Candidate, float],
    turns: int,
    seconds: float,
) -> dict[Candidate, list[float]]:
    """Measure the steps per second of collecting of every candidate, in turns.

    Args:
        env: env of the runs.
        algo: name of the algorithm, or its config.
        settings: settings of the run.
        known: candidates, with their approximate steps per second; 0 if unknown.
            Slower candidates get shorter rollouts, so that some fit into a turn.
        turns: number of measurements of each candidate.
        seconds: duration of each turn.
    """
    plan = RunPlan.new(RunRequest(env, algo, settings=settings))
    algorithm: Any = plan.algorithm
    subject = Subject(plan.source, None, algorithm.name, algorithm.modules, plan.settings)
    tried, known = list(known), dict(known)
    rates: dict[Candidate, list[float]] = {candidate: [] for candidate in tried}
    with Measurer(subject, ceiling_of(memory_room()), deadline_s=60.0) as measurer:
        for turn in range(turns):
            for candidate in tried if turn % 2 == 0 else reversed(tried):
                chosen = {**settings, "num_envs": candidate.num_envs}
                request = RunRequest(plan.source.env, algo, settings=chosen)
                run: Any = RunPlan.new(request).algorithm
                order = {
                    "do": "measure",
                    "settings": candidate.settings(),
                    "config": run.config.to_dict(),
                    "seconds": seconds,
                    "learns": False,
                    "step_s": candidate.num_envs / known[candidate] if known[candidate] else 0.0,
                }
                try:
                    answer = measurer.ask(order, seconds)
                except CandidateFailed as failure:
                    _say(f"{candidate}: {failure}")
                    continue
                known[candidate] = answer["steps"] / answer["collect_s"]
                rates[candidate].append(known[candidate])
    return {candidate: found for candidate, found in rates.items() if found}


def _compared(
    chosen: Candidate, once: dict[Candidate, list[float]], rates: dict[Candidate, list[float]]
) -> dict[str, object]:
    """The choice beside the best of the full search."""
    scores = {candidate: median(own) for candidate, own in rates.items()}
    best = max(scores, key=scores.__getitem__)
    return {
        "chosen": str(chosen),
        "steps_per_second": round(scores[chosen]),
        "best": str(best),
        "of_the_best": round(scores[chosen] / scores[best], 3),
        "median_candidate": round(median(own[0] for own in once.values())),
        "candidates": len(once),
    }


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
