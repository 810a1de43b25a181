"""Settings of the algorithms: their documentation, their order, and files of older runs."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, dataclass, fields
from typing import Any

import pytest

import rookery
from rookery import (
    A2CConfig,
    DQNConfig,
    ImpalaConfig,
    PPOConfig,
    QRDQNConfig,
    SACConfig,
    TD3Config,
)

KINDS: list[Any] = [
    A2CConfig,
    DQNConfig,
    ImpalaConfig,
    PPOConfig,
    QRDQNConfig,
    SACConfig,
    TD3Config,
]


@pytest.mark.parametrize("kind", KINDS)
def test_the_docstring_describes_every_field_once_and_in_order(kind: Any) -> None:
    lines = kind.__doc__.partition("Attributes:\n")[2].splitlines()
    documented = [line.strip().partition(":")[0] for line in lines if line[4] != " "]
    assert documented == [field.name for field in fields(kind)]
    assert documented[0] == "num_steps"


def test_ppo_has_the_usual_constant_learning_rate() -> None:
    config = PPOConfig()
    assert (config.learning_rate, config.final_learning_rate) == (3e-4, None)


def test_a_file_of_an_older_run_keeps_its_values() -> None:
    recorded = {"num_steps": 128, "learning_rate": 0.001, "final_learning_rate": 0.0}
    config = PPOConfig.from_dict({**recorded, "hidden_sizes": [32, 32]})
    assert config.to_dict() == {**PPOConfig().to_dict(), **recorded, "hidden_sizes": (32, 32)}


@pytest.mark.parametrize("kind", KINDS)
def test_settings_survive_json(kind: Any) -> None:
    config = kind(num_steps=16, gamma=0.9, hidden_sizes=(8,))
    assert kind.from_dict(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize("kind", KINDS)
def test_settings_cannot_be_changed(kind: Any) -> None:
    with pytest.raises(FrozenInstanceError):
        kind().gamma = 0.5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "value"),
    [("gamma", 1.5), ("num_steps", 0), ("device", "gpu"), ("activation", "gelu")],
)
def test_common_settings_are_checked_for_every_algorithm(
    kind: Any, name: str, value: object
) -> None:
    with pytest.raises(rookery.ConfigError, match=name):
        kind(**{name: value})


def test_a_subclass_may_add_fields() -> None:
    @dataclass(frozen=True)
    class WithBonus(PPOConfig):
        bonus: float = 0.5

    assert WithBonus(gamma=0.9).to_dict() == {**PPOConfig(gamma=0.9).to_dict(), "bonus": 0.5}
