"""The examples of the README and the guides run, and fail where and as they are to."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from run_examples import fits

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]

# ``<!-- raises: EnvFailed -->`` before an example says how it ends, and the block of text after it
# what the error says; ``<!-- needs: ray.rllib -->`` says which library it needs.
_BLOCK = re.compile(
    r"(?:<!-- (raises|needs): ([\w.]+) -->\n)?```python\n(.*?)```(?:\n\n```text\n(.*?)```)?",
    re.DOTALL,
)


class Example(NamedTuple):
    code: str
    raises: str | None
    needs: str | None
    says: str


def _examples(page: Path) -> list[Example]:
    return [
        Example(code, name if word == "raises" else None, name if word == "needs" else None, says)
        for word, name, code, says in _BLOCK.findall(page.read_text())
    ]


def _name(page: Path) -> str:
    return str(page.relative_to(DOCS if page.is_relative_to(DOCS) else ROOT).with_suffix(""))


EXAMPLES = {f"{_name(page)}-{i}": each for page in PAGES for i, each in enumerate(_examples(page))}
ALONE = [name for name in EXAMPLES if "/" not in name]
# Those of a folder share a process: most of them are done sooner than torch is imported.
TOGETHER: dict[str, list[str]] = {}
for _each in EXAMPLES:
    if "/" in _each:
        TOGETHER.setdefault(_each.partition("/")[0], []).append(_each)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALONE)
def test_an_example_runs_as_a_script_without_a_main_guard(name: str, tmp_path: Path) -> None:
    _require(EXAMPLES[name])
    result = _run([str(_script(name, tmp_path))], tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("folder", list(TOGETHER))
def test_the_examples_of_a_folder_run_and_fail_as_pages_say(folder: str, tmp_path: Path) -> None:
    told = []
    for name in TOGETHER[folder]:
        example = EXAMPLES[name]
        if not _is_missing(example.needs):
            path = _script(name, tmp_path)
            told.append({"path": str(path), "raises": example.raises, "says": example.says})
    (tmp_path / "examples.json").write_text(json.dumps(told))
    runner = str(ROOT / "tests" / "run_examples.py")
    result = _run([runner, "examples.json"], tmp_path)
    assert result.returncode == 0, result.stderr


def _require(example: Example) -> None:
    if 'backend="ray"' in example.code:
        pytest.importorskip("ray", reason="Ray has no wheel for this Python or this platform")


def _is_missing(library: str | None) -> bool:
    if library is None:
        return False
    try:
        __import__(library)
    except ImportError:
        return True
    return False


def _script(name: str, folder: Path) -> Path:
    script = folder / f"{name.replace('/', '-')}.py"
    short = re.sub(r"\b(100|50)_000\b", "2_000", EXAMPLES[name].code)
    short = short.replace("n_envs=8", "n_envs=2")  # whose workers import torch
    script.write_text(short.replace("total_timesteps=1024", "total_timesteps=128"))
    return script


def _run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # two would fight over a busy machine
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_pages_have_examples() -> None:
    pages = {name.rsplit("-", 1)[0] for name in EXAMPLES}
    assert {"README", "faults", "training", "coming_from/gymnasium", "errors/EnvFailed"} <= pages


def test_a_message_fits_what_a_page_says_of_it() -> None:
    assert fits("worker ... of env 0 was\nkilled", "worker 17 of env 0 was killed")
    assert fits("it is (not) here; ...", "it is (not) here; it is there")
    assert not fits("worker ... was killed", "worker 17 was lost")
    assert not fits("killed", "it was killed")


def test_an_example_that_does_not_do_what_its_page_says_is_told(tmp_path: Path) -> None:
    wrong = {
        "raises nothing": ("print(1)", "ValueError", ""),
        "raises another": ("raise KeyError(1)", "ValueError", ""),
        "says otherwise": ("raise ValueError('a')", "ValueError", "b"),
        "prints nothing": ("pass", None, ""),
        "fails": ("1 / 0", None, ""),
    }
    told = []
    for name, (code, raises, says) in wrong.items():
        (tmp_path / f"{name}.py").write_text(code)
        told.append({"path": str(tmp_path / f"{name}.py"), "raises": raises, "says": says})
    (tmp_path / "examples.json").write_text(json.dumps(told))
    result = _run([str(ROOT / "tests" / "run_examples.py"), "examples.json"], tmp_path)
    assert result.returncode == 1
    assert [name for name in wrong if f"{name}.py: " in result.stderr] == list(wrong)
