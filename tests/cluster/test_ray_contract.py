"""The contract of all vector envs, on a cluster."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import test_contract_attributes
import test_contract_autoreset
import test_contract_infos
import test_contract_order
import test_contract_spaces
import test_contract_steps
import test_contract_values
import test_contract_wrappers

_OPENERS = {"open_any", "open_async", "open_workers", "open_ours"}
# test_ray_equality.py and test_ray_faults.py cover the same, and always run.
pytestmark = pytest.mark.whole


def _is_contract(name: str, value: Any) -> bool:
    is_test = name.startswith("test_") and inspect.isfunction(value)
    return is_test and bool(_OPENERS & inspect.signature(value).parameters.keys())


for _module in (
    test_contract_attributes,
    test_contract_autoreset,
    test_contract_infos,
    test_contract_order,
    test_contract_spaces,
    test_contract_steps,
    test_contract_values,
    test_contract_wrappers,
):
    for _name, _value in vars(_module).items():
        if type(_value).__name__ == "FixtureFunctionDefinition" or _is_contract(_name, _value):
            globals()[_name] = _value
