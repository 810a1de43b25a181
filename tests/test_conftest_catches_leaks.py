"""The fixture that watches every test is itself watched."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from _multiprocessing import sem_unlink
from pathlib import Path

import pytest
from patience import PATIENCE_S

linux_only = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="reads /proc, which only Linux has"
)

# A name in it is not of the process whose tests these are.
ANOTHERS = f"/rookery-{os.getpid()}-watched"

WATCHED = f"""
import mmap, multiprocessing, os, pytest, signal, subprocess, sys, threading, time
from _multiprocessing import SemLock, sem_unlink
from multiprocessing import forkserver

kept = []

def test_clean():
    open(__file__).close()

def test_child():
    code = "import sys; sys.stdin.read()"
    kept.append(subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE))

def test_unreaped_child():
    if os.fork() == 0:
        os._exit(0)

def test_folder_of_a_killed_program():
    code = (
        "import os, signal\\n"
        "from multiprocessing import forkserver\\n"
        "forkserver.ensure_running()\\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL

def test_fork_server():
    forkserver.ensure_running()

def test_worker_of_a_fork_server():
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=time.sleep, args=(3600,), daemon=True)
    process.start()
    kept.append(process)

def test_worker_that_has_ended():
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=time.sleep, args=(0,))
    process.start()
    process.join()
    process.close()

def test_descriptor():
    kept.append(open(__file__))

def test_pipe():
    os.pipe()

@pytest.fixture(scope="session")
def session():
    with open(__file__):
        yield

def test_fixture_of_a_session(session):
    pass

@pytest.fixture(scope="class")
def of_a_class():
    yield
    kept.append(open(__file__))

class TestsWithAFixture:
    def test_of_a_class(self, of_a_class):
        pass

def test_after_a_class():
    pass

def test_mapping():
    kept.append(mmap.mmap(-1, 4096))

is_over = threading.Event()

def test_thread():
    kept.append(threading.Thread(target=is_over.wait, name="straggler"))
    kept[-1].start()

def test_thread_that_ends():
    is_over.set()
    kept[-1].join()

name = f"/rookery-{{os.getpid()}}-watched"

def test_semaphore():
    SemLock(1, 0, 1, name, False)

def test_semaphore_that_is_removed():
    sem_unlink(name)

def test_semaphore_of_another():
    SemLock(1, 0, 1, {ANOTHERS!r}, False)

class Cycle:
    def __init__(self):
        self.mapping, self.me = mmap.mmap(-1, 4096), self

def test_garbage():
    Cycle()
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What this suite's conftest said of each watched test, by its name; "" if it was content."""
    folder, here = tmp_path_factory.mktemp("watched"), Path(__file__).parent
    text = (here / "conftest.py").read_text()
    for old, new in (
        ("_GRACE_S = 30.0", "_GRACE_S = 0.5"),
        ("sem.*rookery*", "sem.*rookery*watched*"),  # nobody else's, for others run tests too
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    (folder / "pytest.ini").write_text("[pytest]\n")
    tests = folder / "tests"
    tests.mkdir()
    (tests / "conftest.py").write_text(text)
    (tests / "pairs.py").write_text((here / "pairs.py").read_text())
    (tests / "test_watched.py").write_text(WATCHED)
    try:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-p",
                "no:cacheprovider",
                "--junitxml=said.xml",
                "tests",
            ],
            cwd=folder,
            env={
                **os.environ,
                "PYTHONWARNINGS": "ignore",
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # none is needed, and some are slow
            },
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
    finally:
        if sys.platform.startswith("linux"):
            sem_unlink(ANOTHERS)
    assert done.returncode == 1, done.stdout + done.stderr
    cases = list(ET.parse(folder / "said.xml").iter("testcase"))
    assert not [case.get("name") for case in cases if case.find("failure") is not None]
    return {case.get("name", ""): case.findtext("error", "") for case in cases}


def test_a_test_that_leaves_nothing_passes(said):
    assert said["test_clean"] == ""


def test_a_leaked_child_process_is_named(said):
    (line,) = _lines(said["test_child"], "child process: pid ")
    assert "sys.stdin.read()" in line


def test_an_unreaped_child_process_is_a_leak(said):
    (line,) = _lines(said["test_unreaped_child"], "child process: pid ")
    assert "zombie" in line


def test_a_leaked_worker_of_the_fork_server_is_a_leak_but_the_server_is_not(said):
    assert len(_lines(said["test_worker_of_a_fork_server"], "child process: pid ")) == 1
    assert said["test_fork_server"] == "" and said["test_worker_that_has_ended"] == ""


@linux_only
def test_a_leaked_descriptor_is_named(said):
    (line,) = _lines(said["test_descriptor"], "descriptor: ")
    assert line.endswith("test_watched.py")


@linux_only
def test_a_leaked_pipe_is_a_leak(said):
    assert len(_lines(said["test_pipe"], "descriptor: pipe")) == 2


@linux_only
def test_a_leaked_shared_mapping_is_named(said):
    assert _lines(said["test_mapping"], "shared mapping: ") == [
        "shared mapping: /dev/zero (deleted)"
    ]


def test_what_fixtures_of_several_tests_keep_is_no_leak_of_one(said):
    assert said["test_fixture_of_a_session"] == ""
    assert said["test_of_a_class"] == said["test_after_a_class"] == ""


def test_a_thread_that_goes_on_is_named(said):
    assert len(_lines(said["test_thread"], "thread: <Thread(straggler")) == 1
    assert said["test_thread_that_ends"] == ""


def test_a_folder_of_a_killed_programs_fork_server_is_named(said):
    (line,) = _lines(said["test_folder_of_a_killed_program"], "file: ")
    assert "/pymp-" in line


@linux_only
def test_a_named_semaphore_of_ours_is_named(said):
    (line,) = _lines(said["test_semaphore"], "file: /dev/shm/sem.rookery-")
    assert line.endswith("-watched")
    assert said["test_semaphore_that_is_removed"] == ""


@linux_only
def test_a_named_semaphore_of_another_program_is_no_leak(said):
    assert said["test_semaphore_of_another"] == ""


@linux_only
def test_what_garbage_collection_frees_is_no_leak(said):
    assert said["test_garbage"] == ""


def _lines(error: str, beginning: str) -> list[str]:
    """What the error tells of one kind."""
    return [line.strip() for line in error.splitlines() if line.strip().startswith(beginning)]
