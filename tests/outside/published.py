"""The tests that other libraries publish with their sources, fetched into a folder git ignores."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
CACHE = ROOT / ".outside"
PACKAGES = ("stable-baselines3", "sb3-contrib")


def pinned_version(package: str) -> str:
    """The version of a package that ``constraints.txt`` pins."""
    pins = (ROOT / "constraints.txt").read_text()
    found = re.search(rf"^{re.escape(package)}==(\S+)$", pins, re.MULTILINE)
    if found is None:
        raise SystemExit(f"constraints.txt does not pin {package}")
    return found.group(1)


def fetch(package: str) -> Path:
    """The folder with the tests of a package's pinned version; downloaded the first time."""
    version = pinned_version(package)
    folder = CACHE / f"{package}-{version}"
    if not (folder / "tests").is_dir():
        _unpack_tests(_download(package, version), folder)
    return folder


def _download(package: str, version: str) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--dest", str(CACHE)]
    subprocess.run([*command, f"{package}=={version}"], check=True)
    return next(CACHE.glob(f"{package.replace('-', '_')}-{version}.tar.gz"))


def _unpack_tests(archive: Path, folder: Path) -> None:
    """Unpack ``tests/`` and pytest's settings, not the library: the installed one is tested."""
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            _, _, name = member.name.partition("/")
            wanted = name == "pyproject.toml" or name.startswith("tests/")
            content = tar.extractfile(member) if wanted and ".." not in name else None
            if content is not None:
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content.read())
    if not (folder / "tests").is_dir():
        raise SystemExit(f"{archive.name} contains no tests; this version publishes none")
