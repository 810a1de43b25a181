"""check_env: what parallel running needs of one env, tried where nothing can be harmed."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import gymnasium as gym

from rookery.common.unpicklable import find_culprit
from rookery.env.recipe import EnvRecipe, make_recipes
from rookery.errors import ConfigError
from rookery.testing.difference import CheckFailed, Difference
from rookery.testing.examination import examine_env, examine_workers
from rookery.testing.finding import Finding
from rookery.testing.trial import Outcome, try_out

DEADLINE_S = 30.0
START_METHODS = tuple(multiprocessing.get_all_start_methods())  # the last one tries two workers


def check_env(
    env: Any,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[Callable[[Any], Any]] = (),
    *,
    deadline_s: float = DEADLINE_S,
    raises: bool = True,
) -> list[Finding]:
    """Try an env in processes of its own, and say what would break a parallel run.

    It is looked at whether the env can be sent to a worker and built there, whether ``reset`` and
    ``step`` return what Gymnasium asks for, whether observations are in their space and free of
    NaN, whether a seed decides all that follows, and whether two envs in one process, or in two,
    leave each other alone. What hangs is ended at the deadline and told as a finding.

    Args:
        env: a Gymnasium id, an EnvSpec, a callable that returns an env, or an env that was made
            from an id.
        env_kwargs: arguments of the env; they may hold :class:`rookery.Deferred` objects.
        wrappers: callables ``Env -> Env``, the first one innermost.
        deadline_s: seconds that the constructor, a reset or a step may take.
        raises: False returns what was found, whatever it is.

    Returns:
        What is good to know, or, with ``raises=False``, all that was found, good and bad.

    Raises:
        CheckFailed: when something would break a run; the message lists everything that would.
        ConfigError: when ``env`` is an env without a spec: only what can be built again can be
            tried.
    """
    (recipe,) = make_recipes(_source(env), 1, env_kwargs, wrappers)
    findings = list(examine_recipe(recipe, deadline_s))
    if not raises:
        return findings
    failures = [finding for finding in findings if finding.verdict == "fail"]
    if failures:
        told = "\n".join(str(finding) for finding in failures)
        expected = "an env that can be run in parallel"
        raise CheckFailed(
            f"check_env({recipe.name})", Difference("env", expected, recipe), (), told
        )
    return [finding for finding in findings if finding.verdict == "note"]


def _source(env: Any) -> Any:
    if not isinstance(env, gym.Env):
        return env
    if env.spec is None:
        raise ConfigError(
            f"check_env: this {type(env).__name__} has no spec, so that no second one can be "
            "built; give the callable that makes it"
        )
    return env.spec


def examine_recipe(recipe: EnvRecipe, deadline_s: float = DEADLINE_S) -> Iterator[Finding]:
    """All that :func:`check_env` looks at, one by one; nothing more once something hangs."""
    travels = _travels(recipe)
    yield travels
    if travels.verdict == "fail":
        return
    alone = try_out(examine_env, recipe, deadline_s=deadline_s)
    yield from _told(alone)
    if alone.trouble or any(f.check in _FIRST and f.verdict == "fail" for f in alone.findings):
        return
    made = {"env": recipe.source, "env_kwargs": dict(recipe.kwargs), "wrappers": recipe.wrappers}
    for method in START_METHODS:
        yield from _told(try_out(examine_workers, method, 1, made, deadline_s=deadline_s))
    for method in START_METHODS[-1:]:
        yield from _told(try_out(examine_workers, method, 2, made, deadline_s=deadline_s))


# What a second look in workers would only say again.
_FIRST = ("can be built", "has spaces", "behaviour", "reset and step return what they should")


def _told(outcome: Outcome) -> Iterator[Finding]:
    yield from outcome.findings
    if outcome.trouble:
        way_out = "FaultPolicy('restart') goes on after it, in worker processes"
        if outcome.hung:
            timeouts = "step_timeout_s=..., reset_timeout_s=..."
            way_out = f"FaultPolicy({timeouts}) ends what hangs in a run"
        yield Finding(outcome.stage or "start", "fail", outcome.trouble, way_out)


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
