"""Messages that a worker sent before it exited are received, however late its exit is noticed."""

from __future__ import annotations

from multiprocessing import Pipe
from typing import Any

import pytest

from rookery.errors import WorkerDied
from rookery.worker.channel import PipeChannel
from rookery.worker.thread import MessageQueue, QueueChannel


def channel_of_a_thread_that_ends(*last_words: tuple[int, Any]) -> QueueChannel:
    incoming = MessageQueue()

    def check() -> None:
        for message in last_words:
            incoming.put(message)
        raise WorkerDied("ended")

    return QueueChannel(MessageQueue(), incoming, check)


def test_a_message_between_the_wait_and_the_check_is_received() -> None:
    message = (3, "why")
    assert channel_of_a_thread_that_ends(message).receive() == message
    assert channel_of_a_thread_that_ends(message).has_message()
    heard: dict[int, Any] = {}
    channel_of_a_thread_that_ends(message).receive_into(heard)
    assert heard == dict([message])


def test_an_exit_without_a_message_raises() -> None:
    for call in ("receive", "has_message"):
        with pytest.raises(WorkerDied):
            getattr(channel_of_a_thread_that_ends(), call)()
    with pytest.raises(WorkerDied):
        channel_of_a_thread_that_ends().receive_into({})


def test_a_message_in_a_pipe_between_the_wait_and_the_check_is_received() -> None:
    ours, theirs = Pipe()
    worker = PipeChannel(theirs)

    def check() -> None:
        worker.send(3, b"why")
        raise WorkerDied("ended")

    with ours, theirs:
        assert PipeChannel(ours, check).receive() == (3, b"why")


def test_an_exit_without_a_message_in_a_pipe_raises() -> None:
    def check() -> None:
        raise WorkerDied("ended")

    ours, theirs = Pipe()
    with ours, theirs, pytest.raises(WorkerDied):
        PipeChannel(ours, check).receive()


def test_an_interruption_before_a_message_is_used_loses_none() -> None:
    class Interrupted(dict[int, Any]):
        def __setitem__(self, number: int, payload: Any) -> None:
            raise KeyboardInterrupt

    incoming = MessageQueue()
    channel = QueueChannel(MessageQueue(), incoming)
    incoming.put((3, "why"))
    with pytest.raises(KeyboardInterrupt):
        channel.receive_into(Interrupted())
    heard: dict[int, Any] = {}
    channel.receive_into(heard)
    assert heard == {3: "why"} and not channel.has_message()
