"""RLlib's env runners at the work of `benchmarks.cluster`; run by an interpreter that has it.

python cluster_rllib.py NUM_ENVS NUM_STEPS TURNS SECONDS; the last line printed is a list of env
steps per second.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any


def main() -> None:
    """Collect and print."""
    import ray
    from ray.cluster_utils import Cluster
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    num_envs, num_steps, turns = map(int, sys.argv[1:4])
    seconds, runners = float(sys.argv[4]), 2
    head = {"num_cpus": 0, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    ray.init(address=cluster.address, logging_level=logging.ERROR, log_to_driver=False)
    for _ in range(runners):
        cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    config: Any = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(
            num_env_runners=runners,
            num_envs_per_env_runner=num_envs // runners,
            rollout_fragment_length=num_steps,
            batch_mode="truncate_episodes",
        )
        .resources(num_cpus_for_main_process=0)
        .training(train_batch_size_per_learner=num_envs * num_steps)
        .learners(num_learners=0)
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64], vf_share_layers=False))
    )
    group = config.build_algo().env_runner_group

    def collect() -> int:
        found = group.foreach_env_runner(
            lambda runner: runner.sample(), local_env_runner=False, timeout_seconds=120
        )
        return sum(len(episode) for episodes in found for episode in episodes)

    collect()
    rates = []
    for _ in range(turns):
        began, rows = time.perf_counter(), 0
        while (took := time.perf_counter() - began) < seconds:
            rows += collect()
        rates.append(rows / took)
    print(json.dumps(rates))
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()
