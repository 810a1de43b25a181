"""Messages between a caller and a worker."""

from __future__ import annotations

from multiprocessing import connection

import pytest

from rookery.errors import WorkerTimeout
from rookery.worker.channel import PipeChannel
from rookery.worker.pipes import ChannelClosedError


def _late() -> None:
    raise WorkerTimeout("too late")


def test_an_os_error_of_a_check_is_not_mistaken_for_a_closed_pipe() -> None:
    ours, theirs = connection.Pipe()
    channel = PipeChannel(ours, check=_late)
    with pytest.raises(WorkerTimeout, match="too late"):
        channel.receive()
    with pytest.raises(WorkerTimeout, match="too late"):
        channel.send(0, bytes(10_000_000))
    channel.close()
    theirs.close()


def test_a_pipe_whose_other_end_is_gone_is_closed() -> None:
    ours, theirs = connection.Pipe()
    channel = PipeChannel(ours, check=_late)
    theirs.close()
    with pytest.raises(ChannelClosedError):
        channel.receive()
    with pytest.raises(ChannelClosedError):
        channel.send(0, b"anything")
    channel.close()
