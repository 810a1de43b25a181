"""The command line where a terminal or file has few characters, in a folder with odd ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S

_PROGRAM = """
import sys
from rookery.cli import main

run = sys.argv[1]
commands = [
    f"train ppo CartPole-v1 --total-steps 512 --num-envs 2 --eval-episodes 1 --run-dir".split(),
    "eval --episodes 1".split(), ["watch", "--once"], ["report"], ["plot"],
]
for command in commands:
    assert main([*command, run]) == 0, command
for command in (["--help"], ["train", "--help"], ["doctor", "CartPole-v1"]):
    try:
        assert main(command) == 0, command
    except SystemExit as leaving:
        assert not leaving.code, command
print("\\u2013 \\u00b5 \\u2500 \\u28ff")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "variables",
    [
        {"PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
    ids=["cp1252", "ascii"],
)
def test_every_command_prints_in_few_characters(variables: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "J\u00fcrgens L\u00e4ufe"
    folder.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONIOENCODING"}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, "run"],
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
        cwd=folder,
        env={**environment, **variables},
    )
    errors = done.stderr.decode("ascii", errors="replace")
    assert done.returncode == 0, errors
    assert "Traceback" not in errors
    last = done.stdout.splitlines()[-1]
    assert last == (b"\x96 \xb5 ? ?" if "PYTHONIOENCODING" in variables else b"? ? ? ?")
