"""The checks of `check_env`, which run in the process of a trial."""

from __future__ import annotations

import gc
import pickle
import random
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import psutil

from rookery.common.pickling import find_unpicklable, pickled
from rookery.env.deferred import Workshop
from rookery.env.recipe import EnvRecipe
from rookery.errors import RookeryError
from rookery.testing.trial import Report
from rookery.vector.make import make_vec

_STEPS = 200
_SECONDS = 2.0  # for stepping, at most
_TRACE_STEPS = 20
_MOST_PROBLEMS = 3

_SPACE_WAY_OUT = "correct observation_space or the observations; training uses them unchanged"
_SEED_WAY_OUT = "draw every random number from self.np_random, after super().reset(seed=seed)"


class Failed(Exception):
    """Raised when a check failed and no further check is possible."""


def examine_env(report: Report, recipe: EnvRecipe) -> None:
    """Build and use an env, and report the findings."""
    workshop = Workshop()
    try:
        env = _built(report, recipe, workshop)
        _Use(report, env).go()
        _two_in_one_process(report, recipe, workshop, env)
        _seeding(report, recipe, workshop)
        report.stage("close")
        env.close()
    except Failed:
        return
    except Exception as error:  # noqa: BLE001 (an env raises whatever it likes)
        report.found("behaviour", "fail", _text_of(error), "make the env work alone first")


def examine_workers(report: Report, method: str, num_envs: int, made: dict[str, Any]) -> None:
    """Build and use ``num_envs`` envs in as many worker processes, with one start method."""
    report.stage(f"start method {method}")
    started = time.perf_counter()
    check = f"start method {method}" if num_envs == 1 else "two processes"
    options: dict[str, Any] = {
        "backend": "process",
        "num_workers": num_envs,
        "start_method": method,
    }
    try:
        with make_vec(num_envs=num_envs, **options, **made) as venv:
            venv.reset(seed=0)
            seconds = time.perf_counter() - started
            venv.action_space.seed(0)
            venv.step(venv.action_space.sample())
    except RookeryError as error:
        shared = "do the processes share something, such as a port, a file or a device?"
        alone = "read the error; the env fails in a worker process"
        report.found(check, "fail", _text_of(error), shared if num_envs > 1 else alone)
        return
    apart = "envs in two processes do not disturb each other"
    report.found(check, "ok", apart if num_envs > 1 else f"built and reset in {seconds:.2f} s")


def _text_of(error: BaseException) -> str:
    lines = str(error).splitlines() or [""]
    return lines[0] if isinstance(error, RookeryError) else f"{type(error).__name__}: {lines[0]}"


def _built(report: Report, recipe: EnvRecipe, workshop: Workshop) -> gym.Env[Any, Any]:
    report.stage("the constructor")
    try:
        env = recipe.build(workshop)
    except (Exception, SystemExit) as error:
        report.found("can be built", "fail", _text_of(error), "make the env work alone first")
        raise Failed from error
    report.found("can be built", "ok", f"{type(env.unwrapped).__name__}")
    return env


