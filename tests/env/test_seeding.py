from __future__ import annotations

import pytest

from rookery import ConfigError, seeding


def test_env_seeds_are_repeatable_and_distinct() -> None:
    seeds = seeding.env_seeds(0, 1000)
    assert seeds == seeding.env_seeds(0, 1000)
    assert len(set(seeds)) == 1000
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_neighbouring_root_seeds_share_no_env_seed() -> None:
    assert not set(seeding.env_seeds(0, 100)) & set(seeding.env_seeds(1, 100))


def test_more_envs_keep_the_seeds_of_the_first() -> None:
    assert seeding.env_seeds(3, 8) == seeding.env_seeds(3, 64)[:8]


def test_an_int_seed_means_consecutive_seeds() -> None:
    assert seeding.consecutive_seeds(5, 3) == [5, 6, 7]
    assert seeding.consecutive_seeds(None, 2) == [None, None]
    assert seeding.consecutive_seeds([4, None], 2) == [4, None]


def test_a_list_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ConfigError, match="2 entries for 3 envs"):
        seeding.consecutive_seeds([1, 2], 3)
