"""Arguments that are built where the env runs, at the top of `env_kwargs` and inside containers."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

import rookery
from rookery.env.deferred import Workshop
from rookery.testing import check_env

BACKENDS = ["serial", "thread", "process"]


class Tool:
    """Notes its closing in a folder, and cannot be pickled."""

    def __init__(self, folder: Path, name: str, *parts: Any) -> None:
        self.folder, self.name, self.parts = folder, name, parts
        self.lock = threading.Lock()

    def close(self) -> None:
        with (self.folder / "closed").open("a") as file:
            file.write(f"{self.name}\n")


class Pair(NamedTuple):
    first: Any
    second: Any


class Toolbox(gym.Env[Any, Any]):
    """Has arguments of any form."""

    observation_space = gym.spaces.Discrete(2)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, tools: Any, shared: Any) -> None:
        self.tools, self.shared = tools, shared

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: Any) -> Any:
        return 0, 0.0, False, False, {}

    def shape(self) -> Any:
        return _shape(self.tools)

    def ids(self) -> tuple[int, int]:
        return id(self.tools["list"][0]), id(self.shared[0])


def _shape(value: Any) -> Any:
    """Return `value` as text, with the names of tools."""
    if isinstance(value, Tool):
        return value.name
    if isinstance(value, dict):
        return type(value).__name__, {key: _shape(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [_shape(part) for part in value]
    return repr(value)


def _arguments(folder: Path) -> dict[str, Any]:
    tools = {
        "list": [rookery.Deferred(Tool, folder, "in a list"), 1],
        "tuple": (2, rookery.Deferred(Tool, folder, "in a tuple")),
        "pair": Pair(rookery.Deferred(Tool, folder, "in a named tuple"), 3),
        "deep": OrderedDict(a=[{"b": (rookery.Deferred(Tool, folder, "deep"),)}]),
        "plain": [4, {"c": 5}],
    }
    return {"tools": tools, "shared": [rookery.Deferred(Tool, folder, "shared", scope="worker")]}


SHAPE = (
    "dict",
    {
        "list": ("list", ["in a list", "1"]),
        "tuple": ("tuple", ["2", "in a tuple"]),
        "pair": ("Pair", ["in a named tuple", "3"]),
        "deep": ("OrderedDict", {"a": ("list", [("dict", {"b": ("tuple", ["deep"])})])}),
        "plain": ("list", ["4", ("dict", {"c": "5"})]),
    },
)


def _make(backend: str, env: Any, kwargs: Any, **options: Any) -> rookery.VectorEnv:
    workers = {} if backend == "serial" else {"num_workers": 1}
    return rookery.make_vec(env, 2, backend, env_kwargs=kwargs, **workers, **options)


@pytest.mark.parametrize("is_registered", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_nested_deferred_arguments_are_built_and_closed_on_every_backend(
    backend: str, is_registered: bool, tmp_path: Path
) -> None:
    gym.register("Toolbox-v0", entry_point=Toolbox)
    try:
        env = "Toolbox-v0" if is_registered else Toolbox
        with _make(backend, env, _arguments(tmp_path)) as venv:
            venv.reset(seed=0)
            assert venv.call("shape") == (SHAPE, SHAPE)
            (first, shared), (second, also_shared) = venv.call("ids")
            assert first != second and shared == also_shared
            assert not (tmp_path / "closed").exists()
            if is_registered:
                assert isinstance(venv.spec.kwargs["shared"][0], rookery.Deferred)
    finally:
        del gym.registry["Toolbox-v0"]
    names = ["in a list", "in a tuple", "in a named tuple", "deep"]
    closed = (tmp_path / "closed").read_text().splitlines()
    assert sorted(closed) == sorted([*names, *names, "shared"])


@pytest.mark.parametrize("source", ["kwargs of the registration", "spec of a vector env"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_deferred_arguments_of_a_spec_are_built(backend: str, source: str, tmp_path: Path) -> None:
    is_registration = source == "kwargs of the registration"
    kwargs = _arguments(tmp_path)
    gym.register("Toolbox-v0", entry_point=Toolbox, kwargs=kwargs if is_registration else {})
    try:
        env: Any = "Toolbox-v0"
        if not is_registration:
            with _make("serial", env, kwargs) as made:
                env = made.spec
        with _make(backend, env, None) as venv:
            assert venv.call("shape") == (SHAPE, SHAPE)
            (first, shared), (second, also_shared) = venv.call("ids")
            assert first != second and shared == also_shared
    finally:
        del gym.registry["Toolbox-v0"]


def make_batch(num_envs: int, tools: Any, **kwargs: Any) -> CartPoleVectorEnv:
    assert _shape(tools) == ("list", ["of a batch"])
    return CartPoleVectorEnv(num_envs)


@pytest.mark.parametrize("num_workers", [None, 2])
def test_nested_deferred_arguments_of_native_envs_are_built(
    num_workers: int | None, tmp_path: Path
) -> None:
    kwargs = {"tools": [rookery.Deferred(Tool, tmp_path, "of a batch")]}
    options = {} if num_workers is None else {"num_workers": num_workers}
    with rookery.make_vec(make_batch, 4, "native", env_kwargs=kwargs, **options) as venv:
        venv.reset(seed=0)
        assert not (tmp_path / "closed").exists()
    closed = (tmp_path / "closed").read_text().splitlines()
    assert closed == ["of a batch"] * (num_workers or 1)


class Needing(Toolbox):
    """Cannot be used without its tools."""

    def __init__(self, tools: Any, shared: Any) -> None:
        super().__init__(tools, shared)
        assert self.shape() == SHAPE and isinstance(shared[0], Tool)


def test_deferred_arguments_of_a_native_envs_registration_are_built(tmp_path: Path) -> None:
    kwargs = {"tools": [rookery.Deferred(Tool, tmp_path, "of a batch")]}
    gym.register("Batch-v0", vector_entry_point=make_batch, kwargs=kwargs)
    try:
        with rookery.make_vec("Batch-v0", 4, "native") as venv:
            venv.reset(seed=0)
    finally:
        del gym.registry["Batch-v0"]
    assert (tmp_path / "closed").read_text().splitlines() == ["of a batch"]


def test_nested_deferred_arguments_are_built_for_a_check_of_the_env(tmp_path: Path) -> None:
    kwargs = _arguments(tmp_path)
    findings = check_env(Needing, env_kwargs=kwargs)
    assert [finding for finding in findings if finding.verdict == "fail"] == []


@pytest.mark.parametrize("collector", ["caller", "workers"])
def test_nested_deferred_arguments_are_built_in_training(collector: Any, tmp_path: Path) -> None:
    result = rookery.train(
        Needing, rookery.PPOConfig(num_steps=16, minibatch_size=16), total_steps=64, num_envs=2,
        num_workers=1, collector=collector, env_kwargs=_arguments(tmp_path), eval_episodes=0,
        run_dir=tmp_path / "run",
    )  # fmt: skip
    assert result.steps == 64
    assert (tmp_path / "closed").read_text().splitlines().count("in a list") >= 2


def test_a_deferred_argument_of_a_deferred_is_built_first_and_closed_last(tmp_path: Path) -> None:
    inner = rookery.Deferred(Tool, tmp_path, "inner", scope="worker")
    outer = rookery.Deferred(Tool, tmp_path, "outer", [inner])
    workshop = Workshop()
    first, second = (workshop.resolve({"tool": outer})["tool"] for _ in range(2))
    assert first is not second
    assert first.parts[0][0] is second.parts[0][0]
    assert first.parts[0][0].name == "inner"
    workshop.close()
    assert (tmp_path / "closed").read_text().splitlines() == ["outer", "outer", "inner"]


def test_only_containers_that_hold_a_deferred_are_copied(tmp_path: Path) -> None:
    own = rookery.Deferred(Tool, tmp_path, "own")
    holding, plain = [own], [1, (2,), {"a": 3}]
    given = {"a": {"x": holding, "y": plain}, "b": holding, "c": plain}
    first, second = (Workshop().resolve(given) for _ in range(2))
    assert first["c"] is plain and first["a"]["y"] is plain
    assert first["b"] is first["a"]["x"] and first["b"] is not second["b"]
    assert holding == [own] and given["a"]["x"] is holding


def test_a_container_that_contains_itself_is_resolved(tmp_path: Path) -> None:
    ring: list[Any] = [rookery.Deferred(Tool, tmp_path, "own")]
    ring.append({"ring": ring})
    built = Workshop().resolve({"ring": ring})["ring"]
    assert built[0].name == "own"
    assert built[1]["ring"] is built
