"""What importing rookery gives and costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import rookery
from rookery import errors

HEAVY = ("torch", "tyro", "rich", "tensorboard", "matplotlib", "stable_baselines3")


def test_importing_rookery_loads_no_learning_library():
    code = f"import rookery, sys; print([name for name in {HEAVY!r} if name in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.stdout.strip() == "[]", result.stdout + result.stderr


def test_every_error_that_is_raised_on_purpose_can_be_caught_by_its_name():
    names = [
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.RookeryError)
    ]
    assert {"SpaceValueError", "SpaceTypeError"} < set(names) <= set(rookery.__all__)
    assert all(getattr(rookery, name) is getattr(errors, name) for name in names)


def test_runtime_and_type_checkers_see_the_same_public_names():
    tree = ast.parse(Path(rookery.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    seen = {name.name: node.module for node in imports for name in node.names}
    submodules = {name for name, module in seen.items() if module == "rookery"}
    assert {name: seen[name] for name in seen if name not in submodules} == rookery._HOMES
    assert submodules == set(rookery._SUBMODULES)
    eager = {name for name in errors.__dict__ if name in rookery.__all__} | {"seeding"}
    assert set(rookery.__all__) == {*seen, *eager}


@pytest.mark.parametrize("name", rookery.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    if name == "TorchPolicy":
        pytest.importorskip("torch")
    assert getattr(rookery, name) is not None
