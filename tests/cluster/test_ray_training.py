"""Training with envs, policies and learners on a cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from nodes import Head
from patience import PATIENCE_S

import rookery
from rookery.errors import ConfigError, LearnerDied

ray = pytest.importorskip("ray", reason="Ray has no wheel for this Python or platform")

_SHORT: Any = {
    "total_steps": 4096,
    "num_envs": 4,
    "num_workers": 2,
    "eval_episodes": 2,
    "collector": "workers",
    "seed": 3,
}


def _losses(run_dir: Path) -> list[Any]:
    names = ("steps", "policy_loss", "value_loss", "episode_return_mean")
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    return [[json.loads(line).get(name) for name in names] for line in lines]


@pytest.mark.parametrize("num_learners", [1, 2])
def test_a_run_on_a_cluster_has_the_losses_of_a_local_run(
    num_learners: int, tmp_path: Path
) -> None:
    options: Any = {**_SHORT, "num_learners": num_learners, "num_workers": 2 // num_learners}
    rookery.train("CartPole-v1", "ppo", **options, run_dir=tmp_path / "here")
    rookery.train("CartPole-v1", "ppo", **options, cluster="auto", run_dir=tmp_path / "there")
    here, there = _losses(tmp_path / "here"), _losses(tmp_path / "there")
    assert len(here) > 3
    assert there == here


def test_the_policy_may_act_here_for_envs_on_the_cluster(tmp_path: Path) -> None:
    options: Any = {**_SHORT, "total_steps": 256, "collector": "caller"}
    result = rookery.train(
        "CartPole-v1", rookery.PPOConfig(num_steps=32), **options, cluster="auto",
        run_dir=tmp_path / "run",
    )  # fmt: skip
    assert result.steps == 256
    assert json.loads((tmp_path / "run" / "config.json").read_text())["train"]["cluster"] == "auto"
    assert rookery.evaluate(tmp_path / "run", episodes=2).eval_return_mean > 0  # needs no cluster


def _kill_a_learner(trainer: Any, update: Any) -> None:
    for process in psutil.Process(Head.latest_pid).children(recursive=True):
        if process.cmdline()[:1] and process.cmdline()[0].startswith("ray::ClusterLearner"):
            process.kill()


def test_a_lost_learner_is_named_and_the_run_resumes_with_fewer_learners(
    tmp_path: Path,
) -> None:
    run_dir = tmp_path / "run"
    options: Any = {**_SHORT, "num_learners": 2, "num_workers": 1, "cluster": "auto"}
    with pytest.raises(LearnerDied, match=r"Learner 1 of 2 \(process \d+ on node \S+\)"):
        rookery.train(
            "CartPole-v1", "ppo", **options, run_dir=run_dir, callbacks=[_kill_a_learner],
            checkpoint_interval_s=0.0,
        )  # fmt: skip
    result = rookery.resume(run_dir, num_learners=1)
    assert result.steps >= 4096


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"backend": "process"}, "backend='process' is for envs on this machine"),
        ({"collector": "double"}, "collector='double' is for envs on this machine"),
        ({"caller_steps": True}, "caller_steps=True is for envs on this machine"),
        ({"start_method": "spawn"}, "start_method is for envs on this machine"),
        ({"cluster": 3}, "cluster must be an address"),
    ],
)
def test_settings_about_this_machine_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        rookery.train("CartPole-v1", "ppo", **{"cluster": "auto", **settings})


def test_the_command_line_takes_the_clusters_address(tmp_path: Path) -> None:
    address = ray.get_runtime_context().gcs_address
    command = [
        sys.executable, "-m", "rookery", "train", "ppo", "CartPole-v1", "--cluster", address,
        "--num-envs", "4", "--num-workers", "2", "--total-steps", "2048", "--preset", "none",
        "--eval-episodes", "2", "--run-dir", str(tmp_path / "run"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["steps"] == 2048


_TWO_NODES = """
import sys, warnings
import ray
from ray.cluster_utils import Cluster
import rookery

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
# Before the second node is added, so that this process belongs to the head.
ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
second = cluster.add_node(num_cpus=1)
nodes = set()


def lose_a_node(trainer, update):
    nodes.update(backend.node for backend in trainer.collector.telemetry().workers)
    if update.steps > 20_000 and len(nodes) < 3:
        nodes.add("lost")
        cluster.remove_node(second, allow_graceful=False)


try:
    result = rookery.train(
        "CartPole-v1", "ppo", preset="auto", total_steps=100_000, cluster=cluster.address,
        on_fault="restart", run_dir=sys.argv[1], callbacks=[lose_a_node],
    )
    print(len(nodes), result.steps, result.eval_return_mean)
finally:
    ray.shutdown()
    cluster.shutdown()
"""


def test_a_run_survives_the_loss_of_a_node_and_learns_its_env(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _TWO_NODES, str(tmp_path / "run")],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    nodes, steps, score = done.stdout.split()[-3:]
    assert int(nodes) == 3  # two nodes, and the mark that one was lost
    assert int(steps) >= 100_000
    assert float(score) >= 475
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["worker_restarts"] >= 1
    assert "Node share" in done.stderr  # a warning that the share shares CPUs
