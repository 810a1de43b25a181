"""What the wheel and the source distribution must hold, and nothing else."""

from __future__ import annotations

import re
import tarfile
import zipfile
from pathlib import Path

# Of the wheel, beside every module. A file that is missing here or there was forgotten.
DATA = {
    "rookery/py.typed",
    "rookery/report/page/page.html",
    "rookery/report/page/style.css",
    *(
        f"rookery/{folder}/{algorithm}.json"
        for folder in ("run/presets", "tuning/hyperparameters/spaces")
        for algorithm in ("a2c", "dqn", "impala", "ppo", "qrdqn", "sac", "td3")
    ),
}
METADATA = {"METADATA", "WHEEL", "entry_points.txt", "licenses/LICENSE", "RECORD"}

# Of the source distribution: what builds it, what tests it, and what explains it.
NEEDED = {
    "CHANGELOG.md",
    "CITATION.cff",
    "CONTRIBUTING.md",
    "LICENSE",
    "PKG-INFO",
    "README.md",
    "README.zh-CN.md",
    "SECURITY.md",
    "benchmarks/__main__.py",
    "constraints-lowest.txt",
    "constraints.txt",
    "docs/architecture.md",
    "examples/trainer_loop.py",
    "hatch_build.py",
    "pyproject.toml",
    "scripts/install",
    "scripts/test",
    "tests/conftest.py",
    "tests/package/contents.py",
    "tests/vector/test_process.py",
}
FOLDERS = {"benchmarks", "docs", "examples", "scripts", "src", "tests"}
_STRAY = re.compile(r"__pycache__|\.py[co]$|\.so$|\.orig$|~$|(^|/)\.(?!gitignore$)")
_MOST_BYTES = 2**20


def wheel_faults(wheel: Path, source: Path) -> list[str]:
    """What is wrong with the files of a wheel.

    Args:
        wheel: the file.
        source: the folder ``src`` of the checkout.
    """
    name, version = wheel.name.split("-")[:2]
    info = f"{name}-{version}.dist-info"
    modules = {path.relative_to(source).as_posix() for path in source.glob("rookery/**/*.py")}
    expected = modules | DATA | {f"{info}/{each}" for each in METADATA}
    found = set(wheel_files(wheel))
    return [f"{wheel.name}: {path} is missing" for path in sorted(expected - found)] + [
        f"{wheel.name}: {path} should not be there" for path in sorted(found - expected)
    ]


def sdist_faults(sdist: Path) -> list[str]:
    """What is wrong with the files of a source distribution."""
    with tarfile.open(sdist) as archive:
        sizes = {each.name.partition("/")[2]: each.size for each in archive if each.isfile()}
    top = {path for path in sizes if "/" not in path}
    folders = {path.partition("/")[0] for path in sizes.keys() - top}
    faults = [f"{path} is missing" for path in sorted(NEEDED - sizes.keys())]
    faults += [f"{path} should not be there" for path in sorted(top - NEEDED - {".gitignore"})]
    faults += [f"{folder}/ is missing" for folder in sorted(FOLDERS - folders)]
    faults += [f"{folder}/ should not be there" for folder in sorted(folders - FOLDERS)]
    faults += [f"{path} is left over" for path in sorted(sizes) if _STRAY.search(path)]
    faults += [f"{path} has {size} bytes" for path, size in sizes.items() if size > _MOST_BYTES]
    return [f"{sdist.name}: {fault}" for fault in faults]


def wheel_files(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel, by name."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}
