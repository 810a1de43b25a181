"""Memory: ceilings, sizes in words, and what a run needs."""

import os

import psutil
import pytest

from rookery.common.process_tree import with_children
from rookery.common.resources import MemoryRoom
from rookery.errors import ConfigError
from rookery.tuning.memory import (
    Ceiling,
    MemoryModel,
    ceiling_of,
    in_units,
    memory_of,
    model_of,
    parse_memory,
)

MB = 2**20


def test_the_smallest_limit_is_the_ceiling():
    machine = MemoryRoom(8_000, 1_000, "this machine")
    assert ceiling_of(machine) == Ceiling(900, "memory that this machine has available")
    assert ceiling_of(machine, wanted=500) == Ceiling(500, "--memory")
    assert ceiling_of(machine, wanted=5_000).size_bytes == 900


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("6G", 6 * 2**30),
        ("800M", 800 * MB),
        ("1.5 GiB", 3 * 2**29),
        ("512mb", 512 * MB),
        ("77", 77),
    ],
)
def test_sizes_are_read_as_people_write_them(text, size):
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["", "much", "-1G", "0", "6 X", "G"])
def test_an_invalid_size_is_an_error(text):
    with pytest.raises(ConfigError, match="such as 6G"):
        parse_memory(text)


def test_sizes_are_printed_with_units():
    assert [in_units(n) for n in (512, 3 * MB, 5 * 2**29)] == ["0.5 kB", "3 MB", "2.5 GB"]


def test_two_workers_give_the_memory_of_an_env():
    model = model_of(60 * MB, 140 * MB, 9, 200 * MB, row_bytes=MB, num_steps=2)
    assert model.env_bytes == 10 * MB and model.worker_bytes == 50 * MB
    assert model.each_bytes == 16 * MB
    assert model.needed(4, 2) == (200 + 100 + 64) * MB
    assert model.carries(Ceiling(1000 * MB, ""), 2) == 43
    assert model.carries(Ceiling(MB, ""), 2) == 0


def test_an_env_that_seems_to_take_nothing_is_no_error():
    model = model_of(60 * MB, 59 * MB, 9, 0)
    assert model.env_bytes == 0 and model.carries(Ceiling(100 * MB, ""), 1) > 10**6


def test_a_full_replay_counts():
    assert MemoryModel(1, 0, 1, replay_bytes=1000).needed(1, 0) == 1002


def test_the_memory_of_this_process_is_known():
    (own, *_) = with_children(os.getpid())
    assert own.pid == os.getpid() and MB < memory_of([own]) < psutil.virtual_memory().total
