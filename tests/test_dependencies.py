"""The versions in pyproject.toml and in constraints.txt fit each other."""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ["3.10", "3.11", "3.12", "3.13", "3.14"]
SYSTEMS = ["linux", "darwin", "win32"]

_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = _PROJECT["optional-dependencies"]
REQUIREMENTS = [
    Requirement(text)
    for text in [*_PROJECT["dependencies"], *(r for e in EXTRAS.values() for r in e)]
]
_LINES = re.sub(r"#.*", "", (ROOT / "constraints.txt").read_text()).split("\n")
PINS = [Requirement(line) for line in _LINES if line.strip()]


def _pin(name: str, python: str, system: str) -> str:
    """The one version that constraints.txt has of a package."""
    environment = default_environment() | {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": system,
    }
    versions = [
        str(pin.specifier).removeprefix("==")
        for pin in PINS
        if canonicalize_name(pin.name) == canonicalize_name(name)
        and (pin.marker is None or pin.marker.evaluate(environment))
    ]
    assert len(versions) == 1, f"{name} on Python {python}, {system}: {versions}"
    return versions[0]


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("python", PYTHONS)
def test_every_requirement_has_one_pin_that_satisfies_it(python: str, system: str) -> None:
    for requirement in REQUIREMENTS:
        version = _pin(requirement.name, python, system)
        assert requirement.specifier.contains(version), f"{requirement}, pinned {version}"


def test_every_pin_is_exact_and_written_once() -> None:
    for pin in PINS:
        assert re.fullmatch(r"==[\w.]+", str(pin.specifier)), pin
    assert len({str(pin) for pin in PINS}) == len(PINS)


def test_the_same_requirement_has_the_same_lower_bound_in_every_extra_but_outside() -> None:
    """``outside`` follows what other libraries' tests ask for."""
    bounds: dict[str, set[str]] = {}
    for name, extra in EXTRAS.items():
        for requirement in map(Requirement, extra if name != "outside" else []):
            bounds.setdefault(requirement.name, set()).add(str(requirement.specifier))
    assert {name: found for name, found in bounds.items() if len(found - {""}) > 1} == {}


def test_the_lower_bounds_exclude_nothing_that_the_core_declares() -> None:
    """Every core dependency has a lower bound and no upper one, as a library should."""
    for requirement in map(Requirement, _PROJECT["dependencies"]):
        assert re.fullmatch(r">=[\d.]+", str(requirement.specifier)), requirement


def test_everything_that_is_drawn_in_is_pinned_at_what_is_installed() -> None:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    texts = [*_PROJECT["dependencies"], *EXTRAS["train"], *EXTRAS["dev"]]
    todo = [Requirement(text) for text in texts]
    seen: set[tuple[str, str]] = set()
    while todo:
        requirement = todo.pop()
        for extra in requirement.extras or {""}:
            key = canonicalize_name(requirement.name), extra
            if key in seen:
                continue
            seen.add(key)
            installed = metadata.distribution(requirement.name)
            pinned = _pin(requirement.name, python, sys.platform)
            assert installed.version.partition("+")[0] == pinned, requirement.name
            for text in installed.requires or []:
                needed = Requirement(text)
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    todo.append(needed)
