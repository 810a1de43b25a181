"""One env through SyncVectorEnv and through rookery, with the same seeds and actions.

python compare.py CASE, CASE being JSON: ``{"id": ..., "kwargs": {}, "steps": ...}``. Runs with the
interpreter that has the env's package, and prints the outcome as JSON in its last line.
"""

from __future__ import annotations

import json
import pkgutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import partial, reduce
from typing import Any

import gymnasium as gym
from copies import Copies
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import rookery
from rookery.testing.comparison import RESET_NAMES, STEP_NAMES
from rookery.testing.difference import find_difference

NUM_ENVS = 4
NUM_STEPS = 200
SEED = 11
BACKENDS: dict[str, dict[str, Any]] = {
    "serial": {"backend": "serial"},
    "process": {"backend": "process", "num_workers": 2},
    # Last: an env that is not made for threads may leave what its process shares in disorder.
    "thread": {"backend": "thread", "num_workers": 2},
}
# Envs of which a process can have one only: beside AsyncVectorEnv, each in a process of its own.
ALONE: dict[str, dict[str, Any]] = {"isolated": {"isolate": True}}
_MOST_CHARACTERS = 200
_MOST_TRIES = 5


class WithoutInfo(gym.Wrapper[Any, Any, Any, Any]):
    """Leaves out what the env draws anew for each reset, by no seed."""

    def __init__(self, env: gym.Env[Any, Any], keys: list[str]) -> None:
        super().__init__(env)
        self._keys = keys

    def reset(self, **kwargs: Any) -> Any:
        obs, info = super().reset(**kwargs)
        return obs, {key: value for key, value in info.items() if key not in self._keys}


def compare(case: dict[str, Any]) -> dict[str, Any]:
    """What came of an env in all modes and on all backends.

    Returns:
        ``steps`` of the vector env and ``episodes`` that ended in one run, and ``outcomes``: for
        each mode and backend ``"equal"``, or what else was found.
    """
    make, reference_class, ours = _contenders(case)
    num_envs = case.get("num_envs", NUM_ENVS)
    inputs = _drawn_actions(make, num_envs, case.get("steps", NUM_STEPS)), case.get("calls", [])
    plain = partial(reference_class, [lambda: Copies(make())] * num_envs)
    references = {
        mode: partial(run, partial(plain, autoreset_mode=mode), *inputs) for mode in AutoresetMode
    }
    expected = {mode: reference() for mode, reference in references.items()}
    own = {mode: find_difference(expected[mode], r(), "") for mode, r in references.items()}
    outcomes: dict[str, str] = {}
    for backend, options in (ALONE if case.get("alone") else BACKENDS).items():
        for mode, reference in references.items():
            key = f"{mode.name.lower()}/{backend}"
            if own[mode] is not None:
                outcomes[key] = f"not deterministic: {own[mode].path} of two SyncVectorEnvs"
                continue
            came = run(partial(ours, num_envs, autoreset_mode=mode, **options), *inputs)
            outcome = outcomes[key] = _outcome(expected[mode], came)
            is_doubtful = backend == "thread" and outcome.startswith("DIFFERENT")
            if is_doubtful and _differs_in_plain_threads(reference, expected[mode]):
                outcomes[key] = (
                    "not thread-safe: SyncVectorEnvs in two threads of Python differ, too"
                )
    episodes = max(_episodes(results) for results in expected.values())
    return {"steps": len(inputs[0]), "episodes": episodes, "outcomes": outcomes}


