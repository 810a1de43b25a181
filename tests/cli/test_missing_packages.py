"""Commands that need a package of an extra name both; those that need none work without."""

from __future__ import annotations

import subprocess
import sys

import pytest

_WITHOUT = """
import sys
sys.modules[{package!r}] = None
from rookery.cli import main
sys.exit(main({arguments}))
"""


def _run(package: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = _WITHOUT.format(package=package, arguments=list(arguments))
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "arguments", [("train", "ppo", "CartPole-v1"), ("eval", "runs/a"), ("tune", "CartPole-v1")]
)
def test_a_command_names_what_it_lacks_and_how_to_get_it(arguments: tuple[str, ...]) -> None:
    done = _run("tyro", *arguments)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line == "rookery: error: this command needs tyro: pip install 'rookery[train]'"


@pytest.mark.parametrize("package", ["tyro", "torch"])
def test_the_version_needs_nothing(package: str) -> None:
    assert _run(package, "--version").stdout.startswith("rookery ")
