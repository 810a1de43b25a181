"""check_env and `rookery doctor`: what parallel running requires of an env and a machine."""

from __future__ import annotations

import multiprocessing
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import psutil

from rookery.common.cpus import usable_cpus
from rookery.common.pickling import find_unpicklable
from rookery.env.recipe import EnvRecipe, make_recipes
from rookery.errors import ConfigError
from rookery.testing.difference import CheckFailed, Difference
from rookery.testing.examination import examine_env, examine_workers
from rookery.testing.trial import Finding, TrialOutcome, try_out

DEADLINE_S = 30.0
START_METHODS = tuple(multiprocessing.get_all_start_methods())  # the last one tries two workers

_SMALL_SHM_BYTES = 256 * 2**20
# If one of these fails, checks in workers would only repeat it.
_FIRST = ("can be built", "behaviour", "reset and step return what they should")


def check_env(
    env: Any,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[Callable[[Any], Any]] = (),
    *,
    deadline_s: float = DEADLINE_S,
    raises: bool = True,
) -> list[Finding]:
    """Test an env in separate processes, and report what would break a parallel run.

    The checks: the env can be sent to a worker and built there; ``reset`` and ``step`` return what
    Gymnasium specifies; observations are in their space and contain no NaN; a seed determines all
    results; two envs in one process, or in two processes, do not affect each other. If the env
    hangs, the check is stopped at the deadline and reported as a finding.

    Args:
        env: a Gymnasium id, an EnvSpec, a callable that returns an env, or an env that was made
            from an id.
        env_kwargs: arguments of the env; they may contain :class:`rookery.Deferred` objects.
        wrappers: callables ``Env -> Env``, the first one innermost.
        deadline_s: seconds that the constructor, a reset or a step may take.
        raises: False returns all findings and raises nothing.

    Returns:
        The notes, or with ``raises=False`` all findings.

    Raises:
        CheckFailed: a finding would break a run; the message lists all such findings.
        ConfigError: ``env`` is an env without a spec, so it cannot be built again.
    """
    (recipe,) = make_recipes(_source(env), 1, env_kwargs, wrappers)
    findings = list(examine_recipe(recipe, deadline_s))
    if not raises:
        return findings
    failures = [finding for finding in findings if finding.verdict == "fail"]
    if failures:
        listed = "\n".join(str(finding) for finding in failures)
        expected = "an env that can be run in parallel"
        raise CheckFailed(
            f"check_env({recipe.name})", Difference("env", expected, recipe), (), listed
        )
    return [finding for finding in findings if finding.verdict == "note"]


def _source(env: Any) -> Any:
    if not isinstance(env, gym.Env):
        return env
    if env.spec is None:
        raise ConfigError(
            f"check_env: this {type(env).__name__} has no spec, so it cannot be built "
            "again; pass the callable that makes it"
        )
    return env.spec


def examine_recipe(recipe: EnvRecipe, deadline_s: float = DEADLINE_S) -> Iterator[Finding]:
    """Yield the findings of :func:`check_env`; stop after the first check that hangs."""
    picklable = _picklable(recipe)
    yield picklable
    if picklable.verdict == "fail":
        return
    alone = try_out(examine_env, recipe, deadline_s=deadline_s)
    yield from _findings(alone)
    if alone.trouble or any(f.check in _FIRST and f.verdict == "fail" for f in alone.findings):
        return
    made = {"env": recipe.source, "env_kwargs": dict(recipe.kwargs), "wrappers": recipe.wrappers}
    for method in START_METHODS:
        yield from _findings(try_out(examine_workers, method, 1, made, deadline_s=deadline_s))
    for method in START_METHODS[-1:]:
        yield from _findings(try_out(examine_workers, method, 2, made, deadline_s=deadline_s))


def _findings(outcome: TrialOutcome) -> Iterator[Finding]:
    yield from outcome.findings
    if outcome.trouble:
        way_out = "FaultPolicy('restart') replaces the worker process and continues the run"
        if outcome.hung:
            timeouts = "step_timeout_s=..., reset_timeout_s=..."
            way_out = f"FaultPolicy({timeouts}) ends a call that hangs"
        yield Finding(outcome.stage or "start", "fail", outcome.trouble, way_out)


def _picklable(recipe: EnvRecipe) -> Finding:
    parts = {"env": recipe.source, "wrappers": recipe.wrappers, "env_kwargs": dict(recipe.kwargs)}
    for name, value in parts.items():
        found = find_unpicklable(value, name)
        if found is not None:
            path, part = found
            return Finding(
                "recipe can be pickled",
                "fail",
                f"{path} is a {type(part).__name__}, which cannot be pickled",
                "rookery.Deferred(factory, ...), start_method='fork' or backend='serial'",
            )
    return Finding("recipe can be pickled", "ok", f"{recipe.name} can be sent to a worker")


def examine_all(recipe: EnvRecipe, deadline_s: float = DEADLINE_S) -> Iterator[Finding]:
    """Test an env in separate processes, then the machine, and yield the findings.

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
        return Finding("/dev/shm", "ok", "does not exist and is not needed")
    free = shutil.disk_usage("/dev/shm").free
    detail = f"{free / 2**20:.0f} MiB free"
    if free < _SMALL_SHM_BYTES:
        way_out = "rookery does not need it; torch's data loaders would (docker run --shm-size)"
        return Finding("/dev/shm", "note", detail, way_out)
    return Finding("/dev/shm", "ok", detail)
