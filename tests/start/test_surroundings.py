"""Workers start silently, wherever a program runs and however it was started."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from patience import PATIENCE_S

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="descriptors and folders of POSIX")

WORK = """
import os
def work(method=METHOD):
    import numpy as np, rookery
    with rookery.make_vec(
        "CartPole-v1", num_envs=2, backend="process", num_workers=2, start_method=method
    ) as venv:
        venv.reset(seed=1)
        venv.step(np.array([0, 1]))
"""

SITUATIONS = {
    "sigchld_ignored": """
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
work()
work()
""",
    "directory_gone": """
import tempfile
os.chdir(tempfile.mkdtemp())
os.rmdir(os.getcwd())
work()
""",
    "streams_none": """
import sys
out, sys.stdin, sys.stdout, sys.stderr = sys.stdout, None, None, None
work()
sys.stdout = out
""",
    "descriptors_closed": """
out = os.dup(1)
os.set_inheritable(out, False)
for descriptor in range(3):
    os.close(descriptor)
work()
os.write(out, b"done\\n")
os._exit(0)
""",
    "daemonic": """
import multiprocessing
if __name__ == "__main__":
    for method in ("fork", "spawn"):
        child = multiprocessing.get_context(method).Process(target=work, daemon=True)
        child.start()
        child.join()
        assert child.exitcode == 0
""",
    "executor": """
from concurrent.futures import ProcessPoolExecutor
if __name__ == "__main__":
    with ProcessPoolExecutor(1) as executor:
        executor.submit(work).result()
""",
    "method_set_later": """
import multiprocessing
work()
multiprocessing.set_start_method("spawn")
""",
    "left_open": """
import rookery
venv = rookery.make_vec("CartPole-v1", num_envs=2, backend="process", start_method=METHOD)
venv.reset()
""",
}


def _imports_without_a_directory() -> bool:
    """Return whether children can import what multiprocessing needs; not in Python 3.13.0."""
    code = """
import os, subprocess, sys, tempfile
os.chdir(tempfile.mkdtemp())
os.rmdir(os.getcwd())
sys.exit(subprocess.run([sys.executable, "-c", "import socket"], capture_output=True).returncode)
"""
    return subprocess.run([sys.executable, "-c", code]).returncode == 0


def _run(arguments: list[str], cwd: Path, **environment: str) -> None:
    environment = {**os.environ, **environment}
    environment.pop("HOME", None)
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=environment,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)


def _script(tmp_path: Path, method: str, situation: str) -> str:
    script = WORK.replace("METHOD", repr(method)) + situation.replace("METHOD", repr(method))
    script += "\nif __name__ == '__main__':\n    print('done')\n"
    (tmp_path / "script.py").write_text(script)
    return script


# What a child inherits, which is another thing with every start method.
INHERITED = ("sigchld_ignored", "directory_gone", "streams_none", "descriptors_closed")


@pytest.mark.parametrize(
    ("situation", "method"),
    [
        pytest.param(
            situation,
            method,
            marks=[pytest.mark.whole] * (method != "forkserver" and situation not in INHERITED),
        )
        for situation in SITUATIONS
        for method in ("forkserver", "spawn", "fork")
    ],
)
def test_workers_start_in_an_unusual_process(tmp_path: Path, situation: str, method: str) -> None:
    if situation == "directory_gone" and not _imports_without_a_directory():
        pytest.skip("this Python cannot import socket where the current directory is gone")
    _script(tmp_path, method, SITUATIONS[situation])
    _run(["script.py"], tmp_path)


@pytest.mark.parametrize(
    ("folder", "method"),
    [
        ("missing", "forkserver"),  # which alone keeps a socket there
        *(("l" * 150, method) for method in ("forkserver", "spawn", "fork")),
        *(pytest.param("missing", m, marks=pytest.mark.whole) for m in ("spawn", "fork")),
    ],
)
def test_workers_start_without_a_folder_for_temporary_files(
    tmp_path: Path, folder: str, method: str
) -> None:
    temporary = tmp_path / folder
    if folder != "missing":
        temporary.mkdir()
    _script(tmp_path, method, "work()")
    _run(["script.py"], tmp_path, TMPDIR=str(temporary))
    assert not temporary.exists() or not os.listdir(temporary)


@pytest.mark.parametrize(
    "method", ["forkserver", "spawn", pytest.param("fork", marks=pytest.mark.whole)]
)
def test_workers_start_from_an_archive_and_under_runpy(tmp_path: Path, method: str) -> None:
    script = _script(tmp_path, method, "work()")
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as archive:
        archive.writestr("__main__.py", script)
    _run(["app.zip"], tmp_path)
    _run(["-c", "import runpy; runpy.run_path('script.py', run_name='__main__')"], tmp_path)


def test_the_error_of_a_child_that_imports_its_script_names_the_main_guard(tmp_path: Path) -> None:
    script = """
import multiprocessing, rookery
try:
    venv = rookery.make_vec("CartPole-v1", 1, backend="process")
except rookery.UsageError as error:
    assert "__name__" in str(error)
    print("told", flush=True)
else:
    venv.close()
if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=print, args=("ran",))
    child.start()
    child.join()
    print("done")
"""
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (done.stdout, done.stderr) == ("told\nran\ndone\n", "")
