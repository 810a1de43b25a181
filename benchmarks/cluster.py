"""Measure collecting on a Ray cluster of several nodes, and compare it with `cluster_model`.

    python -m benchmarks.cluster [--only nodes]

Envs that wait, on 1 to 4 nodes of a cluster on this machine, which take no core from each other.
Written to results/cluster.json. How one machine's workers, two nodes and RLlib compare is a case of
``scripts/bench``.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Literal

import gymnasium as gym
import numpy as np

import rookery
from benchmarks.cluster_model import RESULT, Costs, Setup, estimate
from rookery import WorkerCollector
from rookery.bench.conditions import conditions
from rookery.rollout.rollout import side_by_side, size_of

_MOST_NODES, _WORKERS, _ENVS, _SHORT = 4, 2, 8, 64  # of each node
_WAIT_S = 2e-3


class Waiting(gym.Env[Any, Any]):
    """Waits in every step, and shows so many bytes.

    Args:
        shape: of its observations, uint8.
    """

    action_space = gym.spaces.Discrete(2)

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.observation_space = gym.spaces.Box(0, 255, shape, np.uint8)
        self._obs = np.zeros(shape, np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._obs, {}

    def step(self, action: Any) -> Any:
        time.sleep(_WAIT_S)
        return self._obs, 0.0, False, False, {}


class Drawing(rookery.Policy):
    """Draws without looking."""

    def act(self, obs: Any, deterministic: bool = False) -> Any:
        count = len(obs)
        zeros = np.zeros(count, np.float32)
        return rookery.policy.PolicyStep(np.zeros(count, np.int64), zeros, zeros)


SHAPES = {"small observations": (4,), "images": (84, 84, 4)}


@contextmanager
def a_cluster(nodes: int, num_cpus: int) -> Iterator[None]:
    """Join a cluster of nodes on this machine, beside a head without CPUs."""
    import ray
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    ray.init(address=cluster.address, logging_level=logging.ERROR, log_to_driver=False)
    for _ in range(nodes):
        cluster.add_node(num_cpus=num_cpus)
    cluster.wait_for_nodes()
    try:
        yield
    finally:
        ray.shutdown()
        cluster.shutdown()


def rate(collector: WorkerCollector, seconds: float) -> float:
    """Env steps per second."""
    began, rows = time.perf_counter(), 0
    while (took := time.perf_counter() - began) < seconds:
        rows += collector.collect().num_transitions
    return rows / took


# ---------------------------------------------------------------- with more nodes


def measured_costs(shape: tuple[int, ...]) -> Costs:
    """Return the costs of the model, measured without the cases that it predicts."""
    make = partial(WorkerCollector, partial(Waiting, shape), Drawing())
    with make(_ENVS, _WORKERS, _SHORT) as here:
        here.collect()
        rollout = here.collect()
        step_s = _WORKERS / rate(here, 2.0)
    row_bytes = size_of(rollout) / rollout.num_transitions
    parts = [side_by_side([rollout]) for _ in range(2)]
    joined_s = _median_s(lambda: side_by_side(parts)) / 2
    one, four = (_seconds_of_tiny(make, nodes) for nodes in (1, _MOST_NODES))
    call_s = max(four - one, 0.0) / (_MOST_NODES - 1)
    tiny_s = step_s * _ENVS / _WORKERS
    return Costs(
        step_s=step_s,
        row_bytes=row_bytes,
        weight_bytes=0.0,
        share_s=max(one - call_s - tiny_s, 0.0),
        call_s=call_s,
        put_s_per_byte=_put_s_per_byte(),
        join_s_per_byte=joined_s / (rollout.num_transitions * row_bytes),
    )


def _seconds_of_tiny(make: Callable[..., WorkerCollector], nodes: int) -> float:
    """Seconds of rollouts of a single step."""
    with make(nodes * _ENVS, nodes * _WORKERS, 1, backend="ray") as collector:
        collector.collect()
        return _median_s(collector.collect, 40)


def _put_s_per_byte() -> float:
    """Of an actor that returns arrays."""
    import ray

    class Giver:
        def give(self, size: int) -> Any:
            return np.zeros(size, np.uint8)

    actor: Any = ray.remote(num_cpus=0)(Giver)
    giver = actor.remote()
    size = 2**26

    def give(count: int) -> None:
        ray.get(giver.give.remote(count))

    small, large = (_median_s(partial(give, count), 8) for count in (8, size))
    ray.kill(giver)
    return max(large - small, 0.0) / size


def _median_s(function: Callable[[], Any], times: int = 20) -> float:
    took = []
    for _ in range(times):
        began = time.perf_counter()
        function()
        took.append(time.perf_counter() - began)
    return float(median(took))


def with_more_nodes() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return measurements and predictions for 1 to 4 nodes, and the costs."""
    points: dict[str, Any] = {}
    examples: dict[str, Any] = {}
    with a_cluster(_MOST_NODES, _WORKERS):
        for name, shape in SHAPES.items():
            costs = measured_costs(shape)
            examples[name] = asdict(costs)
            for is_async in (False, True):
                for nodes in range(1, _MOST_NODES + 1):
                    setup = Setup(nodes, _WORKERS, _ENVS, _SHORT, is_async=is_async)
                    said = estimate(costs, setup).rows_per_s
                    mode: Literal["async", "sync"] = "async" if is_async else "sync"
                    with WorkerCollector(
                        partial(Waiting, shape), Drawing(), nodes * _ENVS, nodes * _WORKERS,
                        _SHORT, mode, backend="ray",
                    ) as collector:  # fmt: skip
                        collector.collect()
                        seen = median(rate(collector, 2.0) for _ in range(3))
                    row = {"measured": round(seen), "model": round(said)}
                    points[f"{name}, {mode}, {nodes}"] = row
                    print(f"{name}, {mode}, {nodes}: {row} {seen / said:.2f}", flush=True)
    return points, examples


