"""Shared blocks: mapped by two processes, never leaked, with errors that name a way out."""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import subprocess
import sys
from multiprocessing.connection import Connection

import numpy as np
import pytest
from patience import PATIENCE_S

from rookery.shared import SharedBlock
from rookery.worker.channel import PipeChannel


def _fill(connection: Connection) -> None:
    memory = PipeChannel(connection).receive_block()
    np.frombuffer(memory, np.uint8)[...] = 7
    connection.send("filled")


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_another_process_writes_into_the_block(method: str) -> None:
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    child = context.Process(target=_fill, args=(theirs,))
    child.start()
    block = SharedBlock(100)
    PipeChannel(ours).send_block(block)
    assert ours.recv() == "filled"
    assert (np.frombuffer(block.memory, np.uint8) == 7).all()
    block.close()
    child.join()
    child.close()
    ours.close()
    theirs.close()


def test_arrays_outlive_the_closed_block() -> None:
    block = SharedBlock(64)
    array = np.frombuffer(block.memory, np.int64)
    block.close()
    block.close()
    array[0] = 5
    assert array[0] == 5


@pytest.mark.skipif(sys.platform == "win32", reason="there a block has a handle")
def test_a_block_has_no_name_in_the_file_system() -> None:
    block = SharedBlock(4096)
    assert os.fstat(block.address[1]).st_nlink == 0
    block.close()


_CANNOT = """
import os, resource
from rookery.shared import SharedBlock
before = len(os.listdir("/proc/self/fd"))
resource.setrlimit(resource.{limit}, ({soft}, {soft}))
try:
    SharedBlock({size})
except MemoryError as error:
    resource.setrlimit(resource.{limit}, ({soft}, {soft}))
    print(type(error).__name__, error)
if "{limit}" != "RLIMIT_NOFILE":
    assert len(os.listdir("/proc/self/fd")) == before
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits and messages of Linux")
@pytest.mark.parametrize(
    ("limit", "soft", "size", "words"),
    [
        ("RLIMIT_FSIZE", 2**20, 2**22, "4.0 MiB of shared memory.*ulimit -f"),
        ("RLIMIT_AS", 2**32, 2**33, "8192.0 MiB of shared memory.*fewer envs"),
        ("RLIMIT_NOFILE", 3, 1000, "1000 bytes of shared memory.*ulimit -n"),
        ("RLIMIT_FSIZE", 2**20, 2**80, "MiB of shared memory.*fewer envs"),
    ],
)
def test_memory_that_cannot_be_allocated_is_reported_with_advice(
    limit: str, soft: int, size: int, words: str
) -> None:
    script = _CANNOT.format(limit=limit, soft=soft, size=size)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(f"SharedMemoryError .*{words}.*\n", done.stdout), done.stdout


def test_a_block_with_an_interrupted_init_is_deleted_silently(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", errors.append)
    block = SharedBlock.__new__(SharedBlock)  # as after a Ctrl-C before the first line of __init__
    del block
    gc.collect()
    assert errors == []
