"""Whatever is drawn, rookery does what plain envs in a list would have done."""

from __future__ import annotations

import pytest
from machine import machine_on, run_machine
from model_backends import BACKENDS

WHOLE, STEPS = 200, 50  # examples of a run with --whole, and steps of each example
# Examples of the default run; scripts/soak goes on from there.
FEW = {"serial": 10, "thread-1": 10, "thread-2": 10}
FEWER = 3  # where processes have to be started


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", BACKENDS)
def test_the_backend_does_as_the_model(name: str, request: pytest.FixtureRequest) -> None:
    machine = machine_on(name)
    if request.config.getoption("whole", default=False):
        run_machine(machine, WHOLE, STEPS)
        return
    machine.hangs, machine.start_methods = (False,), (None,)  # which take their time
    run_machine(machine, FEW.get(name, FEWER), STEPS)
