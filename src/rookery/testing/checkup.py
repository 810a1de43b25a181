"""The doctor's round: the env by itself, and the machine that it would run on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil

from rookery.common.cpus import usable_cpus
from rookery.env.recipe import EnvRecipe
from rookery.testing.env_check import DEADLINE_S, examine_recipe
from rookery.testing.finding import Finding

_SMALL_SHM_BYTES = 256 * 2**20


def examine(recipe: EnvRecipe, deadline_s: float = DEADLINE_S) -> Iterator[Finding]:
    """Try the env in processes of its own, look at the machine, and yield what was found.

    Args:
        recipe: how to build the env.
        deadline_s: seconds that the constructor, a reset or a step may take.
    """
    yield from examine_recipe(recipe, deadline_s)
    yield _cpus()
    yield _shared_memory()


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
