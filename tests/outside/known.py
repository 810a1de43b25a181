"""What is known about single tests: ``known.json`` says which, of which kind, and why.

``"private"``: the test reads attributes that only the peer's own class has, and fails without them.
``"malformed"``: it does what the peer's own multi-process class refuses too.
``"own-process"``: it looks at an env object of its own process while a vector env steps that, so
envs that replace ``DummyVecEnv`` stay in this process. It has to pass all the same.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

EXCUSES = ("private", "malformed")


@dataclass(frozen=True)
class Known:
    """What is known about a test, or about those of its parametrisations that have ``param``."""

    test: str
    kind: str
    reason: str
    param: str = ""


_ALL = [Known(**entry) for entry in json.loads(Path(__file__).with_name("known.json").read_text())]


def find(nodeid: str, *kinds: str) -> Known | None:
    """What is known about a test, by ``file.py::test[params]`` with any folder before it."""
    path, _, params = nodeid.partition("[")
    name = path.rpartition("/")[2]
    for entry in _ALL:
        if entry.kind in kinds and entry.test == name and entry.param in params:
            return entry
    return None