class _Use:
    """One env, reset and stepped with random actions.

    Args:
        report: receives the findings.
        env: the env.
    """

    def __init__(self, report: Report, env: gym.Env[Any, Any]) -> None:
        self._report = report
        self._env = env
        self._step_s: list[float] = []
        self._reset_s: list[float] = []
        self._problems: dict[str, list[str]] = {}

    def go(self) -> None:
        process = psutil.Process()
        gc.collect()
        threads, before = threading.active_count(), process.memory_info().rss
        self._env.action_space.seed(0)
        self._reset(0)
        limit = time.perf_counter() + _SECONDS
        for _ in range(_STEPS):
            if self._step():
                self._reset(None)
            if time.perf_counter() > limit:
                break
        self._report_all()
        memory, more = process.memory_info().rss, threading.active_count() - threads
        detail = f"a process with one env holds {memory / 2**20:.0f} MiB, "
        detail += f"{(memory - before) / 2**20:.1f} more than before its first reset; about "
        room = psutil.virtual_memory().available // max(memory, 1)
        self._report.found("memory", "ok", f"{detail}{room} such processes fit into what is free")
        if more > 0:
            way_out = "threads_per_worker caps BLAS and OpenMP"
            self._report.found("threads", "note", f"starts {more}", way_out)
        else:
            self._report.found("threads", "ok", "starts none")

    def _report_all(self) -> None:
        checks = {
            "reset and step return what they should": "see gymnasium.Env.reset and .step",
            "observations are in their space": _SPACE_WAY_OUT,
            "no NaN": "find the cause; rookery train excludes such transitions, and stops "
            "after ten consecutive rollouts with them",
            "infos can be pickled": "leave it out of the info, or keep the envs in one process",
        }
        for check, way_out in checks.items():
            problems = self._problems.get(check)
            if problems:
                self._report.found(check, "fail", "; ".join(problems), way_out)
            else:
                self._report.found(check, "ok", "all that were seen")
        step_us, slowest_us = statistics.median(self._step_s) * 1e6, max(self._step_s) * 1e6
        reset_us = statistics.median(self._reset_s) * 1e6
        times = f"step {step_us:.0f} us (slowest {slowest_us:.0f}), reset {reset_us:.0f} us"
        self._report.found("step and reset time", "ok", times)

    def _note(self, check: str, text: str) -> None:
        problems = self._problems.setdefault(check, [])
        if len(problems) < _MOST_PROBLEMS and text not in problems:
            problems.append(text)

    def _called(self, command: str, call: Callable[[], Any], times: list[float]) -> Any:
        self._report.stage(command)
        started = time.perf_counter()
        try:
            result = call()
        except (Exception, SystemExit) as error:
            detail, way_out = (
                f"{command} raised {_text_of(error)}",
                "make the env work alone first",
            )
            self._report.found("behaviour", "fail", detail, way_out)
            raise Failed from error
        times.append(time.perf_counter() - started)
        return result

    def _reset(self, seed: int | None) -> None:
        result = self._called("reset", lambda: self._env.reset(seed=seed), self._reset_s)
        self._parts("reset", result, ("observation", "info"))
        self._look_at_info("reset", result[1])
        self._look_at_obs("reset", result[0])

    def _step(self) -> bool:
        action = self._env.action_space.sample()
        result = self._called("step", lambda: self._env.step(action), self._step_s)
        names = ("observation", "reward", "terminated", "truncated", "info")
        self._parts("step", result, names)
        obs, reward, terminated, truncated, info = result
        self._look_at_reward(reward)
        for name, flag in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(flag, (bool, np.bool_)):
                self._note(
                    "reset and step return what they should", f"{name} is {flag!r}, not a bool"
                )
        self._look_at_info("step", info)
        self._look_at_obs("step", obs)
        return bool(terminated or truncated)

    def _parts(self, command: str, result: Any, names: Sequence[str]) -> None:
        if isinstance(result, tuple) and len(result) == len(names):
            return
        came = f"a tuple of {len(result)}" if isinstance(result, tuple) else _described(result)
        self._report.found(
            "reset and step return what they should",
            "fail",
            f"{command} returned {came}, not ({', '.join(names)})",
            f"see gymnasium.Env.{command}",
        )
        raise Failed

    def _look_at_reward(self, reward: Any) -> None:
        check = "reset and step return what they should"
        try:
            number = float(reward)
        except (TypeError, ValueError):
            self._note(check, f"the reward is {_described(reward)}, not a number")
            return
        if np.ndim(reward) > 0:
            self._note(check, f"the reward is {_described(reward)}, not a number")
        if not np.isfinite(number):
            self._note("no NaN", f"a reward is {number}")

    def _look_at_info(self, command: str, info: Any) -> None:
        if not isinstance(info, dict):
            text = f"{command}'s info is {_described(info)}, not a dict"
            self._note("reset and step return what they should", text)
            return
        try:
            pickle.loads(pickled(info))
        except Exception as error:  # noqa: BLE001 (an info holds whatever the env likes)
            path, part = find_unpicklable(info, "info") or ("info", info)
            text = f"{command}: {path}, a {type(part).__qualname__}: {_text_of(error)}"
            self._note("infos can be pickled", text)

    def _look_at_obs(self, command: str, obs: Any) -> None:
        if _has_nan(obs):
            self._note("no NaN", f"{command} returned {_described(obs)}")
            return
        try:
            inside = self._env.observation_space.contains(obs)
        except Exception as error:  # noqa: BLE001 (a custom space may raise anything)
            self._note("observations are in their space", f"contains() raised {_text_of(error)}")
            return
        if not inside:
            text = f"{command} returned {_described(obs)}, not in {self._env.observation_space}"
            self._note("observations are in their space", text)


