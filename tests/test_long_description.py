"""On a package index the README has no files beside it: its links are absolute there."""

from __future__ import annotations

import re
from importlib import metadata, util
from pathlib import Path
from types import ModuleType

import pytest

import rookery

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def build_hook() -> ModuleType:
    pytest.importorskip("hatchling")
    spec = util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("[a](docs/a.md)", "[a](R/blob/v1/docs/a.md)"),
        ("[a](docs/a.md#part)", "[a](R/blob/v1/docs/a.md#part)"),
        ("![a](docs/a.png)", "![a](R/raw/v1/docs/a.png)"),
        ("[![a](docs/a.svg)](docs/a.md)", "[![a](R/raw/v1/docs/a.svg)](R/blob/v1/docs/a.md)"),
        ('<img src="docs/a.png" alt="a">', '<img src="R/raw/v1/docs/a.png" alt="a">'),
        ("[a](https://example.org/a)", "[a](https://example.org/a)"),
        ("[a](#part), [b](mailto:a@b.c)", "[a](#part), [b](mailto:a@b.c)"),
    ],
)
def test_relative_links_become_absolute(build_hook: ModuleType, written: str, shown: str) -> None:
    assert build_hook.absolute_links(written, "R", "v1") == shown


def test_the_readme_links_to_files_that_are_there() -> None:
    page = (ROOT / "README.md").read_text()
    targets = re.findall(r"""(?:\]\(|\b(?:src|href)=")(?!\w+:|#)([^)"\s#]+)""", page)
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_what_is_installed_has_the_projects_links_and_no_relative_one() -> None:
    text = metadata.distribution("rookery").read_text("METADATA")
    assert text is not None
    head, _, page = text.partition("\n\n")
    urls = dict(re.findall("^Project-URL: (.+), (.+)$", head, re.MULTILINE))
    assert {"Homepage", "Documentation", "Changelog", "Issues"} <= urls.keys()
    assert f"/v{rookery.__version__}/" in urls["Changelog"]
    assert page
    assert not re.search(r"\]\((?!\w+:|#)", page)
