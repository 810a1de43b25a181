"""A Ray cluster for the tests of this folder, and a check that they leave nothing there."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nodes import Head, agents, left_of, orphaned_names

_CONFORMANCE = Path(__file__).parents[1] / "conformance"
sys.path.insert(0, str(_CONFORMANCE))

_GRACE_S = 30.0

try:
    import ray
except ImportError:
    ray = None


@pytest.hookimpl(tryfirst=True)  # before slow tests are deselected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder as slow, because Ray takes seconds to start."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker("slow")


@pytest.fixture(scope="module", autouse=True)  # other tests count threads of this process
def joined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Join a cluster of one node; its processes are not children of this one."""
    if ray is None:
        pytest.skip("Ray has no wheel for this Python or this platform")
    with Head(num_cpus=16) as head:
        ray.init(address=head.address, logging_level="ERROR", log_to_driver=False)
        yield
        ray.shutdown()
        assert not left_of(_threads_of_ours, _GRACE_S)  # threads would warn a later test that forks


def _threads_of_ours() -> list[str]:
    gc.collect()
    return [each.name for each in threading.enumerate() if each.name.startswith("rookery")]


@pytest.fixture
def open_ours() -> Iterator[Any]:
    """Open vector envs on the cluster, which are closed after the test."""
    from contract_backends import scripted

    import rookery

    opened: list[Any] = []

    def open_one(env_fns: Any = None, **options: Any) -> Any:
        made = scripted() if env_fns is None else env_fns
        ray_options = {"num_cpus": 0}
        opened.append(
            rookery.make_vec(made, backend="ray", num_workers=2, ray_options=ray_options, **options)
        )
        return opened[-1]

    yield open_one
    while opened:
        opened.pop().close()


@pytest.fixture
def open_any(open_ours: Any) -> Any:
    return open_ours


@pytest.fixture
def open_async(open_ours: Any) -> Any:
    return open_ours


@pytest.fixture
def open_workers(open_ours: Any) -> Any:
    return open_ours


def _cpus_in_use() -> list[str]:
    if not ray.is_initialized():
        return []
    all_of_them, free = ray.cluster_resources(), ray.available_resources()
    used = all_of_them.get("CPU", 0) - free.get("CPU", 0)
    return [f"{used:g} CPUs"] if used > 0 else []


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Fail a test that leaves an actor, a process of an actor, or its semaphores behind.

    Threads, mappings and descriptors of Ray itself in this process are not checked.
    """
    left_of(_cpus_in_use, _GRACE_S)  # the cluster may still count those of the last test
    before = {*agents(), *orphaned_names()}
    yield
    gc.collect()

    def gained() -> list[str]:
        return [each for each in (*agents(), *orphaned_names()) if each not in before]

    left = left_of(gained, _GRACE_S)
    if left:
        pytest.fail(f"the test left behind: {left}", pytrace=False)
