"""The checks, each on workers of its own, so that nothing an env does can harm the examiner."""

from __future__ import annotations

import multiprocessing
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from rookery.diagnosis.finding import Finding
from rookery.diagnosis.probe import Probe
from rookery.env.culprit import find_culprit
from rookery.env.recipe import EnvRecipe
from rookery.errors import RookeryError
from rookery.vector.base import VectorEnv
from rookery.vector.cpus import usable_cpus
from rookery.vector.process import ProcessVectorEnv
from rookery.worker.faults import FaultPolicy
from rookery.worker.launch import resolve_start_method

_STEPS = 200
_SECONDS = 2.0  # for stepping, at most
_PATIENCE = FaultPolicy(step_timeout_s=30.0, reset_timeout_s=60.0)
_OWN_THREADS = 2  # of a worker: one serves, one watches for the caller's end
_SMALL_SHM_BYTES = 256 * 2**20


def examine(recipe: EnvRecipe) -> Iterator[Finding]:
    """Build the env as training would, look at it from all sides, and yield what was found."""
    travels = _travels(recipe)
    yield travels
    if travels.verdict == "fail":
        return
    methods = {
        method: _starts(recipe, method) for method in multiprocessing.get_all_start_methods()
    }
    yield from methods.values()
    if methods[resolve_start_method(None)].verdict == "ok":
        for check in (_two_in_one_process, _two_processes, _seeding, _behaviour):
            yield from _guarded(check, recipe)
    yield _cpus()
    yield _shared_memory()


def _guarded(check: Callable[[EnvRecipe], list[Finding]], recipe: EnvRecipe) -> list[Finding]:
    try:
        return check(recipe)
    except RookeryError as error:
        return [Finding(_title(check), "fail", _first_line(error), "make the env work alone first")]


def _title(check: Callable[..., Any]) -> str:
    return check.__name__.strip("_").replace("_", " ")


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0]


def _make(recipe: EnvRecipe, num_envs: int, num_workers: int, **options: Any) -> VectorEnv:
    return ProcessVectorEnv(
        [recipe] * num_envs, num_workers=num_workers, faults=_PATIENCE, **options
    )


def _trouble(recipe: EnvRecipe, num_envs: int, num_workers: int, **options: Any) -> str:
    """What goes wrong when envs are built, reset and closed; empty if nothing does."""
    try:
        with _make(recipe, num_envs, num_workers, **options) as venv:
            venv.reset(seed=0)
    except RookeryError as error:
        return _first_line(error)
    return ""


def _travels(recipe: EnvRecipe) -> Finding:
    parts = {"env": recipe.source, "wrappers": recipe.wrappers, "env_kwargs": dict(recipe.kwargs)}
    for name, value in parts.items():
        culprit = find_culprit(value, name)
        if culprit is not None:
            return Finding(
                "recipe can travel",
                "fail",
                f"{culprit[0]} is a {type(culprit[1]).__name__}, which cannot be pickled",
                "rookery.Deferred(factory, ...), start_method='fork' or backend='serial'",
            )
    return Finding("recipe can travel", "ok", f"{recipe.name} can be sent to a worker")


def _starts(recipe: EnvRecipe, method: str) -> Finding:
    check = f"start method {method}"
    started = time.perf_counter()
    trouble = _trouble(recipe, 1, 1, start_method=method)
    if trouble:
        way_out = "read the error; the env fails in a process of its own"
        return Finding(check, "fail", trouble, way_out)
    return Finding(check, "ok", f"built and reset in {time.perf_counter() - started:.2f} s")


def _two_in_one_process(recipe: EnvRecipe) -> list[Finding]:
    check, trouble = "two in one process", _trouble(recipe, 2, 1)
    if trouble:
        way_out = "isolate=True gives every env a process of its own"
        return [Finding(check, "note", trouble, way_out)]
    return [Finding(check, "ok", "several envs can share a worker")]


def _two_processes(recipe: EnvRecipe) -> list[Finding]:
    check, trouble = "two processes", _trouble(recipe, 2, 2)
    if trouble:
        way_out = "something outside the processes is shared: a port, a file, a device?"
        return [Finding(check, "fail", trouble, way_out)]
    return [Finding(check, "ok", "envs in two processes do not disturb each other")]


