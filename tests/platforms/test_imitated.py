"""What every platform has to do, where the other platforms are imitated on this one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from patience import PATIENCE_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="imitates platforms on Linux")

HERE = Path(__file__).parent
IMITATION = HERE / "imitation"
# Checks that one interpreter makes: starting one costs more than most of them.
GROUPS = ("steps pipes interrupts", "parts ends", "faults", "collects", "trains stops")


@pytest.fixture(scope="module", params=["win32", "darwin", "posix"])
def platform(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """The environment of an interpreter that imitates a platform, as do those that it starts."""
    folder = tmp_path_factory.mktemp("imitation")
    yield {
        **os.environ,
        "ROOKERY_IMITATES": request.param,
        "ROOKERY_IMITATION_FOLDER": str(folder),
        "PYTHONPATH": str(IMITATION),
    }
    assert not list(folder.glob("section-*")), "shared memory was left behind"


@pytest.mark.slow
@pytest.mark.parametrize("checks", GROUPS)
def test_a_platform_does_what_every_platform_has_to_do(
    platform: dict[str, str], checks: str
) -> None:
    if platform["ROOKERY_IMITATES"] == "posix" and checks not in GROUPS[::2][:2]:
        pytest.skip("as imitated macOS shows")
    done = _run([str(HERE / "core.py"), *checks.split()], platform)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [word for check in checks.split() for word in (check, "done")]


def test_the_platform_decides_how_workers_start(platform: dict[str, str]) -> None:
    program = "from rookery.worker.start.launch import resolve_start_method as r; print(r(None))"
    method = "spawn" if platform["ROOKERY_IMITATES"] == "win32" else "forkserver"
    assert _run(["-c", program], platform).stdout.strip() == method


def _run(arguments: Sequence[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=PATIENCE_S,
        check=False,
        env=environment,
    )
