from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest

import rookery
from rookery.env.deferred import Workshop
from rookery.env.recipe import make_recipes


def _built(source: Any, **kwargs: Any) -> gym.Env[Any, Any]:
    (recipe,) = make_recipes(source, 1, kwargs, ())
    return recipe.build(Workshop())


def test_an_env_is_built_from_an_id_a_module_id_a_spec_or_a_callable() -> None:
    for source in ("CartPole-v1", "gymnasium.envs:CartPole-v1", gym.spec("CartPole-v1")):
        env = _built(source)
        assert env.spec is not None and env.spec.id == "CartPole-v1"
        env.close()
    env = _built(lambda sutton_barto_reward: gym.make("CartPole-v1"), sutton_barto_reward=True)
    assert isinstance(env.unwrapped, gym.Env)
    env.close()


def test_kwargs_and_wrappers_are_applied_the_first_wrapper_innermost() -> None:
    (recipe,) = make_recipes(
        "Pendulum-v1",
        1,
        {"g": 2.5},
        (gym.wrappers.FlattenObservation, lambda env: gym.wrappers.TimeLimit(env, 3)),
    )
    env = recipe.build(Workshop())
    assert isinstance(env, gym.wrappers.TimeLimit)
    assert isinstance(env.env, gym.wrappers.FlattenObservation)
    assert env.get_wrapper_attr("g") == 2.5
    env.close()


def test_an_unknown_id_names_the_nearest() -> None:
    with pytest.raises(rookery.UnknownEnvError, match="CartPole-v1"):
        rookery.make_vec("cartpole-v1", 2)
    with pytest.raises(gym.error.NameNotFound):
        rookery.make_vec("Nonesuch-v0", 2)


def test_a_module_that_cannot_be_imported_is_named() -> None:
    with pytest.raises(rookery.UnknownEnvError, match="no_such_module"):
        rookery.make_vec("no_such_module:Env-v0", 2)


def test_a_factory_that_returns_no_env_is_an_error() -> None:
    with pytest.raises(
        rookery.EnvFailed, match=r"Env 0 \(.*\) raised TypeError in make.*a str came, not"
    ):
        rookery.make_vec(lambda: "env", 1)


@pytest.mark.parametrize(
    ("env", "num_envs"),
    [("CartPole-v1", 0), ([lambda: None], 2), ([], None), (42, 1)],
)
def test_what_cannot_be_an_env_or_a_number_of_envs_is_refused(
    env: Any, num_envs: int | None
) -> None:
    with pytest.raises(rookery.ConfigError):
        rookery.make_vec(env, num_envs)


class Tool:
    open_tools = 0

    def __init__(self, name: str) -> None:
        self.name = name
        Tool.open_tools += 1

    def close(self) -> None:
        Tool.open_tools -= 1


def test_deferred_arguments_are_built_per_env_or_per_process_and_closed_again() -> None:
    shared = rookery.Deferred(Tool, "shared", scope="worker")
    own = rookery.Deferred(Tool, name="own")
    workshop = Workshop()
    first, second = (workshop.resolve({"a": shared, "b": own, "c": 3}) for _ in range(2))
    assert first["a"] is second["a"] and first["b"] is not second["b"]
    assert (first["b"].name, first["c"], Tool.open_tools) == ("own", 3, 3)
    workshop.close()
    assert Tool.open_tools == 0


def test_a_deferred_that_cannot_be_built_is_refused_where_it_is_written() -> None:
    with pytest.raises(rookery.ConfigError, match=r"factory of a Deferred must be .*Tool"):
        rookery.Deferred(Tool("made too early"))  # type: ignore[arg-type]
    Tool.open_tools -= 1
    with pytest.raises(rookery.ConfigError, match=r"scope of a Deferred must be .*got 'process'"):
        rookery.Deferred(Tool, "name", scope="process")  # type: ignore[arg-type]
