"""The site builds, has no dead links, and leaves out no public name, error or option."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest
from browser import browser
from site_pages import Seen, faults_of, read_pages, visit_pages

import rookery
from rookery import errors
from rookery.cli import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
NEEDED = ("sphinx", "myst_parser", "furo", "sphinx_copybutton")

# Packages whose ``__all__`` is public, beside single names of modules that are loaded on demand.
PACKAGES = [
    "rookery",
    "rookery.callbacks",
    "rookery.collect",
    "rookery.learn",
    "rookery.policy",
    "rookery.rollout",
    "rookery.run.log",
    "rookery.testing",
    "rookery.run",
]
ON_DEMAND = {
    "rookery.env.wrappers.minigrid": ["GridWithMission"],
    "rookery.common.seeding": ["env_seeds", "consecutive_seeds"],
    "rookery.integrations.sb3": ["RookeryVecEnv"],
    "rookery.learn.on_policy.impala": ["Impala"],
    "rookery.policy.model": ["Model"],
    "rookery.policy.torch.policy_module": ["PolicyModule"],
    "rookery.policy.weights": ["Weights"],
    "rookery.run.log.sinks": ["JSONLSink", "TensorBoardSink", "WandbSink"],
    "rookery.vector.statistics.snapshot": [
        "CallerStatistics",
        "WorkerStatistics",
        "EnvStatistics",
        "Statistics",
    ],
}
ERRORS = [
    name
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, errors.RookeryError)
]


def _resolve(name: str) -> object:
    """What a dotted name stands for."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            value: object = importlib.import_module(".".join(parts[:end]))
        except ImportError:
            continue
        for part in parts[end:]:
            value = getattr(value, part)
        return value
    raise AssertionError(f"nothing is called {name}")


def _documented() -> dict[str, object]:
    names = [
        name
        for page in sorted((DOCS / "api").glob("*.rst"))
        for name in re.findall(r"^\.\. (?:auto\w+|py:data):: (\S+)", page.read_text(), re.MULTILINE)
    ]
    assert len(set(names)) == len(names), "a name has two places in the reference"
    return {name: _resolve(name) for name in names}


def _public() -> list[tuple[str, object]]:
    of_packages = [
        (f"{package}.{name}", getattr(importlib.import_module(package), name))
        for package in PACKAGES
        for name in importlib.import_module(package).__all__
    ]
    single = [
        (f"{m}.{name}", _resolve(f"{m}.{name}")) for m, names in ON_DEMAND.items() for name in names
    ]
    return [each for each in of_packages + single if not isinstance(each[1], ModuleType)]


def test_every_public_name_has_a_place_in_the_reference() -> None:
    documented = _documented()
    objects = [value for value in documented.values() if not isinstance(value, str)]
    missing = [
        name
        for name, value in _public()
        if name not in documented and not any(value is each for each in objects)
    ]
    assert not missing


