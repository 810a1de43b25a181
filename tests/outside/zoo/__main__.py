"""Envs of many packages of PyPI: the same numbers through rookery as through SyncVectorEnv.

scripts/outside --zoo [PACKAGE ...]
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
CACHE = ROOT / ".outside" / "zoo"
RESULTS = ROOT / "benchmarks" / "results" / "zoo.json"
_INSTALL_TIMEOUT_S = 1200.0
_TIMEOUT_S = 1800.0
_HEADLESS = {"SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy", "PYGLET_HEADLESS": "1"}
_MAY_BE = ("equal", "refused by both", "not deterministic", "not thread-safe", "skipped")

Row = dict[str, Any]


def main() -> int:
    """Run the packages asked for; 0 if no env differs."""
    packages = json.loads((HERE / "packages.json").read_text())
    known = [package["package"] for package in packages]
    parser = argparse.ArgumentParser(
        prog="scripts/outside --zoo", description=__doc__.splitlines()[0]
    )
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help=", ".join(known))
    wanted = parser.parse_args().packages or known
    if unknown := {*wanted} - {*known}:
        parser.error(f"packages.json has no {' and no '.join(sorted(unknown))}")
    rows: list[Row] = []
    for package in packages:
        if package["package"] in wanted:
            found = _rows(package)
            rows += found
            _write(found)
    different = [
        row for row in rows if not all(outcome.startswith(_MAY_BE) for outcome in row["outcomes"])
    ]
    print(f"\n{len(rows)} envs of {len({*wanted})} packages, {len(different)} differ")
    return int(bool(different))


def _rows(package: dict[str, Any]) -> list[Row]:
    name = package["package"]
    folder = CACHE / name
    problem = _install(folder, package.get("install", [name]))
    if problem is not None:
        row = {"package": name, "outcomes": {f"skipped: {problem}": "all"}}
        _print(row)
        return [row]
    rows = []
    for case in package["envs"]:
        rows.append(_row(package, case, folder))
        _print(rows[-1])
    return rows


def _install(folder: Path, requirements: list[str]) -> str | None:
    """Make a virtual env with a package and what rookery needs; why not, if that cannot be."""
    stamp = folder / "installed.json"
    if stamp.exists() and json.loads(stamp.read_text()) == requirements:
        return None
    needed = [r for r in importlib.metadata.requires("rookery") or () if "extra ==" not in r]
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", folder], check=True)
    command = [sys.executable, "-m", "pip", "--python", str(folder), "install", "--quiet"]
    try:
        done = subprocess.run(
            [*command, "--disable-pip-version-check", *needed, *requirements],
            capture_output=True,
            text=True,
            timeout=_INSTALL_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "pip did not end in time"
    (folder / "pip.log").write_text(done.stderr)
    if done.returncode:
        conflict = "ResolutionImpossible" in done.stderr
        return f"pip finds no versions that fit {needed}" if conflict else "pip cannot install it"
    stamp.write_text(json.dumps(requirements))
    return None


def _row(package: dict[str, Any], case: dict[str, Any], folder: Path) -> Row:
    """Compare one env in a process of its own, and group its outcomes."""
    name, python = package["package"], folder / "bin" / "python"
    site = next(folder.glob("lib/*/site-packages"))
    sources = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    environment = {**os.environ, **_HEADLESS, "PYTHONPATH": sources}
    for variable, value in package.get("environment", {}).items():
        environment[variable] = value.replace("{site}", str(site))
    told = json.dumps(case).replace("{site}", str(site))
    env = case.get("id") or case["factory"]
    log = folder / f"{env.replace('/', '-')}.log"
    row: Row = {"package": name, "version": _version(name, site), "env": env}
    row |= {"kwargs": case.get("kwargs", {})}
    try:
        with log.open("w") as errors:
            done = subprocess.run(
                [python, "-W", "ignore", HERE / "compare.py", told],
                env=environment,
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                timeout=_TIMEOUT_S,
                check=True,
            )
        found = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, ValueError, IndexError) as error:
        return {**row, "outcomes": {f"FAILED: {type(error).__name__}, see {log.name}": "all"}}
    groups: dict[str, list[str]] = defaultdict(list)
    for key, outcome in found.pop("outcomes").items():
        groups[outcome].append(key)
    outcomes = {k: "all" if len(groups) == 1 else ", ".join(v) for k, v in groups.items()}
    return {**row, **found, "outcomes": outcomes}


def _version(name: str, site: Path) -> str:
    path = [str(site)]
    found = importlib.metadata.distributions(name=name, path=path)
    return next((distribution.version for distribution in found), "")


def _print(row: Row) -> None:
    steps = f"{row.get('steps', '-')} steps, {row.get('episodes', '-')} episodes"
    print(f"{row['package']} {row.get('version', '')}  {row.get('env', '')}  {steps}")
    for outcome, where in row["outcomes"].items():
        print(f"    {where}: {outcome}", flush=True)


def _write(rows: list[Row]) -> None:
    """Record the rows beside those of the packages that did not run now."""
    earlier = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    ran = {row["package"] for row in rows}
    kept = [row for row in earlier if row["package"] not in ran]
    result = {
        "python": platform.python_version(),
        "rows": sorted([*kept, *rows], key=lambda row: row["package"]),
    }
    text = json.dumps(result, indent=1).replace(str(CACHE), "")
    RESULTS.write_text(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
