"""Cost of starting many envs: seconds until the first reset, and memory of the children.

Memory is the proportional set size (PSS): pages that several processes share count once. It is
summed over all descendants, servers and trackers included. Imports by the caller do not count.
"""

from __future__ import annotations

import functools
import importlib
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from benchmarks.cases import Case
from benchmarks.clocks import Effort, Sample
from benchmarks.environments import MAKERS
from benchmarks.peers import library_of
from benchmarks.stepping import open_sb3, open_tianshou, torchrl_maker


def measure(case: Case, contender: str, effort: Effort, seed: int) -> Sample:
    """Start and reset once."""
    for module in _MODULES[library_of(contender)]:
        importlib.import_module(module)
    start = time.perf_counter()
    venv = CONTENDERS[contender](case)
    try:
        venv.reset()
        seconds = time.perf_counter() - start
        children = psutil.Process().children(recursive=True)
        pss_mb = sum(_pss_bytes(child.pid) for child in children) / 1e6
    finally:
        venv.close()
    return {"value": seconds, "children_pss_mb": pss_mb, "num_children": len(children)}


def _rookery(case: Case, **options: Any) -> Any:
    import rookery

    return rookery.make_vec(MAKERS[case.env], case.num_envs, backend="process", **options)


def _gymnasium(case: Case) -> Any:
    import gymnasium

    return gymnasium.vector.AsyncVectorEnv([MAKERS[case.env]] * case.num_envs)


def _torchrl(case: Case) -> Any:
    from torchrl.envs import ParallelEnv

    return ParallelEnv(case.num_envs, torchrl_maker(case), mp_start_method="fork")


CONTENDERS: dict[str, Callable[[Case], Any]] = {
    "rookery: workers": _rookery,
    "rookery: a process for each env": functools.partial(_rookery, isolate=True),
    "gymnasium: AsyncVectorEnv": _gymnasium,
    **{
        f"SB3: SubprocVecEnv, {method}": functools.partial(
            open_sb3, kind="SubprocVecEnv", start_method=method
        )
        for method in ("fork", "forkserver")
    },
    "Tianshou: SubprocVectorEnv": functools.partial(open_tianshou, kind="SubprocVectorEnv"),
    "TorchRL: ParallelEnv": _torchrl,
}
_MODULES = {
    "rookery": ["rookery", "rookery.vector.make"],
    "gymnasium": ["gymnasium.vector"],
    "SB3": ["stable_baselines3.common.vec_env"],
    "Tianshou": ["tianshou.env"],
    "TorchRL": ["torchrl.envs"],
}


def _pss_bytes(pid: int) -> int:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    match = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    assert match is not None
    return int(match[1]) * 1024
