"""A Ray cluster on this machine, with processes that are not children of the tests."""

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
        num_cpus: number of CPUs of the node.
    """

    latest_pid = 0

    def __init__(self, num_cpus: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _HEAD, str(num_cpus)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            # Actors start their own processes, and idle ones would only take memory.
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
    """Return the running actors of rookery.

    Args:
        ancestor: process id of their ancestor; None means the process of the latest `Head`.
    """
    found = []
    for process in psutil.Process(ancestor or Head.latest_pid).children(recursive=True):
        try:
            line = process.cmdline()
        except psutil.Error:  # the process has just exited
            continue
        if line and line[0].startswith(_OURS):
            found.append(f"{process.pid} {line[0]}")
    return found


def orphaned_names() -> list[str]:
    """Return the names of semaphores of processes that have exited."""
    if sys.platform != "linux":
        return []
    names = [name for name in os.listdir("/dev/shm") if name.startswith("sem.rookery-")]
    return [name for name in names if not psutil.pid_exists(int(name.split("-")[1]))]


def left_of(find: Callable[[], list[str]], patience_s: float) -> list[str]:
    """Return what ``find`` still returns after this time; an empty list as soon as it does."""
    deadline = time.monotonic() + patience_s
    while (left := find()) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return left