# ---------------------------------------------------------------- what runs cost

_RUNS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "PPO, HalfCheetah, 2 x 64": ("HalfCheetah-v5", "ppo", {"num_envs": 16, "total_steps": 12288}),
    "IMPALA, Pong, Nature's network": (
        "ALE/Pong-v5",
        "impala",
        {"num_envs": 8, "total_steps": 2560},
    ),
}


def of_runs(costs: dict[str, Any]) -> dict[str, Any]:
    """Return the costs of real runs on one CPU, from their metrics and the measured costs."""
    found = {}
    for name, (env, algo, settings) in _RUNS.items():
        with tempfile.TemporaryDirectory() as folder:
            told: Any = {**settings, "collector": "workers", "num_workers": 1, "eval_episodes": 0}
            with rookery.Trainer(env, algo, **told, run_dir=Path(folder) / "run") as trainer:
                updates = [update.metrics for update in trainer]
                model = trainer.policy.model
                weight_bytes = model.parameters.nbytes + model.extras().nbytes
                rollout = trainer.collector.collect()
            rows = rollout.num_transitions
            later = updates[1:]
        kind = "images" if "Pong" in env else "small observations"
        found[name] = {
            **costs[kind],
            "step_s": median(m["policy_s"] + m["env_s"] for m in later) / rows,
            "row_bytes": size_of(rollout) / rows,
            "weight_bytes": float(weight_bytes),
            "update_s_per_row": median(m["learn_s"] for m in later) / rows,
        }
        print(name, found[name], flush=True)
    return found


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster")
    parser.add_argument("--only", choices=["nodes", "runs"], help="part to measure")
    arguments = parser.parse_args()
    written: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    written["conditions"] = conditions()
    if arguments.only in (None, "nodes"):
        written["nodes"], written["costs"] = with_more_nodes()
    if arguments.only in (None, "runs"):
        written["runs"] = of_runs(written["costs"])
    RESULT.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
