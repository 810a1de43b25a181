"""The fixture that watches every test is itself watched."""

from __future__ import annotations

import os
import sys
from _multiprocessing import sem_unlink
from pathlib import Path

import pytest

linux_only = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="reads /proc, which only Linux has"
)


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Run a test file under this suite's conftest, in a process of its own."""
    folder = Path(__file__).parent
    text = (folder / "conftest.py").read_text()
    for old, new in (
        ("_GRACE_S = 30.0", "_GRACE_S = 0.5"),
        ("sem.*rookery*", "sem.*rookery*watched*"),  # nobody else's, for others run tests too
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    pytester.makeconftest(text)
    pytester.makepyfile(pairs=(folder / "pairs.py").read_text())
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    monkeypatch.delenv("CI", raising=False)  # there pytest repeats failures in its summary

    def run_file(source: str) -> pytest.RunResult:
        pytester.makepyfile(source)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider")

    return run_file


def test_a_test_that_leaves_nothing_passes(run):
    run("def test_clean(): open(__file__).close()").assert_outcomes(passed=1)


def test_a_leaked_child_process_is_named(run):
    result = run(
        """
        import subprocess, sys
        kept = []
        def test_leak():
            code = "import sys; sys.stdin.read()"
            kept.append(subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE))
        """
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*child process: pid *sys.stdin.read()*"])


def test_an_unreaped_child_process_is_a_leak(run):
    result = run(
        """
        import os
        def test_leak():
            if os.fork() == 0:
                os._exit(0)
        """
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*child process: pid *zombie*"])


def test_a_leaked_worker_of_the_fork_server_is_a_leak_but_the_server_is_not(run):
    source = """
        import multiprocessing, time
        context = multiprocessing.get_context("forkserver")
        kept = []
        def test_leak():
            process = context.Process(target=time.sleep, args=(60,), daemon=True)
            process.start()
            kept.append(process)
        def test_clean():
            process = context.Process(target=time.sleep, args=(0,))
            process.start()
            process.join()
            process.close()
        """
    result = run(source)
    result.assert_outcomes(passed=2, errors=1)
    assert result.stdout.str().count("child process: pid") == 1


@linux_only
def test_a_leaked_descriptor_is_named(run):
    result = run("kept = []\ndef test_leak(): kept.append(open(__file__))")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*descriptor: *test_a_leaked_descriptor_is_named.py"])


@linux_only
def test_a_leaked_pipe_is_a_leak(run):
    result = run("import os\ndef test_leak(): os.pipe()")
    result.assert_outcomes(passed=1, errors=1)
    assert result.stdout.str().count("descriptor: pipe") == 2


@linux_only
def test_a_leaked_shared_mapping_is_named(run):
    result = run("import mmap\nkept = []\ndef test_leak(): kept.append(mmap.mmap(-1, 4096))")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*shared mapping: /dev/zero (deleted)"])


def test_a_thread_that_goes_on_is_named(run):
    result = run(
        """
        import threading
        is_over = threading.Event()
        def test_leak():
            threading.Thread(target=is_over.wait, name="straggler").start()
        def test_clean():
            is_over.set()
        """
    )
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*thread: <Thread(straggler*"])


def test_a_folder_of_a_killed_programs_fork_server_is_named(run):
    result = run(
        """
        import os, signal, subprocess, sys
        def test_leak():
            code = (
                "import os, signal\\n"
                "from multiprocessing import forkserver\\n"
                "forkserver.ensure_running()\\n"
                "os.kill(os.getpid(), signal.SIGKILL)"
            )
            assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
        def test_clean():
            from multiprocessing import forkserver
            forkserver.ensure_running()
        """
    )
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*file: */pymp-*"])


@linux_only
def test_a_named_semaphore_of_ours_is_named(run):
    result = run(
        """
        import os
        from _multiprocessing import SemLock, sem_unlink
        name = f"/rookery-{os.getpid()}-watched"
        def test_leak(): SemLock(1, 0, 1, name, False)
        def test_clean(): sem_unlink(name)
        """
    )
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*file: /dev/shm/sem.rookery-*-watched"])


@linux_only
def test_a_named_semaphore_of_another_program_is_no_leak(run):
    name = f"/rookery-{os.getpid()}-watched"  # this process is not the one whose tests run
    try:
        result = run(
            f"""
            from _multiprocessing import SemLock
            def test_clean(): SemLock(1, 0, 1, {name!r}, False)
            """
        )
    finally:
        sem_unlink(name)
    result.assert_outcomes(passed=1)


@linux_only
def test_what_garbage_collection_frees_is_no_leak(run):
    result = run(
        """
        import mmap
        class Cycle:
            def __init__(self):
                self.mapping, self.me = mmap.mmap(-1, 4096), self
        def test_garbage(): Cycle()
        """
    )
    result.assert_outcomes(passed=1)
