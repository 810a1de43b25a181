"""Whatever is drawn, rookery does what plain envs in a list would have done."""

from __future__ import annotations

import pytest
from machine import machine_on, run_machine
from model_carriers import CARRIERS


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", CARRIERS)
def test_the_carrier_does_as_the_model(name: str, request: pytest.FixtureRequest) -> None:
    whole = request.config.getoption("whole", default=False)
    examples, steps = (200, 50) if whole else (12, 20)
    run_machine(machine_on(name), examples, steps)
