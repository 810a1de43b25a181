"""Builds the package, looks at it, installs it elsewhere and uses it there; see scripts/package."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

from contents import sdist_faults, wheel_faults, wheel_files

ROOT = Path(__file__).resolve().parent.parent.parent
DIST = ROOT / "dist"

# What a user of the extra `train` does first. Each command ends within seconds.
COMMANDS = (
    "rookery --version",
    "rookery train ppo CartPole-v1 --total-steps 2000 --num-envs 2 --seed 1 --run-dir runs/a",
    "rookery train --resume runs/a --total-steps 3000",
    "rookery eval runs/a --episodes 2",
    "rookery plot runs/a --output curves.png",
    "rookery report runs/a --output report.html",
    "rookery doctor CartPole-v1",
)
# Examples that need these are run by tests/test_readme.py.
_OTHER_EXTRAS = re.compile(r"\b(stable_baselines3|torchrl|ray|wandb|onnx)\b")


def main() -> int:
    """Build, look, and unless told otherwise install and use."""
    parser = argparse.ArgumentParser(prog="scripts/package", description=__doc__)
    parser.add_argument("--no-install", action="store_true", help="build and look only")
    arguments = parser.parse_args()
    wheel, sdist = build()
    faults = [
        *wheel_faults(wheel, ROOT / "src"),
        *sdist_faults(sdist),
        *differences_from_the_checkout(wheel),
        *metadata_faults(wheel),
    ]
    for fault in faults:
        print(fault, file=sys.stderr)
    if faults:
        return 1
    if not arguments.no_install:
        with tempfile.TemporaryDirectory(prefix="rookery-package-") as folder:
            use(wheel, Path(folder))
    print(f"{wheel.relative_to(ROOT)} and {sdist.relative_to(ROOT)} are as they should be.")
    return 0


def build() -> tuple[Path, Path]:
    """Build a source distribution, and a wheel of it; both pass the check of an index."""
    shutil.rmtree(DIST, ignore_errors=True)
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(DIST)], ROOT)
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    run([sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)], ROOT)
    return wheel, sdist


def differences_from_the_checkout(wheel: Path) -> list[str]:
    """How a wheel that is built from the checkout differs from the one that the sdist gave."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", folder]
        run(command, ROOT)
        direct = wheel_files(Path(folder) / wheel.name)
    files = wheel_files(wheel)
    names = sorted(files.keys() | direct.keys())
    different = [name for name in names if files.get(name) != direct.get(name)]
    return [f"{name} differs between wheels from sdist and from checkout" for name in different]


def metadata_faults(wheel: Path) -> list[str]:
    """What an index would show wrongly."""
    files = wheel_files(wheel)
    (text,) = (files[name].decode() for name in files if name.endswith("/METADATA"))
    head, _, page = text.partition("\n\n")
    faults = []
    for label in ("Homepage", "Documentation", "Changelog", "Issues"):
        if f"Project-URL: {label}, https://" not in head:
            faults.append(f"the metadata has no link {label}")
    (repository,) = re.findall("Project-URL: Homepage, (.*)", head)
    targets = re.findall(r"""(?:\]\(|\b(?:src|href)=")([^)"\s]+)""", page)
    for target in targets:
        if target.startswith(repository):
            path = target.removeprefix(repository).split("/", 3)[3:]  # "", blob, tag, path
            if path and not (ROOT / path[-1].partition("#")[0]).exists():
                faults.append(f"the page links to {target}, and there is no such file")
        elif not re.match(r"https?://|#|mailto:", target):
            faults.append(f"the page has a relative link: {target}")
    return faults


def use(wheel: Path, folder: Path) -> None:
    """Install the wheel with the extra `train` in an empty folder, and use it there."""
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    python = str(programs / ("python.exe" if os.name == "nt" else "python"))
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, "-c", str(ROOT / "constraints.txt"), f"{wheel}[train]"], folder)
    run([python, "-c", "import rookery; assert 'venv' in rookery.__file__"], folder)
    for number, example in enumerate(examples((ROOT / "README.md").read_text(encoding="utf-8"))):
        script = folder / f"example{number}.py"
        script.write_text(example, encoding="utf-8")
        run([python, str(script)], folder)
    for command in COMMANDS:
        name, *rest = shlex.split(command)
        run([str(programs / name), *rest], folder)


def examples(page: str) -> list[str]:
    """The page's Python examples in short form, but for those that need another extra."""
    found = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    short = [re.sub(r"\b\d{2,}_000\b", "2_000", example) for example in found]
    return [example for example in short if not _OTHER_EXTRAS.search(example)]


def run(command: Sequence[str], folder: Path) -> None:
    """Run a command; what it prints is shown only if it fails, and then this program ends."""
    print("+", shlex.join(Path(each).name if os.sep in each else each for each in command))
    result = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, errors="replace", check=False
    )
    if result.returncode:
        sys.exit(f"{result.stdout}{result.stderr}\nexit code {result.returncode}")


if __name__ == "__main__":
    sys.exit(main())
