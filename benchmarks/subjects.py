"""The subjects that can be measured, by name; the name is mostly the module's address."""

from __future__ import annotations

import dataclasses
import importlib
from types import ModuleType

from benchmarks.cases import Case

SUBJECTS = (
    "stepping",
    "rollouts",
    "startup",
    "ppo",
    "solve",
    "scores",
    "sb3",
    "waiting",
    "partial",
    "atari",
    "images",
    "auto",
)
_MODULES = {"auto": "auto_grid"}  # that are not named as their subject
TABULATED = ("auto",)  # have a table in place of a picture


def load_subject(name: str) -> ModuleType:
    """Import a subject: a module with ``CASES`` and ``measure``."""
    return importlib.import_module(f"benchmarks.{_MODULES.get(name, name)}")


def cases_of(subject: str, quick: bool) -> list[Case]:
    """List the cases of a subject, made small for a quick run."""
    cases: list[Case] = list(load_subject(subject).CASES)
    if not quick:
        return cases
    return [
        dataclasses.replace(case, repetitions=1, num_envs=case.quick_num_envs or case.num_envs)
        for case in cases
    ]
