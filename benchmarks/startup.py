"""What starting many environments costs: seconds until the first reset, memory of the children.

Memory is the proportional set size (PSS): pages that several processes share count once. It is
summed over all descendants, servers and trackers included.
"""

from __future__ import annotations

import importlib
import re
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.cases import Case, Effort
from benchmarks.contenders import STEPPERS

CASES = (
    Case(
        "start-64",
        "start 64 CartPole-v1",
        "cartpole",
        64,
        ("rookery default", "rookery isolate", "gymnasium Async", "SB3 Subproc, default start"),
        metric="seconds",
        repetitions=5,
        quick_num_envs=4,
    ),
)


def measure(case: Case, contender: str, effort: Effort, repetition: int) -> dict[str, Any]:
    """Start and reset once; imports of the library by the caller are not counted."""
    _import_library(contender)
    start = time.perf_counter()
    with STEPPERS[contender](case):
        seconds = time.perf_counter() - start
        children = psutil.Process().children(recursive=True)
        pss_mb = sum(_pss_bytes(child.pid) for child in children) / 1e6
    return {"seconds": seconds, "children_pss_mb": pss_mb, "num_children": len(children)}


def _import_library(contender: str) -> None:
    names = {"rookery": "rookery", "gymnasium": "gymnasium.vector", "SB3": "stable_baselines3"}
    importlib.import_module(names[contender.split()[0]])


def _pss_bytes(pid: int) -> int:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    match = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    assert match is not None
    return int(match[1]) * 1024
