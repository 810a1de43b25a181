"""Samples of contenders, taken in rounds, each sample in a new process.

The process, ``python -m rookery.bench.sample``, reads a pickled `SampleRequest` from standard input
and prints one JSON object to the original standard output. Output of envs goes to standard error.
"""

from __future__ import annotations

import itertools
import json
import os
import pickle
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from rookery.bench.contenders import OPENERS, BenchSubject, Contender
from rookery.common.importing import search_path
from rookery.common.pickling import pickled_for_workers
from rookery.env.deferred import Workshop
from rookery.env.registrations import collect, install
from rookery.vector.auto.probe import measure as probe

_BATCHES = 64  # batches of actions, sampled in advance


@dataclass(frozen=True)
class SampleRequest:
    """An order for one sample.

    Attributes:
        subject: env to step.
        contender: way of stepping it.
        num_envs: number of envs.
        warm_up_s: seconds of warm-up, which are not measured.
        seconds: measured seconds.
    """

    subject: BenchSubject
    contender: Contender
    num_envs: int
    warm_up_s: float
    seconds: float


class SampleFailed(Exception):
    """A failed sample; the message is the reason."""


def take(order: SampleRequest, timeout_s: float) -> dict[str, Any]:
    """Execute an order in a new process.

    Returns:
        ``steps_per_second``; for the plain loop, ``wall_s`` and ``cpu_s`` of a step; for the probe,
        the fields of `rookery.vector.auto.plans.Measurement`.

    Raises:
        SampleFailed: the process failed or took too long.
    """
    content = pickle.dumps((collect(), pickled_for_workers(order)))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "rookery.bench.sample"],
            input=content,
            capture_output=True,
            timeout=timeout_s,
            check=False,
            env={**os.environ, "PYTHONPATH": search_path()},
        )
    except subprocess.TimeoutExpired as error:
        raise SampleFailed(f"no result within {timeout_s:g} s") from error
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise SampleFailed(lines[-1] if lines else f"exit code {done.returncode}")
    return dict(json.loads(done.stdout))


@dataclass
class Measured:
    """The samples of one order.

    Attributes:
        order: the order.
        samples: result of each sample, by number of the round.
        failure: reason why sampling stopped; empty without a failure.
    """

    order: SampleRequest
    samples: dict[int, dict[str, Any]] = field(default_factory=dict)
    failure: str = ""

    def values(self, name: str = "steps_per_second") -> dict[int, float]:
        """Return one number of each sample, by round."""
        return {turn: float(sample[name]) for turn, sample in self.samples.items()}


def shuffled(count: int, rounds: int, seed: int) -> list[list[int]]:
    """Return a random permutation of ``range(count)`` for each round."""
    rng = random.Random(seed)
    return [rng.sample(range(count), count) for _ in range(rounds)]


def measure_in_rounds(
    orders: Sequence[SampleRequest],
    rounds: int,
    timeout_s: float,
    seed: int = 0,
    report: Callable[[Measured, dict[str, Any] | None], None] = lambda *_: None,
    take: Callable[[SampleRequest, float], dict[str, Any]] = take,
    into: list[Measured] | None = None,
) -> list[Measured]:
    """Measure all orders once in every round; failed orders are not repeated.

    Args:
        orders: orders to measure.
        rounds: number of rounds.
        timeout_s: longest time of a sample in seconds; longer ones are failures.
        seed: seed of the random order in each round.
        report: function that is called with each sample, or None after a failure.
        take: function that takes one sample.
        into: list that receives the results, also if Ctrl-C interrupts; None for a new list.
    """
    measured = [] if into is None else into
    measured[:] = [Measured(order) for order in orders]
    for turn, places in enumerate(shuffled(len(orders), rounds, seed)):
        for each in (measured[place] for place in places):
            sample = None
            if not each.failure:
                try:
                    sample = each.samples[turn] = take(each.order, timeout_s)
                except SampleFailed as error:
                    each.failure = str(error)
            report(each, sample)
    return measured


def main() -> None:
    """Execute the order on standard input."""
    registrations, pickled = pickle.loads(sys.stdin.buffer.read())
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    install(registrations)
    print(json.dumps(carried_out(pickle.loads(pickled))), file=answers, flush=True)


def carried_out(order: SampleRequest) -> dict[str, Any]:
    """Execute an order in this process and return the result."""
    if order.contender.library == "loop":
        return step_cost(order)
    if order.contender.library == "probe":
        return asdict(probe(order.subject.recipe, order.num_envs, True, None, 1))
    opener = OPENERS[order.contender.library]
    with opener(order.subject, order.num_envs, **order.contender.options) as stepper:
        stepper.action_space.seed(0)
        batches = [stepper.action_space.sample() for _ in range(_BATCHES)]
        rate_of(stepper.step, batches, order.warm_up_s)
        rate = rate_of(stepper.step, batches, order.seconds)
    return {"steps_per_second": rate * order.num_envs}


def rate_of(step: Callable[[Any], object], batches: Sequence[Any], seconds: float) -> float:
    """Return the calls per second of ``step``, over at least ``seconds`` and one call."""
    start = time.perf_counter()
    for calls, batch in enumerate(itertools.cycle(batches), 1):
        step(batch)
        now = time.perf_counter()
        if now - start >= seconds:
            return calls / (now - start)
    raise AssertionError("the batches are endless")


def step_cost(order: SampleRequest) -> dict[str, Any]:
    """Measure the wall time and CPU time of a step in a plain loop over the envs.

    As in Gymnasium's next-step mode, an env is reset in the round after the end of an episode.
    """
    envs = [order.subject.recipe.build(Workshop()) for _ in range(order.num_envs)]
    space = envs[0].action_space
    space.seed(0)
    actions = [space.sample() for _ in range(_BATCHES)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    rounds = _rounds(envs, itertools.cycle(actions))
    _run(rounds, order.warm_up_s)
    start, cpu = time.perf_counter(), time.process_time()
    steps = _run(rounds, order.seconds) * len(envs)
    wall_s, cpu_s = time.perf_counter() - start, time.process_time() - cpu
    for env in envs:
        env.close()
    return {"wall_s": wall_s / steps, "cpu_s": cpu_s / steps}


def _rounds(envs: list[Any], actions: Iterator[Any]) -> Iterator[None]:
    is_over = [False] * len(envs)
    while True:
        action = next(actions)
        for i, env in enumerate(envs):
            if is_over[i]:
                env.reset()
                is_over[i] = False
            else:
                _, _, terminated, truncated, _ = env.step(action)
                is_over[i] = bool(terminated or truncated)
        yield


def _run(rounds: Iterator[None], seconds: float) -> int:
    """Make rounds for some time, at least one; return their number."""
    start = time.perf_counter()
    for count, _ in enumerate(rounds, 1):
        if time.perf_counter() - start >= seconds:
            return count
    raise AssertionError("the rounds are endless")


if __name__ == "__main__":
    np.seterr(all="ignore")  # random actions may cause overflows in envs
    main()
