"""Nodes of a Ray cluster on this machine, in processes that are no children of ours."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable

import psutil

_POLL_S = 0.05
_OURS = ("ray::NodeAgent", "ray::NodeShare", "ray::ClusterLearner")

_HEAD = """
import sys
from ray.cluster_utils import Cluster

cluster = Cluster(
    initialize_head=True,
    head_node_args={"num_cpus": int(sys.argv[1]), "include_dashboard": False},
)
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


class Head:
    """A cluster of one node, which ends with the block.

    Args:
        num_cpus: that the node says it has.
    """

    latest_pid = 0

    def __init__(self, num_cpus: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _HEAD, str(num_cpus)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            # Actors start processes of their own; others would only take memory.
            env={**os.environ, "RAY_prestart_worker_first_driver": "0"},
        )
        assert self._process.stdout is not None
        Head.latest_pid = self._process.pid
        self.address = self._process.stdout.readline().strip()

    def __enter__(self) -> Head:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._process.communicate("")


def agents(ancestor: int | None = None) -> list[str]:
    """Living actors of ours.

    Args:
        ancestor: the process whose descendants they are; None means that of the latest `Head`.
    """
    found = []
    for process in psutil.Process(ancestor or Head.latest_pid).children(recursive=True):
        try:
            line = process.cmdline()
        except psutil.Error:  # it has just ended
            continue
        if line and line[0].startswith(_OURS):
            found.append(f"{process.pid} {line[0]}")
    return found


def orphaned_names() -> list[str]:
    """Names of semaphores whose process has ended."""
    if sys.platform != "linux":
        return []
    names = [name for name in os.listdir("/dev/shm") if name.startswith("sem.rookery-")]
    return [name for name in names if not psutil.pid_exists(int(name.split("-")[1]))]


def left_of(find: Callable[[], list[str]], patience_s: float) -> list[str]:
    """What is still found when it has had time to go."""
    deadline = time.monotonic() + patience_s
    while (left := find()) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return left