def _seeding(recipe: EnvRecipe) -> list[Finding]:
    with _make(recipe, 3, 3) as venv:
        venv.action_space.seed(0)
        first, _ = venv.reset(seed=[7, 7, 8])
        traces = [_rows(first, 3)]
        for _ in range(20):
            actions = venv.single_action_space.sample()
            batch = _same_for_all(venv.single_action_space, actions, 3)
            traces.append(_rows(venv.step(batch)[0], 3))
    same = all(rows[0] == rows[1] for rows in traces)
    distinct = any(rows[0] != rows[2] for rows in traces)
    return [
        Finding("seeding is reproducible", "ok", "the same seed gave the same 20 steps")
        if same
        else Finding(
            "seeding is reproducible",
            "note",
            "the same seed and actions gave different observations",
            "draw every random number from self.np_random, after super().reset(seed=seed)",
        ),
        Finding("seeds are distinct", "ok", "another seed gave another episode")
        if distinct
        else Finding("seeds are distinct", "note", "another seed gave the same 20 observations"),
    ]


def _same_for_all(space: Any, action: Any, num_envs: int) -> Any:
    from gymnasium.vector.utils import concatenate, create_empty_array

    empty: Any = create_empty_array(space, num_envs)
    return concatenate(space, [action] * num_envs, empty)


def _rows(obs: Any, num_envs: int) -> list[bytes]:
    if isinstance(obs, dict):
        obs = tuple(obs.values())
    if isinstance(obs, tuple):
        parts = [_rows(part, num_envs) for part in obs]
        return [b"".join(row) for row in zip(*parts, strict=True)]
    return [np.ascontiguousarray(obs[i]).tobytes() for i in range(num_envs)]


def _behaviour(recipe: EnvRecipe) -> list[Finding]:
    watched = replace(recipe, wrappers=(*recipe.wrappers, Probe))
    with _make(watched, 1, 1) as venv:
        process = psutil.Process(venv.pids[0])
        before = process.memory_info().rss
        venv.action_space.seed(0)
        venv.reset(seed=0)
        limit = time.perf_counter() + _SECONDS
        for _ in range(_STEPS):
            venv.step(venv.action_space.sample())
            if time.perf_counter() > limit:
                break
        step_s, reset_s, problems = (venv.get_attr(n)[0] for n in ("step_s", "reset_s", "problems"))
        threads = process.num_threads() - _OWN_THREADS
        memory = process.memory_info().rss
    return [
        _inside(problems),
        Finding("step and reset time", "ok", _times(step_s, reset_s)),
        _memory(memory, memory - before),
        _threads(threads),
    ]


def _inside(problems: list[str]) -> Finding:
    check = "observations are in their space"
    if not problems:
        return Finding(check, "ok", "all that were seen")
    way_out = "mend observation_space or the observations; training sees them as they are"
    return Finding(check, "note", "; ".join(problems), way_out)


def _times(step_s: list[float], reset_s: list[float]) -> str:
    step_us = statistics.median(step_s) * 1e6
    slowest_us, reset_us = max(step_s) * 1e6, statistics.median(reset_s) * 1e6
    return f"step {step_us:.0f} us (slowest {slowest_us:.0f}), reset {reset_us:.0f} us"


def _memory(worker_bytes: int, growth_bytes: int) -> Finding:
    available = psutil.virtual_memory().available
    fit = max(available // max(worker_bytes, 1), 1)
    return Finding(
        "memory",
        "ok",
        f"a worker with one env holds {worker_bytes / 2**20:.0f} MiB, {growth_bytes / 2**20:.1f} "
        f"more than before its first reset; about {fit} such workers fit into what is available",
    )


def _threads(count: int) -> Finding:
    if count <= 0:
        return Finding("threads", "ok", "starts none")
    return Finding("threads", "note", f"starts {count}", "threads_per_worker caps BLAS and OpenMP")


def _cpus() -> Finding:
    usable, present = usable_cpus(), psutil.cpu_count() or 1
    return Finding("usable CPUs", "ok", f"{usable} of {present}, by affinity mask and cgroup quota")


def _shared_memory() -> Finding:
    if not Path("/dev/shm").is_dir():
        return Finding("/dev/shm", "ok", "not there; not needed")
    free = shutil.disk_usage("/dev/shm").free
    detail = f"{free / 2**20:.0f} MiB free"
    if free < _SMALL_SHM_BYTES:
        way_out = "rookery does not need it; torch's data loaders would (docker run --shm-size)"
        return Finding("/dev/shm", "note", detail, way_out)
    return Finding("/dev/shm", "ok", detail)
