"""The versions in pyproject.toml and in constraints.txt fit each other."""

from __future__ import annotations

import os
import re
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ["3.10", "3.11", "3.12", "3.13", "3.14"]
SYSTEMS = ["linux", "darwin", "win32"]

_PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
_PROJECT = _PYPROJECT["project"]
CORE = [Requirement(text) for text in _PROJECT["dependencies"]]
EXTRAS = {
    name: [Requirement(text) for text in texts]
    for name, texts in _PROJECT["optional-dependencies"].items()
}
OURS = {"docs", "bench", "dev", "outside", "package", "test"}  # all others are for users
REQUIREMENTS = [
    requirement
    for requirement in [
        *map(Requirement, _PYPROJECT["build-system"]["requires"]),
        *CORE,
        *(each for extra in EXTRAS.values() for each in extra),
    ]
    if requirement.name != "rookery"  # an extra that is made of others
]


def _pins(file: str) -> list[Requirement]:
    lines = re.sub(r"#.*", "", (ROOT / file).read_text()).split("\n")
    return [Requirement(line) for line in lines if line.strip()]


PINS = _pins("constraints.txt")


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
    for pin in [*PINS, *_pins("constraints-lowest.txt")]:
        assert re.fullmatch(r"==[\w.]+", str(pin.specifier)), pin
    assert len({str(pin) for pin in PINS}) == len(PINS)


def test_the_same_requirement_has_the_same_lower_bound_in_every_extra_but_outside() -> None:
    """``outside`` follows what other libraries' tests ask for."""
    bounds: dict[str, set[str]] = {}
    for name, extra in EXTRAS.items():
        for requirement in extra if name != "outside" else []:
            bounds.setdefault(requirement.name, set()).add(str(requirement.specifier))
    assert {name: found for name, found in bounds.items() if len(found - {""}) > 1} == {}


def test_the_core_has_lower_bounds_and_caps_only_what_it_uses_private_names_of() -> None:
    for requirement in CORE:
        operators = {each.operator for each in requirement.specifier}
        assert operators == ({">=", "<"} if requirement.name == "gymnasium" else {">="})


def test_the_lowest_versions_that_are_tested_are_those_that_are_allowed() -> None:
    """But for torch, whose older builds draw gigabytes of GPU packages."""
    users = [*CORE, *(r for name, extra in EXTRAS.items() if name not in OURS for r in extra)]
    lower = {
        requirement.name: re.search(r">=([\d.]+)", str(requirement.specifier))[1]  # type: ignore[index]
        for requirement in users
        if requirement.name not in ("rookery", "torch")
    }
    tested = {
        pin.name: str(pin.specifier).removeprefix("==") for pin in _pins("constraints-lowest.txt")
    }
    del tested["torch"]
    assert tested.keys() == lower.keys()
    for name, version in tested.items():
        assert Version(version) == Version(lower[name]), name


def test_the_extra_all_has_every_extra_that_is_for_users() -> None:
    (everything,) = EXTRAS["all"]
    assert everything.extras == EXTRAS.keys() - OURS - {"all"}


@pytest.mark.skipif(
    os.environ.get("CONSTRAINTS", "constraints.txt") != "constraints.txt",
    reason="other versions were asked for",
)
def test_everything_that_is_drawn_in_is_pinned_at_what_is_installed() -> None:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    todo = [*CORE, *EXTRAS["train"], *EXTRAS["test"], *EXTRAS["dev"]]
    seen: set[tuple[str, str]] = set()
    while todo:
        requirement = todo.pop()
        if requirement.name == "rookery":
            continue
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
