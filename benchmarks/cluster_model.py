"""How fast a cluster collects and learns, on paper: pure functions of what was measured on few.

    python -m benchmarks.cluster_model [--nodes 10 100] [--network-gbit 10] [--learner-times 30]

Every iteration has three parts. Node shares collect, side by side. Their rollouts travel to the
learner, and weights travel back. The learner takes the rollouts in, one share after the other, and
learns. Synchronous runs do the parts by turns; asynchronous ones do them at the same time, so that
the slowest decides. What is the slowest is the bottleneck.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path

RESULT = Path(__file__).parent / "results" / "cluster.json"


@dataclass(frozen=True)
class Costs:
    """What was measured, or is known.

    Attributes:
        step_s: seconds in which a worker makes one env step, its policy's decision included.
        row_bytes: of a rollout, per env step.
        weight_bytes: of a set of weights.
        share_s: seconds of a rollout that a share does not spend on steps: to be asked, to answer.
        call_s: seconds that the learner's process spends on the rollout of each share, at least.
        put_s_per_byte: seconds that a share spends on a byte, to put it into the object store.
        join_s_per_byte: seconds that the learner's process spends on a byte, to join shares.
        update_s_per_row: seconds of learning per env step, of one learner.
        network_bytes_s: of each node's link; infinite where all nodes are one machine.
        hop_s: seconds that a message takes from one node to the next, however small.
    """

    step_s: float
    row_bytes: float
    weight_bytes: float
    share_s: float
    call_s: float
    put_s_per_byte: float
    join_s_per_byte: float
    update_s_per_row: float = 0.0
    network_bytes_s: float = float("inf")
    hop_s: float = 0.0


@dataclass(frozen=True)
class Setup:
    """What runs.

    Attributes:
        nodes: with one share each.
        workers: of each node.
        envs: of each node.
        num_steps: of a rollout.
        learners: that share rollouts and gradients, each on a node of its own.
        is_async: whether shares go on while the learner learns.
        gradient_steps: of each iteration; after each, learners exchange gradients.
    """

    nodes: int
    workers: int
    envs: int
    num_steps: int
    learners: int = 1
    is_async: bool = False
    gradient_steps: int = 1


@dataclass(frozen=True)
class Estimate:
    """What a setup comes to.

    Attributes:
        rows_per_s: env steps per second.
        seconds: of each part of an iteration, by name.
        bottleneck: the longest part.
    """

    rows_per_s: float
    seconds: dict[str, float]
    bottleneck: str


def estimate(costs: Costs, setup: Setup) -> Estimate:
    """Steps per second, and what keeps it from being more."""
    rows_of_share = setup.envs * setup.num_steps
    rows = rows_of_share * setup.nodes
    share_bytes = rows_of_share * costs.row_bytes
    shares = setup.nodes / setup.learners  # that one learner takes in
    seconds = {
        "workers": rows_of_share * costs.step_s / setup.workers
        + costs.share_s
        + share_bytes * costs.put_s_per_byte,
        "calls": shares * costs.call_s,
        "object store": shares * share_bytes * costs.join_s_per_byte,
        "network": shares * (share_bytes + costs.weight_bytes) / costs.network_bytes_s
        + _exchange_s(costs, setup),
        "learner": rows * costs.update_s_per_row / setup.learners,
    }
    if setup.is_async:  # the learner's process takes in and learns by turns
        busy = seconds["calls"] + seconds["object store"] + seconds["learner"]
        round_s = max(seconds["workers"], seconds["network"], busy)
    else:
        round_s = sum(seconds.values())
    return Estimate(rows / round_s, seconds, max(seconds, key=lambda name: seconds[name]))


def _exchange_s(costs: Costs, setup: Setup) -> float:
    """Seconds of an iteration in which learners exchange gradients, by a ring."""
    hops = 2 * (setup.learners - 1)
    once_s = hops * (costs.hop_s + costs.weight_bytes / setup.learners / costs.network_bytes_s)
    return setup.gradient_steps * once_s


_HOP_S = 50e-6  # of Ethernet with TCP, as a rule


def main() -> None:
    """Print what the measured costs come to on many nodes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster_model")
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 10, 100, 1000])
    parser.add_argument("--network-gbit", type=float, default=10.0, help="of each node's link")
    parser.add_argument("--workers", type=int, default=32, help="of each node")
    parser.add_argument("--envs", type=int, default=256, help="of each node")
    parser.add_argument(
        "--learner-times", type=float, default=1.0, help="how much faster learning is than here"
    )
    told = parser.parse_args()
    measured = json.loads(RESULT.read_text())["runs"]
    print("| what | nodes | learners | steps/s | bottleneck |")
    print("|---|---:|---:|---:|---|")
    for name, costs_of in measured.items():
        costs = Costs(**costs_of)
        costs = replace(
            costs,
            network_bytes_s=told.network_gbit * 1e9 / 8,
            hop_s=_HOP_S,
            update_s_per_row=costs.update_s_per_row / told.learner_times,
        )
        for nodes in told.nodes:
            for learners in sorted({1, max(nodes // 10, 1)}):
                is_async = name.startswith("IMPALA")
                setup = Setup(
                    nodes, told.workers, told.envs, 128, learners, is_async, 1 if is_async else 40
                )
                found = estimate(costs, setup)
                print(
                    f"| {name} | {nodes:,} | {learners} | {found.rows_per_s:,.0f} | "
                    f"{found.bottleneck} |"
                )


if __name__ == "__main__":
    main()
