from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing.connection import Connection

import numpy as np
import pytest

from rookery.memory import SharedBlock


def _fill(connection: Connection) -> None:
    memory = SharedBlock.receive(connection)
    np.frombuffer(memory, np.uint8)[...] = 7
    connection.send("filled")


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_another_process_writes_into_the_block(method: str) -> None:
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    child = context.Process(target=_fill, args=(theirs,))
    child.start()
    block = SharedBlock(100)
    block.send(ours, child.pid)
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


@pytest.mark.skipif(sys.platform != "linux", reason="reads /dev/shm")
def test_a_block_has_no_name_in_the_file_system() -> None:
    before = set(os.listdir("/dev/shm"))
    block = SharedBlock(4096)
    assert set(os.listdir("/dev/shm")) == before
    block.close()
