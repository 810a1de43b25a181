"""The model of a cluster, with numbers that can be checked by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.cluster_model import Costs, Setup, estimate

_COSTS = Costs(
    step_s=1e-3,
    row_bytes=1000.0,
    weight_bytes=1e6,
    share_s=0.0,
    call_s=0.0,
    put_s_per_byte=0.0,
    join_s_per_byte=0.0,
)
_SETUP = Setup(nodes=1, workers=4, envs=8, num_steps=100)


def test_workers_alone_make_their_steps_and_twice_the_nodes_twice_as_many() -> None:
    one, two = (estimate(_COSTS, replace(_SETUP, nodes=nodes)) for nodes in (1, 2))
    assert one.rows_per_s == pytest.approx(4 / 1e-3)
    assert two.rows_per_s == pytest.approx(8 / 1e-3)
    assert one.bottleneck == "workers"


@pytest.mark.parametrize(
    ("changed", "most", "bottleneck"),
    [
        ({"network_bytes_s": 1e6}, 1000.0 * 800 / (800 + 1000), "network"),  # rows and weights
        ({"update_s_per_row": 1e-2}, 100.0, "learner"),
        ({"call_s": 0.8}, 1000.0, "calls"),
        ({"join_s_per_byte": 1e-5}, 100.0, "object store"),
    ],
)
def test_the_slowest_part_bounds_asynchronous_runs_of_any_size(
    changed: dict[str, float], most: float, bottleneck: str
) -> None:
    costs = replace(_COSTS, **changed)
    for nodes in (10, 1000):
        found = estimate(costs, replace(_SETUP, nodes=nodes, is_async=True))
        assert found.bottleneck == bottleneck
        assert found.rows_per_s == pytest.approx(most)


def test_in_step_the_parts_add_up() -> None:
    costs = replace(_COSTS, update_s_per_row=1e-3, share_s=0.1, call_s=0.05)
    found = estimate(costs, _SETUP)
    assert sum(found.seconds.values()) == pytest.approx(0.2 + 0.1 + 0.05 + 0.8)
    assert found.rows_per_s == pytest.approx(800 / 1.15)
    assert estimate(costs, replace(_SETUP, is_async=True)).rows_per_s == pytest.approx(800 / 0.85)


def test_learners_share_all_but_the_exchange_of_gradients() -> None:
    costs = replace(_COSTS, update_s_per_row=1e-2, network_bytes_s=1e9)
    alone = estimate(costs, replace(_SETUP, nodes=100, is_async=True))
    ten = estimate(costs, replace(_SETUP, nodes=100, learners=10, is_async=True))
    assert ten.rows_per_s == pytest.approx(10 * alone.rows_per_s)
    slow = replace(costs, weight_bytes=1e11)
    assert estimate(slow, replace(_SETUP, nodes=100, learners=10)).bottleneck == "network"