def _contenders(case: dict[str, Any]) -> tuple[Callable[[], Any], Any, Callable[..., Any]]:
    """What makes one env, the class to compare with, and ``make_vec`` for that env."""
    if "register" in case:
        pkgutil.resolve_name(case["register"])()
    kwargs = case.get("kwargs", {})
    source = pkgutil.resolve_name(case["factory"]) if "factory" in case else case["id"]
    factory = source if callable(source) else partial(gym.make, source)
    keys = case.get("unseeded_infos")
    wrappers = [partial(WithoutInfo, keys=keys)] if keys else []

    def make() -> Any:
        return reduce(lambda env, wrap: wrap(env), wrappers, factory(**kwargs))

    reference: Any = SyncVectorEnv
    if case.get("alone"):
        reference = partial(AsyncVectorEnv, context="spawn")
    return make, reference, partial(rookery.make_vec, source, env_kwargs=kwargs, wrappers=wrappers)


def _drawn_actions(make: Callable[[], Any], num_envs: int, num_steps: int) -> list[Any]:
    env = make()
    if not isinstance(env, gym.Env):
        return []  # no vector env takes it, which is what is compared then
    space = gym.vector.utils.batch_space(env.action_space, num_envs)
    env.close()
    space.seed(SEED)
    return [space.sample() for _ in range(num_steps)]


def run(open_venv: Callable[[], Any], actions: list[Any], calls: list[list[Any]]) -> list[Any]:
    """What every call returned, by the names of its parts; an exception that ended it is the last.

    Args:
        open_venv: makes the vector env.
        actions: one batch for each step.
        calls: names and arguments of methods of the envs to call before the reset.
    """
    results: list[Any] = []
    venv = None
    try:
        venv = open_venv()
        spaces = (venv.single_observation_space, venv.observation_space, venv.action_space)
        results += [venv.call(*call) for call in calls]
        results += [spaces, _named(RESET_NAMES, venv.reset(seed=SEED))]
        for action in actions:
            results.append(_named(STEP_NAMES, venv.step(deepcopy(action))))
            ended = results[-1]["terminated"] | results[-1]["truncated"]
            if ended.any() and venv.metadata["autoreset_mode"] is AutoresetMode.DISABLED:
                reset = venv.reset(options={"reset_mask": ended})
                results.append(_named(RESET_NAMES, reset))
    except Exception as error:
        told = f"{type(error).__name__}: {error}".partition("\n")[0]
        results.append({"error": told[:_MOST_CHARACTERS]})
    if venv is not None:
        venv.close()
    return results


def _named(names: tuple[str, ...], result: Any) -> dict[str, Any]:
    return deepcopy(dict(zip(names, result, strict=True)))


def _episodes(results: list[Any]) -> int:
    steps = [r for r in results if isinstance(r, dict) and "terminated" in r]
    return sum(int((r["terminated"] | r["truncated"]).sum()) for r in steps)


def _outcome(expected: list[Any], came: list[Any]) -> str:
    failures = [_error(results) for results in (expected, came)]
    if all(failures) and find_difference(expected[:-1], came[:-1], "result") is None:
        return f"refused by both: {failures[1]}"
    if any(failures):
        return (
            f"DIFFERENT: SyncVectorEnv: {failures[0] or 'works'}; rookery: {failures[1] or 'works'}"
        )
    difference = find_difference(expected, came, "result")
    return "equal" if difference is None else f"DIFFERENT: {_place(difference)}"


def _differs_in_plain_threads(reference: Callable[[], list[Any]], expected: list[Any]) -> bool:
    """Whether the env fails in threads without rookery, too: SyncVectorEnvs in two of them."""
    with ThreadPoolExecutor(2) as pool:
        for _ in range(_MOST_TRIES):
            futures = [pool.submit(reference) for _ in range(2)]
            if any(find_difference(expected, future.result(), "") for future in futures):
                return True
    return False


def _error(results: list[Any]) -> str:
    last = results[-1]
    return last.get("error", "") if isinstance(last, dict) else ""


def _place(difference: Any) -> str:
    values = [" ".join(repr(v).split())[:60] for v in (difference.expected, difference.came)]
    return f"{difference.path}: {' and '.join(values)}"


if __name__ == "__main__":
    print(json.dumps(compare(json.loads(sys.argv[1]))))