def test_the_pages_of_the_reference_are_all_in_its_index() -> None:
    pages = {page.stem for page in (DOCS / "api").glob("*.rst")} - {"index"}
    listed = re.findall(r"^   (\w+)$", (DOCS / "api" / "index.rst").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(pages)


def test_every_error_has_a_page_which_the_index_names() -> None:
    assert sorted(page.stem for page in (DOCS / "errors").glob("*.md")) == sorted(
        [*ERRORS, "index"]
    )
    index = (DOCS / "errors" / "index.md").read_text()
    drawn = re.findall(r"^( *)- \[(\w+)\]\((\w+)\.md\)", index, re.MULTILINE)
    above: list[str] = []
    for indent, name, page in drawn:
        above = [*above[: len(indent) // 2], name]
        kinds = [
            kind for kind in getattr(errors, name).__mro__ if kind.__module__ == errors.__name__
        ]
        assert page == name
        assert [kind.__name__ for kind in reversed(kinds)] == above
    assert sorted(name for _, name, _ in drawn) == sorted(ERRORS)


def test_links_between_files_hold_where_the_repository_is_hosted() -> None:
    for page in [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]:
        prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        for link in re.findall(r"\]\(([^()\s]+)\)", prose):
            path, _, anchor = link.partition("#")
            if ":" in path:
                continue
            target = page.parent / path if path else page
            assert target.exists(), f"{page.name}: {link}"
            if anchor and target.suffix == ".md":
                assert anchor in _anchors(target), f"{page.name}: {link}"


def _anchors(page: Path) -> set[str]:
    """What a code host calls the headings of a page."""
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ +(.+?) *$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_names_of_rookery_in_the_pages_are_names_that_there_are() -> None:
    name = re.compile(r"(?<![\w/.-])(rookery(?:\.[A-Za-z]\w*)+)(?![\w/-])")
    for page in [*DOCS.rglob("*.md"), ROOT / "README.md"]:
        prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        for found in set(name.findall(prose)):
            assert _resolve(found) is not None, f"{page.name}: {found}"


def _command_line() -> ModuleType:
    spec = importlib.util.spec_from_file_location("command_line", DOCS / "command_line.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["command_line"] = module  # where its dataclass looks for itself
    spec.loader.exec_module(module)
    return module


def test_the_page_of_the_command_line_has_what_help_prints() -> None:
    page = (DOCS / "cli.md").read_text()
    assert _command_line().written(page) == page, "python docs/command_line.py brings it up to date"


def test_the_page_of_the_command_line_has_every_command_and_algorithm() -> None:
    from rookery.run.algorithms import BUILT_IN

    page = (DOCS / "cli.md").read_text()
    for command in COMMANDS:
        assert f"\n## rookery {command}\n" in page
    for algorithm in BUILT_IN:
        assert f"<!-- options: rookery train {algorithm}; learner options -->" in page


def test_names_of_other_libraries_are_listed_and_lead_to_settings() -> None:
    from rookery.common.arguments import COMMON_NAMES
    from rookery.run.algorithms import BUILT_IN
    from rookery.run.request import ARGUMENTS
    from rookery.run.settings import TrainSettings

    kinds: list[type] = [TrainSettings, *(kind for kind, _ in BUILT_IN.values())]
    known = ARGUMENTS.union(*({field.name for field in fields(kind)} for kind in kinds))
    page = (DOCS / "coming_from" / "stable_baselines3.md").read_text()
    for name, ours in COMMON_NAMES.items():
        assert set(ours) <= known
        assert f"| `{name}` | {', '.join(f'`{each}`' for each in ours)} |" in page


def test_flags_in_the_pages_are_flags_that_there_are() -> None:
    known = set(re.findall(r"--[a-z][\w-]+", (DOCS / "cli.md").read_text()))
    mistyped = "--totl-steps"  # which a page shows
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        for command in _commands(page):
            used = {flag.replace("_", "-") for flag in re.findall(r"(?<!\S)--[a-z][\w-]+", command)}
            assert not used - known - {mistyped}, f"{page.name}: {command}"


def _commands(page: Path) -> Iterator[str]:
    """What a page shows of rookery's own commands and flags, in lines and within text."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    yield from re.findall(r"^ {4}(rookery .*(?:\\\n.*)*)", text, re.MULTILINE)
    for line in text.splitlines():
        if page.parent.name == "coming_from" and (cells := _cells(line)):
            line = cells[1]  # the first has the names of another library
        yield from re.findall(r"`((?:rookery |--)[^`]+)`", line)


def _cells(line: str) -> list[str]:
    """The cells of a table's row that has two."""
    return line.split("|")[1:3] if line.startswith("| ") and line.count("|") == 3 else []


def _names_of_settings() -> set[str]:
    settings = [getattr(rookery, name) for name in rookery.__all__ if name.endswith("Config")]
    calls = [
        rookery.make_vec,
        rookery.train,
        rookery.resume,
        rookery.ProcessVectorEnv,
        rookery.WorkerCollector,
        rookery.FaultPolicy,
        rookery.Agent.act,
    ]
    names = {field.name for kind in settings for field in fields(kind)}
    names |= {name for call in calls for name in inspect.signature(call).parameters}
    return names | {
        name
        for kind in (rookery.VectorEnv, rookery.Rollout, rookery.Trainer, rookery.Agent)
        for name in dir(kind)
    }


def test_what_replaces_another_librarys_names_is_there() -> None:
    from rookery.run.algorithms import BUILT_IN

    metrics = set(re.findall(r"^\| `(\w+)`", (DOCS / "metrics.md").read_text(), re.MULTILINE))
    other = {"action_mask", "f", "make", "make_vec", "n", "predict", "with"}
    known = _names_of_settings() | set(BUILT_IN) | metrics | other
    for page in (DOCS / "coming_from").glob("*.md"):
        for row in filter(None, map(_cells, page.read_text().splitlines())):
            for name in re.findall(r"`([a-z]\w*)(?=[`=(])", row[1]):
                assert name in known, f"{page.name}: {row}"


# ---------------------------------------------------------------- the site


@pytest.mark.slow
def test_the_site_builds_without_warnings_and_has_no_dead_links(tmp_path: Path) -> None:
    for module in NEEDED:
        pytest.importorskip(
            module, reason="the site needs the extra `docs`, and Python 3.11 or newer"
        )
    result = subprocess.run(
        [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-n", "-q",
         "-d", str(tmp_path / "doctrees"), str(DOCS), str(tmp_path / "site")],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    pages = read_pages(tmp_path / "site")
    assert faults_of(pages, tmp_path / "site") == []
    built = {str(path.relative_to(tmp_path / "site")) for path in pages}
    assert {"index.html", "errors/EnvFailed.html", "api/training.html", "results.html"} <= built


BROKEN = """<html><body><a href="other.html#there">good</a><a href="other.html#nowhere">bad</a>
<a href="gone.html">bad</a><a href="#here">good</a><p id="here"></p><img src="gone.png">
<a href="https://example.org/whatever">not looked at</a></body></html>"""


def _broken_site(folder: Path) -> Path:
    (folder / "index.html").write_text(BROKEN)
    (folder / "other.html").write_text('<html><body><p id="there"></p></body></html>')
    return folder


def _expected(pages: dict[Path, Seen], folder: Path) -> bool:
    return set(faults_of(pages, folder)) >= {
        "index.html: other.html has no anchor #nowhere",
        "index.html: there is no gone.html",
        "index.html: there is no gone.png",
    }


def test_dead_links_are_found_by_reading(tmp_path: Path) -> None:
    pages = read_pages(_broken_site(tmp_path))
    assert _expected(pages, tmp_path)
    assert len(faults_of(pages, tmp_path)) == 3


def test_dead_links_and_complaints_are_found_in_a_browser(tmp_path: Path) -> None:
    program = browser()
    if program is None:
        pytest.skip("there is no browser")
    folder = tmp_path / "site"
    folder.mkdir()
    _broken_site(folder)
    (folder / "other.html").write_text(
        '<html><body><p id="there"></p><script>console.error("alas")</script>'
        "<script>nothing.at.all</script></body></html>"
    )
    pages = visit_pages(folder, program)
    assert _expected(pages, folder)
    told = faults_of(pages, folder)
    assert "other.html: ['alas']" in told
    assert any("nothing is not defined" in each for each in told)
