"""Undocumented parts of the standard library that are needed for starting children.

Should a new Python lack one, this says which; everything that uses them is in
``worker/start/`` and ``worker/wait/event.py``.
"""

from __future__ import annotations

import _multiprocessing
import atexit
import inspect
import multiprocessing
import os
import sys
from multiprocessing import forkserver, popen_forkserver, process, resource_tracker, spawn, util

import pytest

from rookery.worker.start.launch import give_up

posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX only")


def _parameters(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type]


def test_attributes_of_a_process_object() -> None:
    child = multiprocessing.get_context("spawn").Process(target=print, daemon=True)
    assert child._config["daemon"] is True
    assert child._popen is None
    assert isinstance(process._children, set)
    assert isinstance(process.current_process()._config, dict)
    assert hasattr(process, "ORIGINAL_DIR")


def test_preparation_data_of_a_child() -> None:
    assert _parameters(spawn.get_preparation_data) == ["name"]
    data = spawn.get_preparation_data("some name")
    assert {"name", "authkey", "sys_path", "sys_argv", "orig_dir", "dir"} <= set(data)
    command = spawn.get_command_line(tracker_fd=1, pipe_handle=2)
    assert command[-3] == "-c"
    assert "\n" not in command[-2]
    assert _parameters(spawn._main) == ["fd", "parent_sentinel"]
    source = inspect.getsource(spawn.prepare)
    for key in ("name", "authkey", "sys_path", "sys_argv", "orig_dir", "dir"):
        assert f"if '{key}' in data" in source, f"spawn.prepare no longer takes {key!r} or nothing"


@posix
def test_functions_that_start_a_child_from_a_server() -> None:
    assert _parameters(forkserver.connect_to_new_process) == ["fds"]
    source = inspect.getsource(popen_forkserver.Popen)
    for used in (
        "spawn.get_preparation_data(",
        "forkserver.connect_to_new_process(",
        "forkserver.read_signed(self.sentinel)",
    ):
        assert used in source, f"popen_forkserver no longer calls {used}"
    assert forkserver._forkserver._inherited_fds is None
    assert "_inherited_fds" in inspect.getsource(forkserver.ForkServer.get_inherited_fds)
    assert _parameters(forkserver.write_signed) == ["fd", "n"]
    assert hasattr(resource_tracker._resource_tracker, "_fd")


@posix
def test_cleaning_up_after_a_forked_child() -> None:
    """The child does it in ``_bootstrap``, or the process that forks it by exit functions."""
    source = inspect.getsource(forkserver.main)
    itself = "_exit_function" in inspect.getsource(process.BaseProcess._bootstrap)
    assert itself != ("atexit._run_exitfuncs()" in source)
    assert itself == (sys.version_info < (3, 13))
    assert callable(util._exit_function)
    assert callable(atexit._clear)


@posix
def test_functions_that_make_a_server_and_an_event() -> None:
    assert isinstance(util._args_from_interpreter_flags(), list)
    assert spawn.get_executable()
    assert hasattr(_multiprocessing.SemLock, "_rebuild")
    assert callable(_multiprocessing.sem_unlink)
    assert _parameters(resource_tracker.register)[:2] == ["name", "rtype"]


@posix
def test_a_forked_process_uses_replaced_functions() -> None:
    from multiprocessing import popen_fork

    source = inspect.getsource(popen_fork.Popen._launch)
    assert "os.pipe()" in source
    assert "os.fork()" in source
    assert "returncode is None" in inspect.getsource(popen_fork.Popen._send_signal)


@posix
def test_a_child_that_other_code_has_reaped_is_marked_as_exited() -> None:
    child = multiprocessing.get_context("fork").Process(target=print)
    child.start()
    os.waitpid(child.pid or 0, 0)
    give_up(child)
    assert child.exitcode == 255
    child.close()
