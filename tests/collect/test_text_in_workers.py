"""Text in observations, where the policy acts in the workers."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import rookery
from rookery.common.trees import tree_map
from rookery.policy import make_policy

T = 12
LETTERS = "abcdefgh"


class Phrases(gym.Env[Any, Any]):
    """Shows words of various lengths, alone, beside numbers or nested, in episodes of 5 steps."""

    action_space = spaces.Discrete(2)

    def __init__(self, form: str = "dict") -> None:
        self._form = form
        text, numbers = spaces.Text(6, charset=LETTERS), spaces.Box(-1, 1, (2,))
        self.observation_space = {
            "alone": text,
            "dict": spaces.Dict(a=numbers, word=text, z=spaces.Discrete(3)),
            "tuple": spaces.Tuple([text, spaces.Dict(other=text, x=numbers)]),
        }[form]

    def _show(self) -> Any:
        words = [
            "".join(self.np_random.choice(list(LETTERS), self.np_random.integers(1, 7)))
            for _ in range(2)
        ]
        numbers = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return {
            "alone": words[0],
            "dict": {"a": numbers, "word": words[0], "z": np.int64(self._count % 3)},
            "tuple": (words[0], {"other": words[1], "x": numbers}),
        }[self._form]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._count = 0
        return self._show(), {}

    def step(self, action):
        self._count += 1
        return self._show(), float(action), False, self._count == 5, {}


class Letters(nn.Module):
    """Reads words by how often each letter comes."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(len(LETTERS), 4)

    def forward(self, words: np.ndarray) -> torch.Tensor:
        counts = [[str(word).count(letter) for letter in LETTERS] for word in words]
        found: torch.Tensor = torch.tanh(self.layer(torch.tensor(counts, dtype=torch.float32)))
        return found


ENCODERS: dict[str, Any] = {
    "alone": Letters,
    "dict": {"word": Letters},
    "tuple": {"0": Letters, "1.other": Letters},
}


def _maker(form: str) -> Any:
    def make(observation_space: Any, action_space: Any) -> Any:
        return make_policy(observation_space, action_space, seed=3, encoder=ENCODERS[form])

    return make


def _assert_same(actual: Any, expected: Any) -> None:
    for field in fields(rookery.Rollout):
        pair = getattr(actual, field.name), getattr(expected, field.name)
        tree_map(lambda a, b, name=field.name: _assert_same_array(a, b, name), *pair)


def _assert_same_array(actual: Any, expected: Any, name: str) -> None:
    if expected is None:
        assert actual is None, name
        return
    assert actual.dtype == expected.dtype, name
    np.testing.assert_array_equal(actual, expected, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("form", ENCODERS)
def test_one_worker_gives_the_words_that_the_sync_collector_gives(form: str) -> None:
    kwargs = {"form": form}
    venv = rookery.make_vec(
        Phrases, 3, backend="serial", env_kwargs=kwargs, autoreset_mode="same_step"
    )
    policy = _maker(form)(venv.single_observation_space, venv.single_action_space)
    reference = rookery.SyncCollector(venv, policy, T, seed=7)
    with rookery.WorkerCollector(
        Phrases, _maker(form), 3, 1, T, seed=7, env_kwargs=kwargs
    ) as collector:
        for _ in range(3):
            expected = reference.collect()
            assert len(expected.final_index)
            _assert_same(collector.collect(), expected)
            for changed in (policy, collector.policy):
                changed.model.parameters += np.float32(0.01)
    venv.close()


@pytest.mark.slow
def test_words_are_collected_ahead_of_the_learner() -> None:
    with rookery.WorkerCollector(Phrases, _maker("dict"), 4, 2, T, "async") as collector:
        for _ in range(4):
            rollout = collector.collect()
            words = rollout.obs["word"]
            assert words.shape[0] == T and words.dtype == np.dtype("<U6")
            assert set("".join(words.ravel())) <= set(LETTERS) and all(words.ravel())
            assert set("".join(rollout.final_obs["word"])) <= set(LETTERS)


def test_what_is_of_no_fixed_length_and_no_text_is_refused_by_its_path() -> None:
    class Listing(Phrases):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = spaces.Dict(
                a=spaces.Box(-1, 1), items=spaces.Sequence(spaces.Discrete(3))
            )

        def _show(self) -> Any:
            return {"a": np.zeros(1, np.float32), "items": (1, 2)}

    class Idle(rookery.Policy):
        model = None

        def act(self, obs: Any, deterministic: bool = False) -> Any:
            raise AssertionError("nobody asks it")

    with pytest.raises(rookery.SpaceError, match=r"observation\['items'\], a Sequence"):
        rookery.WorkerCollector(Listing, Idle(), 2, 1, T)
    refused = pytest.raises(rookery.SpaceError, match=r"observation\['items'\], a Sequence")
    with rookery.make_vec(Listing, 2, backend="serial") as venv, refused:
        rookery.SyncCollector(venv, Idle(), T)
