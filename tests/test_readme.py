"""The examples of the README and of the guides run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = {
    f"{page.stem}-{i}": example
    for page in PAGES
    for i, example in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
}


@pytest.mark.parametrize("name", list(EXAMPLES))
def test_an_example_runs_as_a_script_without_a_main_guard(name: str, tmp_path: Path) -> None:
    if 'backend="ray"' in EXAMPLES[name]:
        pytest.importorskip("ray", reason="Ray has no wheel for this Python or this platform")
    script = tmp_path / "example.py"
    short = re.sub(r"\b(100|50)_000\b", "2_000", EXAMPLES[name])
    short = short.replace("n_envs=8", "n_envs=2")  # whose workers import torch
    script.write_text(short.replace("total_timesteps=1024", "total_timesteps=128"))
    result = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # two would fight over a busy machine
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout


def test_the_pages_have_examples() -> None:
    pages = {name.rsplit("-", 1)[0] for name in EXAMPLES}
    assert {"README", "faults", "switching", "training"} <= pages
