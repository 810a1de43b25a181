"""Whatever is drawn, rookery does what plain envs in a list would have done."""

from __future__ import annotations

import pytest
from machine import machine_on, run_machine
from model_carriers import CARRIERS


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", CARRIERS)
def test_the_carrier_does_as_the_model(name: str, request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("whole", default=False):
        pytest.skip("runs with --whole, and in scripts/soak")
    run_machine(machine_on(name), 200, 50)
