"""Under which conditions something was measured."""

from __future__ import annotations

from typing import Any

from benchmarks.cases import CORES
from benchmarks.contenders import LIBRARIES
from rookery.bench.conditions import conditions


def read_conditions() -> dict[str, Any]:
    """Describe the machine, the interpreter and the libraries, as far as results depend on them."""
    found = conditions(LIBRARIES)
    load = found.pop("load_average")
    return {**found, "cores": CORES, "load_average_before": load}
