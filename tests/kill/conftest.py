"""Which kill points a plain run of the tests visits: each once, with the rest taken in turn."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_STRIDE = 7  # shares no factor with the number of any list of parameters here


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only --whole runs."""
    if config.getoption("whole") or any("::" in argument for argument in config.args):
        return
    groups = defaultdict(list)
    for item in items:
        if _HERE in item.path.parents and hasattr(item, "callspec"):
            point = item.callspec.params.get("point")
            groups[item.nodeid.partition("[")[0], point].append(item)
    kept = {group[_STRIDE * turn % len(group)].nodeid for turn, group in enumerate(groups.values())}
    left_out = [item for group in groups.values() for item in group if item.nodeid not in kept]
    config.hook.pytest_deselected(items=left_out)
    gone = set(map(id, left_out))
    items[:] = [item for item in items if id(item) not in gone]
