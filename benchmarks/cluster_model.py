"""A model of the speed of a cluster, computed from costs that were measured on few nodes.

    python -m benchmarks.cluster_model [--nodes 10 100] [--network-gbit 10] [--learner-times 30]

Every iteration has three parts. All node shares collect in parallel. Their rollouts are sent to the
learner, and weights are sent back. The learner receives the rollouts of one share after the other,
and learns. Synchronous runs do these parts in turn. Asynchronous runs do them at the same time, so
that the slowest part, the bottleneck, determines the speed.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path

RESULT = Path(__file__).parent / "results" / "cluster.json"


@dataclass(frozen=True)
class Costs:
    """The measured or known costs of a run.

    Attributes:
        step_s: seconds in which a worker makes one env step, including the policy.
        row_bytes: bytes of a rollout per env step.
        weight_bytes: bytes of a set of weights.
        share_s: seconds per rollout that a share spends on requests and answers.
        call_s: least seconds that the learner spends on the rollout of a share.
        put_s_per_byte: seconds per byte that a share writes into the object store.
        join_s_per_byte: seconds per byte that the learner needs to join shares.
        update_s_per_row: seconds of learning per env step, of one learner.
        network_bytes_s: bandwidth of each node; infinite if all nodes are one machine.
        hop_s: latency of a message between two nodes, in seconds.
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
    """A cluster and a run on it.

    Attributes:
        nodes: number of nodes, each with one share.
        workers: number of workers per node.
        envs: number of envs per node.
        num_steps: length of a rollout.
        learners: number of learners, each on a separate node.
        is_async: True if shares collect while the learner learns.
        gradient_steps: gradient steps per iteration; learners exchange gradients in each.
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
    """The predicted speed of a setup.

    Attributes:
        rows_per_s: env steps per second.
        seconds: duration of each part of an iteration, by name.
        bottleneck: the longest part.
    """

    rows_per_s: float
    seconds: dict[str, float]
    bottleneck: str


def estimate(costs: Costs, setup: Setup) -> Estimate:
    """Return the steps per second, and the bottleneck."""
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
    """Return the seconds per iteration of a ring all-reduce of the gradients."""
    hops = 2 * (setup.learners - 1)
    once_s = hops * (costs.hop_s + costs.weight_bytes / setup.learners / costs.network_bytes_s)
    return setup.gradient_steps * once_s


_HOP_S = 50e-6  # typical of Ethernet with TCP


def main() -> None:
    """Print the predicted speed on many nodes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster_model")
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 10, 100, 1000])
    parser.add_argument(
        "--network-gbit", type=float, default=10.0, help="bandwidth of each node (10)"
    )
    parser.add_argument("--workers", type=int, default=32, help="workers per node (32)")
    parser.add_argument("--envs", type=int, default=256, help="envs per node (256)")
    parser.add_argument(
        "--learner-times",
        type=float,
        default=1.0,
        help="speed of learning relative to the measured one",
    )
    arguments = parser.parse_args()
    measured = json.loads(RESULT.read_text())["runs"]
    print("| what | nodes | learners | steps/s | bottleneck |")
    print("|---|---:|---:|---:|---|")
    for name, costs_of in measured.items():
        costs = Costs(**costs_of)
        costs = replace(
            costs,
            network_bytes_s=arguments.network_gbit * 1e9 / 8,
            hop_s=_HOP_S,
            update_s_per_row=costs.update_s_per_row / arguments.learner_times,
        )
        for nodes in arguments.nodes:
            for learners in sorted({1, max(nodes // 10, 1)}):
                is_async = name.startswith("IMPALA")
                setup = Setup(
                    nodes,
                    arguments.workers,
                    arguments.envs,
                    128,
                    learners,
                    is_async,
                    1 if is_async else 40,
                )
                found = estimate(costs, setup)
                print(
                    f"| {name} | {nodes:,} | {learners} | {found.rows_per_s:,.0f} | "
                    f"{found.bottleneck} |"
                )


if __name__ == "__main__":
    main()
