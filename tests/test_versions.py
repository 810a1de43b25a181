"""The version that is said in several places is one."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import rookery

ROOT = Path(__file__).resolve().parent.parent
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()


def test_the_command_and_the_module_say_the_same_version() -> None:
    command = [sys.executable, "-m", "rookery", "--version"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed == f"rookery {rookery.__version__}\n"


def test_what_is_installed_is_this_version() -> None:
    assert metadata.version("rookery") == rookery.__version__


def test_the_newest_version_of_the_changelog_is_this_one() -> None:
    sections = re.findall(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", CHANGELOG, re.MULTILINE)
    assert [name for name, _ in sections[:2]] == ["Unreleased", rookery.__version__]
    assert all(date for _, date in sections[1:])


def test_who_cites_it_cites_this_version_and_its_date() -> None:
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {rookery.__version__}\n" in citation
    date = re.search(r"^date-released: (.+)$", citation, re.MULTILINE)
    assert date is not None
    assert f"## [{rookery.__version__}] - {date[1]}\n" in CHANGELOG
