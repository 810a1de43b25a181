"""Folders as runs leave them, written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np


def write_run(path: Path, rows: Any = None, *, telemetry: Any = (), evaluations: Any = (),
              env: Any = "CartPole-v1", algo: str = "ppo", seed: int = 0, train: Any = (),
              **settings: Any) -> Path:  # fmt: skip
    """Make the folder of a run.

    Args:
        path: of the folder.
        rows: lines of metrics.jsonl; None makes some.
        telemetry: lines of telemetry.jsonl; none writes no file.
        evaluations: env step, mean and deviation of each.
        env: what config.json says of it.
        algo: name of the algorithm.
        seed: of the run.
        train: further settings of the run.
        **settings: of the algorithm.
    """
    path.mkdir(parents=True, exist_ok=True)
    run = {"seed": seed, "run_dir": str(path), "total_steps": 10_000, "num_envs": 4, **dict(train)}
    config = {
        "algo": algo,
        algo: {"learning_rate": 1e-3, "hidden_sizes": None, **settings},
        "own": {},
        "source": {"env": env, "env_kwargs": {}, "wrappers": [], "env_module": None},
        "eval_source": None,
        "train": run,
        "versions": {"rookery": "0.1.0", "python": "3.11.7"},
    }
    (path / "config.json").write_text(json.dumps(config))
    write_lines(path / "metrics.jsonl", metrics_rows(seed=seed) if rows is None else rows)
    names = ("step", "eval_return_mean", "eval_return_std")
    points = [dict(zip(names, point, strict=True)) for point in evaluations]
    for name, lines in {"telemetry": telemetry, "evaluations": points}.items():
        if lines:
            write_lines(path / f"{name}.jsonl", lines)
    return path


def write_lines(path: Path, rows: Any) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def metrics_rows(count: int = 40, last_step: int = 10_000, seed: int = 0) -> list[dict[str, Any]]:
    """Lines of a PPO run that learns, one every two seconds."""
    noise = np.random.default_rng(seed).normal(0, 12, count)
    rows = []
    for i in range(count):
        done = (i + 1) / count
        step, seconds = round(last_step * done), 2.0 * (i + 1)
        rows.append({
            "step": step, "seconds": seconds, "steps_per_second": step / seconds,
            "episodes": 3.0 * i, "episode_return_mean": 20 + 460 * done**1.5 + noise[i],
            "policy_loss": -0.02 * (1 - done), "value_loss": 30 * (1 - done) + 1,
            "entropy": 0.7 - 0.4 * done, "learning_rate": 1e-3 * (1 - done),
            "collect_s": 1.2, "policy_s": 0.3, "env_s": 0.6, "wait_s": 0.2, "learn_s": 0.7,
        })  # fmt: skip
    del rows[0]["episode_return_mean"]  # as before the first episode ends
    return rows


def telemetry_rows(num_envs: int = 8, num_workers: int = 3, count: int = 8) -> list[dict[str, Any]]:
    """Lines of telemetry.jsonl, one every ten seconds; env 5 is slow, and its worker grows."""
    worker = [min(i * num_workers // num_envs, num_workers - 1) for i in range(num_envs)]
    slow = [3.0 if i == 5 else 1.0 + 0.05 * i for i in range(num_envs)]
    busy = [0.8 if i == worker[min(5, num_envs - 1)] else 0.45 for i in range(num_workers)]
    rows = []
    for k in range(1, count + 1):
        seconds = 10.0 * k
        envs = {
            "worker": worker, "steps": [150 * k] * num_envs, "episodes": [3 * k] * num_envs,
            "step_mean_s": [24e-6 * each for each in slow],
            "step_p50_s": [22e-6 * each for each in slow],
            "step_p99_s": [90e-6 * each for each in slow],
            "reset_mean_s": [150e-6] * num_envs, "reset_p99_s": [None, *[400e-6] * (num_envs - 1)],
            "wait_s": [0.1 * k] * num_envs,
            "straggler_share": [0.65 if i == 5 else 0.05 for i in range(num_envs)],
        }  # fmt: skip
        workers = [
            {
                "pid": 4000 + i, "env_ids": [worker.index(i), num_envs - 1 - worker[::-1].index(i)],
                "in_caller": False, "busy_s": seconds * busy[i],
                "rss_bytes": 120e6 + 3e5 * k * i, "rss_bytes_per_hour": 1.08e8 * i,
                "cpu_percent": 60.0 + 10 * i, "threads": 2, "descriptors": 18,
                "restarts": int(i == 1 and k > 4),
                "restart_causes": ["killed by SIGSEGV"] if i == 1 and k > 4 else [],
            }
            for i in range(num_workers)
        ]  # fmt: skip
        caller = {
            "vector_steps": 150 * k, "env_steps": 150 * k * num_envs, "waited_s": 0.2 * seconds,
            "rss_bytes": 410e6 + 1e5 * k, "rss_bytes_per_hour": 3.6e7, "cpu_percent": 88.0,
            "threads": 5, "descriptors": 41,
        }  # fmt: skip
        rows.append({
            "step": 1200 * k, "seconds": seconds, "unix_time": 1.7e9 + seconds, "envs": envs,
            "workers": workers, "caller": caller,
        })  # fmt: skip
    return rows