def _has_nan(obs: Any) -> bool:
    if isinstance(obs, dict):
        return any(_has_nan(part) for part in obs.values())
    if isinstance(obs, (tuple, list)):
        return any(_has_nan(part) for part in obs)
    is_float = isinstance(obs, (float, np.floating)) or (
        isinstance(obs, np.ndarray) and obs.dtype.kind == "f"
    )
    return is_float and bool(np.isnan(obs).any())


def _described(value: Any) -> str:
    if isinstance(value, np.ndarray):
        numbers = value.size and value.dtype.kind in "biuf"
        span = f", from {value.min()} to {value.max()}" if numbers else ""
        return f"{value.dtype} {list(value.shape)}{span}"
    return f"{type(value).__name__} {value!r:.80}"


# -------------------------------------------------------------------- two envs, and seeds


def _two_in_one_process(
    report: Report, recipe: EnvRecipe, workshop: Workshop, env: gym.Env[Any, Any]
) -> None:
    check, way_out = "two in one process", "isolate=True gives each env its own process"
    report.stage(check)
    try:
        other = recipe.build(workshop)
        is_new = other.unwrapped is not env.unwrapped
        if is_new:
            other.reset(seed=0)
            other.close()
    except Exception as error:
        report.found(check, "fail", _text_of(error), way_out)
        raise Failed from error
    if not is_new:
        detail = "the factory returned the same env twice"
        report.found(check, "fail", detail, "let it build a new env at each call")
        raise Failed
    report.found(check, "ok", "several envs can share a worker")


def _seeding(report: Report, recipe: EnvRecipe, workshop: Workshop) -> None:
    check = "seeding is reproducible"
    report.stage(check)
    envs = [recipe.build(workshop) for _ in range(3)]
    space = envs[0].action_space
    space.seed(0)
    actions = [space.sample() for _ in range(_TRACE_STEPS)]
    first, same, other = (
        _trace([env], actions, k, 7)[0] for env, k in zip(envs, (1, 1, 2), strict=True)
    )
    again = _trace(envs[:1], actions, 1, 7)[0]
    beside = _trace(envs[:2], actions, 1, 7)
    if first != same:
        detail = "the same seed and actions gave other results in a second env"
        report.found(check, "fail", detail, _SEED_WAY_OUT)
    elif first != other:
        detail = "not reproducible from reset(seed): results follow the global random streams of "
        report.found(check, "fail", f"{detail}np.random or random", _SEED_WAY_OUT)
    elif first != again:
        detail = "reset(seed) does not begin the same episode twice in one env"
        report.found(check, "fail", detail, "reset everything that a step changes")
    elif beside != [first, first]:
        detail = "another env in the same process changes what follows from a seed: they share a "
        report.found(check, "fail", f"{detail}random stream or other state", _SEED_WAY_OUT)
    else:
        report.found(check, "ok", f"the same seed gave the same {_TRACE_STEPS} steps")
    if _trace(envs[2:], actions, 1, 8)[0] == first:
        report.found("seeds are distinct", "note", "another seed gave the same observations")
    else:
        report.found("seeds are distinct", "ok", "another seed gave another episode")
    for env in envs:
        env.close()


def _trace(
    envs: Sequence[gym.Env[Any, Any]], actions: Sequence[Any], globally: int, seed: int
) -> list[list[bytes]]:
    """Return the results of envs with the same seed that step in turn.

    Args:
        envs: the envs.
        actions: the actions of each env.
        globally: seed of the global random streams.
        seed: seed of each env.
    """
    random.seed(globally)
    np.random.seed(globally)  # noqa: NPY002 (the very stream that envs should not use)
    traces = [[pickle.dumps(env.reset(seed=seed)[0])] for env in envs]
    over = [False] * len(envs)
    for action in actions:
        for k, env in enumerate(envs):
            if over[k]:
                continue
            obs, reward, terminated, truncated, _ = env.step(action)
            over[k] = bool(terminated or truncated)
            traces[k].append(pickle.dumps((obs, reward, terminated, truncated)))
    return traces
