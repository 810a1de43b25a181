"""Whatever is drawn, rookery does what plain envs in a list would have done."""

from __future__ import annotations

import pytest
from carriers import CARRIERS
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from machine import machine_on

# The explain phase would trace lines too, which the interruptions do.
_PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)


@pytest.mark.parametrize("name", CARRIERS)
def test_the_carrier_does_as_the_model(name: str) -> None:
    run_state_machine_as_test(
        machine_on(name),
        settings=settings(
            max_examples=20,
            stateful_step_count=15,
            deadline=None,
            phases=_PHASES,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
