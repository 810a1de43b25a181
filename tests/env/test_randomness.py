"""Global random streams follow their entropy and nothing else, each by itself."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from patience import PATIENCE_S

from rookery.env.randomness import (
    fresh_entropy,
    seed_global_streams,
    seeded_entropy,
)


@pytest.fixture(autouse=True)
def _streams_as_before() -> Iterator[None]:
    numpys, pythons = np.random.get_state(), random.getstate()  # noqa: NPY002
    yield
    np.random.set_state(numpys)  # noqa: NPY002
    random.setstate(pythons)


def _drawn(entropy: Any) -> tuple[Any, ...]:
    seed_global_streams(entropy)
    numpys = np.random.random(3).tolist()  # noqa: NPY002
    return (*numpys, *(random.random() for _ in range(3)))


def test_the_same_entropy_gives_the_same_streams() -> None:
    for entropy in ([0], [3, 2**40], (1, 2, 3), (0, 10**30)):
        assert _drawn(entropy) == _drawn(entropy)


def test_the_streams_of_one_process_are_not_alike() -> None:
    drawn = _drawn([5])
    assert len(set(drawn)) == 6


def test_streams_differ_by_worker_restart_vector_env_and_seed() -> None:
    entropies = [fresh_entropy() for _ in range(4)]
    entropies += [seeded_entropy(seed, i) for seed in (0, 1, 2**32, 2**70) for i in range(3)]
    assert len({_drawn(entropy) for entropy in entropies}) == len(entropies)
    assert not any(a == b for a, b in combinations(entropies, 2))


def test_a_seed_gives_the_same_streams_in_every_run() -> None:
    script = """
import random, sys
import numpy as np
from rookery.env.randomness import seed_global_streams, seeded_entropy
assert "torch" not in sys.modules
seed_global_streams(seeded_entropy(7, 1))
print([*np.random.random(3).tolist(), *(random.random() for _ in range(3))])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.stdout.strip() == str(list(_drawn(seeded_entropy(7, 1)))), done.stderr


def test_torch_is_seeded_where_it_is_loaded() -> None:
    torch = pytest.importorskip("torch")
    state = torch.get_rng_state()
    try:
        seed_global_streams([1, 2])
        first = torch.rand(3)
        seed_global_streams([1, 2])
        assert torch.equal(first, torch.rand(3))
        seed_global_streams([1, 3])
        assert not torch.equal(first, torch.rand(3))
    finally:
        torch.set_rng_state(state)


@pytest.mark.parametrize("value", [None, object()])
def test_a_torch_that_is_not_really_there_is_left_alone(
    value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", value)
    assert _drawn([4]) == _drawn([4])
