"""Envs on a cluster give the same results as in one process, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
import test_equality
from gymnasium.vector import AutoresetMode
from trajectories import NUM_ENVS, SOURCES, assert_same, run

import rookery

_OPTIONS: Any = {"backend": "ray", "num_workers": 2, "ray_options": {"num_cpus": 0}}


@pytest.mark.parametrize(
    ("name", "mode", "copy"),
    [
        pytest.param(name, mode, copy, marks=[] if is_kept else [pytest.mark.whole])
        for i, name in enumerate(SOURCES)
        for j, mode in enumerate(AutoresetMode)
        for copy in (True, False)
        for is_kept in [(i + j) % 3 == 0 and (i // 3) % 2 == copy]
    ],
)
def test_a_cluster_equals_gymnasiums_sync_vector_env(
    name: str, mode: AutoresetMode, copy: bool
) -> None:
    with rookery.make_vec(
        SOURCES[name], NUM_ENVS, autoreset_mode=mode, copy=copy, **_OPTIONS
    ) as venv:
        actual = run(venv, test_equality.NUM_STEPS_OF.get(name, test_equality.NUM_STEPS))
    assert_same(actual, test_equality.reference(name, mode))
