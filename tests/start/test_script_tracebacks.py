"""Tracebacks and stacks of envs that a script or a notebook defines show files and source lines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S

# cloudpickle 3.1.3 replaces the file name of code that it pickles by value; earlier ones do not.
REPLACING_FILE_NAMES = """
import types
import cloudpickle

table = cloudpickle.Pickler.dispatch_table
reduced = table[types.CodeType]

def reduced_without_file_name(code):
    make, arguments = reduced(code)
    return make, (*arguments[:10], "<dynamic-code>", *arguments[11:])

table[types.CodeType] = reduced_without_file_name
"""

ENV = """
import time
import gymnasium as gym
import rookery

class Game(gym.Env):
    observation_space = action_space = gym.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return 0, {}
    def step(self, action):
        if action == 1:
            time.sleep(1000)  # hangs
        raise ValueError("no more moves")  # fails
"""

FAILS = """
import traceback

with rookery.make_vec(Game, 2, backend="process", num_workers=1, start_method=METHOD) as venv:
    venv.reset()
    try:
        venv.step([0, 0])
    except rookery.EnvFailed:
        traceback.print_exc()
"""

HANGS = """
faults = rookery.FaultPolicy(step_timeout_s=0.2)
with rookery.make_vec(
    Game, 1, backend="process", num_workers=1, start_method=METHOD, faults=faults
) as venv:
    venv.reset()
    try:
        venv.step([1])
    except rookery.WorkerTimeout as error:
        print(error)
"""

# As ipykernel runs a cell: no file has the source, only linecache knows it.
CELL = """
import linecache

source = CELL_SOURCE
linecache.cache[NAME] = (len(source), None, source.splitlines(keepends=True), NAME)
exec(compile(source, NAME, "exec"))
"""


def _said(folder: Path, script: str) -> str:
    """Return the output of a script, including warnings and tracebacks."""
    path = folder / "script.py"
    path.write_text(script)
    done = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def _line(source: str, end: str) -> int:
    return next(i for i, line in enumerate(source.splitlines(), 1) if line.endswith(end))


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_traceback_shows_file_and_source_line_of_a_script(tmp_path: Path, method: str) -> None:
    script = f"METHOD = {method!r}\n" + REPLACING_FILE_NAMES + ENV + FAILS
    said = _said(tmp_path, script)
    place = f'File "{tmp_path / "script.py"}", line {_line(script, "# fails")}, in step'
    assert f'{place}\n    raise ValueError("no more moves")  # fails\n' in said
    assert "<dynamic-code>" not in said


@pytest.mark.skipif(sys.platform == "win32", reason="stacks of other processes need signals")
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_the_stack_of_an_env_that_hangs_shows_the_file_of_a_script(
    tmp_path: Path, method: str
) -> None:
    script = f"METHOD = {method!r}\n" + REPLACING_FILE_NAMES + ENV + HANGS
    said = _said(tmp_path, script)
    assert f'File "{tmp_path / "script.py"}", line {_line(script, "# hangs")} in step' in said


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
@pytest.mark.parametrize("name", ["<ipython-input-1-0123abcd>", "/tmp/ipykernel_1/123.py"])
def test_a_traceback_shows_the_source_line_of_a_notebook_cell(
    tmp_path: Path, name: str, method: str
) -> None:
    begin = f"METHOD = {method!r}\nNAME = {name!r}\nCELL_SOURCE = {ENV!r}\n"
    said = _said(tmp_path, begin + REPLACING_FILE_NAMES + CELL + FAILS)
    # The first is the worker's traceback.
    place = f'File "{name}", line {_line(ENV, "# fails")}, in step'
    assert f'{place}\n    raise ValueError("no more moves")  # fails\n' in said
