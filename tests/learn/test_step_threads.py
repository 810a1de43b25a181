"""Gradient steps with as many threads as are fastest, and the same bits with any number."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from off_policy import B, T, made_up_rollout
from torch import nn

from rookery import DQNConfig, QRDQNConfig, SACConfig, TD3Config
from rookery.learn.step_threads import StepThreads, are_exact
from rookery.policy.torch.layers import StackedMLP
from rookery.run.algorithms import algorithm_of

OBS = spaces.Box(-1, 1, (17,))
SIZES = {"num_steps": T, "batch_size": 256, "warmup_steps": 0, "hidden_sizes": (256, 256)}


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    assert torch.get_num_threads() == 2, "the user's number is restored"
    torch.set_num_threads(before)


def take_steps(threads: StepThreads, seconds_of: dict[int, float], total_s: float) -> list[int]:
    """Note steps that take ``total_s`` seconds together; return their numbers of threads."""
    numbers = []
    while total_s > 0.0:
        assert threads.number is not None
        numbers.append(threads.number)
        total_s -= seconds_of[threads.number]
        threads.note(seconds_of[threads.number])
    return numbers


@pytest.fixture
def measured() -> StepThreads:
    """Threads that have begun to measure."""
    if not are_exact(2):
        pytest.skip("torch's products differ here, so the number of threads stays the same")
    threads = StepThreads(StackedMLP(1, (4, 8)))
    with threads.step():
        assert torch.get_num_threads() == 1, "one thread is measured first"
    return threads


def test_several_threads_are_used_while_they_are_faster(measured: StepThreads) -> None:
    free, busy = {1: 0.01, 2: 0.006}, {1: 0.012, 2: 0.1}
    numbers = take_steps(measured, free, 10.0)
    assert numbers[:5] == [1] * 5
    assert numbers.count(1) < 0.03 * len(numbers)
    take_steps(measured, busy, 5.0)
    numbers = take_steps(measured, busy, 100.0)
    assert 0 < numbers.count(2) < 10, "trials become rare"
    take_steps(measured, free, 50.0)
    numbers = take_steps(measured, free, 20.0)
    assert numbers.count(1) < 0.03 * len(numbers)


def test_an_error_in_a_step_restores_the_number(measured: StepThreads) -> None:
    with pytest.raises(ZeroDivisionError), measured.step():
        raise ZeroDivisionError


def _trained(config: Any, numbers: list[int], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what a learner has learned and reported, with these numbers of threads in turn."""
    algorithm = algorithm_of(config)
    is_discrete = isinstance(config, (DQNConfig, QRDQNConfig))
    actions = spaces.Discrete(4) if is_discrete else spaces.Box(-1, 1, (6,), np.float32)
    policy = algorithm.make_policy(OBS, actions, 0)
    algorithm.start(policy, B, 0)
    used, seen = itertools.cycle(numbers), set()

    def note(threads: StepThreads, seconds: float) -> None:
        seen.add(threads.number)
        threads.number = next(used)

    monkeypatch.setattr(StepThreads, "note", note)
    metrics = [algorithm.update(made_up_rollout(OBS, actions, seed), 0.0) for seed in (0, 1)]
    return seen, [policy.model.parameters.copy(), algorithm.state_dict(), metrics]


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("config", [SACConfig, TD3Config, DQNConfig, QRDQNConfig])
def test_the_number_of_threads_changes_no_bit(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = config(**SIZES, updates_per_step=1.0)
    seen, one = _trained(settings, [1], monkeypatch)
    assert seen == {1}
    seen, mixed = _trained(settings, [2, 1, 2], monkeypatch)
    assert seen == {1, 2}
    np.testing.assert_equal(mixed, one)


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(3, 16, 3), StackedMLP(1, (4, 8))])


def test_other_layers_always_use_the_same_number() -> None:
    for module in (Convolution(), nn.Linear(4, 8)):
        threads = StepThreads(module)
        with threads.step():
            assert torch.get_num_threads() == 2
        assert threads.number is None


def test_a_single_thread_stays_single(measured: StepThreads) -> None:
    measured.number = 2
    torch.set_num_threads(1)
    with measured.step():
        assert torch.get_num_threads() == 1
    torch.set_num_threads(2)
