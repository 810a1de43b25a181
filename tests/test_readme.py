"""The README's examples run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).resolve().parent.parent / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=[f"example-{i}" for i in range(len(EXAMPLES))])
def test_an_example_runs_as_a_script_without_a_main_guard(example, tmp_path):
    script = tmp_path / "example.py"
    script.write_text(example.replace("100_000", "2_000"))
    result = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout


def test_the_readme_has_examples():
    assert len(EXAMPLES) == 2
